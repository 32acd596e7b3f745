"""The small runs of the table of digests, and the child process that computes their digests.

Settings that are defaults are written out, so that a new default changes no digest: initial models, the final exchange,
devices, staleness, graphs that change every round. `python digest_runs.py 0 2` prints the first half of the table.
"""

import gc
import hashlib
import json
import os
import signal
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import fixed_costs

BASE = """
seed: 1
rounds: 4
mode: sync
compute_device: cpu
nodes: {clusters: [5, 3], placement: contiguous}
protocol: {deadline_s: null, late_messages: drop, staleness_s: null}
model: {name: mlp, hidden: [8]}
data: {name: fashion-mnist-mini}
partition: {name: uniform}
shift: {name: rotate}
validation: {source: none}
training: {optimizer: sgd, learning_rate: 0.05, batch_size: 8, local_steps: 3, optimizer_state: fresh}
topology: {name: random_regular, degree: 3, dynamic: true}
network:
  fidelity: flow
  header_bytes: 64
  links: {name: uniform, uplink_mbps: 20, downlink_mbps: 50, latency_ms: 20}
  compression: {name: none}
  server_mbps: 1000
devices: {name: constant, step_time_s: 0.05}
evaluation: {every: 2, target_accuracy: 0.15, samples: 100, evaluated_model: last}
records: {models: none}
"""

OWN_START = ("facade", "el", "deprl", "dac", "pens", "mapl", "fedsim", "fedclassavg", "fedproto")
"""Algorithms whose nodes start from different models here; those of all others start from equal ones."""

ALGORITHMS = {
    "facade": "heads: 2, warmup_rounds: 1, variant: code, final_all_reduce: true",
    "el": "variant: local, fanout: 3, final_all_reduce: true",
    "dpsgd": "final_all_reduce: true",
    "deprl": "core_steps: 1, final_all_reduce: true",
    "dac": "variant: facade, loss_batches: local_steps, sampled_peers: 3",
    "random": "sampled_peers: 3",
    "oracle": "sampled_peers: 3",
    "local": "",
    "pens": "loss_batches: local_steps, sampled_peers: 3, stage1_rounds: 2",
    "panm": "loss_batches: local_steps, sampled_peers: 2, stage1_rounds: 2",
    "gossip": "merge: age",
    "adpsgd": "",
    "mapl": "warmup_rounds: 1, projection_units: 16, temperature: 0.5",
    "fedavg": "weights: samples",
    "fedprox": "mu: 0.01",
    "scaffold": "global_rate: 1",
    "fedsim": "",
    "fedclassavg": "temperature: 100",
    "fedproto": "proto_weight: 0.1",
    "dfedavgm": "",
    "gtsgd": "",
    "sgp": "",
}
"""Settings of the algorithms."""

SLOW_AND_FAST = "devices={name: lognormal, median_step_time_s: 0.05, sigma: 0.5}"
AWAY = "offline: [{node: 2, start_s: 0.1, end_s: 0.5}, {node: 7, start_s: 0.3, end_s: 99}]"
CHURN = f"churn={{name: schedule, {AWAY}, state: kept}}"
CHURN_WITHOUT_STATE = f"churn={{name: schedule, {AWAY}, state: lost}}"
LOSSES = ("network.drop_probability=0.2", "network.on_drop=drop")
RETRANSMITTED = ("network.drop_probability=0.2", "network.on_drop=retransmit")
VALIDATION = "validation={source: node, fraction: 0.2}"
REGRESSION = ("data={name: synthetic_regression, test_samples: 20}", "shift={name: none}", "partition={name: domains}")


def algorithm(name: str, **changes: str) -> str:
    """Return the override that selects an algorithm with its settings in this table, some of them changed."""
    settings = dict(pair.split(": ") for pair in ALGORITHMS[name].split(", ") if pair)
    return f"algorithm={{name: {name}{''.join(f', {key}: {value}' for key, value in (settings | changes).items())}}}"


OTHER_TOPOLOGY = {"sgp": ("topology={name: one_peer_exponential}",)}
EL, DPSGD, FACADE, FEDAVG = (algorithm(name) for name in ("el", "dpsgd", "facade", "fedavg"))
DPSGD_WITHOUT_FINISH = algorithm("dpsgd", final_all_reduce="false")


def init_of(overrides: tuple[str, ...]) -> str:
    """Return the override of the initial models, unless the overrides contain one."""
    name = overrides[0].removeprefix("algorithm={name: ").partition(",")[0].rstrip("}")
    return "own" if name in OWN_START else "shared"


def compressed(name: str) -> str:
    return f"network.compression={{name: {name}}}"


def attacked(attack: str, rule: str = "", base: str = DPSGD_WITHOUT_FINISH) -> tuple[str, ...]:
    """A run in which nodes 1 and 6 attack from the second round on, on a complete graph."""
    aggregation = (f"aggregation={{name: {rule}}}",) if rule else ()
    attacks = f"attacks=[{{name: {attack}, nodes: [1, 6], start_round: 1}}]"
    return (base, "topology={name: complete}", attacks, *aggregation)


RUNS: dict[str, tuple[str, ...]] = {
    **{f"{name}, sync": (algorithm(name), *OTHER_TOPOLOGY.get(name, ())) for name in ALGORITHMS},
    **{
        f"{name}, async": (algorithm(name), *OTHER_TOPOLOGY.get(name, ()), "mode=async", SLOW_AND_FAST)
        for name in ALGORITHMS
    },
    # Churn, losses, deadlines and compression
    "dpsgd, churn, losses, top_k": (DPSGD, CHURN, *LOSSES, compressed("top_k, fraction: 0.1")),
    "el, churn without state, losses, random_k": (EL, CHURN_WITHOUT_STATE, *LOSSES, compressed("random_k")),
    "facade, churn, retransmissions, int8": (FACADE, CHURN, *RETRANSMITTED, compressed("int8")),
    "fedavg, churn, losses, float16": (FEDAVG, CHURN, *LOSSES, compressed("float16")),
    "dac, async, churn, losses, int8": (algorithm("dac"), "mode=async", CHURN, *LOSSES, compressed("int8")),
    "gossip, churn without state, top_k": (algorithm("gossip"), CHURN_WITHOUT_STATE, compressed("top_k")),
    "gossip, stale models dropped": (algorithm("gossip"), SLOW_AND_FAST, "protocol.staleness_s=0.1"),
    "sgp, async, exponential churn": (
        "algorithm={name: sgp}",
        "mode=async",
        "churn={name: exponential, mean_online_s: 0.5, mean_offline_s: 0.2}",
    ),
    "scaffold, churn": (algorithm("scaffold"), CHURN),
    "dpsgd, bursts of losses, deadline": (
        DPSGD,
        SLOW_AND_FAST,
        "protocol={deadline_s: 0.1, late_messages: keep, staleness_s: null}",
        "network.loss_bursts={mean_good_s: 0.5, mean_bad_s: 0.2, bad: 0.5}",
        "network.on_drop=drop",
    ),
    "el, time-outs": (EL, "network.timeout_s=0.05", "network.links.uplink_mbps=5"),
    # Attacks and robust rules
    "sign_flip, median": attacked("sign_flip", "median"),
    "gaussian_noise, trimmed_mean": attacked("gaussian_noise", "trimmed_mean, trim: 2"),
    "model_replacement, krum": attacked("model_replacement", "krum, byzantine: 2"),
    "alie, multi_krum": attacked("alie, z: 1.5", "multi_krum, byzantine: 2"),
    "inner_product_manipulation, nearest_neighbor_mixing": attacked(
        "inner_product_manipulation", "nearest_neighbor_mixing, byzantine: 2"
    ),
    "foe, geometric_median": attacked("foe", "geometric_median"),
    "dissensus, clipped_gossip": attacked("dissensus", "clipped_gossip, radius: 0.5"),
    "label_flip, self_centered_clipping": attacked("label_flip", "self_centered_clipping"),
    "backdoor, cosine_clipping": attacked("backdoor", "cosine_clipping"),
    "free_rider, bridge": attacked("free_rider", "bridge, variant: T, byzantine: 2"),
    "sybil": attacked("sybil"),
    "flooding": attacked("flooding"),
    "withholding, bridge K": attacked("withholding, probability: 0.5", "bridge, variant: K, byzantine: 2"),
    "sign_flip on a server, median": attacked("sign_flip, of: model", "median", FEDAVG),
    # Privacy and secure aggregation
    "fedavg, secure aggregation, churn": (FEDAVG, CHURN, "secure_aggregation={threshold: 0.5, value_bits: 16}"),
    "dpsgd, secure aggregation": (DPSGD_WITHOUT_FINISH, "topology={name: ring}", "secure_aggregation={threshold: 0.5}"),
    "dpsgd, dp_sgd": (DPSGD, "privacy={kind: dp_sgd, clip: 1.0, noise_multiplier: 0.8, delta: 1e-5}"),
    "el, noised updates": (EL, "privacy={kind: message, clip: 1.0, noise_multiplier: 0.5, clips: update}"),
    "fedavg, noised models": (
        FEDAVG,
        "privacy={kind: message, clip: 5.0, noise_multiplier: 0.1, clips: model, adjacency: zero_out}",
    ),
    # Energy
    "facade, energy": (FACADE, "energy={device: jetson_nano_10w, idle_w: 1.25, link: wifi_2012, grid: world_2022}"),
    "fedavg, energy per step, churn": (FEDAVG, CHURN, "energy={j_per_step: 2, j_per_byte_up: 1e-6, server_w: 100}"),
    # Networks and topologies
    "el, tcp": (EL, "network.fidelity=tcp"),
    "dac, tcp, random shares": (
        algorithm("dac"),
        "network.fidelity=tcp",
        "network.tcp={shares: random, connections: per_message, utilization: 0.82}",
        "network.drop_probability=0.1",
    ),
    "facade, async, latency": (FACADE, "mode=async", SLOW_AND_FAST, "network.fidelity=latency"),
    "dpsgd, ideal": (DPSGD, SLOW_AND_FAST, "network.fidelity=ideal"),
    "dpsgd, 4G, ring": (DPSGD, "network.links={name: 4g}", "topology={name: ring}"),
    "dpsgd, one Erdos-Renyi graph": (DPSGD, "topology={name: erdos_renyi, edge_probability: 0.5, dynamic: false}"),
    "el by its topology": (
        algorithm("el", variant="oracle"),
        "topology={name: watts_strogatz, degree: 4, rewire_probability: 0.3, dynamic: true}",
    ),
    # Without learning
    "facade, no learning": (FACADE, "learning=none"),
    "el, no learning, async, churn": (EL, "learning=none", "mode=async", SLOW_AND_FAST, CHURN, *LOSSES),
    "fedavg, no learning, tcp": (FEDAVG, "learning=none", "network.fidelity=tcp"),
    # Training, data and evaluation
    "el, gn_lenet, crop_flip": (EL, "model={name: gn_lenet}", "training.augmentation=crop_flip", "rounds=2"),
    "facade, adam, cosine schedule": (
        FACADE,
        "training.optimizer={name: adam}",
        "training.optimizer_state=kept",
        "training.learning_rate=0.001",
        "training.schedule={name: cosine, warmup: 2, per: step}",
    ),
    "dac, early stopping": (
        algorithm("dac", variant="hagander_2024"),
        "init=shared",
        VALIDATION,
        "training.early_stopping={patience: 1}",
        "evaluation.evaluated_model=best",
        "rounds=6",
    ),
    "el, dirichlet, momentum, clipping": (
        EL,
        "partition={name: dirichlet, alpha: 0.5}",
        "training.optimizer={name: sgd, momentum: 0.9, weight_decay: 0.001}",
        "training.clip_norm=0.5",
        "training.local_steps=null",
        "training.epochs=1",
        "training.batch_size=64",
    ),
    "dac, regression": (
        algorithm("dac", variant="text"),
        "init=shared",
        *REGRESSION,
        "evaluation.samples=null",
        "evaluation.target_accuracy=null",
        "training.learning_rate=0.0001",
    ),
    # Low-communication training
    "async_diloco, unequal speeds": (
        "algorithm={name: async_diloco, buffer_size: 3, dynamic_steps: true}",
        SLOW_AND_FAST,
        CHURN_WITHOUT_STATE,
    ),
    "demo, node that returns": ("algorithm={name: demo, chunk: 16, top: 4}", CHURN),
    "halos, unequal speeds": (
        "algorithm={name: halos, accumulate: 2, dynamic_steps: true}",
        SLOW_AND_FAST,
        CHURN_WITHOUT_STATE,
    ),
    "diloco, muon": ("algorithm={name: diloco}", "training.optimizer={name: muon}", "training.optimizer_state=kept"),
    "dac, true similarities": (algorithm("dac"), "records.true_similarities=[0, 7]"),
}
"""Name of a run -> its overrides of BASE."""

RESUMED = {"resumed: dpsgd, churn, losses, top_k": "dpsgd, churn, losses, top_k", "resumed: dac, async": "dac, async"}
"""Runs that are stopped after their second round and continued -> the same without a stop."""
BRANCHED = {
    "branched: facade, slower links": ("facade, sync", ("network.links.uplink_mbps=2",)),
    "branched: el, async, smaller steps": ("el, async", ("training.learning_rate=0.01",)),
}
"""Runs that branch from a run of the table after its second round, with other settings."""
NAMES = (*RUNS, *RESUMED, *BRANCHED)

OF_THE_PROCESS = {"wall_s", "peak_rss_mib", "schema_version", "device"}
"""Keys of the summary that describe the process."""
TEXTS = {"labels", "judged_by", "also_measured"}
"""Keys of the summary that are written for people."""


def digests_of(directory: Path) -> dict[str, str]:
    """Return record file -> first 16 hexadecimal digits of its SHA-256; `summary` without texts and process data."""
    summary: dict[str, Any] = json.loads((directory / "summary.json").read_text())
    kept = {key: value for key, value in summary.items() if key not in OF_THE_PROCESS | TEXTS}
    contents = {file.stem: file.read_bytes() for file in sorted(directory.glob("*.jsonl"))}
    contents["summary"] = json.dumps(kept, sort_keys=True).encode()
    return {name: hashlib.sha256(content).hexdigest()[:16] for name, content in contents.items()}


def compute(name: str, folder: Path) -> dict[str, str]:
    """Run one entry of the table in an empty folder and return its digests."""
    from ddlsim import runs
    from ddlsim.runs.checkpoint import ALL, Every
    from ddlsim.scenario import load

    (folder / "digests.yaml").write_text(BASE)
    parent, changes = BRANCHED.get(name, (RESUMED.get(name, name), ()))
    options: Mapping[str, Any] = {"threads": 1, "checkpoint_every": Every()}
    if name in RESUMED:
        options = {"threads": 1, "callbacks": [_interrupting()]}
    elif name in BRANCHED:
        options = {"threads": 1, "checkpoint_every": Every(rounds=1, keep=ALL)}
    scenario = load(folder / "digests.yaml", (f"init={init_of(RUNS[parent])}", *RUNS[parent]))
    summary = runs.run(scenario, out=folder / "run", **options)
    assert summary["status"] == ("interrupted" if name in RESUMED else "done"), (name, summary["status"])
    if name in RESUMED:
        runs.resume(folder / "run", threads=1)
    elif name in BRANCHED:
        runs.resume(folder / "run", from_round=2, set=changes, out=folder / "branch", threads=1)
        return digests_of(folder / "branch")
    return digests_of(folder / "run")


def _interrupting() -> Any:
    """A callback that interrupts the run; the run ends after the next round."""
    from ddlsim.runs.callbacks import Callback, Completed

    class Interrupt(Callback):
        def on_round(self, completed: Completed) -> None:
            if completed.round == 1:
                os.kill(os.getpid(), signal.SIGINT)

    return Interrupt()


def main(group: int, groups: int) -> None:
    """Print the digests of every `groups`-th run as JSON."""
    import torch

    from ddlsim.foundation import native

    fixed_costs.pay_once()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    torch.set_num_threads(1)
    native.extension().set_isa("x86-64-v3")
    found = {}
    for name in NAMES[group::groups]:
        with tempfile.TemporaryDirectory() as folder:
            found[name] = compute(name, Path(folder))
        gc.collect()
        gc.freeze()  # otherwise each run searches all objects for cyclic garbage
    print(json.dumps(found))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))

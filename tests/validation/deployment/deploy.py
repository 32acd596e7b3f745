"""A real run and its simulation from one scenario: eight processes in eight namespaces, and ddlsim.

    python tests/validation/deployment/deploy.py el --queue fair --out docs/results/trust/runs.json

Stored are per node and round the seconds of computing, training and completing, the accuracy of every evaluation, the
largest difference between the models of both, and the simulated times with fidelity `flow` and `tcp`.
"""

import argparse
import contextlib
import io
import json
import os
import pickle
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from measure_flows import write_table  # noqa: E402
from node import flat  # noqa: E402
from testbed import QUEUES, HostLink, Testbed, missing  # noqa: E402

import ddlsim  # noqa: E402
from ddlsim.assembly import builders_of  # noqa: E402
from ddlsim.runs import load_data, prepare  # noqa: E402
from ddlsim.runs.calibrate import measure  # noqa: E402
from ddlsim.scenario import load  # noqa: E402


def real(name: str, step_times_s: list[float], queue: str, packets: int) -> dict[str, Any]:
    """Run the deployment; return times, float64 [nodes, rounds, 4], and the nodes' models by evaluated round."""
    scenario = load(str(HERE / f"{name}.yaml"))
    links = scenario.network.links
    count, access_ms = scenario.nodes.count, links.latency_ms / 2
    hosts = [HostLink(links.uplink_mbps, links.downlink_mbps, access_ms)] * count
    with tempfile.TemporaryDirectory() as folder, Testbed(hosts, queue, packets) as testbed:
        config = {
            "scenario": str(HERE / f"{name}.yaml"),
            "step_times_s": step_times_s,
            "addresses": [testbed.address(host) for host in range(count)],
            "out": folder,
        }
        (Path(folder) / "config.json").write_text(json.dumps(config))
        command = [sys.executable, str(HERE / "node.py"), f"{folder}/config.json"]
        nodes = [
            subprocess.Popen(
                ["ip", "netns", "exec", testbed.namespace(host), *command, str(host)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
            )
            for host in range(count)
        ]
        try:
            _expect(nodes, "listening", "connect\n")
            _expect(nodes, "connected", None)
            start_s = time.monotonic() + 1.0
            for node in nodes:
                _tell(node, f"{start_s}\n")
            _expect(nodes, "done", "end\n")
        finally:
            for node in nodes:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    node.wait(5)
                node.kill()
        found = [dict(np.load(f"{folder}/node_{host}.npz")) for host in range(count)]
    times_s = np.stack([each.pop("times_s") for each in found])
    models = {key: np.stack([each[key] for each in found]) for key in found[0]}
    return {"times_s": times_s, "models": models}


def _tell(node: subprocess.Popen, line: str) -> None:
    node.stdin.write(line)
    node.stdin.flush()


def _expect(nodes: list[subprocess.Popen], word: str, answer: str | None) -> None:
    for node in nodes:
        if (line := node.stdout.readline()) != f"{word}\n":
            raise RuntimeError(f"expected a node to say {word}, got {line!r}")
    for node in nodes:
        if answer is not None:
            _tell(node, answer)


def simulated(name: str, step_times_s: list[float], **network: Any) -> tuple[Any, np.ndarray]:
    """Run the same scenario in ddlsim; return its records and the nodes' last models, float32 [nodes, values]."""
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stderr(io.StringIO()):
        run = ddlsim.run(
            str(HERE / f"{name}.yaml"),
            set={"devices": {"name": "per_node", "step_times_s": step_times_s}, **network},
            out=folder,
        )
        models = np.stack([flat(run.model(node)) for node in range(len(step_times_s))])
        return run.summary, models


def accuracies(name: str, models: dict[str, np.ndarray]) -> dict[int, float]:
    """Return the mean accuracy over the nodes, by round."""
    import torch

    scenario = load(str(HERE / f"{name}.yaml"))
    prepared = prepare(load_data(scenario, download=False))
    (build,) = builders_of(scenario, prepared).values()
    images, labels = (torch.as_tensor(np.asarray(each)) for each in prepared.cluster_test[0])
    module, found = build().eval(), {}
    batches = list(zip(images.split(1000), labels.split(1000), strict=True))
    for key, nodes in models.items():
        each = []
        for model in nodes:
            torch.nn.utils.vector_to_parameters(torch.from_numpy(model), module.parameters())
            with torch.no_grad():
                right = sum(int((module(part).argmax(1) == wanted).sum()) for part, wanted in batches)
            each.append(right / len(labels))
        found[int(key.removeprefix("round_"))] = float(np.mean(each))
    return found


def measured(name: str, factors: list[float], queue: str, packets: int) -> dict[str, Any]:
    """Calibrate this machine and run the deployment with step times multiplied by a factor."""
    scenario = load(str(HERE / f"{name}.yaml"))
    (calibrated,) = measure(scenario, prepare(load_data(scenario, download=False)), threads=1, seconds=2.0).values()
    step_times_s = [round(calibrated.median_s * factor, 6) for factor in factors]
    return {
        "name": name,
        "queue": queue,
        "packets": packets,
        "kernel": platform.release(),
        "calibrated_step_s": calibrated.median_s,
        "calibration": str(calibrated),
        "factors": factors,
        "step_times_s": step_times_s,
        **real(name, step_times_s, queue, packets),
    }


def compared(found: dict[str, Any]) -> dict[str, Any]:
    """Return the stored result: all measurements, with the models replaced by their distance from ddlsim's."""
    name, times_s, models = found["name"], found["times_s"], found["models"]
    summary, simulated_models = simulated(name, found["step_times_s"])
    last = models[f"round_{times_s.shape[1]}"]
    return {
        **{key: value for key, value in found.items() if key not in ("times_s", "models")},
        "computed_s": np.round(times_s[:, :, 1], 6).tolist(),
        "trained_s": np.round(times_s[:, :, 2], 6).tolist(),
        "complete_s": np.round(times_s[:, :, 3], 6).tolist(),
        "accuracy": accuracies(name, models),
        "simulated_accuracy": summary["accuracy"]["all"],
        "largest_difference": float(np.abs(simulated_models - last).max()),
        "largest_value": float(np.abs(simulated_models).max()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="A real run beside its simulation.")
    parser.add_argument("name", choices=("dpsgd", "el", "el_cifar10"))
    parser.add_argument("--queue", choices=QUEUES, default="fair")
    parser.add_argument("--packets", type=int, default=100)
    parser.add_argument("--factors", default="40,40,40,60,60,60,80,80", help="how many times slower each node is")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument(
        "--measured",
        type=Path,
        help="a file for what was measured: if it is there, nothing is measured, else nothing is compared",
    )
    given = parser.parse_args()
    if given.measured is None or not given.measured.exists():
        if (reason := missing()) is not None:
            raise SystemExit(f"no testbed here: {reason}")
        found = measured(given.name, [float(factor) for factor in given.factors.split(",")], given.queue, given.packets)
        if given.measured is not None:
            given.measured.write_bytes(pickle.dumps(found))
            return
    else:
        found = pickle.loads(given.measured.read_bytes())
    result = compared(found)
    table = json.loads(given.out.read_text()) if given.out.exists() else {}
    stem = f"{found['name']}+{found['queue']}{found['packets']}"
    stored = sum(name == stem or name.startswith(f"{stem}+") for name in table)  # later repetitions are numbered
    write_table(given.out, {**table, f"{stem}+{stored}" if stored else stem: result})


if __name__ == "__main__":
    main()

"""A resumed run ends with the bytes of an uninterrupted run."""

import json
from functools import partial

import pytest
from contract_runs import each
from torn_runs import outcome, resume_until, run_until, run_whole

from ddlsim import runs
from ddlsim.learning import learner
from ddlsim.learning.backends.stacked import make_backends
from ddlsim.runs.checkpoint import Every
from ddlsim.runs.checkpoint_files import checkpoints_of

KEYS = {
    "mapl": ", warmup_rounds: 1, projection_units: 64, temperature: 0.5",
    "pens": ", loss_batches: local_steps, sampled_peers: 3, stage1_rounds: 3",
    "panm": ", loss_batches: local_steps, sampled_peers: 2, stage1_rounds: 3",
    "dac": ", loss_batches: local_steps, sampled_peers: 3",
    "facade": ", heads: 2, warmup_rounds: 1",
    "fedadam": ", clients_per_round: 3",
    "fedbuff": ", concurrency: 3, buffer_size: 2, retry_s: 0.1",
    "ifca": ", loss_batches: 3",
}
OFFLINE = "offline: [{node: 2, start_s: 0.35, end_s: 1.5}, {node: 7, start_s: 0.9, end_s: 1.4}]"
ASYNC_CHURN = (
    "mode=async",
    f"churn={{name: schedule, {OFFLINE}, state: lost}}",
    "devices={name: lognormal, median_step_time_s: 0.05}",
    "network.drop_probability=0.1",
    "network.on_drop=drop",
)
KEPT = ("training.optimizer=adam", "training.optimizer_state=kept", "training.learning_rate=0.001")
SCHEDULED = ("training.schedule={name: cosine, warmup: 2, per: step}",)
STOPPING = ("validation={source: node, fraction: 0.2}", "training.early_stopping={patience: 2}", "rounds=10")
RATES = "training.learning_rate={name: lognormal, median: 0.001}"
FEATURES = {
    "top_k": ("network.compression={name: top_k}", f"churn={{name: schedule, {OFFLINE}}}"),
    "random_k": ("network.compression={name: random_k}", "network.drop_probability=0.2", "participation=0.75"),
    "int8": ("network.compression={name: int8}",),
    "kept-optimizer": KEPT,
    "adamw-cosine-clipping": (*KEPT, "training.optimizer=adamw", *SCHEDULED, "training.clip_norm=0.5", RATES),
    "adagrad-steps": (*SCHEDULED, "training.optimizer=adagrad", "training.optimizer_state=kept"),
    "early-stopping": (*KEPT, *STOPPING),
    "best-model": ("validation={source: node, fraction: 0.2}", "evaluation.evaluated_model=best"),
    "deadline": (
        "protocol={deadline_s: 0.3, late_messages: keep, staleness_s: 0.4}",
        "devices={name: lognormal, median_step_time_s: 0.05}",
    ),
    "augmentation": ("training.augmentation=crop_flip",),
    "target": ("evaluation.stop_at_target=true", "evaluation.target_accuracy=0.6", "evaluation.every=1"),
    "slow-links": ("network.links.uplink_mbps=20",),
}


def check(tmp_path, monkeypatch, settings: tuple[str, ...], ends: int, every: int) -> None:
    """Stop after the checkpoint, so that some records must be rolled back."""
    settings = ("evaluation.samples=50", *settings)
    whole = run_whole(tmp_path / "whole", settings)
    torn = tmp_path / "torn"
    run_until(torn, settings, ends, every, monkeypatch)
    assert checkpoints_of(torn)
    runs.resume(torn, checkpoint_every=Every(rounds=1))
    assert outcome(torn) == whole
    assert not checkpoints_of(torn)


def settings_of(algorithm: str) -> str:
    return f"algorithm={{name: {algorithm}{KEYS.get(algorithm, '')}}}"


@pytest.mark.parametrize("algorithm", each())
def test_every_algorithm_resumes_with_the_same_records(tmp_path, monkeypatch, algorithm):
    check(tmp_path, monkeypatch, (settings_of(algorithm), "evaluation.every=2"), ends=4, every=3)


@pytest.mark.parametrize("algorithm", each("dac", "facade", "fedbuff"))
def test_every_algorithm_resumes_asynchronously_under_churn_and_losses(tmp_path, monkeypatch, algorithm):
    check(tmp_path, monkeypatch, (settings_of(algorithm), *ASYNC_CHURN), ends=3, every=2)


@pytest.mark.parametrize(
    ("algorithm", "feature"),
    [
        ("el", "top_k"),
        ("dac", "deadline"),
        ("facade", "adamw-cosine-clipping"),
        ("el", "early-stopping"),
        *(
            pytest.param(algorithm, feature, marks=pytest.mark.full)
            for algorithm, feature in (
                ("facade", "best-model"),
                ("el", "target"),
                ("facade", "random_k"),
                ("dac", "int8"),
                ("facade", "early-stopping"),
                ("dac", "kept-optimizer"),
                ("el", "adagrad-steps"),
                ("el", "augmentation"),
                ("facade", "slow-links"),
            )
        ),
    ],
)
@pytest.mark.full
def test_node_state_survives_resume(tmp_path, monkeypatch, algorithm, feature):
    check(tmp_path, monkeypatch, (settings_of(algorithm), *FEATURES[feature]), ends=3, every=2)


def test_energy_before_the_checkpoint_is_counted(tmp_path, monkeypatch):
    energy = "energy={watts: 10, idle_w: 1, link: lte_2012, grid: world_2022}"
    settings = (settings_of("el"), f"churn={{name: schedule, {OFFLINE}}}", energy, "evaluation.every=1")
    check(tmp_path, monkeypatch, settings, ends=3, every=2)
    nodes = [json.loads(line) for line in (tmp_path / "torn" / "energy.jsonl").read_text().splitlines()]
    assert len(nodes) == 8 and all(node["compute_j"] > 0 for node in nodes)


@pytest.mark.parametrize("algorithm", ["facade", pytest.param("gossip", marks=pytest.mark.full)])
def test_attacks_and_robust_rules_resume_unchanged(tmp_path, monkeypatch, algorithm):
    attacks = ", ".join(
        (
            "{name: gaussian_noise, nodes: [1]}",
            "{name: alie, nodes: [2, 3], knowledge: neighbors}",
            "{name: dissensus, nodes: [4], start_round: 3}",
            "{name: backdoor, nodes: [5], start_round: 2}",
            "{name: withholding, nodes: [5], probability: 0.5}",
        )
    )
    rules = "aggregation={name: nearest_neighbor_mixing}"
    check(tmp_path, monkeypatch, (settings_of(algorithm), f"attacks=[{attacks}]", rules), ends=4, every=2)


@pytest.mark.full
def test_recorded_merges_and_true_similarities_resume_unchanged(tmp_path, monkeypatch):
    settings = (
        "algorithm={name: dac, variant: text, sampled_peers: 3, record_merges: true}",
        "validation={source: node, fraction: 0.2}",
        "records.true_similarities=[0, 3]",
    )
    check(tmp_path, monkeypatch, settings, ends=3, every=2)


@pytest.mark.full
def test_local_buffers_of_a_node_are_restored(tmp_path, monkeypatch):
    few = ("nodes.clusters=[2, 1]", "topology={name: complete}", "evaluation.samples=50")  # it costs seconds a node
    settings = ("algorithm={name: el}", "model={name: resnet8, buffers: local}", "rounds=3", "training.local_steps=1")
    check(tmp_path, monkeypatch, (*settings, *few), ends=2, every=1)


@pytest.mark.parametrize("algorithm", ["facade", pytest.param("dac", marks=pytest.mark.full)])
def test_waves_of_stacked_models_resume_unchanged(tmp_path, monkeypatch, algorithm):
    monkeypatch.setattr(
        learner, "make_backends", partial(make_backends, stacked=True, asynchronous=True)
    )  # as on a GPU
    check(tmp_path, monkeypatch, (settings_of(algorithm), *KEPT), ends=4, every=3)


@pytest.mark.full
def test_run_can_be_stopped_repeatedly(tmp_path, monkeypatch):
    settings = (settings_of("facade"), "rounds=8")
    whole = run_whole(tmp_path / "whole", settings)
    torn = tmp_path / "torn"
    run_until(torn, settings, 3, 2, monkeypatch)
    resume_until(torn, 6, 2, monkeypatch)
    resume_until(torn, 3, 1, monkeypatch)
    runs.resume(torn)
    assert outcome(torn) == whole

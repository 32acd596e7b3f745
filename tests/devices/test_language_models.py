"""Step times of language models, by hand: tokens x 6 x parameters over GPUs x peak x utilization."""

import pytest

from ddlsim import assembly, runs
from ddlsim.devices.base import StepWork
from ddlsim.devices.language_models import LanguageModel
from ddlsim.foundation.errors import ScenarioError
from ddlsim.report.summary_table import rows
from ddlsim.runs import load_data, prepare
from ddlsim.scenario import load
from ddlsim.scenario.tree import ScenarioProblems

SCENARIO = """
seed: 1
rounds: 2
learning: none
nodes: {clusters: [2]}
algorithm: {name: dpsgd}
model: {name: sizes, core: 1e9, head: 0}
data: {name: shakespeare}
partition: {name: random}
training: {optimizer: sgd, learning_rate: 0.1, batch_size: 4, local_steps: 10}
topology: {name: complete}
network: {header_bytes: 0, links: {name: uniform, uplink_mbps: 800, downlink_mbps: 800, latency_ms: 0}}
devices: {name: language_model, device: a100_sxm, tokens_per_step: 16384}
"""


@pytest.fixture
def scenario(tmp_path):
    path = tmp_path / "scenario.yaml"
    path.write_text(SCENARIO)
    return lambda *changes: load(path, changes)


def step_s(devices, parameters):
    work = StepWork(2.0, 6.0, counted=False, parameters=parameters)
    return devices.base_step_s("", devices.step_work("", work))


@pytest.mark.parametrize(
    ("devices", "parameters", "seconds"),
    [
        (LanguageModel(gpus_per_worker=8, tokens_per_step=2**20), 7_000_000_000, 13.915632),
        (LanguageModel(device="a100_sxm", tokens_per_step=16_384), 1_000_000_000, 0.7876923),
        (
            LanguageModel(device="rtx_4090", gpus_per_worker=4, tokens_per_step=16_384, inner_gbps=100),
            1_000_000_000,
            0.3719128 + 0.24,  # 2 x 3/4 x 2 GB of gradients at 12.5 GB/s
        ),
        (LanguageModel(gpus_per_worker=64, tokens_per_step=2**22), 100_000_000_000, 99.397371),
    ],
    ids=["7B on 8 H100", "1B on A100", "1B on 4 RTX 4090", "100B on 64 H100"],
)
def test_step_times_by_hand(devices, parameters, seconds):
    assert step_s(devices, parameters) == pytest.approx(seconds, rel=1e-6)


def test_throughput_of_llama_8b_on_h100_equals_a_measurement():
    """torchtitan, docs/performance.md: 6,667 tokens/s per GPU at 39 % on 8 H100; 7.5e9 parameters without embedding."""
    devices = LanguageModel(
        gpus_per_worker=8, utilization=0.39, tokens_per_step=131_072, layers=32, width=4096, context=8192
    )
    assert 131_072 / 8 / step_s(devices, 7_505_000_000) == pytest.approx(6667, rel=0.01)


def test_step_time_of_a_gpt_from_counted_operations(scenario):
    """Per token 6 operations a weight of all matrices but the embeddings; attention over all 80 positions 12 L d s."""
    found = scenario("model={name: gpt, layers: 2, heads: 2, width: 32}", "devices={name: language_model}")
    prepared = prepare(load_data(found))
    learner = assembly.build_learner(found, prepared, "none")
    (length,), classes = prepared.image_shape, prepared.num_classes
    per_token = 6 * (2 * 12 * 32 * 32 + 32 * classes) + 12 * 2 * 32 * length
    seconds = assembly.step_times_of(found, learner).seconds
    assert seconds == pytest.approx(4 * length * per_token / (989e12 * 0.4), rel=1e-9)


def test_sized_model_takes_six_operations_per_parameter_and_token(scenario):
    found = scenario("devices.tokens_per_step=null")
    prepared = prepare(load_data(found))
    seconds = assembly.step_times_of(found, assembly.build_learner(found, prepared, "none")).seconds
    assert seconds == pytest.approx(4 * prepared.image_shape[0] * 6e9 / (312e12 * 0.4))


def test_models_of_a_hundred_billion_parameters_run_as_sizes(scenario, tmp_path):
    changes = "model.core=100e9", "devices.gpus_per_worker=64", "rounds=1", "energy={}"
    summary = runs.run(scenario(*changes), out=tmp_path / "run")
    step_s = 16384 * 6e11 / (64 * 312e12 * 0.4)
    assert summary["sim_time_s"] == pytest.approx(10 * step_s + 4e11 / 1e8)
    assert summary["bytes"]["total"] == 2 * 400_000_000_000
    assert summary["energy"]["compute_j"] == pytest.approx(2 * 64 * 400 * 10 * step_s)


def test_utilization_tokens_and_bandwidth_of_two_nodes_by_hand(scenario, tmp_path):
    """Per round ten steps of 16,384 x 6e9 / (312e12 x 0.4) s, and 4 GB to the other node at 100 MB/s."""
    summary = runs.run(scenario(), out=tmp_path / "run")
    computing_s = 10 * 16384 * 6e9 / (312e12 * 0.4)
    round_s, use = computing_s + 4e9 / 100e6, summary["language_model"]
    assert use["compute_utilization"] == pytest.approx(computing_s / round_s)
    assert use["tokens"] == pytest.approx(2 * 2 * 10 * 16384)
    assert use["tokens_per_s"] == pytest.approx(2 * 10 * 16384 / round_s)
    assert use["bits_per_parameter_and_step"] == pytest.approx(32 / 10)
    assert use["uplink_mean_bytes_per_s"] == pytest.approx(4e9 / round_s)
    assert use["uplink_peak_bytes_per_s"] == pytest.approx(100e6)
    lines = dict(rows(summary))
    assert lines["compute utilization"] == "16.45 %" and lines["tokens"] == "6,844 per second, 655,360 in all"
    assert lines["bandwidth per uplink"] == "mean 668 Mbit/s, peak 800 Mbit/s"
    assert lines["device"] == "a100_sxm at 40 %, 788 ms per step (98.3 TFLOP, estimated from the model's size)"
    assert not (tmp_path / "run" / "energy.jsonl").exists()


def test_peak_of_an_uplink_is_its_capacity_when_messages_share_it(scenario, tmp_path):
    use = runs.run(scenario("nodes.clusters=[3]", "rounds=1"), out=tmp_path / "run")["language_model"]
    assert use["uplink_peak_bytes_per_s"] == pytest.approx(100e6)
    assert use["bits_per_parameter_and_step"] == pytest.approx(2 * 32 / 10)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ("devices.gpus_per_worker=1", "take 400 GB in bf16, got 1 x 80 GB of a100_sxm. Set at least 5."),
        ("data={name: fashion-mnist-mini}", "devices.tokens_per_step: expected a number"),
    ],
)
def test_invalid_devices_are_errors_with_a_remedy(scenario, change, text):
    found = scenario(
        "model.core=100e9", "devices.gpus_per_worker=5", "devices.tokens_per_step=null", "partition={name: uniform}"
        if "fashion" in change else "seed=1", change,
    )  # fmt: skip
    learner = assembly.build_learner(found, prepare(load_data(found)), "none")
    with pytest.raises(ScenarioError, match=text):
        assembly.step_times_of(found, learner)


def test_attention_needs_all_three_sizes_and_a_model_without_counted_operations(scenario):
    with pytest.raises(ScenarioProblems, match="width: expected layers, width and context together"):
        scenario("devices.layers=32", "devices.context=2048")
    shaped = LanguageModel(tokens_per_step=1, layers=1, width=1, context=1)
    with pytest.raises(ScenarioError, match="attention included"):
        shaped.step_work("GPT", StepWork(1.0, 3.0, parameters=1, tokens=1))

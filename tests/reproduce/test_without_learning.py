"""Tables without learning, and the traffic of DiLoCo's tables against times computed by hand."""

from pathlib import Path

import pytest

from ddlsim import run
from ddlsim.runs.reproduce.matrix import read_matrix, runs_of
from ddlsim.runs.reproduce.published import measured
from ddlsim.runs.reproduce.result import results, standing
from ddlsim.runs.reproduce.table import console_table

TRAFFIC = Path(__file__).parents[2] / "scenarios" / "paper" / "diloco" / "traffic.py"
TABLE = f"""\
source: Table 1
seeds: [0]
measures: [waiting_s_per_round, compute_utilization, simulated_s, mb_per_node]
scenario:
  learning: none
  rounds: 3
  nodes: {{clusters: [4]}}
  algorithm: {{name: "{TRAFFIC}:Traffic", tensors: [[1, 400], [2, 200]]}}
  model: {{name: sizes, core: 800, head: 0}}
  data: {{name: cifar10}}
  training: {{learning_rate: 0.1, local_steps: 2}}
  devices: {{name: constant, step_time_s: 0.5}}
  network: {{header_bytes: 0, links: {{name: uniform, uplink_mbps: 0.008, downlink_mbps: 0.008, latency_ms: 10}}}}
  records: {{detail: total}}
cells:
"""


def measures_of(matrix, cell, tmp_path):
    """Return the measures of a cell's run."""
    (point,) = runs_of(matrix, tmp_path, patterns=[cell])
    run(point.scenario, out=point.directory)
    return measured(point.summary(), point.directory, matrix.content.measures)


def test_measures_of_a_table_without_learning(write, tmp_path):
    cells = "  near: {published: {measures: {waiting_s_per_round: 5.0}}}\n"
    matrix = read_matrix(write(text=TABLE + cells + "  none: {scenario: {training: {local_steps: 1}}}\n"))
    found = measures_of(matrix, "near", tmp_path)
    # 3 rings of 4 members over 1000 bytes/s: 2 x 3/4 x 4 bytes x (400 + 200 + 200) / 1000, and 3 x 6 x 10 ms
    assert found["waiting_s_per_round"] == pytest.approx(4.8 + 0.18, rel=1e-6)
    assert found["compute_utilization"] == pytest.approx(100 / 5.98, rel=1e-6)
    assert found["simulated_s"] == pytest.approx(3 * 5.98, rel=1e-6)  # 3 rounds; header_bytes is 0
    assert found["mb_per_node"] == pytest.approx(3 * 4.8e-3, rel=1e-6)
    near, none = results(matrix, runs_of(matrix, tmp_path), None)
    assert (standing(near, matrix), standing(none, matrix)) == ("reproduced", "not run")
    text = console_table(matrix, [near, none])
    assert "4.980 (5.000) -0.4 %" in text and "accuracy" not in text


@pytest.mark.parametrize(
    ("keys", "waiting_s"),
    [
        # 2 workers at 1000 bytes/s, 2 tensors of 1000 bytes: 1 s each. In a step of 6 s the backward pass of the second
        # tensor ends after 4 s, that of the first after 6 s. A round has 2 steps.
        ("overlaps_backward: true", 1.0),
        ("overlaps_backward: true, overlap_steps: 1", 0.0),
        ("overlaps_backward: true, tensors_per_fragment: 1", 1.0),
        ("overlaps_backward: true, bits: 16", 0.5),
    ],
)
def test_all_reduces_of_layers_overlap_the_backward_pass(write, tmp_path, keys, waiting_s):
    changes = [
        ("clusters: [4]", "clusters: [2]"),
        ("tensors: [[1, 400], [2, 200]]", f"tensors: [[2, 250]], {keys}"),
        ("local_steps: 2", "local_steps: 12"),
        ("step_time_s: 0.5", "step_time_s: 1.0"),
        ("latency_ms: 10", "latency_ms: 0"),
    ]
    matrix = read_matrix(write(*changes, text=TABLE + "  only: {}\n"))
    found = measures_of(matrix, "only", tmp_path)
    assert found["waiting_s_per_round"] == pytest.approx(waiting_s, abs=1e-6)

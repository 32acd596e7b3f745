"""Learned graphs in records: rows that stay, edges, weight inside clusters."""

import json

import numpy as np
import pytest

from ddlsim.report.sections.peers import read_graphs


@pytest.fixture
def directory(tmp_path):
    rows = [(1, 0, [0.6, 0.4, 0.0]), (1, 1, [0.5, 0.5, 0.0]), (1, 2, [0.2, 0.0, 0.8]), (2, 2, [0.0, 0.0, 1.0])]
    lines = [{"time_s": 1.0, "node": n, "round": r, "name": "collaboration", "value": v} for r, n, v in rows]
    lines.append({"time_s": 1.0, "node": 0, "round": 2, "name": "accuracy", "value": 0.5})
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return tmp_path


def test_graph_rows_stay_until_a_node_records_new_ones(directory):
    graphs = read_graphs(directory, 3)
    assert graphs.round.tolist() == [1, 2]
    assert graphs.weights[1].tolist() == [[0.6, 0.4, 0.0], [0.5, 0.5, 0.0], [0.0, 0.0, 1.0]]


def test_graph_rows_are_assigned_to_their_round_in_any_order(directory):
    path = directory / "metrics.jsonl"
    graphs = read_graphs(directory, 3)
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[2], lines[3], lines[0], lines[4], lines[1]]) + "\n")
    assert np.array_equal(read_graphs(directory, 3).weights, graphs.weights)


def test_edges_exclude_the_node_itself_and_weight_inside_includes_it(directory):
    graphs = read_graphs(directory, 3)
    assert graphs.edges().tolist() == [3, 2]
    assert graphs.inside(np.array([0, 0, 1])) == pytest.approx(np.array([[1, 1, 0.8], [1, 1, 1]]))


def test_run_without_graph_has_none(tmp_path):
    (tmp_path / "metrics.jsonl").write_text("")
    assert read_graphs(tmp_path, 3) is None

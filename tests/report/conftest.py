"""Hand-made run directories: three nodes (clusters 2:1), two classes, evaluations after rounds 2 and 4."""

import json

import pytest

SCENARIO = """\
name: tiny
seed: {seed}
rounds: 4
algorithm: {{name: facade, heads: {heads}}}
evaluation: {{every: 2, target_accuracy: 0.7}}
{paper}
"""

PAPER = """\
paper:
  source: Table I
  accuracy: {all: 0.8, clusters: [0.9, 0.6]}
  equalized_odds: {mean: 0.5, std: 0.1}
  remark: free text
"""

# Ten test samples per node and evaluation: correct predictions out of five per class.
RIGHT = {2: [(3, 3), (3, 3), (2, 2)], 4: [(4, 5), (5, 4), (3, 3)]}
HEADS = {1: [0, 1, 1], 2: [0, 0, 1], 3: [0, 0, 1], 4: [0, 0, 1]}


def metric_rows(right=RIGHT, heads=HEADS):
    rows = []
    for round_num in range(1, 5):
        time_s = 10.0 * round_num
        rows += [(time_s, node, round_num, "head", head) for node, head in enumerate(heads.get(round_num, []))]
        for node, (zeros, ones) in enumerate(right.get(round_num, [])):
            at = (time_s + node, node, round_num)  # the last node is evaluated two seconds after the first
            rows.append((*at, "accuracy", (zeros + ones) / 10))
            rows.append((*at, "test_loss", 1.0))
            rows.append((*at, "confusion", [[zeros, 5 - zeros], [5 - ones, ones]]))
            rows.append((*at, "bytes_sent", 100 * round_num + node))
    return [dict(zip(("time_s", "node", "round", "name", "value"), row, strict=True)) for row in rows]


PAIRS = [(0, 1, 4, 380, 20, 0, 0), (1, 2, 4, 381, 20, 7, 0), (2, 0, 4, 382, 20, 0, 0)]
COLUMNS = ("src", "dst", "messages", "payload_bytes", "header_bytes", "wasted_bytes", "in_flight_bytes")
TRAFFIC = [dict(zip(COLUMNS, pair, strict=True)) for pair in PAIRS]


def lines(objects):
    return "".join(json.dumps(item) + "\n" for item in objects)


@pytest.fixture
def make_run(tmp_path):
    """Return a function that writes a run directory; keyword arguments change its manifest."""

    def make(name="run", *, seed=0, heads=2, paper="", rows=None, traffic=TRAFFIC, **manifest):
        directory = tmp_path / name
        directory.mkdir(parents=True)
        (directory / "scenario.yaml").write_text(SCENARIO.format(seed=seed, heads=heads, paper=paper))
        about = {
            "scenario": "tiny",
            "algorithm": "facade",
            "nodes": 3,
            "rounds": 4,
            "seed": seed,
            "device": "cpu",
            "node_cluster": [0, 0, 1],
            "data": {"name": "cifar10", "fallback": False},
            "labels": [],
            "status": "done",
            "wall_s": 1.5,
        }
        (directory / "manifest.json").write_text(json.dumps(about | manifest))
        (directory / "metrics.jsonl").write_text(lines(metric_rows() if rows is None else rows))
        if traffic is not None:
            (directory / "communication.jsonl").write_text(lines(traffic))
        return directory

    make.rows = metric_rows
    make.PAPER = PAPER
    return make

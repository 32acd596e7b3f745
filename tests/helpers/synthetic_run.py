"""Record files of a long run, written without running it: as many rows as FACADE leaves, of made-up values."""

import json
from pathlib import Path

import numpy as np


def write_run(directory: Path, nodes: int, rounds: int, *, every: int = 40, name: str = "synthetic") -> Path:
    """Writes a run directory.

    Args:
        directory: of the run; made.
        nodes: of two clusters, one sixteenth of them in the second.
        rounds: with a head per node each, and with 4 messages per node.
        every: rounds between evaluations, with a confusion matrix of ten classes per node.
        name: of the scenario, in the manifest.
    """
    rng = np.random.default_rng(0)
    directory.mkdir(parents=True)
    minority = max(1, nodes // 16)
    clusters = [0] * (nodes - minority) + [1] * minority
    manifest = {
        "scenario": name,
        "algorithm": "facade",
        "nodes": nodes,
        "rounds": rounds,
        "seed": 0,
        "device": "cpu",
        "command": ["ddlsim", "run", f"{name}.yaml"],
        "node_cluster": clusters,
        "data": {"name": "cifar10", "fallback": False},
        "labels": [],
        "status": "done",
        "wall_s": 100.0,
    }
    (directory / "manifest.json").write_text(json.dumps(manifest))
    (directory / "scenario.yaml").write_text(
        f"name: synthetic\nseed: 0\nrounds: {rounds}\nalgorithm: {{name: facade, heads: 2}}\n"
        f"evaluation: {{every: {every}, target_accuracy: 0.6}}\n"
    )
    _write(directory / "metrics.jsonl", _metrics(rng, clusters, rounds, every))
    _write(directory / "samples.jsonl", ({"node": n, "train": 500, "classes": [50] * 10} for n in range(nodes)))
    _write(directory / "links.jsonl", ({"node": n, **_LINK} for n in range(nodes)))
    sizes = {"core": 300_000, "heads": 3_400, "header": 234}
    contents = (
        {"round": r + 1, "content": what, "messages": 4 * nodes, "bytes": 4 * nodes * size}
        for r in range(rounds)
        for what, size in sizes.items()
    )
    _write(directory / "contents.jsonl", contents)
    _write_traffic(directory, rng, nodes, rounds)
    _write(directory / "timeline.jsonl", _periods(nodes))
    return directory


def _periods(nodes):
    """Return ten seconds: node n computes for n seconds, then sends for a second to the next node."""
    yield {"what": "window", "node": None, "start_s": 0.0, "end_s": 10.0}
    for node in range(nodes):
        end_s = min(10.0, node)
        yield {"what": "computing", "node": node, "start_s": 0.0, "end_s": end_s}
        yield {"what": "message", "node": node, "start_s": end_s, "end_s": end_s + 1, "peer": (node + 1) % nodes}


_LINK = {
    "uplink_utilization": 0.3,
    "downlink_utilization": 0.28,
    "sent_bytes": 10**9,
    "received_bytes": 10**9,
    "push_bytes": 9 * 10**8,
    "request_bytes": 0,
    "response_bytes": 0,
    "ack_bytes": 0,
    "aborted_bytes": 10**8,
    "lost_bytes": 0,
    "unused_bytes": 0,
    "in_flight_bytes": 0,
    "messages_received": 4800,
    "queueing_s": 0.02,
    "max_queueing_s": 0.3,
}


def _metrics(rng, clusters, rounds, every):
    def row(completed, node, name, value):
        return {"time_s": 0.9 * completed + 0.01 * node, "node": node, "round": completed, "name": name, "value": value}

    for completed in range(1, rounds + 1):
        for node, cluster in enumerate(clusters):
            yield row(completed, node, "head", cluster if rng.random() > 2 / completed else 1 - cluster)
        if completed % 100 == 50:
            yield row(completed, completed // 100, "online", 0)
            yield row(completed, completed // 100, "aborted", 3)
            yield row(completed + 25, completed // 100, "online", 1)
        for node, cluster in enumerate(clusters) if completed % every == 0 else ():
            matrix = rng.integers(0, 20, (10, 10)) + np.eye(10, dtype=int) * int(60 * completed / rounds)
            yield row(completed, node, "accuracy", float(np.trace(matrix) / matrix.sum()) - 0.1 * cluster)
            yield row(completed, node, "test_loss", float(2 - completed / rounds + 0.1 * rng.random()))
            yield row(completed, node, "confusion", matrix.tolist())
            yield row(completed, node, "bytes_sent", 303_634 * 4 * completed)


def _write_traffic(directory, rng, nodes, rounds):
    sums: dict[tuple[int, int], int] = {}
    with (directory / "contacts.jsonl").open("w") as file:
        for completed in range(1, rounds + 1):
            order = rng.permutation(nodes)
            pairs = sorted((int(order[i]), int(order[(i + d) % nodes])) for i in range(nodes) for d in (-2, -1, 1, 2))
            for pair in pairs:
                sums[pair] = sums.get(pair, 0) + 1
            if nodes <= 256:
                row = {"round": completed, "src": [a for a, _ in pairs], "dst": [b for _, b in pairs]}
                row |= {"messages": [1] * len(pairs), "bytes": [303_634] * len(pairs)}
                file.write(json.dumps(row, separators=(",", ":")) + "\n")
    rows = (
        {
            "src": a,
            "dst": b,
            "messages": n,
            "payload_bytes": n * 303_400,
            "header_bytes": n * 234,
            "wasted_bytes": 0,
            "in_flight_bytes": 0,
        }
        for (a, b), n in sorted(sums.items())
    )
    _write(directory / "communication.jsonl", rows)


def _write(path, rows):
    with path.open("w") as file:
        file.writelines(json.dumps(row, separators=(",", ":")) + "\n" for row in rows)

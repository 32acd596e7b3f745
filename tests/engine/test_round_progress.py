"""Every round is reported once, in order, when all online nodes have completed it."""

import pytest

import ddlsim

SETTINGS = {
    "rounds": 8,
    "nodes": {"clusters": [4]},
    "algorithm": {"name": "dpsgd", "final_all_reduce": False},
    "learning": "none",
    "model": {"name": "mlp", "hidden": [8]},
    "data": {"name": "fashion-mnist-mini"},
    "training": {"learning_rate": 0.1, "local_steps": 10},
    "topology": {"name": "complete"},
    "network": {"fidelity": "latency", "links": {"name": "uniform", "latency_ms": 20}},
    "devices": {"name": "constant", "step_time_s": 0.1},
}
SLOW_LAST = {"devices": {"name": "per_node", "step_times_s": [0.1, 0.1, 0.2, 0.4]}}


class Rounds(ddlsim.Callback):
    """Records all reports, and ends the run after a round."""

    def __init__(self, last=99):
        self.rounds: list[tuple[int, float]] = []
        self.last = last

    def on_round(self, completed):
        self.rounds.append((completed.round, round(completed.time_s, 6)))
        if completed.round == self.last:
            raise ddlsim.StopRun("enough")


def run(tmp_path, last=99, **changes):
    progress = Rounds(last)
    found = ddlsim.run({**SETTINGS, **changes}, callbacks=[progress], out=tmp_path / "run")
    return progress.rounds, found.summary


def away(node, start_s, end_s):
    return {"churn": {"name": "schedule", "offline": [{"node": node, "start_s": start_s, "end_s": end_s}]}}


@pytest.mark.parametrize(
    ("changes", "times_s"),
    [
        ({}, [1.02 * r for r in range(1, 9)]),
        (away(3, 0.0, 1.5), [1.02 * r for r in range(1, 9)]),  # it joins in round 2 and starts with round 3
        # Node 3 leaves in round 1 and starts with round 6 when it returns; node 2 ends a round every 2 s.
        (SLOW_LAST | away(3, 2.0, 9.0), [2.02, 4.02, 6.02, 8.02, 10.02, 13.02, 17.02, 21.02]),
        # Without waiting: node 3 ends a round every 4 s; node 1 has done five rounds when it leaves.
        (SLOW_LAST | {"mode": "async"} | away(1, 5.5, 60.0), [4.0 * r for r in range(1, 9)]),
        # Node 2 joins at 10 s, at the median round of the online nodes.
        (SLOW_LAST | {"mode": "async"} | away(2, 0.0, 10.0), [4.0 * r for r in range(1, 9)]),
    ],
)
def test_each_round_is_reported_once_when_all_online_nodes_have_completed_it(tmp_path, changes, times_s):
    progress, _ = run(tmp_path, **changes)
    assert progress == [(number, pytest.approx(time_s)) for number, time_s in enumerate(times_s, 1)]


def test_a_run_can_be_ended_after_a_round_in_which_a_node_joins(tmp_path):
    progress, summary = run(tmp_path, last=2, **away(3, 0.0, 1.5))
    assert [number for number, _ in progress] == [1, 2]
    assert (summary["status"], summary["stopped"]) == ("stopped", {"round": 2, "reason": "enough"})

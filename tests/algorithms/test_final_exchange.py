"""A run has a final exchange only if its algorithm defines one."""

from pathlib import Path

import pytest

from ddlsim import runs
from ddlsim.algorithms.decentralized.dpsgd import DPSGD
from ddlsim.engine.transport import NetworkTransport
from ddlsim.foundation.errors import DdlsimError
from ddlsim.scenario import from_python, load

SMOKE = Path(__file__).parents[1] / "helpers" / "smoke.yaml"


@pytest.mark.parametrize("name", ["dpsgd", "el", "deprl", "facade"])
def test_without_a_final_exchange_a_run_ends_with_its_last_round(tmp_path, name):
    sets = ("rounds=2", f"algorithm={{name: {name}}}")
    assert runs.run(load(SMOKE, sets), out=tmp_path)["evaluated_round"] == 2


def test_final_exchange_is_evaluated_after_the_last_round(tmp_path):
    assert (
        runs.run(load(SMOKE, ("rounds=2", "algorithm={name: el, final_all_reduce: true}")), out=tmp_path)[
            "evaluated_round"
        ]
        == 3
    )


@pytest.mark.parametrize("name", ["dpsgd", "el", "deprl", "facade"])
def test_async_final_exchange_merges_arrived_final_models_only(tmp_path, monkeypatch, name):
    """Nodes finish seconds apart; each has the final models of all nodes that finished before it."""
    taken = []
    take_newest = NetworkTransport.take_newest

    def noting(transport, node, *args):
        found = take_newest(transport, node, *args)
        taken.append((node, [message.src for message in found if message.round_num == 4]))
        return found

    monkeypatch.setattr(NetworkTransport, "take_newest", noting)
    devices = "devices={name: per_node, step_times_s: [0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7]}"
    sets = ("rounds=4", "mode=async", devices, f"algorithm={{name: {name}, final_all_reduce: true}}")
    runs.run(load(SMOKE, sets), out=tmp_path)
    assert [entry for entry in taken if entry[1]] == [(node, list(range(node))) for node in range(1, 8)]
    assert len(taken) == 8 * 5


def test_late_notices_of_the_last_round_are_not_merged(tmp_path):
    devices = "devices={name: per_node, step_times_s: [0.02, 0.03, 0.04, 0.05, 0.06, 0.1, 0.2, 0.4]}"
    late = ("protocol={deadline_s: 0.1, late_messages: keep}", "evaluation.every=4")
    sets = ("rounds=4", devices, *late, "algorithm={name: el, variant: local, fanout: 2}")
    assert runs.run(load(SMOKE, sets), out=tmp_path)["status"] == "done"


def test_round_numbers_of_the_final_exchange_are_refused_before_it(tmp_path):
    class Twice(DPSGD):
        def round(self, node, state, round_num):
            (state.model,) = yield node.train((state.model,))
            node.send(node.peers(round_num), 2 * round_num, model=state.model)

    scenario = from_python(
        "smoke", {"algorithm": {"name": Twice, "final_all_reduce": True}, "mode": "async", "rounds": 4}
    )
    with pytest.raises(DdlsimError, match=r"node\.send: expected a round_num of 0 to 3 with mode async, got 4"):
        runs.run(scenario, out=tmp_path)

"""Values from algorithms, data sets and callers are checked at their entry, with the user's line."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import ddlsim
from ddlsim.algorithms.base import Algorithm
from ddlsim.foundation.errors import DataDamaged, DdlsimError, ScenarioError
from ddlsim.node.candidates import EvaluationCandidates

SMALL = {"rounds": 2, "nodes": {"clusters": [4]}, "learning": "none"}


@dataclass(frozen=True, kw_only=True)
class Averaging(Algorithm):
    """Base of the tests' algorithms."""

    def start(self, node):
        ((model,),) = node.init_models(whole=True)
        return {"model": model}

    def round(self, node, state, round_num):
        yield from self.steps(node, state, round_num)

    def serving(self, node, state):
        return EvaluationCandidates([(state["model"],)])


def algorithm_of(steps) -> type[Algorithm]:
    return type("Mine", (Averaging,), {"steps": staticmethod(steps), "__module__": __name__})


def run(steps, out, **options):
    return ddlsim.run("smoke", algorithm=algorithm_of(steps), set=SMALL, out=out, progress="none", **options)


def test_numbers_of_numpy_are_node_ids_rounds_and_seconds(tmp_path):
    def plain(node, state, round_num, number=int, second=float):
        peers = [number(peer) for peer in node.peers(round_num)]
        node.send(peers, number(round_num), model=state["model"])
        yield node.sleep(second(0.5))
        yield node.receive(round_num, peers)
        node.record("slept", second(0.5), number(round_num))

    def of_numpy(node, state, round_num):
        yield from plain(node, state, round_num, np.int64, np.float32)

    for name, steps in (("plain", plain), ("numpy", of_numpy)):
        run(steps, tmp_path / name)
    files = [
        {file.name: file.read_bytes() for file in (tmp_path / name).glob("*.jsonl")} for name in ("plain", "numpy")
    ]
    assert files[0] == files[1]


def recording(name, value):
    def steps(node, state, round_num):
        node.record(name, value, round_num)
        yield node.sleep(1)

    return steps


def sending(peers):
    def steps(node, state, round_num):
        node.send(peers, round_num, model=state["model"])
        yield node.sleep(1)

    return steps


def averaging_a_stranger(node, state, round_num):
    node.average(state["model"], {12345: state["model"]})
    yield node.sleep(1)


@pytest.mark.parametrize(
    ("steps", "text"),
    [
        (recording(5, 1.0), "expected a text as the name of the rows, got 5"),
        (recording("huge", [10**400]), "expected a number up to 1.79.*got an integer of 1329 bits"),
        (sending([0.5]), r"expected ids of nodes, such as node.peers\(round_num\), got \[0.5\]"),
        (sending([999]), r"expected ids of nodes, 0 to 3, got \[999\]"),
        (averaging_a_stranger, "expected ids of nodes, 0 to 3"),
    ],
)
def test_unsupported_value_raises_in_the_line_of_the_user(tmp_path, steps, text):
    with pytest.raises(DdlsimError, match=text):
        run(steps, tmp_path / "run")
    with pytest.raises(ScenarioError, match=f"test_checked_values.py:.*{text}"):
        ddlsim.check("smoke", {"rounds": 2}, algorithm=algorithm_of(steps))


class Forgetful(Averaging):
    def round(self, node, state, round_num):
        node.send(node.peers(round_num), round_num, model=state["model"])
        node.receive(round_num)
        yield node.sleep(1)


def test_verb_without_yield_is_reported_with_its_line(tmp_path):
    line = next(n for n, text in enumerate(Path(__file__).read_text().split("\n"), 1) if "  node.receive(" in text)
    for call in (
        lambda: ddlsim.run("smoke", algorithm=Forgetful, set=SMALL, out=tmp_path / "run", progress="none"),
        lambda: ddlsim.check("smoke", {"rounds": 2}, algorithm=Forgetful),
    ):
        with pytest.raises(ScenarioError, match=rf"test_checked_values.py:{line}: .*write `yield node.receive"):
            call()


def test_error_of_a_data_set_names_the_item():
    class Bad(list):
        def __getitem__(self, place):
            if place == 3:
                raise ValueError("it is bad")
            return super().__getitem__(place)

    items = [(np.zeros(4, np.float32), 0)] * 5
    with pytest.raises(DataDamaged, match="train: item 3 of 5 of the Bad raises ValueError: it is bad"):
        ddlsim.run("smoke", data=(Bad(items), items), progress="none")


def test_path_arguments_expand_the_home_and_name_themselves_in_errors(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    found = ddlsim.run("smoke", set=SMALL, algorithm="el", out="~/run", progress="none")
    assert found.dir == tmp_path / "run"
    assert ddlsim.load("~/run").status == "done"
    assert len(ddlsim.compare("~/run")) == 1
    for argument in ("out", "data_dir"):
        with pytest.raises(ScenarioError, match=rf"{argument}: expected a path \(str or os.PathLike\), got 5"):
            ddlsim.run("smoke", set=SMALL, progress="none", **{argument: 5})
    with pytest.raises(ScenarioError, match="directory: expected a path"):
        ddlsim.load(5)

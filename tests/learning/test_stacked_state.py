"""Optimizer state of many models trained as one."""

import pytest
import torch
from counted_operators import CountedOperators

from ddlsim.learning.bank import Rows
from ddlsim.learning.layout import Entry, Part
from ddlsim.learning.optimizing.state import OptimizerState, StackedState
from ddlsim.learning.optimizing.table import Adam

CORE = Part("net", "core", (Entry("weight", (3,), 0, 3, True),))
HEAD = Part("net", "head", (Entry("weight", (2,), 0, 2, True),))
SIZES = (3, 2)


@pytest.fixture
def rows():
    return Rows(torch.device("cpu"))


def kept(rows: Rows, part: Part, value: float, steps: int = 4) -> tuple[OptimizerState, list]:
    """Return a state with two moments filled with value and value + 0.5, and the owner of its rows."""
    size = part.entries[-1].stop
    held = [rows.store(part, torch.full((size,), value + more)) for more in (0, 0.5)]
    return OptimizerState(steps, tuple(params.row for params in held)), held


def stacked(before, trained, first: int) -> StackedState:
    entries = [Entry("core.weight", (3,), 0, 3, True), Entry("head.weight", (2,), 3, 5, True)]
    own = [entry for entry in entries if entry.start >= first]
    return StackedState(Adam(), before, SIZES, trained, own, torch.device("cpu"))


def test_only_moments_of_trained_columns_change(rows):
    states = [(kept(rows, CORE, 10.0 * node), kept(rows, HEAD, 10.0 * node + 1, steps=6)) for node in range(2)]
    state = stacked([(core[0], head[0]) for core, head in states], torch.tensor([3, 4]), 3)
    first, second = state.flats
    assert first.tolist() == [[1.0, 1.0], [11.0, 11.0]] and second.tolist() == [[1.5, 1.5], [11.5, 11.5]]
    first += 100
    held = [
        [rows.store(part, torch.zeros(size)) for part, size in zip((CORE, CORE, HEAD, HEAD), (3, 3, 2, 2), strict=True)]
        for _ in states
    ]
    state.store([[params.row for params in each] for each in held])
    assert [params.values().tolist() for params in held[1]] == [[10.0] * 3, [10.5] * 3, [111.0] * 2, [11.5] * 2]


def test_model_without_kept_state_starts_with_zeros(rows):
    core, held = kept(rows, CORE, 7.0, steps=0)
    state = stacked([(None, None), (core, None)], slice(0, 5), 0)
    assert state.flats[0].tolist() == [[0.0] * 5, [7.0] * 3 + [0.0] * 2]
    target = rows.store(CORE, torch.zeros(3))
    state.store([[None] * 4, [target.row, None, None, None]])
    assert target.values().tolist() == held[0].values().tolist()


def test_rows_whose_trained_parts_have_done_equally_many_steps_are_one_run(rows):
    counts = [(4, 6), (4, 6), (4, 2), (9, 2)]
    held = [(kept(rows, CORE, 0, core), kept(rows, HEAD, 0, head)) for core, head in counts]
    before = [(core[0], head[0]) for core, head in held]
    whole, head = stacked(before, slice(0, 5), 0), stacked(before, slice(3, 5), 3)
    assert whole.runs == [slice(0, 2), slice(2, 3), slice(3, 4)] and whole.parts_differ
    assert head.runs == [slice(0, 2), slice(2, 4)] and not head.parts_differ


def test_the_number_of_models_does_not_change_the_number_of_operators(rows):
    counts = set()
    for number in (2, 50):
        states = [(kept(rows, CORE, node), kept(rows, HEAD, node)) for node in range(number)]
        targets = [[*core[1], *head[1]] for core, head in states]
        with CountedOperators() as operators:
            state = stacked([(core[0], head[0]) for core, head in states], slice(0, 5), 0)
            state.store([[params.row for params in each] for each in targets])
        counts.add(operators.found.total())
    assert len(counts) == 1

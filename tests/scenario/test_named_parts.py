"""A mapping with a name becomes the dataclass of that name; here with a separate table."""

import sys
import types
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import pytest
from annotated_types import Ge, Lt

from ddlsim.foundation.registry import Registry
from ddlsim.models.base import ModelSettings
from ddlsim.scenario import from_mapping, load, parts, to_yaml
from ddlsim.scenario.parts import key_docs, plain


@dataclass(frozen=True, kw_only=True)
class Knot(ModelSettings):
    """Ties things.

    Args:
        loops: how many,
            at least one.
        ends: their lengths in m.
    """

    loops: Annotated[int, Ge(1)]
    ends: tuple[Annotated[float, Ge(0), Lt(10)], ...] = (1.0,)
    pairs: tuple[tuple[int, str], ...] = ()
    style: Literal["granny", "reef"] | None = None

    def __post_init__(self):
        if self.loops == 13:
            raise ValueError("loops: 13 is bad luck")


@pytest.fixture(autouse=True)
def knots(monkeypatch):
    module = types.ModuleType("private_knots")
    module.Knot = Knot
    monkeypatch.setitem(sys.modules, "private_knots", module)
    private = Registry("model", "private", {"knot": "private_knots:Knot"})
    real = parts.table
    monkeypatch.setattr(parts, "table", lambda key: private if key == "model" else real(key))


def model(write, text):
    return load(write(), [f"model={text}"]).model


def test_lists_become_tuples_and_whole_numbers_floats(write):
    knot = model(write, "{name: knot, loops: 2, ends: [1, 2.5], pairs: [[1, a]], style: reef}")
    assert knot == Knot(loops=2, ends=(1.0, 2.5), pairs=((1, "a"),), style="reef")
    assert isinstance(knot.ends[0], float)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ("loops: 0", "model.loops: expected a number of at least 1, got 0"),
        ("loops: true", "model.loops: expected a whole number, got true"),
        ("loops: 1.5", "model.loops: expected a whole number, got 1.5"),
        ("loops: 1, ends: 3", "model.ends: expected a list, got 3"),
        ("loops: 1, ends: [10]", "model.ends[0]: expected a number below 10, got 10"),
        ("loops: 1, pairs: [[1, 2]]", "model.pairs[0][1]: expected text, got 2"),
        ("loops: 1, style: bow", "model.style: expected one of granny, reef, got 'bow'"),
        ("loops: 13", "model: loops: 13 is bad luck"),
        ("ends: []", "model.loops: required key 'loops' is missing"),
        (
            "loops: 1, loop: 2",
            "model.loop: unknown key 'loop'. Did you mean 'loops'? "
            "Allowed here: name, buffers, loops, ends, pairs, style",
        ),
    ],
)
def test_types_and_bounds_are_kept(problems, keys, message):
    option = f"model={{name: knot, {keys}}}"
    assert problems(sets=[option]) == [f"--set {option}: {message}"]


def test_part_is_written_with_all_its_keys(write, here):
    scenario = load(write(), ["model={name: knot, loops: 2}"])
    (here / "again.yaml").write_text(to_yaml(scenario))
    assert load("again.yaml") == scenario
    assert "  name: knot\n  buffers: shared\n  loops: 2\n  ends: [1.0]\n  pairs: []\n  style: null\n" in to_yaml(
        scenario
    )


def test_mapping_makes_the_same_scenario_as_a_file(write):
    scenario = load(write(), ["model={name: knot, loops: 2}"])
    mapping = {
        "rounds": 3,
        "nodes": {"clusters": [5, 3]},
        "algorithm": {"name": "facade"},
        "training": {"learning_rate": 0.1},
        "model": {"name": "knot", "loops": 2},
        "data": {"name": "fashion-mnist-mini"},
    }
    assert from_mapping(mapping, name="test") == scenario


def test_key_texts_come_from_the_docstring():
    found = key_docs(Knot)
    assert found.pop("buffers").startswith("floating-point buffers")  # of the class that it extends
    assert found == {"loops": "how many, at least one.", "ends": "their lengths in m."}


class Word(str, Enum):  # noqa: UP042  # as users write it
    short = "s"


@pytest.mark.parametrize(
    ("value", "written"),
    [(Word.short, "s"), (np.float64(0.5), 0.5), (np.str_("a"), "a"), (Path("a/b"), "a/b"), (True, True)],
)
def test_values_are_written_as_yaml_has_them(value, written):
    assert plain(value) == written and type(plain(value)) is type(written)

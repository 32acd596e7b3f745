"""Sweeps as files; see points.py for the form."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from annotated_types import Ge, MinLen
from pydantic import BaseModel, ConfigDict

from ddlsim.errors import ScenarioError
from ddlsim.scenario.find import find
from ddlsim.scenario.load import extended
from ddlsim.scenario.problems import Problem, ScenarioProblems, did_you_mean
from ddlsim.scenario.tree import Tree, parse_file
from ddlsim.scenario.validate import check_section
from ddlsim.sweeps.points import Base, Point, Value, points, values_of_key


class SweepFile(BaseModel):
    """The file.

    Args:
        description: one line for people.
        seeds: of every combination; null: the scenario's own.
        scenario: what all runs have in common.
        axes: a key -> its values, or a name -> value -> part of a scenario.
        cells: combinations such as ring/two; null: all.
    """

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    description: str = ""
    seeds: Annotated[tuple[Annotated[int, Ge(0)], ...], MinLen(1)] | None = None
    scenario: dict[str, Any]
    axes: dict[str, list[Any] | dict[str, dict[str, Any]]] = {}
    cells: list[str] | None = None


def read_sweep(
    path: str | Path,
    out: Path | None = None,
    overrides: Sequence[str] = (),
    grid: Sequence[Sequence[Value]] = (),
    seeds: Sequence[int] | None = None,
) -> list[Point]:
    """The runs that a sweep file asks for.

    Args:
        path: the file.
        out: folder of the runs; by default runs/sweep-<name of the file>.
        overrides: "dotted.key=value" texts, laid over every run.
        grid: more axes, see `parse_grid`.
        seeds: instead of the file's.
    Raises:
        ScenarioError: every problem of the file at once; a combination that cannot be run is a point with a refusal.
    """
    file = find(path)
    try:
        tree = parse_file(file.read_text(encoding="utf-8"), str(file))
    except (OSError, UnicodeDecodeError) as error:
        raise ScenarioError(f"{file}: cannot be read: {error}") from error
    if "source" in tree.value:
        raise ScenarioError(f"{file}: holds a published table. Run it with `ddlsim reproduce {path}`.")
    whole, problems = check_section(tree, SweepFile)
    if whole is None:
        raise ScenarioProblems(problems)
    axes = [_axis(name, values) for name, values in (tree.value["axes"].value if "axes" in tree.value else {}).items()]
    only = None if whole.cells is None else [_cell(tree, index, axes) for index in range(len(whole.cells))]
    if only is not None and grid:
        raise ScenarioError(f"{file}: names its `cells`; take them out, or leave --grid out.")
    base = Base(
        file.stem, extended(tree.value["scenario"], file), tuple(overrides), out or Path("runs") / f"sweep-{file.stem}"
    )
    return points(base, [*axes, *grid], seeds or whole.seeds, only)


def _axis(name: str, values: Tree) -> tuple[Value, ...]:
    if values.is_mapping:
        return tuple(Value(label, part=part) for label, part in values.value.items())
    return values_of_key(name, values.plain())


def _cell(tree: Tree, index: int, axes: Sequence[Sequence[Value]]) -> tuple[str, ...]:
    """The labels of a combination; values of keys may be named without the key."""
    written = tree.value["cells"].value[index]
    names, labels = str(written.value).split("/"), []
    if len(names) != len(axes):
        text = f"expected one value of each of the {len(axes)} axes, parted by /, got {written.value!r}"
        raise ScenarioProblems([Problem(written.mark, f"cells[{index}]", text)])
    for name, axis in zip(names, axes, strict=True):
        known = {value.label.partition("=")[2] or value.label: value.label for value in axis}
        if name not in known:
            text = f"no value {name!r} on this axis.{did_you_mean(name, known)} Known: {', '.join(known)}"
            raise ScenarioProblems([Problem(written.mark, f"cells[{index}]", text)])
        labels.append(known[name])
    return tuple(labels)

"""Sweeps: one scenario under all combinations of some settings, each with several seeds.

From the command line, `--grid KEY=a,b` names a key and its values. A sweep file says the same, and more:

    scenario: {extends: smoke.yaml}          the keys of a scenario
    seeds: [0, 1, 2]
    axes:
      topology.name: [ring, complete]        a key and its values, or
      heads:                                 a name and, per value, any part of a scenario
        two: {algorithm: {heads: 2}}
        ten: {algorithm: {heads: 10}, rounds: 40}
    cells: [ring/two, complete/ten]          optional; without it all combinations

Every combination is checked before anything runs; one that cannot be run does not stop the others.

Sweeps as files; see points.py for the form.

Sweeps for other schedulers: one command a run, or an array script for SLURM; nothing has to stay alive.
"""

import json
import math
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from annotated_types import Ge, MinLen
from pydantic import BaseModel, ConfigDict

from ddlsim.foundation.errors import DataMissing, ScenarioError
from ddlsim.runs.directory import complete_summary, same_scenario
from ddlsim.runs.manifest import same_files
from ddlsim.scenario.load import extended, find
from ddlsim.scenario.tree import Problem, ScenarioProblems, Tree, did_you_mean, parse_file
from ddlsim.scenario.validate import check_section

if TYPE_CHECKING:
    from ddlsim.scenario import Scenario


MOST_POINTS = 100_000
_SEEDS = re.compile(r"(\d+)(?:\.\.(\d+))?$", re.ASCII)


@dataclass(frozen=True)
class Value:
    """One value along an axis.

    Args:
        label: in names of directories.
        option: "KEY=VALUE", as behind --set; or
        part: a part of a scenario, laid over the others.
    """

    label: str
    option: str = ""
    part: "Tree | None" = None


@dataclass(frozen=True)
class Base:
    """What all runs of a sweep have in common.

    Args:
        name: of the scenario, unless it gives one.
        tree: the scenario as it is written.
        overrides: "dotted.key=value" texts, laid over every run.
        out: folder of the runs: <combination>/seed-<seed>.
        given: the scenario as it was named on the command line; None: it stands in a sweep file.
    """

    name: str
    tree: "Tree"
    overrides: tuple[str, ...]
    out: Path
    given: str | None = None


@dataclass(frozen=True)
class Point:
    """One run of a sweep.

    Args:
        name: what sets it apart, e.g. "topology.name=ring,algorithm.heads=2 seed 3".
        directory: where its run lies, or will lie.
        scenario: what to run; None where it is refused.
        refusal: why it cannot be run.
        words: the arguments of `ddlsim` up to the directory; None: the scenario must be written to a file first.
        problems: all that is wrong with its scenario.
    """

    name: str
    directory: Path
    scenario: "Scenario | None"
    refusal: str = ""
    words: tuple[str, ...] | None = None
    problems: "tuple[Problem, ...]" = ()

    def summary(self) -> dict[str, Any] | None:
        """Its summary, if it has been run to its end as it is meant now, on its data or its fallback's.

        Where a file that it names has changed since, its own process tells whether that matters.
        """
        from ddlsim.scenario import with_fallback

        found = complete_summary(self.directory)
        if found is None or self.scenario is None:
            return None
        meant = [self.scenario, with_fallback(self.scenario)]
        return found if any(one is not None and self._is_of(one) for one in meant) else None

    def _is_of(self, scenario: "Scenario") -> bool:
        return same_scenario(self.directory, scenario) and same_files(self.directory, scenario)

    @property
    def file(self) -> Path:
        """Where the scenario is written that has no command of its own: beside the directory."""
        return self.directory.with_name(f"{self.directory.name}.yaml")


def parse_seeds(text: str) -> tuple[int, ...]:
    """The seeds of "0..4" (both ends count), "0,2,7" or "0..2,9".

    Raises:
        ScenarioError: if it is none of these.
    """
    found: list[int] = []
    for part in text.split(","):
        match = _SEEDS.match(part.strip())
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (0, -1)
        if last < first or last - first >= MOST_POINTS:
            raise ScenarioError(
                f"--seeds {text[:60]}: expected seeds such as 0..4 or 0,2,7, got {part.strip()[:60]!r}."
            )
        found += range(first, last + 1)
    return tuple(dict.fromkeys(found))


def parse_grid(text: str) -> tuple[Value, ...]:
    """The values of "KEY=a,b,...", as YAML: a comma inside brackets does not part them.

    Raises:
        ScenarioError: if it is none.
    """
    from ddlsim.scenario.tree import Mark, parse_value

    key, equals, values = text.partition("=")
    if not equals or not key.strip() or not values.strip():
        raise ScenarioError(
            f"--grid {text[:200]}: expected KEY=VALUE,VALUE,..., e.g. --grid topology.name=ring,complete"
        )
    found = parse_value(f"[{values}]", Mark(f"--grid {text}"), key)
    return values_of_key(key.strip(), found.plain())


def values_of_key(key: str, values: Iterable[Any]) -> tuple[Value, ...]:
    """An axis of one dotted key of a scenario; values that differ have labels that differ."""
    found = [Value(f"{key}={label_of(plain)}", f"{key}={_as_yaml(plain)}") for plain in values]
    different = list(dict.fromkeys(found))
    labels = dict(zip(different, numbered([value.label for value in different]), strict=True))
    return tuple(Value(labels[value], value.option) for value in found)


def numbered(labels: Sequence[str]) -> list[str]:
    """Labels of which no two are the same: those that are equal get a number, Net-1, Net-2, ..."""
    times = Counter(labels)
    numbers = {label: count(1) for label in times}

    def named(label: str) -> str:
        if times[label] == 1:
            return label
        return next(text for number in numbers[label] if (text := f"{label}-{number}") not in times)

    return [named(label) for label in labels]


def points(
    base: Base,
    axes: Sequence[Sequence[Value]],
    seeds: Sequence[int] | None,
    only: Iterable[tuple[str, ...]] | None = None,
) -> list[Point]:
    """All combinations, each with all seeds; the first seed of all of them first, so that results fill up evenly.

    Args:
        base: what they have in common.
        axes: per axis its values.
        seeds: None: the scenario's own.
        only: the combinations that are meant, as labels; None: all.
    Raises:
        ScenarioError: if there are far too many, or two of them have one name or directory, or say the same.
    """
    total = math.prod(map(len, axes)) * len(seeds or [0])
    if total > MOST_POINTS:
        raise ScenarioError(f"a sweep may have {MOST_POINTS:,} runs, this one has {total:,}.")
    meant = None if only is None else set(only)
    combinations = [
        combination
        for combination in product(*axes)
        if meant is None or tuple(value.label for value in combination) in meant
    ]
    if not combinations:
        raise ScenarioError("no combination of the sweep is left: expected at least one cell, or one value per axis.")
    drawn: Sequence[int | None] = seeds or [None]
    found = [point_of(base, combination, seed) for seed in drawn for combination in combinations]
    _refuse_common_problems(found)
    _refuse_shared_directories(found)
    refuse_same_scenarios((point.name, point.scenario) for point in found if point.scenario is not None)
    if any(point.scenario is not None and point.scenario.devices.measures for point in found):
        raise ScenarioError(
            "devices: a sweep compares runs, and devices calibrated would measure other step times in each of them. "
            "Set devices to what `ddlsim calibrate` prints."
        )
    return found


def _refuse_common_problems(found: Sequence[Point]) -> None:
    """Raises ScenarioProblems once for what is wrong with all runs, which no setting of the grid can correct."""
    from ddlsim.scenario.tree import ScenarioProblems

    common = [each for each in found[0].problems if all(each in point.problems for point in found)]
    if len(found) > 1 and common:
        raise ScenarioProblems(common)


def shares_refusal(found: Sequence[Point], code: int, cause: str) -> bool:
    """Whether all runs are refused as one was before its first round: for its data, or for its model on that data.

    Args:
        found: the runs, whose scenarios are right as far as they can be checked without data.
        code: exit code of the one.
        cause: what it said.
    """
    data = ("data", "task", "nodes", "partition", "shift", "validation")
    if code == DataMissing.exit_code:
        sections: tuple[str, ...] = data
    elif code == ScenarioError.exit_code and cause.startswith(("data", "model", "partition")):
        sections = (*data, "model", "algorithm")
    else:
        return False
    first = found[0].scenario
    return all(getattr(one.scenario, key) == getattr(first, key) for one in found for key in sections)


def _refuse_shared_directories(found: Iterable[Point]) -> None:
    """Raises ScenarioError if two runs would lie in one directory."""
    names: dict[Path, list[str]] = {}
    for point in found:
        names.setdefault(point.directory, []).append(point.name)
    directory, shared = max(names.items(), key=lambda item: len(item[1]))
    if len(set(shared)) > 1:
        duplicates = " and ".join(map(repr, dict.fromkeys(shared)))
        raise ScenarioError(
            f"runs of the sweep would share the directory {directory}: {duplicates}. Give them other names."
        )
    if len(shared) > 1:
        raise ScenarioError(f"{len(shared)} runs of the sweep have the name {shared[0]!r}. Give every value once.")


def refuse_same_scenarios(found: Iterable[tuple[str, "Scenario"]]) -> None:
    """Raises ScenarioError if two runs would be the same under names that say otherwise.

    Args:
        found: the name of each with its scenario.
    """
    from ddlsim.scenario.model import to_plain

    known: dict[str, list[tuple[str, Scenario]]] = {}
    for name, scenario in found:
        alike = known.setdefault(json.dumps(to_plain(scenario), sort_keys=True), [])
        same = next((other for other, known in alike if known == scenario), None)
        if same is not None:
            raise ScenarioError(
                f"runs of the sweep would be the same: {same!r} and {name!r}. A value stands there twice, two axes "
                "give one key, or one gives a whole part whose keys another gives: name the part first, or give others."
            )
        alike.append((name, scenario))


def point_of(base: Base, combination: Sequence[Value], seed: int | None) -> Point:
    """The run of one combination."""
    from ddlsim.scenario.load import apply_overrides, finish, merge, without_others_numbers
    from ddlsim.scenario.tree import ScenarioProblems

    label = ",".join(value.label for value in combination)
    folder = re.sub(r"[/\0]|^\.+$", "-", label)
    directory = (base.out / folder if folder else base.out) / ("run" if seed is None else f"seed-{seed}")
    title = " ".join(filter(None, (label, "" if seed is None else f"seed {seed}"))) or base.name
    options = [*base.overrides, *(value.option for value in combination if value.option)]
    options += [] if seed is None else [f"seed={seed}"]
    words = None
    if base.given is not None:
        words = ("run", base.given, *(word for option in options for word in ("--set", option)))
    try:
        _refuse_hidden(options, [value.option for value in combination if value.option])
        tree = base.tree
        for value in combination:
            tree = tree if value.part is None else without_others_numbers(tree, merge(tree, value.part))
        scenario = finish(apply_overrides(tree, options), base.name)
    except ScenarioError as error:
        problems = tuple(error.problems) if isinstance(error, ScenarioProblems) else ()
        return Point(title, directory, None, str(error).splitlines()[0], words, problems)
    return Point(title, directory, scenario, "", words)


def _refuse_hidden(options: Sequence[str], naming_options: Sequence[str]) -> None:
    """Raises ScenarioError if a value that a run is named by holds a key to which another option gives another value,
    which goes before it.

    Args:
        options: of the run, "KEY=VALUE".
        naming_options: those of them in the name of the run.
    """
    from ddlsim.scenario.load import parse_override

    given = {option: parse_override(option) for option in options}
    for whole in naming_options:
        path, tree = given[whole]
        for option, (longer, value) in given.items():
            inner = tree if longer[: len(path)] == path and longer != path else None
            for key in longer[len(path) :]:
                inner = None if inner is None else inner.child(key)
            if inner is not None and inner.plain() != value.plain():
                raise ScenarioError(f"{whole}: {option} goes before it, and says otherwise. Leave one of the two out.")


def _as_yaml(plain: Any) -> str:
    """A value as it may stand behind `--set KEY=`."""
    if isinstance(plain, str) and re.fullmatch(r"[A-Za-z_][A-Za-z0-9_./-]*", plain):
        return plain if plain.lower() not in ("null", "true", "false", "yes", "no", "on", "off") else json.dumps(plain)
    return json.dumps(plain)


def label_of(plain: Any) -> str:
    """A value in the name of a directory; objects and classes of Python go by the name of their class."""
    if isinstance(plain, Mapping):
        own = [label_of(plain["name"])] if "name" in plain else []
        others = (f"{label_of(str(key))}={label_of(value)}" for key, value in plain.items() if key != "name")
        return "-".join([*own, *others])
    if isinstance(plain, list | tuple):
        return "-".join(map(label_of, plain))
    if plain is None or isinstance(plain, bool | int | float):
        plain = json.dumps(plain)
    elif not isinstance(plain, str):
        plain = (plain if isinstance(plain, type) else type(plain)).__name__
    return re.sub(r"[^A-Za-z0-9_.+-]+", "-", plain)[:60]


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


SLURM = """\
#!/bin/bash
#SBATCH --job-name={name}
#SBATCH --array=1-{count}
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=4
#SBATCH --signal=TERM@120
#SBATCH --requeue
#SBATCH --output={log}
# Add what your cluster asks for: --time, --partition, --gres=gpu:1. TERM, 120 s before the end, makes a run end with a
# checkpoint; a task whose run is complete ends at once, so the same script submitted again goes on with the rest.
cd {here} || exit 1
command=$(sed -n "${{SLURM_ARRAY_TASK_ID}}p" <<'RUNS'
{commands}
RUNS
)
eval "exec srun $command"
"""


def words_of(point: Point, options: Sequence[str] = ()) -> tuple[str, ...]:
    """The arguments of `ddlsim` that make a run; writes the scenario's file where it has no command of its own."""
    words = point.words
    if words is None:
        from ddlsim.scenario import to_yaml

        assert point.scenario is not None
        point.file.parent.mkdir(parents=True, exist_ok=True)
        point.file.write_text(to_yaml(point.scenario), encoding="utf-8")
        words = ("run", str(point.file))
    return (*words, "--resume", "--out", str(point.directory), *options)


def commands(points: Sequence[Point], options: Sequence[str] = ()) -> str:
    """One line for each run."""
    return "".join(f"{shlex.join(['ddlsim', *words_of(point, options)])}\n" for point in points)


def slurm(points: Sequence[Point], name: str, out: Path, options: Sequence[str] = ()) -> str:
    """A script for `sbatch`, a task of its array for each run."""
    log = shlex.quote(str(out.absolute() / "slurm-%A_%a.log"))
    here = shlex.quote(str(Path.cwd()))
    return SLURM.format(
        name=shlex.quote(name), count=len(points), log=log, here=here, commands=commands(points, options).rstrip()
    )

"""Several runs from Python: ddlsim.compare and ddlsim.sweep."""

import html
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import product
from numbers import Real
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ddlsim.foundation.errors import ScenarioError, kind_of
from ddlsim.report import columns as frames
from ddlsim.report.comparing.cells import words_and_columns
from ddlsim.report.comparing.curves import Axis, Band, Drawn
from ddlsim.report.comparing.groups import group
from ddlsim.report.comparing.rows import Row, compared
from ddlsim.report.comparing.sections import run_list
from ddlsim.report.comparing.tables import all_columns, cells, heading, notes_of, table_of
from ddlsim.report.html.page import comparison_page, html_table, write
from ddlsim.report.reading import find_runs
from ddlsim.report.text import terminal_width
from ddlsim.runs.api.arguments import flat, part_of, sections_of
from ddlsim.runs.api.run import NOTEBOOK, Run
from ddlsim.runs.api.start import NAMED, resolve, run
from ddlsim.runs.options import listed, path_of
from ddlsim.runs.sweeps.axes import label_of, numbered
from ddlsim.runs.sweeps.points import refuse_same_scenarios
from ddlsim.scenario import Scenario

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Runs(list[Run]):
    """Runs; a notebook shows a table with a row per run."""

    def _repr_html_(self) -> str:
        if not self:
            return "[]"
        table = run_list(group([run.records for run in self])).table
        assert table is not None
        return NOTEBOOK.format(html_table(table))


class Comparison:
    """A comparison of runs, with the seeds of one setting together.

    Args:
        runs: at least one.
        group_by: dotted keys that distinguish settings, such as algorithm.name; None: all keys in which runs differ,
            except the seed.
        at: a value of `y` whose cost is compared (accuracies 0 to 1); None: each scenario's own target.
        y: the metric of `at` and of figures: accuracy, mse, minority, worst_cluster, fair_accuracy, cluster_0,
            ...; None: accuracy or mse.
    Raises:
        ScenarioError: if an argument has another type.
    """

    def __init__(
        self, runs: Sequence[Run], group_by: Sequence[str] | None = None, at: float | None = None, y: str | None = None
    ):
        if at is not None and (not isinstance(at, Real) or isinstance(at, bool)):
            raise ScenarioError(f"compare: at: expected a number, such as 0.3, got {kind_of(at)}.")
        keys = None if group_by is None else listed("compare: group_by", group_by, '["algorithm.name"]', str)
        self.runs = Runs(runs)
        self.group_by, self.at, self.y = keys, at, None if y is None else str(y)

    @cached_property
    def rows(self) -> list[Row]:
        """A row per setting, with means and standard deviations; see ddlsim/report/comparing/rows.py."""
        return compared([run.records for run in self.runs], self.group_by, Drawn(y=self.y, at=self.at).target)

    def frame(self) -> Any:
        """Return a table with a row per setting: a pandas.DataFrame, or a dictionary of arrays without pandas.

        Its columns are those of `table("csv")`: scenario, algorithm, settings (differences from other rows of these
        two), setting (differences from all rows), data, status, evaluated_round, metric, measure (of the target),
        target, reached (runs that reached it), seeds, runs (their number) and labels (warnings). For each number there
        are its mean and its population standard deviation over runs, and the published value: accuracy_all_mean,
        accuracy_all_std, accuracy_all_published, ... (0 to 1), bytes_mean, sim_time_s_mean, and costs to the target
        over the runs that reached it, target_round_mean, target_bytes_mean, target_sim_time_s_mean, ...; nan if there
        is none. If some runs of a setting lack a number, accuracy_1_runs is the number of runs that have it.
        """
        columns = all_columns(self.rows).items()
        return frames.frame({key: np.array([np.nan if one is None else one for one in each]) for key, each in columns})

    def table(self, format: str = "text", *, columns: Sequence[str] | None = None, units: Sequence[str] = ()) -> str:
        """Return the rows as text (as wide as the terminal), markdown, latex, siunitx, csv or json.

        Args:
            format: of the table.
            columns: names of columns after the setting: accuracy, target_bytes, target_time, ...; None: all.
            units: such as ["GB", "s"]; by default the unit of a column's largest mean.
        """
        by_keys, width = self.group_by is not None, terminal_width()
        return table_of(self.rows, format, by_keys, columns=columns, units=units, width=width)

    def plot(self, x: Axis = "time", y: str | None = None, band: Band = "std") -> "Figure":
        """Return a figure with a line per setting: the mean over its runs, with a band and a mark at every evaluation.

        Args:
            x: rounds, time (simulated) or bytes (of all nodes together).
            y: instead of the comparison's.
            band: std: one population standard deviation; ci: the 95 % confidence interval of the mean; none.
        Raises:
            DataMissing: if matplotlib is not installed. ScenarioError: if runs have no such values in common.
        """
        from ddlsim.report.comparing.figures import lines_figure

        shown = self.at if y in (None, self.y) else None
        return lines_figure([run.records for run in self.runs], Drawn(x, y or self.y, self.group_by, band, shown))

    def html(self, path: str | Path, x: Axis = "time", band: Band = "std") -> Path:
        """Write the comparison as one self-contained HTML file; see docs/report.md.

        Args:
            path: the file; it is replaced, and folders above it are made.
            x: first horizontal axis; the reader can choose another.
            band: see `plot`.
        Returns:
            The path.
        Raises:
            ScenarioError: if it cannot be written, or the runs are not judged by the same metric.
        """
        runs = [run.records for run in self.runs]
        return write(comparison_page(runs, Drawn(x, self.y, self.group_by, band, self.at)), path, "html")

    def __len__(self) -> int:
        return len(self.runs)

    def __repr__(self) -> str:
        return f"Comparison({self.runs!r})"

    def __str__(self) -> str:
        return self.table()

    def _repr_html_(self) -> str:
        """Return the table for a notebook, between the lines above and below it."""
        words, numbers = words_and_columns(self.rows, self.group_by is not None)
        lines = heading(self.rows, self.group_by), notes_of(self.rows, words)
        above, below = ("".join(f"<div>{html.escape(text)}</div>" for text in each) for each in lines)
        return NOTEBOOK.format(above + html_table(cells(self.rows, words, numbers)) + below)


def compare(
    runs: "Iterable[Run | str | PathLike[str]]",
    *,
    group_by: Sequence[str] | str | None = None,
    at: float | None = None,
    y: str | None = None,
) -> Comparison:
    """Compare runs.

    Args:
        runs: runs, run directories, or folders with runs below them; a run that is named twice counts once.
        group_by, at, y: see `Comparison`; a text may have several keys, separated by commas.
    Raises:
        ScenarioError: if a path has no run. RecordsDamaged: if records cannot be read.
    """
    single = isinstance(runs, Run | str | PathLike)
    given: list[Any] = [runs] if single else listed("compare: runs", runs, '[run, "runs/smoke"]', Run | str | PathLike)
    if not given:
        raise ScenarioError("compare: expected at least one run or run directory.")
    found: dict[Path, Run] = {}
    for each in given:
        for one in [each] if isinstance(each, Run) else map(Run, find_runs([path_of("compare: runs", each)])):
            found.setdefault(one.dir.resolve(), one)
    keys = [key.strip() for key in group_by.split(",")] if isinstance(group_by, str) else group_by
    return Comparison(list(found.values()), keys, at, y)


def sweep(
    scenario: str | Path | Mapping[str, Any] | Scenario,
    grid: Mapping[str, Sequence[Any]] | None = None,
    *,
    seeds: Iterable[int] | None = None,
    set: Mapping[str, Any] | None = None,
    out: str | Path | None = None,
    progress: str = "auto",
    **options: Any,
) -> Comparison:
    """Run a scenario under all combinations of settings, with several seeds, one after the other in this process.

    Values may be objects and classes, also of a notebook. Complete runs are not run again, so the same call after an
    interrupt runs the missing ones. `ddlsim sweep` on the command line runs several processes at a time.

    Args:
        scenario, set, progress: see `ddlsim.run`.
        grid: dotted key -> values: {"algorithm": ["el", Facade(heads=2)], "training.learning_rate": [0.1, 0.01]}.
        seeds: per combination; None: the scenario's own.
        out: folder of the runs; by default runs/sweep-<scenario>.
        options: further arguments of `ddlsim.run`, the same for all: `data`, `metrics`, `rounds`, `force`, ...; not
            keys of the grid.
    Returns:
        All runs, grouped by the keys of the grid.
    Raises:
        ScenarioError: if a combination cannot be run, before anything runs.
        DdlsimError: of the first run that fails; earlier runs are kept.
    """

    axes = _axes({} if grid is None else grid)
    every = [None] if seeds is None else listed("sweep: seeds", seeds, "[0, 1, 2] or range(3)")
    drawn = [seed for place, seed in enumerate(every) if seed not in every[:place]]
    empty = [key for key, values in axes.items() if not values]
    if empty or not drawn:
        raise ScenarioError(f"sweep: {', '.join(empty) or 'seeds'}: expected at least one value.")
    points = [(seed, dict(zip(axes, values, strict=True))) for seed in drawn for values in product(*axes.values())]
    metrics = options.pop("metrics", None)
    named = {key: value for key in NAMED if (value := options.pop(key, None)) is not None}
    given = {key: value for each in (named | sections_of(options)).items() for key, value in flat(*each)}
    twice = [key for key in axes if key in given] + ["seed"] * (seeds is not None and "seed" in {*axes, *given})
    if twice:
        raise ScenarioError(f"sweep: {twice[0]} is given twice. Give it once, in the grid or as an argument.")
    changed = {**(set or {}), **given}
    checked = [resolve(scenario, {**changed, **changes}, metrics, seed=seed) for seed, changes in points]
    folder = path_of("out", out) if out is not None else Path("runs") / f"sweep-{checked[0].name}"
    names = [numbered([f"{key}={label_of(value)}" for value in values]) for key, values in axes.items()]
    labels = [",".join(label) for label in product(*names)] * len(drawn)
    refuse_same_scenarios((f"{label} seed {one.seed}", one) for one, label in zip(checked, labels, strict=True))
    found = []
    for (seed, _), one, label in zip(points, checked, labels, strict=True):
        place = (folder / label if label else folder) / ("run" if seed is None else f"seed-{seed}")
        found.append(run(one, out=place, progress=progress, **options))
    return Comparison(found)


def _axes(grid: Mapping[str, Sequence[Any]]) -> dict[str, list[Any]]:
    """Return the values of every key of a grid, with parts in place of arrays.

    Raises:
        ScenarioError: if it is not a mapping of keys to lists.
    """
    example = '{"training.learning_rate": [0.1, 0.01]}'
    if not isinstance(grid, Mapping):
        raise ScenarioError(f"sweep: grid: expected a mapping such as {example}, got {kind_of(grid)}.")
    axes = {key: listed(f"sweep: grid: {key}", values, f"that in {example}") for key, values in grid.items()}
    if "data" in axes:
        axes["data"] = [part_of("data", one) for one in axes["data"]]
    return axes

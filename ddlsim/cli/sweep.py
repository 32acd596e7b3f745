"""ddlsim sweep: one scenario under all combinations of settings with several seeds, or a search by Optuna."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from ddlsim.cli.exits import INTERRUPTED, end_with_failures, say
from ddlsim.cli.options import DataDir, Download, ExecutorName, Fallback, Jobs, Overrides, Quiet, complete_scenarios
from ddlsim.foundation.errors import ScenarioError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from optuna import Study

    from ddlsim.runs.cluster.cluster import Executor
    from ddlsim.runs.sweeps.points import Point
    from ddlsim.runs.sweeps.pool import Ended, Resources
    from ddlsim.runs.sweeps.search import Search

Together = Annotated[int | None, typer.Option(min=2, help="Runs for which one process computes, in common waves.")]


def sweep(
    scenario: Annotated[
        str, typer.Argument(help="A scenario or a sweep file, or the name of one.", autocompletion=complete_scenarios)
    ],
    grid: Annotated[
        list[str], typer.Option(metavar="KEY=A,B", help="A key and its values, e.g. topology.name=ring,complete.")
    ] = [],  # noqa: B006
    seeds: Annotated[str | None, typer.Option(help="Seeds, e.g. 0..4 or 0,2,7; by default the scenario's.")] = None,
    overrides: Overrides = [],  # noqa: B006
    out: Annotated[Path | None, typer.Option(file_okay=False, help="By default runs/sweep-<scenario>.")] = None,
    jobs: Jobs = 1,
    together: Together = None,
    emit: Annotated[
        Literal["commands", "slurm"] | None, typer.Option(help="Only print a command per missing run, or for sbatch.")
    ] = None,
    search: Annotated[
        Literal["optuna"] | None,
        typer.Option(help="Choose values by earlier results; --grid takes KEY=LOW..HIGH[:log]."),
    ] = None,
    trials: Annotated[int, typer.Option(min=1, help="Runs of a search, including earlier commands.")] = 50,
    metric: Annotated[
        str | None, typer.Option(help="Objective of a search: a metric, worst_cluster, fair_accuracy, validation_loss.")
    ] = None,
    executor: ExecutorName = "local",
    cpus_per_run: Annotated[int | None, typer.Option(min=1, help="Cores of each run, with Ray; by default 1.")] = None,
    gpus_per_run: Annotated[int | None, typer.Option(min=0, help="GPUs of each run, with Ray; by default 0.")] = None,
    pruner: Annotated[
        Literal["median", "hyperband", "none"], typer.Option(help="Rule that stops runs of a search before their end.")
    ] = "median",
    data_dir: DataDir = None,
    fallback: Fallback = True,
    download: Download = True,
    quiet: Quiet = False,
) -> None:
    """Run a scenario under all combinations of settings; the same command again runs the missing ones.

    Every run has a separate process, so a failure ends no other run. Failures are listed at the end, exit code 5. A run
    that was stopped is resumed from its last checkpoint.

    With --search optuna, only some combinations are run: Optuna chooses the next values by the results of earlier runs,
    and stops runs that are worse than the others (docs/many_runs.md).

    With --together N, one process computes for N runs at a time and joins equal work (docs/many_runs.md).

    With --executor ray, the cluster runs as many at a time as it has cores and GPUs for; each run directory is copied
    back at its end (docs/cluster.md).
    """
    from ddlsim.runs.sweeps.points import commands, slurm, words_of
    from ddlsim.runs.sweeps.pool import Job, run_points
    from ddlsim.runs.sweeps.together import run_processes

    by_ray = _ray_of(executor, cpus_per_run, gpus_per_run)
    if together is not None and (by_ray is not None or search is not None):
        raise ScenarioError("--together: takes neither --executor ray nor --search. Leave them out.")
    options = [] if data_dir is None else ["--data-dir", str(data_dir)]
    options += [*([] if fallback else ["--no-fallback"]), *([] if download else ["--no-download"])]
    if search is not None:
        if by_ray is not None:
            raise ScenarioError("--search: runs on this machine. Leave --executor out.")
        if seeds is not None or emit is not None:
            raise ScenarioError("--search: takes neither --seeds nor --emit; --set seed=3 gives all its runs a seed.")
        words = [*options, "-q"]
        wanted = wanted_search(scenario, grid, overrides, out, trials, metric, pruner, words)
        run_search(wanted, jobs, quiet)
        return
    folder, points = _points(scenario, grid, seeds, overrides, out)
    refused = [(point.name, point.refusal) for point in points if point.scenario is None]
    there = [point for point in points if point.summary() is not None]
    missing = [point for point in points if point.scenario is not None and point not in there]
    if emit is not None:
        if missing and emit == "slurm":
            typer.echo(slurm(missing, folder.name, folder, options), nl=False)
        elif missing:
            typer.echo(commands(missing, options), nl=False)
        end_with_failures(refused, len(points))
        return
    if there and not quiet:
        say(f"{len(there)} of {len(points)} runs exist already.")
    try:
        if by_ray is None:
            started = [Job(point.name, words_of(point, [*options, "-q"])) for point in missing]
            ends = run_processes(started, jobs, together)
        else:
            given = {"data_dir": data_dir, "fallback": fallback, "download": download, "checkpoint_every": "0"}
            ends = run_points(missing, *by_ray, given) if missing else iter(())
        failed = _report_ends(missing, ends, quiet)
    except KeyboardInterrupt:
        say("Interrupted. The same command runs the missing ones.")
        raise typer.Exit(INTERRUPTED) from None
    done = [point.directory for point in points if point.summary() is not None]
    if done:
        from ddlsim.report.comparing.rows import compared
        from ddlsim.report.comparing.tables import table_of
        from ddlsim.report.summary import read_all
        from ddlsim.report.text import printable, terminal_width

        studied = [text.partition("=")[0].strip() for text in grid] or None
        rows = compared(list(read_all(done)))
        typer.echo(printable(table_of(rows, studied=studied, width=terminal_width())))
    end_with_failures([*refused, *failed], len(points))


def _points(
    scenario: str, grid: list[str], seeds: str | None, overrides: list[str], out: Path | None
) -> "tuple[Path, list[Point]]":
    """Return the folder of the runs, and all points of the sweep."""
    from ddlsim.runs.sweeps.axes import parse_grid, parse_seeds
    from ddlsim.runs.sweeps.points import Base, points, read_sweep
    from ddlsim.scenario.files import find, is_sweep
    from ddlsim.scenario.load import read_tree

    file = find(scenario)
    axes = [parse_grid(text) for text in grid]
    numbers = None if seeds is None else parse_seeds(seeds)
    folder = out or Path("runs") / f"sweep-{file.stem}"
    if is_sweep(file):
        return folder, read_sweep(file, folder, overrides, axes, numbers)
    if not axes and numbers is None:
        raise ScenarioError("a sweep needs --grid KEY=A,B or --seeds 0..4, or a sweep file. One run: `ddlsim run`.")
    return folder, points(Base(file.stem, read_tree(file), tuple(overrides), folder, scenario), axes, numbers)


def _ray_of(executor: str, cpus: int | None, gpus: int | None) -> "tuple[Executor, Resources] | None":
    """Return the cluster and the resources of each run; None: runs are processes of this machine."""
    from ddlsim.runs.cluster.cluster import executor_of

    found = executor_of(executor)
    if found.is_local:
        if cpus is not None or gpus is not None:
            raise ScenarioError("--cpus-per-run, --gpus-per-run: are resources of a cluster. Add --executor ray.")
        return None
    from ddlsim.runs.sweeps.pool import Resources

    return found, Resources(cpus or 1, gpus or 0)


def _report_ends(missing: "list[Point]", ends: "Iterator[Ended]", quiet: bool) -> list[tuple[str, str]]:
    """Print a line for each run when it ends; return the failed runs with their causes."""
    from ddlsim.runs.sweeps.pool import progress

    ended_runs = progress(missing, ends, (lambda _: None) if quiet else say)
    return [(point.name, ended.cause) for point, summary, ended in ended_runs if summary is None]


def wanted_search(
    scenario: str,
    grid: Sequence[str],
    overrides: Sequence[str],
    out: Path | None,
    trials: int,
    metric: str | None,
    pruner: str,
    options: Sequence[str],
) -> "Search":
    """Check the arguments of a search.

    Args:
        scenario, grid, overrides, out, trials, metric, pruner: of the command.
        options: words of every run.
    Raises:
        ScenarioError: if they are invalid.
    """
    from ddlsim.runs.sweeps.points import Base
    from ddlsim.runs.sweeps.search import Search, objective_of, parse_dimension
    from ddlsim.scenario.files import find, is_sweep
    from ddlsim.scenario.load import apply_overrides, finish, read_tree

    file = find(scenario)
    if is_sweep(file):
        raise ScenarioError(f"--search: {file} is a sweep file. Name a scenario, and the keys to search with --grid.")
    if not grid:
        raise ScenarioError("--search needs --grid KEY=LOW..HIGH, KEY=LOW..HIGH:log or KEY=A,B. Add it.")
    space = dict(map(parse_dimension, grid))
    objective = objective_of(metric, finish(apply_overrides(read_tree(file), overrides), file.stem))
    overrides = [*overrides, "evaluation.validation=true"]
    shared = finish(apply_overrides(read_tree(file), overrides), file.stem)
    base = Base(file.stem, read_tree(file), tuple(overrides), out or Path("runs") / f"search-{file.stem}", scenario)
    return Search(base, shared, space, objective, trials, pruner, tuple(options))


def run_search(wanted: "Search", jobs: int, quiet: bool) -> None:
    """Search, and print the best runs."""
    from ddlsim.runs.sweeps import search as searching

    objective, trials = wanted.objective, wanted.trials
    failed: list[searching.Ended] = []

    def report(ended: searching.Ended, count: int) -> None:
        if ended.state == "failed":
            failed.append(ended)
        value = "" if ended.value is None else f" {objective.name} {objective.metric.text(ended.value)}"
        if not quiet:
            say(f"[{count}/{trials}] {ended.name}: {ended.state.upper()}{value}{ended.cause and f': {ended.cause}'}")

    try:
        study = searching.search(wanted, jobs, report)
    except KeyboardInterrupt:
        say("Interrupted. The same command continues the search.")
        raise typer.Exit(INTERRUPTED) from None
    typer.echo(_best(study, wanted))
    end_with_failures([(each.name, each.cause) for each in failed], trials)


def _best(study: "Study", wanted: "Search") -> str:
    """Return the five best trials, and the number of trials by state."""
    from optuna.trial import TrialState

    from ddlsim.report.summary_table import fallback_line
    from ddlsim.report.text import columns
    from ddlsim.runs.sweeps.search import FALLBACK

    ended = study.get_trials(deepcopy=False)
    complete = [frozen for frozen in ended if frozen.state == TrialState.COMPLETE]
    metric = wanted.objective.metric
    best = sorted(complete, key=lambda frozen: float(frozen.value or 0.0), reverse=not metric.falling)[:5]
    keys, rows = list(wanted.space), []
    for frozen in best:
        values = [frozen.params[key] for key in keys]
        texts = [f"{value:.4g}" if isinstance(value, float) else str(value) for value in values]
        rows.append([f"trial-{frozen.number:04d}", metric.text(frozen.value), *texts])
    pruned = sum(frozen.state == TrialState.PRUNED for frozen in ended)
    failed = len(ended) - len(complete) - pruned
    head = f"{len(ended)} trials: {len(complete)} complete, {pruned} pruned, {failed} failed."
    if not best:
        return head
    if fallback := study.user_attrs.get(FALLBACK):
        head = f"!! {fallback_line(fallback)}\n{head}"
    return f"{head} The best of them, in {wanted.base.out}:\n{columns(['run', wanted.objective.name, *keys], rows)}"

"""ddlsim sweep: one scenario under all combinations of some settings, with several seeds."""

import time
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ddlsim.cli import completion
from ddlsim.cli.exits import INTERRUPTED, RUNS_FAILED, say
from ddlsim.cli.options import DataDir, Download, ExecutorName, Fallback, Jobs, Overrides, Quiet
from ddlsim.cli.search import Pruner, Search, run_search, wanted_search
from ddlsim.foundation.errors import DataMissing, ScenarioError
from ddlsim.runs.checkpoint import Every

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ddlsim.runs.cluster.cluster import Executor
    from ddlsim.runs.sweeps.points import Point
    from ddlsim.runs.sweeps.pool import Ended, Resources


class Emit(StrEnum):
    """What is printed in place of running."""

    commands = "commands"
    slurm = "slurm"


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command()(sweep)


def sweep(
    scenario: Annotated[
        str, typer.Argument(help="A scenario or a sweep file, or the name of one.", autocompletion=completion.scenarios)
    ],
    grid: Annotated[
        list[str], typer.Option(metavar="KEY=A,B", help="A key and its values, e.g. topology.name=ring,complete.")
    ] = [],  # noqa: B006
    seeds: Annotated[str | None, typer.Option(help="Seeds, e.g. 0..4 or 0,2,7; by default the scenario's.")] = None,
    overrides: Overrides = [],  # noqa: B006
    out: Annotated[
        Path | None, typer.Option(file_okay=False, help="Folder of the runs; by default runs/sweep-<scenario>.")
    ] = None,
    jobs: Jobs = 1,
    emit: Annotated[
        Emit | None, typer.Option(help="Run nothing; print a command for each missing run, or a script for sbatch.")
    ] = None,
    search: Annotated[
        Search | None,
        typer.Option(help="Choose values by what earlier runs reached; --grid takes KEY=LOW..HIGH[:log] too."),
    ] = None,
    trials: Annotated[int, typer.Option(min=1, help="Runs of a search, those of earlier commands counted.")] = 50,
    metric: Annotated[
        str | None,
        typer.Option(
            help="What a search makes best on validation data: a metric, worst_cluster, fair_accuracy, validation_loss"
        ),
    ] = None,
    executor: ExecutorName = "local",
    cpus_per_run: Annotated[int | None, typer.Option(min=1, help="Cores of each run, with Ray; by default 1.")] = None,
    gpus_per_run: Annotated[int | None, typer.Option(min=0, help="GPUs of each run, with Ray; by default 0.")] = None,
    pruner: Annotated[Pruner, typer.Option(help="What stops a run of a search before its end.")] = Pruner.median,
    data_dir: DataDir = None,
    fallback: Fallback = True,
    download: Download = True,
    quiet: Quiet = False,
) -> None:
    """Run a scenario under all combinations of settings; the same command again goes on with what is missing.

    Every run has a process of its own: one that fails or is killed ends no other one. Failures are listed at the end,
    and the exit code is then 5. A run that was stopped is resumed from its last checkpoint.

    With --search optuna, not all combinations are run: Optuna chooses the next values by what the runs so far have
    reached, and stops runs that are worse than the others (docs/many_runs.md).

    With --executor ray, as many runs are under way as the cluster has cores and GPUs for; each comes back when it has
    ended (docs/cluster.md).
    """
    by_ray = _ray_of(executor, cpus_per_run, gpus_per_run)
    options = [] if data_dir is None else ["--data-dir", str(data_dir)]
    options += [*([] if fallback else ["--no-fallback"]), *([] if download else ["--no-download"])]
    if search is not None:
        if by_ray is not None:
            raise ScenarioError("--search: runs on this machine. Leave --executor out.")
        if seeds is not None or emit is not None:
            raise ScenarioError("--search: takes neither --seeds nor --emit; --set seed=3 gives all its runs a seed.")
        words = [*options, "-q"]
        wanted = wanted_search(scenario, grid, overrides, out, trials, metric, pruner.value, words)
        run_search(wanted, jobs, quiet)
        return
    folder, points = _points(scenario, grid, seeds, overrides, out)
    refused = [(point.name, point.refusal) for point in points if point.scenario is None]
    there = [point for point in points if point.summary() is not None]
    missing = [point for point in points if point.scenario is not None and point not in there]
    if emit is not None:
        from ddlsim.runs.sweeps import points as texts

        if missing:
            script = emit is Emit.slurm
            text = texts.slurm(missing, folder.name, folder, options) if script else texts.commands(missing, options)
            typer.echo(text, nl=False)
        _end(refused, len(points))
        return
    if there and not quiet:
        say(f"{len(there)} of {len(points)} runs are there already.")
    try:
        if by_ray is not None:
            from ddlsim.runs.sweeps.pool import run_points

            given = {"data_dir": data_dir, "fallback": fallback, "download": download, "checkpoint_every": Every()}
            failed = _report_runs(missing, run_points(missing, *by_ray, given), quiet) if missing else []
        else:
            failed = _run(missing, [*options, "-q"], jobs, quiet)
    except KeyboardInterrupt:
        say("Interrupted. The same command runs what is missing.")
        raise typer.Exit(INTERRUPTED) from None
    done = [point.directory for point in points if point.summary() is not None]
    if done:
        from ddlsim.report import compare
        from ddlsim.report.text import printable

        studied = [text.partition("=")[0].strip() for text in grid] or None
        typer.echo(printable(compare(done, studied=studied)))
    _end([*refused, *failed], len(points))


def _points(
    scenario: str, grid: list[str], seeds: str | None, overrides: list[str], out: Path | None
) -> "tuple[Path, list[Point]]":
    """The folder of the runs, and all of them."""
    from ddlsim.runs.sweeps.points import Base, parse_grid, parse_seeds, points, read_sweep
    from ddlsim.scenario.load import find, is_sweep, read_tree

    file = find(scenario)
    axes = [parse_grid(text) for text in grid]
    numbers = None if seeds is None else parse_seeds(seeds)
    if is_sweep(file):
        folder = out or Path("runs") / f"sweep-{file.stem}"
        return folder, read_sweep(file, folder, overrides, axes, numbers)
    if not axes and numbers is None:
        raise ScenarioError("a sweep needs --grid KEY=A,B or --seeds 0..4, or a sweep file. One run: `ddlsim run`.")
    folder = out or Path("runs") / f"sweep-{file.stem}"
    return folder, points(Base(file.stem, read_tree(file), tuple(overrides), folder, scenario), axes, numbers)


def _run(missing: "list[Point]", options: list[str], jobs: int, quiet: bool) -> list[tuple[str, str]]:
    """Runs them, each in a process; what failed, with its cause."""
    from ddlsim.runs.sweeps import pool
    from ddlsim.runs.sweeps.points import words_of

    return _report_runs(missing, pool.run_jobs([pool.Job(p.name, words_of(p, options)) for p in missing], jobs), quiet)


def _ray_of(executor: str, cpus: int | None, gpus: int | None) -> "tuple[Executor, Resources] | None":
    """The cluster and what each run gets; None: runs are processes of this machine."""
    from ddlsim.runs.cluster.cluster import executor_of

    found = executor_of(executor)
    if found.is_local:
        if cpus is not None or gpus is not None:
            raise ScenarioError("--cpus-per-run, --gpus-per-run: say what runs get of a cluster. Add --executor ray.")
        return None
    from ddlsim.runs.sweeps.pool import Resources

    return found, Resources(cpus or 1, gpus or 0)


def _report_runs(missing: "list[Point]", ends: "Iterator[Ended]", quiet: bool) -> list[tuple[str, str]]:
    """Tells of each run when it has ended; what failed, with its cause."""
    from ddlsim.report.summary import honest_part
    from ddlsim.report.text import seconds_text
    from ddlsim.runs.sweeps.points import shares_refusal
    from ddlsim.tasks.base import Metric

    meant = {point.name: point for point in missing}
    started, failed = time.perf_counter(), []
    for done, ended in enumerate(ends, 1):
        summary = meant[ended.job.name].summary()
        if ended.code or summary is None:
            failed.append((ended.job.name, ended.cause or "it has ended without a summary"))
            if len(missing) > 1 and len(failed) == done and shares_refusal(missing, ended.code, ended.cause):
                kind = DataMissing if ended.code == DataMissing.exit_code else ScenarioError
                raise kind(f"{ended.cause}\nThe grid does not change this, so none of the {len(missing)} runs was run.")
            outcome = f"FAILED: {failed[-1][1]}"
        else:
            value = Metric(**summary["judged_by"]).text(honest_part(summary)[summary["metric"]]["all"])
            outcome = f"{summary['metric']} {value}  ({seconds_text(summary['wall_s'])})"
        if not quiet:
            left_s = (time.perf_counter() - started) / done * (len(missing) - done)
            say(f"[{done}/{len(missing)}] {ended.job.name}: {outcome}  ETA {seconds_text(left_s)}")
    return failed


def _end(failed: list[tuple[str, str]], total: int) -> None:
    if not failed:
        return
    say(f"{len(failed)} of {total} runs failed:")
    for name, cause in failed:
        say(f"  {name}: {cause}")
    raise typer.Exit(RUNS_FAILED)

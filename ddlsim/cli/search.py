"""ddlsim sweep --search optuna: Optuna chooses settings by the results of earlier runs."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from ddlsim.cli.exits import INTERRUPTED, end_with_failures, say
from ddlsim.foundation.errors import ScenarioError

if TYPE_CHECKING:
    from optuna import Study

    from ddlsim.runs.sweeps.search import Search as Wanted


def wanted_search(
    scenario: str,
    grid: Sequence[str],
    overrides: Sequence[str],
    out: Path | None,
    trials: int,
    metric: str | None,
    pruner: str,
    options: Sequence[str],
) -> "Wanted":
    """Check the arguments of a search.

    Args:
        scenario, grid, overrides, out, trials, metric, pruner: of the command.
        options: words of every run.
    Raises:
        ScenarioError: if they are invalid.
    """
    from ddlsim.runs.sweeps.points import Base
    from ddlsim.runs.sweeps.search import Search as Wanted
    from ddlsim.runs.sweeps.search import objective_of, parse_dimension
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
    return Wanted(base, shared, space, objective, trials, pruner, tuple(options))


def run_search(wanted: "Wanted", jobs: int, quiet: bool) -> None:
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


def _best(study: "Study", wanted: "Wanted") -> str:
    """Return the five best trials, and the number of trials by state."""
    from optuna.trial import TrialState

    from ddlsim.report.summary_table import fallback_line
    from ddlsim.report.text import columns
    from ddlsim.runs.sweeps.search import FALLBACK

    ended = study.get_trials(deepcopy=False)
    complete = [frozen for frozen in ended if frozen.state == TrialState.COMPLETE]
    metric = wanted.objective.metric
    best = sorted(complete, key=lambda frozen: float(frozen.value or 0.0), reverse=not metric.falling)[:5]
    keys = list(wanted.space)
    rows = []
    for frozen in best:
        values = [frozen.params[key] for key in keys]
        texts = [f"{value:.4g}" if isinstance(value, float) else str(value) for value in values]
        rows.append([f"trial-{frozen.number:04d}", metric.text(frozen.value), *texts])
    pruned = sum(frozen.state == TrialState.PRUNED for frozen in ended)
    failed = len(ended) - len(complete) - pruned
    head = f"{len(ended)} trials: {len(complete)} complete, {pruned} pruned, {failed} failed."
    if not best:
        return head
    fallback = study.user_attrs.get(FALLBACK)
    if fallback:
        head = f"!! {fallback_line(fallback)}\n{head}"
    return f"{head} The best of them, in {wanted.base.out}:\n{columns(['run', wanted.objective.name, *keys], rows)}"

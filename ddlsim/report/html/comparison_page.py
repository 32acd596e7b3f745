"""The page of several runs: sections of their comparison, headline numbers, and warnings."""

from collections.abc import Sequence

from ddlsim.foundation.errors import DdlsimError, ScenarioError
from ddlsim.report.comparing.curves import Drawn
from ddlsim.report.comparing.rows import Row, Target, compared
from ddlsim.report.comparing.sections import sections
from ddlsim.report.comparing.tables import identical, notes_of
from ddlsim.report.html.page import Page, Tile
from ddlsim.report.records import Records
from ddlsim.report.text import bytes_text, joules_text, seconds_text


def comparison_page(
    runs: Sequence[tuple[Records, dict]], drawn: Drawn | None = None, damaged: Sequence[DdlsimError] = ()
) -> Page:
    """Return the page of a report of several runs.

    Args:
        runs: with their summaries.
        drawn: the keys that separate settings, the contents of the lines, and the value whose cost is compared.
        damaged: errors of runs that could not be read and are left out.
    Raises:
        ScenarioError: if there are no runs, or they cannot be compared.
    """
    if not runs:
        raise ScenarioError("compare: expected at least one run that can be read; got none, so there is no page.")
    drawn = drawn or Drawn()
    parts = sections(runs, drawn)
    rows = compared(runs, drawn.group_by, None if drawn.at is None else Target(drawn.at, drawn.y))
    names = list(dict.fromkeys(str(summary["scenario"]) for _, summary in runs))
    settings = len({row.setting for row in rows})
    title = f"{_count(settings, 'setting')} of {names[0]}" if len(names) == 1 else _count(settings, "setting")
    scenarios = ", ".join(names[:4]) + (", ..." if len(names) > 4 else "")
    loud = [note.removeprefix("!! ") for note in notes_of(rows) if note.startswith("!!")]
    return Page(
        title,
        parts,
        f"{_count(len(runs), 'run')} · {scenarios}",
        tiles(rows),
        [*identical(rows), *loud, *(f"left out: {error}" for error in damaged)],
        "Made by ddlsim from the records of the runs; curves by uPlot (MIT license).",
    )


def tiles(rows: Sequence[Row]) -> list[Tile]:
    """Return the tiles: number of runs and settings, and the best settings in quality, fairness and cost of the
    target.
    """
    metric = rows[0].judged_by
    seeds = sorted({seed for row in rows for seed in row.seeds})
    shown = ", ".join(map(str, seeds[:6])) + (", ..." if len(seeds) > 6 else "")
    count = sum(len(row.seeds) for row in rows)
    found = [Tile("Runs", str(count), f"seed{'s' if len(seeds) > 1 else ''} {shown}")]
    unit = " %" if metric.share else ""
    lead = "Lowest" if metric.falling else "Highest"
    bests = [
        (f"{metric.name}_all", f"{lead} {metric.words}", lambda value: metric.text(value) + unit, metric.falling),
        ("fair_accuracy", "Highest fair accuracy", lambda value: f"{100 * value:.2f} %", False),
        ("target_bytes", "Fewest bytes to target", bytes_text, True),
        ("target_sim_time_s", "Least time to target", seconds_text, True),
        ("target_joules", "Least energy to target", joules_text, True),
    ]
    for name, title, as_text, falling in bests:
        reached = [row for row in rows if not name.startswith("target") or row.reached == len(row.seeds)]
        known = [(number["mean"], row.setting) for row in reached if (number := row.numbers.get(name))]
        if len(known) > 1 and (name != "fair_accuracy" or all(row.num_clusters > 1 for row in rows)):
            value, setting = (min if falling else max)(known, key=lambda pair: pair[0])
            found.append(Tile(title, as_text(value), setting))
    return found


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"

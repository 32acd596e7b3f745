"""Sections as one HTML file that needs nothing else: no network, no other files, a strict content security policy.

Everything from records is escaped: text by html.escape, figures as JSON whose `<`, `>` and `&` are escaped. Scripts and
styles are allowed by their hashes alone. The curves are drawn by uPlot (assets/uplot, MIT license).

The page of one run has its sections, the page of several runs the sections of their comparison, after headline
numbers and warnings.
"""

import base64
import hashlib
import html
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from ddlsim.foundation.errors import DdlsimError, ScenarioError
from ddlsim.foundation.strict_json import table_text, write_whole
from ddlsim.report.comparing.cells import columns_of
from ddlsim.report.comparing.curves import Drawn
from ddlsim.report.comparing.rows import Row, compared
from ddlsim.report.comparing.sections import sections as comparison_sections
from ddlsim.report.comparing.tables import identical, notes_of
from ddlsim.report.figures import written_below
from ddlsim.report.html.encode import Budget, encoded
from ddlsim.report.records import Records
from ddlsim.report.section import Section, Table
from ddlsim.report.sections import sections
from ddlsim.report.summary import summary_of
from ddlsim.report.summary_table import loud_lines
from ddlsim.report.summary_table import rows as summary_rows
from ddlsim.tasks.base import Metric

LARGEST_BYTES = 1_000_000
LIBRARIES = ("uplot/uPlot.iife.min.js",)
SCRIPTS = ("format.js", "lines.js", "heat.js", "graph.js", "bars.js", "page.js")
STYLES = ("uplot/uPlot.min.css", "page.css")


@dataclass(frozen=True)
class Tile:
    """A headline number of a page.

    Args:
        name: its label.
        value: as text.
        remark: a few words below it.
    """

    name: str
    value: str
    remark: str = ""


@dataclass(frozen=True)
class Page:
    """Contents of a page.

    Args:
        title: its heading.
        sections: in order; sections of one group are adjacent.
        subtitle: a line below the title.
        tiles: headline numbers.
        loud: warnings, shown before any number.
        footer: a line at the end.
        ended: whether the run has ended, so that the page no longer changes.
    """

    title: str
    sections: Sequence[Section]
    subtitle: str = ""
    tiles: Sequence[Tile] = ()
    loud: Sequence[str] = ()
    footer: str = ""
    ended: bool = True


def printed(page: Page, version: str = "") -> str:
    """Return the page as HTML.

    Figures are thinned until the file is smaller than 1 MB (see encode.py); notes report it.

    Args:
        page: its contents.
        version: of a live page, identifies this state of the run; the page then asks its server for newer ones.
    """
    budget = Budget()
    while True:
        text = _document(page, budget, version)
        if len(text.encode()) < LARGEST_BYTES or budget.points <= 25:
            return text
        budget = budget.smaller()


def write(page: Page, path: str | Path, option: str = "-o") -> Path:
    """Write a page. An existing file is replaced once the new one is complete.

    Args:
        page: its contents.
        path: the file; folders above it are created.
        option: of the command line, which an error names.
    Raises:
        ScenarioError: if it cannot be written.
    """
    path = Path(path)
    with written_below(path.parent, option):
        write_whole(path, printed(page).encode())
    return path


def _document(page: Page, budget: Budget, version: str) -> str:
    figures, parts, group = {}, [], None
    for section in page.sections:
        if section.group != group:
            group = section.group
            parts.append(f'<h2 class="group" id="group-{_slug(group)}">{_text(group)}</h2>')
        found, notes = (None, []) if section.figure is None else encoded(section.figure, budget)
        if found is not None:
            figures[section.key] = found
        parts.append(_section(section, notes, table_text(found)))
    style, script = _assets()
    live = "'self'" if version else "'none'"
    policy = (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; img-src data:; "
        f"connect-src {live}; base-uri 'none'; form-action 'none'"
    )
    attributes = f' data-version="{_text(version)}" data-ended="{str(page.ended).lower()}"' if version else ""
    return f"""<!doctype html>
<html lang="en" data-theme="auto"{attributes}>
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="generator" content="ddlsim">
<link rel="icon" href="data:,">
<title>{_text(page.title)}</title>
<style>{style}</style>
</head>
<body>
<header>
<div class="top">
<div id="head">{_head(page)}</div>
<div class="tools"><span id="live" role="status"></span><button type="button" id="theme">◐ Auto</button>\
<button type="button" id="print">Print</button></div>
</div>
</header>
<div class="frame">
<nav aria-label="Sections">{_navigation(page.sections)}</nav>
<main>
{"".join(parts)}
</main>
</div>
<footer>{_text(page.footer)}</footer>
<noscript><footer>Charts need JavaScript, which is part of this file; tables and text do not.</footer></noscript>
<script type="application/json" id="figures">{_json(figures)}</script>
<script>{script}</script>
</body>
</html>
"""


def _head(page: Page) -> str:
    loud = "".join(f"<li>{_text(line)}</li>" for line in page.loud)
    tiles = ""
    for tile in page.tiles:
        remark = f"<small>{_text(tile.remark)}</small>" if tile.remark else ""
        tiles += f'<div class="tile"><dt>{_text(tile.name)}</dt><dd>{_text(tile.value)}{remark}</dd></div>'
    text = f'<h1>{_text(page.title)}</h1><p class="subtitle">{_text(page.subtitle)}</p>'
    text += f'<ul class="loud">{loud}</ul>' if loud else ""
    return text + (f'<dl class="tiles">{tiles}</dl>' if tiles else "")


def _navigation(sections: Sequence[Section]) -> str:
    groups: dict[str, list[str]] = {}
    for section in sections:
        link = f'<li><a href="#{_text(section.key)}">{_text(section.title)}</a></li>'
        groups.setdefault(section.group, []).append(link)
    return "".join(
        f'<a class="to-group" href="#group-{_slug(name)}">{_text(name)}</a><ul>{"".join(links)}</ul>'
        for name, links in groups.items()
    )


def _section(section: Section, notes: Sequence[str], figure: str) -> str:
    title = _text(section.title)
    about = f'<p class="about">{_text(section.about)}</p>' if section.about else ""
    note_list = "".join(f'<p class="note">{_text(note)}</p>' for note in (*section.notes, *notes))
    if section.figure is not None:
        body = (
            f'<figure><div class="figure" id="figure-{section.key}" data-figure="{section.key}" data-title="{title}">'
            f'</div><details class="twin"><summary>Table: {title}</summary>'
            f'<div class="scroll" tabindex="0" role="region" aria-label="Table: {title}"></div></details></figure>'
        )
    else:
        body = "" if section.table is None else html_table(section.table, title, section.open)
    if section.code:
        body = f"<pre><code data-copy>{_text(section.code)}</code></pre>{body}"
    inside = f"<h3>{title}</h3>{about}{body}{note_list}"
    mark = hashlib.sha256((inside + figure).encode()).hexdigest()[:12]
    long = ' class="long"' if section.figure is None else ""
    return f'<section id="{section.key}"{long} data-hash="{mark}">{inside}</section>\n'


def html_table(table: Table, title: str = "", opened: bool = True) -> str:
    """Return a table as HTML; `title` is HTML, and one that is not open is folded."""

    def line(cells: Sequence[str], number: int = -1) -> str:
        found, names = [], number < 0
        for index, cell in enumerate(cells):
            tag = "th" if names or index == 0 else "td"
            scope = f' scope="{"col" if names else "row"}"' if tag == "th" else ""
            words = ' class="words"' if index < table.left else ""
            text = re.sub(r"(?<=[a-z_\d])\.(?=[a-z_])", ".<wbr>", _text(cell).replace("\n", "<br>"))  # breaks at dots
            text = f"<b>{text}</b>" if (number, index) in table.best else text
            found.append(f"<{tag}{scope}{words}>{text}</{tag}>")
        mark = ' class="strong"' if number in table.strong else ""
        return f"<tr{mark}>{''.join(found)}</tr>"

    head = f"<thead>{line(table.header)}</thead>" if table.header else ""
    rows = "".join(line(row, number) for number, row in enumerate(table.rows))
    text = f"<table>{head}<tbody>{rows}</tbody></table>"
    text += f'<p class="note">{_text(table.note)}</p>' if table.note else ""
    text = f'<div class="scroll whole" tabindex="0" role="region" aria-label="{title}">{text}</div>'
    return text if opened else f"<details><summary>{len(table.rows)} rows</summary>{text}</details>"


def _text(text: str) -> str:
    """Text for HTML, also inside of attributes; characters that XML forbids as their code."""
    plain = "".join(char if char >= " " or char in "\n\t" else f"\\x{ord(char):02x}" for char in str(text))
    return html.escape(plain.encode("utf-8", "backslashreplace").decode())


def _json(value: object) -> str:
    """JSON (ASCII) that no browser takes for markup."""
    text = table_text(value, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


@cache
def _assets() -> tuple[str, str]:
    """Style and script of a page."""
    folder = resources.files("ddlsim.report.html") / "assets"
    style, library, scripts = (
        "\n".join((folder / name).read_text(encoding="utf-8").strip() for name in names)
        for names in (STYLES, LIBRARIES, SCRIPTS)
    )
    return style, f"{library}\n(() => {{\n'use strict';\n{scripts}\n}})();"


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _slug(text: str) -> str:
    return "".join(char if char.isalnum() and char.isascii() else "-" for char in text.lower())


def run_page(records: Records, defaults: Mapping[str, Any] | None = None) -> Page:
    """Return the page of a report of these records.

    Args:
        records: of the run, which may be unfinished or killed.
        defaults: see `sections`.
    """
    summary = summary_of(records)
    data = f"{summary['data']['name']}{' (fallback)' if summary['data']['fallback'] else ''}"
    parts = [f"{summary['algorithm']}", f"{summary['nodes']} nodes", data, f"seed {summary['seed']}", records.status]
    return Page(
        str(summary["scenario"]),
        sections(records, summary, defaults),
        " · ".join(parts),
        list(run_tiles(summary)),
        notes(records, summary),
        f"Made by ddlsim from the records in {records.directory.name}; curves by uPlot (MIT license).",
        records.status != "running",
    )


TILES = ("rounds", "fair accuracy %", "nodes that completed the last round", "bytes sent", "simulated time", "energy")
MOST_CLUSTERS = 6


def run_tiles(summary: dict) -> Iterator[Tile]:
    """Yield rows of the summary on quality, fairness and costs; a remark in brackets is below the value."""
    head = f"{Metric(**summary['judged_by']).head}, "
    shown = [row for row in summary_rows(summary) if row[0] in TILES or row[0].startswith((head, "target"))]
    surplus = [row for row in shown if row[0].startswith(f"{head}cluster")][MOST_CLUSTERS:]
    for name, text in (row for row in shown if row not in surplus):
        value, _, remark = text.partition(" (")
        yield Tile(name[:1].upper() + name[1:], value, remark.removesuffix(")").replace(") (", ", "))


AT_THE_END = ("communication.jsonl", "links.jsonl", "contents.jsonl")


def notes(records: Records, summary: dict) -> list[str]:
    """Return the warnings to read before any number; for an unfinished run also the parts missing below."""
    found = list(loud_lines(summary))
    absent = [name for name in AT_THE_END if not (records.directory / name).is_file()]
    if records.status != "done" and absent:
        found[-1] += f"; not (yet) written, so that what they hold is missing below: {', '.join(absent)}"
    return found


def comparison_page(runs: Sequence[Records], drawn: Drawn | None = None, damaged: Sequence[DdlsimError] = ()) -> Page:
    """Return the page of a report of several runs.

    Args:
        runs: their records.
        drawn: the keys that separate settings, the contents of the lines, and the value whose cost is compared.
        damaged: errors of runs that could not be read and are left out.
    Raises:
        ScenarioError: if there are no runs, or they cannot be compared.
    """
    if not runs:
        raise ScenarioError("compare: expected at least one run that can be read; got none, so there is no page.")
    drawn = drawn or Drawn()
    rows = compared(runs, drawn.group_by, drawn.target)
    names = list(dict.fromkeys(str(records.manifest.get("scenario")) for records in runs))
    settings = len({row.setting for row in rows})
    title = f"{_count(settings, 'setting')} of {names[0]}" if len(names) == 1 else _count(settings, "setting")
    scenarios = ", ".join(names[:4]) + (", ..." if len(names) > 4 else "")
    loud = [note.removeprefix("!! ") for note in notes_of(rows) if note.startswith("!!")]
    return Page(
        title,
        comparison_sections(runs, rows, drawn),
        f"{_count(len(runs), 'run')} · {scenarios}",
        list(tiles(rows)),
        [*identical(rows), *loud, *(f"left out: {error}" for error in damaged)],
        "Made by ddlsim from the records of the runs; curves by uPlot (MIT license).",
    )


NO_WINNER = "no winner: not significant (Welch's t, 5 %)"


def tiles(rows: Sequence[Row]) -> Iterator[Tile]:
    """Yield the tiles: number of runs, and the best means in quality, fairness and cost of the target; a setting is
    named if its mean differs significantly from all others, see `Column.winner`.
    """
    metric = rows[0].judged_by
    seeds = sorted({seed for row in rows for seed in row.seeds})
    shown = ", ".join(map(str, seeds[:6])) + (", ..." if len(seeds) > 6 else "")
    count = sum(len(row.seeds) for row in rows)
    yield Tile("Runs", str(count), f"seed{'s' if len(seeds) > 1 else ''} {shown}")
    columns = columns_of(rows)
    for name in (metric.name, "fair_accuracy", "target_bytes", "target_time", "target_energy"):
        if name in columns and (best := columns[name].winner(rows)):
            row, significant = best
            title = f"{'Lowest' if columns[name].best is min else 'Highest'} {columns[name].title}"
            yield Tile(title, columns[name].of(row)[0], row.setting if significant else NO_WINNER)


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"

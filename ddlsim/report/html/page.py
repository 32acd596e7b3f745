"""Sections as one HTML file that needs nothing else: no network, no other files, a strict content security policy.

Everything that comes from records is escaped: text by html.escape, figures as JSON whose `<`, `>` and `&` are escaped.
Scripts and styles are allowed by their hashes alone. The curves are drawn by uPlot (assets/uplot, MIT license).
"""

import base64
import hashlib
import html
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources

from ddlsim.report.html.encode import Budget, encoded
from ddlsim.report.section import Section, Table
from ddlsim.strict_json import table_text

LARGEST_BYTES = 1_000_000
LIBRARIES = ("uplot/uPlot.iife.min.js",)
SCRIPTS = ("format.js", "lines.js", "heat.js", "graph.js", "bars.js", "page.js")
STYLES = ("uplot/uPlot.min.css", "page.css")


@dataclass(frozen=True)
class Tile:
    """A number that stands at the head of a page.

    Args:
        name: what it is.
        value: as text.
        remark: a few words below it.
    """

    name: str
    value: str
    remark: str = ""


@dataclass(frozen=True)
class Page:
    """What a page shows.

    Args:
        title: its heading.
        sections: in order; those of one group stand together.
        subtitle: a line below the title.
        tiles: the first numbers that a reader looks for.
        loud: what must be read before any number.
        footer: a line at the end.
        ended: whether what it shows will change no more.
    """

    title: str
    sections: Sequence[Section]
    subtitle: str = ""
    tiles: Sequence[Tile] = ()
    loud: Sequence[str] = ()
    footer: str = ""
    ended: bool = True


def printed(page: Page, version: str = "") -> str:
    """The page as HTML.

    Figures are thinned until the file is smaller than 1 MB (see encode.py), and say so.

    Args:
        page: what it shows.
        version: of a live page, what tells this state of the run from others; it then asks its server for newer ones.
    """
    budget = Budget()
    while True:
        text = _document(page, budget, version)
        if len(text.encode()) < LARGEST_BYTES or budget.points <= 25:
            return text
        budget = budget.smaller()


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
    told = f' data-version="{_text(version)}" data-ended="{str(page.ended).lower()}"' if version else ""
    return f"""<!doctype html>
<html lang="en" data-theme="auto"{told}>
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
    tiles = "".join(
        f'<div class="tile"><dt>{_text(tile.name)}</dt><dd>{_text(tile.value)}'
        f"{f'<small>{_text(tile.remark)}</small>' if tile.remark else ''}</dd></div>"
        for tile in page.tiles
    )
    return (
        f'<h1>{_text(page.title)}</h1><p class="subtitle">{_text(page.subtitle)}</p>'
        + (f'<ul class="loud">{loud}</ul>' if loud else "")
        + (f'<dl class="tiles">{tiles}</dl>' if tiles else "")
    )


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
    told = "".join(f'<p class="note">{_text(note)}</p>' for note in (*section.notes, *notes))
    if section.figure is not None:
        body = (
            f'<figure><div class="figure" id="figure-{section.key}" data-figure="{section.key}" data-title="{title}">'
            f'</div><details class="twin"><summary>Table: {title}</summary>'
            f'<div class="scroll" tabindex="0" role="region" aria-label="Table: {title}"></div></details></figure>'
        )
    else:
        body = "" if section.table is None else _table(section.table, title, section.open)
    if section.code:
        body = f"<pre><code data-copy>{_text(section.code)}</code></pre>{body}"
    inside = f"<h3>{title}</h3>{about}{body}{told}"
    mark = hashlib.sha256((inside + figure).encode()).hexdigest()[:12]
    long = ' class="long"' if section.figure is None else ""
    return f'<section id="{section.key}"{long} data-hash="{mark}">{inside}</section>\n'


def _table(table: Table, title: str, opened: bool) -> str:
    def line(cells: Sequence[str], names: bool, strong: bool = False) -> str:
        found = []
        for index, cell in enumerate(cells):
            tag = "th" if names or index == 0 else "td"
            scope = f' scope="{"col" if names else "row"}"' if tag == "th" else ""
            words = ' class="words"' if index < table.left else ""
            found.append(f"<{tag}{scope}{words}>{_lines(cell)}</{tag}>")
        mark = ' class="strong"' if strong else ""
        return f"<tr{mark}>{''.join(found)}</tr>"

    head = f"<thead>{line(table.header, True)}</thead>" if table.header else ""
    rows = "".join(line(row, False, index in table.strong) for index, row in enumerate(table.rows))
    text = f"<table>{head}<tbody>{rows}</tbody></table>"
    text += f'<p class="note">{_text(table.note)}</p>' if table.note else ""
    if opened:
        return f'<div class="scroll whole" tabindex="0" role="region" aria-label="{title}">{text}</div>'
    return (
        f"<details><summary>{len(table.rows)} rows</summary>"
        f'<div class="scroll whole" tabindex="0" role="region" aria-label="{title}">{text}</div></details>'
    )


def _lines(cell: str) -> str:
    return _text(cell).replace("\n", "<br>")


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
    style, library, own = (
        "\n".join((folder / name).read_text(encoding="utf-8").strip() for name in names)
        for names in (STYLES, LIBRARIES, SCRIPTS)
    )
    return style, f"{library}\n(() => {{\n'use strict';\n{own}\n}})();"


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _slug(text: str) -> str:
    return "".join(char if char.isalnum() and char.isascii() else "-" for char in text.lower())

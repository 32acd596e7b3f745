"""What was run: the summary, the scenario with what differs from its defaults, the command, and what it ran on."""

from collections.abc import Iterator
from typing import Any

from ddlsim.report.records import Records
from ddlsim.report.section import Section, Table
from ddlsim.report.sections.context import Context
from ddlsim.report.summary_table import rows
from ddlsim.report.text import json_text, seconds_text

GROUP = "The run"
MISSING = object()
REPEATS = "The same scenario, seed and versions write the same records again on the same device."
NO_SETTINGS = ("paper", "description", "fallback")
"""Keys of a scenario that are told elsewhere or have no defaults."""


def about_run(records: Records, summary: dict, context: Context) -> list[Section]:
    """The sections, which every run has."""
    return [in_numbers(summary), scenario(records, context), command(records), environment(records)]


def in_numbers(summary: dict) -> Section:
    """The table that ends a run on the console."""
    return Section("summary", "Summary", GROUP, table=Table((), rows(summary), left=2))


def scenario(records: Records, context: Context) -> Section:
    """Every key of the scenario as resolved, those that differ from the default marked."""
    lines, strong = [], []
    for key, value in settings(records.scenario):
        default = context.defaults.get(key, MISSING)
        differs = default is not MISSING and json_text(default) != json_text(value)
        if differs:
            strong.append(len(lines))
        told = json_text(default) if differs else "" if default is not MISSING else "(no default)"
        lines.append((key, json_text(value), told) if context.explained else (key, json_text(value)))
    header = ("key", "value", "default, where it differs") if context.explained else ("key", "value")
    about = "As it was resolved, with every default written out"
    about += f"; {len(strong)} keys differ from their defaults." if context.explained else "."
    return Section("scenario", "Scenario", GROUP, about, Table(header, lines, 3, strong), open=False)


def settings(found: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted keys and values of a scenario, in its order."""
    for key, value in found.items():
        if not path and key in NO_SETTINGS:
            continue
        if isinstance(value, dict):
            yield from settings(value, f"{path}{key}.")
        else:
            yield f"{path}{key}", value


def command(records: Records) -> Section:
    """The words of the command, quoted for a shell."""
    return Section("command", "Command", GROUP, REPEATS, code=records.command or "(not recorded)")


def environment(records: Records) -> Section:
    """Versions, machine, data, times."""
    manifest = records.manifest
    lines = [
        (name, json_text(manifest[name]))
        for name in ("ddlsim", "python", "torch", "torchvision", "numpy", "simpy", "networkx", "pydantic")
        if manifest.get(name) is not None
    ]
    lines += [
        (name, json_text(manifest[name])) for name in ("device", "cpu", "threads", "started") if manifest.get(name)
    ]
    if manifest.get("wall_s") is not None:
        lines.append(("wall time", seconds_text(manifest["wall_s"])))
    if manifest.get("peak_rss_mib") is not None:
        lines.append(("largest memory", f"{manifest['peak_rss_mib']} MiB"))
    data = manifest.get("data") or {}
    lines += [(f"data: {name}", json_text(value)) for name, value in data.items() if value is not None]
    lines += [("code from outside", json_text(plugin)) for plugin in manifest.get("plugins") or ()]
    return Section("environment", "Made with", GROUP, table=Table((), lines, left=2), open=False)

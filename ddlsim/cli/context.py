"""Context of a report: defaults of the scenario, and published numbers of its matrix cell."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ddlsim.report.records import Records
    from ddlsim.report.sections import Context
    from ddlsim.runs.reproduce.matrix import Matrix


def with_context(records: "Records", trust: bool = False) -> "tuple[Records, Context]":
    """Return records with the published numbers of their matrix cell, if any, and the context of a report.

    Args:
        records: of the run.
        trust: whether code that the scenario names may be imported, for the defaults of its keys.
    """
    from ddlsim.foundation import own_code
    from ddlsim.report.sections import Context

    paper = None if records.scenario.get("paper") else published_of(records.scenario)
    if paper is not None:
        records = replace(records, scenario={**records.scenario, "paper": paper})
    with own_code.foreign_code(trust):
        defaults = defaults_of(records.scenario)
    return records, Context(defaults, explained=True)


def defaults_of(resolved: dict[str, Any]) -> dict[str, Any]:
    """Return the defaults of a resolved scenario, by dotted key; for a named part, those of the part with that name."""
    from ddlsim.scenario.model import DEFAULTS, Scenario

    found: dict[str, Any] = {}
    _add_section(found, Scenario, "", resolved, DEFAULTS)
    return found


def _add_section(found: dict[str, Any], cls: Any, path: str, resolved: dict[str, Any], standard: dict) -> None:
    from ddlsim.scenario import parts

    for key, field in cls.model_fields.items():
        value = resolved.get(key)
        if key in parts.LISTED:
            found[f"{path}{key}"] = []
        elif key in parts.TABLES:
            _add_part(found, key, f"{path}{key}", value, standard.get(key))
        elif hasattr(field.annotation, "model_fields"):
            _add_section(found, field.annotation, f"{path}{key}.", value or {}, standard.get(key, {}))
        elif not field.is_required():
            found[f"{path}{key}"] = parts.plain(field.get_default(call_default_factory=True))


def _add_part(found: dict[str, Any], key: str, path: str, value: Any, standard: dict | None) -> None:
    from ddlsim.foundation.errors import ScenarioError
    from ddlsim.scenario import parts

    if standard is None:
        found[path] = None
        if key == "churn":
            found[f"{path}.name"] = None
    else:
        found[f"{path}.name"] = standard["name"]
    if not isinstance(value, dict) or "name" not in value:
        return
    try:
        cls = parts.table(key)[value["name"]]
    except (KeyError, ScenarioError):  # a class in a file, whose code is missing or not trusted
        return
    for field in parts.keys_of(cls):
        if not parts.is_required(field):
            found[f"{path}.{field.name}"] = parts.plain(parts.default_of(field))
    if standard is not None and standard["name"] == value["name"]:
        found.update({f"{path}.{name}": own for name, own in standard.items()})


def published_of(resolved: dict[str, Any]) -> dict[str, Any] | None:
    """Return the published numbers of a scenario's matrix cell, in the form of the key `paper`; None without a cell.

    The name of the scenario is <matrix>-<cell>; a note lists settings in which the run differs from the cell.
    """
    from ddlsim.foundation.errors import DdlsimError
    from ddlsim.runs.reproduce.matrix import read_matrix
    from ddlsim.scenario.files import by_name

    name = str(resolved.get("name"))
    for matrix_name in sorted(by_name(matrices=True), key=len, reverse=True):
        if not name.startswith(f"{matrix_name}-"):
            continue
        try:
            matrix = read_matrix(matrix_name)
        except DdlsimError:  # a user's file of that name, which `ddlsim reproduce` explains
            continue
        for cell in matrix.cells:
            if f"{matrix_name}-{cell.name.replace('/', '-')}" == name and cell.published is not None:
                return _as_paper(matrix, cell, resolved)
    return None


def _as_paper(matrix: "Matrix", cell: Any, resolved: dict[str, Any]) -> dict[str, Any]:
    from ddlsim.report.comparing.groups import APART, settings_of
    from ddlsim.scenario.model import to_plain

    published = cell.published
    quality: dict[str, Any] = {}
    if published.mean is not None and matrix.content.average == "nodes":
        quality["all"] = published.mean
    if published.clusters is not None:
        quality["clusters"] = list(published.clusters)
    paper: dict[str, Any] = {"source": matrix.content.source, matrix.metric: quality}
    paper |= {name: published.measure(name).mean for name in published.measures}
    own, theirs = settings_of(resolved), settings_of(to_plain(cell.scenario))
    apart = (*APART, "compute_device")
    differ = [key for key in theirs if key.partition(".")[0] not in apart and own.get(key) != theirs[key]]
    if differ:
        differences = ", ".join(f"{key} {own.get(key)} (there {theirs[key]})" for key in differ[:8])
        paper["note"] = f"this run differs from the cell {cell.name} of {matrix.name}: {differences}"
    return paper

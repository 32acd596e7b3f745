"""Differences between the rows of a comparison: keys that differ, and rows whose runs computed the same."""

from collections.abc import Sequence

from ddlsim.report.comparing.groups import Settings, part_of
from ddlsim.report.comparing.rows import Row
from ddlsim.report.text import json_text

REGULAR = ("random_regular", "ring", "complete")
MOST_VALUES, MOST_CHARACTERS = 3, 30


def heading(rows: Sequence[Row], studied: Sequence[str] | None = None) -> list[str]:
    """The lines above a table of rows.

    Args:
        rows: of one comparison.
        studied: dotted keys that the comparison is about; None: the algorithm if it differs, else all that differs.
    """
    if len(rows) < 2:
        return []
    return [differences(rows, studied), *(f"!! {text}" for text in identical(rows))]


def differences(rows: Sequence[Row], studied: Sequence[str] | None = None) -> str:
    """A sentence on the keys in which rows differ, those that the comparison is not about with their values."""
    found = _differing([row.values for row in rows])
    if len({tuple(sorted(row.seeds)) for row in rows}) > 1:
        found["seed"] = [" ".join(map(str, sorted(row.seeds))) for row in rows]
    if len({row.data for row in rows}) > 1 and "data.name" not in found:
        found["data used"] = [row.data for row in rows]
    if studied is None:
        studied = ["algorithm.name"] if "algorithm.name" in found else list(found)
    about = [key for key in found if key in studied or key.removesuffix(".name") in studied]
    others = [key for key in found if key not in about]
    if not found:
        return "the settings differ in nothing that is recorded"
    text = f"compared: {', '.join(about)}; " if about else ""
    if not others:
        return f"{text}everything else is the same"
    return f"{text}the settings also differ in {', '.join(f'{key} ({_shown(found[key])})' for key in others)}"


def identical(rows: Sequence[Row]) -> list[str]:
    """A sentence for each set of rows whose runs of equal seeds wrote the same bytes."""
    sets: list[list[Row]] = []
    for row in rows:
        mine = next((own for own in sets if _same(own[0], row)), None)
        if mine is None:
            sets.append([row])
        else:
            mine.append(row)
    return [f"{_names(own, rows)} computed the same: {_reason(own)}" for own in sets if len(own) > 1]


def _same(one: Row, other: Row) -> bool:
    common = one.digests.keys() & other.digests.keys()
    return bool(common) and all(one.digests[seed] and one.digests[seed] == other.digests[seed] for seed in common)


def _names(own: Sequence[Row], rows: Sequence[Row]) -> str:
    names = [row.setting or f"{row.algorithm} {row.settings}".strip() for row in own]
    several_scenarios = len({row.scenario for row in rows}) > 1
    names = [f"{row.scenario} {name}" for row, name in zip(own, names, strict=True)] if several_scenarios else names
    return f"{', '.join(names[:-1])} and {names[-1]}"


def _reason(own: Sequence[Row]) -> str:
    """Return the reason, if it is known."""
    algorithms = {row.values.get("algorithm.name") for row in own}
    regular = all(row.values.get("topology.name") in REGULAR for row in own)
    if algorithms == {"el", "dpsgd"} and regular:
        return "Metropolis-Hastings weights on a regular graph equal EL's mean"
    return "their records are byte-identical, so what differs between them has no effect here"


def _differing(whole: Sequence[Settings]) -> dict[str, list[str | None]]:
    """Key -> the value of each row (None if the row lacks the key), of the keys whose values differ.

    A key that only some parts of one kind have (the heads of FACADE, compared with EL) is treated like the name of the
    part.
    """
    found: dict[str, list[str | None]] = {}
    for key in dict.fromkeys(key for own in whole for key in own):
        values = [json_text(own[key]) if key in own else None for own in whole]
        part = part_of(key)
        other_part = part and len({own.get(part) for own in whole}) > 1
        if len(set(values)) > 1 and not (other_part and None in values):
            found[key] = values
    return {key: values for key, values in found.items() if not any(other.startswith(f"{key}.") for other in found)}


def _shown(values: Sequence[str | None]) -> str:
    texts = ["not set" if value is None else value for value in values]
    texts = [text if len(text) <= MOST_CHARACTERS else f"{text[: MOST_CHARACTERS - 3]}..." for text in texts]
    texts = list(dict.fromkeys(texts))
    return " | ".join([*texts[:MOST_VALUES], *(["..."] if len(texts) > MOST_VALUES else [])])

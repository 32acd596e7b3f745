"""Groups of runs of one setting, separated by the keys that differ: the lines of a figure and the rows of a table."""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

from ddlsim.foundation.errors import ScenarioError
from ddlsim.report.records import Records

APART = ("name", "description", "paper", "seed", "fallback")
"""Keys of a scenario in which runs of one setting may differ."""
RECORDS = ("metrics.jsonl", "communication.jsonl")
MOST_KEYS = 3
"""Most keys that may separate settings of scenarios with different names; if more are needed, the names do as well."""
MOST_CHARACTERS = 40
"""Characters of a value in a label."""

Settings = dict[str, Any]
"""Dotted key -> value; lists of values and null are JSON text, parts in lists have their number as key."""


@dataclass(frozen=True)
class Group:
    """Runs that are averaged.

    Args:
        label: unique description of the group, e.g. "facade, heads=2" or "sign_flip, nodes=0.25"; the
            algorithm's name if there is no other group.
        runs: at least one.
        mixed: keys other than the seed in which its runs differ, because they were not used to separate groups.
    """

    label: str
    runs: tuple[Records, ...]
    mixed: tuple[str, ...]

    @property
    def seeds(self) -> list[int]:
        """Seeds of its runs."""
        return [records.scenario.get("seed", 0) for records in self.runs]

    @property
    def legend(self) -> str:
        """Its label, with the number of its runs if there are several, and a mark of fallback data."""
        count, kind = len(self.runs), "seeds" if len(set(self.seeds)) == len(self.runs) else "runs"
        fallback = any((records.manifest.get("data") or {}).get("fallback") for records in self.runs)
        return self.label + f" ({count} {kind})" * (count > 1) + " FALLBACK DATA" * fallback


def settings_of(scenario: dict[str, Any], path: str = "") -> Settings:
    """Every key of a scenario by its dotted path."""
    found: Settings = {}
    for name, value in scenario.items():
        if isinstance(value, list) and any(isinstance(part, dict) for part in value):
            value = {str(number): part for number, part in enumerate(value)}
        if isinstance(value, dict) and value:
            found |= settings_of(value, f"{path}{name}.")
        else:
            found[f"{path}{name}"] = value if isinstance(value, bool | int | float | str) else json.dumps(value)
    return found


def settings_of_run(records: Records) -> Settings:
    """Return the settings of a run's scenario; under `branch` the values that its branches changed, and under `code`
    the digests of user-defined parts.
    """
    changes = []
    for each in records.manifest.get("branches") or ():
        before = ", ".join(f"{key} was {was}" for key, (was, _) in each["changed"].items())
        changes += [f"after round {each['from_round']}: {before}"] if before else []
    plugins = [each for each in records.manifest.get("plugins") or () if each.get("sha256")]
    code = {f"code.{each['kind']}.{each['name']}": each["sha256"][:12] for each in plugins}
    return settings_of(records.scenario) | ({"branch": "; ".join(changes)} if changes else {}) | code


def compared_settings(records: Records) -> Settings:
    """Every setting of a run, without what does not change its meaning."""
    return {key: value for key, value in settings_of_run(records).items() if key.partition(".")[0] not in APART}


def records_digest(records: Records) -> str:
    """A digest of the metrics and the communication of a finished run; empty if it has not finished or has no files."""
    paths = [records.directory / name for name in RECORDS if (records.directory / name).is_file()]
    if records.status != "done" or not paths:
        return ""
    return hashlib.sha256(b"".join(hashlib.sha256(path.read_bytes()).digest() for path in paths)).hexdigest()


def parts_without_digest(records: Records) -> list[str]:
    """Return the names of the run's user-defined parts whose code has no digest."""
    plugins = records.manifest.get("plugins") or ()
    return [each["name"] for each in plugins if "sha256" in each and not each["sha256"]]


def group(runs: Sequence[Records], by: Sequence[str] | None = None, apart: str | None = None) -> list[Group]:
    """Return runs in groups, in the order of the runs.

    Args:
        runs: any.
        by: dotted keys (algorithm.name) whose values separate groups, or `name`, the scenario's; None for every key but
            the seed.
        apart: a key that does not separate groups, nor do the keys of its part that do not differ between runs with the
            same part; None if all keys do.
    Raises:
        ScenarioError: if a key of `by` is in no run.
    """
    whole = [settings_of_run(records) for records in runs]
    names = [
        key
        for key in dict.fromkeys(key for own in whole for key in own)
        if key.partition(".")[0] not in APART and not (apart is not None and _is_apart(key, apart, whole))
    ]
    keys = names if by is None else [key for each in by for key in _keys_below(each, whole)]
    members: dict[str, list[int]] = {}
    for index, own in enumerate(whole):
        members.setdefault(json.dumps([own.get(key) for key in keys]), []).append(index)
    chosen = [own[0] for own in members.values()]
    settings = [whole[index] for index in chosen]
    distinct_keys = keys if by is not None else _distinct_keys(settings, keys)
    labels = _labels(settings, distinct_keys, [runs[index] for index in chosen], by is not None)
    return [
        Group(
            label,
            tuple(runs[index] for index in own),
            tuple(sorted({key for key in names if len({json.dumps(whole[i].get(key)) for i in own}) > 1})),
        )
        for label, own in zip(labels, members.values(), strict=True)
    ]


def _keys_below(key: str, whole: Sequence[Settings]) -> list[str]:
    """Return a key of the scenario, or the keys of a section or of a list of parts."""
    known = list(dict.fromkeys(key for own in whole for key in own))
    found = [each for each in known if each == key or each.startswith(f"{key}.")]
    if not found:
        near = [each for each in known if each.rsplit(".", 1)[-1] == key.rsplit(".", 1)[-1]]
        hint = f" Did you mean {near[0]}?" if near else ""
        raise ScenarioError(f"--group-by {key}: no run has this key. Expected a dotted key of the scenario.{hint}")
    return found


def _is_apart(key: str, apart: str, whole: Sequence[Settings]) -> bool:
    """Whether a key is `apart`, or belongs to the part that it names and has one value for each of its values."""
    return key == apart or (part_of(key) == apart and not _differ(whole, key))


def _distinct_keys(groups: list[Settings], keys: list[str]) -> list[str]:
    """Return the keys that separate the groups."""
    found = [key for key in keys if _differ(groups, key)]
    scenarios = {settings.get("name") for settings in groups}
    if len(scenarios) > 1 and (len(found) > MOST_KEYS or not found):
        same_name = [[settings for settings in groups if settings.get("name") == name] for name in scenarios]
        return ["name", *(key for key in found if any(_differ(some, key) for some in same_name))]
    return found


def _differ(groups: Sequence[Settings], key: str) -> bool:
    """Whether groups differ in a key; of a part's keys, groups that have the same part."""
    part = part_of(key)
    values: dict[Any, set[Any]] = {}
    for settings in groups:
        values.setdefault(settings.get(part), set()).add(settings.get(key))
    return any(len(found) > 1 for found in values.values())


def part_of(key: str) -> str:
    """The key that names the part which another key belongs to: algorithm.name of algorithm.heads."""
    section, _, last = key.rpartition(".")
    return f"{section}.name" if section and last != "name" else ""


def _labels(groups: list[Settings], distinct_keys: list[str], runs: Sequence[Records], by_user: bool) -> list[str]:
    """Return a short description of each group; equal ones are numbered."""
    pairs = zip(groups, runs, strict=True)
    found = [_label(settings, groups, distinct_keys, records, by_user) for settings, records in pairs]
    times = Counter(found)
    numbers = {label: count(1) for label in times}
    return [label if times[label] == 1 else f"{label} ({next(numbers[label])})" for label in found]


def _label(settings: Settings, groups: list[Settings], keys: list[str], records: Records, by_user: bool) -> str:
    """Return a short description of a group.

    Args:
        settings, groups: settings of the group's first run, and of all groups'.
        keys: the keys that separate groups.
        records: of that run.
        by_user: whether the user chose the keys: a group without any of them may hold runs with little in common.
    """
    lasts = [key.rsplit(".", 1)[-1] for key in keys]
    words = []
    for key in keys:
        part = part_of(key)
        alike = [other for other in groups if by_user or other.get(part) == settings.get(part)]
        if key not in settings or (len(groups) > 1 and len({other.get(key) for other in alike}) == 1):
            continue
        last = key.rsplit(".", 1)[-1]
        shown = _value_text(settings[key])
        named = last == "name" and not shown.lstrip("-").replace(".", "").isdigit() and shown not in ("none", "null")
        words.append(shown if named else f"{key if lasts.count(last) > 1 else last}={shown}")
    if not words and by_user and len(groups) > 1:
        missing = [(key, last) for key, last in zip(keys, lasts, strict=True) if key not in settings]
        words = [f"{key if lasts.count(last) > 1 else last}=none" for key, last in missing]
    return ", ".join(words) or str(records.manifest.get("algorithm"))


def _value_text(value: Any) -> str:
    """Return a value without the folder of its file and, if it is long, without its middle."""
    text = re.sub(r"[^\s\"]*/(?=[^/]*\.py:)", "", value if isinstance(value, str) else json.dumps(value))
    return text if len(text) <= MOST_CHARACTERS else f"{text[: MOST_CHARACTERS - 15]}...{text[-12:]}"

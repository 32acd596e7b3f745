"""Scenarios that a run has followed one after the other, and the keys that may differ between them.

The directory of a branched run holds, next to scenario.yaml, one file `scenario.until-<round>.yaml` for every scenario
that it followed before, up to that round.
"""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ddlsim.foundation.errors import ScenarioError
from ddlsim.scenario import Scenario, load, to_yaml
from ddlsim.scenario.model import to_plain
from ddlsim.scenario.tree import in_short

MISSING = object()

MAY_CHANGE = (
    *("description", "paper", "rounds", "protocol", "network", "devices", "churn", "evaluation", "records"),
    *(f"training.{key}" for key in ("learning_rate", "schedule", "weight_decay", "clip_norm", "clip_value")),
    *(f"training.{key}" for key in ("label_smoothing", "proximal", "local_steps", "epochs")),
)
"""Keys and sections that may change in a branch; with keys of the algorithm that it allows (`may_change`)."""

FIXED = (
    *("network.fidelity", "network.tcp", "records.models"),
    *(f"evaluation.{key}" for key in ("evaluated_model", "batch_size", "samples", "precision")),
)
"""Keys of these sections that may not change."""


@dataclass(frozen=True)
class Stage:
    """A part of a branched run.

    Args:
        scenario: scenario of this part.
        until: the next stage starts when all nodes have completed this round.
    """

    scenario: Scenario
    until: int

    @property
    def file(self) -> str:
        """Name of its file in the directory of the run."""
        return f"scenario.until-{self.until:07d}.yaml"


def read_stages(directory: Path) -> tuple[Stage, ...]:
    """Return the stages of a run before its current scenario; empty if it is not a branch.

    Raises:
        ScenarioError: if a file is damaged.
    """
    files = sorted(directory.glob("scenario.until-*.yaml"))
    return tuple(Stage(load(path), int(path.stem.removeprefix("scenario.until-"))) for path in files)


def write_stages(directory: Path, stages: tuple[Stage, ...]) -> None:
    """Write the files of stages."""
    for stage in stages:
        (directory / stage.file).write_text(to_yaml(stage.scenario), encoding="utf-8")


def scenario_digests(directory: Path) -> dict[str, str]:
    """Return the SHA-256 of each scenario file in the directory of a run, by name."""
    files = [directory / "scenario.yaml", *sorted(directory.glob("scenario.until-*.yaml"))]
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files if file.is_file()}


def changes(before: Scenario, after: Scenario) -> dict[str, tuple[Any, Any]]:
    """Return the values of all keys that differ, by dotted key; MISSING if a scenario lacks the key."""
    plain = [to_plain(each) for each in (before, after)]
    short = [{**each, "training": in_short(each["training"])} for each in plain]  # optimizer keys without a section
    return dict(_differences("", *short))


def refuse_fixed(changed: Mapping[str, tuple[Any, Any]], scenario: Scenario) -> None:
    """Raise ScenarioError with all changed keys that cannot change during a run.

    Args:
        changed: see `changes`.
        scenario: of the run.
    """
    may = (*MAY_CHANGE, *(f"algorithm.{key}" for key in sorted(scenario.algorithm.may_change)))
    fixed = [key for key in changed if _is_below(key, FIXED) or not _is_below(key, may)]
    if fixed:
        raise ScenarioError(
            f"--set: {', '.join(fixed)} cannot change during a run. These keys can: {', '.join(may)} (except "
            f"{', '.join(FIXED)}). Start another run for other changes: `ddlsim run`."
        )


def changes_text(changed: Mapping[str, tuple[Any, Any]]) -> str:
    """Describe changes: `network.links.uplink_mbps 100 -> 10, churn null -> {...}`."""
    each = [f"{key} {_short(before)} -> {_short(after)}" for key, (before, after) in changed.items()]
    return ", ".join(each) or "nothing changed"


def _is_below(key: str, sections: tuple[str, ...]) -> bool:
    return any(key == section or key.startswith(f"{section}.") for section in sections)


def _differences(above: str, before: Any, after: Any) -> Iterator[tuple[str, tuple[Any, Any]]]:
    if isinstance(before, dict) and isinstance(after, dict):
        for key in dict.fromkeys([*before, *after]):
            path = f"{above}.{key}" if above else key
            yield from _differences(path, before.get(key, MISSING), after.get(key, MISSING))
    elif before != after:
        yield above, (before, after)


def _short(value: Any) -> str:
    return "(default)" if value is MISSING else "null" if value is None else f"{value!s:.60}"

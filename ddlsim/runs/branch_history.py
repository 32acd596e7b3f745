"""The scenarios that a run has followed one after the other, and which keys may differ between them.

A run that is no branch has followed one. Of a branched run the directory holds, beside scenario.yaml, one file
`scenario.until-<round>.yaml` for every scenario that it followed before, up to that round.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ddlsim.foundation.errors import ScenarioError

if TYPE_CHECKING:
    from ddlsim.scenario import Scenario


MISSING = object()

MAY_CHANGE = (
    "description",
    "paper",
    "rounds",
    "protocol",
    "network",
    "devices",
    "churn",
    "evaluation",
    "records",
    "training.learning_rate",
    "training.schedule",
    "training.weight_decay",
    "training.clip_norm",
    "training.clip_value",
    "training.label_smoothing",
    "training.proximal",
    "training.local_steps",
    "training.epochs",
)
"""Keys, and sections, that a run under way can go on with another value of."""

_WHY_NOT = {
    "name": "a branched run belongs to the scenario that it began as",
    "seed": "what was drawn up to that round was drawn from it",
    "nodes": "there are no others in a run under way (`churn` says when they are there)",
    "model": "the parameters of all nodes have its shape",
    "data": "the nodes have learned from it",
    "partition": "the nodes have learned from samples that it dealt",
    "shift": "the nodes have learned from samples that it changed",
    "validation": "the nodes have learned from samples that it left",
    "topology": "nodes wait for messages of the neighbors that they had when their round began",
    "mode": "nodes either wait for rounds of others or never did",
    "learning": "there is nothing learned to go on from, or no end to it",
    "compute_device": "it changes no key of the experiment; --device says where the rest is computed",
    "fallback": "the run's data has been found",
    "training": "optimizers and samples are under way with it; learning_rate, schedule, weight_decay, clip_norm, "
    "clip_value, label_smoothing, proximal, local_steps, epochs may",
    "network.fidelity": "messages on their way are carried by the network as it was made",
    "network.tcp": "messages on their way are carried by the network as it was made",
    "evaluation.evaluated_model": "the best models of earlier rounds are not known",
    "evaluation.batch_size": "it changes no result",
    "evaluation.samples": "the run's data has been drawn",
    "evaluation.precision": "values of one run are of one precision",
    "records.models": "models are kept from the start",
}
"""Why others cannot; the longest that is a key or lies above it counts."""


@dataclass(frozen=True)
class Stage:
    """A part of a run.

    Args:
        scenario: what it followed.
        until: the round at whose end, when all nodes have completed it, the next stage begins.
    """

    scenario: "Scenario"
    until: int

    @property
    def file(self) -> str:
        """Its name in the directory of the run."""
        return f"scenario.until-{self.until:07d}.yaml"


def read_stages(directory: Path) -> tuple[Stage, ...]:
    """The stages of a run before its present scenario, none if it is no branch.

    Raises:
        ScenarioError: if one of the files is damaged.
    """
    from ddlsim.scenario import load

    found = []
    for path in sorted(directory.glob("scenario.until-*.yaml")):
        until = path.stem.removeprefix("scenario.until-")
        if not until.isdecimal():
            raise ScenarioError(f"{path}: expected a name such as scenario.until-0000400.yaml.")
        found.append(Stage(load(path), int(until)))
    return tuple(found)


def write_stages(directory: Path, stages: tuple[Stage, ...]) -> None:
    """Writes them."""
    from ddlsim.scenario import to_yaml

    for stage in stages:
        (directory / stage.file).write_text(to_yaml(stage.scenario), encoding="utf-8")


def scenario_digests(directory: Path) -> dict[str, str]:
    """File in the directory of a run -> SHA-256, of the scenarios that it follows."""
    files = [directory / "scenario.yaml", *sorted(directory.glob("scenario.until-*.yaml"))]
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files if file.is_file()}


def changes(before: "Scenario", after: "Scenario") -> dict[str, tuple[Any, Any]]:
    """Dotted key -> its value in both, for all keys that differ; MISSING where one has none."""
    from ddlsim.scenario.model import to_plain

    return dict(_differences("", _as_typed(to_plain(before)), _as_typed(to_plain(after))))


def _as_typed(plain: dict[str, Any]) -> dict[str, Any]:
    """With keys of the optimizer in the section `training`, as far as they may stand there."""
    from ddlsim.scenario.tree import in_short

    return {**plain, "training": in_short(plain["training"])}


def refuse_fixed(changed: dict[str, tuple[Any, Any]], scenario: "Scenario") -> None:
    """Raises ScenarioError, with all of them, if keys are to change that cannot in a run under way.

    Args:
        changed: see `changes`.
        scenario: of the run.
    """
    reasons = [f"{key}: {why}" for key in changed if (why := _why_not(key, scenario))]
    if reasons:
        raise ScenarioError(
            f"--set: cannot change in a run under way: {'; '.join(reasons)}. A run of its own can have other values: "
            "`ddlsim run`."
        )


def changes_text(changed: dict[str, tuple[Any, Any]]) -> str:
    """The changes in words: `network.links.uplink_mbps 100 -> 10, churn null -> {...}`."""
    each = [f"{key} {_short(was)} -> {_short(now)}" for key, (was, now) in changed.items()]
    return ", ".join(each) or "nothing changed"


def _why_not(key: str, scenario: "Scenario") -> str:
    section, _, option = key.partition(".")
    if section == "algorithm":
        may = sorted(scenario.algorithm.may_change)
        if option in may:
            return ""
        shown = f"of {scenario.algorithm_name} may: {', '.join(may)}" if may else f"{scenario.algorithm_name} has none"
        return f"what nodes remember may depend on it ({shown})"
    for length in range(key.count(".") + 1, 0, -1):
        above = ".".join(key.split(".")[:length])
        if above in MAY_CHANGE:
            return ""
        if above in _WHY_NOT:
            return _WHY_NOT[above]
    return "it is none of the keys that can"


def _differences(above: str, before: Any, after: Any) -> Iterator[tuple[str, tuple[Any, Any]]]:
    if isinstance(before, dict) and isinstance(after, dict):
        for key in dict.fromkeys([*before, *after]):
            path = f"{above}.{key}" if above else key
            yield from _differences(path, before.get(key, MISSING), after.get(key, MISSING))
    elif before != after:
        yield above, (before, after)


def _short(value: Any) -> str:
    return "(default)" if value is MISSING else "null" if value is None else f"{value!s:.60}"

"""A scenario back to YAML, and its digest."""

import hashlib
import io
import json
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.representer import RoundTripRepresenter

from ddlsim.foundation import own_code
from ddlsim.scenario.model import Scenario, to_plain
from ddlsim.scenario.own_parts import origins
from ddlsim.scenario.tree import for_digest


class _Representer(RoundTripRepresenter):
    """Writes `null` where ruamel.yaml writes nothing."""


_Representer.add_representer(
    type(None), lambda representer, _: representer.represent_scalar("tag:yaml.org,2002:null", "null")
)


def to_yaml(scenario: Scenario) -> str:
    """YAML with every default written out; loads to an equal scenario."""
    yaml = YAML(typ="rt", pure=True)
    yaml.width = 120
    yaml.Representer = _Representer
    out = io.StringIO()
    yaml.dump(_styled(to_plain(scenario)), out)
    return out.getvalue()


ADDED_LATER: dict[str, Any] = {"evaluation.samples": None, "evaluation.precision": "float32", "validation.seed": None}
"""Keys that version 0.1 did not have, with their defaults: a run whose scenario does not use them keeps its name."""


def digest(scenario: Scenario) -> str:
    """8 hex digits of what the scenario says; name, description and published numbers do not count.

    Of a class in a file the file's contents count, and not the folder that it lies in; of one that Python code gives
    its text.
    """
    said = {key: value for key, value in to_plain(scenario).items() if key not in ("name", "description", "paper")}
    said["training"] = for_digest(said["training"])
    said["protocol"]["late"] = said["protocol"].pop("late_messages")  # names of run directories depend on this key
    for path, default in ADDED_LATER.items():
        section, _, key = path.rpartition(".")
        keys = said[section] if section else said
        if keys.get(key, default) == default:
            keys.pop(key, None)
    said = _by_contents(said)
    given = [own for own in origins(scenario) if own.get("source")]
    if given:
        said["given"] = [[own["kind"], own["name"], own["sha256"]] for own in given]
    return hashlib.sha256(json.dumps(said, sort_keys=True, separators=(",", ":")).encode()).hexdigest()[:8]


def _by_contents(value: Any) -> Any:
    """Plain data with the contents of files of classes in the place of their paths."""
    if isinstance(value, dict):
        return {key: _by_contents(child) for key, child in value.items()}
    if isinstance(value, list):
        return [_by_contents(child) for child in value]
    return f"{own_code.short(value)} {own_code.digest_of(value)}" if own_code.is_place(value) else value


def _styled(value: Any) -> Any:
    """Mappings in block style, lists in flow style."""
    if isinstance(value, dict):
        return CommentedMap((key, _styled(child)) for key, child in value.items())
    if isinstance(value, list):
        styled = CommentedSeq(_styled(child) for child in value)
        styled.fa.set_flow_style()
        return styled
    return value

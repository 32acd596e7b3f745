"""Write a scenario as YAML, and compute its digest."""

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


class _Representer(RoundTripRepresenter):
    """Writes `null` where ruamel.yaml writes nothing."""


_Representer.add_representer(
    type(None), lambda representer, _: representer.represent_scalar("tag:yaml.org,2002:null", "null")
)


def to_yaml(scenario: Scenario) -> str:
    """Return YAML with every default written out; it loads to an equal scenario."""
    yaml = YAML(typ="rt", pure=True)
    yaml.width = 120
    yaml.Representer = _Representer
    out = io.StringIO()
    yaml.dump(_styled(to_plain(scenario)), out)
    return out.getvalue()


def digest(scenario: Scenario) -> str:
    """Return 8 hex digits of the scenario without its name, description and published numbers.

    They cover the contents of user files, but not their folders, and the source of classes passed from Python.
    """
    plain = to_plain(scenario).items()
    said = {key: _by_contents(value) for key, value in plain if key not in ("name", "description", "paper")}
    given = [own for own in origins(scenario) if own.get("source")]
    if given:
        said["given"] = [[own["kind"], own["name"], own["sha256"]] for own in given]
    return hashlib.sha256(json.dumps(said, sort_keys=True, separators=(",", ":")).encode()).hexdigest()[:8]


def _by_contents(value: Any) -> Any:
    """Replace the path of each user file by its name and SHA-256."""
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

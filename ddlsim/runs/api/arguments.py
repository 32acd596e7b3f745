"""Arguments of Python functions that become parts of a scenario: parts, classes, modules, arrays."""

import inspect
import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ddlsim.foundation.errors import ScenarioError
from ddlsim.foundation.registry import Part
from ddlsim.runs.options import kind_of

KEYS = ("algorithm", "model", "data", "topology")
"""Parts with a separate argument."""


def part_of(key: str, value: Any) -> Any:
    """Return the value of a scenario key for an argument.

    Args:
        key: such as model.
        value: a name; a mapping with a name; a part or its class; for a model also a torch.nn.Module, or a class or
            function that makes modules; for data also a pair of splits (train, test), each a pair of arrays or tensors
            (x, y) or a torch data set, or a mapping with the arguments of `ddlsim.data.Arrays`.
    Raises:
        ScenarioError: if the type is unsupported.
    """
    if isinstance(value, str):
        return {"name": value}
    named = _is_mapping(value)
    if key == "model" and named and callable(value["name"]) and not _is_part_class(value["name"]):
        keys = ", ".join(f"{name}={argument!r}" for name, argument in value.items() if name != "name")
        name = getattr(value["name"], "__name__", "Net")
        raise ScenarioError(
            f"model: expected a name in the mapping, got {kind_of(value['name'])}. Pass arguments of a module in "
            f"Python: model=lambda: {name}({keys})."
        )
    if isinstance(value, Part) or _is_part_class(value) or named:
        return value
    if key == "model" and (_is_module(value) or callable(value)):
        from ddlsim.models.from_python import model_from_python

        return model_from_python(value)
    if key == "data" and isinstance(value, Mapping):
        return _arrays(value)
    if key == "data" and isinstance(value, tuple) and len(value) == 2:
        return _arrays(dict(zip(("train", "test"), value, strict=True)))
    also = {"model": ", a torch.nn.Module, or what makes one", "data": ", or ((x, y), (x_test, y_test))"}.get(key, "")
    raise ScenarioError(
        f"{key}: expected a name, a mapping with a name, a part or a class of parts (its base class is in "
        f"docs/extending.md){also}, got {kind_of(value)}."
    )


def _arrays(arguments: Mapping[Any, Any]) -> Any:
    """Return the data set of arrays with these arguments."""
    from ddlsim.data import Arrays
    from ddlsim.scenario.tree import did_you_mean

    known = inspect.signature(Arrays).parameters
    for name in arguments:
        if name not in known:
            raise ScenarioError(
                f"data: expected arguments of ddlsim.data.Arrays in a mapping without a name, got {name!r}."
                f"{did_you_mean(name, known)} Known: {', '.join(known)}."
            )
    return Arrays(**arguments)


def changes_of(changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return changes by dotted key, with parts in place of arguments."""
    return {key: part_of(key, value) if key in KEYS else value for key, value in changes.items()}


def scenario_of(mapping: Mapping[str, Any]) -> dict[str, Any]:
    """Return a scenario mapping with parts in place of arguments.

    As in a file, a mapping without a name has keys of the part of the extended scenario, unless it has arrays.
    """
    own = {
        key: value
        for key, value in mapping.items()
        if not (isinstance(value, Mapping) and not {"name", "train", "test"} & value.keys())
    }
    return {**mapping, **changes_of(own)}


def register(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Register classes under the names that the resumed run has for them.

    Args:
        arguments: key -> as for `part_of`; None: not passed.
    Returns:
        The parts, by key; arrays exist as long as their part.
    """
    from ddlsim.scenario import parts

    found = {key: part_of(key, value) for key, value in arguments.items() if value is not None}
    for key, part in found.items():
        if not _is_mapping(part):
            parts.table(key).name_given(part if isinstance(part, type) else type(part))
    return found


def warn_of_other_values(directory: Path, arguments: Mapping[str, Any]) -> None:
    """Warn of a part whose values differ from those of the run in a directory, which keeps its values.

    Args:
        directory: of the run; without a scenario.yaml nothing is compared.
        arguments: key -> the part; classes and mappings with a name have no values.
    Raises:
        ScenarioError: if samples differ.
    """
    from ddlsim.report.reading import read_yaml
    from ddlsim.scenario import parts

    path = directory / "scenario.yaml"
    resolved = read_yaml(path) if arguments and path.is_file() else {}
    for key, part in arguments.items():
        if not isinstance(part, Part) or key not in resolved:
            continue
        now, then = parts.to_plain(key, part), resolved[key]
        differ = [name for name in now if name != "name" and now[name] != then.get(name)]
        if not differ or now["name"] != then.get("name") or ("sha256" in differ and key == "model"):
            continue  # reading the scenario refuses another model
        values = ", ".join(f"{name} is {then.get(name)!r} there, {now[name]!r} here" for name in differ)
        text = (
            f"{key}: the run in {directory} has another {type(part).__name__} ({values:.300}), and continues with it."
        )
        if "sha256" in differ:
            raise ScenarioError(f"{text} Give the same samples again, or start another run.")
        warnings.warn(f'{text} Make a branch to change it: set={{"{key}.{differ[0]}": ...}}.', stacklevel=3)


def _is_mapping(value: Any) -> bool:
    return isinstance(value, Mapping) and "name" in value


def _is_part_class(value: Any) -> bool:
    return isinstance(value, type) and issubclass(value, Part)


def _is_module(value: Any) -> bool:
    """Whether the value is a torch.nn.Module."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.nn.Module)

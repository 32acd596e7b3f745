"""What Python code gives where a scenario has names: parts, classes, modules, arrays -> parts of a scenario."""

import inspect
import sys
import warnings
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from ddlsim.foundation.errors import ScenarioError
from ddlsim.foundation.part import Part

KEYS = ("algorithm", "model", "data", "topology")
"""The parts that have arguments of their own."""


def part_of(key: str, value: Any) -> Any:
    """What stands for an argument in a scenario.

    Args:
        key: where it stands, such as model.
        value: a name; a mapping with a name; a part of ddlsim or of one's own, or its class; of a model also a
            torch.nn.Module, or a class or function that makes modules; of data also a pair of splits (train, test),
            each a pair of arrays or tensors (x, y) or a torch data set, or a mapping with the arguments of
            `ddlsim.data.Arrays`.
    Raises:
        ScenarioError: if it is nothing of the kind.
    """
    if isinstance(value, str):
        return {"name": value}
    if key == "model" and _is_mapping(value) and _makes_modules(value["name"]):
        made = ", ".join(f"{name}={given!r}" for name, given in value.items() if name != "name")
        name = getattr(value["name"], "__name__", "Net")
        raise ScenarioError(
            f"model: expected a name in the mapping, got {kind_of(value['name'])}. What makes modules is given its "
            f"arguments in Python: model=lambda: {name}({made})."
        )
    if isinstance(value, Part) or (isinstance(value, type) and issubclass(value, Part)) or _is_mapping(value):
        return value
    if key == "model" and (_is_module(value) or callable(value)):
        from ddlsim.models.given import given_model

        return given_model(value)
    if key == "data" and isinstance(value, Mapping):
        return _arrays(value)
    if key == "data" and isinstance(value, tuple) and len(value) == 2:
        return _arrays(dict(zip(("train", "test"), value, strict=True)))
    also = {"model": ", a torch.nn.Module, or what makes one", "data": ", or ((x, y), (x_test, y_test))"}.get(key, "")
    raise ScenarioError(
        f"{key}: expected a name, a mapping with a name, a part or a class of parts (what it extends is in "
        f"docs/extending.md){also}, got {kind_of(value)}."
    )


def _arrays(arguments: Mapping[Any, Any]) -> Any:
    """The data set of arrays with these arguments.

    Raises:
        ScenarioError: if it has no such argument.
    """
    from ddlsim.data import Arrays
    from ddlsim.scenario.tree import did_you_mean

    known = inspect.signature(Arrays).parameters
    for name in arguments:
        if name not in known:
            raise ScenarioError(
                f"data: a mapping without a name has the arguments of ddlsim.data.Arrays, got {name!r}."
                f"{did_you_mean(name, known)} Known: {', '.join(known)}."
            )
    return Arrays(**arguments)


def kind_of(value: Any) -> str:
    """What a value is, for messages."""
    return f"the class {value.__name__}" if isinstance(value, type) else f"a {type(value).__name__}"


def path_of(argument: str, given: Any) -> Path:
    """Return the path in an argument, with `~` expanded.

    Raises:
        ScenarioError: if it is no path.
    """
    try:
        return Path(given).expanduser()
    except (TypeError, RuntimeError) as error:  # another type; a home that is not known
        raise ScenarioError(f"{argument}: expected a path (str or os.PathLike), got {given!r}: {error}.") from error


def listed(where: str, given: Any, example: str, kind: Any = object) -> list[Any]:
    """The values of an argument that takes several.

    Args:
        where: the argument, for messages.
        given: a list or anything else that can be gone through; neither a text nor a mapping.
        example: what it may be, for messages.
        kind: the class or classes of the values.
    Raises:
        ScenarioError: if it is a single value, or one of the values is something else.
    """
    found, expected = None, f"{where}: expected a list, such as {example}"
    if isinstance(given, Iterable) and not isinstance(given, str | bytes | Mapping) and not callable(given):
        with suppress(TypeError):  # an array without axes
            found = list(given)
    if found is None:
        raise ScenarioError(f"{expected}, got {kind_of(given)}. Put a single value into brackets.")
    for value in found:
        if not isinstance(value, kind):
            raise ScenarioError(f"{expected}, got {kind_of(value)} in it.")
    return found


def changes_of(changes: Mapping[str, Any]) -> dict[str, Any]:
    """Changes by dotted key, with what is given for a model or data as a part."""
    return {key: part_of(key, value) if key in KEYS else value for key, value in changes.items()}


def scenario_of(mapping: Mapping[str, Any]) -> dict[str, Any]:
    """A scenario that Python code gives as a mapping, with what it gives for a model or data as a part. As in a file, a
    mapping without a name is keys of the part below, but for arrays.
    """
    return {key: value if _only_keys(value) else changes_of({key: value})[key] for key, value in mapping.items()}


def _only_keys(value: Any) -> bool:
    return isinstance(value, Mapping) and not {"name", "train", "test"} & value.keys()


def register(given: Mapping[str, Any]) -> list[Any]:
    """Makes classes known by the names under which a run that is resumed has them.

    Args:
        given: key -> as for `part_of`; None: nothing.
    Returns:
        The parts; arrays are there for as long as their part is.
    """
    from ddlsim.scenario import parts

    found = []
    for key, value in given.items():
        if value is not None:
            part = part_of(key, value)
            found.append(part)
            if not _is_mapping(part):
                parts.table(key).name_given(part if isinstance(part, type) else type(part))
    return found


def _makes_modules(value: Any) -> bool:
    """Whether it is a class or function that is no part."""
    return callable(value) and not (isinstance(value, type) and issubclass(value, Part))


def tell_other_values(directory: Path, given: Mapping[str, Any]) -> None:
    """Warns of an object whose values are not those that the run in a directory has, which it may have by `set`.

    Args:
        directory: of the run; without a scenario.yaml in it nothing is looked at.
        given: key -> what `part_of` makes of it; classes and mappings with a name say no values.
    Raises:
        ScenarioError: other samples.
    """
    from ddlsim.report.reading import read_yaml
    from ddlsim.scenario import parts

    path = directory / "scenario.yaml"
    resolved = read_yaml(path) if given and path.is_file() else {}
    for key, part in given.items():
        if not isinstance(part, Part) or key not in resolved:
            continue
        now, then = parts.to_plain(key, part), resolved[key]
        differ = [name for name in now if name != "name" and now[name] != then.get(name)]
        if differ and now["name"] == then.get("name"):
            if "sha256" in differ and key == "model":  # which is told with more, when the scenario is read
                continue
            differences = ", ".join(f"{name} is {then.get(name)!r} there, {now[name]!r} here" for name in differ)
            text = (
                f"{key}: the run in {directory} has another {type(part).__name__} ({differences:.300}), and continues."
            )
            if "sha256" in differ:
                raise ScenarioError(f"{text} Give the same samples again; with others it is another run.")
            warnings.warn(f'{text} A change is set={{"{key}.{differ[0]}": ...}}.', stacklevel=3)


def _is_mapping(value: Any) -> bool:
    return isinstance(value, Mapping) and "name" in value


def _is_module(value: Any) -> bool:
    """Whether it is a torch.nn.Module; without torch there are none."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.nn.Module)

"""What the shell offers when a scenario, a matrix or a setting is being typed (`ddlsim --install-completion`)."""

from collections.abc import Iterator
from pathlib import Path


def scenarios(incomplete: str) -> list[str]:
    """Names of scenarios, and files and folders, that begin so."""
    return _files(incomplete, matrices=False)


def matrices(incomplete: str) -> list[str]:
    """Names of matrices, and files and folders, that begin so."""
    return _files(incomplete, matrices=True)


def settings(incomplete: str) -> list[str]:
    """Dotted keys of a scenario; after `algorithm.name=` and the like the names that fit."""
    from ddlsim.scenario import parts

    key, equals, value = incomplete.partition("=")
    if not equals:
        return sorted(known for known in _keys() if known.startswith(key))
    part = key.removesuffix(".name").rpartition(".")[2]
    if not key.endswith(".name") or part not in parts.TABLES:
        return []
    return [f"{key}={name}" for name in parts.table(part) if name.startswith(value)]


def _files(incomplete: str, matrices: bool) -> list[str]:
    from ddlsim.scenario import by_name

    folder, _, begin = incomplete.rpartition("/")
    paths = sorted(Path(folder or ("/" if incomplete.startswith("/") else ".")).glob(f"{begin}*"))
    beside = [f"{path}/" if path.is_dir() else str(path) for path in paths if path.is_dir() or path.suffix == ".yaml"]
    return [name for name in by_name(matrices) if name.startswith(incomplete)] + beside


def _keys() -> Iterator[str]:
    """`training.learning_rate=`, `algorithm.name=`, ..."""
    from ddlsim.scenario import json_schema, parts

    def below(properties: dict, prefix: str) -> Iterator[str]:
        for key, schema in properties.items():
            if key in parts.TABLES:
                yield f"{prefix}{key}.name="
            elif schema.get("properties") and key != "fallback":
                yield from below(schema["properties"], f"{prefix}{key}.")
            else:
                yield f"{prefix}{key}="

    return below(json_schema()["properties"], "")

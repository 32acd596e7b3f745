"""JSON-lines files of a run, also of an unfinished or killed one."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType, NoneType

from ddlsim.foundation.errors import DdlsimError, RecordsDamaged

NUMBER = (int, float)
MAYBE_NUMBER = (int, float, NoneType)
MAYBE_NODE = (int, NoneType)
_WORDS = {int: "a whole number", float: "a number", str: "text", list: "a list", dict: "an object", NoneType: "null"}
_MISSING = object()
Kinds = Mapping[str, "type | tuple[type, ...]"]
ANYTHING: Kinds = MappingProxyType({})


def json_lines(path: Path, kinds: Kinds = ANYTHING) -> Iterator[dict]:
    """Return the objects of a JSON-lines file, none if it is missing; a last line that a crash cut short is left out.

    Args:
        path: the file.
        kinds: key -> the types that its value may have; every row must have these keys.
    Raises:
        RecordsDamaged: if another line is not JSON, or does not match `kinds`; names the line.
    """
    if not path.is_file():
        return
    with path.open(encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(file, 1):
            try:
                found = json.loads(line)
            except (ValueError, RecursionError):
                found = None
            if isinstance(found, dict):
                for key, kind in kinds.items():
                    if not isinstance(found.get(key, _MISSING), kind):
                        raise RecordsDamaged(f"{path}:{number}: {_wrong(found, key, kind)}.")
                yield found
            elif line.endswith("\n"):
                raise RecordsDamaged(f"{path}:{number}: not a JSON object: {line[:60].strip()!r}.")


def torn_line(path: Path) -> int | None:
    """The number of the last line if it was cut short, else None."""
    text = path.read_bytes()
    return None if not text or text.endswith(b"\n") else text.count(b"\n") + 1


@contextmanager
def damage_of(place: Path) -> Iterator[None]:
    """Report the file and line of a record that is valid JSON but not a run record."""
    try:
        yield
    except DdlsimError:
        raise
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError, MemoryError) as error:
        what = f"{type(error).__name__}: {error}".splitlines()[0]
        raise RecordsDamaged(
            f"{place}: its records do not fit together, so some of them are damaged ({what})."
        ) from error


def _wrong(row: dict, key: str, kind: "type | tuple[type, ...]") -> str:
    if key not in row:
        return f"no {key!r} in this row"
    kinds = kind if isinstance(kind, tuple) else (kind,)
    words = " or ".join(dict.fromkeys(_WORDS[one] for one in kinds if one is not int or float not in kinds))
    return f"{key}: expected {words}, got {json.dumps(row[key])[:60]}"

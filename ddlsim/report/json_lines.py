"""JSON-lines files of a run, also of one that is still going on or was killed."""

import json
from collections.abc import Iterator
from pathlib import Path

from ddlsim.errors import DdlsimError


def json_lines(path: Path) -> Iterator[dict]:
    """The objects of a JSON-lines file; a last line that a crash cut short is left out.

    Raises:
        DdlsimError: if another line is not JSON.
    """
    with path.open(encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(file, 1):
            try:
                found = json.loads(line)
            except json.JSONDecodeError:
                found = None
            if isinstance(found, dict):
                yield found
            elif line.endswith("\n"):
                raise DdlsimError(f"{path}:{number}: not a JSON object: {line[:60].strip()!r}.")

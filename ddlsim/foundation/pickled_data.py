"""Pickles that hold nothing but data: a pickle can name any code to be run, so only those are read that name none."""

import pickle
import reprlib
from pathlib import Path
from typing import IO, Annotated, Any

from annotated_types import MinLen
from pydantic import TypeAdapter, ValidationError

from ddlsim.foundation.csv_rows import refuse, shortened
from ddlsim.foundation.errors import ScenarioError


class _DataOnly(pickle.Unpickler):
    """Reads numbers, texts and builtin containers, which need no name looked up; refuses everything else."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"it names {module}.{name}, which is code and not data")


def load_data_only(file: IO[bytes]) -> Any:
    """What a pickle holds, if that is nothing but builtin containers, numbers and texts.

    Raises:
        Exception: of many kinds, as pickle does; UnpicklingError if it names a class or a function.
    """
    return _DataOnly(file).load()


def read_data_only(path: str, expected: str) -> Any:
    """What a file holds that is such a pickle.

    Raises:
        ScenarioError: it cannot be read, or holds more than data; says what was expected.
    """
    try:
        with Path(path).open("rb") as file:
            return load_data_only(file)
    except OSError as error:
        raise ScenarioError(f"{path}: {expected}, got: {error.strerror or error}") from error
    except Exception as error:  # a damaged pickle raises nearly anything
        raise ScenarioError(f"{path}: {expected}, got: {str(error) or type(error).__name__}") from error


def read_devices(path: str, expected: str, kind: Any) -> dict[Any, Any]:
    """Read a pickled dictionary from devices to values of a kind that pydantic can check.

    Raises:
        ScenarioError: the file cannot be read, contains more than data, or has another form; names the first problems.
    """
    try:
        return TypeAdapter(Annotated[dict[Any, kind], MinLen(1)]).validate_python(read_data_only(path, expected))
    except ValidationError as error:
        problems = []
        for found in error.errors(include_url=False):
            where = [f"device {found['loc'][0]!r}", *map(str, found["loc"][1:])] if found["loc"] else [expected]
            text = found["msg"].replace("Input should be", "expected")
            problems.append(f"{path}: {': '.join(where)}: {text}, got {shortened(reprlib.repr(found['input']))}")
        refuse(problems)
        raise

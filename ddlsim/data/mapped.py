"""Samples of arrays that are memory-mapped: they are read, normalized and shifted by the batch, never all at once."""

import struct
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from ddlsim.errors import ScenarioError

_NAME_LENGTH_AT, _LOCAL_HEADER_BYTES = 26, 30
"""In the head of a zip archive's entry (PKWARE, "APPNOTE", section 4.3.7)."""


def is_mapped(array: np.ndarray) -> bool:
    """Whether an array, or what it is a view of, lies in a file."""
    base: object = array
    while isinstance(base, np.ndarray):
        if isinstance(base, np.memmap):
            return True
        base = base.base
    return False


@dataclass(frozen=True)
class MappedSamples:
    """Some samples of an array in a file.

    Args:
        indices: int64 [n], which.
        read: makes what models see, [b, ...], of indices [b].
        sample_shape: of one sample as models see it.
        sample_dtype: of its values.
    """

    indices: np.ndarray
    read: Callable[[np.ndarray], np.ndarray]
    sample_shape: tuple[int, ...]
    sample_dtype: np.dtype

    def __len__(self) -> int:
        return len(self.indices)

    @property
    def shape(self) -> tuple[int, ...]:
        """[n, ...]."""
        return (len(self.indices), *self.sample_shape)

    def __getitem__(self, rows: np.ndarray | slice) -> np.ndarray:
        """The samples at some positions, [b, ...]."""
        return self.read(self.indices[rows])


def map_npz(path: Path, names: Sequence[str]) -> dict[str, np.ndarray]:
    """Arrays of an .npz that numpy.savez has written, memory-mapped.

    Args:
        path: the file.
        names: of the arrays.
    Raises:
        ScenarioError: if they are compressed.
        Exception: of any kind, if the file is damaged.
    """
    found = {}
    with zipfile.ZipFile(path) as file, path.open("rb") as raw:
        for name in names:
            entry = file.getinfo(f"{name}.npy")
            if entry.compress_type != zipfile.ZIP_STORED:
                raise ScenarioError(
                    f"data.mapped: {path} is compressed. Write it by numpy.savez, not savez_compressed, or set "
                    "data.mapped: false."
                )
            raw.seek(entry.header_offset + _NAME_LENGTH_AT)
            name_bytes, extra_bytes = struct.unpack("<HH", raw.read(4))
            raw.seek(entry.header_offset + _LOCAL_HEADER_BYTES + name_bytes + extra_bytes)
            version = np.lib.format.read_magic(raw)
            head = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
            shape, fortran, dtype = head(raw)
            order: Literal["F", "C"] = "F" if fortran else "C"
            found[name] = np.memmap(path, dtype, "r", raw.tell(), shape, order)
    return found

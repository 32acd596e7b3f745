"""Floors: lower bounds of time from this machine's memory and arithmetic, measured by pure loops.

machine_limits.cpp is compiled on first use by the system's C++ compiler ($CXX, c++, g++ or clang++).
Rates are measured for a size over repeated passes, so data that fits a cache is read from it.
"""

import ctypes
import functools
import os
import shlex
import shutil
import subprocess
import tempfile
import warnings
from pathlib import Path

from ddlsim.kernels import aligned_rows

SOURCE = Path(__file__).with_suffix(".cpp")
OPTIONS = ["-std=c++17", "-O3", "-shared", "-fPIC", "-pthread"]
LARGEST_FLOATS = 2**26  # 256 MB: beyond every cache, so that more takes as much longer
SMALLEST_FLOATS = 2**15


def floor_s(
    threads: int,
    multiply_adds: int = 0,
    read: int = 0,
    copied: int = 0,
    rewritten: int = 0,
    instruction_set: str = "native",
) -> float | None:
    """Return the least seconds for this work; None without a compiler.

    Args:
        threads: number of cores that share the work.
        multiply_adds: fused operations on float32, in the widest registers.
        read, copied, rewritten: floats that are read; copied; read and written in place.
        instruction_set: a supported one, by the compiler's -march name; "native" for the machine's.
    """
    if _library(instruction_set) is None:
        return None
    memory = [
        _memory_s(name, count, threads, instruction_set)
        for name, count in (("read", read), ("copy", copied), ("rewrite", rewritten))
        if count
    ]
    return max([multiply_adds * _multiply_add_s(threads, instruction_set), *memory])


def _memory_s(name: str, count: int, threads: int, instruction_set: str) -> float:
    measured = min(max(count, SMALLEST_FLOATS), LARGEST_FLOATS)
    return _pass_s(name, measured, threads, instruction_set) * count / measured


@functools.cache
def _pass_s(name: str, count: int, threads: int, instruction_set: str) -> float:
    buffers = [aligned_rows(1, count).fill_(1) for _ in range(2 if name == "copy" else 1)]
    addresses = [ctypes.c_void_p(buffer.data_ptr()) for buffer in buffers]
    return getattr(_library(instruction_set), f"{name}_s")(*addresses, ctypes.c_int64(count), threads)


@functools.cache
def _multiply_add_s(threads: int, instruction_set: str) -> float:
    """Return seconds per multiply-add of one core; a host may run two threads on one core during the measurement."""
    if threads == 1:
        return _library(instruction_set).multiply_add_s(1)
    return min(_library(instruction_set).multiply_add_s(threads), _multiply_add_s(1, instruction_set) / threads)


@functools.cache
def _library(instruction_set: str) -> ctypes.CDLL | None:
    named = [shlex.split(os.environ.get("CXX", "")), ["c++"], ["g++"], ["clang++"]]
    compiler = next((command for command in named if command and shutil.which(command[0])), None)
    if compiler is None:
        warnings.warn("no C++ compiler: the benches give no floors", stacklevel=2)
        return None
    with tempfile.TemporaryDirectory() as directory:  # a loaded file may be deleted
        target = Path(directory) / "machine_limits.so"
        command = [*compiler, *OPTIONS, f"-march={instruction_set}", str(SOURCE), "-o", str(target)]
        made = subprocess.run(command, capture_output=True, text=True, check=False)
        if made.returncode:
            warnings.warn(f"{SOURCE.name} does not compile, so the benches give no floors: {made.stderr}", stacklevel=2)
            return None
        library = ctypes.CDLL(str(target))
    for function in (library.read_s, library.copy_s, library.rewrite_s, library.multiply_add_s):
        function.restype = ctypes.c_double
    return library

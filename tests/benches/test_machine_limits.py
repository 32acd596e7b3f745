"""The floors that bound the kernel benches."""

import platform
import shutil

import machine_limits
import pytest


@pytest.fixture(autouse=True)
def no_library():
    machine_limits._library.cache_clear()
    yield
    machine_limits._library.cache_clear()


def test_no_compiler_gives_no_floor(monkeypatch):
    monkeypatch.setenv("CXX", "")
    monkeypatch.setenv("PATH", "")
    with pytest.warns(UserWarning, match="no C\\+\\+ compiler"):
        assert machine_limits.floor_s(1, read=1000) is None


def test_failed_compilation_gives_no_floor(monkeypatch):
    monkeypatch.setenv("CXX", "false")
    with pytest.warns(UserWarning, match="does not compile"):
        assert machine_limits.floor_s(1, read=1000) is None


@pytest.mark.full
@pytest.mark.skipif(not shutil.which("c++"), reason="no C++ compiler")
def test_the_longer_of_arithmetic_and_memory_is_the_floor():
    little, much = (machine_limits.floor_s(1, multiply_adds=count) for count in (10**6, 10**9))
    assert much == pytest.approx(1000 * little)
    assert 1e-12 < little / 10**6 < 1e-8  # a gigahertz or so, a register at a time
    reading = machine_limits.floor_s(1, read=10**6)
    assert little < reading < much
    assert machine_limits.floor_s(1, multiply_adds=10**6, read=10**6) == reading
    assert machine_limits.floor_s(1, multiply_adds=10**9, read=10**6) == much


@pytest.mark.full
@pytest.mark.skipif(not shutil.which("c++") or platform.machine() != "x86_64", reason="no C++ compiler for x86-64")
def test_a_lower_instruction_set_multiplies_no_faster():
    lower = machine_limits.floor_s(1, multiply_adds=10**9, instruction_set="x86-64-v2")
    assert lower > 0.9 * machine_limits.floor_s(1, multiply_adds=10**9)

"""Instruction set of the host's kernels."""

from ddlsim.foundation import native


def isa() -> str:
    """The instruction set in use: "x86-64-v4" (AVX-512), "x86-64-v3" (AVX2), "x86-64-v2" or "baseline"."""
    return native.extension().isa()


def isas() -> list[str]:
    """The instruction sets that the build has and this machine runs, best first."""
    return native.extension().isas()


def set_isa(name: str) -> None:
    """Uses another one, for tests.

    Raises:
        ValueError: it is not one of `isas()`.
    """
    native.extension().set_isa(name)

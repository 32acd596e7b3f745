"""Epsilon of releases through the Gaussian mechanism, by the accountants of Opacus (the extra `privacy`).

RDP: Mironov, "Renyi Differential Privacy" (CSF 2017), subsampled as in Mironov, Talwar, Zhang, "Renyi Differential
Privacy of the Sampled Gaussian Mechanism" (2019). PRV: Gopi, Lee, Wutschitz, "Numerical Composition of Differential
Privacy" (NeurIPS 2021).
"""

import math
from collections.abc import Iterable
from dataclasses import astuple, dataclass
from functools import lru_cache
from typing import Literal

from ddlsim.foundation.errors import DataMissing

Accountant = Literal["rdp", "prv"]


@dataclass(frozen=True)
class Releases:
    """Releases of one kind.

    Args:
        noise: standard deviation of the noise over the sensitivity of the released value; 0: no noise.
        sample_rate: chance that a sample is used (Poisson sampling); 1: all samples are.
        count: number of releases.
    """

    noise: float
    sample_rate: float
    count: int


def need_opacus() -> None:
    """Raise DataMissing if Opacus is not installed; looked up without importing it, which takes seconds."""
    from importlib.util import find_spec

    if find_spec("opacus") is None:
        raise DataMissing("privacy: epsilon needs opacus, which is not installed: pip install 'ddlsim[privacy]'.")


def epsilon(releases: Iterable[Releases], delta: float, accountant: Accountant = "rdp") -> float:
    """Epsilon of releases one after the other, each of which may have seen the ones before.

    Args:
        releases: of one node's data.
        delta: of (epsilon, delta).
        accountant: rdp: an upper bound, quick; prv: numerical, tighter.
    Returns:
        0 without releases; infinity where one of them has no noise.
    Raises:
        DataMissing: if Opacus is not installed.
    """
    known = tuple(one for one in releases if one.count)
    if not known:
        return 0.0
    if any(one.noise <= 0 for one in known):
        return math.inf
    return _of_opacus(known, delta, accountant)


@lru_cache(maxsize=4096)
def _of_opacus(releases: tuple[Releases, ...], delta: float, accountant: Accountant) -> float:
    """Nodes that have done as much have the same epsilon."""
    need_opacus()
    import warnings

    from opacus.accountants import PRVAccountant, RDPAccountant

    calculator = PRVAccountant() if accountant == "prv" else RDPAccountant()
    calculator.history = [astuple(one) for one in releases]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # on orders at the end of its range: the bound holds all the same
        return float(calculator.get_epsilon(delta=delta))

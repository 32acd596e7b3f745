"""Whether a table's cells lie apart from the published ones by one distance that all have in common.

A cell's difference says little by itself where few seeds were published and fewer run. What all cells show alike (other
images, another version of a library) shows in their weighted mean, and whether nothing else does in how they scatter
about it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from ddlsim.reproduce.result import Result


@dataclass(frozen=True)
class CommonDistance:
    """The weighted mean of the differences between ours and the published means.

    Args:
        cells: how many were compared.
        mean: of the differences; each weighs as much as it is certain.
        error: its standard error.
        seed_std: the sample deviation of one seed, that of all published cells together.
        chi_squared: of the differences about that mean, with cells - 1 degrees of freedom.
    """

    cells: int
    mean: float
    error: float
    seed_std: float
    chi_squared: float

    def text(self, digits: int) -> str:
        """One sentence, for under a table."""
        return (
            f"the {self.cells} cells with a published deviation lie {self.mean:+.{digits}f} ± {self.error:.{digits}f} "
            f"from the published means together (a seed deviates by {self.seed_std:.{digits}f}, those published taken "
            f"together), and scatter about it by chi squared {self.chi_squared:.1f} with {self.cells - 1} degrees of "
            "freedom"
        )


def common_distance(found: Sequence["Result"]) -> CommonDistance | None:
    """Of the cells that have been run and have a published mean and deviation; None: there are fewer than two.

    The deviations published are taken for population deviations of as many seeds as the matrix has for the cell, and
    one deviation of seeds for that of all cells, since few seeds say little of it.

    Args:
        found: results of cells whose deviations are over seeds.
    """
    judged = [one for one in found if one.deviations is not None and len(one.cell.seeds) > 1]
    if len(judged) < 2:
        return None
    ours = np.array([len(one.seeds) for one in judged])
    theirs = np.array([len(one.cell.seeds) for one in judged])
    stds = np.array([_std(one) for one in judged])
    differences = np.array([one.difference for one in judged], float)
    variance = (theirs * stds**2).sum() / (theirs - 1).sum()
    weights = 1 / (variance * (1 / ours + 1 / theirs))
    mean = np.average(differences, weights=weights)
    chi_squared = (weights * (differences - mean) ** 2).sum()
    error = weights.sum() ** -0.5
    return CommonDistance(len(judged), float(mean), float(error), float(variance**0.5), float(chi_squared))


def _std(one: "Result") -> float:
    assert one.cell.published is not None and one.cell.published.std
    return one.cell.published.std

"""The keys of a matrix file, and of its cells; matrix.py shows one and makes scenarios of it."""

from typing import Annotated, Any, Literal

from annotated_types import Ge, MinLen
from pydantic import AfterValidator, BaseModel, ConfigDict

from ddlsim.reproduce.shapes import Shape


def _once(seeds: tuple[int, ...]) -> tuple[int, ...]:
    if len(set(seeds)) < len(seeds):
        raise ValueError("expected every seed once")
    return seeds


Seeds = Annotated[tuple[Annotated[int, Ge(0)], ...], MinLen(1), AfterValidator(_once)]
Overlay = dict[str, Any]
"""Part of a scenario."""


class _Section(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class PublishedMeasure(_Section):
    """A published value with its deviation.

    Args:
        mean: over the seeds.
        std: of that mean; null: not published.
    """

    mean: float
    std: Annotated[float, Ge(0)] | None = None


class Published(_Section):
    """What a paper reports of one cell; accuracies in percent. Each of them may be missing.

    Args:
        mean: over the seeds.
        std: of that mean, see `spread`; null: not published.
        clusters: the mean of each cluster; null: of this one it is not published.
        clusters_std: their deviations.
        measures: measure -> its value, or its {mean, std}.
    """

    mean: float | None = None
    std: Annotated[float, Ge(0)] | None = None
    clusters: tuple[float | None, ...] | None = None
    clusters_std: tuple[Annotated[float, Ge(0)] | None, ...] | None = None
    measures: dict[str, float | PublishedMeasure] = {}

    def measure(self, name: str) -> PublishedMeasure | None:
        """The published value of a measure, if there is one."""
        found = self.measures.get(name)
        return PublishedMeasure(mean=found) if isinstance(found, int | float) else found


class CellFile(_Section):
    """One cell as it stands in the file.

    Args:
        scenario: its own settings.
        seeds: instead of those of the matrix.
        published: the number to meet; null: none is known.
        note: a remark, shown under the table.
        outside: why ours lies outside two published deviations, where that is known.
    """

    scenario: Overlay = {}
    seeds: Seeds | None = None
    published: Published | None = None
    note: str = ""
    outside: str = ""


class MatrixFile(_Section):
    """The file.

    Args:
        description: one line for people.
        source: where the published numbers stand.
        note: what a reader must know, shown under the table.
        not_run: why cells have not been run, shown in the overview of all tables while there are such.
        seeds: of every cell.
        average: what a mean is taken over first: all nodes, or the clusters, each weighing the same.
        spread: what the standard deviation is over: seeds, or the clusters or nodes of one run (mean over seeds).
        scenario: what all cells have in common.
        axes: axis -> value -> its settings.
        cells: name -> cell.
        measures: columns beside the accuracy, see measures.py.
        shapes: what figures show, see shapes.py.
        common_distance: whether the table tells how far all cells lie from the published ones, see distance.py.
    """

    description: str = ""
    source: str
    note: str = ""
    not_run: str = ""
    seeds: Seeds
    average: Literal["nodes", "clusters"] = "nodes"
    spread: Literal["seeds", "clusters", "nodes"] = "seeds"
    scenario: Overlay
    axes: dict[str, dict[str, Overlay]] = {}
    cells: dict[str, Overlay]
    measures: tuple[str, ...] = ()
    shapes: tuple[Shape, ...] = ()
    common_distance: bool = False

"""The Log port: what nodes write into the run's records."""

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ddlsim.evaluation.measurements import Measurements
    from ddlsim.evaluation.monitor import Records
    from ddlsim.learning.job_types import Model
    from ddlsim.learning.optimizing.state import Kept


class NodeLog:
    """Rows of nodes that learn.

    Args:
        records: where rows go.
        measurements: what measures models.
        measured: names of the rows of the run's metrics.
    """

    __slots__ = ("_measurements", "measured", "row")

    def __init__(self, records: "Records", measurements: "Measurements", measured: Collection[str]):
        self.row = records.row
        self.measured = measured
        self._measurements = measurements

    def measure(self, time_s: float, node: int, completed: int, name: str, model: "Model", kept: "Kept | None") -> None:
        """Rows of a model's accuracy and loss, once they are known."""
        self._measurements.take(time_s, node, completed, name, model, kept)


class SilentLog:
    """Of a network-only run: values that stand in for learning steered what nodes would write, so it is left out."""

    measured: Collection[str] = ()

    def row(self, time_s: float, node: int, completed: int, name: str, value: Any) -> None:
        """Nothing."""

    def measure(self, time_s: float, node: int, completed: int, name: str, model: "Model", kept: "Kept | None") -> None:
        """Nothing."""

"""Records of a run in other tools: TensorBoard, Weights & Biases, MLflow, Trackio; CSV and Parquet files.

Everything is local unless the tool's own variables say otherwise (WANDB_MODE, MLFLOW_TRACKING_URI, TRACKIO_SPACE_ID). A
new one needs a file with a class that implements base.py's Tracker, and a line in TRACKERS.
"""

import importlib
from collections.abc import Callable
from typing import Any

from ddlsim.foundation.errors import DataMissing, ScenarioError
from ddlsim.report.trackers.base import Tracker

TRACKERS = {
    "tensorboard": ("tensorboard", ".tensorboard:TensorBoard"),
    "wandb": ("wandb", ".wandb:WeightsAndBiases"),
    "mlflow": ("mlflow", ".mlflow:MLflow"),
    "trackio": ("trackio", ".trackio:Trackio"),
}
"""Name -> the package that it needs, which is the name of ddlsim's extra as well, and its class."""
FILES = ("csv", "parquet")
"""Files to which runs can be exported, in addition to trackers."""


def make_tracker(name: str) -> Tracker:
    """Return a tracker that has not started.

    Raises:
        ScenarioError: if the name is unknown. DataMissing: if its package is not installed.
    """
    if name not in TRACKERS:
        raise ScenarioError(f"tracker {name!r}: expected {', '.join(TRACKERS)}.")
    package, place = TRACKERS[name]
    module, _, cls = place.partition(":")
    try:
        importlib.import_module(package)
    except ImportError as error:
        raise DataMissing(
            f"tracker {name}: the package {package} is not installed: pip install 'ddlsim[{name}]'."
        ) from error
    made: Callable[[], Any] = getattr(importlib.import_module(module, __name__), cls)
    return made()


def parse(text: str) -> tuple[str, str | None]:
    """Split "wandb:my-project" into name and project; the project is optional.

    Raises:
        ScenarioError: if the name is unknown.
    """
    name, _, project = text.partition(":")
    if name not in TRACKERS:
        raise ScenarioError(f"--track {text}: expected one of {', '.join(TRACKERS)}, perhaps with :PROJECT behind it.")
    return name, project or None

"""Records of a run in other tools: TensorBoard, Weights & Biases, MLflow, Trackio; CSV and Parquet files.

Everything is local unless the tool's own variables say otherwise (WANDB_MODE, MLFLOW_TRACKING_URI, TRACKIO_SPACE_ID).
To add one: a file with a class that keeps base.py's Tracker, and a line in TRACKERS.
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
"""What runs can be exported to beside."""


def make_tracker(name: str) -> Tracker:
    """A tracker that has not begun.

    Raises:
        ScenarioError: if there is none of the name. DataMissing: if its package is not installed.
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
    """ "wandb:my-project" -> name and project; the project may be left out.

    Raises:
        ScenarioError: if there is no tracker of the name.
    """
    name, _, project = text.partition(":")
    if name not in TRACKERS:
        raise ScenarioError(f"--track {text}: expected one of {', '.join(TRACKERS)}, perhaps with :PROJECT behind it.")
    return name, project or None

"""Preparation of new samples for the models of a run, and evaluation of models on them."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ddlsim.data.arrays import read_split
from ddlsim.data.from_arrays import as_array, is_tensor
from ddlsim.data.pixels import normalize
from ddlsim.data.table import MISSING, NO_NUMBER
from ddlsim.foundation.errors import DataDamaged, ScenarioError
from ddlsim.runs.manifest import read_manifest
from ddlsim.scenario import Scenario
from ddlsim.tasks import label_of

if TYPE_CHECKING:
    import torch
    from torch import nn


_TOLERANCE = 1e-3
"""Values of images may be outside 0..1 by this much, after resizing."""


def inputs_of(directory: Path) -> dict[str, Any]:
    """Return the description of samples in the manifest of a run, see data/dataset.py: Dataset.inputs.

    Raises:
        ScenarioError: if there is none.
    """
    found: dict[str, Any] | None = (read_manifest(directory).get("data") or {}).get("inputs")
    if found is None:
        raise ScenarioError(f"{directory}: its manifest does not say how samples are prepared. Run it again.")
    return found


def metadata(inputs: Mapping[str, Any]) -> dict[str, str]:
    """Convert the description of samples for the metadata of a safetensors file: texts, JSON for other values."""
    return {key: value if isinstance(value, str) else json.dumps(value) for key, value in inputs.items()}


def sentence(inputs: Mapping[str, Any]) -> str:
    """Return the description of samples in words."""
    classes = inputs["classes"]
    count = f"{classes} classes" if isinstance(classes, int) else f"classes {', '.join(map(str, classes[:20]))}"
    how = "unchanged"
    if "mean" in inputs:
        x = f"x / {inputs['divided_by']}" if inputs["divided_by"] != 1 else "x"
        how = f"({x} - mean) / std with mean {inputs['mean']}, std {inputs['std']}"
    if "features" in inputs:
        how = f"columns of a table, {', '.join(dict.fromkeys(each['column'] for each in inputs['features']))}"
    return f"inputs {inputs['layout']} of {inputs['shape']}, {inputs['dtype']}: {how}; {count}"


def preprocess(inputs: Mapping[str, Any], samples: Any) -> "torch.Tensor":
    """Prepare samples for the models of a run.

    Args:
        inputs: see `inputs_of`.
        samples: one or several, as `ddlsim.data.Arrays` takes them: images uint8 or floats of 0..1, [H, W] or [H, W, C]
            of arrays and pictures, [C, H, W] of tensors; rows of features; the columns of a table by name.
    Raises:
        DataDamaged: if they have another shape or type.
    """
    import torch

    where = "preprocess"
    if _has_columns(inputs, samples):
        return torch.from_numpy(_features(inputs["features"], samples))
    x = as_array(where, "samples", samples)
    if "mean" not in inputs:
        return torch.as_tensor(np.ascontiguousarray(x, inputs["dtype"]))
    if isinstance(inputs["mean"][0], list):
        raise ScenarioError("preprocess: domains have different means and std. Prepare the samples yourself.")
    stored = "uint8" if inputs["divided_by"] == 255 else "float32"
    floats = np.issubdtype(x.dtype, np.floating)
    if not floats and (stored != "uint8" or x.dtype != np.uint8):
        raise DataDamaged(f"{where}: expected samples of type {stored}, got {x.dtype}.")
    if stored == "uint8" and floats and x.size and (x.min() < -_TOLERANCE or x.max() > 1 + _TOLERANCE):
        raise DataDamaged(f"{where}: expected uint8 images or floats of 0 to 1, got {x.min():g} to {x.max():g}.")
    channels, height, width = inputs["shape"]
    own = (channels, height, width) if is_tensor(samples) else (height, width, channels)
    kinds = [own, *([(height, width)] if channels == 1 else []), *([(width,)] if channels * height == 1 else [])]
    kind = next((each for each in kinds if x.shape[-len(each) :] == each and x.ndim <= len(each) + 1), None)
    if kind is None:
        expected = " or ".join(str([*each]) for each in kinds)
        raise DataDamaged(f"{where}: expected samples of shape {expected}, or several [N, ...], got {list(x.shape)}.")
    images = x.reshape(-1, *own)
    images = np.moveaxis(images, 1, 3) if is_tensor(samples) else images
    images = images.astype(np.float32) if floats else images
    mean, std = (np.asarray(inputs[key], np.float32) for key in ("mean", "std"))
    found = torch.from_numpy(normalize(images, mean, std))
    return found if x.ndim > len(kind) else found[0]


def evaluate(inputs: Mapping[str, Any], scenario: Scenario, model: "nn.Module", dataset: Any) -> dict[str, float]:
    """Return the metrics of a run for a model, on other samples.

    Args:
        inputs: see `inputs_of`.
        scenario: of the run.
        model: of one of its nodes.
        dataset: samples and labels (x, y), or a torch Dataset, as `ddlsim.data.Arrays` takes a split.
    Raises:
        DataDamaged: if samples or labels do not fit.
    """
    import torch

    from ddlsim.learning.losses import MetricSum
    from ddlsim.models.whole import logits_of

    task = scenario.learned
    layout = "signals" if len(inputs["shape"]) == 2 and inputs["dtype"] == "float32" else None
    kind = "classification" if task.has_classes else "regression" if task.label_dtype == "float32" else label_of(task)
    if isinstance(dataset, tuple) and len(dataset) == 2 and _has_columns(inputs, dataset[0]):
        dataset = preprocess(inputs, dataset[0]).numpy()[:, 0, :, 0], dataset[1]
    x, y = read_split("dataset", dataset, kind, layout)
    names = [] if isinstance(inputs["classes"], int) else sorted(map(str, inputs["classes"]))
    classes = len(names) or inputs["classes"]
    if y.dtype.kind == "U":
        if unknown := sorted({*y.tolist()} - {*names}):
            raise DataDamaged(
                f"evaluate: expected labels {', '.join(names) or 'that are numbers'}, got {unknown[0]!r}."
            )
        y = np.searchsorted(names, y)
    if wrong := task.wrong_labels(y, classes):
        raise DataDamaged(f"evaluate: labels {wrong}.")
    tally = MetricSum(task, 1, torch.device("cpu"))
    with torch.no_grad():
        for start in range(0, len(y), scenario.evaluation.batch_size):
            part = slice(start, start + scenario.evaluation.batch_size)
            labels = torch.as_tensor(y[part])
            outputs = logits_of(model(preprocess(inputs, x[part])))
            tally.add(outputs[None], labels[None], task.loss(outputs, labels, reduction="sum")[None])
    (tested,) = tally.results()
    names = [metric.name for metric in task.metrics]
    return {**dict(zip(names, tested.values, strict=True)), "test_loss": tested.loss}


def _has_columns(inputs: Mapping[str, Any], samples: Any) -> bool:
    """Whether samples are columns of a table, by name."""
    return "features" in inputs and (hasattr(samples, "columns") or isinstance(samples, Mapping))


def _features(features: list[dict[str, Any]], columns: Any) -> np.ndarray:
    """Return rows of a table as float32 [N, 1, F, 1]."""
    found = []
    for each in features:
        if each["column"] not in columns:
            raise DataDamaged(f"preprocess: expected a column {each['column']}.")
        cells = ["" if value is None or value != value else str(value).strip() for value in columns[each["column"]]]
        if "is" in each:
            found.append([float(cell == each["is"]) for cell in cells])
        else:
            numbers = np.array([np.nan if cell in MISSING or cell in NO_NUMBER else float(cell) for cell in cells])
            found.append(np.nan_to_num((numbers - each["mean"]) / each["std"]).tolist())
    return np.array(found, np.float32).T[:, None, :, None]

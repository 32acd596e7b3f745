"""Data frames of pandas and data sets of Hugging Face's `datasets` as data sets of the parts `table` and `hf`."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from ddlsim.data.arrays import Arrays
from ddlsim.data.hugging_face import HuggingFace
from ddlsim.data.table import MISSING, Columns, Table
from ddlsim.foundation.errors import ScenarioError


def arrays_of(splits: Mapping[str, Any], keys: Mapping[str, Any]) -> Arrays | None:
    """Return the data set of data frames, or of data sets of Hugging Face; None for other objects.

    Args:
        splits: train, and optionally test and validation.
        keys: keys of `table` or `hf`; default: label "label", and as inputs of `hf` all columns except the label and
            `columns`.
    Raises:
        ScenarioError, DataDamaged: see Table.dataset and HuggingFace.dataset; also if there is no column of labels.
        TypeError: a key is unknown.
    """
    train, keys = splits["train"], {"label": "label", **keys}
    is_frame = hasattr(train, "iloc") and hasattr(train, "columns")
    if not is_frame and not (
        hasattr(train, "column_names") and hasattr(train, "features") and hasattr(train, "__len__")
    ):
        return None
    names = list(map(str, train.columns)) if is_frame else list(train.column_names)
    if keys["label"] not in names:
        example = f'such as data={{"train": ..., "label": {names[-1]!r}}}' if names else "and rows"
        text = f"expected a column {keys['label']!r} of labels, got {', '.join(names)}"
        raise ScenarioError(f"data: {text}. Name it, {example}.")
    if is_frame:
        return _of_frames(splits, keys)
    shared = {key: keys[key] for key in ("task", "num_classes", "mean", "std") if key in keys}
    listed = {
        key: (keys[key],) if isinstance(keys[key], str) else tuple(keys[key]) for key in ("columns",) if key in keys
    }
    inputs = keys.get("inputs") or [name for name in names if name not in (keys["label"], *listed.get("columns", ()))]
    listed["inputs"] = (inputs,) if isinstance(inputs, str) else tuple(inputs)
    found = HuggingFace(**{"path": "the data set", **keys, **listed}).dataset(splits)
    return Arrays(train=found, **shared)


def _of_frames(splits: Mapping[str, Any], keys: Mapping[str, Any]) -> Arrays:
    """Return the data set of data frames with equal columns."""
    if "validation" in splits:
        raise ScenarioError("data: a table has no validation set. Set validation.source to train, test or node.")
    cells = [_cells(frame) for frame in splits.values()]
    if any(each.keys() != cells[0].keys() for each in cells):
        raise ScenarioError(
            f"data: expected a test frame with the columns {', '.join(cells[0])}, got {', '.join(cells[1])}."
        )
    test = np.concatenate([np.full(len(frame), split == "test") for split, frame in splits.items()])
    rows = {name: [cell for each in cells for cell in each[name]] for name in cells[0]}
    table = Table(**{"path": "", **keys})
    return Arrays(
        train=table.dataset("arrays", "the data frame", rows, test if "test" in splits else None), task=table.task
    )


def _cells(frame: Any) -> Columns:
    """Return the columns of a data frame as texts, as in a CSV file."""
    if not frame.columns.is_unique:
        raise ScenarioError("data: expected a data frame whose columns have different names. Rename them.")
    found = {}
    for name in frame.columns:
        texts = (str(value).strip() for value in frame[name])
        empty = frame[name].isna()
        found[str(name)] = ["" if none or text in MISSING else text for text, none in zip(texts, empty, strict=True)]
    return found

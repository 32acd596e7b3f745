"""Data sets of Hugging Face's `datasets`: of the hub, of local csv, json, parquet and arrow files, or saved to disk.

From Python: its objects, and data frames of pandas, as data sets of the parts `hf` and `table`.
"""

import dataclasses
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from annotated_types import Ge, Gt, Le, Lt, MinLen

from ddlsim.data.arrays import Arrays
from ddlsim.data.dataset import Dataset, DataSettings, Pair, Task, split_off
from ddlsim.data.from_arrays import as_array, as_labels, as_samples, dataset_from_arrays
from ddlsim.data.pixels import gray_or_rgb, squared
from ddlsim.data.search import DataSearch
from ddlsim.data.table import MISSING, Columns, Table, as_cells, numbers_in_columns, refuse_odd_cells
from ddlsim.data.texts import encoder, windows
from ddlsim.foundation.environment import needed
from ddlsim.foundation.errors import DataDamaged, DataMissing, ScenarioError
from ddlsim.foundation.units import Count

BUILDERS = {".csv": "csv", ".tsv": "csv", ".json": "json", ".jsonl": "json", ".parquet": "parquet", ".arrow": "arrow"}
"""Suffix of a file -> what reads it."""
CURE = "data: {name: table, ...} reads words and missing cells of a CSV file."
TEST_CURE = "Name a split, or set data.test: null, which takes data.test_fraction of the training split."


@dataclass(frozen=True, kw_only=True)
class HuggingFace(DataSettings):
    """A data set of Hugging Face `datasets`: of the hub by its name, or local files (csv, json, parquet, arrow).

    Needs the extra `hf`. Inputs are one column of images, of lists of numbers (features, token ids) or of numbers, or
    several columns of numbers, which become a table [N, F]. Strings as labels become classes in alphabetical order.
    With `length` they are a column of texts, for next-token prediction.

    Args:
        path: a name of the hub (user/name); or a file, a folder with train.csv and test.csv or the like, or one made by
            save_to_disk, relative to the working directory or to one of the data folders.
        inputs: name of the column of inputs, or of several.
        label: name of the column of labels.
        config: the hub's name of a part of the data set.
        revision: commit or tag of the hub, so that the data stays the same.
        train: the training split, such as train or train[:80%].
        test: the test split; null: test_fraction of the training split, the same for every seed.
        validation: a validation split, for validation.source own; null for none.
        test_fraction: part of the training split that is the test set, if test is null.
        length: tokens per sample, cut from all texts in a row; label is then the same column as inputs, and task
            next_token. null: inputs are no texts.
        tokenizer: of `tokenizers`: a name of the hub, or a file tokenizer.json; null: bytes. A further id ends a text.
        columns: further columns to keep, by which `by_column` can deal samples.
        task: classification: labels are classes; regression: numbers; see `ddlsim list tasks`.
        num_classes: number of labels; null: the highest label + 1.
        size: height and width of images, after resizing the short side and cutting the middle out; null if all images
            have one size.
        mean: per channel or one for all, on the scale 0..1 of images; null: 0.5 for images, 0 for numbers.
        std: likewise; null: 0.5 for images, 1 for numbers.
    """

    path: str
    inputs: Annotated[tuple[str, ...], MinLen(1)]
    label: str
    config: str | None = None
    revision: str | None = None
    train: str = "train"
    test: str | None = "test"
    validation: str | None = None
    test_fraction: Annotated[float, Gt(0), Lt(1)] = 0.2
    length: Count | None = None
    tokenizer: str | None = None
    columns: tuple[str, ...] = ()
    task: Task = "classification"
    num_classes: Count | None = None
    size: Annotated[int, Ge(1), Le(10_000)] | None = None
    mean: tuple[float, ...] | None = None
    std: tuple[Annotated[float, Gt(0)], ...] | None = None

    def __post_init__(self) -> None:
        if self.train == self.test:
            raise ScenarioError(f"test: {self.test} is the training split. Name another one, or null.")
        if self.length and (self.inputs != (self.label,) or self.task != "next_token" or self.columns):
            text = "expected one column of texts. Set label to the column of inputs, task to next_token, and no columns"
            raise ScenarioError(f"length: {text}.")

    def unused_keys(self, rounds: int) -> Iterator[tuple[str, str]]:
        if self.length is None:
            yield "tokenizer", "length is null"

    @property
    def own_validation(self) -> bool:
        """Whether a validation split is named."""
        return self.validation is not None

    def load(self, search: DataSearch) -> Dataset:
        """Return the data set.

        Raises:
            DataMissing: if `datasets` is not installed, or the data is neither on this machine nor on the hub.
            DataDamaged: if a column is missing or of another kind. ScenarioError: if a split does not exist.
        """
        named = {"train": self.train, "test": self.test, "validation": self.validation}
        read = {split: self._split(name, search) for split, name in named.items() if name is not None}
        return self.dataset(read, search.download)

    def dataset(self, read: Mapping[str, Any], download: bool = True) -> Dataset:
        """Return the data set of splits, each a datasets.Dataset; a tokenizer may be downloaded.

        Raises:
            DataDamaged: if a column is missing or of another kind.
        """
        for split, rows in read.items():
            self._check_columns(split, rows)
        if self.length is not None:
            return self._texts(read, self.length, download)
        x = {split: self._inputs(split, rows) for split, rows in read.items()}
        y = self._labels(read)
        columns = {name: {split: np.asarray(rows[name][:]) for split, rows in read.items()} for name in self.columns}
        if "test" not in read:
            train, test = split_off(self.path, y["train"], self.test_fraction)
            for by_split in (x, y, *columns.values()):
                by_split["test"], by_split["train"] = by_split["train"][test], by_split["train"][train]
        splits = {split: (x[split], y[split]) for split in x}
        further = self.task, self.num_classes, self.mean, self.std, columns or None
        found = dataset_from_arrays(self.path, f"hf:{self.path}", splits, *further)
        return dataclasses.replace(found, class_names=self._names(read) if self.num_classes is None else ())

    def _texts(self, read: Mapping[str, Any], length: int, download: bool) -> Dataset:
        """Return windows of the texts of each split, with their next tokens."""
        encode, end = encoder(self.tokenizer, download)
        splits: dict[str, Pair] = {}
        for split, rows in read.items():
            texts = rows[self.label][:]
            if not all(isinstance(text, str) for text in texts):
                raise DataDamaged(
                    f"data.inputs: {self.label} ({split}): expected texts in {self.path}. Set data.length to null."
                )
            ids = np.concatenate([np.array([*encode(text), end], np.int64) for text in texts])
            splits[split] = windows(ids, length, length, each=True)
        if "test" not in splits:
            x, y = splits["train"]
            cut = len(x) - round(self.test_fraction * len(x))
            splits |= {"train": (x[:cut], y[:cut]), "test": (x[cut:], y[cut:])}
        for split, (x, _) in splits.items():
            if not len(x):
                text = f"expected at most the tokens of the {split} split less 1, got {length}"
                raise ScenarioError(f"data.length: {text}. Lower it, or change the splits.")
        return Dataset.of_splits(self.path, f"hf:{self.path}", splits, end + 1, task=self.task, num_tokens=end + 1)

    def _split(self, name: str, search: DataSearch) -> Any:
        """One split, a datasets.Dataset."""
        datasets = needed("datasets", "hf", "data: hf")
        here = Path(self.path).expanduser()
        place = here.absolute() if here.exists() else next(search.candidates([self.path]), None)
        try:
            if place is None:
                return self._of_hub(datasets, name, search)
            if place.is_dir() and ((place / "dataset_dict.json").is_file() or (place / "state.json").is_file()):
                return _load_saved(datasets, place, name)
            if place.is_dir():
                return datasets.load_dataset(str(place), split=name)
            keys = {"sep": "\t"} if place.suffix == ".tsv" else {}
            if place.suffix not in BUILDERS:
                raise ScenarioError(f"data.path: {place}: expected a file that ends in {', '.join(BUILDERS)}.")
            return datasets.load_dataset(BUILDERS[place.suffix], data_files=str(place), split=name, **keys)
        except (DataMissing, DataDamaged, ScenarioError):
            raise
        except Exception as error:
            text = " ".join(str(error).split())
            if isinstance(error, ValueError) and ("split" in text.lower() or "instruction" in text.lower()):
                raise ScenarioError(f"data: {self.path} has no split {name}: {text:.200} {TEST_CURE}") from error
            raise DataDamaged(f"{self.path} cannot be read: {type(error).__name__}: {text:.300}") from error

    def _of_hub(self, datasets: Any, name: str, search: DataSearch) -> Any:
        wanted = f"a folder or file {self.path}; or, on a machine that reaches the hub, the name of a data set there"
        if Path(self.path).suffix in BUILDERS or self.path.startswith((".", "/", "~")):
            raise search.missing("hf", [self.path], f"data.path names {wanted}.")
        offline = None if search.download else os.environ.get("HF_HUB_OFFLINE", "1")
        config = datasets.DownloadConfig(local_files_only=bool(offline))
        try:
            keys = {"split": name, "revision": self.revision, "download_config": config}
            return datasets.load_dataset(self.path, self.config, **keys)
        except (OSError, ConnectionError) as error:
            why = " ".join(str(error).split())[:300] if search.download else "downloading is switched off"
            raise search.missing("hf", [self.path], f"data.path names {wanted}.", why) from error

    def _check_columns(self, split: str, rows: Any) -> None:
        for key, names in (("inputs", self.inputs), ("label", (self.label,)), ("columns", self.columns)):
            unknown = [name for name in names if name not in rows.column_names]
            if unknown:
                known = f"it has {', '.join(rows.column_names)}"
                raise DataDamaged(f"data.{key}: {self.path} has no column {unknown[0]} in its {split} split; {known}.")
        if len(rows) == 0:
            raise DataDamaged(f"{self.path}: split {split} has no rows.")

    def _inputs(self, split: str, rows: Any) -> np.ndarray:
        where, key = self.path, f"data.inputs: {', '.join(self.inputs)} ({split})"
        if len(self.inputs) > 1:
            columns = {name: rows[name][:] for name in self.inputs}
            if any(isinstance(values[0], list) or hasattr(values[0], "convert") for values in columns.values()):
                raise DataDamaged(f"{where}: {key}: expected one column, or several of one number each.")
            table = self._numbers(split, columns)
            return as_samples(where, key, np.stack(table, axis=1).astype(np.float32))
        values = rows[self.inputs[0]][:]
        if values[0] is None or isinstance(values[0], int | float):
            values = self._numbers(split, {self.inputs[0]: values})[0]
        elif isinstance(values[0], str):
            refuse_odd_cells(f"{where} ({split})", self.inputs[0], as_cells(values), CURE)
            cure = "Set data.length and task next_token for next-token prediction"
            raise DataDamaged(f"{where}: {key}: expected images or numbers, got text. {cure}.")
        if hasattr(values[0], "convert"):  # a picture
            values = [self._picture(picture) for picture in values]
        found = as_array(where, key, values)
        if found.ndim == 1:
            found = found[:, None].astype(np.float32)
        return as_samples(where, key, found)

    def _numbers(self, split: str, columns: Mapping[str, Any]) -> list[np.ndarray]:
        plain = {name: [float(v) if isinstance(v, bool) else v for v in values] for name, values in columns.items()}
        return numbers_in_columns(f"{self.path} ({split})", plain, CURE)

    def _picture(self, picture: Any) -> np.ndarray:
        plain = gray_or_rgb(picture, self.path)
        return squared(plain, self.size) if self.size else np.asarray(plain)

    def _labels(self, read: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """Per split its labels; strings are numbered in alphabetical order over all splits."""
        key = f"data.label: {self.label}"
        for split, rows in read.items():
            cells, where = as_cells(rows[self.label][:]), f"{self.path} ({split})"
            if "" in cells:
                place = f"{where}: column {self.label}, row {cells.index('') + 1}"
                raise DataDamaged(f"{place}: expected a label, got nothing. Take the row out.")
            if isinstance(rows[self.label][0], str):
                refuse_odd_cells(where, self.label, cells, "Name all classes by words, or by numbers.")
        values = {split: as_array(self.path, key, rows[self.label][:]) for split, rows in read.items()}
        if names := self._names(read):
            values = {split: np.searchsorted(np.array(names), own) for split, own in values.items()}
        return {split: as_labels(self.path, f"{key} ({split})", own, self.task) for split, own in values.items()}

    def _names(self, read: Mapping[str, Any]) -> tuple[str, ...]:
        """The names of the classes, in alphabetical order over all splits; none where labels are numbers."""
        if self.task == "regression" or not isinstance(read["train"][self.label][0], str):
            return ()
        return tuple(sorted({label for rows in read.values() for label in rows[self.label][:]}))


def _load_saved(datasets: Any, place: Path, name: str) -> Any:
    found = datasets.load_from_disk(str(place))
    splits = found if isinstance(found, Mapping) else {"train": found}
    if name not in splits:
        raise ScenarioError(f"data: {place} has no split {name}; it has {', '.join(splits)}. {TEST_CURE}")
    return splits[name]


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
    if not is_frame and not all(hasattr(train, name) for name in ("column_names", "features", "__len__")):
        return None
    names = list(map(str, train.columns)) if is_frame else list(train.column_names)
    if keys["label"] not in names:
        example = f'such as data={{"train": ..., "label": {names[-1]!r}}}' if names else "and rows"
        text = f"expected a column {keys['label']!r} of labels, got {', '.join(names)}"
        raise ScenarioError(f"data: {text}. Name it, {example}.")
    if is_frame:
        return _of_frames(splits, keys)
    shared = {key: keys[key] for key in ("task", "num_classes", "mean", "std") if key in keys}
    columns = _as_names(keys.get("columns", ()))
    inputs = _as_names(keys.get("inputs")) or tuple(name for name in names if name not in (keys["label"], *columns))
    found = HuggingFace(**{"path": "the data set", **keys, "columns": columns, "inputs": inputs}).dataset(splits)
    return Arrays(train=found, **shared)


def _as_names(names: str | Sequence[str] | None) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names or ())


def _of_frames(splits: Mapping[str, Any], keys: Mapping[str, Any]) -> Arrays:
    """Return the data set of data frames with equal columns."""
    if "validation" in splits:
        raise ScenarioError("data: a table has no validation set. Set validation.source to train, test or node.")
    cells = [_cells(frame) for frame in splits.values()]
    if any(each.keys() != cells[0].keys() for each in cells):
        raise ScenarioError(f"data: expected a test frame of columns {', '.join(cells[0])}, got {', '.join(cells[1])}.")
    test = np.concatenate([np.full(len(frame), split == "test") for split, frame in splits.items()])
    rows = {name: [cell for each in cells for cell in each[name]] for name in cells[0]}
    table = Table(**{"path": "", **keys})
    found = table.dataset("arrays", "the data frame", rows, test if "test" in splits else None)
    return Arrays(train=found, task=table.task)


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

"""Tables of numbers and words: a user's CSV file, and the heart disease data of four hospitals.

Source of the data inside the package: Janosi et al., "Heart Disease", UCI Machine Learning Repository, 1988 (CC BY 4.0,
notice in embedded/LICENSE.heart-disease), dealt by hospital as in du Terrail et al., "FLamby", NeurIPS 2022; unlike
there all rows are kept, and missing values are filled in.

Numbers are normalized by mean and standard deviation of the training rows; a missing one becomes the mean. Words become
one feature per value of the training rows (1 for this value), all 0 if missing. A column of numbers with an odd cell (a
word, or a number in another notation) is an error.

One rule decides for all data read as text whether a column holds numbers or words. A column is never read as words
because of a few odd cells, nor as numbers that it only resembles: such a cell raises an error with its column and row.
"""

import csv
import re
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from annotated_types import Gt, Lt

from ddlsim.data.dataset import Dataset, DataSettings, finite
from ddlsim.data.search import DataSearch
from ddlsim.foundation.errors import DataDamaged, ScenarioError, listing
from ddlsim.foundation.rng import stream
from ddlsim.foundation.units import CountOrZero

FEW_VALUES = 20
"""A column of numbers and words with more different values than this counts as numbers."""
RARE = 0.1
"""Largest share of cells that count as odd, and not as another kind of value."""
NUMBER_LIKE = re.compile(
    r"(?=.*\d)[$€£¥]? ?[+-]?\d{0,3}([ .,'_]?\d{3})*([.,]\d+)? ?[%$€£¥]?"
    r"|(\d{4}-\d{1,2}-\d{1,2}|\d{4}/\d{1,2}/\d{1,2}|\d{1,2}[./-]\d{1,2}[./-]\d{2,4})([ T].*)?"
    r"|\d{1,2}:\d{2}(:\d{2}(\.\d+)?)?"
)
"""Cells that are numbers in another notation (separators, percentages, amounts of money), dates or times."""


def numbers_of(cells: Sequence[str], missing: Set[str] = frozenset()) -> np.ndarray | None:
    """A column as float64, nan where empty or `missing`; None if it holds words, such as 18_25, which Python would read
    as 1825.
    """
    found = [np.nan if not cell or cell in missing else _number(cell) for cell in cells]
    if None in found or all(value != value for value in found if value is not None):
        return None
    return np.array(found, np.float64)


def refuse_odd_cells(
    where: str, name: str, cells: Sequence[str], cure: str, missing: Set[str] = frozenset(), always: bool = False
) -> str | None:
    """Check that a column is one of numbers or one of words.

    Args:
        where: the file or data set, for messages.
        name: name of the column.
        cells: as text; empty where missing.
        cure: advice for an intended column of this kind, a sentence.
        missing: further texts of empty cells.
        always: whether any cell that is not a number is odd.
    Returns:
        A note on an accepted column, or None.
    Raises:
        DataDamaged: if a cell is odd.
    """
    known = {row: cell for row, cell in enumerate(cells, 1) if cell and cell not in missing}
    odd = {row: cell for row, cell in known.items() if _number(cell) is None}
    if not odd:
        return None
    number_like = sum(NUMBER_LIKE.fullmatch(cell) is not None for cell in odd.values())
    numbers, values = len(known) - len(odd), len(set(known.values()))
    rare = len(odd) == 1 or len(odd) <= RARE * len(known) or values > FEW_VALUES
    row, first = next(iter(odd.items()))
    if always or (2 * (numbers + number_like) > len(known) and (number_like or rare)):
        raise DataDamaged(
            f"{where}: column {name}, row {row}: expected a number, as in {numbers} of {len(known)} cells, got "
            f"{first!r} ({len(odd)} such cells). Write numbers as 1234.5 and leave a missing one empty. {cure}"
        )
    if numbers:
        return f"column {name} of {where} has numbers and words ({first!r}); all are taken as words"
    if values >= 10 and 2 * values > len(known):
        return f"column {name} of {where} has {values} different words in {len(known)} rows, each a feature"
    return None


def odd_cell(array: np.ndarray, names: Any = None) -> str:
    """Return the place of the first cell of an array [N, F] or [N] of objects or texts that is not a number; empty if
    none.
    """
    for place, value in np.ndenumerate(array if array.ndim else array[None][:0]):
        if isinstance(value, str) or not isinstance(value, int | float | np.number):
            column = "" if len(place) < 2 else f", column {names[place[1]] if names is not None else place[1]}"
            return f" (row {place[0]}{column}: {str(value)!r:.60})"
    return ""


def as_cells(values: Sequence[Any]) -> list[str]:
    """Return the values of a column as cells; a missing value is empty."""
    return ["" if value is None else str(value).strip() for value in values]


def numbers_in_columns(where: str, columns: Mapping[str, Sequence[Any]], cure: str) -> list[np.ndarray]:
    """Return columns as float64, one number per row.

    Raises:
        DataDamaged: if a cell is not a number; names its place.
    """
    found = []
    for name, values in columns.items():
        cells = as_cells(values)
        refuse_odd_cells(where, name, cells, cure, always=True)
        if "" in cells:
            place = f"column {name}, row {cells.index('') + 1}"
            raise DataDamaged(f"{where}: {place}: expected a number, got nothing. {cure}")
        found.append(np.array(cells, np.float64))
    return found


def _number(cell: str) -> float | None:
    """Return a cell as a number, or None if it is not a number."""
    try:
        return None if "_" in cell else float(cell)
    except ValueError:
        return None


EMBEDDED = Path(__file__).parent / "embedded" / "heart-disease.csv"
MISSING = ("", "?", "NA", "NaN", "nan")
"""Cells that hold nothing."""
NO_NUMBER = {"NULL", "Null", "null", "NONE", "None", "none", "N/A", "n/a", "na", "<NA>", "#NA", "#N/A", "#N/A N/A"} | {
    *("NAN", "-NaN", "-nan", "1.#IND", "-1.#IND", "1.#QNAN", "-1.#QNAN")
}
"""Texts of empty cells in a feature of numbers, pandas.read_csv's and more; elsewhere they may be words."""
MOST_CLASSES = 1000

Share = Annotated[float, Gt(0), Lt(1)]


Columns = dict[str, list[str]]
"""Name -> the cells of a column, as text; empty where missing."""


@dataclass(frozen=True, kw_only=True)
class Table(DataSettings):
    """A user-supplied table: a CSV file with a line of names. Columns of words can deal the rows to clusters and nodes.

    Args:
        path: the file, relative to the working directory or to one of the data folders.
        label: column of the labels.
        task: classification: each value of the label is a class, in order; regression: they are numbers.
        domain: column whose values are domains, one for each cluster (partition domains), in their order; null: none.
        leave_out: further columns that are not features.
        categorical: columns of words, also where cells look like numbers (codes).
        test_fraction: of the rows (of each domain), above 0 and below 1.
        split_seed: of the draw of test rows, the same for all seeds of a scenario.
    """

    may_hold_images = False
    path: str
    label: str
    task: Literal["classification", "regression"] = "classification"
    domain: str | None = None
    leave_out: tuple[str, ...] = ()
    categorical: tuple[str, ...] = ()
    test_fraction: Share = 0.2
    split_seed: CountOrZero = 0

    def domains_for(self, num_clusters: int) -> int | None:
        """Return the number of clusters, which the values of the column must match."""
        return None if self.domain is None else num_clusters

    def load(self, search: DataSearch) -> Dataset:
        """Return the data set.

        Raises:
            DataMissing: if the file does not exist. DataDamaged: if it is not a table.
            ScenarioError: if it lacks a column, or a column cannot have the requested type.
        """
        path = search.find(self.path, "table", "a CSV file with a line of names.")
        return self.dataset("table", str(path), read_columns(path))

    def dataset(self, name: str, origin: str, cells: Columns, test: np.ndarray | None = None) -> Dataset:
        """Return the data set of a table that has been read, with a mask of its test rows; None: they are drawn."""
        named = {"label": [self.label], "domain": [self.domain] if self.domain else []}
        for key, columns in {**named, "leave_out": self.leave_out, "categorical": self.categorical}.items():
            unknown = [column for column in columns if column not in cells]
            if unknown:
                raise ScenarioError(f"data.{key}: {origin} has no column {unknown[0]!r}. It has {', '.join(cells)}.")
        notes = self._notes(origin, cells)
        kept = [row for row, cell in enumerate(cells[self.label]) if cell]
        cells = {column: [own[row] for row in kept] for column, own in cells.items()}
        labels, names = self._labels(origin, cells[self.label])
        domains = np.zeros(len(labels), np.int64)
        if self.domain is not None:
            numbers = numbers_of(cells[self.domain])  # 2 before 10
            values = cells[self.domain] if numbers is None or not np.isfinite(numbers).all() else numbers
            domains = np.unique(values, return_inverse=True)[1].astype(np.int64)
            counts = Counter(cells[self.domain])
            wrong = [repr(value) for value, rows in counts.items() if not value or rows == 1]
            if wrong:
                text = f"expected at least two rows of each value and no empty cell, got {listing(wrong)}"
                raise DataDamaged(f"{origin}: column {self.domain}, the domain: {text}. Take these rows out.")
        test = _test_rows(domains, self.test_fraction, self.split_seed) if test is None else test[kept]
        apart = {self.label, self.domain, *self.leave_out}
        inputs = {column: own for column, own in cells.items() if column not in apart}
        features, about = _features(origin, inputs, ~test, self.categorical)
        texts = {column: np.array(own) for column, own in cells.items() if column in apart or numbers_of(own) is None}
        splits = {"train": ~test, "test": test}
        pairs = {split: (features[rows], labels[rows]) for split, rows in splits.items()}
        further = {column: {split: own[rows] for split, rows in splits.items()} for column, own in texts.items()}
        keys: dict[str, Any] = {"task": self.task, "columns": further, "class_names": names, "features": about}
        if self.domain is not None:
            keys["domains"] = {split: domains[rows] for split, rows in splits.items()}
        return Dataset.of_splits(name, origin, pairs, len(names) or 1, notes=notes, **keys)

    def _notes(self, origin: str, cells: Columns) -> tuple[str, ...]:
        """Return notes on columns of words.

        Raises:
            DataDamaged: if a column of numbers has a cell that is not a number.
        """
        found = []
        for name in cells.keys() - {self.domain, *self.leave_out, *self.categorical}:
            others, missing = f"data.leave_out: [{name}] leaves the column out", frozenset(NO_NUMBER)
            if name == self.label:
                if self.task == "regression":
                    continue  # reported with the labels
                others, missing = "or name another label", frozenset()
            cure = f"Otherwise {others}; data.categorical: [{name}] takes it as words."
            note = refuse_odd_cells(origin, name, cells[name], cure, missing)
            if note and (name != self.label or "numbers and words" in note):
                found.append(f"{note}; {others}")
        return tuple(sorted(found))

    def _labels(self, origin: str, cells: Sequence[str]) -> tuple[np.ndarray, tuple[str, ...]]:
        """Labels, and the names of the classes (of a regression none)."""
        numbers = None if self.label in self.categorical else numbers_of(cells)
        if self.task == "regression":
            if numbers is None:
                word = next((cell for cell in cells if numbers_of([cell]) is None), cells[0])
                text = f"expected numbers in column {self.label} of {origin} for a regression, got {word!r}"
                raise ScenarioError(f"data.label: {text}. Choose another column, or task: classification.")
            return finite(origin, f"column {self.label}", numbers.astype(np.float32)), ()
        values, labels = np.unique(cells if numbers is None else numbers, return_inverse=True)
        if len(values) > MOST_CLASSES:
            text = f"expected at most {MOST_CLASSES} classes in column {self.label} of {origin}, got {len(values)}"
            raise ScenarioError(f"data.label: {text}. Choose another column, or task: regression.")
        return labels.astype(np.int64), tuple(str(each) if numbers is None else f"{each:g}" for each in values)


@dataclass(frozen=True, kw_only=True)
class HeartDisease(DataSettings):
    """Heart disease or none, of 920 patients of four hospitals (domains), 13 attributes; inside the package.

    Args:
        test_fraction: of each hospital's rows, above 0 and below 1.
        split_seed: of the draw of test rows, the same for all seeds of a scenario.
    """

    test_fraction: Share = 0.2
    split_seed: CountOrZero = 0

    num_classes = 2
    may_hold_images = False

    def domains_for(self, num_clusters: int) -> int | None:
        """The hospitals."""
        return 4

    def load(self, search: DataSearch) -> Dataset:
        """The data set; nothing is searched for."""
        cells = read_columns(EMBEDDED)
        cells["diagnosis"] = ["0" if cell == "0" else "1" for cell in cells["diagnosis"]]  # 1 to 4: how narrow
        settings = Table(
            path="", label="diagnosis", domain="hospital", test_fraction=self.test_fraction, split_seed=self.split_seed
        )
        return settings.dataset("heart_disease", "inside the package", cells)


def read_columns(path: Path) -> Columns:
    """The columns of a CSV file.

    Raises:
        DataDamaged: if it cannot be read, has no rows, or rows of different lengths.
    """
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(file)
            lines = dict((reader.line_num, row) for row in reader if row)  # by their last line: cells may hold breaks
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataDamaged(f"{path}: cannot be read as CSV: {error}.") from error
    rows = list(lines.values())
    names = [name.strip() for name in rows[0]] if rows else []
    if len(rows) < 3 or len(set(names)) < len(names) or (len(names) == 1 and set(";\t") & set(names[0])):
        got = f"{len(rows)} lines, the first {names!r:.60}"
        raise DataDamaged(f"{path}: expected different names, separated by commas, and two rows or more, got {got}.")
    for number, row in lines.items():
        if len(row) != len(names):
            raise DataDamaged(f"{path}:{number}: expected {len(names)} cells, as in the first line, got {len(row)}.")
    stripped = zip(*(map(str.strip, row) for row in rows[1:]), strict=True)
    return {name: ["" if c in MISSING else c for c in cells] for name, cells in zip(names, stripped, strict=True)}


def _test_rows(domains: np.ndarray, share: float, seed: int) -> np.ndarray:
    """Return a mask of the test rows: a share of each domain, at least one row, with at least one left for training."""
    rng, found = stream(seed, "test rows"), np.zeros(len(domains), bool)
    for domain in np.unique(domains):
        own = rng.permutation(np.flatnonzero(domains == domain))
        found[own[: min(max(1, round(share * len(own))), max(1, len(own) - 1))]] = True
    return found


def _features(
    origin: str, cells: Columns, train: np.ndarray, categorical: Sequence[str]
) -> tuple[np.ndarray, tuple[dict[str, Any], ...]]:
    """Features float32 [N, 1, F, 1], numbers normalized by the training rows; and a description of each.

    Raises:
        DataDamaged: if a number is infinite. ScenarioError: if no column is left.
    """
    found: list[np.ndarray] = []
    about: list[dict[str, Any]] = []
    for name, column in cells.items():
        numbers = None if name in categorical else numbers_of(column, NO_NUMBER)
        if numbers is None:
            words = np.array(column)
            chosen = [str(word) for word in np.unique(words[train]) if word]
            found += [words == word for word in chosen]
            about += [{"column": name, "is": word} for word in chosen]
            continue
        finite(origin, f"column {name}", np.where(np.isnan(numbers), 0, numbers))
        known = numbers[train & np.isfinite(numbers)]
        if len(known) and known.min() < known.max():  # the deviation of equal numbers is not always 0
            found.append(np.nan_to_num((numbers - known.mean()) / known.std()))
            about.append({"column": name, "mean": float(known.mean()), "std": float(known.std())})
    if not found:
        raise ScenarioError("data: no column is left that is a feature. Leave fewer out.")
    return np.stack(found, axis=1).astype(np.float32)[:, None, :, None], tuple(about)

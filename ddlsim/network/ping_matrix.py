"""Latencies between sites from a file: WonderNetwork's pings, or a square matrix.

WonderNetwork's pings are a CSV with the columns source,destination,timestamp,min,avg,max,mdev: ids of servers, and
milliseconds there and back of 30 pings. Here a pair's latency is the mean of `avg` over its rows; a direction that was
never measured has that of the other one, and a pair that was not measured at all the median of all that were.
"""

import csv
import math
from pathlib import Path

import numpy as np

from ddlsim.csv_rows import shortened, unreadable
from ddlsim.errors import ScenarioError
from ddlsim.units import MAX_LATENCY_MS

COLUMNS = ("source", "destination", "avg")


def read_latencies(path: str) -> np.ndarray:
    """Milliseconds from site (row) to site, as the file has them, float64 [sites, sites]; the diagonal is 0.

    Raises:
        ScenarioError: the file cannot be read, or is neither of both.
    """
    expected = f"expected pings with the columns {', '.join(COLUMNS)}, or a square matrix of milliseconds"
    try:
        with Path(path).open(encoding="utf-8-sig", newline="") as file:
            rows = [[cell.strip() for cell in row] for row in csv.reader(file) if row]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise unreadable(path, expected, error) from error
    if not rows:
        raise ScenarioError(f"{path}: {expected}, got an empty file")
    found = _of_pings(path, rows) if set(COLUMNS) <= set(rows[0]) else _of_matrix(path, rows, expected)
    np.fill_diagonal(found, np.nan)
    found = np.where(np.isnan(found), found.T, found)
    known = found[~np.isnan(found)]
    if not len(known):
        raise ScenarioError(f"{path}: {expected}, got no latency between two different sites")
    found = np.where(np.isnan(found), np.median(known), found)
    np.fill_diagonal(found, 0.0)
    return found


def _of_pings(path: str, rows: list[list[str]]) -> np.ndarray:
    places = [rows[0].index(column) for column in COLUMNS]
    sums: dict[tuple[str, str], list[float]] = {}
    for number, row in enumerate(rows[1:], 2):
        value = _number(row[places[2]]) if len(row) > max(places) else None
        if value is None:
            raise ScenarioError(f"{path}:{number}: avg: expected milliseconds, got {shortened(repr(','.join(row)))}")
        sums.setdefault((row[places[0]], row[places[1]]), []).append(value)
    sites = sorted({site for pair in sums for site in pair}, key=lambda site: (len(site), site))
    index = {site: number for number, site in enumerate(sites)}
    found = np.full((len(sites), len(sites)), np.nan)
    for (source, destination), values in sums.items():
        found[index[source], index[destination]] = sum(values) / len(values)
    return found


def _of_matrix(path: str, rows: list[list[str]], expected: str) -> np.ndarray:
    """Cells that are negative or empty were not measured."""
    found = np.full((len(rows), len(rows)), np.nan)
    for number, row in enumerate(rows, 1):
        if len(row) != len(rows):
            raise ScenarioError(f"{path}:{number}: {expected}, got {len(row)} values in one of {len(rows)} rows")
        for column, cell in enumerate(row):
            value = _number(cell.removeprefix("-")) if cell else math.nan
            if value is None:
                raise ScenarioError(f"{path}:{number}: {expected}, got {shortened(repr(cell))}")
            found[number - 1, column] = math.nan if cell.startswith("-") else value
    return found


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 <= value < MAX_LATENCY_MS else None

"""Robust aggregation of parameter rows: distances are measured, the rule decides, the kernels compute.

Distances are those of trained values; buffers (BatchNorm statistics) are combined like the values beside them. A row
with a value that is not finite is left out before the rule sees it; a node whose own row is not finite keeps it.
"""

from collections.abc import Sequence

import numpy as np
import torch

from ddlsim import kernels
from ddlsim.aggregation.base import Aggregation, Combination, Rows, unfit, weighted_sum
from ddlsim.errors import ScenarioError
from ddlsim.learning.bank import Bank, Row, by_bank
from ddlsim.learning.job_types import AggregateSpec
from ddlsim.own_code import is_from_outside


def aggregate(jobs: Sequence[AggregateSpec]) -> None:
    """Computes jobs that are bound to rows: the sums and the trimmed means of a matrix each in one native call."""
    for job in jobs:
        job.target.allocate()  # banks may grow here, so it is done before views of them are taken
    for bank, places in by_bank([job.target for job in jobs]).items():
        sums: list[tuple[Row, list[Row], np.ndarray]] = []
        trims: list[tuple[Row, list[Row], int, Row | None]] = []
        for job in (jobs[place] for place in places):
            rows, combination = _combined(job)
            if combination.mixing is None:
                # by place: several nodes may have sent the row that the node itself has
                kept = None if combination.kept is None else rows[combination.kept]
                others = [row for place, row in enumerate(rows) if place != combination.kept]
                trims.append((job.target, others, combination.cut, kept))
            elif len(combination.mixing) == 1:
                sums.append((job.target, rows, combination.mixing[0]))
            else:
                _trim_mixed(bank, job.target, rows, combination)
        _sum(bank, sums)
        _trim(bank, trims)


def _combined(job: AggregateSpec) -> tuple[list[Row], Combination]:
    """The rows that count, the start as the last one where it does, and what becomes of them.

    Raises:
        ScenarioError: a rule from outside does not say what.
    """
    rule: Aggregation = job.rule
    rows, weights, own = list(job.sources), np.array(job.weights), job.own
    finite = _finite(rows)
    if own is not None and not finite[own]:
        return [rows[own]], weighted_sum([1.0])
    if not finite.all() and finite.any():
        own = None if own is None else int(finite[:own].sum())
        rows, weights = [row for row, good in zip(rows, finite, strict=True) if good], weights[finite]
    if not finite.any() or len(rows) == 1:
        return rows[:1], weighted_sum([1.0])
    total = weights.sum()
    weights = weights / total if total > 0 else np.full(len(rows), 1 / len(rows))
    distances = _distances(rows, job.start, rule.needs_start) if rule.needs_distances else None
    combination = rule.combine(Rows(weights, own, distances))
    if is_from_outside(rule):
        wrong = unfit(combination, len(rows), rule.needs_start)
        if wrong:
            raise ScenarioError(f"aggregation: combine of {type(rule).__qualname__}{wrong}.")
    return rows + ([job.start] if rule.needs_start and job.start is not None else []), combination


def _finite(rows: Sequence[Row]) -> np.ndarray:
    """Which rows have finite values alone, bool [n]."""
    places = np.arange(len(rows))
    squares = kernels.dots(rows[0].bank.matrix, pairs=np.stack([places, places], 1), rows=_slots(rows))
    return np.isfinite(np.asarray(squares.cpu() if isinstance(squares, torch.Tensor) else squares))


def _distances(rows: Sequence[Row], start: Row | None, with_start: bool) -> np.ndarray:
    """Squared distances of trained values, float64 [n, n]; with a start [n + 1, n + 1], where None stands for zeros."""
    matrix, everything = rows[0].bank.matrix, [*rows, start] if with_start and start is not None else list(rows)
    slots, n = _slots(everything), len(everything)
    found = np.zeros((n, n))
    norms = np.zeros(n)
    places = np.arange(n)
    for columns in rows[0].part.trainable_columns:
        found += _host(kernels.sqdist(matrix, columns=columns, rows=slots))
        if with_start and start is None:
            norms += _host(kernels.dots(matrix, pairs=np.stack([places, places], 1), columns=columns, rows=slots))
    if with_start and start is None:
        found = np.block([[found, norms[:, None]], [norms[None, :], np.zeros((1, 1))]])
    return found


def _sum(bank: Bank, jobs: Sequence[tuple[Row, list[Row], np.ndarray]]) -> None:
    """Weighted sums; rows of no weight are not read. Weights beyond the rows belong to a start of zeros."""
    if not jobs:
        return
    indptr, sources, values = [0], [], []
    for _, rows, weights in jobs:
        chosen = [place for place in range(len(rows)) if weights[place] != 0]
        sources += [rows[place].slot for place in chosen]
        values += [weights[place] for place in chosen]
        indptr.append(len(sources))
    kernels.merge_rows(
        bank.matrix, np.array(indptr), np.array(sources), np.array(values), _slots([t for t, *_ in jobs])
    )


def _trim(bank: Bank, jobs: Sequence[tuple[Row, list[Row], int, Row | None]]) -> None:
    if not jobs:
        return
    indptr = np.cumsum([0, *(len(rows) for _, rows, _, _ in jobs)])
    sources = np.array([row.slot for _, rows, _, _ in jobs for row in rows])
    cuts = np.array([cut for _, _, cut, _ in jobs])
    kept = np.array([-1 if row is None else row.slot for *_, row in jobs])
    targets = _slots([target for target, *_ in jobs])
    kernels.trimmed_mean_rows(bank.matrix, indptr, sources, cuts, bank.matrix, targets, kept)


def _trim_mixed(bank: Bank, target: Row, rows: Sequence[Row], combination: Combination) -> None:
    """The trimmed mean of mixtures of rows."""
    assert combination.mixing is not None
    # Gathered, since sums run in the order of the rows here, and where they lie in the bank differs from process to
    # process (resume).
    gathered = torch.stack([row.values() for row in rows])
    mixed = kernels.merge(gathered, combination.mixing.astype(np.float32))
    count = len(combination.mixing)
    targets = np.array([target.slot])
    kernels.trimmed_mean_rows(mixed, [0, count], np.arange(count), [combination.cut], bank.matrix, targets)


def _slots(rows: Sequence[Row]) -> np.ndarray:
    return np.array([row.slot for row in rows], dtype=np.int64)


def _host(values: "np.ndarray | torch.Tensor") -> np.ndarray:
    return values.cpu().numpy() if isinstance(values, torch.Tensor) else values

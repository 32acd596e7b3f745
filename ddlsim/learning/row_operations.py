"""Operations on parameter rows: robust aggregation, functions, attacks and compression.

Robust aggregation: distances are measured, the rule decides, the kernels compute. Distances are between trained values;
buffers (BatchNorm statistics) are combined like the other values. A row with a value that is not finite is left out
before the rule is applied; a node whose own row is not finite keeps it.

Functions of parameters see vectors of one node each. On a CPU they are called node by node, which keeps the values of a
model in the cache and makes the result independent of the other jobs of the wave. On a GPU `torch.func.vmap` calls them
once for all nodes of a wave; functions that it cannot map are called node by node.

Attacks are jobs on parameter rows, or poisoned samples on which attacked nodes train.

Compression computes the parameters that receivers decode: a job whose output row all of them share.
"""

from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

from ddlsim import kernels
from ddlsim.aggregation.base import Aggregation, Combination, Rows, unfit, weighted_sum
from ddlsim.attacks.base import AttackInput, wrong_samples, wrong_tensor
from ddlsim.attacks.forgeries import BACKDOOR
from ddlsim.attacks.node_attacks import Attackers
from ddlsim.foundation.errors import DdlsimError, ScenarioError
from ddlsim.foundation.own_code import is_from_outside
from ddlsim.foundation.rng import stream
from ddlsim.learning.bank import Bank, Row, by_bank, places_of, stacked_rows, store_rows
from ddlsim.learning.datasets import NodeDatasets
from ddlsim.learning.job_types import AggregateSpec, ApplySpec, AttackSpec, CompressSpec
from ddlsim.learning.layout import Part


def aggregate(jobs: Sequence[AggregateSpec]) -> None:
    """Compute jobs that are bound to rows: the sums and the trimmed means of a matrix each in one native call."""
    for bank, places in by_bank([job.target for job in jobs]).items():
        sums: list[tuple[Row, list[Row], list[float]]] = []
        trims: list[tuple[Row, list[Row], int, Row | None]] = []
        for job in (jobs[place] for place in places):
            rows, combination = _combine(job)
            if isinstance(combination, torch.Tensor):
                job.target.allocate()
                job.target.values().copy_(combination)
            elif combination.mixing is None:
                # by place: several nodes may have sent the row that the node itself has
                kept = None if combination.kept is None else rows[combination.kept]
                others = [row for place, row in enumerate(rows) if place != combination.kept]
                trims.append((job.target, others, combination.cut, kept))
            elif len(combination.mixing) == 1:  # weights beyond the rows belong to a start of zeros
                used = [(row, weight) for row, weight in zip(rows, combination.mixing[0], strict=False) if weight != 0]
                sums.append((job.target, [row for row, _ in used], [weight for _, weight in used]))
            else:
                _trim_mixed(job.target, rows, combination)
        if sums:
            targets, sources, weights = map(list, zip(*sums, strict=True))
            bank.merge(targets, sources, weights)
        _trim(bank, trims)


def _combine(job: AggregateSpec) -> tuple[list[Row], Combination | torch.Tensor]:
    """Return the rows that count (the start last, if it counts) and their combination, or its values.

    Raises:
        ScenarioError: if a user-defined rule returns an invalid combination.
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
    values = stacked_rows(rows) if rule.needs_rows else None
    with torch.no_grad():
        combination = rule.combine(Rows(weights, own, distances, values))
    if is_from_outside(rule):
        if values is not None and isinstance(combination, torch.Tensor):
            wrong = wrong_tensor(combination, values[0])
            wrong = wrong and f" returns {wrong}"
        else:
            wrong = unfit(combination, len(rows), rule.needs_start)
        if wrong:
            raise ScenarioError(f"aggregation: combine of {type(rule).__qualname__}{wrong}.")
    return rows + ([job.start] if rule.needs_start and job.start is not None else []), combination


def _finite(rows: Sequence[Row]) -> np.ndarray:
    """Return a mask of the rows whose values are all finite, bool [n]."""
    places = np.arange(len(rows))
    matrix, numbers = rows[0].bank.in_one_matrix(places_of(rows))
    return np.isfinite(_host(kernels.dots(matrix, pairs=np.stack([places, places], 1), rows=numbers)))


def _distances(rows: Sequence[Row], start: Row | None, with_start: bool) -> np.ndarray:
    """Return squared distances of trained values, float64 [n, n]; with a start [n + 1, n + 1], where None counts as
    zeros.
    """
    everything = [*rows, start] if with_start and start is not None else rows
    matrix, slots = rows[0].bank.in_one_matrix(places_of(everything))
    places = np.arange(len(everything))
    found, norms = np.zeros((len(places), len(places))), np.zeros(len(places))
    for columns in rows[0].part.trainable_columns:
        found += _host(kernels.sqdist(matrix, columns=columns, rows=slots))
        if with_start and start is None:
            norms += _host(kernels.dots(matrix, pairs=np.stack([places, places], 1), columns=columns, rows=slots))
    if with_start and start is None:
        found = np.block([[found, norms[:, None]], [norms[None, :], np.zeros((1, 1))]])
    return found


def _trim(bank: Bank, jobs: Sequence[tuple[Row, list[Row], int, Row | None]]) -> None:
    if not jobs:
        return
    indptr = np.cumsum([0, *(len(rows) for _, rows, _, _ in jobs)])
    cuts = np.array([cut for _, _, cut, _ in jobs])
    targets = np.array([target.allocate() for target, *_ in jobs])
    kept = np.array([-1 if row is None else row.slot for *_, row in jobs])
    matrix, used, kept = bank.in_one_matrix(np.array([row.slot for _, rows, _, _ in jobs for row in rows]), kept)
    if len(bank.blocks) == 1:
        kernels.trimmed_mean_rows(matrix, indptr, used, cuts, matrix, targets, kept)
    else:
        found = torch.empty(len(jobs), bank.size, device=bank.device)
        kernels.trimmed_mean_rows(matrix, indptr, used, cuts, found, np.arange(len(jobs)), kept)
        bank.store(targets, found)


def _trim_mixed(target: Row, rows: Sequence[Row], combination: Combination) -> None:
    """Compute the trimmed mean of mixtures of rows."""
    assert combination.mixing is not None
    # Gathered, since sums run in the order of the rows here, and their places in the bank differ from process to
    # process (resume).
    gathered = torch.stack([row.values() for row in rows])
    mixed = kernels.merge(gathered, combination.mixing.astype(np.float32))
    count = len(combination.mixing)
    target.allocate()
    kernels.trimmed_mean_rows(mixed, [0, count], np.arange(count), [combination.cut], target.values()[None], [0])


def _host(values: np.ndarray | torch.Tensor) -> np.ndarray:
    return values.cpu().numpy() if isinstance(values, torch.Tensor) else values


@torch.no_grad()
def apply(jobs: Sequence[ApplySpec]) -> None:
    """Compute functions of rows: on a GPU all jobs of one function together, otherwise one after the other.

    Raises:
        DdlsimError: if a function does not return a vector like its arguments.
    """
    for job in jobs:
        job.target.allocate()  # banks may grow here, so it is done before views of them are taken
    alike: dict[Hashable, list[ApplySpec]] = defaultdict(list)
    for job in jobs:
        on_gpu = job.target.bank.device.type == "cuda"
        alike[(_identity(job.function), job.target.bank, len(job.sources)) if on_gpu else id(job)].append(job)
    for work in alike.values():
        at_once = max(1, VALUES_AT_ONCE // max(1, work[0].target.size))
        for some in (work[start : start + at_once] for start in range(0, len(work), at_once)):
            if len(some) == 1 or not _apply_together(some):
                for job in some:
                    job.target.values().copy_(_apply(job))


def _identity(function: Callable[..., Any]) -> Hashable:
    """Return a key that is equal for functions known to compute the same."""
    key: Any = function
    if isinstance(function, partial):
        key = function.func, function.args, tuple(function.keywords.items())
    try:
        hash(key)
    except TypeError:
        return id(function)
    return key


def _apply_together(jobs: Sequence[ApplySpec]) -> bool:
    """Compute one function of several nodes' rows at once; return False if it cannot be mapped."""
    arguments = [stacked_rows(rows) for rows in zip(*(job.sources for job in jobs), strict=True)]
    try:
        found = torch.func.vmap(jobs[0].function)(*arguments)
    except Exception:  # control flow that depends on values, for example; a fault of the function is raised by _apply
        return False
    if wrong_tensor(found, arguments[0]):
        return False
    store_rows([job.target for job in jobs], found.to(torch.float32))
    return True


def _apply(job: ApplySpec) -> torch.Tensor:
    """Return the function of one node's rows, whose copies it may change."""
    arguments, threads = [row.values().clone() for row in job.sources], torch.get_num_threads()
    torch.set_num_threads(1)  # sums depend on the number of threads
    try:
        found = job.function(*arguments)
    finally:
        torch.set_num_threads(threads)
    wrong = wrong_tensor(found, job.target.values())
    if wrong:
        name = getattr(job.function, "__qualname__", repr(job.function))
        raise DdlsimError(f"node.apply: {name} returns {wrong}. Return a tensor of the shape of its arguments.")
    return found


@torch.no_grad()
def attack(jobs: Sequence[AttackSpec]) -> None:
    """Compute forgeries that are bound to rows, one after the other.

    Raises:
        ScenarioError: if a forgery is not a valid row.
    """
    for job in jobs:
        job.target.allocate()  # banks may grow here, so it is done before views of them are taken
    for job in jobs:
        known = [row.values() for row in job.known]
        start, receiver = (None if row is None else row.values() for row in (job.start, job.receiver))
        inputs = AttackInput(job.own.values(), known, start, receiver, job.seed, *job.sizes)
        forged = job.attack.forge(inputs)
        wrong = wrong_tensor(forged, inputs.own)
        if wrong:
            raise ScenarioError(f"attacks: forge of {type(job.attack).__qualname__} returns {wrong}.")
        job.target.values().copy_(forged)


class PoisonedNodes:
    """Data sets of nodes that train on other samples than their own, placed after the nodes' own data sets.

    Args:
        attackers: the attacking nodes and their attack.
        data: of the run; poisoned data sets are added to its `train`.
        seed: the scenario's.

    Attributes:
        owners: number of a poisoned data set -> the node that trains on it.
    Raises:
        ScenarioError: if an attack returns invalid samples.
    """

    def __init__(self, attackers: Attackers, data: NodeDatasets, seed: int):
        self._of: dict[int, list[tuple[int, int]]] = {}  # node -> (first round, number of its data set), ascending
        self.owners: dict[int, int] = {}
        for node in attackers.nodes:
            node_attacks: Any = attackers.of(node)
            poisons = [one for one, _ in node_attacks.attacks if one.poisons]
            for first in sorted({one.start_round for one in poisons}):
                inputs, labels = data.train[node]
                inputs = inputs[torch.arange(len(labels), device=labels.device)]
                for place, one in enumerate(poisons):
                    if one.start_round <= first:
                        rng = stream(seed, "poisoned samples", node, place)
                        inputs, labels = _poison(one, inputs, labels, data, rng)
                self._of.setdefault(node, []).append((first, len(data.train)))
                self.owners[len(data.train)] = node
                data.train.append((inputs, labels))
        backdoor = attackers.backdoor
        if backdoor is not None:
            data.add_split(BACKDOOR, backdoor.measured_on)

    def data_of(self, node: int, round_num: int) -> int:
        """The number of the data set that a node trains on in a round."""
        return next((number for first, number in reversed(self._of.get(node, [])) if round_num >= first), node)


def _poison(
    attack: Any, inputs: torch.Tensor, labels: torch.Tensor, data: NodeDatasets, rng: "np.random.Generator"
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the samples after an attack."""
    occurring = data.occurring_classes() if attack.counts_occurring else None
    classes, seen = data.num_classes, labels
    if occurring is not None:
        classes, seen = len(occurring), torch.searchsorted(occurring, labels)
    found = attack.poison(inputs, seen, classes, rng)
    wrong = wrong_samples(found, inputs, seen, classes, data.task)
    if wrong:
        raise ScenarioError(f"attacks: poison of {type(attack).__qualname__} returns {wrong}.")
    return found if occurring is None else (found[0], occurring[found[1]])


VALUES_AT_ONCE = 2**24
"""Most values of rows that are encoded together; the temporaries are a few times as large."""


def compress(jobs: Sequence[CompressSpec]) -> None:
    """Compute jobs that are bound to rows: all rows of one part and codec together."""
    groups: dict[tuple, list[CompressSpec]] = defaultdict(list)
    for job in jobs:
        job.target.allocate()  # banks may grow here, so it is done before views of them are taken
        groups[id(job.codec), job.target.part].append(job)
    for (_, part), work in groups.items():
        at_once = max(1, VALUES_AT_ONCE // max(1, part.size))
        for start in range(0, len(work), at_once):
            _transmit(work[start : start + at_once], part)


@torch.no_grad()
def _transmit(jobs: Sequence[CompressSpec], part: Part) -> None:
    codec, seeds = jobs[0].codec, [job.seed for job in jobs]
    rows = torch.stack([job.source.values() for job in jobs])
    sizes, columns = part.trained_sizes, part.trainable_columns
    if sizes:
        copies = None
        if codec.keeps_copies:
            copies = _trained_columns(torch.stack([job.copy.values() for job in jobs if job.copy is not None]), columns)
        encoded = codec.encode(_trained_columns(rows, columns), copies, sizes, seeds)
        decoded = codec.decode(encoded, copies, sizes, seeds)
        widths = [stop - start for start, stop in columns]
        for (start, stop), values in zip(columns, decoded.split(widths, dim=1), strict=True):
            rows[:, start:stop] = values
    for job, row in zip(jobs, rows, strict=True):
        job.target.values().copy_(row)


def _trained_columns(rows: torch.Tensor, columns: Sequence[tuple[int, int]]) -> torch.Tensor:
    """The trained values of rows, float32 [n, D], a copy."""
    return torch.cat([rows[:, start:stop] for start, stop in columns], dim=1)

"""Inputs of local trainings: models in parts, mini-batches of sample indices, objectives, and the context in the run.

A whole model has all of its parts, in order. An algorithm writes its loss as a function of a LocalStep, in its own
file, from the terms in losses.py.
"""

import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ddlsim.foundation import native
from ddlsim.foundation.errors import DdlsimError

NOT_COMPUTED = -math.inf
"""Training loss of a backend that does not compute it."""

if TYPE_CHECKING:
    import torch


CORE, HEAD, MODEL = "core", "head", "model"
_USUAL = {(MODEL,), (CORE, HEAD)}


def no_samples(node: int, split: str) -> DdlsimError:
    """Return the error for losses on samples of a node that has none."""
    text = "The key `validation` of a scenario sets some aside for the split validation"
    return DdlsimError(f"losses: node {node} has no {split} samples. {text}.")


def no_core(name: str) -> DdlsimError:
    """Return the error for an algorithm that shares the core and the head of a model without a trained core."""
    text = f"{name} has no core that is trained, and this algorithm shares core and head apart"
    return DdlsimError(f"model: {text}. Choose another model (gn_lenet, mlp, ...) or algorithm (el, dpsgd).")


def check_model(what: str, model: Any) -> None:
    """Raise DdlsimError unless the model is (model,) or (core, head, ...): a missing part would keep its last loaded
    values.

    Args:
        what: operation on it, for the message.
        model: handles to rows of parameters.
    """
    if not isinstance(model, tuple | list):
        got = f"a {type(model).__name__}"
        raise DdlsimError(f"{what}: expected a model as a tuple of its parts, such as (state.model,), got {got}.")
    try:
        names = tuple([params.row.part.name for params in model])
    except AttributeError:
        names = tuple([getattr(getattr(params, "part", None), "name", type(params).__name__) for params in model])
    if names in _USUAL or (names[:2] == (CORE, HEAD) and MODEL not in names and len(set(names)) == len(names)):
        return
    got = f"({', '.join(names)}{',' if len(names) == 1 else ''})"
    raise DdlsimError(f"{what}: expected a whole model, (model,) or (core, head, ...) in this order, got {got}.")


class Batches(Sequence[np.ndarray]):
    """Mini-batches as one array, because pending trainings of all nodes hold theirs and arrays have an overhead.

    Args:
        rows: int64 [n], sample indices, batch after batch.
        ends: where each batch ends in it.
    """

    __slots__ = ("ends", "rows")

    def __init__(self, rows: np.ndarray, ends: tuple[int, ...]):
        self.rows, self.ends = rows, ends

    @classmethod
    def of(cls, batches: Iterable[np.ndarray]) -> "Batches":
        """Return mini-batches from arrays of sample indices."""
        batches = list(batches)
        ends = np.cumsum([len(batch) for batch in batches]).tolist()
        return cls(np.concatenate(batches) if batches else np.empty(0, np.int64), tuple(ends))

    def between(self, start: int, stop: int) -> "Batches":
        """Return the mini-batches from `start` to `stop`, which share the array."""
        if start == 0 and stop >= len(self.ends):
            return self
        first = self.ends[start - 1] if start else 0
        ends = self.ends[start:stop]
        return Batches(self.rows[first : ends[-1] if ends else first], tuple(end - first for end in ends))

    @property
    def sizes(self) -> list[int]:
        """Samples of each."""
        return [stop - start for start, stop in zip((0, *self.ends), self.ends, strict=False)]

    def __len__(self) -> int:
        return len(self.ends)

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            return [self[each] for each in range(*place.indices(len(self)))]
        stop = self.ends[place]
        return self.rows[self.ends[place - 1] if place % len(self) else 0 : stop]


def batches_per_pass(num_samples: int, batch_size: int, drop_last: bool = False) -> int:
    """Mini-batches in one pass over the data; `drop_last` leaves a smaller last one out unless it is the only one."""
    return max(1, num_samples // batch_size) if drop_last else -(-num_samples // batch_size)


def draw_batches(
    rng: np.random.Generator, num_samples: int, batch_size: int, count: int, drop_last: bool = False
) -> Batches:
    """Draw `count` mini-batches of sample indices, without replacement inside a pass over the data.

    As a PyTorch DataLoader with shuffle: the last batch of a pass may be smaller, then a new shuffle starts; every call
    starts a new pass (FACADE's code makes a new loader each round).

    Args:
        rng: the node's stream; two calls with equal streams give equal batches.
        num_samples: number of the node's samples, at least 1.
        batch_size: samples per batch.
        count: number of batches.
        drop_last: whether a smaller last batch of a pass is left out, unless it is the only one.
    """
    per_pass = batches_per_pass(num_samples, batch_size, drop_last)
    in_pass = min(num_samples, per_pass * batch_size)
    ends = _ends(in_pass, batch_size, per_pass, count)
    if 0 < count <= per_pass:
        return Batches(_start_of_permutation(rng, num_samples, ends[-1]), ends)
    passes = [_start_of_permutation(rng, num_samples, in_pass) for _ in range(-(-count // per_pass))]
    return Batches(np.concatenate(passes)[: ends[-1]].copy() if passes else np.empty(0, np.int64), ends)


def _start_of_permutation(rng: np.random.Generator, size: int, count: int) -> np.ndarray:
    """Return rng.permutation(size)[:count], in a third of the time, int64 [count]."""
    found: np.ndarray = native.extension().start_of_permutation(rng.bit_generator.capsule, size, count)
    return found


def batches_in_order(num_samples: int, batch_size: int, count: int) -> Batches:
    """Return the first `count` mini-batches of one pass over the samples in their order, as a PyTorch DataLoader
    without shuffle.
    """
    ends = _ends(num_samples, batch_size, batches_per_pass(num_samples, batch_size), count)
    return Batches(np.arange(ends[-1] if ends else 0), ends)


@lru_cache(maxsize=10_000)
def _ends(in_pass: int, batch_size: int, per_pass: int, count: int) -> tuple[int, ...]:
    """Return the ends of batches in passes over `in_pass` samples; nodes with equally many samples share them."""
    return tuple(
        number // per_pass * in_pass + min((number % per_pass + 1) * batch_size, in_pass) for number in range(count)
    )


@dataclass(frozen=True, eq=False)
class LocalStep:
    """One mini-batch of a local training.

    Args:
        module: the model in training, a torch.nn.Module; its parts are attributes: `module.core`, `module.head`.
        images: float32 [views * b, C, H, W], view after view.
        labels: int64 [views * b], the labels of the batch, repeated.
        batch_size: b, samples in the batch.
        start: the trained parameters at the start of the training by name, e.g. "head.weight".
        targets: the parameters that the algorithm passed, by label.
        task_loss: (outputs, labels) -> the task's mean loss, with training.label_smoothing.
        collect: (features [n, D], labels [n]) ; counts them in the class means, see Objective.
    """

    module: Any
    images: "torch.Tensor"
    labels: "torch.Tensor"
    batch_size: int
    start: "Mapping[str, torch.Tensor]"
    targets: "Mapping[int, torch.Tensor]"
    task_loss: "Callable[[torch.Tensor, torch.Tensor], torch.Tensor]"
    collect: "Callable[[torch.Tensor, torch.Tensor], None]"


@dataclass(frozen=True, eq=False)
class Objective:
    """Loss of a local training as a function of a batch.

    Args:
        loss: of a step, a scalar to minimize.
        views: copies of each image in a batch, each augmented independently (training.augmentation).
        targets: per label the handle to the parameters that the loss compares with, known when the training runs.
        class_means: whether the training also returns per label the mean of the features that the loss collects in the
            last pass over the samples.
        keeps_start: whether the loss uses the parameters at the start.

    On a GPU, nodes whose objectives have one `identity` train together: the loss may use the step and the attributes of
    its object, no other values that change.
    """

    loss: "Callable[[LocalStep], torch.Tensor]"
    views: int = 1
    targets: Mapping[int, Any] = field(default_factory=dict)
    class_means: bool = False
    keeps_start: bool = False

    @property
    def identity(self) -> Hashable:
        """Key that is equal for objectives of the same loss, in every process; None if the loss may hold values of one
        node: a closure, a lambda, or a method of an object without a hash.
        """
        owner, name = getattr(self.loss, "__self__", None), getattr(self.loss, "__qualname__", "<")
        try:
            hash(owner)
        except TypeError:
            return None
        loss = self.loss if owner is None else name
        known = loss, owner, self.views, self.class_means, self.keeps_start
        return None if owner is None and "<" in name else known


class TrainingContext(NamedTuple):
    """Place of a training in the run, and the algorithm's additions to its gradients.

    Args:
        round_num: the round, from 0.
        rounds: of the run.
        steps: mini-batches that this node trains on in the whole run, all its trainings together.
        proximal: mu of a proximal term, in addition to the scenario's.
        control: handle to a row added to every gradient, over the trained values of a whole model; None adds nothing.
        of: mini-batches of the training that this is a piece of; None: it is a whole training.
        done: mini-batches of its earlier pieces.
    """

    round_num: int = 0
    rounds: int = 1
    steps: int = 1
    proximal: float = 0.0
    control: Any = None
    of: int | None = None
    done: int = 0

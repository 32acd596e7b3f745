"""Stand-in for learning in network-only runs (`learning: none`): models are sizes, and nothing is computed.

Algorithms run unchanged. A value that an algorithm requests is a neutral one: every loss is ln(classes), the loss of a
model that predicts every class with the same probability, and all similarities are equal. So FACADE's nodes pick heads
at random (it breaks ties at random), and DAC draws all peers that it has compared with the same probability. Neither
torch nor data is needed here.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from ddlsim.devices.base import StepWork
from ddlsim.foundation.errors import DdlsimError
from ddlsim.learning.fragments import Fragment
from ddlsim.learning.training_inputs import MODEL, Objective, batches_per_pass, check_model, no_core
from ddlsim.scenario.per_node import of_node

if TYPE_CHECKING:
    from ddlsim.learning.architecture import Build
    from ddlsim.learning.bank import Params
    from ddlsim.learning.job_types import Model
    from ddlsim.learning.jobs import Job
    from ddlsim.learning.layout import Buffers, Entry, Part
    from ddlsim.learning.optimizing.state import LocalState


@dataclass(frozen=True, slots=True)
class SizedPart:
    """Replacement of layout.py's Part.

    Args:
        name: core, head or model.
        size: number of float32 values.
        trained_sizes: of these, the trained ones per tensor; the rest are buffers.
        entries: its tensors; empty if only sizes are known.
    """

    name: str
    size: int
    trained_sizes: tuple[int, ...]
    entries: "tuple[Entry, ...]" = ()


@dataclass(eq=False, slots=True, weakref_slot=True)
class SizedParams:
    """Parameters without values: all that a message needs to know.

    Args:
        part: core, head, ... or model.
        serial: another one in a run for each training and merge, as with real parameters.
    """

    part: SizedPart
    serial: int
    job = None

    @property
    def size(self) -> int:
        """Number of float32 values."""
        return self.part.size


_sized = cast("Callable[[SizedPart | Part, int], Params]", SizedParams)
"""Make a handle of the replaced kind."""


@dataclass
class FinishedJob:
    """A job that counts as run."""

    value: list[Any]


_finished_job = cast("Callable[[list[Any]], Job]", FinishedJob)


class SizeLearner:
    """The Compute port of network-only runs (see node/ports.py): SizedParams replaces Params, FinishedJob replaces Job.

    Args:
        parts: per architecture, by its name for messages, the sizes of its parts in order.
        num_classes: number of labels.
        samples: a node's samples of "train" and "validation".
        batch_size: samples per step, or one number per node.
        drop_last: see batches.py: batches_per_pass.
        assigned: per node the name of its architecture; None if all have the same.
        latent_sizes: per architecture a function that returns the number of features that the core passes to its head;
            an architecture without one, given as sizes alone, is assumed to have one linear layer as head.
    """

    learning_rate, draws_numbers = 1.0, False
    """No gradient is multiplied by the rate, and no number is drawn."""

    step_work: Callable[[], Mapping[str, StepWork]]
    """Operations of a training step per architecture, set by assembly/learner.py."""

    def __init__(
        self,
        parts: Mapping[str, Mapping[str, SizedPart]],
        num_classes: int,
        samples: Mapping[str, int],
        batch_size: int | tuple[int, ...],
        drop_last: bool = False,
        assigned: Sequence[str] | None = None,
        latent_sizes: Mapping[str, Callable[[], int]] | None = None,
    ):
        self._assigned = assigned
        self._latent_sizes = latent_sizes or {}
        self._parts = {name: tuple(own.values()) for name, own in parts.items()}
        self._whole = {name: (_whole(own),) for name, own in self._parts.items()}
        self._num_classes = num_classes
        self._loss = math.log(max(2, num_classes))
        self._samples, self._batch_size, self._drop_last = samples, batch_size, drop_last
        self._serials = count()
        self.jobs = SimpleNamespace(wall_s={}, waves={})  # no job has run
        self.backends = None  # nothing is computed
        self.fallback_counts: dict[str, dict[str, int]] = {}
        self.paths: dict[str, dict[str, int]] = {}
        self.device_s: dict[str, float] = {}

    @property
    def sizes(self) -> dict[str, int]:
        """Number of parameters of each architecture."""
        return {name: whole.size for name, (whole,) in self._whole.items()}

    def init_models(self, seed: int, count: int = 1, whole: bool = False, node: int = 0) -> "list[Model]":
        """Return models of the sizes of the node's architecture, (model,) or (core, head, ...)."""
        name = self._architecture_of(node)
        if not whole and not self._parts[name][0].size:
            raise no_core(name)
        parts = (self._whole if whole else self._parts)[name]
        return [tuple(self._params(part) for part in parts) for _ in range(count)]

    def merge(self, sources: "Sequence[Params]", *_: Any, **__: Any) -> "Params":
        """Merge parameters to the same size.

        Raises:
            DdlsimError: if the sizes differ.
        """
        first = sources[0]
        part = first.part
        for params in sources:
            if params.part is not part and params.size != first.size:
                sizes = f"{params.part.name} ({params.size} values) into {first.part.name} ({first.size} values)"
                raise DdlsimError(f"cannot merge {sizes}: their sizes differ.")
        return _sized(part, next(self._serials))

    def aggregate(self, rule: Any, sources: "Sequence[Params]", *_: Any, **__: Any) -> "Params":
        """Aggregate parameters to the same size, as `merge` does."""
        return self.merge(sources)

    apply = aggregate
    """Apply a function to parameters: neither it nor a rule is called."""

    def train_towards(
        self,
        node: int,
        model: "Model",
        steps: int,
        rng: Any,
        only: str | None,
        local_state: "LocalState | None",
        objective: Objective | None,
        *_: Any,
        **__: Any,
    ) -> "tuple[Model, LocalState | None, dict[int, Params]]":
        """Return a model of the same size, and the optimizer's state; if class means are requested, of all classes."""
        check_model("node.train", model)
        if only is None and objective is None:
            serials = self._serials
            return tuple([_sized(params.part, next(serials)) for params in model]), local_state, {}
        trained = tuple(self._params(params.part) if only in (None, params.part.name) else params for params in model)
        means: dict[int, Params] = {}
        if objective is not None and objective.class_means:
            count_latent = self._latent_sizes.get(self._architecture_of(node))
            size = count_latent() if count_latent else self._classifier_sizes(model[1].part)[0] // self._num_classes
            means = {label: self._params(SizedPart("class mean", size, (size,))) for label in range(self._num_classes)}
        return trained, local_state, means

    def learning_rates(self, node: int, steps: int, *_: Any, **__: Any) -> list[float]:
        """Return equal rates; no gradient is multiplied by them."""
        return [1.0] * steps

    def trained_values(self, params: "Params") -> "Params":
        """Return a row without buffers."""
        size = sum(params.part.trained_sizes)
        return self._params(SizedPart(f"{params.part.name} values", size, params.part.trained_sizes))

    def with_trained_values(self, params: "Params", *_: Any) -> "Params":
        """Return parameters of the same size."""
        return self._params(params.part)

    put = with_trained_values
    """Put a fragment into parameters."""

    def take(self, params: "Params", fragment: Fragment) -> "Params":
        """Return the values of a fragment."""
        name, entries = f"{params.part.name}[{fragment.name}]", params.part.entries
        inside = [entries[i] for i, _ in fragment.tensors_in(entries)] if fragment.ranges else []
        sizes = tuple(each.stop - each.start for each in inside if each.trainable) if inside else (fragment.size,)
        return self._params(SizedPart(name, fragment.size, sizes))

    def columns(self, params: "Params", columns: Sequence[tuple[int, int]]) -> "Params":
        """Return a row of these columns, range [start, stop) after range."""
        size = sum(stop - start for start, stop in columns)
        return self._params(SizedPart(f"{params.part.name} columns", size, (size,)))

    def classifier(self, head: "Params") -> "Params":
        """The weights of a head's last linear layer.

        Raises:
            DdlsimError: if nothing of the head is trained.
        """
        if not head.part.trained_sizes:
            text = f"nothing of the {head.part.name} is trained, whose last linear layer this algorithm compares"
            raise DdlsimError(f"model: {text}. Choose a model whose head is trained (mlp, resnet18, ...).")
        size, _ = self._classifier_sizes(head.part)
        return self._params(SizedPart(f"{head.part.name} classifier", size, (size,)))

    def class_cosine(self, own: "Params", others: "Sequence[Params]") -> "Job":
        """Return the cosine 1 for every classifier."""
        return _finished_job([1.0] * len(others))

    def _classifier_sizes(self, head: "SizedPart | Part") -> tuple[int, int]:
        """Values of the last linear layer's weights and bias, which it may not have: weights are the more."""
        before, last = (0, *head.trained_sizes)[-2:]
        return (before, last) if last <= before else (last, 0)

    def compress(self, codec: Any, params: "Params", *_: Any, **__: Any) -> "Params":
        """Return parameters of the same size."""
        return self._params(params.part)

    attack = compress
    """Forge parameters."""

    def losses(self, node: int, models: "Sequence[Model]", *_: Any, **__: Any) -> "Job":
        """Return the same loss for every model."""
        for model in models:
            check_model("losses", model)
        return _finished_job([self._loss] * len(models))

    def test(self, models: "Sequence[Model]", *_: Any, **__: Any) -> "Job":
        """Return the same loss for every model, and no predictions."""
        return _finished_job([((), self._loss, None)] * len(models))

    def compare(self, metric: str, own: "Model", peers: "Sequence[Model]", *_: Any, **__: Any) -> "Job":
        """Return the same similarity for every peer."""
        return _finished_job([1.0] * len(peers))

    def resolve(self, jobs: "Sequence[Job]") -> list[Any]:
        """Return the assumed results of jobs."""
        return [job.value for job in jobs]

    def launch_full(self, num_training: Callable[[], int]) -> None:
        """Nothing is ever launched."""

    def flush(self) -> None:
        """Nothing is pending."""

    def value(self, job: "Job") -> Any:
        """Return the assumed result of a job."""
        return job.value

    def num_samples(self, node: int) -> int:
        """A node's training samples."""
        return self._samples["train"]

    def steps_per_epoch(self, node: int) -> int:
        """Mini-batches in one pass over a node's training samples."""
        return batches_per_pass(self._samples["train"], of_node(self._batch_size, node), self._drop_last)

    def batches_in(self, split: str, node: int) -> int:
        """Mini-batches in one pass over a node's samples of "train" or "validation"."""
        return -(-self._samples[split] // of_node(self._batch_size, node))

    def close(self) -> None:
        """Nothing to end."""

    def _architecture_of(self, node: int) -> str:
        return self._assigned[node] if self._assigned else next(iter(self._parts))

    def _params(self, part: "SizedPart | Part") -> "Params":
        return _sized(part, next(self._serials))


def _whole(parts: Sequence[SizedPart]) -> SizedPart:
    entries, start = [], 0
    for part in parts:
        entries += [replace(each, start=each.start + start, stop=each.stop + start) for each in part.entries]
        start += part.size
    return SizedPart(MODEL, start, sum((part.trained_sizes for part in parts), ()), tuple(entries))


def parts_of_sizes(sizes: Mapping[str, int]) -> dict[str, SizedPart]:
    """Parts of which only the number of values is known: each is one tensor, without buffers."""
    return {name: SizedPart(name, size, (size,) if size else ()) for name, size in sizes.items()}


def parts_of(architecture: str, build: "Build", buffers: "Buffers" = "shared") -> dict[str, SizedPart]:
    """The sizes of a model's parts; torch makes it without memory (device `meta`).

    Args:
        architecture: the model's name.
        build: makes a module with submodules `core` and `head`.
        buffers: whether floating-point buffers are part of messages (`shared`) or not (`local`).

    Raises:
        ScenarioError: see layout.py: Layout.
    """
    import torch

    from ddlsim.learning.layout import Layout

    with torch.device("meta"):
        layout = Layout(architecture, build(), buffers)
    parts = [layout.parts[name] for name in layout.names]
    return {part.name: SizedPart(part.name, part.size, part.trained_sizes, part.entries) for part in parts}

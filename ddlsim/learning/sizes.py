"""The stand-in for learning in network-only runs (`learning: none`): models are sizes, and nothing is computed.

Algorithms run as they are. Where one asks for a value to steer by, it gets a neutral one: every loss is ln(classes),
the loss of a model that knows nothing. So FACADE's nodes all pick head 0, and to DAC every peer that it has met fits
alike. Neither torch nor data is needed here.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ddlsim.errors import DdlsimError, ScenarioError

MODEL = "model"


@dataclass(frozen=True, eq=False, slots=True)
class SizedParams:
    """Parameters without values: all that a message needs to know.

    Args:
        part: core, head, ... or model.
        size: number of float32 values.
    """

    part: str
    size: int
    job = None


@dataclass
class Known:
    """A job that has run, as far as anybody can tell."""

    value: list[float]
    done: bool = True


class NoJobs:
    """The queue of a learner that computes nothing."""

    def __init__(self) -> None:
        self.wall_s: dict[str, float] = {}

    def force(self, jobs) -> None:
        """Nothing is pending."""

    def force_params(self, params) -> None:
        """Nothing is pending."""

    def flush(self) -> None:
        """Nothing is pending."""


class SizeLearner:
    """What nodes see in the place of the Learner (learner.py), method by method.

    Args:
        sizes: per architecture, by its name for messages, the number of float32 values of each part in order.
        num_classes: number of labels.
        samples: training samples of a node.
        batch_size: samples per step.
        assigned: per node the name of its architecture; None: all have the only one.
    """

    def __init__(self, sizes: Mapping[str, Mapping[str, int]], num_classes: int, samples: int, batch_size: int,
                 assigned: Sequence[str] | None = None):
        self._assigned = assigned
        self._models = {name: tuple(SizedParams(part, size) for part, size in own.items())
                        for name, own in sizes.items()}
        self._whole = {name: (SizedParams(MODEL, sum(own.values())),) for name, own in sizes.items()}
        self._loss = math.log(max(2, num_classes))
        self._steps_per_epoch = -(-samples // batch_size)
        self.jobs = NoJobs()

    def init_models(
        self, seed: int, count: int = 1, whole: bool = False, node: int = 0
    ) -> list[tuple[SizedParams, ...]]:
        """The same sizes for every model of the node's architecture, (model,) or (core, head, ...)."""
        name = self._assigned[node] if self._assigned else next(iter(self._models))
        if not whole and not self._models[name][0].size:
            raise ScenarioError(
                f"model: {name} has no core, and this algorithm shares core and head apart. "
                "Choose a model with a core (gn_lenet, mlp, ...), or an algorithm that shares whole models (el, dpsgd)."
            )
        return [(self._whole if whole else self._models)[name]] * count

    def merge(self, sources: Sequence[SizedParams], weights: Sequence[float]) -> SizedParams:
        """What merges to the same size.

        Raises:
            DdlsimError: if the sizes differ.
        """
        first = sources[0]
        for params in sources:
            if params is not first and params.size != first.size:
                raise DdlsimError(
                    f"cannot merge {params.part} ({params.size} values) into {first.part} ({first.size} values): their "
                    "sizes differ."
                )
        return first

    def train_keeping(self, node: int, model, steps: int, rng, only: str | None, kept):
        """The model, and what the optimizer kept, as they were."""
        return model, kept

    def losses(self, node: int, models: Sequence, num_batches: int, rng, common: bool = False, split: str = "train"):
        """The same loss for every model."""
        return Known([self._loss] * len(models))

    def value(self, job: Known) -> list[float]:
        """What a job is taken to have computed."""
        return job.value

    def steps_per_epoch(self, node: int) -> int:
        """Mini-batches in one pass over a node's training samples."""
        return self._steps_per_epoch

    def close(self) -> None:
        """There is nothing to end."""


def sizes_of(architecture: str, build) -> dict[str, int]:
    """Number of float32 values of a model's parts; torch makes it without memory (device `meta`).

    Args:
        architecture: the model's name.
        build: makes a module with submodules `core` and `head`.
    """
    import torch

    from ddlsim.learning.layout import Layout

    with torch.device("meta"):
        layout = Layout(architecture, build())
    return {part: layout.parts[part].size for part in layout.names}

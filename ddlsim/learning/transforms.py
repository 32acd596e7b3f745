"""Augmentation by transforms that draw from the global random generators, as torchvision's do.

Every step of a training seeds the generators from the training's own stream and restores them afterwards. A transform
of torchvision treats a batch as one image, so samples go through it one by one; a transform that draws nothing takes
the whole batch.
"""

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from ddlsim.foundation.augmentation import callables
from ddlsim.foundation.errors import ScenarioError
from ddlsim.learning.drawing import drawing

_CPU = torch.device("cpu")


class Transforms:
    """The transforms of a scenario, tried on two samples.

    Args:
        augmentation: scenario key training.augmentation, not a built-in one.
        shape: of one sample.
    Raises:
        ScenarioError: if a transform fails, returns no sample of this shape, or draws from its own generator.
        DataMissing: if it is not available in this process.
    """

    def __init__(self, augmentation: Any, shape: Sequence[int]):
        self._steps: list[tuple[Callable[[Any], Any], bool]] = []
        samples = torch.rand(2, *shape, generator=torch.Generator().manual_seed(0))
        for each in callables(augmentation):
            name = getattr(each, "__name__", type(each).__name__)
            first, drawn = self._tried(name, each, samples)
            again, _ = self._tried(name, each, samples)
            if not torch.equal(first, again):
                raise ScenarioError(
                    f"training.augmentation: {name} draws from a generator of its own, so that runs could not be "
                    "repeated. Draw from torch's, numpy's or random's global generator."
                )
            self._steps.append((each, not drawn and self._takes_batches(each, samples, first)))

    def __call__(self, samples: torch.Tensor) -> torch.Tensor:
        """Samples [n, ...] after all transforms, drawn from the global generators."""
        for each, batched in self._steps:
            samples = each(samples) if batched else torch.stack([each(sample) for sample in samples])
        return samples

    def _tried(self, name: str, each: Callable[[Any], Any], samples: torch.Tensor) -> tuple[torch.Tensor, bool]:
        """Return the transform's result for samples from seed 0, and whether it draws."""
        with drawing(0, _CPU):
            before = _states()
            try:
                found = [each(sample.clone()) for sample in samples]
            except Exception as error:  # whatever a transform raises
                raise ScenarioError(
                    f"training.augmentation: {name} cannot take a float tensor {list(samples.shape[1:])} of values 0 "
                    f"to 1: {type(error).__name__}: {' '.join(str(error).split()):.200}"
                ) from error
            drawn = _states() != before
        for one in found:
            if not isinstance(one, torch.Tensor) or one.shape != samples.shape[1:] or one.dtype != samples.dtype:
                got = f"{one.dtype} {list(one.shape)}" if isinstance(one, torch.Tensor) else f"a {type(one).__name__}"
                raise ScenarioError(
                    f"training.augmentation: {name} must return float32 {list(samples.shape[1:])}, as it was given, "
                    f"got {got}."
                )
        return torch.stack(found), drawn

    @staticmethod
    def _takes_batches(each: Callable[[Any], Any], samples: torch.Tensor, expected: torch.Tensor) -> bool:
        try:
            return torch.equal(each(samples.clone()), expected)
        except Exception:  # it takes single samples alone
            return False


class TransformAugmenter:
    """Augments the batches of one training, as augmenting.py: Augmenter does.

    Args:
        transforms: of the scenario.
        mean: per channel, float32 [C]: images come normalized and leave so; transforms see the scale 0..1.
        std: likewise.
        seed: of its stream.
    """

    def __init__(self, transforms: Transforms, mean: torch.Tensor, std: torch.Tensor, seed: int):
        self._transforms, self._mean, self._std = transforms, mean[:, None, None], std[:, None, None]
        self._random = torch.Generator().manual_seed(seed)

    def __call__(self, samples: torch.Tensor, views: int = 1) -> torch.Tensor:
        """Augmented copies [views * n, ...], view after view, of samples [n, ...]."""
        samples = samples.repeat(views, *[1] * (samples.dim() - 1))
        images = samples.dim() == 4  # others are not normalized
        if images:
            samples = samples * self._std + self._mean
        seed = int(torch.randint(2**62, (), generator=self._random))
        with drawing(seed, samples.device):
            found = self._transforms(samples).as_subclass(torch.Tensor)
        return (found - self._mean) / self._std if images else found


def _states() -> tuple[Any, ...]:
    of_numpy = np.random.get_state(legacy=False)
    return torch.get_rng_state().numpy().tobytes(), random.getstate(), repr(of_numpy["state"]), of_numpy["gauss"]

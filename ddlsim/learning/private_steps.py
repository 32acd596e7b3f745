"""DP-SGD (the gradient of each sample is clipped, their sum noised), and the epsilon of releases.

Abadi et al., "Deep Learning with Differential Privacy" (CCS 2016), algorithm 1, as Opacus computes it: batches are
drawn by Poisson sampling (each sample is in a batch with the same chance, so batches differ in size and may be empty),
and the sum is divided by the expected size of a batch. Later steps (proximal term, `clip_norm`, control variates, the
optimizer) use the noised gradient alone, so that epsilon is the one of the gradients.

Epsilon of the Gaussian mechanism is computed by the accountants of Opacus (the extra `privacy`).

RDP: Mironov, "Renyi Differential Privacy" (CSF 2017), subsampled as in Mironov, Talwar, Zhang, "Renyi Differential
Privacy of the Sampled Gaussian Mechanism" (2019). PRV: Gopi, Lee, Wutschitz, "Numerical Composition of Differential
Privacy" (NeurIPS 2021).
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import astuple, dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
import torch
from torch import nn
from torch.func import functional_call, grad, vmap

from ddlsim.foundation.errors import DataMissing
from ddlsim.learning.batches import Batches

Accountant = Literal["rdp", "prv"]


@dataclass(frozen=True)
class Releases:
    """Releases of one kind.

    Args:
        noise: standard deviation of the noise over the sensitivity of the released value; 0: no noise.
        sample_rate: chance that a sample is used (Poisson sampling); 1: all samples are.
        count: number of releases.
    """

    noise: float
    sample_rate: float
    count: int


def need_opacus() -> None:
    """Raise DataMissing if Opacus is not installed; looked up without importing it, which takes seconds."""
    from importlib.util import find_spec

    if find_spec("opacus") is None:
        raise DataMissing("privacy: epsilon needs opacus, which is not installed: pip install 'ddlsim[privacy]'.")


def epsilon(releases: Iterable[Releases], delta: float, accountant: Accountant = "rdp") -> float:
    """Epsilon of releases one after the other, each of which may have seen the ones before.

    Args:
        releases: of one node's data.
        delta: of (epsilon, delta).
        accountant: rdp: an upper bound, quick; prv: numerical, tighter.
    Returns:
        0 without releases; infinity where one of them has no noise.
    Raises:
        DataMissing: if Opacus is not installed.
    """
    known = tuple(one for one in releases if one.count)
    if not known:
        return 0.0
    if any(one.noise <= 0 for one in known):
        return math.inf
    return _of_opacus(known, delta, accountant)


@lru_cache(maxsize=4096)
def _of_opacus(releases: tuple[Releases, ...], delta: float, accountant: Accountant) -> float:
    """Nodes that have done as much have the same epsilon."""
    need_opacus()
    import warnings

    from opacus.accountants import PRVAccountant, RDPAccountant

    made = PRVAccountant() if accountant == "prv" else RDPAccountant()
    made.history = [astuple(one) for one in releases]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # on orders at the end of its range: the bound holds all the same
        return float(made.get_epsilon(delta=delta))


CLIP_EPSILON = 1e-6
"""Added to a norm before division, as Opacus does."""


@dataclass(frozen=True)
class PrivateSteps:
    """Additions of private training to the specification of a training.

    Args:
        clip: L2 norm of a sample's gradient.
        noise_multiplier: standard deviation of the noise of the sum over `clip`.
        expected_batch: samples of a batch in the mean.
        seed: of the noise.
    """

    clip: float
    noise_multiplier: float
    expected_batch: float
    seed: int


def sample_rate(num_samples: int, batch_size: int) -> float:
    """The chance of a sample to be in a batch, so that batches have `batch_size` samples in the mean."""
    return min(1.0, batch_size / num_samples)


def draw_poisson_batches(rng: np.random.Generator, num_samples: int, batch_size: int, count: int) -> Batches:
    """`count` mini-batches of sample indices in which each sample is with the same chance, apart from all others."""
    rate = sample_rate(num_samples, batch_size)
    return Batches.of(np.flatnonzero(rng.random(num_samples) < rate) for _ in range(count))


class PrivateGradients:
    """The noised gradients of one training, batch after batch.

    Args:
        steps: see there.
        module: in training.
        loss: (outputs [1, ...], labels [1, ...]) -> the loss of a sample.
        device: device of the computation, on which noise is drawn.
        at_once: whether the samples of a batch may be computed together; not with dropout, whose masks are drawn step
            by step.
    """

    def __init__(
        self,
        steps: PrivateSteps,
        module: nn.Module,
        loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
        device: torch.device,
        at_once: bool = True,
    ):
        self._steps, self._module, self._loss, self._at_once = steps, module, loss, at_once
        self._generator = torch.Generator(device).manual_seed(steps.seed)

    def __call__(
        self, images: torch.Tensor, labels: torch.Tensor, parameters: Sequence[nn.Parameter]
    ) -> list[torch.Tensor]:
        """The gradient of a batch [b, ...], of any size, for each of the parameters."""
        std = self._steps.noise_multiplier * self._steps.clip
        sums = self._clipped_sums(images, labels, parameters)
        return [
            (own + torch.normal(0.0, std, own.shape, generator=self._generator, device=own.device))
            / self._steps.expected_batch
            for own in sums
        ]

    def _clipped_sums(
        self, images: torch.Tensor, labels: torch.Tensor, parameters: Sequence[nn.Parameter]
    ) -> list[torch.Tensor]:
        if not len(images):
            return [torch.zeros_like(parameter) for parameter in parameters]
        each = self.per_sample(images, labels, parameters)
        norms = torch.stack([gradients.flatten(1).norm(dim=1) for gradients in each], dim=1).norm(dim=1)
        scales = (self._steps.clip / (norms + CLIP_EPSILON)).clamp(max=1.0)
        return [torch.einsum("i,i...", scales, gradients) for gradients in each]

    def per_sample(
        self, images: torch.Tensor, labels: torch.Tensor, parameters: Sequence[nn.Parameter]
    ) -> list[torch.Tensor]:
        """The gradient of every sample, [b, *shape] per parameter."""
        if self._at_once:
            try:
                return self._together(images, labels, parameters)
            except RuntimeError:  # an operator of the module has no rule for batches of models
                self._at_once = False
        each = [
            torch.autograd.grad(
                self._loss(self._module(images[i : i + 1]), labels[i : i + 1]), parameters, materialize_grads=True
            )
            for i in range(len(images))
        ]
        return [torch.stack(gradients) for gradients in zip(*each, strict=True)]

    def _together(
        self, images: torch.Tensor, labels: torch.Tensor, parameters: Sequence[nn.Parameter]
    ) -> list[torch.Tensor]:
        names = {id(one): name for name, one in self._module.named_parameters()}
        values = {names[id(one)]: one.detach() for one in parameters}

        def loss_of(values: dict[str, torch.Tensor], image: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
            return self._loss(functional_call(self._module, values, (image[None],)), label[None])

        found = vmap(grad(loss_of), in_dims=(None, 0, 0))(values, images, labels)
        return [found[names[id(one)]] for one in parameters]

"""DP-SGD: the gradient of each sample is clipped, their sum noised.

Abadi et al., "Deep Learning with Differential Privacy" (CCS 2016), algorithm 1, as Opacus computes it: batches are
drawn by Poisson sampling (each sample is in a batch with the same chance, so batches differ in size and may be empty),
and the sum is divided by the expected size of a batch. Later steps (proximal term, `clip_norm`, control variates, the
optimizer) use the noised gradient alone, so they do not change epsilon.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from ddlsim.learning.training_inputs import Batches

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
        loss: Callable[[Tensor, Tensor], Tensor],
        device: torch.device,
        at_once: bool = True,
    ):
        self._steps, self._module, self._loss, self._at_once = steps, module, loss, at_once
        self._generator = torch.Generator(device).manual_seed(steps.seed)

    def __call__(self, images: Tensor, labels: Tensor, parameters: Sequence[nn.Parameter]) -> list[Tensor]:
        """The gradient of a batch [b, ...], of any size, for each of the parameters."""
        std = self._steps.noise_multiplier * self._steps.clip
        sums = self._clipped_sums(images, labels, parameters)
        return [
            (own + torch.normal(0.0, std, own.shape, generator=self._generator, device=own.device))
            / self._steps.expected_batch
            for own in sums
        ]

    def _clipped_sums(self, images: Tensor, labels: Tensor, parameters: Sequence[nn.Parameter]) -> list[Tensor]:
        if not len(images):
            return [torch.zeros_like(parameter) for parameter in parameters]
        each = self.per_sample(images, labels, parameters)
        norms = torch.stack([gradients.flatten(1).norm(dim=1) for gradients in each], dim=1).norm(dim=1)
        scales = (self._steps.clip / (norms + CLIP_EPSILON)).clamp(max=1.0)
        return [torch.einsum("i,i...", scales, gradients) for gradients in each]

    def per_sample(self, images: Tensor, labels: Tensor, parameters: Sequence[nn.Parameter]) -> list[Tensor]:
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

    def _together(self, images: Tensor, labels: Tensor, parameters: Sequence[nn.Parameter]) -> list[Tensor]:
        names = {id(one): name for name, one in self._module.named_parameters()}
        values = {names[id(one)]: one.detach() for one in parameters}

        def loss_of(values: dict[str, Tensor], image: Tensor, label: Tensor) -> Tensor:
            return self._loss(functional_call(self._module, values, (image[None],)), label[None])

        found = vmap(grad(loss_of), in_dims=(None, 0, 0))(values, images, labels)
        return [found[names[id(one)]] for one in parameters]

"""Parts that algorithms train beside a model's core and head."""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache

import torch
from torch import nn

from ddlsim.errors import ScenarioError


def projection_head(latent: int, hidden: int) -> nn.Module:
    """Two linear layers with BatchNorm and ReLU between, latent -> hidden -> latent (MAPL's code: 512, 4096)."""
    return nn.Sequential(
        nn.Linear(latent, hidden), nn.BatchNorm1d(hidden), nn.ReLU(inplace=True), nn.Linear(hidden, latent)
    )


class Prototypes(nn.Module):
    """One learnable vector per class.

    Args:
        num_classes: C.
        latent: D; values start uniform in +-1/sqrt(D), as a linear layer's weights.
    """

    def __init__(self, num_classes: int, latent: int):
        super().__init__()
        bound = 1 / math.sqrt(latent)
        self.vectors = nn.Parameter(torch.empty(num_classes, latent).uniform_(-bound, bound))


def latent_size(module: nn.Module, image_shape: Sequence[int]) -> int:
    """Number of features that a model's core hands to its head.

    Raises:
        ScenarioError: if they are no vector.
    """
    device = next(module.parameters()).device
    with torch.no_grad():
        features = module.core.eval()(torch.zeros(1, *image_shape, device=device))
    if features.dim() != 2:
        raise ScenarioError(
            f"model: the core's features are {list(features.shape[1:])}, but this algorithm needs a vector. Choose a "
            "model that cuts before its last linear layers (gn_lenet, mlp, resnet18, ...)."
        )
    return features.shape[1]


def with_extra_parts(
    build: Callable[[], nn.Module], make: Callable[[int], Mapping[str, nn.Module]], image_shape: Sequence[int]
) -> Callable[[], nn.Module]:
    """What makes a model with further parts beside core and head.

    Args:
        build: makes the model.
        make: latent size -> the parts by name.
        image_shape: (C, H, W).
    """

    @cache
    def latent() -> int:
        with torch.device("cpu"), torch.random.fork_rng(devices=[]):
            return latent_size(build(), image_shape)

    def extended() -> nn.Module:
        module, parts = build(), make(latent())
        for name, part in parts.items():
            setattr(module, name, part)
        module.extra_parts = tuple(parts)
        return module

    return extended

"""Parts that algorithms train beside a model's core and head."""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache

import torch
from torch import nn

from ddlsim.errors import DdlsimError, ScenarioError
from ddlsim.learning.architecture import cannot_take, draw


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


def latent_size(module: nn.Module, input_shape: Sequence[int], dtype: torch.dtype = torch.float32) -> int:
    """Number of features that a model's core hands to its head.

    Args:
        module: the model.
        input_shape: of one sample, e.g. (C, H, W).
        dtype: of the samples.

    Raises:
        ScenarioError: if they are no vector.
    """
    device = next(module.parameters()).device
    with torch.no_grad():
        features = module.get_submodule("core").eval()(torch.zeros(1, *input_shape, device=device, dtype=dtype))
    if features.dim() != 2:
        raise ScenarioError(
            f"model: the core's features are {list(features.shape[1:])}, but this algorithm needs a vector. Choose a "
            "model that cuts before its last linear layers (gn_lenet, mlp, resnet18, ...)."
        )
    return features.shape[1]


def latent_size_of(
    name: str, build: Callable[[], nn.Module], input_shape: Sequence[int], dtype: torch.dtype
) -> Callable[[], int]:
    """What tells the latent size of a model, which is built and tried on the CPU when it is asked for first.

    Args:
        name: of the model, for messages.
        build: makes it.
        input_shape: of one sample, e.g. (C, H, W).
        dtype: of the samples.
    Returns:
        A function that raises ScenarioError where the model cannot take the samples, and as `latent_size`.
    """

    @cache
    def latent() -> int:
        with torch.device("cpu"):
            (module,) = draw(build, 0)
            try:
                return latent_size(module, input_shape, dtype)
            except DdlsimError:
                raise
            except Exception as error:  # whatever a module of a user's does with samples that it is not made for
                raise cannot_take(name, input_shape, dtype, error) from error

    return latent


def with_extra_parts(
    build: Callable[[], nn.Module], make: Callable[[int], Mapping[str, nn.Module]], latent_size: Callable[[], int]
) -> Callable[[], nn.Module]:
    """What makes a model with further parts beside core and head.

    Args:
        build: makes the model.
        make: latent size -> the parts by name.
        latent_size: of the model.
    """

    def extended() -> nn.Module:
        module, parts = build(), make(latent_size())
        for name, part in parts.items():
            setattr(module, name, part)
        setattr(module, "extra_parts", tuple(parts))  # noqa: B010  (nn.Module types its attributes as modules)
        return module

    return extended

"""Dropout with random numbers of its own, so that a node draws the same masks whichever nodes train beside it.

torch's dropout draws from one generator of the whole process, whose numbers go to whichever thread comes first.
"""

import torch
from torch import nn

from ddlsim.errors import ScenarioError

APART = 0x5DEECE66D
"""Keeps the masks' numbers apart from those of another generator with the job's seed (augmentation)."""


class OwnDropout(nn.Module):
    """What nn.Dropout does, from a generator that belongs to this module.

    Args:
        p: share of values that are set to 0 in training; the others grow by 1 / (1 - p).
        device: where it draws.
    """

    def __init__(self, p: float, device: torch.device):
        super().__init__()
        self.p = p
        self.generator = torch.Generator(device)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """Values with some of them dropped, of the same shape; in eval mode as they are."""
        if not self.training or not self.p:
            return values
        kept = torch.empty_like(values).bernoulli_(1 - self.p, generator=self.generator)
        return values * kept / (1 - self.p)


def draws_noise(module: nn.Module) -> bool:
    """Whether training a module draws random numbers.

    Raises:
        ScenarioError: if it has a kind of dropout whose numbers cannot be made its own.
    """
    found = [child for child in module.modules() if isinstance(child, nn.modules.dropout._DropoutNd)]
    other = [child for child in found if type(child) is not nn.Dropout]
    if other:
        raise ScenarioError(
            f"model: its {type(other[0]).__name__} draws from a generator that all threads share, so no run could "
            "be repeated. Use nn.Dropout in models."
        )
    return any(child.p for child in found)


def own_dropouts(module: nn.Module, device: torch.device) -> list[OwnDropout]:
    """Puts an OwnDropout in the place of every nn.Dropout; returns them in the order of the module."""
    places = [(name, child.p) for name, child in module.named_modules() if type(child) is nn.Dropout]
    made = []
    for name, probability in places:
        made.append(OwnDropout(probability, device))
        module.set_submodule(name, made[-1])
    return made


def seed_dropouts(dropouts: list[OwnDropout], seed: int) -> None:
    """Begins every dropout's numbers anew, each with others.

    Args:
        dropouts: of one module.
        seed: of one training job, 0 to 2^63 - 1.
    """
    for number, dropout in enumerate(dropouts):
        dropout.generator.manual_seed((seed ^ APART) + number)

"""Dropout with random numbers of its own, so that a node draws the same masks whichever nodes train beside it.

torch's dropout draws from one generator of the whole process, whose numbers go to whichever thread comes first. Here
whether a value is kept depends on the training's seed, the number of the dropout in its module, the step and the
value's place alone: a counter, no state. The numbers are those of SplitMix64 (Steele, Lea, Flood, "Fast splittable
pseudorandom number generators", OOPSLA 2014); native plans draw the same masks (csrc/train/dropout.h).
"""

import torch
from torch import nn

from ddlsim.errors import ScenarioError

APART = 0x5DEECE66D
"""Keeps the masks' numbers apart from those of another generator with the job's seed (augmentation)."""

GAMMA = 0x9E3779B97F4A7C15
_FACTORS = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))
_BITS, _WORD = 24, 2**64


class OwnDropout(nn.Module):
    """What nn.Dropout does, with masks by counter.

    Args:
        p: share of values that are set to 0 in training; the others grow by 1 / (1 - p).
    """

    def __init__(self, p: float):
        super().__init__()
        self.p = p
        self.key = 0
        self.step = 0

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """Values with some of them dropped, of the same shape; in eval mode as they are."""
        if not self.training or not self.p:
            return values
        kept = mask(self.p, self.key, self.step, values.numel(), values.device).view(values.shape)
        self.step += 1
        return values * kept / (1 - self.p) if self.p < 1 else values * 0


def mask(p: float, key: int, step: int, count: int, device: torch.device) -> torch.Tensor:
    """Which of `count` values are kept in a step, bool [count]; see dropout.h: Mask."""
    start = _mixed(key + step * GAMMA)
    drawn = torch.arange(1, count + 1, device=device) * _signed(GAMMA) + _signed(start)  # int64 goes round at its end
    for shift, factor in _FACTORS:
        drawn = (drawn ^ _shifted(drawn, shift)) * _signed(factor)
    drawn = drawn ^ _shifted(drawn, 31)
    return _shifted(drawn, 64 - _BITS) < int((1 - p) * 2**_BITS)


def dropout_keys(count: int, seed: int) -> list[int]:
    """The keys of a module's dropouts in a training job.

    Args:
        count: of dropouts.
        seed: of the job, 0 to 2^63 - 1.
    """
    return [_mixed((seed ^ APART) + number) for number in range(count)]


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


def own_dropouts(module: nn.Module) -> list[OwnDropout]:
    """Puts an OwnDropout in the place of every nn.Dropout; returns them in the order of the module."""
    places = [(name, child.p) for name, child in module.named_modules() if type(child) is nn.Dropout]
    made = []
    for name, probability in places:
        made.append(OwnDropout(probability))
        module.set_submodule(name, made[-1])
    return made


def seed_dropouts(dropouts: list[OwnDropout], seed: int) -> None:
    """Begins every dropout's numbers anew, each with others.

    Args:
        dropouts: of one module.
        seed: of one training job, 0 to 2^63 - 1.
    """
    for dropout, key in zip(dropouts, dropout_keys(len(dropouts), seed), strict=True):
        dropout.key, dropout.step = key, 0


def _mixed(value: int) -> int:
    """SplitMix64's output function on 64 bits."""
    value %= _WORD
    for shift, factor in _FACTORS:
        value = (value ^ (value >> shift)) * factor % _WORD
    return value ^ (value >> 31)


def _shifted(values: torch.Tensor, count: int) -> torch.Tensor:
    """Bits of int64 moved to the right, with zeros behind."""
    return (values >> count) & ((1 << (64 - count)) - 1)


def _signed(value: int) -> int:
    """64 bits as int64 has them."""
    return value - _WORD if value >= _WORD // 2 else value

"""Dropout with counter-based random numbers, so that a node draws the same masks whichever nodes train at the same
time.

torch's dropout draws from one generator of the whole process, whose numbers go to whichever thread comes first. Here,
the training's seed, the number of the dropout in its module, the step and the value's place alone decide whether a
value is kept: a counter, no state. The numbers are SplitMix64's (Steele, Lea, Flood, "Fast splittable
pseudorandom number generators", OOPSLA 2014); native plans draw the same masks (csrc/train/dropout.h).

Numbers that a forward draws from torch's generator itself (functional dropout, attention with dropout,
torch.randn_like) cannot be replaced: such trainings are computed one after the other, each with the generator seeded by
its own job.
"""

from collections.abc import Collection
from contextlib import suppress

import torch
from torch import nn

from ddlsim.foundation.errors import ScenarioError
from ddlsim.foundation.torch_state import forked_generators

APART = 0x5DEECE66D
"""Constant that separates the masks' numbers from another generator's with the job's seed (augmentation)."""

GAMMA = 0x9E3779B97F4A7C15
_FACTORS = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))
_BITS, _WORD = 24, 2**64


class CounterDropout(nn.Module):
    """Equivalent of nn.Dropout, with masks by counter.

    The counter is a buffer, so that functional calls (torch.func) can hand in one for each of many models.

    Args:
        p: share of values that are set to 0 in training; the others grow by 1 / (1 - p).
        device: device of the values.
    """

    counter: torch.Tensor
    """int64 []: the key of the training, plus GAMMA for each mask drawn."""

    def __init__(self, p: float, device: torch.device | None = None):
        super().__init__()
        self.p = p
        self.register_buffer("counter", torch.zeros((), dtype=torch.int64, device=device), persistent=False)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """Drop some of the values, of the same shape; in eval mode they are unchanged."""
        if not self.training or not self.p:
            return values
        kept = mask(self.p, self.counter, values.numel()).view(values.shape)
        self.advance()
        return values * kept / (1 - self.p) if self.p < 1 else values * 0

    def advance(self) -> None:
        """Go on to the next mask."""
        self.counter = self.counter + _signed(GAMMA)


def mask(p: float, counter: torch.Tensor, count: int) -> torch.Tensor:
    """Return a mask of kept values, bool [count], from a counter int64 []; see dropout.h: Mask."""
    places = torch.arange(1, count + 1, device=counter.device)
    drawn = _mixed_all(places * _signed(GAMMA) + _mixed_all(counter))  # int64 goes round at its end
    return _shifted(drawn, 64 - _BITS) < int((1 - p) * 2**_BITS)


def dropout_keys(count: int, seed: int, first: int = 0) -> list[int]:
    """The keys of a module's dropouts in a training job.

    Args:
        count: of dropouts.
        seed: of the job, 0 to 2^63 - 1.
        first: number of its first step in the training.
    """
    return [(_mixed((seed ^ APART) + number) + first * GAMMA) % _WORD for number in range(count)]


def draws_noise(module: nn.Module) -> bool:
    """Whether training a module draws random numbers.

    Raises:
        ScenarioError: if it has a kind of dropout whose numbers cannot be made its own.
    """
    found = [child for child in module.modules() if isinstance(child, nn.modules.dropout._DropoutNd)]
    other = [child for child in found if type(child) is not nn.Dropout]
    if other:
        text = f"its {type(other[0]).__name__} draws from a generator that all threads share"
        raise ScenarioError(f"model: {text}. Use nn.Dropout in models.")
    return any(child.p for child in found)


def draws_from_torch(module: nn.Module, inputs: torch.Tensor) -> bool:
    """Whether a forward pass, in the module's current mode, draws from torch's generator other than by its nn.Dropout.

    Args:
        module: on the CPU; its dropouts are replaced, and its buffers may change.
        inputs: samples [n, ...] for it; if it cannot take them, draws up to the error count.
    """
    replace_dropouts(module)
    with torch.no_grad(), forked_generators():
        before = torch.get_rng_state()
        with suppress(Exception):  # its error is reported elsewhere
            module(inputs)
        return not torch.equal(before, torch.get_rng_state())


def replace_dropouts(module: nn.Module, device: torch.device | None = None) -> dict[str, CounterDropout]:
    """Replace every nn.Dropout by a CounterDropout; return them by name, in the order of the module. One that occurs in
    several places becomes several.
    """
    found: dict[tuple[int, str], tuple[str, float]] = {}  # by its owner, which may itself occur in several places
    for name, child in module.named_modules(remove_duplicate=False):
        if type(child) is nn.Dropout:
            holder, _, key = name.rpartition(".")
            found.setdefault((id(module.get_submodule(holder)), key), (name, child.p))
    made = {name: CounterDropout(probability, device) for name, probability in found.values()}
    for name, dropout in made.items():
        module.set_submodule(name, dropout)
    return made


def first_counters(count: int, seed: int, first: int = 0) -> list[int]:
    """The counters of a module's dropouts at the start of a training job: its keys, as int64 has them."""
    return [_signed(key) for key in dropout_keys(count, seed, first)]


def seed_dropouts(dropouts: Collection[CounterDropout], seed: int, first: int = 0) -> None:
    """Restart the random numbers of every dropout, with different numbers for each.

    Args:
        dropouts: of one module.
        seed: of one training job, 0 to 2^63 - 1.
        first: number of its first step in the training.
    """
    for dropout, counter in zip(dropouts, first_counters(len(dropouts), seed, first), strict=True):
        dropout.counter.fill_(counter)


def _mixed(value: int) -> int:
    """SplitMix64's output function on 64 bits."""
    value %= _WORD
    for shift, factor in _FACTORS:
        value = (value ^ (value >> shift)) * factor % _WORD
    return value ^ (value >> 31)


def _mixed_all(values: torch.Tensor) -> torch.Tensor:
    """Return SplitMix64's output function of every value of an int64 tensor."""
    for shift, factor in _FACTORS:
        values = (values ^ _shifted(values, shift)) * _signed(factor)
    return values ^ _shifted(values, 31)


def _shifted(values: torch.Tensor, count: int) -> torch.Tensor:
    """Shift the bits of int64 to the right, filling with zeros."""
    return (values >> count) & ((1 << (64 - count)) - 1)


def _signed(value: int) -> int:
    """64 bits as int64 has them."""
    return value - _WORD if value >= _WORD // 2 else value

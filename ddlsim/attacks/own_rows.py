"""Attacks that need nothing but what the node has made itself: sign flip, noise, model replacement.

Sources: sign flip and noise as in Li, Xu, Chen, Giannakis, Ling, "RSA: Byzantine-robust stochastic aggregation
methods", AAAI 2019; Bagdasaryan, Veit, Hua, Estrin, Shmatikov, "How to backdoor federated learning", AISTATS 2020
(model replacement, equation 3). An update is what the node's last training has changed; what the node has not trained
itself (another head, a vector, a model that it has merged since, as in a final all-reduce) is sent as if its training
had begun with zeros.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from annotated_types import Gt, Le

from ddlsim.attacks.base import Attack, Seen

if TYPE_CHECKING:
    import torch

Scale = Annotated[float, Gt(0), Le(1e6)]


@dataclass(frozen=True, kw_only=True)
class SignFlip(Attack):
    """Sends the opposite of what it has learned.

    Args:
        of: update: the step that training has made is turned round; model: all parameters are.
        scale: how much longer the turned vector is.
    """

    forges: ClassVar[bool] = True
    compares_updates: ClassVar[bool] = True
    of: Literal["update", "model"] = "update"
    scale: Scale = 1.0

    def forge(self, seen: Seen) -> "torch.Tensor":
        if self.of == "model" or seen.start is None:
            return seen.own * -self.scale
        return seen.start - self.scale * (seen.own - seen.start)


@dataclass(frozen=True, kw_only=True)
class GaussianNoise(Attack):
    """Adds Gaussian noise to what it sends.

    Args:
        scale: the noise's standard deviation, as a multiple of that of the parameters sent.
    """

    forges: ClassVar[bool] = True
    scale: Scale = 1.0

    def forge(self, seen: Seen) -> "torch.Tensor":
        return seen.own + noise_like(seen, self.scale)


@dataclass(frozen=True, kw_only=True)
class ModelReplacement(Attack):
    """Sends its update many times as long, so that it outweighs those of others in an average.

    Args:
        boost: gamma: how many times.
    """

    forges: ClassVar[bool] = True
    compares_updates: ClassVar[bool] = True
    boost: Scale = 10.0

    def forge(self, seen: Seen) -> "torch.Tensor":
        if seen.start is None:
            return seen.own * self.boost
        return seen.start + self.boost * (seen.own - seen.start)


def noise_like(seen: Seen, scale: float) -> "torch.Tensor":
    """Gaussian noise [P] of `scale` times the standard deviation of the node's own row."""
    import torch

    generator = torch.Generator().manual_seed(seen.seed)
    size = scale * float(seen.own.double().std(correction=0)) if seen.own.numel() else 0.0
    return size * torch.randn(seen.own.shape, generator=generator).to(seen.own.device)

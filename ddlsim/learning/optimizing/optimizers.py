"""Optimizers as parts of a scenario: frozen dataclasses whose fields are keywords of a class of torch.optim.

The three that have fast ways of their own (native plans, kept moments as flat rows) are written out here, so that a
scenario with them is checked without importing torch; all others are read off their class, see table.py.
"""

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from annotated_types import Ge, Gt, Le, Lt

from ddlsim.part import Part

if TYPE_CHECKING:
    import torch

Share = Annotated[float, Ge(0), Lt(1)]


@dataclass(frozen=True, kw_only=True)
class Optimizer(Part):
    """A rule that changes parameters by their gradients; the learning rate is the section's own key."""

    by_value: ClassVar[bool] = False
    """Whether every value is updated by itself, so that many models can be updated as one matrix."""

    @property
    def name(self) -> str:
        """For messages."""
        return type(self).__name__

    @property
    def moments(self) -> tuple[str, ...] | None:
        """Names, in torch's state, of the tensors like the parameter that it remembers beside a count of steps; None:
        it remembers other things, see state.py.
        """
        return None

    @property
    def decays(self) -> bool:
        """Whether it has a weight decay."""
        return any(field.name == "weight_decay" for field in dataclasses.fields(self))

    @property
    def why_not_native(self) -> str:
        """Why native plans do not have it; empty: they do."""
        return f"the optimizer is {self.name}"

    def torch_class(self) -> "Callable[..., torch.optim.Optimizer]":
        """The class that it stands for."""
        raise NotImplementedError

    def make(self, parameters: "Iterable[torch.Tensor] | list[dict[str, Any]]", rate: float) -> "torch.optim.Optimizer":
        """An optimizer of tensors, or of groups of them, that begins afresh."""
        keys = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return self.torch_class()(parameters, lr=rate, **keys)


@dataclass(frozen=True, kw_only=True)
class SGD(Optimizer):
    """Stochastic gradient descent, with momentum if wanted (torch.optim.SGD).

    Args:
        momentum: 0 up to below 1.
        dampening: share of a gradient that the momentum does not take up, 0 to 1.
        nesterov: whether the gradient is taken where momentum would lead; needs momentum and no dampening.
        weight_decay: 0 or more.
    """

    by_value = True
    momentum: Share = 0.0
    dampening: Annotated[float, Ge(0), Le(1)] = 0.0
    nesterov: bool = False
    weight_decay: Annotated[float, Ge(0), Le(1e30)] = 0.0

    def __post_init__(self) -> None:
        if self.nesterov and (not self.momentum or self.dampening):
            raise ValueError("nesterov needs momentum above 0 and no dampening")

    def idle(self, rounds: int) -> Iterator[tuple[str, str]]:
        """See Part."""
        if not self.momentum:
            yield "dampening", "momentum is 0"

    @property
    def moments(self) -> tuple[str, ...] | None:
        if self.momentum and self.dampening:
            return None  # torch takes the first gradient as it is, and of the next ones a share
        return ("momentum_buffer",) if self.momentum else ()

    @property
    def why_not_native(self) -> str:
        return "the momentum is damped or Nesterov's" if self.dampening or self.nesterov else ""

    def torch_class(self) -> "Callable[..., torch.optim.Optimizer]":
        import torch

        return torch.optim.SGD


@dataclass(frozen=True, kw_only=True)
class Adam(Optimizer):
    """Adaptive moments; its weight decay is part of the gradient (torch.optim.Adam).

    Args:
        betas: decay rates of its two moments, each 0 up to below 1.
        eps: added to the root of the second moment, above 0.
        weight_decay: 0 or more.
        amsgrad: whether the largest second moment so far is taken (Reddi et al. 2018).
        decoupled_weight_decay: whether the decay acts on the weights alone, as in AdamW.
    """

    by_value = True
    betas: tuple[Share, Share] = (0.9, 0.999)
    eps: Annotated[float, Gt(0), Le(1e30)] = 1e-8
    weight_decay: Annotated[float, Ge(0), Le(1e30)] = 0.0
    amsgrad: bool = False
    decoupled_weight_decay: bool = False

    @property
    def moments(self) -> tuple[str, ...] | None:
        return None if self.amsgrad else ("exp_avg", "exp_avg_sq")

    @property
    def why_not_native(self) -> str:
        return "the optimizer takes the largest moment so far (amsgrad)" if self.amsgrad else ""

    def torch_class(self) -> "Callable[..., torch.optim.Optimizer]":
        import torch

        return torch.optim.Adam


@dataclass(frozen=True, kw_only=True)
class AdamW(Optimizer):
    """Adam whose weight decay acts on the weights alone (Loshchilov, Hutter, ICLR 2019; torch.optim.AdamW).

    Args:
        betas: decay rates of its two moments, each 0 up to below 1.
        eps: added to the root of the second moment, above 0.
        weight_decay: 0 or more; a step takes learning rate times this share off the weights.
        amsgrad: whether the largest second moment so far is taken (Reddi et al. 2018).
    """

    by_value = True
    betas: tuple[Share, Share] = (0.9, 0.999)
    eps: Annotated[float, Gt(0), Le(1e30)] = 1e-8
    weight_decay: Annotated[float, Ge(0), Le(1e30)] = 0.01
    amsgrad: bool = False

    moments = Adam.moments
    why_not_native = Adam.why_not_native

    def torch_class(self) -> "Callable[..., torch.optim.Optimizer]":
        import torch

        return torch.optim.AdamW

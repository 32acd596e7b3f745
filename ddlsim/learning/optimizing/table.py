"""The table of optimizers: torch.optim's by name, and user-defined classes.

A class's signature is its schema: each keyword except the parameters and `lr` is a key, with torch's default, and the
class itself checks the values. Keywords that choose torch's implementation (foreach, fused, ...), not the result, are
left out. Classes that need more than a gradient per parameter (LBFGS: a loss that it calls again; SparseAdam: sparse
gradients) are not available in a scenario.

Optimizers as parts of a scenario: frozen dataclasses whose fields are keywords of a class of torch.optim.

The three optimizers with fast implementations (native plans, kept moments as flat rows), and Muon, which needs another
one, are written out here, so that a scenario with them is checked without importing torch; all others are read from
their class.
"""

import dataclasses
import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, cast, get_args

from annotated_types import Ge, Gt, Le, Lt

from ddlsim.foundation import own_code, sources
from ddlsim.foundation.errors import ScenarioError, cause_of
from ddlsim.foundation.registry import Part, Registry

if TYPE_CHECKING:
    import torch

    Parameters = Sequence[torch.Tensor] | Sequence[dict[str, Any]]


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
        """Names, in torch's state, of the tensors with the parameter's shape that it stores in addition to a count of
        steps; None if it stores other values, see state.py.
        """
        return None

    @property
    def decays(self) -> bool:
        """Whether it has a weight decay."""
        return any(field.name == "weight_decay" for field in dataclasses.fields(self))

    def torch_class(self) -> "Callable[..., torch.optim.Optimizer]":
        """The corresponding torch class."""
        import torch

        return getattr(torch.optim, type(self).__name__)

    def make(self, parameters: "Parameters", rate: float, hidden: "Parameters" = ()) -> "torch.optim.Optimizer":
        """Return a fresh optimizer of tensors, or of groups of them; `hidden` are the matrices between the embeddings
        and the head.
        """
        keys = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return self.torch_class()(parameters, lr=rate, **keys)


@dataclass(frozen=True, kw_only=True)
class SGD(Optimizer):
    """Stochastic gradient descent with optional momentum (torch.optim.SGD).

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

    def unused_keys(self, rounds: int) -> Iterator[tuple[str, str]]:
        if not self.momentum:
            yield "dampening", "momentum is 0"

    @property
    def moments(self) -> tuple[str, ...] | None:
        if self.momentum and self.dampening:
            return None  # torch uses the first gradient whole, and a share of the next ones
        return ("momentum_buffer",) if self.momentum else ()


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


@dataclass(frozen=True, kw_only=True)
class Muon(Optimizer):
    """Orthogonalized momentum for hidden matrices (Jordan et al. 2024; torch.optim.Muon), and AdamW for the rest.

    The rest are embeddings, the model's head, vectors, and tensors of more than two dimensions.

    Args:
        momentum: 0 up to below 1.
        nesterov: whether the matrix to orthogonalize is the momentum after the next step.
        ns_coefficients: of the iterations of Newton and Schulz, which orthogonalize.
        eps: lower bound of a matrix's norm, by which it is divided first.
        ns_steps: number of iterations.
        adjust_lr_fn: factor of a matrix's learning rate: original (null): sqrt(max(1, rows / columns));
            match_rms_adamw: 0.2 sqrt(max(rows, columns)).
        weight_decay: 0 or more, for all parameters; see training.weight_decay_on.
        adamw_rate: learning rate of AdamW, which a schedule changes like training.learning_rate; null: the latter.
        betas: decay rates of AdamW's two moments, each 0 up to below 1.
    """

    momentum: Share = 0.95
    nesterov: bool = True
    ns_coefficients: tuple[float, float, float] = (3.4445, -4.775, 2.0315)
    eps: Annotated[float, Gt(0), Le(1)] = 1e-7
    ns_steps: Annotated[int, Ge(1), Lt(100)] = 5
    adjust_lr_fn: Literal["original", "match_rms_adamw"] | None = None
    weight_decay: Annotated[float, Ge(0), Le(1e30)] = 0.1
    adamw_rate: Annotated[float, Gt(0), Le(1e30)] | None = None
    betas: tuple[Share, Share] = (0.9, 0.999)

    def make(self, parameters: "Parameters", rate: float, hidden: "Parameters" = ()) -> "torch.optim.Optimizer":
        import torch

        of_adamw, places = {"adamw_rate", "betas"}, {id(each) for each in hidden}
        keys = {key.name: getattr(self, key.name) for key in dataclasses.fields(self) if key.name not in of_adamw}
        groups: Any = parameters if isinstance(parameters[0], dict) else [{"params": parameters}]

        def those(inside: bool) -> list[dict[str, Any]]:
            split = ({**each, "params": [p for p in each["params"] if (id(p) in places) == inside]} for each in groups)
            return [each for each in split if each["params"]]

        found: list[torch.optim.Optimizer] = []
        if matrices := those(True):
            found.append(torch.optim.Muon(matrices, lr=rate, **keys))
        if others := those(False):
            rate, decay = self.adamw_rate or rate, self.weight_decay
            found.append(torch.optim.AdamW(others, lr=rate, betas=self.betas, weight_decay=decay))
        for each in found:
            each.state = found[0].state
        together = SimpleNamespace(
            param_groups=[group for each in found for group in each.param_groups],
            state=found[0].state,
            step=lambda: [each.step() for each in found],
            zero_grad=lambda: [each.zero_grad() for each in found],
        )
        return cast("torch.optim.Optimizer", together)


NOT_KEYS = {"self", "params", "lr", "foreach", "fused", "capturable", "differentiable", "maximize"}
LEFT_OUT = {"LBFGS": "calls the loss several times a step", "SparseAdam": "takes sparse gradients alone"}

BY_VALUE = {"Adadelta", "Adagrad", "Adamax", "ASGD", "NAdam", "RAdam", "RMSprop", "Rprop"}
"""Classes of torch.optim that update every value by itself."""


class OptimizerTable(Registry):
    """Registry of optimizers; names are torch's in any case (`adamw`, `AdamW`)."""

    def __getitem__(self, name: str) -> type[Optimizer]:
        if own_code.is_place(name):
            return _checked(own_code.short(name), own_code.load_class(name))
        if not isinstance(name, str):
            raise KeyError(name)
        if name.lower() in self._entries:
            return self._load(self._entries[name.lower()])
        if name in self._given:
            return self._given[name]
        if name in self._plugins:
            return _checked(name, self._plugins[name].load())
        found = _of_torch()
        if name.lower() not in found:
            why = next((why for left, why in LEFT_OUT.items() if left.lower() == name.lower()), None)
            if why:
                raise ScenarioError(f"{name} {why}, which local training does not offer. Choose another optimizer.")
            raise KeyError(name)
        return part_of(found[name.lower()])

    def meant(self, name: str) -> str:
        return name if own_code.is_place(name) or name in self._given else name.lower()

    def __iter__(self) -> Iterator[str]:
        names = [*self._entries, *self._plugins, *_of_torch()]
        return iter(dict.fromkeys(names))

    def register_class(self, cls: type) -> str:
        """Register a torch.optim.Optimizer class."""
        made = cls if issubclass(cls, Optimizer) else _checked(cls.__name__, cls)
        found = self._known_name(made)
        if found is None:
            found = cls.__name__ if cls.__name__.lower() not in _of_torch() else f"{cls.__module__}.{cls.__qualname__}"
            self._given[found] = made
        return found

    def origin_of(self, name: str) -> str:
        return "torch.optim" if name not in self._entries and name in _of_torch() else super().origin_of(name)

    def about(self, part: object) -> dict[str, Any] | None:
        assert isinstance(part, Optimizer)
        name = self.name_of(part)
        if name in self._entries or name in _of_torch():
            return None
        return {"kind": self.kind, "name": name, **sources.about(_class_of(type(part)))}

    def _known_name(self, cls: type) -> str | None:
        own = {self._load(place): name for name, place in self._entries.items()}
        if cls in own:
            return own[cls]
        torch_class = _class_of(cls)
        place = own_code.place_of(torch_class)
        if place:
            return place
        given = next((name for name, known in self._given.items() if known is cls), None)
        return given or next((name for name, known in _of_torch().items() if known is torch_class), None)


@cache
def _of_torch() -> dict[str, Any]:
    """The optimizers of torch.optim by their names in lower case."""
    import torch

    each = ((name, getattr(torch.optim, name)) for name in dir(torch.optim))
    return {
        name.lower(): found
        for name, found in each
        if isinstance(found, type) and issubclass(found, torch.optim.Optimizer) and found is not torch.optim.Optimizer
        if name not in LEFT_OUT
    }


def _checked(name: str, cls: Any) -> type[Optimizer]:
    """Return a part for a user-defined class.

    Raises:
        ScenarioError: if it is not an optimizer, or takes no parameters and learning rate.
    """
    import torch

    if not issubclass(cls, torch.optim.Optimizer):
        raise ScenarioError(f"optimizer {name!r}: {cls.__qualname__} must extend torch.optim.Optimizer.")
    keywords = inspect.signature(cls).parameters
    if "lr" not in keywords or "params" not in keywords:
        text = f"must take `params` and `lr`, it takes {', '.join(keywords) or 'nothing'}"
        raise ScenarioError(f"optimizer {name!r}: {cls.__qualname__}.__init__ {text}.")
    return part_of(cls)


@cache
def part_of(torch_class: Any) -> type[Optimizer]:
    """Return the part for an optimizer class."""
    fields: list[Any] = []
    for key, keyword in inspect.signature(torch_class).parameters.items():
        if key in NOT_KEYS or keyword.kind in (keyword.VAR_POSITIONAL, keyword.VAR_KEYWORD):
            continue
        default = list(keyword.default) if isinstance(keyword.default, list) else keyword.default
        if default is keyword.empty:
            fields.append((key, Any))
        elif isinstance(default, list):
            fields.append((key, list, dataclasses.field(default_factory=partial(list, default))))
        else:
            kind = _type_of(keyword)
            if kind is float:
                default = float(default)
            elif isinstance(default, tuple):
                default = tuple(float(value) if isinstance(value, int) else value for value in default)
            fields.append((key, kind, dataclasses.field(default=default)))
    is_torch = torch_class.__module__.startswith("torch.")
    about = f"{'torch.optim.' if is_torch else ''}{torch_class.__name__}"
    namespace = {
        "__doc__": f"{about}; keys and defaults are the class's.",
        "__post_init__": _try,
        "torch_class": lambda _: torch_class,
        "by_value": torch_class.__module__.startswith("torch.") and torch_class.__name__ in BY_VALUE,
        "__module__": torch_class.__module__,
    }
    return dataclasses.make_dataclass(
        torch_class.__name__, fields, bases=(Optimizer,), frozen=True, kw_only=True, namespace=namespace
    )


def _class_of(cls: Any) -> Any:
    """Return the optimizer class of a part."""
    return cls.torch_class(None)


def _type_of(keyword: inspect.Parameter) -> Any:
    """Return the type of a key's value: its default's; floats also accept whole numbers."""
    default = keyword.default
    if isinstance(default, bool):
        return bool
    if isinstance(default, int | float):
        whole = isinstance(default, int) and (keyword.annotation is int or keyword.annotation is keyword.empty)
        return (int | float if keyword.annotation is keyword.empty else int) if whole else float
    if isinstance(default, tuple):
        return tuple[tuple(float | None if value is None else float for value in default)]  # type: ignore[misc]
    if isinstance(default, str):
        return str
    if type(None) in get_args(keyword.annotation):
        named = [each for each in get_args(keyword.annotation) if each in (bool, int, float, str)]
        if named:
            return named[0] | None
    return Any


def _try(self: Optimizer) -> None:
    """Let the class itself check the values.

    Raises:
        ScenarioError: with the message of the class.
    """
    import torch

    try:
        self.make([torch.zeros(2, 2, requires_grad=True)], 0.1)
    except Exception as error:  # any error of a user's class
        raise ScenarioError(f"{self.name} refuses these keys: {cause_of(error)}") from error

"""FedAvgM, FedAdam, FedYogi, FedAdagrad: the server takes a step of an optimizer along the nodes' mean change.

Source: Reddi, Charles, Zaheer, Garrett, Rush, Konecny, Kumar, McMahan, "Adaptive federated optimization", ICLR 2021,
Algorithm 2. With the changes D_i = x_i - x of the nodes in S from the server's model x,

    D = beta_1 D + (1 - beta_1) mean_S D_i,    x := x + eta D / (sqrt(v) + tau),

where v starts at tau^2, and is v + D^2 (Adagrad), v - (1 - beta_2) D^2 sign(v - D^2) (Yogi), or beta_2 v +
(1 - beta_2) D^2 (Adam). As in the paper, v has no correction of its bias.

FedAvgM: Hsu, Qi, Brown, "Measuring the effects of non-identical data distribution for federated visual classification",
2019: D = beta D + mean_S D_i, x := x + eta D. With beta = 0 and eta = 1 it is FedAvg.

The mean is FedAvg's, by samples unless `weights` is uniform, which is the paper's Algorithm 2. Buffers (BatchNorm
statistics) are averaged, not stepped. Offline and late nodes are as in fedavg.py.
"""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from annotated_types import Ge, Gt, Le, Lt

from ddlsim.algorithms.rounds import merge_known
from ddlsim.algorithms.server import fedavg
from ddlsim.node.node import Message, Node, Params

if TYPE_CHECKING:
    import torch

Beta = Annotated[float, Ge(0), Lt(1)]
Rate = Annotated[float, Gt(0), Le(1000)]


@dataclass
class State(fedavg.State):
    """A node's memory, or the server's.

    Args:
        change: D; None: 0.
        second: v; None: tau^2.
    """

    change: Params | None = None
    second: Params | None = None


@dataclass(frozen=True, kw_only=True)
class FedOpt(fedavg.FedAvg):
    """Base of the methods: FedAvg whose server steps towards the average."""

    state_type: ClassVar[type[fedavg.State]] = State
    server_steps_from_model: ClassVar[bool] = True

    def server_update(self, node: Node, state: Any, inbox: Sequence[Message]) -> None:
        before = node.trained_values(state.model[0])
        super().server_update(node, state, inbox)
        average = state.model[0]
        mean_change = node.merge([node.trained_values(average), before], [1.0, -1.0])
        state.average = node.with_trained_values(average, self.step(node, state, before, mean_change))
        state.model = (state.average,)

    @abstractmethod
    def step(self, node: Node, state: State, values: Params, mean_change: Params) -> Params:
        """Return the server's next trained values."""


@dataclass(frozen=True, kw_only=True)
class FedAvgM(FedOpt):
    """Federated averaging with momentum on the server.

    Args:
        server_rate: eta.
        server_momentum: beta.
    """

    server_rate: Rate = 1.0
    server_momentum: Beta = 0.9

    def step(self, node: Node, state: State, values: Params, mean_change: Params) -> Params:
        state.change = merge_known(node, [state.change, mean_change], [self.server_momentum, 1.0])
        return node.merge([values, state.change], [1.0, self.server_rate])


@dataclass(frozen=True, kw_only=True)
class Adaptive(FedOpt):
    """Base of the adaptive methods.

    Args:
        server_rate: eta.
        beta1: weight of the previous change in the next one.
        tau: adaptivity, above 0: the smaller it is, the more the values' steps become alike.
    """

    server_rate: Rate = 0.01
    beta1: Beta = 0.9
    tau: Annotated[float, Gt(0), Le(1000)] = 1e-3

    def step(self, node: Node, state: State, values: Params, mean_change: Params) -> Params:
        if state.change is None or state.second is None:
            state.change = node.merge([mean_change], [1 - self.beta1])
            state.second = node.apply(partial(_constant, value=self.tau**2), mean_change)
        else:
            state.change = node.merge([state.change, mean_change], [self.beta1, 1 - self.beta1])
        state.second = node.apply(self.second_moment, state.second, state.change)
        return node.apply(self.stepped, values, state.change, state.second)

    @abstractmethod
    def second_moment(self, v: "torch.Tensor", change: "torch.Tensor") -> "torch.Tensor":
        """Return the next v."""

    def stepped(self, x: "torch.Tensor", change: "torch.Tensor", v: "torch.Tensor") -> "torch.Tensor":
        """Return the next x."""
        return x + self.server_rate * change / (v.sqrt() + self.tau)


@dataclass(frozen=True, kw_only=True)
class FedAdagrad(Adaptive):
    """Adagrad on the server.

    Args:
        beta1: weight of the previous change in the next one; the paper's FedAdagrad has 0.
    """

    beta1: Beta = 0.0

    def second_moment(self, v: "torch.Tensor", change: "torch.Tensor") -> "torch.Tensor":
        return v + change**2


@dataclass(frozen=True, kw_only=True)
class FedAdam(Adaptive):
    """Adam on the server.

    Args:
        beta2: weight of the previous v in the next one.
    """

    beta2: Beta = 0.99

    def second_moment(self, v: "torch.Tensor", change: "torch.Tensor") -> "torch.Tensor":
        return self.beta2 * v + (1 - self.beta2) * change**2


@dataclass(frozen=True, kw_only=True)
class FedYogi(Adaptive):
    """Yogi on the server.

    Args:
        beta2: 1 minus the weight of the new square in v.
    """

    beta2: Beta = 0.99

    def second_moment(self, v: "torch.Tensor", change: "torch.Tensor") -> "torch.Tensor":
        square = change**2
        return v - (1 - self.beta2) * square * (v - square).sign()


def _constant(like: "torch.Tensor", value: float) -> "torch.Tensor":
    return like.new_full(like.shape, value)

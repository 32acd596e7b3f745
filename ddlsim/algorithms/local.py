"""Local: every node trains alone. The baseline of those who do not talk. Who is away does not train."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from ddlsim.algorithms.base import Algorithm
from ddlsim.evaluation.candidates import Serving

if TYPE_CHECKING:
    from ddlsim.learning.bank import Params
    from ddlsim.node.node import Node, Steps


@dataclass
class State:
    """A node's memory: its model."""

    model: "Params"


@dataclass(frozen=True, kw_only=True)
class Local(Algorithm):
    """No communication at all.

    Args:
        init: whether nodes start from the same model (`shared`) or each from its own.
    """

    exchanges: ClassVar[Literal["models", "vectors", "nothing"]] = "nothing"

    init: Literal["own", "shared"] = "shared"

    def start(self, node: "Node") -> State:
        ((model,),) = node.init_models(whole=True, own=self.init == "own")
        return State(model)

    def round(self, node: "Node", state: State, round_num: int) -> "Steps":
        (state.model,) = yield node.train((state.model,))

    def serving(self, node: "Node", state: State) -> Serving:
        return Serving([(state.model,)])

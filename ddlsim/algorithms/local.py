"""Local: every node trains alone. The baseline of those who do not talk. Who is away does not train."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from ddlsim.engine.evaluation import Serving

if TYPE_CHECKING:
    from ddlsim.engine.node import Node
    from ddlsim.engine.simulation import Steps
    from ddlsim.learning.bank import Params


@dataclass
class State:
    """A node's memory: its model."""

    model: "Params"


@dataclass(frozen=True, kw_only=True)
class Local:
    """No communication at all.

    Args:
        init: whether nodes start from the same model (`shared`) or each from its own.
    """

    init: Literal["own", "shared"] = "shared"

    def start(self, node: "Node") -> State:
        ((model,),) = node.init_models(whole=True, own=self.init == "own")
        return State(model)

    def round(self, node: "Node", state: State, round_num: int) -> "Steps":
        (state.model,) = yield node.train((state.model,))

    def serving(self, node: "Node", state: State) -> Serving:
        return Serving([(state.model,)])

"""DePRL: a shared core learned by consensus, a head that is never merged with other nodes.

Source: Xiong, Yan, Wang, Li, "DePRL: Achieving Linear Convergence Speedup in Personalized Decentralized Learning with
Shared Representations", AAAI 2024, as the FACADE paper's code ran it: `steps` mode trains the head with the core frozen
for the local steps, then the core with the head frozen for one; `epochs` mode does one pass over the data each (the
published CIFAR-10 setting, with batches of 100). The whole model travels, only cores are merged, with
Metropolis-Hastings weights, which on a regular graph are the plain mean. The DePRL paper's topology is static, FACADE's
code uses a new graph each round; the scenario's topology chooses. Weights of peers that are offline, or whose message
is lost or too late, are added to the weight of the node's core.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from ddlsim.algorithms.base import GraphKind, Graphs
from ddlsim.algorithms.rounds import WithFinalAllReduce
from ddlsim.foundation.units import StepCount
from ddlsim.node.candidates import EvaluationCandidates
from ddlsim.node.node import Message, Node, Params, Steps


@dataclass
class State:
    """A node's memory: its core and its personal head."""

    core: Params
    head: Params


@dataclass(frozen=True, kw_only=True)
class DePRL(WithFinalAllReduce):
    """Personalized heads over a core learned by consensus.

    Args:
        local_training: `steps` (training.local_steps for the head, core_steps for the core) or `epochs` (one each).
        core_steps: mini-batches that train the core, in `steps`.
    """

    expects_graph: ClassVar[GraphKind] = "static"
    graphs: ClassVar[Graphs] = "balanced"
    may_change: ClassVar[frozenset[str]] = frozenset({"core_steps", "local_training"})
    needs_core: ClassVar[bool] = True
    needs_only_sums: ClassVar[bool] = True
    local_training: Literal["steps", "epochs"] = "steps"
    core_steps: StepCount = 1

    def unused_keys(self, rounds: int) -> Iterator[tuple[str, str]]:
        if self.local_training == "epochs":
            yield "core_steps", "local_training is epochs"

    def start(self, node: Node) -> State:
        ((core, head),) = node.init_models()
        return State(core, head)

    def round(self, node: Node, state: State, round_num: int) -> Steps:
        head_steps, core_steps = node.local_steps, self.core_steps
        if self.local_training == "epochs":
            head_steps = core_steps = node.steps_per_epoch
        both = node.rounds * (head_steps + core_steps)
        _, state.head = yield node.train((state.core, state.head), head_steps, only="head", steps_of_run=both)
        state.core, _ = yield node.train((state.core, state.head), core_steps, only="core", steps_of_run=both)
        node.send(node.peers(round_num), round_num, core=state.core, head=state.head)
        inbox = yield node.receive(round_num)
        state.core = node.mix(state.core, {m.src: m.payload["core"] for m in inbox}, round_num)

    def final_contents(self, state: State) -> dict[str, Any]:
        return {"core": state.core, "head": state.head}

    def merge_final(self, node: Node, state: State, inbox: Sequence[Message]) -> None:
        state.core = node.average(state.core, {m.src: m.payload["core"] for m in inbox})

    def serving(self, node: Node, state: State) -> EvaluationCandidates:
        return EvaluationCandidates([(state.core, state.head)])

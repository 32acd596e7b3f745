"""FedPer and FedRep: a server averages cores; nodes keep their heads.

Sources: Arivazhagan, Aggarwal, Singh, Choudhary, "Federated learning with personalization layers", 2019 (FedPer: core
and head are trained together); Collins, Hassani, Mokhtari, Shakkottai, "Exploiting shared representations for
personalized federated learning", ICML 2021, Algorithm 1 (FedRep: first the head with the core frozen, then the core
with the head frozen). The mean is weighted by samples, as in FedPer; FedRep's analysis has equal numbers of samples.
Evaluations test a node's head with the core that it received last. The mean leaves out offline nodes, which keep their
heads. `deprl` is FedRep without a server.
"""

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from annotated_types import Ge

from ddlsim.algorithms.rounds import ServerRounds, ServerState
from ddlsim.node.node import Message, Node, Params, Verb


@dataclass
class State(ServerState):
    """A node's memory: its model in parts; the server's: the mean core."""

    mean: Params | None = None


@dataclass(frozen=True, kw_only=True)
class FedPer(ServerRounds):
    """Personal heads on a core that a server averages; both are trained together."""

    state_type: ClassVar[type[ServerState]] = State
    needs_core: ClassVar[bool] = True
    needs_only_sums: ClassVar[bool] = True
    one_start: ClassVar[bool] = True
    tests_server_model: ClassVar[bool] = False

    def local_update(self, node: Node, state: State) -> Generator[Verb, Any, dict[str, Any]]:
        state.model = yield node.train(state.model)
        return {"core": state.model[0], "samples": node.num_samples}

    def server_update(self, node: Node, state: State, inbox: Sequence[Message]) -> None:
        total = sum(m.payload["samples"] for m in inbox)
        cores = {m.src: m.payload["core"] for m in inbox}
        state.mean = node.aggregate(cores, {m.src: m.payload["samples"] / total for m in inbox})

    def server_result(self, state: State) -> dict[str, Any]:
        return {} if state.mean is None else {"core": state.mean}

    def apply_result(self, state: State, result: Mapping[str, Any]) -> None:
        state.model = result["core"], *state.model[1:]


@dataclass(frozen=True, kw_only=True)
class FedRep(FedPer):
    """Personal heads on a core that a server averages; heads are trained first.

    Args:
        head_steps: mini-batches of a round for the head; null: as many as for the core, training.local_steps.
    """

    head_steps: Annotated[int, Ge(1)] | None = None

    def local_update(self, node: Node, state: State) -> Generator[Verb, Any, dict[str, Any]]:
        head_steps = node.local_steps if self.head_steps is None else self.head_steps
        of_run = node.rounds * (head_steps + node.local_steps)
        state.model = yield node.train(state.model, steps=head_steps, only="head", steps_of_run=of_run)
        state.model = yield node.train(state.model, only="core", steps_of_run=of_run)
        return {"core": state.model[0], "samples": node.num_samples}

"""AD-PSGD: train, and average with one random neighbor at a time, without any barrier.

Source: Lian, Zhang, Zhang, Liu, "Asynchronous Decentralized Parallel Stochastic Gradient Descent", ICML 2018,
Algorithm 1. Where we differ:

- The paper averages i and j atomically: both become (x_i + x_j) / 2 at one instant, x_i + x_j stays what it was. Here
  the two halves happen apart, as messages take time: i pulls what j has now and averages; it pushes what it had itself,
  and j averages that in when it next ends its training. What j has learned in between is in j's half and not in i's:
  the sum is kept up to the local updates and averages of that time. If j does not answer, neither half happens. What
  i pushes is lost if i pushes again before j has looked, or is more than protocol.staleness rounds behind j.
- The paper's gradient is computed while averaging goes on beside it, and is added to the averaged model. Here a node
  trains, then averages: the same cycle, cut at another place, with local_steps steps in a row.
- A node that joins a run under way, or has lost its state, starts from the model of a neighbor, and until it has that
  tells those that ask that it has none: neither half happens. So does one that has done its last round, or was stopped
  early. In the paper all are there from the start, and to the end.
- No deadlock can arise: a pull is answered while the peer trains, so the graph need not be bipartite.

No node waits for the round of another, in either mode; a pull waits for one answer, which has a deadline if the
protocol has one, and fails at once if the peer is away.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from ddlsim.algorithms.base import Algorithm
from ddlsim.evaluation.candidates import EvaluationCandidates

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from ddlsim.learning.bank import Params
    from ddlsim.learning.job_types import Model
    from ddlsim.messages.message import Message
    from ddlsim.node.node import Node, Steps, Verb


@dataclass
class State:
    """A node's memory: its model."""

    model: "Params"


@dataclass(frozen=True, kw_only=True)
class ADPSGD(Algorithm):
    """Asynchronous decentralized parallel SGD: average with one random neighbor, without rounds that wait.

    Args:
        shared_init: whether all nodes start from the same model, as in the paper.
    """

    waits: ClassVar[bool] = False
    shared_init: bool = True

    def start(self, node: "Node") -> State:
        ((model,),) = node.init_models(whole=True, own=not self.shared_init)
        self._show_nothing(node)  # it may have to join first
        return State(model)

    def join(self, node: "Node", state: State, round_num: int) -> "Steps":
        """A newcomer takes over the model of one neighbor, if that answers: averaging needs models that are alike."""
        for answer in (yield from self._ask(node, round_num)):
            state.model = answer.payload["model"]
        self._show(node, state)

    def round(self, node: "Node", state: State, round_num: int) -> "Steps":
        self._show(node, state)
        (state.model,) = yield node.train((state.model,))
        chosen_by = yield node.receive(round_num, wait=False)
        self._average(node, state, chosen_by)
        answers = yield from self._ask(node, round_num)
        node.send([answer.src for answer in answers], round_num, model=state.model)
        self._average(node, state, answers)
        if round_num + 1 == node.rounds:
            self._show_nothing(node)

    def stopped(self, node: "Node", state: State, best: "Model | None", round_num: int) -> None:
        """It averages with nobody any more."""
        self._show_nothing(node)

    def serving(self, node: "Node", state: State) -> EvaluationCandidates:
        return EvaluationCandidates([(state.model,)])

    def _ask(self, node: "Node", round_num: int) -> "Generator[Verb, Any, list[Message]]":
        """The answer of one random neighbor, if it has a model to show."""
        answers = yield node.pull(node.random_peer(round_num), round_num)
        return [answer for answer in answers if "model" in answer.payload]

    def _average(self, node: "Node", state: State, inbox: "Sequence[Message]") -> None:
        """One pair after another, in the order of node ids: each is an averaging of its own."""
        for message in inbox:
            state.model = node.average(state.model, {message.src: message.payload["model"]})
        self._show(node, state)

    def _show(self, node: "Node", state: State) -> None:
        """To every peer that asks, whatever round it is in: no barrier."""
        node.publish(node.rounds, model=state.model)

    def _show_nothing(self, node: "Node") -> None:
        """Whoever asks is told so: neither half of an averaging happens."""
        node.publish(node.rounds)

"""Gossip learning: models travel from node to node, and a node merges and trains the models that it receives.

Source: Ormandi, Hegedus, Jelasity, "Gossip learning with linear models on fully distributed data", Concurrency and
Computation: Practice and Experience, 2013, Algorithm 1 with the merge before the update (createModelMU): each period a
node sends its model to one random peer, and a node that receives one merges it with its own and trains the result.
Merging by age is a later rule of the same authors (Hegedus, Danner, Jelasity, "Gossip Learning as a Decentralized
Alternative to Federated Learning", DAIS 2019): a model's weight is the amount of its training.

Here a period is a round, as long as its training takes. Models that arrive during a round are merged at its end, all at
once, then trained in the next; the paper trains on each arrival. A node that has received nothing continues to train
its model. No node waits for another, in either mode; a peer that is offline does not get the model.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

from ddlsim.algorithms.base import Graphs
from ddlsim.algorithms.rounds import ModelState, SharedModel
from ddlsim.node.node import Node, Steps


@dataclass
class State(ModelState):
    """A node's memory: its model, and the number of steps that this model has been trained, on any node."""

    age: int = 0


@dataclass(frozen=True, kw_only=True)
class GossipLearning(SharedModel):
    """Gossip learning: send to one random neighbor, merge the models that have arrived, without waiting.

    Args:
        merge: `mean` (equal weights) or `age` (a model's weight is the number of its local steps).
    """

    state_type: ClassVar[type[ModelState]] = State
    may_change: ClassVar[frozenset[str]] = frozenset({"merge"})
    waits: ClassVar[bool] = False
    graphs: ClassVar[Graphs] = "directed"
    merge: Literal["mean", "age"] = "mean"

    def round(self, node: Node, state: State, round_num: int) -> Steps:
        steps = node.local_steps  # a branch may change them while the node trains
        (state.model,) = yield node.train((state.model,), steps)
        state.age += steps
        node.send(node.random_peer(round_num), round_num, model=state.model, age=state.age)
        inbox = yield node.receive(round_num, wait=False)
        if not inbox:
            return
        models = {node.id: state.model} | {m.src: m.payload["model"] for m in inbox}
        ages = {node.id: state.age} | {m.src: m.payload["age"] for m in inbox}
        weights = ages if self.merge == "age" else dict.fromkeys(models, 1)
        total = sum(weights.values())
        state.model = node.aggregate(models, {n: weight / total for n, weight in weights.items()})
        state.age = max(ages.values())  # a merged model is as old as its oldest input

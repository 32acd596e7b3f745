"""Local SGD: nodes average their models after H local steps; post-local SGD: only from a later round on.

Sources: Stich, "Local SGD converges fast and communicates little", ICLR 2019. Post-local SGD: Lin, Stich, Patel, Jaggi,
"Don't use large mini-batches, use local SGD", ICLR 2020 (arXiv 1808.07217): the models are averaged after every step
in the first phase of training, and after H steps (training.local_steps) in the second. Offline nodes are described in
replicas.py.
"""

from dataclasses import dataclass
from typing import Annotated

from annotated_types import Ge

from ddlsim.algorithms.low_communication.replicas import Replicas
from ddlsim.algorithms.rounds import ModelState
from ddlsim.node.node import Node, Steps


@dataclass(frozen=True, kw_only=True)
class LocalSGD(Replicas):
    """Local SGD: nodes take their local steps, then average their models.

    Args:
        synchronous_rounds: first rounds, in which models are averaged after every step (post-local SGD).
    """

    synchronous_rounds: Annotated[int, Ge(0)] = 0

    def round(self, node: Node, state: ModelState, round_num: int) -> Steps:
        self.offer(node, state, round_num)
        steps = 1 if round_num < self.synchronous_rounds else node.local_steps
        for _ in range(node.local_steps // steps):
            (trained,) = yield node.train((state.model,), steps, of=node.local_steps)
            state.model = yield self.mean(node, trained, round_num)

"""DAC: a node draws the peers it learns from, and likes those whose models fit its own data.

Source: Zec, Ekblom, Willbo, Mogren, Girdzijauskas, "Decentralized adaptive clustering of deep nets is beneficial for
client collaboration", FL-IJCAI 2022, as the FACADE paper (Biswas et al., SaTML 2025) ran it: train, then pull the
freshly trained models of `sampled_peers` peers drawn by probability softmax(tau * s), where s is 1 / the loss of the
peer's model on one's own data (0 for peers never met), tau rising by DAC-var's sigmoid; merge by the plain mean. No
estimates through third parties, no final all-reduce. A pull costs a request (header only) and the peer's model.

The published runs re-seed the sampler identically in every round, so that a node meets only a handful of peers;
`frozen_sampling: true` does the same, and the honest default does not.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated

import numpy as np
from annotated_types import Ge, Gt

from ddlsim.engine.evaluation import Serving
from ddlsim.rng import stream

if TYPE_CHECKING:
    from ddlsim.engine.node import Node
    from ddlsim.engine.simulation import Steps
    from ddlsim.learning.bank import Params
    from ddlsim.learning.kinds import Model


@dataclass
class State:
    """A node's memory: its model, and per other node how well its model fitted."""

    model: "Params"
    similarity: dict[int, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class DAC:
    """Decentralized adaptive clustering by inverse training loss.

    Args:
        sampled_peers: peers pulled from per round.
        tau_max: the softmax's sharpness rises from 1 to tau_max + 1.
        tau_growth: how fast, per round.
        shared_init: whether all nodes start from the same model.
        frozen_sampling: draw with the same random numbers in every round, as published.
    """

    sampled_peers: Annotated[int, Ge(1)] = 4
    tau_max: Annotated[float, Ge(0)] = 30.0
    tau_growth: Annotated[float, Gt(0)] = 0.2
    shared_init: bool = False
    frozen_sampling: bool = False

    @property
    def labels(self) -> tuple[str, ...]:
        """What every report must say about this choice of options."""
        if self.frozen_sampling:
            return ("frozen_sampling: peers are drawn with the same random numbers in every round, as published",)
        return ()

    def start(self, node: "Node") -> State:
        ((model,),) = node.init_models(whole=True, own=not self.shared_init)
        return State(model)

    def round(self, node: "Node", state: State, round_num: int) -> "Steps":
        probabilities = self._probabilities(node, state, round_num)
        (state.model,) = yield node.train((state.model,))
        node.publish(round_num, model=state.model)
        inbox = yield node.pull(self._draw_peers(node, probabilities), round_num)
        received = {message.src: message.payload["model"] for message in inbox}
        if received:
            losses = yield node.losses([(model,) for model in received.values()], node.local_steps, common=True)
            state.similarity.update({peer: 1 / loss for peer, loss in zip(received, losses, strict=True)})
        state.model = node.average(state.model, received)
        for peer in received:
            node.record("pulled_from", peer, round_num)

    def stopped(self, node: "Node", state: State, best: "Model") -> None:
        (state.model,) = best
        node.publish(node.rounds, model=state.model)

    def serving(self, node: "Node", state: State) -> Serving:
        return Serving([(state.model,)])

    def _probabilities(self, node: "Node", state: State, round_num: int) -> np.ndarray:
        """softmax(tau * s) over the other nodes, with what was learned up to the last round; uniform at first."""
        scores = np.array([state.similarity.get(peer, 0.0) for peer in node.others()])
        logits = sigmoid_tau(round_num - 1, self.tau_max, self.tau_growth) * scores if round_num else scores
        weights = np.exp(logits - logits.max())
        return weights / weights.sum()

    def _draw_peers(self, node: "Node", probabilities: np.ndarray) -> list[int]:
        """Different peers by probability; if too few have any, the rest uniformly."""
        others = np.array(node.others())
        rng = stream(node.seed, "sampled peers", node.id) if self.frozen_sampling else node.rng("sampled peers")
        count = min(self.sampled_peers, len(others))
        likely = np.flatnonzero(probabilities > 0)
        if len(likely) >= count:
            return sorted(int(peer) for peer in rng.choice(others, count, replace=False, p=probabilities))
        unlikely = np.setdiff1d(np.arange(len(others)), likely)
        filled = np.concatenate([likely, rng.choice(unlikely, count - len(likely), replace=False)])
        return sorted(int(others[index]) for index in filled)


def sigmoid_tau(round_num: int, tau_max: float, growth: float) -> float:
    """DAC-var's schedule: 1 in round 0, rising to tau_max + 1 (DAC paper, section 3)."""
    return 2 * tau_max / (1 + np.exp(-growth * round_num)) - tau_max + 1

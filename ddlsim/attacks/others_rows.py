"""Attacks made of what others send: ALIE, inner-product manipulation, FOE, dissensus.

Sources: Baruch, Baruch, Goldberg, "A little is enough: circumventing defenses for distributed learning", NeurIPS 2019,
Algorithm 3 (ALIE); Xie, Koyejo, Gupta, "Fall of empires: breaking Byzantine-tolerant SGD by inner product
manipulation", UAI 2019 (on updates), and as Allouah et al., AISTATS 2023, run it under the name FOE, on the vectors
that are averaged; He, Karimireddy, Jaggi, "Byzantine-robust decentralized learning via ClippedGossip", 2022, equation
8 (dissensus).
"""

from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING, Annotated, ClassVar

from annotated_types import Gt, Le

from ddlsim.attacks.base import Attack, Knowledge, Seen, mean_of

if TYPE_CHECKING:
    import torch

Strength = Annotated[float, Gt(0), Le(1e6)]


class AsChosen:
    """What the attacker knows is an option of the attack."""

    knowledge: Knowledge

    @property
    def knows(self) -> Knowledge:
        return self.knowledge


@dataclass(frozen=True, kw_only=True)
class ALIE(AsChosen, Attack):
    """Sends the mean of known rows less some standard deviations: a little, in every coordinate.

    Args:
        z: how many; null: the most that still passes for one of a majority, by the paper's formula over all nodes of
            the run. It gives 0, which is no attack, for one attacker, and for two among an even number of nodes.
        knowledge: own: the rows of the attacked nodes; neighbors: those received; all: those of all honest nodes.
    """

    forges: ClassVar[bool] = True
    z: Strength | None = None
    knowledge: Knowledge = "own"

    def futile(self, attacked: int, num_nodes: int) -> str:
        """See Attack."""
        if attacked == 1 and self.knows == "own":
            return "one node that knows its own model alone has no spread to hide in"
        if self.z_of(num_nodes, attacked):
            return ""
        return (
            f"the paper's z_max is 0 for {attacked} of {num_nodes} nodes, so they send the mean of the models that "
            "they know. Set z, such as 1.5, or attack more nodes"
        )

    def forge(self, seen: Seen) -> "torch.Tensor":
        mean = mean_of(seen.known)
        variance = mean_of([(row - mean).square() for row in seen.known])
        return mean - self.z_of(seen.num_nodes, seen.num_attacked) * variance.sqrt()

    def z_of(self, num_nodes: int, num_attacked: int) -> float:
        """z, or z_max of the paper: as many supporters are needed as make a majority with the attackers."""
        if self.z is not None:
            return self.z
        honest = max(1, num_nodes - num_attacked)
        supporters = num_nodes // 2 + 1 - num_attacked
        share = (honest - supporters) / honest
        return max(0.0, NormalDist().inv_cdf(min(max(share, 1e-6), 1 - 1e-6)))


@dataclass(frozen=True, kw_only=True)
class InnerProductManipulation(AsChosen, Attack):
    """Sends a step against the mean of known updates.

    An update is a known row less what the attacker's own training began with, since it cannot know what theirs did:
    exactly the paper's where all nodes begin a round with the same model (a server), and else with the disagreement of
    nodes in it.

    Args:
        epsilon: how long, as a multiple of the mean update.
        knowledge: own: the updates of the attacked nodes; neighbors: those received; all: those of all honest nodes.
    """

    forges: ClassVar[bool] = True
    compares_updates: ClassVar[bool] = True
    epsilon: Strength = 1.0
    knowledge: Knowledge = "all"

    def forge(self, seen: Seen) -> "torch.Tensor":
        mean = mean_of(seen.known)
        if seen.start is None:
            return -self.epsilon * mean
        return seen.start - self.epsilon * (mean - seen.start)


@dataclass(frozen=True, kw_only=True)
class FOE(AsChosen, Attack):
    """Fall of empires: sends (1 - tau) times the mean of known rows.

    Args:
        tau: above 1 it points against the mean.
        knowledge: own: the rows of the attacked nodes; neighbors: those received; all: those of all honest nodes.
    """

    forges: ClassVar[bool] = True
    tau: Strength = 2.0
    knowledge: Knowledge = "all"

    def forge(self, seen: Seen) -> "torch.Tensor":
        return (1 - self.tau) * mean_of(seen.known)


@dataclass(frozen=True, kw_only=True)
class Dissensus(Attack):
    """Sends every neighbor what drives it away from its other neighbors; knows all.

    Args:
        strength: epsilon: how far; at 1 it undoes what the honest neighbors pull in a plain average.
    """

    forges: ClassVar[bool] = True
    per_receiver: ClassVar[bool] = True
    strength: Strength = 1.0

    @property
    def knows(self) -> Knowledge:
        return "all"

    def forge(self, seen: Seen) -> "torch.Tensor":
        center = seen.own if seen.receiver is None else seen.receiver
        pull = mean_of(seen.known) - center
        return center - (self.strength * len(seen.known) / seen.accomplices) * pull

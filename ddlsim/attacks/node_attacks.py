"""The attacks of every node of a run, from the scenario's list."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from ddlsim.attacks.base import Attack
from ddlsim.attacks.forgeries import Backdoor, Flooding, Sybil, Withholding

NodesOfAttack = tuple[Attack, tuple[int, ...]]
"""An attack and the nodes under it."""


@dataclass(frozen=True)
class NodeAttacks:
    """The attacks of one node.

    Args:
        node: its id.
        attacks: in the order of the scenario, each with its nodes.
    """

    node: int
    attacks: tuple[NodesOfAttack, ...]

    def active(self, round_num: int) -> list[NodesOfAttack]:
        """Return the attacks that are active in a round."""
        return [(attack, nodes) for attack, nodes in self.attacks if round_num >= attack.start_round]

    def forging(self, round_num: int) -> list[NodesOfAttack]:
        """Return the active attacks that change sent parameters."""
        return [(attack, nodes) for attack, nodes in self.active(round_num) if attack.forges]

    def idles(self, round_num: int) -> bool:
        """Whether the node only pretends to train; the first of some sybils trains."""
        return any(
            not attack.trains and not (isinstance(attack, Sybil) and nodes[0] == self.node)
            for attack, nodes in self.active(round_num)
        )

    @property
    def leads_sybils(self) -> bool:
        """Whether other sybils send its last parameters."""
        return any(isinstance(attack, Sybil) and nodes[0] == self.node for attack, nodes in self.attacks)

    @property
    def per_receiver(self) -> bool:
        """Whether it sends different parameters to each receiver, now or later."""
        return any(attack.per_receiver for attack, _ in self.attacks)

    def delay_s(self, round_num: int) -> float:
        """Return the additional seconds of a training."""
        return sum(attack.delay_s for attack, _ in self.active(round_num) if isinstance(attack, Withholding))

    def flood(self, round_num: int) -> float:
        """Return the bytes of junk per byte of a message."""
        return sum(attack.factor for attack, _ in self.active(round_num) if isinstance(attack, Flooding))

    def withholds(self, round_num: int) -> float:
        """Return the chance that a message is never sent."""
        attacks = [attack for attack, _ in self.active(round_num)]
        return 1 - prod(1 - attack.probability for attack in attacks if isinstance(attack, Withholding))

    @property
    def compares_updates(self) -> bool:
        """Whether an attack needs the parameters at the start of the training."""
        return any(attack.compares_updates for attack, _ in self.attacks)


class Attackers:
    """The attacks of all nodes of a run.

    Args:
        attacks: the scenario's list.
        node_cluster: the cluster of every node, int [N].
        seed: the scenario's.
    """

    def __init__(self, attacks: Sequence[Attack], node_cluster: np.ndarray, seed: int):
        self.attacks = tuple((attack, attack.members(node_cluster, seed)) for attack in attacks)
        self.nodes = tuple(sorted({node for _, nodes in self.attacks for node in nodes}))
        self._of = {
            node: NodeAttacks(node, tuple((attack, nodes) for attack, nodes in self.attacks if node in nodes))
            for node in self.nodes
        }

    def of(self, node: int) -> NodeAttacks | None:
        """Return the attacks of one node; None if it is honest."""
        return self._of.get(node)

    @property
    def backdoor(self) -> Backdoor | None:
        """First backdoor, whose success is measured."""
        return next((attack for attack, _ in self.attacks if isinstance(attack, Backdoor)), None)

"""Who attacks in a run, and how: the attacks of every node, from the scenario's list."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ddlsim.attacks.base import Attack
from ddlsim.attacks.no_work import Sybil
from ddlsim.attacks.samples import Backdoor
from ddlsim.attacks.traffic import Flooding, Withholding


@dataclass(frozen=True)
class Conduct:
    """The attacks of one node.

    Args:
        node: its id.
        attacks: in the order of the scenario, each with its nodes.
    """

    node: int
    attacks: tuple[tuple[Attack, tuple[int, ...]], ...]

    def active(self, round_num: int) -> list[tuple[Attack, tuple[int, ...]]]:
        """The attacks that are under way in a round."""
        return [(attack, nodes) for attack, nodes in self.attacks if round_num >= attack.start_round]

    def forging(self, round_num: int) -> list[tuple[Attack, tuple[int, ...]]]:
        """Those of them that change what it sends."""
        return [(attack, nodes) for attack, nodes in self.active(round_num) if attack.forges]

    def idles(self, round_num: int) -> bool:
        """Whether the node only pretends to train; the first of some sybils trains."""
        return any(
            not attack.trains and not (isinstance(attack, Sybil) and nodes[0] == self.node)
            for attack, nodes in self.active(round_num)
        )

    @property
    def leads_sybils(self) -> bool:
        """Whether others send what it has sent last."""
        return any(isinstance(attack, Sybil) and nodes[0] == self.node for attack, nodes in self.attacks)

    @property
    def per_receiver(self) -> bool:
        """Whether every receiver is sent something else, or will be."""
        return any(attack.per_receiver for attack, _ in self.attacks)

    def delay_s(self, round_num: int) -> float:
        """Seconds that it takes longer for a training."""
        return sum(attack.delay_s for attack, _ in self.active(round_num) if isinstance(attack, Withholding))

    def flood(self, round_num: int) -> float:
        """Bytes of junk per byte of a message."""
        return sum(attack.factor for attack, _ in self.active(round_num) if isinstance(attack, Flooding))

    def withholds(self, round_num: int) -> float:
        """The chance that a message is never sent."""
        kept = [1 - attack.probability for attack, _ in self.active(round_num) if isinstance(attack, Withholding)]
        return 1 - float(np.prod(kept)) if kept else 0.0

    @property
    def compares_updates(self) -> bool:
        """Whether what training began with is needed."""
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
            node: Conduct(node, tuple((attack, nodes) for attack, nodes in self.attacks if node in nodes))
            for node in self.nodes
        }

    def of(self, node: int) -> Conduct | None:
        """The attacks of one node; None: it is honest."""
        return self._of.get(node)

    @property
    def backdoor(self) -> Backdoor | None:
        """The first backdoor, whose success is measured."""
        return next((attack for attack, _ in self.attacks if isinstance(attack, Backdoor)), None)

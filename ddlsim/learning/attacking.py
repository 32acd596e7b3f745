"""Attacks as jobs on parameter rows, and as samples that nodes train on instead of their own."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from ddlsim.attacks.base import Seen
from ddlsim.attacks.results import wrong_samples, wrong_tensor
from ddlsim.attacks.samples import BACKDOOR
from ddlsim.errors import ScenarioError
from ddlsim.learning.job_types import AttackSpec
from ddlsim.rng import stream

if TYPE_CHECKING:
    import numpy as np

    from ddlsim.attacks.attackers import Attackers
    from ddlsim.learning.node_datasets import NodeDatasets


@torch.no_grad()
def attack(jobs: Sequence[AttackSpec]) -> None:
    """Computes forgeries that are bound to rows, one after the other.

    Raises:
        ScenarioError: one is no such row.
    """
    for job in jobs:
        job.target.allocate()  # banks may grow here, so it is done before views of them are taken
    for job in jobs:
        seen = Seen(
            job.own.values(),
            [row.values() for row in job.known],
            None if job.start is None else job.start.values(),
            None if job.receiver is None else job.receiver.values(),
            job.seed,
            *job.sizes,
        )
        forged = job.attack.forge(seen)
        wrong = wrong_tensor(forged, seen.own)
        if wrong:
            raise ScenarioError(f"attacks: forge of {type(job.attack).__qualname__} returns {wrong}.")
        job.target.values().copy_(forged)


class PoisonedNodes:
    """Nodes that train on other samples than their own: each has a data set behind those of all nodes.

    Args:
        attackers: who attacks, and how.
        data: of the run; poisoned data sets are added to its `train`.
        seed: the scenario's.

    Attributes:
        owners: number of a poisoned data set -> the node that trains on it.
    Raises:
        ScenarioError: what an attack makes of samples are none.
    """

    def __init__(self, attackers: "Attackers", data: "NodeDatasets", seed: int):
        self._of: dict[int, list[tuple[int, int]]] = {}  # node -> (first round, number of its data set), ascending
        self.owners: dict[int, int] = {}
        for node in attackers.nodes:
            conduct: Any = attackers.of(node)
            poisons = [one for one, _ in conduct.attacks if one.poisons]
            for first in sorted({one.start_round for one in poisons}):
                inputs, labels = data.train[node]
                inputs = inputs[torch.arange(len(labels), device=labels.device)]
                for place, one in enumerate(poisons):
                    if one.start_round <= first:
                        rng = stream(seed, "poisoned samples", node, place)
                        inputs, labels = _poisoned(one, inputs, labels, data, rng)
                self._of.setdefault(node, []).append((first, len(data.train)))
                self.owners[len(data.train)] = node
                data.train.append((inputs, labels))
        backdoor = attackers.backdoor
        if backdoor is not None:
            data.add_split(BACKDOOR, backdoor.measured_on)

    def data_of(self, node: int, round_num: int) -> int:
        """The number of the data set that a node trains on in a round."""
        return next((number for first, number in reversed(self._of.get(node, [])) if round_num >= first), node)


def _poisoned(
    attack: Any, inputs: torch.Tensor, labels: torch.Tensor, data: "NodeDatasets", rng: "np.random.Generator"
) -> tuple[torch.Tensor, torch.Tensor]:
    """The samples that an attack leaves of these."""
    occurring = data.occurring_classes() if attack.counts_occurring else None
    classes, seen = data.num_classes, labels
    if occurring is not None:
        classes, seen = len(occurring), torch.searchsorted(occurring, labels)
    found = attack.poison(inputs, seen, classes, rng)
    wrong = wrong_samples(found, inputs, seen, classes, data.task)
    if wrong:
        raise ScenarioError(f"attacks: poison of {type(attack).__qualname__} returns {wrong}.")
    return found if occurring is None else (found[0], occurring[found[1]])

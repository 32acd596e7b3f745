"""The contract of attacks: attacked nodes, first round, knowledge and effects.

An attack changes a node's parameters (`forge`), its training samples (`poison`), whether it trains, or its traffic. A
node may be under several attacks: its messages pass through them in the order of the scenario. The attacker's knowledge
is part of the attack:

- own: the results of all nodes under the same attack (they collude);
- neighbors: in addition, the newest parameters that it has received from each honest node;
- all: the newest parameters that every honest node has sent or published, including the current round's: if
  rounds wait for each other such an attacker sends last, otherwise at the end of the instant.

An attack's results are checked before they are sent or trained on.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np
from annotated_types import Gt, Le, MinLen

from ddlsim.foundation.errors import kind_of
from ddlsim.foundation.registry import Part, Problem
from ddlsim.foundation.rng import stream
from ddlsim.foundation.units import CountOrZero
from ddlsim.tasks import Task, label_of

if TYPE_CHECKING:
    import torch


Knowledge = Literal["own", "neighbors", "all"]


@dataclass(frozen=True, kw_only=True)
class OfCluster:
    """Nodes of one cluster.

    Args:
        cluster: the cluster.
        share: share of the cluster's nodes.
    """

    cluster: CountOrZero
    share: Annotated[float, Gt(0), Le(1)] = 1.0


Chosen = Annotated[float, Gt(0), Le(1)] | Annotated[tuple[CountOrZero, ...], MinLen(1)] | OfCluster
"""Attacked nodes: a share of all, their ids, or nodes of a cluster."""


@dataclass(frozen=True)
class AttackInput:
    """Input of a forgery: rows of one part, float32 [P], read-only.

    Args:
        own: the row that the node would send if it were honest.
        known: known rows of other nodes, in the order of node ids; never empty.
        start: the row at the start of the node's last training; None: it has not trained the sent row.
        receiver: the receiver's last sent row, for attacks that send a different row to each receiver.
        seed: random integer of this forgery.
        num_nodes: number of nodes of the run.
        num_attacked: number of nodes under this attack.
        accomplices: number of nodes under this attack among the receiver's neighbors, at least 1.
    """

    own: "torch.Tensor"
    known: "Sequence[torch.Tensor]"
    start: "torch.Tensor | None"
    receiver: "torch.Tensor | None"
    seed: int
    num_nodes: int
    num_attacked: int
    accomplices: int = 1

    def scaled_update(self, row: "torch.Tensor", factor: float) -> "torch.Tensor":
        """Return the model whose update since `start` is a multiple of a row's; without a start, of the row itself."""
        return factor * row if self.start is None else self.start + factor * (row - self.start)


@dataclass(frozen=True, kw_only=True)
class Attack(Part):
    """Base of all attacks.

    Args:
        nodes: attacked nodes: a share of all (0.2, drawn by the seed; the same share draws the same nodes in every
            attack, a smaller one some of them), their ids ([3, 7]), or a cluster's nodes ({cluster: 1}, {cluster: 1,
            share: 0.5}).
        start_round: first round of the attack, from 0.
    """

    counts_occurring: ClassVar[bool] = False
    """Whether labels are numbered over the classes that occur in the data when it poisons samples."""
    trains: ClassVar[bool] = True
    """Whether nodes under it still train."""
    compares_updates: ClassVar[bool] = False
    """Whether it needs the parameters at the start of the training."""
    per_receiver: ClassVar[bool] = False
    """Whether it sends different parameters to each receiver."""
    needs_classes: ClassVar[bool] = False

    nodes: Chosen
    start_round: CountOrZero = field(default=0)

    @property
    def forges(self) -> bool:
        """Whether it changes the parameters that are sent. Default: if `forge` is defined."""
        return type(self).forge is not Attack.forge

    @property
    def poisons(self) -> bool:
        """Whether it changes the samples that are trained on. Default: if `poison` is defined."""
        return type(self).poison is not Attack.poison

    @property
    def needs_messages(self) -> bool:
        """Whether it has no effect if an algorithm sends no messages."""
        return self.forges

    @property
    def knows(self) -> Knowledge:
        """The attacker's knowledge."""
        return "own"

    @property
    def only_cluster(self) -> int | None:
        """Cluster of all attacked nodes; None: no cluster is named."""
        return self.nodes.cluster if isinstance(self.nodes, OfCluster) else None

    def count(self, clusters: Sequence[int]) -> int:
        """Return the number of attacked nodes, from the number of nodes in each cluster."""
        if isinstance(self.nodes, tuple):
            return len(set(self.nodes))
        if isinstance(self.nodes, float):
            return max(1, round(self.nodes * sum(clusters)))
        return max(1, round(self.nodes.share * clusters[self.nodes.cluster]))

    def members(self, node_cluster: np.ndarray, seed: int) -> tuple[int, ...]:
        """Return the nodes under attack, ascending.

        Args:
            node_cluster: cluster of every node, int [N].
            seed: the scenario's.
        """
        if isinstance(self.nodes, tuple):
            return tuple(sorted(set(self.nodes)))
        order = stream(seed, "attacked nodes").permutation(len(node_cluster))
        if not isinstance(self.nodes, float):
            order = order[np.asarray(node_cluster)[order] == self.nodes.cluster]
        return tuple(sorted(order[: self.count(np.bincount(node_cluster).tolist())].tolist()))

    def problems(self, num_nodes: int, seed: int) -> Iterator[Problem]:
        if isinstance(self.nodes, tuple):
            for place, node in enumerate(self.nodes):
                if node >= num_nodes:
                    yield (("nodes", place), f"node ids are 0 to {num_nodes - 1} in this scenario, got {node}")

    def futile(self, attacked: int, num_nodes: int) -> str:
        """Return the reason why this number of attacked nodes in a run of this size has no effect; empty (the default)
        if it has.
        """
        return ""

    def forge(self, inputs: AttackInput) -> "torch.Tensor":
        """Return the row to send in place of `inputs.own`, float32 [P]."""
        raise NotImplementedError

    def poison(
        self, inputs: "torch.Tensor", labels: "torch.Tensor", num_classes: int, rng: np.random.Generator
    ) -> "tuple[torch.Tensor, torch.Tensor]":
        """Return the samples that the node trains on instead: the same number, shapes and types.

        Args:
            inputs: [n, ...]; labels: int64 [n].
            num_classes: number of classes of the data set.
            rng: the node's random numbers.
        """
        raise NotImplementedError


def mean_of(rows: "Sequence[torch.Tensor]") -> "torch.Tensor":
    """Return the mean of rows, summed in their order: the same bits with any number of threads."""
    return sum(rows[1:], rows[0]) / len(rows)


def wrong_tensor(found: Any, like: "torch.Tensor") -> str:
    """Return the reason why an object cannot replace a tensor of numbers, "a tensor [3] of ..."; empty if it can."""
    import torch

    if not isinstance(found, torch.Tensor):
        return f"{kind_of(found)}, expected a tensor {list(like.shape)}"
    if found.shape != like.shape or not found.dtype.is_floating_point:
        return f"a tensor {list(found.shape)} of {found.dtype}, expected {list(like.shape)} of {like.dtype}"
    return ""


def wrong_samples(found: Any, inputs: "torch.Tensor", labels: "torch.Tensor", num_classes: int, task: Task) -> str:
    """Return the reason why the result of `poison` cannot replace its input; empty if it can.

    Args:
        found: result of `poison`.
        inputs, labels, num_classes: arguments of `poison`.
        task: the task.
    """
    import torch

    if not isinstance(found, tuple | list) or [isinstance(each, torch.Tensor) for each in found] != [True, True]:
        return f"{kind_of(found)}, expected a pair of tensors (inputs, labels)"
    for name, new, old in zip(("inputs", "labels"), found, (inputs, labels), strict=True):
        if (new.shape, new.dtype) != (old.shape, old.dtype):
            return f"{name} {list(new.shape)} of {new.dtype}, expected {list(old.shape)} of {old.dtype}"
    text = task.wrong_labels(found[1].cpu().numpy(), num_classes) if len(labels) else ""
    if text and not task.wrong_labels(labels.cpu().numpy(), num_classes):
        return f"labels that {text} (task: {label_of(task)})"
    return ""

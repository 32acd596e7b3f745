"""Attacks by forged parameters, by nodes that do not train, on the network, and on training data.

Sign flip, noise and model replacement need only the node's own parameters.

Sources: sign flip and noise as in Li, Xu, Chen, Giannakis, Ling, "RSA: Byzantine-robust stochastic aggregation
methods", AAAI 2019; Bagdasaryan, Veit, Hua, Estrin, Shmatikov, "How to backdoor federated learning", AISTATS 2020
(model replacement, equation 3). An update is the change by the node's last training; parameters that the node has not
trained itself (another head, a vector, a model that it has merged since, as in a final all-reduce) are sent as if their
training had started from zeros.

ALIE, inner-product manipulation, FOE and dissensus use parameters sent by other nodes.

Sources: Baruch, Baruch, Goldberg, "A little is enough: circumventing defenses for distributed learning", NeurIPS 2019,
Algorithm 3 (ALIE); Xie, Koyejo, Gupta, "Fall of empires: breaking Byzantine-tolerant SGD by inner product
manipulation", UAI 2019 (on updates), and as Allouah et al., AISTATS 2023, run it under the name FOE, on the vectors
that are averaged; He, Karimireddy, Jaggi, "Byzantine-robust decentralized learning via ClippedGossip", 2022, equation
8 (dissensus).

Free riders and sybils (one node under several identities) do not train.

Sources: Lin, Du, Liu, "Free-riders in federated learning: attacks and defenses", 2019; Douceur, "The Sybil attack",
IPTPS 2002, and Fung, Yoon, Beschastnikh, "The limitations of federated learning in sybil settings", RAID 2020. They
take the time of a training, so their timing does not reveal them.

Flooding and withholding attack the network: nodes send too much, nothing, or late.

Label flip and backdoor poison a node's training data.

Sources: label flip c -> C - 1 - c: Fang, Cao, Jia, Gong, "Local model poisoning attacks to Byzantine-robust federated
learning", USENIX Security 2020, and Allouah et al., "Fixing by mixing", AISTATS 2023; trigger: Gu, Dolan-Gavitt, Garg,
"BadNets", 2017. The backdoor's success is measured at every evaluation: the share of test samples of other classes that
a node classifies as the target when they bear the trigger (`backdoor_success`).
"""

from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import numpy as np
from annotated_types import Ge, Gt, Le, Lt

from ddlsim.attacks.base import Attack, AttackInput, Knowledge, mean_of
from ddlsim.foundation.errors import ScenarioError
from ddlsim.foundation.units import END_OF_TIME_S, Count, CountOrZero

if TYPE_CHECKING:
    import torch


Scale = Annotated[float, Gt(0), Le(1e6)]


@dataclass(frozen=True, kw_only=True)
class SignFlip(Attack):
    """Sends the opposite of the learned update or model.

    Args:
        of: flipped parameters. update: the training's change; model: all parameters.
        scale: factor of the flipped vector's length.
    """

    compares_updates: ClassVar[bool] = True
    of: Literal["update", "model"] = "update"
    scale: Scale = 1.0

    def forge(self, inputs: AttackInput) -> "torch.Tensor":
        return inputs.own * -self.scale if self.of == "model" else inputs.scaled_update(inputs.own, -self.scale)


@dataclass(frozen=True, kw_only=True)
class GaussianNoise(Attack):
    """Adds Gaussian noise to the sent parameters.

    Args:
        scale: the noise's standard deviation, as a multiple of the standard deviation of the sent parameters.
    """

    scale: Scale = 1.0

    def forge(self, inputs: AttackInput) -> "torch.Tensor":
        return inputs.own + noise_like(inputs, self.scale)


@dataclass(frozen=True, kw_only=True)
class ModelReplacement(Attack):
    """Sends its update scaled up, so that it outweighs other updates in an average.

    Args:
        boost: gamma: scale of the update.
    """

    compares_updates: ClassVar[bool] = True
    boost: Scale = 10.0

    def forge(self, inputs: AttackInput) -> "torch.Tensor":
        return inputs.scaled_update(inputs.own, self.boost)


def noise_like(inputs: AttackInput, scale: float) -> "torch.Tensor":
    """Return Gaussian noise [P] of `scale` times the standard deviation of the node's own row."""
    import torch

    generator = torch.Generator().manual_seed(inputs.seed)
    size = scale * float(inputs.own.double().std(correction=0)) if inputs.own.numel() else 0.0
    return size * torch.randn(inputs.own.shape, generator=generator).to(inputs.own.device)


@dataclass(frozen=True, kw_only=True)
class CollusionAttack(Attack):
    """Attack that computes with rows of other nodes.

    Args:
        knowledge: own: rows of the attacked nodes; neighbors: received rows; all: rows of all honest nodes.
    """

    knowledge: Knowledge = "all"

    @property
    def knows(self) -> Knowledge:
        return self.knowledge


@dataclass(frozen=True, kw_only=True)
class ALIE(CollusionAttack):
    """Sends the mean of known rows minus some standard deviations: a small change in every coordinate.

    Args:
        z: number of standard deviations; null: the most that still passes as one of a majority, by the paper's formula
            over all nodes of the run. It gives 0, which has no effect, for one attacker, and for two among an even
            number of nodes.
    """

    knowledge: Knowledge = "own"
    z: Scale | None = None

    def futile(self, attacked: int, num_nodes: int) -> str:
        if attacked == 1 and self.knows == "own":
            return "one node that knows its own model alone has no spread to hide in"
        if self.z_of(num_nodes, attacked):
            return ""
        return (
            f"the paper's z_max is 0 for {attacked} of {num_nodes} nodes, so they send the mean of the models that "
            "they know. Set z, such as 1.5, or attack more nodes"
        )

    def forge(self, inputs: AttackInput) -> "torch.Tensor":
        mean = mean_of(inputs.known)
        variance = mean_of([(row - mean).square() for row in inputs.known])
        return mean - self.z_of(inputs.num_nodes, inputs.num_attacked) * variance.sqrt()

    def z_of(self, num_nodes: int, num_attacked: int) -> float:
        """Return z, or the paper's z_max: the required supporters form a majority with the attackers."""
        if self.z is not None:
            return self.z
        honest = max(1, num_nodes - num_attacked)
        supporters = num_nodes // 2 + 1 - num_attacked
        share = (honest - supporters) / honest
        return max(0.0, NormalDist().inv_cdf(min(max(share, 1e-6), 1 - 1e-6)))


@dataclass(frozen=True, kw_only=True)
class InnerProductManipulation(CollusionAttack):
    """Sends a step opposite to the mean of known updates.

    An update is a known row minus the start of the attacker's own training, since it cannot know the start of theirs:
    exactly the paper's update if all nodes start a round with the same model (a server); otherwise it includes the
    disagreement of nodes.

    Args:
        epsilon: length of the step, as a multiple of the mean update.
    """

    compares_updates: ClassVar[bool] = True
    epsilon: Scale = 1.0

    def forge(self, inputs: AttackInput) -> "torch.Tensor":
        return inputs.scaled_update(mean_of(inputs.known), -self.epsilon)


@dataclass(frozen=True, kw_only=True)
class FOE(CollusionAttack):
    """Fall of empires: sends (1 - tau) times the mean of known rows.

    Args:
        tau: above 1 the result is opposite to the mean.
    """

    tau: Scale = 2.0

    def forge(self, inputs: AttackInput) -> "torch.Tensor":
        return (1 - self.tau) * mean_of(inputs.known)


@dataclass(frozen=True, kw_only=True)
class Dissensus(Attack):
    """Sends every neighbor a row that drives it away from its other neighbors; knows all rows.

    Args:
        strength: epsilon: size of the effect; at 1 it cancels the pull of the honest neighbors in a plain average.
    """

    per_receiver: ClassVar[bool] = True
    strength: Scale = 1.0

    knows: ClassVar[Knowledge] = "all"

    def forge(self, inputs: AttackInput) -> "torch.Tensor":
        center = inputs.own if inputs.receiver is None else inputs.receiver
        pull = mean_of(inputs.known) - center
        return center - (self.strength * len(inputs.known) / inputs.accomplices) * pull


@dataclass(frozen=True, kw_only=True)
class FreeRider(Attack):
    """Does not train, but sends parameters.

    If an algorithm needs other results of training than the model (class means), it trains.

    Args:
        send: stale: the unchanged model that it has from others; random: numbers of the same spread.
    """

    trains: ClassVar[bool] = False
    send: Literal["stale", "random"] = "stale"

    def forge(self, inputs: AttackInput) -> "torch.Tensor":
        return inputs.own if self.send == "stale" else noise_like(inputs, 1.0)


@dataclass(frozen=True, kw_only=True)
class Sybil(Attack):
    """Identities of one node: all send the last parameters of the first (the lowest id), after its other attacks.

    Only the first one trains.
    """

    trains: ClassVar[bool] = False

    def futile(self, attacked: int, num_nodes: int) -> str:
        return "one node is one identity" if attacked == 1 else ""

    def forge(self, inputs: AttackInput) -> "torch.Tensor":
        return inputs.known[0]


@dataclass(frozen=True, kw_only=True)
class Flooding(Attack):
    """Sends junk with every message, which loads links; its bytes count as wasted.

    Args:
        factor: bytes of junk per byte of a message.
    """

    factor: Annotated[float, Gt(0), Le(1e6)] = 10.0

    needs_messages: ClassVar[bool] = True


@dataclass(frozen=True, kw_only=True)
class Withholding(Attack):
    """Keeps messages back, or sends them late. Attacked nodes hold nothing back from each other.

    A message held back counts as lost on its way: its receiver stops waiting at once, or at protocol.deadline_s if it
    is set.

    Args:
        probability: chance that a message to an honest node is never sent.
        delay_s: additional simulated seconds of every training, after which the node sends.
    """

    def futile(self, attacked: int, num_nodes: int) -> str:
        return "" if self.probability or self.delay_s else "probability and delay_s are 0"

    probability: Annotated[float, Ge(0), Le(1)] = 1.0
    delay_s: Annotated[float, Ge(0), Lt(END_OF_TIME_S)] = 0.0

    @property
    def needs_messages(self) -> bool:
        return not self.delay_s


BACKDOOR = "backdoor"
"""Split of test samples that bear a trigger."""


@dataclass(frozen=True, kw_only=True)
class LabelFlip(Attack):
    """Trains on flipped labels: of the C classes that occur in the data, class c becomes C - 1 - c."""

    counts_occurring: ClassVar[bool] = True
    needs_classes: ClassVar[bool] = True

    def poison(
        self, inputs: "torch.Tensor", labels: "torch.Tensor", num_classes: int, rng: np.random.Generator
    ) -> "tuple[torch.Tensor, torch.Tensor]":
        return inputs, num_classes - 1 - labels


@dataclass(frozen=True, kw_only=True)
class Backdoor(Attack):
    """Trains a trigger: samples that bear it get the label of the target class.

    Args:
        target: the class.
        fraction: share of the node's samples that bear the trigger.
        size: for images, side in pixels of the square in the lower right corner, set to the largest value; for rows of
            numbers or tokens, number of last entries, set to the largest number, or to token 0.
    """

    needs_classes: ClassVar[bool] = True
    target: CountOrZero = 0
    fraction: Annotated[float, Gt(0), Le(1)] = 0.5
    size: Count = 3

    def poison(
        self, inputs: "torch.Tensor", labels: "torch.Tensor", num_classes: int, rng: np.random.Generator
    ) -> "tuple[torch.Tensor, torch.Tensor]":
        import torch

        if self.target >= num_classes:
            raise ScenarioError(
                f"attacks: target of backdoor: expected a class from 0 to {num_classes - 1}, got {self.target}."
            )
        chosen = torch.from_numpy(rng.permutation(len(labels))[: max(1, round(self.fraction * len(labels)))])
        chosen = chosen.to(labels.device)
        bearing, inputs, labels = self.triggered(inputs), inputs.clone(), labels.clone()
        inputs[chosen] = bearing[chosen]
        labels[chosen] = self.target
        return inputs, labels

    def triggered(self, inputs: "torch.Tensor") -> "torch.Tensor":
        """Return a copy of the samples with the trigger."""
        found = inputs.clone()
        if not found.numel():
            return found
        if found.dim() == 4:
            brightest = found.amax(dim=(0, 2, 3))[None, :, None, None]
            found[:, :, -self.size :, -self.size :] = brightest
        else:
            found[..., -self.size :] = found.max() if found.is_floating_point() else 0
        return found

    def measured_on(self, inputs: "torch.Tensor", labels: "torch.Tensor") -> "tuple[torch.Tensor, torch.Tensor]":
        """Return test samples of other classes (at every position, if they have several) with the trigger, and the
        target as their labels.
        """
        import torch

        others = (labels != self.target).reshape(len(labels), -1).all(1).nonzero().flatten()
        if not len(others):
            raise ScenarioError(
                f"attacks: target of backdoor: expected test samples of other classes, to measure success on, got a "
                f"test set with class {self.target} in every sample. Use another target, or other test sets."
            )
        return self.triggered(inputs[others]), torch.full_like(labels[others], self.target)

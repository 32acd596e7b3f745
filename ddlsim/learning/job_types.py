"""The kinds of jobs and their inputs, all of which are fixed when the job is enqueued."""

import dataclasses
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ddlsim.learning.bank import Params
from ddlsim.learning.fragments import Ranges
from ddlsim.learning.job_spec import JobSpec, number_of
from ddlsim.learning.optimizing.state import OptimizerState, replaced
from ddlsim.learning.private_steps import PrivateSteps
from ddlsim.learning.training_inputs import Batches, Objective

Model = tuple[Params, ...]
"""A whole model as its parts in row order: (model,), or (core, head) and what else its architecture has."""

RowRef = Any
"""A row (bank.py: Row), a weak reference to it, or its number (int)."""

ModelRows = tuple[RowRef, ...]
"""A model by its rows."""


@dataclass(eq=False, kw_only=True)
class TrainSpec(JobSpec):
    """SGD steps of one node on its own samples.

    Args:
        node: the node that has the data.
        architecture: name of the model's architecture.
        model: model at the start, part by part.
        sizes: number of values of each part.
        trained: the trained parts; None for parts that are not trained.
        batches: sample indices per step.
        only: train only this part ("core", "head", ...), or None for all.
        moments: per part the optimizer's state (None if it has none yet); empty for a new optimizer.
        new_moments: its state afterwards, all moments of the first part, then of the second; None for a part without.
        objective: the loss, without its targets; None for the task's loss.
        targets: its targets by label.
        seed: of the augmentation of images and of dropout; None without both.
        skipped: samples of each step of the training before this piece of it.
        rates: learning rate per update.
        proximal: mu of the proximal term; 0: none.
        control: row added to every gradient, over the trained values of the whole model; None if nothing is added.
        means: by label the mean of its features, see Objective.
        last_pass: number of steps, the last ones, whose features count in these means.
        local: the node's own buffers before; None: a fresh module's.
        new_local: its own buffers afterwards; None if the architecture has none.
        private: clipping and noise of the gradients; None without them.
        loss: the mean over steps of the loss that they minimize, without the proximal term; NOT_COMPUTED if the
            backend does not compute it.
    """

    kind = "training"
    reads_in = ("model", "moments", "targets", "local", "control")
    writes_in = ("trained", "new_moments", "means", "new_local", "loss")

    node: int
    architecture: str
    model: ModelRows
    sizes: tuple[int, ...]
    trained: tuple[RowRef | None, ...]
    batches: Batches
    only: str | None = None
    moments: tuple[OptimizerState | None, ...] = ()
    new_moments: tuple[RowRef | None, ...] = ()
    objective: Objective | None = None
    targets: Mapping[int, RowRef] = dataclasses.field(default_factory=dict)
    seed: int | None = None
    skipped: tuple[int, ...] = ()
    rates: tuple[float, ...] = ()
    proximal: float = 0.0
    control: RowRef | None = None
    means: Mapping[int, RowRef] = dataclasses.field(default_factory=dict)
    last_pass: int = 0
    local: RowRef | None = None
    new_local: RowRef | None = None
    private: PrivateSteps | None = None
    loss: RowRef | None = None


@dataclass(eq=False, kw_only=True)
class LossSpec(JobSpec):
    """Mean over batches of the batch-mean loss of several models on a node's samples, in eval mode.

    Value: list of floats, one per model.

    Args:
        node: the node that has the data.
        models: candidates; candidates that share their core have its features computed once where batches agree.
        batches: sample indices, per model; the same object for models that see the same.
        split: "train" or "validation".
        local: the node's own buffers, with which all models are evaluated; None: a fresh module's.
    """

    kind = "head losses"
    reads_in = ("models", "local")

    node: int
    models: tuple[ModelRows, ...]
    batches: tuple[Batches, ...]
    split: str = "train"
    local: RowRef | None = None


@dataclass(eq=False, kw_only=True)
class TestSpec(JobSpec):
    """Predictions of several models on a whole evaluation set; neighbors in the list that share their core have its
    features computed once.

    Value: list of EvalResult (losses.py), one per model.

    Args:
        models: models to evaluate.
        split: "test" or "validation".
        cluster: the cluster whose copy of the evaluation set is used.
        local: own buffers of the node that would answer with these models; None: a fresh module's.
        precision: float32, or bf16: in bfloat16 where torch.autocast considers it safe.
    """

    kind = "evaluation"
    reads_in = ("models", "local")
    numbers_in = ("cluster",)

    models: tuple[ModelRows, ...]
    split: str
    cluster: int
    local: RowRef | None = None
    precision: str = "float32"

    def identity(self) -> Hashable:
        """Key that is equal for the same models on the same data."""
        numbers = replaced((*self.models, self.local), number_of)
        return numbers, self.split, self.cluster, self.precision


@dataclass(eq=False, kw_only=True)
class CopySpec(JobSpec):
    """Takes columns of a row, or puts a row in the place of columns of another.

    Args:
        source: the row that is read.
        columns: ranges [start, stop), or indices, int64.
        target: the new row.
        into: row whose columns `source` replaces; None: the new row consists of columns of `source`.
    """

    kind = "copying"
    reads_in = ("into", "source")
    writes_in = ("target",)

    source: RowRef
    columns: Ranges | np.ndarray
    target: RowRef
    into: RowRef | None = None


@dataclass(eq=False, kw_only=True)
class MergeSpec(JobSpec):
    """Weighted sum of parameters.

    Args:
        sources: summed in this order.
        weights: as many.
        target: the new row.
    """

    kind = "merging"
    reads_in = ("sources",)
    writes_in = ("target",)

    sources: tuple[RowRef, ...]
    weights: tuple[float, ...]
    target: RowRef


@dataclass(eq=False, kw_only=True)
class AggregateSpec(JobSpec):
    """Parameters of several nodes combined by a robust rule; see row_operations.py.

    Args:
        rule: see ddlsim.aggregation.base: Aggregation.
        sources: in the order of node ids.
        weights: weight of each in the algorithm's average.
        own: the place of the node's own among them; None if it has none (a server).
        start: the model at the start of the node's last training, for rules that compare updates; None if unknown.
        target: the new row.
    """

    kind = "aggregation"
    reads_in = ("sources", "start")
    writes_in = ("target",)

    rule: Any
    sources: tuple[RowRef, ...]
    weights: tuple[float, ...]
    own: int | None
    start: RowRef | None
    target: RowRef


@dataclass(eq=False, kw_only=True)
class ApplySpec(JobSpec):
    """A function of parameters, computed value by value or as a whole; see row_operations.py.

    Args:
        function: maps one vector float32 [P] per source to a vector [P]; pure.
        sources: its arguments, in order.
        target: the new row.
    """

    kind = "arithmetic"
    reads_in = ("sources",)
    writes_in = ("target",)

    function: Callable[..., Any]
    sources: tuple[RowRef, ...]
    target: RowRef


@dataclass(eq=False, kw_only=True)
class AttackSpec(JobSpec):
    """Forges the parameters that an attacked node sends.

    Args:
        attack: see ddlsim.attacks.base: Attack.
        own: the parameters that it would send.
        known: the other nodes' parameters that it knows, in the order of node ids.
        start: the model at the start of its last training; None if it has not trained the sent parameters.
        receiver: the parameters that the receiver sent last, for attacks that send different parameters to every
            receiver.
        seed: random integer of this forgery.
        sizes: nodes of the run, of the attack, and of the attack around the receiver.
        target: the new row.
    """

    kind = "attack"
    reads_in = ("own", "known", "start", "receiver")
    writes_in = ("target",)

    attack: Any
    own: RowRef
    known: tuple[RowRef, ...]
    start: RowRef | None
    receiver: RowRef | None
    seed: int
    sizes: tuple[int, int, int]
    target: RowRef


@dataclass(eq=False, kw_only=True)
class CompressSpec(JobSpec):
    """Encodes parameters and decodes them again.

    Args:
        codec: see ddlsim.network.messages.compression: Codec.
        source: the sender's row.
        copy: the receivers' previous row, if the codec keeps copies.
        seed: random integer of this encoding.
        target: the row that the receivers decode.
    """

    kind = "compression"
    reads_in = ("source", "copy")
    writes_in = ("target",)

    codec: Any
    source: RowRef
    copy: RowRef | None
    seed: int
    target: RowRef


@dataclass(eq=False, kw_only=True)
class ClassCosineSpec(JobSpec):
    """Mean over classes of the cosine between the rows of classifiers; value: a list of floats, one per other.

    Args:
        own: a [C, D] matrix in a row.
        others: likewise.
        num_classes: C.
    """

    kind = "similarity"
    reads_in = ("own", "others")

    own: RowRef
    others: tuple[RowRef, ...]
    num_classes: int


@dataclass(eq=False, kw_only=True)
class SimilaritySpec(JobSpec):
    """Similarity of a node's model to several others'; see backends/row_similarities.py.

    Value: list of floats, one per peer.

    Args:
        metric: cosine_weights, cosine_gradients or inverse_l2.
        own: the node's model.
        peers: the others.
        start: the model from which all started, for cosine_gradients with alpha below 1.
        own_last, peers_last: each model one round ago, for cosine_gradients with alpha above 0.
        alpha: weight of the last update, 0..1.
    """

    kind = "comparison"
    reads_in = ("own", "peers", "start", "own_last", "peers_last")

    metric: str
    own: ModelRows
    peers: tuple[ModelRows, ...]
    start: ModelRows | None = None
    own_last: ModelRows | None = None
    peers_last: tuple[ModelRows, ...] = ()
    alpha: float = 0.0


@dataclass(eq=False, kw_only=True)
class ReadSpec(JobSpec):
    """Reads rows of one value each; value: a list of floats.

    Args:
        sources: rows of one part.
    """

    kind = "reading"
    reads_in = ("sources",)

    sources: tuple[RowRef, ...]


class ConsensusSpec(ReadSpec):
    """Squared distance of each node's parameters to their average; value: a list of floats, one per source.

    Args:
        sources: rows of one shape.
    """

    kind = "consensus"


_OF_PARAMETERS = (CopySpec, MergeSpec, AggregateSpec, ApplySpec)
_OF_MESSAGES = (AttackSpec, CompressSpec, ClassCosineSpec, SimilaritySpec)
KINDS = (*_OF_PARAMETERS, TrainSpec, *_OF_MESSAGES, LossSpec, TestSpec, ReadSpec, ConsensusSpec)
"""Kinds of jobs in the order in which they run if several are ready: first the cheap ones, which make others ready."""

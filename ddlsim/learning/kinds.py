"""The kinds of jobs: what each needs, all of it fixed when it is enqueued."""

from collections.abc import Sequence

import numpy as np

from ddlsim.learning.bank import Params
from ddlsim.learning.jobs import Job
from ddlsim.learning.moments import Moments
from ddlsim.learning.objective import Objective

Model = tuple[Params, ...]
"""A whole model as its parts in row order: (model,), or (core, head) and what else its architecture has."""


def architecture_of(model: Model) -> str:
    """The architecture that a model is of; its first part tells, since heads may come from elsewhere."""
    return model[0].part.architecture


def own(local: Params | None) -> tuple[Params, ...]:
    """A node's own buffers as inputs of a job."""
    return () if local is None else (local,)


Tested = tuple[np.ndarray | None, float]
"""Confusion matrix int64 [C, C] (None for a regression) and mean loss of one model on an evaluation set."""


class TrainJob(Job):
    """SGD steps of one node on its own samples; outputs the trained model, part by part.

    Args:
        model: where training starts.
        node: whose data.
        batches: sample indices per step.
        only: train only this part ("core", "head", ...), or None for all.
        moments: per part what the optimizer kept of it (None: nothing yet); empty: the optimizer starts afresh. New
            moments are further outputs, part by part.
        objective: what is minimised; None: the task's loss. Its targets are further inputs.
        seed: of the augmentation of images and of dropout; None: there is neither.
        mean_labels: labels of which the means of features are further outputs, see Objective.
        last_pass: number of steps, the last ones, whose features count in these means.
        local: the node's own buffers before; None: those of a fresh module. The new ones are the last output, if the
            architecture has any.
    """

    kind = "training"

    def __init__(
        self,
        model: Model,
        node: int,
        batches: list[np.ndarray],
        only: str | None,
        moments: Sequence[Moments | None] = (),
        objective: Objective | None = None,
        seed: int | None = None,
        mean_labels: Sequence[int] = (),
        last_pass: int = 0,
        local: Params | None = None,
    ):
        targets = list(objective.targets.values()) if objective else []
        super().__init__([*model, *(row for kept in moments if kept for row in kept.rows), *targets, *own(local)])
        self.node = node
        self.batches = batches
        self.only = only
        self.sizes = [params.size for params in model]
        self.architecture = architecture_of(model)
        self.moments = tuple(moments)
        self.objective = objective
        self.seed = seed
        self.mean_labels = tuple(mean_labels)
        self.last_pass = last_pass
        self.local = local

    @property
    def model(self) -> Model:
        """Where training starts."""
        return self.inputs[: len(self.sizes)]

    def finish(self, value=None) -> None:
        self.moments, self.objective, self.local = (), None, None
        super().finish(value)


class LossJob(Job):
    """Mean over batches of the batch-mean loss of several models on a node's samples, in eval mode.

    Value: list of floats, one per model.

    Args:
        models: candidates; candidates that share their core have its features computed once where batches agree.
        node: whose data.
        batches: sample indices, per model.
        split: "train" or "validation".
        local: the node's own buffers, with which all models are evaluated; None: those of a fresh module.
    """

    kind = "head losses"

    def __init__(
        self,
        models: Sequence[Model],
        node: int,
        batches: list[list[np.ndarray]],
        split: str = "train",
        local: Params | None = None,
    ):
        super().__init__([*(params for model in models for params in model), *own(local)])
        self.models = list(models)
        self.node = node
        self.batches = batches
        self.split = split
        self.local = local

    def finish(self, value=None) -> None:
        self.models, self.local = [], None
        super().finish(value)


class TestJob(Job):
    """Predictions of several models on a whole evaluation set; neighbours in the list that share their core have its
    features computed once.

    Value: list of Tested, one per model.

    Args:
        models: what to evaluate.
        split: "test" or "validation".
        cluster: whose copy of the evaluation set.
        local: own buffers of the node that would answer with these models; None: those of a fresh module.
    """

    kind = "evaluation"

    def __init__(self, models: Sequence[Model], split: str, cluster: int, local: Params | None = None):
        super().__init__([*(params for model in models for params in model), *own(local)])
        self.models = list(models)
        self.split = split
        self.cluster = cluster
        self.local = local

    def finish(self, value=None) -> None:
        self.models, self.local = [], None
        super().finish(value)


class CopyJob(Job):
    """Puts a row together from columns of others.

    Args:
        pieces: (source, start, stop) in the order in which they lie in the new row.
    """

    kind = "copying"

    def __init__(self, pieces: Sequence[tuple[Params, int, int]]):
        super().__init__([source for source, _, _ in pieces])
        self.columns = [(start, stop) for _, start, stop in pieces]


class ClassCosineJob(Job):
    """Mean over classes of the cosine between the rows of classifiers; value: a list of floats, one per other.

    Args:
        own: a [C, D] matrix in a row.
        others: likewise.
        num_classes: C.
    """

    kind = "similarity"

    def __init__(self, own: Params, others: Sequence[Params], num_classes: int):
        super().__init__([own, *others])
        self.num_classes = num_classes


class MergeJob(Job):
    """Weighted sum of parameters; outputs one row.

    Args:
        sources: summed in this order.
        weights: as many.
    """

    kind = "merging"

    def __init__(self, sources: Sequence[Params], weights: Sequence[float]):
        super().__init__(sources)
        self.weights = list(weights)


class SimilarityJob(Job):
    """How alike a node's model is to several others'; see comparing.py.

    Value: list of floats, one per peer.

    Args:
        metric: cosine_weights, cosine_gradients or inverse_l2.
        own: the node's model.
        peers: the others.
        start: where all models started, for cosine_gradients with alpha below 1.
        own_last, peers_last: what each was a round ago, for cosine_gradients with alpha above 0.
        alpha: weight of the last update, 0..1.
    """

    kind = "comparison"

    def __init__(
        self,
        metric: str,
        own: Model,
        peers: Sequence[Model],
        start: Model | None = None,
        own_last: Model | None = None,
        peers_last: Sequence[Model] = (),
        alpha: float = 0.0,
    ):
        super().__init__(
            [params for model in (own, *peers, start or (), own_last or (), *peers_last) for params in model]
        )
        self.metric = metric
        self.own, self.peers = own, list(peers)
        self.start, self.own_last, self.peers_last = start, own_last, list(peers_last)
        self.alpha = alpha

    def finish(self, value=None) -> None:
        self.own, self.peers, self.start, self.own_last, self.peers_last = (), [], None, None, []
        super().finish(value)

"""The sections of a scenario: keys, types, bounds and defaults."""

import math
from typing import Annotated, Any, Literal

from annotated_types import Ge, Gt, Le, Lt, MinLen
from pydantic import BaseModel, ConfigDict, Field, field_validator

from ddlsim.foundation.augmentation import checked
from ddlsim.foundation.errors import ScenarioError
from ddlsim.foundation.units import END_OF_TIME_S, MAX_NODES, Count, CountOrZero
from ddlsim.scenario.parts import NamedPart, refused
from ddlsim.scenario.per_node import BATCH_SIZE, EPOCHS, LEARNING_RATE, LOCAL_STEPS, PER_NODE, of_node


class Section(BaseModel):
    """Base of the sections."""

    model_config = ConfigDict(
        strict=True, extra="forbid", frozen=True, arbitrary_types_allowed=True, allow_inf_nan=False
    )


def default(value: Any, why: str) -> Any:
    """Return the default of a key that can change a published number, with its reason (docs/defaults.md)."""
    return Field(value, description=why)


DEFAULT_LOCAL_STEPS = 10


class Nodes(Section):
    """Number of nodes and their clusters.

    Args:
        clusters: number of nodes of each cluster, e.g. [30, 2].
        placement: contiguous: node ids are assigned cluster by cluster; shuffled: the seed assigns them at random.
    """

    clusters: Annotated[tuple[Count, ...], MinLen(1)]
    placement: Literal["contiguous", "shuffled"] = default(
        "contiguous", "node ids say which cluster a node is in; a ring or torus joins nodes of one cluster"
    )

    @field_validator("clusters")
    @classmethod
    def _can_be_counted(cls, clusters: tuple[int, ...]) -> tuple[int, ...]:
        if sum(clusters) > MAX_NODES:
            raise refused(f"expected at most {MAX_NODES:,} nodes in all, got {sum(clusters):,}")
        return clusters

    @property
    def count(self) -> int:
        """The number of nodes."""
        return sum(self.clusters)


class Validation(Section):
    """Samples set aside for choices during training.

    Args:
        source: train or test: part of that set for each cluster; node: part of each node's samples; own: the validation
            set of the data; none.
        fraction: share set aside, above 0 and below 1; ignored for own, which uses all samples.
        seed: seed of NumPy's default_rng that shuffles the source, so that every seed of the scenario holds out the
            same samples. With source node (and partition random or domains), the last samples of the training set (of
            each domain in proportion to samples_per_node) are dealt to the nodes. null: the scenario's seed draws the
            samples, with source node for each node.
    """

    source: Literal["train", "test", "node", "own", "none"] = default(
        "none", "nothing is set aside until a choice needs it; test data makes no choice"
    )
    fraction: Annotated[float, Gt(0), Lt(1)] = default(0.1, "a tenth is usual")
    seed: CountOrZero | None = default(None, "the scenario's seed draws all")


class EarlyStopping(Section):
    """A node stops training and merging when its validation loss stops falling, and keeps its last model.

    For algorithms that pull, algorithm.stopped_serves selects this model or the node's best one for its peers (DAC:
    best).

    Args:
        patience: consecutive local trainings without a lower validation loss.
    """

    patience: Count


class Training(Section):
    """Local training of one round.

    learning_rate, batch_size, local_steps and epochs are one number for all nodes, or one per node: a list, a column of
    a CSV file {name: table, path: nodes.csv}, or a distribution: {name: uniform, low: 1, high: 5}, {name: lognormal,
    median: 0.1, sigma: 0.5} or {name: choice, values: [8, 16, 32]}.

    Args:
        optimizer: any optimizer of torch.optim by name, with its keys: {name: adamw, weight_decay: 0.05}. Keys of
            torch's optimizers (momentum, betas, ...) may also be keys of this section.
        learning_rate: step size, above 0.
        schedule: change of the learning rate over rounds or steps; null: constant.
        batch_size: samples per step.
        local_steps: steps per round; null with epochs, 10 if neither is set.
        epochs: passes over a node's samples per round, instead of local_steps; the last batch of a pass may be smaller.
            A fraction, 0.5 or 1.5, is rounded to whole mini-batches, at least one.
        optimizer_state: fresh: a new optimizer every round; kept: the optimizer's state stays with the node.
        drop_last: whether to leave out a smaller last batch of a pass, unless it is the only one.
        accumulate: mini-batches whose mean gradient makes one update; local_steps and epochs count mini-batches.
        clip_norm: L2 norm to which a model's gradient is scaled down; null: no limit.
        clip_value: largest absolute value in a gradient, to which values are clipped; null: no limit.
        weight_decay_on: all: decay every parameter; weights: decay only parameters with more than one dimension, not
            biases and normalizations.
        label_smoothing: share of the target spread over all classes, from 0 to below 1.
        proximal: mu of FedProx's term mu / 2 |w - w_0|^2, where w_0 is the model at the start of the local training; 0:
            no term.
        precision: float32; bf16: forward pass and loss in bfloat16 where torch.autocast considers it safe, with
            parameters, gradients and evaluations in float32.
        augmentation: random change of each training image. none; crop_flip: shift by up to 4 pixels (padded with black,
            the value 0 before mean and std) and flip; color: crop and resize, flip, color jitter and sometimes
            grayscale (see learning/augmenting.py), for images that are uint8 or 0 to 1. Also a transform of
            torchvision.transforms.v2 with its keys, {name: RandomRotation, degrees: 10}, one in a file, ./mine.py:Mine,
            or a list of these; they get float images [C, H, W] from 0 to 1.
        early_stopping: criterion on the validation loss at which a node stops; null: never.
    """

    optimizer: Annotated[Any, NamedPart("optimizer")]
    learning_rate: Annotated[Any, LEARNING_RATE]
    schedule: Annotated[Any, NamedPart("schedule")] | None = default(None, "a constant rate")
    batch_size: Annotated[Any, BATCH_SIZE] = default(8, "small, as nodes have few samples; the FACADE paper has 8")
    local_steps: Annotated[Any, LOCAL_STEPS] | None = default(
        None, "10 if neither steps nor epochs are set, as in the FACADE paper"
    )
    epochs: Annotated[Any, EPOCHS] | None = default(None, "local_steps count")
    optimizer_state: Literal["fresh", "kept"] = default("fresh", "an average of models has no optimizer state")
    drop_last: bool = default(False, "every sample is used")
    accumulate: Count = default(1, "one batch, one step")
    clip_norm: Annotated[float, Gt(0)] | None = default(None, "no clipping")
    clip_value: Annotated[float, Gt(0)] | None = default(None, "no clipping")
    weight_decay_on: Literal["all", "weights"] = default("all", "as torch.optim does it")
    label_smoothing: Annotated[float, Ge(0), Lt(1)] = default(0.0, "plain cross-entropy")
    proximal: Annotated[float, Ge(0), Le(1e30)] = default(0.0, "no term of FedProx")
    precision: Literal["float32", "bf16"] = default("float32", "what papers report")
    augmentation: str | dict[str, Any] | list[Any] = default("none", "no augmentation")
    early_stopping: EarlyStopping | None = default(None, "all nodes train all rounds")

    @field_validator("augmentation")
    @classmethod
    def _nameable(cls, value: Any) -> Any:
        try:
            return checked(value)
        except ScenarioError as error:
            raise refused(str(error)) from error

    def drawn(self, num_nodes: int, seed: int) -> "Training":
        """Return these settings with a tuple, one value per node, in place of each list and distribution.

        Raises:
            ScenarioError: see PerNode.drawn.
        """
        found = {key: kind.drawn(getattr(self, key), key, num_nodes, seed) for key, kind in PER_NODE.items()}
        return self.model_copy(update=found)

    def steps(self, node: int, per_epoch: int) -> int:
        """Mini-batch steps of one round, for a node that has `per_epoch` mini-batches of samples; of drawn settings."""
        if self.epochs is None:
            return of_node(self.local_steps, node) or DEFAULT_LOCAL_STEPS
        return max(1, math.floor(of_node(self.epochs, node) * per_epoch + 0.5))


class Protocol(Section):
    """Waits for messages, and the handling of late messages.

    Args:
        deadline_s: simulated seconds after which a round closes, counted from the time when its node starts to wait;
            messages that arrive at that instant count. null: wait for all online nodes. Undelivered messages continue
            (network.timeout_s cancels them). In mode async only pulls and the rounds of servers wait. With a server, a
            late node joins the server's current round with the current model.
        late_messages: messages that arrive after their round has closed: drop: discard them; keep: count them in the
            receiver's current round, the newest of each sender.
        staleness_s: simulated seconds from the sending of a model to its merge after which it no longer counts; null:
            no limit. For nodes that do not wait: in mode async without a server, and with gossip in either mode. They
            always merge the newest model of each sender once, in whatever round it was sent.
    """

    deadline_s: Annotated[float, Gt(0), Lt(END_OF_TIME_S)] | None = default(
        None, "a synchronous round waits for all nodes that are online"
    )
    late_messages: Literal["drop", "keep"] = default("drop", "without a deadline or churn no message is late")
    staleness_s: Annotated[float, Ge(0), Lt(END_OF_TIME_S)] | None = default(
        None, "no paper of these algorithms drops old models"
    )


class Evaluation(Section):
    """Tests of the nodes' models.

    Args:
        every: rounds between evaluations; the last round is always evaluated.
        target_accuracy: mean accuracy over all nodes up to which reports give the costs, above 0 up to 1; null: none.
        target_mse: as target_accuracy, for a regression: a mean squared error, reached from above.
        target: as target_accuracy, for any task: a value of the metric that judges it (perplexity, f1_macro, ...).
        stop_at_target: whether the run ends when it reaches the target.
        fair_lambda: weight of accuracy in fair accuracy, 0 to 1.
        batch_size: samples per forward pass.
        samples: number of test samples per cluster, drawn once without replacement; null: all. Reports give the
            resulting error of an accuracy.
        precision: float32; bf16: tests run in bfloat16 where torch.autocast considers it safe. Validation and choices
            of a head, which change the run, use float32.
        evaluated_model: last: the node's model at the time of the test; best: its model after the local training with
            the lowest validation loss.
        validation: whether evaluations also measure the models on validation samples (rows validation_accuracy, or of
            another metric of the task, and loss_validation). A search chooses by them.
        initial: whether the models are also tested before the first round (round 0).
        consensus_distance: whether evaluations measure the nodes' squared distances to their average model. With
            executor ray the models travel to one worker for it.
    """

    every: Count = default(40, "the rhythm of the FACADE paper; costs of a target are resolved no finer")
    target_accuracy: Annotated[float, Gt(0), Le(1)] | None = default(None, "no target")
    target_mse: Annotated[float, Gt(0)] | None = default(None, "no target")
    target: Annotated[float, Gt(0)] | None = default(None, "no target")
    stop_at_target: bool = default(False, "a run has all its rounds")
    fair_lambda: Annotated[float, Ge(0), Le(1)] = default(2 / 3, "2/3, as in the FACADE paper")
    batch_size: Count = 250
    samples: Count | None = default(None, "all test samples")
    precision: Literal["float32", "bf16"] = default("float32", "what papers report")
    evaluated_model: Literal["last", "best"] = default(
        "last", "the model that a node would use, without validation data"
    )
    validation: bool = default(False, "it costs time")
    initial: bool = default(False, "papers begin their curves with the first evaluation")
    consensus_distance: bool = default(True, "it shows whether nodes agree, and reads each model once per evaluation")

    @property
    def wanted(self) -> float | None:
        """target_accuracy, target_mse or target, whichever is given."""
        given = (self.target_accuracy, self.target_mse, self.target)
        return next((target for target in given if target is not None), None)


class Records(Section):
    """Detail of the records of a run.

    Args:
        detail: full: traffic of every pair of nodes; total: only the traffic of all nodes together, for networks of
            many thousands.
        true_similarities: nodes compared with all other nodes at every evaluation, by the algorithm's similarity; takes
            no simulated time.
        models: the stored model of every node: last: of the last evaluation; best: the best by validation loss; none;
            null: last if all models fit into 256 MB.
        timeline: start and end, in simulated seconds, of the window for which timeline.jsonl holds every period of
            computing, waiting and being offline, and every message; at most 500,000. null: the first 1,000 of a run
            of at most 256 nodes.
    """

    detail: Literal["full", "total"] = "full"
    true_similarities: tuple[CountOrZero, ...] = ()
    models: Literal["none", "last", "best"] | None = None
    timeline: tuple[Annotated[float, Ge(0)], Annotated[float, Ge(0)]] | None = None

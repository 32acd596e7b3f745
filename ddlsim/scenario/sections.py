"""The sections of a scenario: keys, types, bounds and defaults."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from annotated_types import Ge, Gt, Le, Lt, MinLen
from pydantic import BaseModel, ConfigDict, field_validator
from pydantic_core import PydanticCustomError

from ddlsim.foundation.augmentation import checked
from ddlsim.foundation.errors import ScenarioError
from ddlsim.foundation.units import END_OF_TIME_S, MAX_NODES, Count, CountOrZero, StepCount
from ddlsim.scenario.parts import NamedPart


class Section(BaseModel):
    """Base of the sections."""

    model_config = ConfigDict(
        strict=True, extra="forbid", frozen=True, arbitrary_types_allowed=True, allow_inf_nan=False
    )

    why: ClassVar[Mapping[str, str]] = {}
    """Key -> why its default is what it is, of defaults that can change a published number (docs/defaults.md)."""


DEFAULT_LOCAL_STEPS = 10


class Nodes(Section):
    """How many nodes there are, in which clusters.

    Args:
        clusters: number of nodes of each cluster, e.g. [30, 2].
        placement: contiguous: node ids run cluster by cluster; shuffled: they are dealt by the seed.
    """

    why: ClassVar[Mapping[str, str]] = {
        "placement": "node ids say which cluster a node is in; a ring or torus joins nodes of one cluster"
    }

    clusters: Annotated[tuple[Count, ...], MinLen(1)]
    placement: Literal["contiguous", "shuffled"] = "contiguous"

    @field_validator("clusters")
    @classmethod
    def _can_be_counted(cls, clusters: tuple[int, ...]) -> tuple[int, ...]:
        if sum(clusters) > MAX_NODES:
            text = f"expected at most {MAX_NODES:,} nodes in all, got {sum(clusters):,}"
            raise PydanticCustomError("refused", "{text}", {"text": text})
        return clusters

    @property
    def count(self) -> int:
        """The number of nodes."""
        return sum(self.clusters)


class Validation(Section):
    """Which samples are set aside for choices during training.

    Args:
        source: train or test: a part of that set for each cluster; node: a part of each node's own samples; own: the
            validation set that the data comes with; none.
        fraction: how much of it, above 0 and below 1; own: all of it.
        seed: of NumPy's default_rng, which shuffles what they are taken from, so that the same samples are held out
            whatever the scenario's seed; with source node (and partition random or domains) the last of the training
            set (of each domain as much as samples_per_node gives its nodes) are dealt to the nodes apart. null: the
            scenario's seed draws them, with source node for each node.
    """

    why: ClassVar[Mapping[str, str]] = {
        "source": "nothing is set aside until a choice needs it; test data makes no choice",
        "fraction": "a tenth is usual",
        "seed": "the scenario's seed draws all",
    }

    source: Literal["train", "test", "node", "own", "none"] = "none"
    fraction: Annotated[float, Gt(0), Lt(1)] = 0.1
    seed: CountOrZero | None = None


class EarlyStopping(Section):
    """When a node has learned enough: it stops training and merging, and keeps its last model.

    Of the algorithms that pull, algorithm.stopped_serves chooses whether its peers get that model or its best one (DAC:
    best).

    Args:
        patience: local trainings in a row without a lower validation loss.
    """

    patience: Count


class Training(Section):
    """What one round of local training is.

    Args:
        optimizer: any of torch.optim by name, with its keys: {name: adamw, weight_decay: 0.05}; keys of torch's
            optimizers (momentum, betas, ...) may stand in this section too.
        learning_rate: step size, above 0.
        schedule: how the learning rate changes over rounds or steps; null: it does not.
        batch_size: samples per step.
        local_steps: steps per round; null with epochs, 10 if neither is given.
        epochs: instead of local_steps: passes over a node's samples per round, each with a smaller last batch.
        optimizer_state: fresh: a new optimizer every round; kept: what it remembers stays with the node.
        drop_last: whether a smaller last batch of a pass is left out, unless it is the only one.
        accumulate: mini-batches whose mean gradient makes one update; local_steps and epochs count mini-batches.
        clip_norm: L2 norm that the gradient of a model is scaled down to; null: any.
        clip_value: size that each value of the gradient is cut off at; null: any.
        weight_decay_on: all: every parameter decays; weights: those with more than one dimension alone, so neither
            biases nor normalizations.
        label_smoothing: share of the target that is spread over all classes, 0 up to below 1.
        proximal: mu of FedProx's term mu / 2 |w - w_0|^2, w_0 being what the local training began with; 0: none.
        precision: float32, or bf16: forward pass and loss in bfloat16 where torch.autocast holds that to be safe;
            parameters, gradients and evaluations stay float32.
        augmentation: of training images, always anew. none; crop_flip: moved by up to 4 pixels (what comes from
            outside is black, the value 0 before mean and std) and flipped; color: cropped and resized, flipped,
            jittered in color, sometimes gray (see learning/augmenting.py), of images that are uint8 or 0 to 1. Or a
            transform of torchvision.transforms.v2 with its keys, {name: RandomRotation, degrees: 10}, one in a file,
            ./mine.py:Mine, or a list of these; they take float samples, images [C, H, W] of 0 to 1.
        early_stopping: when a node stops by its validation loss; null: never.
    """

    why: ClassVar[Mapping[str, str]] = {
        "schedule": "a constant rate",
        "batch_size": "small, as nodes have few samples; the FACADE paper has 8",
        "local_steps": "10 if neither steps nor epochs are set, as in the FACADE paper",
        "epochs": "local_steps count",
        "optimizer_state": "an average of models has no state of its own",
        "drop_last": "every sample is used",
        "accumulate": "one batch, one step",
        "clip_norm": "gradients as they are",
        "clip_value": "gradients as they are",
        "weight_decay_on": "as torch.optim does it",
        "label_smoothing": "plain cross-entropy",
        "proximal": "no term of FedProx",
        "precision": "what papers report",
        "augmentation": "samples as they are",
        "early_stopping": "all nodes train all rounds",
    }

    optimizer: Annotated[Any, NamedPart("optimizer")]
    learning_rate: Annotated[float, Gt(0), Le(1e30)]
    schedule: Annotated[Any, NamedPart("schedule")] | None = None
    batch_size: Count = 8
    local_steps: StepCount | None = None
    epochs: StepCount | None = None
    optimizer_state: Literal["fresh", "kept"] = "fresh"
    drop_last: bool = False
    accumulate: Count = 1
    clip_norm: Annotated[float, Gt(0)] | None = None
    clip_value: Annotated[float, Gt(0)] | None = None
    weight_decay_on: Literal["all", "weights"] = "all"
    label_smoothing: Annotated[float, Ge(0), Lt(1)] = 0.0
    proximal: Annotated[float, Ge(0), Le(1e30)] = 0.0
    precision: Literal["float32", "bf16"] = "float32"
    augmentation: str | dict[str, Any] | list[Any] = "none"
    early_stopping: EarlyStopping | None = None

    @field_validator("augmentation")
    @classmethod
    def _nameable(cls, value: Any) -> Any:
        try:
            return checked(value)
        except ScenarioError as error:
            raise PydanticCustomError("refused", "{text}", {"text": str(error)}) from error

    def steps(self, per_epoch: int) -> int:
        """Mini-batch steps of one round, for a node that has `per_epoch` mini-batches of samples."""
        return self.epochs * per_epoch if self.epochs else self.local_steps or DEFAULT_LOCAL_STEPS


class Protocol(Section):
    """How long a node waits for messages, and what becomes of those that come too late.

    Args:
        deadline_s: a round closes this many simulated seconds after its node began to wait, complete or not, with what
            comes at that very instant; null: it waits for all nodes that are online. What is on its way by then flies
            on; network.timeout_s ends that. In mode async only pulls and the rounds of servers wait at all. With a
            server, a node that is too late joins the server's current round with the current model.
        late_messages: messages that come after their round has closed: drop: they are lost; keep: they count in the
            round that the receiver is in, the newest of each sender.
        staleness_s: simulated seconds from the sending of a model to its merge, after which it no longer counts; null:
            no limit. For nodes that do not wait: in mode async without a server, and by gossip in either mode. They
            always merge the newest model of each sender once, however far the rounds of both have drifted apart.
    """

    why: ClassVar[Mapping[str, str]] = {
        "deadline_s": "a synchronous round waits for all nodes that are online",
        "late_messages": "without a deadline or churn no message is late",
        "staleness_s": "no paper of these algorithms drops old models",
    }

    deadline_s: Annotated[float, Gt(0), Lt(END_OF_TIME_S)] | None = None
    late_messages: Literal["drop", "keep"] = "drop"
    staleness_s: Annotated[float, Ge(0), Lt(END_OF_TIME_S)] | None = None


class Evaluation(Section):
    """When and how the nodes' models are tested.

    Args:
        every: rounds between evaluations; there is one after the last round in any case.
        target_accuracy: mean accuracy over all nodes whose cost is reported, above 0 up to 1; null: none.
        target_mse: the same for a regression: mean squared error, reached from above.
        target: the same for any task: a value of the metric that it judges by (perplexity, f1_macro, ...).
        stop_at_target: whether the run ends when the target is reached.
        fair_lambda: weight of accuracy in fair accuracy, 0 to 1.
        batch_size: samples per forward pass.
        samples: each cluster is tested on so many samples, drawn once from its test set without replacement; null: on
            all. Reports state how far an accuracy may be from that on all of them.
        precision: float32, or bf16: tests run in bfloat16 where torch.autocast holds that to be safe; what steers a run
            (validation, choices of a head) stays float32.
        evaluated_model: last: what a node has when it is tested; best: what its local training had made when its
            validation loss was lowest.
        validation: whether an evaluation also measures the models on validation samples (rows validation_accuracy, or
            of another metric of the task, and loss_validation). A search chooses by them.
    """

    why: ClassVar[Mapping[str, str]] = {
        "every": "the rhythm of the FACADE paper; costs of a target are resolved no finer",
        "target_accuracy": "no target",
        "target_mse": "no target",
        "target": "no target",
        "stop_at_target": "a run has all its rounds",
        "fair_lambda": "2/3, as in the FACADE paper",
        "samples": "all test samples",
        "precision": "what papers report",
        "evaluated_model": "what a node would use, chosen without validation data",
        "validation": "it costs time",
    }

    every: Count = 40
    target_accuracy: Annotated[float, Gt(0), Le(1)] | None = None
    target_mse: Annotated[float, Gt(0)] | None = None
    target: Annotated[float, Gt(0)] | None = None
    stop_at_target: bool = False
    fair_lambda: Annotated[float, Ge(0), Le(1)] = 2 / 3
    batch_size: Count = 250
    samples: Count | None = None
    precision: Literal["float32", "bf16"] = "float32"
    evaluated_model: Literal["last", "best"] = "last"
    validation: bool = False

    @property
    def wanted(self) -> float | None:
        """target_accuracy, target_mse or target, whichever is given."""
        given = (self.target_accuracy, self.target_mse, self.target)
        return next((target for target in given if target is not None), None)


class Records(Section):
    """How much is written down.

    Args:
        detail: full: traffic of every pair of nodes; total: of all nodes together, for networks of many thousands.
        true_similarities: nodes that are compared with all others at every evaluation, by the algorithm's own
            similarity; costs no simulated time.
        models: which model of every node is kept: last: that of the last evaluation; best: its best by validation loss;
            none; null: last where all of them fit into 256 MB.
    """

    detail: Literal["full", "total"] = "full"
    true_similarities: tuple[CountOrZero, ...] = ()
    models: Literal["none", "last", "best"] | None = None

"""The scenario as a frozen object: every section, its keys, types, bounds and defaults.

What every section of a scenario is: a frozen pydantic model, strict and closed to other keys.

The scenario's section `energy`.

The scenario's sections `privacy` and `secure_aggregation`.

The scenario's section `network`, with what belongs to TCP and to losses.
"""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from annotated_types import Ge, Gt, Le, Lt, MinLen
from pydantic import BaseModel, ConfigDict, StringConstraints, field_validator, model_validator
from pydantic_core import PydanticCustomError

from ddlsim.devices.energy import KINDS, Costs
from ddlsim.foundation.augmentation import checked
from ddlsim.foundation.errors import ScenarioError
from ddlsim.foundation.units import END_OF_TIME_S, MAX_MBPS, MAX_NODES, Count, CountOrZero, StepCount
from ddlsim.scenario import parts
from ddlsim.scenario.parts import NamedPart
from ddlsim.scenario.tree import did_you_mean
from ddlsim.tasks import Task, as_task


class Section(BaseModel):
    """Base of the sections."""

    model_config = ConfigDict(
        strict=True, extra="forbid", frozen=True, arbitrary_types_allowed=True, allow_inf_nan=False
    )

    why: ClassVar[Mapping[str, str]] = {}
    """Key -> why its default is what it is, of defaults that can change a published number (docs/defaults.md)."""


Joules = Annotated[float, Ge(0), Lt(1e15)]
Watts = Annotated[float, Ge(0), Lt(1e12)]


class Energy(Section):
    """What a run costs in electricity; null: it is not counted. Joules and CO2 per node and to the target are recorded.

    Args:
        device: preset of watts, see `ddlsim list energy`; null: none.
        link: preset of j_per_byte_up and j_per_byte_down; null: none.
        grid: preset of gco2_per_kwh; null: none.
        j_per_step: joules of one local step on every node; a forward pass costs a third. Not beside watts.
        watts: power of a node's device while it computes, W.
        idle_w: power of a node that is online, has rounds to go and does not compute, W. Away, it costs nothing.
        j_per_byte_up: joules per byte that a node's uplink carries, wasted ones included.
        j_per_byte_down: the same of its downlink.
        server_w: power of the server from the start to its last round, W, where the algorithm has one; its bytes cost
            what a node's do.
        gco2_per_kwh: grams of CO2 equivalents per kWh of the grid; null: emissions are not told.
    """

    device: str | None = None
    link: str | None = None
    grid: str | None = None
    j_per_step: Joules | None = None
    watts: Watts | None = None
    idle_w: Watts = 0.0
    j_per_byte_up: Joules | None = None
    j_per_byte_down: Joules | None = None
    server_w: Watts = 0.0
    gco2_per_kwh: Annotated[float, Ge(0), Lt(1e6)] | None = None

    @field_validator("device", "link", "grid")
    @classmethod
    def _is_known(cls, name: str | None, info: Any) -> str | None:
        known = KINDS[info.field_name]
        if name is not None and name not in known:
            text = f"unknown preset {name!r}.{did_you_mean(name, list(known))} Known: {', '.join(known)}"
            raise PydanticCustomError("refused", "{text}", {"text": text})
        return name

    @model_validator(mode="after")
    def _adds_up(self) -> "Energy":
        text = None
        if self.j_per_step is not None and (self.watts is not None or self.device is not None):
            other = "watts" if self.watts is not None else "device"
            text = f"computing costs j_per_step or {other}; leave one out"
        elif not any((self.costs.j_per_step, self.costs.watts, self.idle_w, self.server_w)) and not (
            self.costs.j_per_byte_up or self.costs.j_per_byte_down
        ):
            text = (
                "nothing costs anything. Give a device or watts, a link or j_per_byte_up, idle_w, ..., or leave it out"
            )
        if text:
            raise PydanticCustomError("refused", "{text}", {"text": text})
        return self

    @property
    def costs(self) -> Costs:
        """Every cost, those of presets where no key gives it."""
        found: dict[str, float] = {}
        for kind, known in KINDS.items():
            name = getattr(self, kind)
            found |= known[name].values if name is not None else {}
        given = {key: getattr(self, key) for key in Costs.__dataclass_fields__ if getattr(self, key) is not None}
        return Costs(**found | given)


class Privacy(Section):
    """Differential privacy by the Gaussian mechanism; null: none. Epsilon per node is recorded at every evaluation.

    Args:
        kind: message: all parameters that a node sends are clipped and noised, which protects its whole data from all
            others (local DP); dp_sgd: gradients of single samples are, in local training, which protects each sample.
        clip: L2 norm that an update (message) or the gradient of a sample (dp_sgd) is scaled down to.
        noise_multiplier: standard deviation of the noise over `clip`; 0: none, and no guarantee.
        delta: of (epsilon, delta).
        accountant: of Opacus; rdp: an upper bound, quick; prv: numerical, tighter.
        clips: of messages, what is clipped. update: parameters minus what was last sent in their place, at first minus
            the node's first model; model: the parameters themselves.
        adjacency: of messages, what an observer cannot distinguish. replace: any two data sets of a node, sensitivity 2
            clip; zero_out: a node's update and a zero update (of a node that still merges and sends), sensitivity clip.
    """

    kind: Literal["message", "dp_sgd"] = "message"
    clip: Annotated[float, Gt(0), Lt(1e30)]
    noise_multiplier: Annotated[float, Ge(0), Lt(1e30)]
    delta: Annotated[float, Gt(0), Lt(1)] = 1e-5
    accountant: Literal["rdp", "prv"] = "rdp"
    clips: Literal["update", "model"] = "update"
    adjacency: Literal["replace", "zero_out"] = "replace"

    @property
    def noise_of_message(self) -> float:
        """Standard deviation of a message's noise over its sensitivity."""
        return self.noise_multiplier / (2 if self.adjacency == "replace" else 1)


class SecureAggregation(Section):
    """What it costs that an aggregator learns the sum of its users' models alone; null: models travel in the clear.

    Args:
        protocol: bonawitz2017: Bonawitz et al., CCS 2017, against honest but curious nodes.
        threshold: t, how many users must be left after every stage: a number from 2, or a share of the users of an
            aggregator, below 1, rounded down, plus 1. Fewer make no sum. Who is away counts as a user, who has stopped
            early does not.
        value_bits: of a value of a model as an integer, log2 R_U in the paper, whose examples have 16; sums themselves
            are computed in float32.
        key_bytes: of a public key, a_K in the paper: 256 bits.
        share_bytes: of a share of a secret, a_S in the paper: 256 bits.
        encryption_bytes: that are added to two encrypted shares, which the paper does not count; 28 with AES-GCM.
        stage_timeout_s: a stage closes this many simulated seconds after it began, and who has not answered drops out;
            null: it takes as long as its messages do. The first begins when the aggregator starts to wait.
    """

    protocol: Literal["bonawitz2017"] = "bonawitz2017"
    threshold: Annotated[int, Ge(2)] | Annotated[float, Gt(0), Lt(1)] = 2 / 3
    value_bits: Annotated[int, Ge(1), Le(64)] = 32
    key_bytes: Annotated[int, Ge(1), Lt(2**20)] = 32
    share_bytes: Annotated[int, Ge(1), Lt(2**20)] = 32
    encryption_bytes: Annotated[int, Ge(0), Lt(2**20)] = 0
    stage_timeout_s: Annotated[float, Gt(0), Lt(END_OF_TIME_S)] | None = None


class Tcp(Section):
    """What TCP adds to flows that share links max-min fairly (docs: How far to trust a simulated second).

    Args:
        segment_bytes: of a message in one segment.
        segment_header_bytes: beside them on the wire; 66: Ethernet, IP, and TCP with time stamps.
        acks_per_segment: segments of headers alone that go back for each; 0.5: delayed acknowledgements.
        connections: persistent: one per pair of nodes, from the start, whose messages go one after the other;
            per_message: one for each message, whose set-up costs a round trip.
        initial_window: segments on their way when a connection begins; then twice as many in each round trip, until
            they fill the path; half of them for each time-out (0.2 s and a round trip) that it rests. 0: no slow start.
        shares: of links, among messages: equal; rtt: inversely to round-trip times; random: drawn for each message, as
            behind a plain queue.
        share_spread: of random shares: standard deviation of their logarithm.
        utilization: share of links' capacity that TCP fills, above 0; measured behind fq_codel 0.88, behind plain
            queues with shares: random 0.82.
    """

    segment_bytes: Annotated[int, Ge(1), Lt(2**20)] = 1448
    segment_header_bytes: Annotated[int, Ge(0), Lt(2**16)] = 66
    acks_per_segment: Annotated[float, Ge(0), Le(1)] = 0.5
    connections: Literal["persistent", "per_message"] = "persistent"
    initial_window: Annotated[int, Ge(0), Lt(2**20)] = 10
    shares: Literal["equal", "rtt", "random"] = "equal"
    share_spread: Annotated[float, Ge(0), Le(2)] = 0.3
    utilization: Annotated[float, Gt(0), Le(1)] = 1.0


class LossBursts(Section):
    """Losses in bursts (Gilbert, Elliott): the link of each sender is good or bad, for exponentially distributed times.

    Args:
        mean_good_s: mean simulated seconds of a stay in the good state.
        mean_bad_s: the same of the bad state.
        good: chance that a message is lost that is sent in the good state, below 1.
        bad: the same in the bad state.
    """

    mean_good_s: Annotated[float, Gt(0), Lt(END_OF_TIME_S)]
    mean_bad_s: Annotated[float, Gt(0), Lt(END_OF_TIME_S)]
    good: Annotated[float, Ge(0), Lt(1)] = 0.0
    bad: Annotated[float, Gt(0), Lt(1)]


class Network(Section):
    """How messages travel.

    Args:
        fidelity: flow: messages share bandwidth; tcp: and have TCP's headers, acknowledgements and slow start;
            latency: a message arrives after its latency alone, its bytes take no time; ideal: no delay at all.
        header_bytes: added to every message.
        drop_probability: chance that a message is lost on its way, below 1; the network only knows whole messages.
        loss_bursts: losses that come in bursts, in the place of drop_probability; null: each message is lost or not by
            itself.
        on_drop: what follows: retransmit: it is sent again as a whole, when its last byte should have arrived, until it
            arrives; drop: the receiver never gets it and stops waiting for it at that moment. Its bytes are wasted.
        timeout_s: a message that has not arrived so many simulated seconds after it was sent is given up: its flow
            ends, what was sent of it is wasted, its receiver stops waiting for it; null: it takes its time.
        server_mbps: Mbit/s of the server's uplink and of its downlink, where the algorithm has a server. Its access
            latency is the median of the nodes'; where links give latencies of pairs, it is one more site of
            internet-latency and latency_matrix, sits at a host of routed (links.server_host), and with links of one's
            own is as far from a node as the median of the others.
        links: the nodes' access to the network.
        compression: how parameters are encoded in messages.
        tcp: of fidelity tcp; null: its defaults.
    """

    why: ClassVar[Mapping[str, str]] = {
        "fidelity": "bandwidth is shared, without the details of TCP",
        "header_bytes": "about what TCP, IP and a small frame add",
        "drop_probability": "no losses",
        "loss_bursts": "no losses",
        "on_drop": "as TCP does",
        "timeout_s": "messages take their time",
        "server_mbps": "a server in a data center",
        "tcp": "the defaults of the fidelity",
    }

    fidelity: Literal["flow", "tcp", "latency", "ideal"] = "flow"
    header_bytes: Annotated[int, Ge(0), Lt(2**40)] = 64
    drop_probability: Annotated[float, Ge(0), Lt(1)] = 0.0
    loss_bursts: LossBursts | None = None
    on_drop: Literal["retransmit", "drop"] = "retransmit"
    timeout_s: Annotated[float, Gt(0), Lt(END_OF_TIME_S)] | None = None
    server_mbps: Annotated[float, Gt(0), Lt(MAX_MBPS)] = 1000.0
    links: Annotated[Any, NamedPart("links")]
    compression: Annotated[Any, NamedPart("compression")]
    tcp: Tcp | None = None


DEFAULT_LOCAL_STEPS = 10
NAME_PATTERN = r"^[A-Za-z0-9_][A-Za-z0-9_.+-]*$"


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


class Scenario(Section):
    """One experiment: nodes, their data and algorithm, the network between them, and for how long.

    Args:
        name: names the run's directory; by default the file's name without its ending.
        description: one line for people.
        paper: published numbers, shown beside the run's own; free form.
        seed: of all random streams.
        rounds: communication rounds of each node.
        mode: sync: a round waits for its messages; async: a node takes what has arrived. The run ends when all that are
            online are through; async: nodes that are away are waited for, up to twice the time until then. With a
            server rounds wait in either mode; those of gossip and adpsgd in neither.
        protocol: how long a node waits, and what it does with late messages.
        learning: real: nodes train; none: only the network runs: models are sizes, no data is needed, none stops early.
        init: models that nodes start from: shared: all of one architecture from the same; own: each from another.
        compute_device: where training is computed: auto, cpu or cuda.
        nodes: how many nodes, in which clusters.
        algorithm: the learning algorithm.
        attacks: what some nodes do to harm the others; none: all are honest.
        aggregation: the rule in the place of the algorithm's weighted average of models; null: that average itself.
        model: the network that is trained.
        data: the data set.
        task: what is learned, with what loss and by which metric it is judged; null: what the data set says.
        partition: which node owns which samples.
        shift: how a cluster's samples differ from another's.
        validation: which samples are set aside for choices during training.
        training: what one round of local training is.
        topology: which nodes may exchange messages; not heeded where there is a server, which all nodes reach, nor by
            algorithms whose nodes choose among all (dac, pens, panm, random, oracle, mapl, el by variant local, sgp by
            graph exponential).
        network: how messages travel.
        devices: how fast nodes compute.
        churn: when nodes are away; null: never.
        evaluation: when and how the models are tested.
        records: how much is written down.
        privacy: clipping and noise for differential privacy; null: none.
        secure_aggregation: sums that hide what is in them; null: none.
        energy: what the run costs in electricity; null: it is not counted.
        fallback: keys to change when the data is not there; null: no fallback.
    """

    why: ClassVar[Mapping[str, str]] = {
        "seed": "a number like any other; report several",
        "mode": "the papers' rounds wait",
        "learning": "nodes train",
        "init": "equal initial models, so that algorithms and not starts are compared",
        "aggregation": "the algorithm's own average",
        "attacks": "all nodes are honest",
        "task": "what the data set says",
        "churn": "all nodes stay",
        "privacy": "no noise",
        "secure_aggregation": "messages are as they are",
    }

    name: Annotated[str, StringConstraints(pattern=NAME_PATTERN)]
    description: str = ""
    paper: dict[str, Any] | None = None
    seed: Annotated[int, Ge(0)] = 0
    rounds: Count
    mode: Literal["sync", "async"] = "sync"
    protocol: Protocol
    learning: Literal["real", "none"] = "real"
    init: Literal["shared", "own"] = "shared"
    compute_device: Literal["auto", "cpu", "cuda"] = "auto"
    nodes: Nodes
    algorithm: Annotated[Any, NamedPart("algorithm")]
    aggregation: Annotated[Any, NamedPart("aggregation")] | None = None
    attacks: tuple[Annotated[Any, NamedPart("attacks")], ...] = ()
    model: Annotated[Any, NamedPart("model")]
    data: Annotated[Any, NamedPart("data")]
    task: Annotated[Any, NamedPart("task")] | None = None
    partition: Annotated[Any, NamedPart("partition")]
    shift: Annotated[Any, NamedPart("shift")]
    validation: Validation
    training: Training
    topology: Annotated[Any, NamedPart("topology")]
    network: Network
    devices: Annotated[Any, NamedPart("devices")]
    churn: Annotated[Any, NamedPart("churn")] | None = None
    evaluation: Evaluation
    records: Records
    privacy: Privacy | None = None
    secure_aggregation: SecureAggregation | None = None
    energy: Energy | None = None
    fallback: dict[str, Any] | None = None
    _notes: tuple[str, ...] = ()  # on what was left out when it was read; no part of what is run

    @property
    def algorithm_name(self) -> str:
        """The algorithm's name in its table; of a class in a file the class's."""
        return parts.table("algorithm").label_of(self.algorithm)

    @property
    def learned(self) -> Task:
        """The task: that of the key, or what the data set says."""
        return as_task(self.data.task if self.task is None else self.task)

    @property
    def data_name(self) -> str:
        """The data set's name in its table; of a class in a file the class's."""
        return parts.table("data").label_of(self.data)


DEFAULTS: dict[str, Any] = {
    "protocol": {},
    "partition": {"name": "uniform"},
    "shift": {"name": "none"},
    "validation": {},
    "training": {"optimizer": {"name": "sgd"}},
    "topology": {"name": "random_regular", "degree": 4},
    "network": {
        "links": {"name": "uniform", "uplink_mbps": 100, "downlink_mbps": 100, "latency_ms": 20},
        "compression": {"name": "none"},
    },
    "devices": {"name": "estimated", "device": "laptop_cpu"},
    "evaluation": {},
    "records": {},
}
"""What a scenario lies on: sections and parts that it need not give."""

WHY: dict[str, str] = {
    "partition": "every node has as many samples as any other, drawn evenly",
    "shift": "clusters differ only if the scenario says how",
    "training.optimizer": "plain SGD, which the algorithms are defined with",
    "topology": "a sparse connected graph that treats all nodes alike",
    "network.links": "the same links for all nodes, a household's fiber",
    "network.compression": "models as they are",
    "devices": "the model's own work on a device that many people have",
}
"""Why these parts."""


def to_plain(scenario: Scenario) -> dict[str, Any]:
    """Return a scenario as plain YAML data with every default written out."""
    return {key: _plain(key, getattr(scenario, key)) for key in Scenario.model_fields}


def _plain(key: str, value: Any) -> Any:
    if key in parts.LISTED:
        return [parts.to_plain(key, one) for one in value]
    if value is not None and key in parts.TABLES:
        return parts.to_plain(key, value)
    if isinstance(value, BaseModel):
        return {name: _plain(name, getattr(value, name)) for name in type(value).model_fields}
    return parts.plain(value)

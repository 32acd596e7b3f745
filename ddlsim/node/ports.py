"""The five ports through which a node reaches the rest of a run. An algorithm uses its node; a node uses these ports.

One object implements each port for all nodes, so methods take the node's id if they need it. The engine implements
Clock, Transport, RunInfo and Log; learning/learner.py and learning/size_learner.py implement Compute.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import numpy as np
    import simpy

    from ddlsim.aggregation.base import Aggregation
    from ddlsim.attacks.base import Attack
    from ddlsim.attacks.forgeries import Attackers
    from ddlsim.learning.bank import Params
    from ddlsim.learning.job_types import Model
    from ddlsim.learning.jobs import Job
    from ddlsim.learning.optimizing.state import LocalState
    from ddlsim.learning.training_inputs import Objective, TrainingContext
    from ddlsim.network.messages.message import Message


class Clock(Protocol):
    """Simulated time, and the simulated duration of computing."""

    @property
    def now_s(self) -> float:
        """Simulated seconds since the start."""

    def after(self, seconds: float) -> "simpy.Event":
        """Return an event this number of seconds from now."""

    def computing_s(self, node: int, steps: float, forward_passes: float = 0) -> float:
        """Return the seconds of a node's device for these local steps and forward passes if it starts now."""


class Transport(Protocol):
    """Messages of all nodes, as pushes, and as pulls of a node's publications. Messages are ordered by sender."""

    def push(self, sender: int, receivers: Iterable[int], round_num: int, payload: Mapping[str, Any]) -> None:
        """Send the payload to every receiver; nothing can be sent to offline nodes."""

    def publish(self, node: int, round_num: int, stage: int | None, payload: dict[str, Any]) -> None:
        """Answer pulls with this payload from now on, also waiting pulls."""

    def pull(
        self,
        node: int,
        peers: Sequence[int],
        round_num: int,
        keys: Sequence[str] | None,
        stages: Mapping[int, int] | None,
    ) -> None:
        """Ask peers for their publications."""

    def ask_for_scores(self, node: int, peers: Sequence[int], round_num: int, model: "Model") -> None:
        """Ask peers for the loss of a model on their training samples."""

    def exchange(self, node: int, peers: Sequence[int], round_num: int, payload: Mapping[str, Any]) -> None:
        """Offer the payload to peers; each answers when it arrives (`Algorithm.answer`)."""

    def starts_with(self, node: int, models: "Sequence[Model]") -> None:
        """Register models that a node has drawn, which contain no information on data; private messages contain the
        change since then.
        """

    def wait(self, node: int, kind: str, round_num: int, senders: Iterable[int]) -> "simpy.Event":
        """Return an event that happens when every message of this round that can still arrive from the senders has
        arrived, or at the round's deadline.

        Args:
            node: the node that waits.
            kind: kind of the messages: PUSH, RESPONSE or SCORE of network/messages/message.py.
            round_num: the round; messages of other rounds do not count.
            senders: the nodes whose messages the node waits for.
        """

    def take(self, node: int, kind: str, round_num: int) -> "list[Message]":
        """Return the messages of a round after the wait for it, and forget the messages of this and earlier rounds.

        Args:
            node: the receiver.
            kind: as in `wait`.
            round_num: the round that ends; with protocol.late_messages `keep`, the result includes, for senders
            without a
                message of this round, the newest message that arrived after its own round had ended.

        Returns:
            At most one message of each sender.
        """

    def has_taken(self, node: int, round_num: int) -> bool:
        """Whether this is the last round whose pushed messages the node has taken."""

    def take_newest(self, node: int, kind: str, oldest_round: int, newest_round: int) -> "list[Message]":
        """Return the newest message of every sender, if it is no older than protocol.staleness_s; only messages of
        later rounds are kept.

        Args:
            node: the receiver.
            kind: as in `wait`.
            oldest_round: messages of earlier rounds are left out.
            newest_round: messages of later rounds are neither returned nor removed.
        """


class Compute(Protocol):
    """Real learning, or its placeholder in network-only runs. Every call returns at once; work is done when its value
    is needed (see learning/jobs.py).
    """

    draws_numbers: bool
    """Whether it uses the random numbers passed to it; false: nothing is computed, and None is accepted."""

    def init_models(self, seed: int, count: int, whole: bool, node: int) -> "list[Model]":
        """Return new models of the node's architecture, in parts, or in one part if `whole`.

        Args:
            seed: seed of their values; not used if `draws_numbers` is false.
            count: number of models; each starts with different values.
            whole: one part, (model,), instead of (core, head, ...).
            node: the node whose architecture is used.

        Raises:
            DdlsimError: parts are requested, and the core of the architecture has no trained values.
        """

    def train_towards(
        self,
        node: int,
        model: "Model",
        steps: int,
        rng: "np.random.Generator | None",
        only: str | None,
        local_state: "LocalState | None",
        objective: "Objective | None",
        terms: "TrainingContext" = ...,
    ) -> "tuple[Model, LocalState | None, dict[int, Params]]":
        """Return the trained model, the node's state of the training (the optimizer's state, its own buffers;
        `local_state` is
        that of its last training), and per label the means of features.
        """

    @property
    def learning_rate(self) -> float:
        """The scenario's learning rate at the start of the run, without its schedule."""

    def learning_rates(self, steps: int, local_state: "LocalState | None", terms: "TrainingContext") -> list[float]:
        """Return the learning rate of every update of a training."""

    def losses(
        self,
        node: int,
        models: "Sequence[Model]",
        num_batches: int,
        rng: "np.random.Generator | None",
        common: bool = False,
        split: str = "train",
        local_state: "LocalState | None" = None,
    ) -> "Job":
        """Compute mean losses on the node's samples, of models with its own buffers; value: a list of floats, one per
        model.

        Args:
            node: the node that has the samples.
            models: candidates, part by part.
            num_batches: mini-batches per model.
            rng: draws mini-batches; None: the samples in their order, or `draws_numbers` is false.
            common: whether all models use the same mini-batches.
            split: "train" or "validation".
            local_state: the learner's state of the node's last training.
        """

    def test(
        self,
        models: "Sequence[Model]",
        test_set: int,
        split: str = "test",
        local_state: "LocalState | None" = None,
        precision: str = "float32",
    ) -> "Job":
        """Compute predictions on an evaluation set, with the buffers of the node that `local_state` belongs to;
        value: a list
        of EvalResult, one per model.

        Args:
            models: models part by part.
            test_set: number of the evaluation set, or the node, for split "own validation".
            split: "test", "validation" or "own validation".
            local_state: the learner's state of the last training of the models' node.
            precision: float32, or bf16: bfloat16 for operations that torch.autocast considers safe.
        """

    def compare(
        self,
        metric: str,
        own: "Model",
        peers: "Sequence[Model]",
        *,
        start: "Model | None" = None,
        own_last: "Model | None" = None,
        peers_last: "Sequence[Model]" = (),
        alpha: float = 0.0,
    ) -> "Job":
        """Compute similarities of a model to others; value: a list of floats, one per peer."""

    def class_cosine(self, own: "Params", others: "Sequence[Params]") -> "Job":
        """Compute the mean over classes of the cosine between classifiers' rows; value: a list of floats, one per
        other.
        """

    def merge(self, sources: "Sequence[Params]", weights: Sequence[float], node: int | None = None) -> "Params":
        """Return the weighted sum of parameters, in the given order.

        Args:
            sources: at least one, all of one size.
            weights: one per source, any real numbers; they are not normalized.
            node: the node that merges.

        Raises:
            DdlsimError: the sizes differ.
        """

    def aggregate(
        self,
        rule: "Aggregation",
        sources: "Sequence[Params]",
        weights: Sequence[float],
        own: int | None,
        start: "Params | None",
        node: int | None = None,
    ) -> "Params":
        """Combine parameters of several nodes by a robust rule.

        Args:
            rule: the rule.
            sources: at least one, all of one size.
            weights: weights in a plain average, summing to 1.
            own: index of the node's own parameters among them; None: it has none (a server).
            start: parameters at the start of the node's last training; None: it has not trained these parameters.
            node: the node that combines them.

        Raises:
            DdlsimError: the sizes differ.
        """

    def trained_values(self, params: "Params") -> "Params":
        """Return parameters without buffers."""

    def with_trained_values(self, params: "Params", values: "Params") -> "Params":
        """Return parameters with other trained values and their own buffers."""

    def classifier(self, head: "Params") -> "Params":
        """Return the weights of a head's last linear layer."""

    def attack(
        self,
        attack: "Attack",
        own: "Params",
        *,
        known: "Sequence[Params]",
        start: "Params | None",
        receiver: "Params | None",
        seed: int,
        sizes: tuple[int, int, int],
    ) -> "Params":
        """Return the parameters that an attacked node sends instead; see attacks/base.py: AttackInput."""

    def compress(self, codec: Any, params: "Params", copy: "Params | None", seed: int) -> "Params":
        """Return the parameters that receivers decode after a codec has encoded them."""

    def resolve(self, jobs: "Sequence[Job]") -> list[Any]:
        """Return the values of jobs, in one wave if possible: the only way to obtain values.

        Args:
            jobs: jobs of `losses`, `test`, `compare` or `class_cosine`.

        Returns:
            The value of each job, in order.
        """

    def value(self, job: "Job") -> Any:
        """Return the value of one job."""

    def flush(self) -> None:
        """Run the jobs that were already pending at the last call. The engine calls it when all nodes have completed a
        round, so that jobs do not accumulate if no value is needed for a long time.
        """

    def launch_full(self, num_training: Callable[[], int]) -> None:
        """Allow a wave to start once every training node has requested one. Called once by the engine.

        Args:
            num_training: current number of nodes that train.
        """

    def num_samples(self, node: int) -> int:
        """Return the number of a node's training samples."""

    def steps_per_epoch(self, node: int) -> int:
        """Return the number of mini-batches in one pass over a node's training samples."""

    def batches_in(self, split: str, node: int) -> int:
        """Return the number of mini-batches in one pass over a node's samples of a split."""


class RunInfo(Protocol):
    """All nodes' knowledge of the run, and their streams of random numbers."""

    seed: int
    rounds: int
    num_nodes: int
    server: int | None
    synchronous: bool
    in_step: bool
    """Whether nodes do their rounds together, see Run in engine/run_info.py."""
    has_final_exchange: bool
    own_starts: bool
    """Whether every node starts from a different model."""
    node_cluster: "np.ndarray"
    completed_by_all: int
    """Rounds that every node that takes part now has completed; counted by the engine."""

    def rng(self, purpose: str, node: int) -> "np.random.Generator":
        """Return a node's stream of random numbers for one purpose."""

    def local_steps(self, steps_per_epoch: int) -> int:
        """Return the steps of one round, for a node with this number of mini-batches of samples."""

    def rounds_taken(self, own_round: int) -> tuple[int, int]:
        """Return the first and the last round whose messages a node takes without waiting.

        Args:
            own_round: round of the receiver.
        """

    def neighbors(self, round_num: int) -> Sequence[Sequence[int]]:
        """Return each node's neighbors in the round's graph, ascending."""

    def turns(self, round_num: int) -> "np.ndarray":
        """Return each node's position in the round's random order, int [N]."""


class Log(Protocol):
    """Rows that nodes write into the run's records."""

    measured: Collection[str]
    """Names of the rows of the run's metrics, which nodes may not write."""

    def row(self, time_s: float, node: int, completed: int, name: str, value: Any) -> None:
        """Write one value; `completed` counts its round as completed."""

    def measure(
        self, time_s: float, node: int, completed: int, name: str, model: "Model", local_state: "LocalState | None"
    ) -> None:
        """Write rows of a model's accuracy and loss on the node's validation samples, once they are known."""


@dataclass(frozen=True, slots=True)
class Ports:
    """Ports of one run; its aggregation rule, None: the algorithm's own plain average; its attackers, None: all nodes
    are honest; and the counter of (node, round, steps) of private trainings.
    """

    clock: Clock
    transport: Transport
    compute: Compute
    run: RunInfo
    log: Log
    aggregation: "Aggregation | None" = None
    attackers: "Attackers | None" = None
    released: Callable[[int, int, int], None] | None = None

"""The five ports through which a node reaches the rest of a run. An algorithm sees its node; a node sees these.

One object stands behind each port and serves all nodes, so methods take the node's id where it matters. The engine
implements Clock, Transport, RunInfo and Log; learning/learner.py and learning/size_learner.py implement Compute.
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
    from ddlsim.learning.objective import Objective
    from ddlsim.learning.optimizing.state import Kept
    from ddlsim.learning.training_context import TrainingContext
    from ddlsim.network.messages.message import Message


class Clock(Protocol):
    """Simulated time, and how long computing takes in it."""

    @property
    def now_s(self) -> float:
        """Simulated seconds since the start."""

    def after(self, seconds: float) -> "simpy.Event":
        """An event that happens so many seconds from now."""

    def computing_s(self, node: int, steps: float, forward_passes: float = 0) -> float:
        """Seconds that a node's device takes for so many local steps and forward passes if it begins now."""


class Transport(Protocol):
    """Messages of all nodes, as pushes, and as pulls of what a node has published. Messages come ordered by sender."""

    def push(self, sender: int, receivers: Iterable[int], round_num: int, payload: Mapping[str, Any]) -> None:
        """Sends the payload to every receiver; to nodes that are away nothing can be sent."""

    def publish(self, node: int, round_num: int, stage: int | None, payload: dict[str, Any]) -> None:
        """Answers pulls with this payload from now on, also those that wait for it."""

    def pull(
        self,
        node: int,
        peers: Sequence[int],
        round_num: int,
        keys: Sequence[str] | None,
        stages: Mapping[int, int] | None,
    ) -> None:
        """Asks peers for what they publish."""

    def ask_for_scores(self, node: int, peers: Sequence[int], round_num: int, model: "Model") -> None:
        """Asks peers for the loss of a model on their training samples."""

    def exchange(self, node: int, peers: Sequence[int], round_num: int, payload: Mapping[str, Any]) -> None:
        """Offers the payload to peers, each of which answers when it arrives (`Algorithm.answer`)."""

    def starts_with(self, node: int, models: "Sequence[Model]") -> None:
        """A node has drawn models, which know no data; private messages are told as changes of them."""

    def wait(self, node: int, kind: str, round_num: int, senders: Iterable[int]) -> "simpy.Event":
        """An event that happens when everything that can still come from the senders for this round has come, or when
        the round's deadline is over.

        Args:
            node: the node that waits.
            kind: of the messages: PUSH, RESPONSE or SCORE of network/messages/message.py.
            round_num: the round; messages of other rounds do not count.
            senders: the nodes whose messages are waited for.
        """

    def take(self, node: int, kind: str, round_num: int) -> "list[Message]":
        """The messages of a round that has been waited for; those of this and earlier rounds are kept no longer.

        Args:
            node: the receiver.
            kind: as of `wait`.
            round_num: the round that ends; with protocol.late `keep`, of senders without a message of this round also
                the newest that came after its own round had ended.

        Returns:
            At most one message of each sender.
        """

    def has_taken(self, node: int, round_num: int) -> bool:
        """Whether a node has taken pushed messages of this round, the last one that it took any of."""

    def take_newest(self, node: int, kind: str, oldest_round: int, newest_round: int) -> "list[Message]":
        """Return the newest message of every sender, if it is no older than protocol.staleness_s; only messages of
        later rounds are kept.

        Args:
            node: the receiver.
            kind: as of `wait`.
            oldest_round: messages of earlier rounds are left out.
            newest_round: messages of later rounds stay where they are.
        """


class Compute(Protocol):
    """Real learning, or what stands in for it in network-only runs. Every call returns at once; work is done when a
    value of it is needed (see learning/jobs.py).
    """

    draws_numbers: bool
    """Whether it uses the random numbers that it is given; false: nothing is computed, and None will do."""

    def init_models(self, seed: int, count: int, whole: bool, node: int) -> "list[Model]":
        """Fresh models of the node's architecture, in parts, or in one part where `whole`.

        Args:
            seed: of their values; not used where `draws_numbers` is false.
            count: how many; each begins with other values.
            whole: one part, (model,), instead of (core, head, ...).
            node: whose architecture.

        Raises:
            DdlsimError: parts are wanted, and the core of the architecture has no trained values.
        """

    def train_towards(
        self,
        node: int,
        model: "Model",
        steps: int,
        rng: "np.random.Generator | None",
        only: str | None,
        kept: "Kept | None",
        objective: "Objective | None",
        terms: "TrainingContext" = ...,
    ) -> "tuple[Model, Kept | None, dict[int, Params]]":
        """The trained model, what the node keeps of the training (the optimizer's state, its own buffers; `kept` is
        that of its last one), and per label the means of features.
        """

    @property
    def learning_rate(self) -> float:
        """The scenario's when the run began, without its schedule."""

    def learning_rates(self, steps: int, kept: "Kept | None", terms: "TrainingContext") -> list[float]:
        """The learning rate of every update of a training."""

    def losses(
        self,
        node: int,
        models: "Sequence[Model]",
        num_batches: int,
        rng: "np.random.Generator | None",
        common: bool = False,
        split: str = "train",
        kept: "Kept | None" = None,
    ) -> "Job":
        """Mean losses on the node's samples, of models with its own buffers; value: a list of floats, one per model.

        Args:
            node: the node that has the samples.
            models: candidates, part by part.
            num_batches: mini-batches per model.
            rng: draws mini-batches; None: the samples in their order, and where `draws_numbers` is false.
            common: the same mini-batches for all models.
            split: "train" or "validation".
            kept: of the node's last training.
        """

    def test(
        self,
        models: "Sequence[Model]",
        test_set: int,
        split: str = "test",
        kept: "Kept | None" = None,
        precision: str = "float32",
    ) -> "Job":
        """Predictions on an evaluation set, with the own buffers of the node that `kept` is of; value: a list of
        EvalResult, one per model.

        Args:
            models: part by part.
            test_set: number of the evaluation set, or the node, for split "own validation".
            split: "test", "validation" or "own validation".
            kept: of the last training of the node whose models these are.
            precision: float32, or bf16: in bfloat16 where torch.autocast holds that to be safe.
        """

    def compare(
        self,
        metric: str,
        own: "Model",
        peers: "Sequence[Model]",
        start: "Model | None" = None,
        own_last: "Model | None" = None,
        peers_last: "Sequence[Model]" = (),
        alpha: float = 0.0,
    ) -> "Job":
        """Similarities of a model to others; value: a list of floats, one per peer."""

    def class_cosine(self, own: "Params", others: "Sequence[Params]") -> "Job":
        """Mean over classes of the cosine between classifiers' rows; value: a list of floats, one per other."""

    def merge(self, sources: "Sequence[Params]", weights: Sequence[float], node: int | None = None) -> "Params":
        """The weighted sum of parameters, in the given order.

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
        """Parameters of several nodes, combined by a robust rule.

        Args:
            rule: the rule.
            sources: at least one, all of one size.
            weights: what each would weigh in a plain average, summing to 1.
            own: the place of the node's own among them; None: it has none (a server).
            start: what the node's last training began with; None: it has not trained what is combined.
            node: the node that combines them.

        Raises:
            DdlsimError: the sizes differ.
        """

    def trained_values(self, params: "Params") -> "Params":
        """Parameters without buffers."""

    def with_trained_values(self, params: "Params", values: "Params") -> "Params":
        """Parameters with other trained values and their own buffers."""

    def classifier(self, head: "Params") -> "Params":
        """The weights of a head's last linear layer."""

    def attack(
        self,
        attack: "Attack",
        own: "Params",
        known: "Sequence[Params]",
        start: "Params | None",
        receiver: "Params | None",
        seed: int,
        sizes: tuple[int, int, int],
    ) -> "Params":
        """What an attacked node sends in the place of parameters; see attacks/base.py: Seen."""

    def compress(self, codec: Any, params: "Params", copy: "Params | None", seed: int) -> "Params":
        """What receivers decode of parameters that a codec encodes."""

    def resolve(self, jobs: "Sequence[Job]") -> list[Any]:
        """What jobs compute, in one wave where possible: the only way in which values leave.

        Args:
            jobs: of `losses`, `test`, `compare` or `class_cosine`.

        Returns:
            The value of each job, in order.
        """

    def value(self, job: "Job") -> Any:
        """What one job computes."""

    def flush(self) -> None:
        """Runs the jobs that were already pending at the last call. The engine calls it when all nodes have completed a
        round, so that jobs do not pile up where no value is needed for long.
        """

    def launch_full(self, num_training: Callable[[], int]) -> None:
        """Trainings may begin as soon as all nodes that train have asked for one. The engine calls it once.

        Args:
            num_training: how many nodes there are at present that train.
        """

    def num_samples(self, node: int) -> int:
        """A node's training samples."""

    def steps_per_epoch(self, node: int) -> int:
        """Mini-batches in one pass over a node's training samples."""

    def batches_in(self, split: str, node: int) -> int:
        """Mini-batches in one pass over a node's samples of a split."""


class RunInfo(Protocol):
    """What all nodes know of the run, and their streams of random numbers."""

    seed: int
    rounds: int
    num_nodes: int
    server: int | None
    synchronous: bool
    in_step: bool
    """Whether nodes do their rounds together, see Run in engine/run_info.py."""
    has_final_exchange: bool
    own_starts: bool
    """Whether every node starts from another model."""
    node_cluster: "np.ndarray"
    completed_by_all: int
    """Rounds that no node which takes part now has yet to complete; the engine counts them."""

    def rng(self, purpose: str, node: int) -> "np.random.Generator":
        """A node's stream of random numbers for one purpose."""

    def local_steps(self, steps_per_epoch: int) -> int:
        """Steps of one round, for a node with so many mini-batches of samples."""

    def rounds_taken(self, own_round: int) -> tuple[int, int]:
        """Return the first and the last round whose messages a node takes without waiting.

        Args:
            own_round: round of the receiver.
        """

    def neighbors(self, round_num: int) -> Sequence[Sequence[int]]:
        """Per node its neighbors in the round's graph, ascending."""

    def turns(self, round_num: int) -> "np.ndarray":
        """Per node its place in the round's random order, int [N]."""


class Log(Protocol):
    """Rows that nodes write into the run's records."""

    measured: Collection[str]
    """Names of the rows of the run's metrics, which are no node's to write."""

    def row(self, time_s: float, node: int, completed: int, name: str, value: Any) -> None:
        """One value; `completed` counts the round that it belongs to as completed."""

    def measure(self, time_s: float, node: int, completed: int, name: str, model: "Model", kept: "Kept | None") -> None:
        """Rows of a model's accuracy and loss on the node's validation samples, written once they are known."""


@dataclass(frozen=True, slots=True)
class Ports:
    """The five of one run; the rule by which its nodes combine models, None: their algorithm's plain average; who
    attacks, None: all are honest; and what counts (node, round, steps) of private trainings.
    """

    clock: Clock
    transport: Transport
    compute: Compute
    run: RunInfo
    log: Log
    aggregation: "Aggregation | None" = None
    attackers: "Attackers | None" = None
    released: Callable[[int, int, int], None] | None = None

"""One run in simulated time: a SimPy process per node, the network between them, and nodes that come and go."""

from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
import simpy

from ddlsim.engine.churn import Absences
from ddlsim.engine.collector import searching_rarely
from ddlsim.engine.contents import Contents
from ddlsim.engine.departures import Departures
from ddlsim.engine.device_trace import StepTimeTrace
from ddlsim.engine.environment import Environment
from ddlsim.engine.evaluation import METRIC_OF, Evaluated, Evaluator, Serving, Snapshot
from ddlsim.engine.measurements import Measurements
from ddlsim.engine.message import REQUEST, RESPONSE, SCORE, SCORE_REQUEST, Message, to_one
from ddlsim.engine.network import Network
from ddlsim.engine.node import Node, Verb
from ddlsim.engine.presence import Presence
from ddlsim.engine.timetable import Timetable
from ddlsim.engine.true_similarities import TrueSimilarities
from ddlsim.errors import DdlsimError
from ddlsim.rng import stream
from ddlsim.units import END_OF_TIME_S

ANSWER_TO = {REQUEST: RESPONSE, SCORE_REQUEST: SCORE}

Steps = Generator[Verb, Any, None]


class Algorithm(Protocol):
    """What every entry of ALGORITHMS offers. A node's whole memory is the state that `start` makes."""

    def start(self, node: Node) -> Any:
        """The node's state before its first round; costs no time."""

    def round(self, node: Node, state: Any, round_num: int) -> Steps:
        """One round, yielding verbs. A node that leaves abandons the round where it is; the state stays."""

    def serving(self, node: Node, state: Any) -> Serving:
        """What the node would answer queries with; evaluated."""

    # def stopped(self, node, state, best): optional; early stopping has ended the node's rounds with this best model
    # def finish(self, node, state, round_num) -> Steps: optional last exchange after the last round
    # def join(self, node, state, round_num) -> Steps: optional first exchange of a node that joins a run under way
    # def seen(self, state), similarities_of(self, ...): optional, of algorithms that compare models; see pulling.py


def _remembering_the_last(neighbours: Callable[[int], Sequence[Sequence[int]]]):
    """The same function; nodes ask for the graph of one round one after the other."""
    last_round, last_graph = None, None

    def remembered(round_num: int) -> Sequence[Sequence[int]]:
        nonlocal last_round, last_graph
        if round_num != last_round:
            last_round, last_graph = round_num, neighbours(round_num)
        return last_graph

    return remembered


class Simulation:
    """All objects of one run.

    Args:
        algorithm: see Algorithm.
        learner: see learning/learner.py.
        make_network: (env, on_delivery, on_abort) -> Network.
        neighbours: round -> per node its neighbours.
        step_time_s: seconds per local step, per node; an array or what changes over time.
        absences: per node its absences, see churn.py; taken one by one, as time comes.
        state_lost: whether a node comes back without its state and starts afresh.
        node_cluster: hidden cluster per node.
        has_server: whether there is one more node, the last, which serves the others (see server.py).
        test_set: per node what it is tested on; None: its cluster's test set.
        true_similarities: nodes that are compared with all others at every evaluation, see true_similarities.py.
        recorder: where rows go.
        codec: how parameters in messages are compressed, see ddlsim.compression: Codec; None: not at all.
        settings: seed, rounds, steps_of (mini-batches per epoch -> local steps), evaluate_every, header_bytes,
            synchronous, deadline_s, keep_late and staleness (see Node.receive), the target to stop at (or None),
            patience of early stopping (or None) and whether the best model by validation loss is evaluated, as
            keyword arguments.
        task: classification or regression.
        network_only: nothing is learned or evaluated (see learning/sizes.py); rounds are timed instead.
        on_round: called when a round is completed by all who took part: (completed, time_s, bytes sent).
        on_evaluated: called after every evaluation.
    """

    def __init__(
        self,
        *,
        algorithm: Algorithm,
        learner,
        make_network: Callable[..., Network],
        neighbours: Callable[[int], Sequence[Sequence[int]]],
        step_time_s: np.ndarray | StepTimeTrace,
        absences: Absences,
        node_cluster: np.ndarray,
        recorder,
        seed: int,
        rounds: int,
        steps_of: Callable[[int], int],
        evaluate_every: int,
        header_bytes: int,
        synchronous: bool = True,
        deadline_s: float | None = None,
        keep_late: bool = False,
        staleness: int = 5,
        state_lost: bool = False,
        stop_at: float | None = None,
        codec=None,
        task: str = "classification",
        network_only: bool = False,
        patience: int | None = None,
        best_model: bool = False,
        test_set: np.ndarray | None = None,
        has_server: bool = False,
        true_similarities: Sequence[int] = (),
        on_round: Callable[[int, float, int], None] = lambda *_: None,
        on_evaluated: Callable[[Evaluated], None] = lambda _: None,
    ):
        self.algorithm = algorithm
        self.learner = learner
        self.neighbours = _remembering_the_last(neighbours)
        self.step_time_s = step_time_s
        self.node_cluster = node_cluster
        self.recorder = recorder
        self.seed, self.rounds, self.steps_of = seed, rounds, steps_of
        self.header_bytes, self.synchronous = header_bytes, synchronous
        self.deadline_s, self.keep_late, self.staleness = deadline_s, keep_late, staleness
        self.patience = None if network_only else patience  # validation takes its time, but its values say nothing
        self.validates = best_model or patience is not None
        self._evaluates_best = best_model
        self.codec = codec
        self.contents = Contents(codec)
        self._every = evaluate_every
        self._stop_at = stop_at
        self.network_only = network_only
        self._on_round, self._on_evaluated = on_round, on_evaluated
        self.env = Environment()
        self.num_nodes = len(step_time_s)
        self.server = self.num_nodes if has_server else None
        self.network = make_network(self.env, self._delivered, self.fail)
        self.mailboxes = self.network.use_mailboxes()
        self.nodes = [Node(node_id, self) for node_id in range(self.num_nodes + has_server)]

        def rng(purpose: str, node: int) -> np.random.Generator:
            return self.nodes[node].rng(purpose)

        self._similarities = TrueSimilarities(
            () if network_only else true_similarities, algorithm, self.nodes, learner, recorder, rng
        )
        self.evaluator = (
            Timetable(recorder, self.nodes)
            if network_only
            else Evaluator(
                self.nodes,
                learner,
                recorder,
                node_cluster if test_set is None else test_set,
                METRIC_OF[task],
                rng,
                self.evaluation_due,
                self._evaluated,
                self._similarities,
            )
        )
        self._measurements = Measurements(learner, recorder)
        self._states: list[Any] = [None] * len(self.nodes)
        self._completions: dict[int, int] = {}
        self._turns: dict[int, np.ndarray] = {}
        self._reported = 0
        self._stop = self.env.event()
        self._departures = Departures(self, absences, state_lost)
        self.presence = Presence(self.nodes, synchronous)
        self._lives = self.env.processes(self._life(node) for node in self.nodes)
        self._departures.begin()

    def run(self) -> None:
        """Runs until every node that is online is through, or until the target is reached.

        Raises:
            DdlsimError: if nodes wait for messages that never come (a fault of the algorithm); names them. If all nodes
                have left for good.
        """
        try:
            with searching_rarely(self.num_nodes):
                self.env.run(until=self._stop)
        except RuntimeError as error:
            if "No scheduled events left" not in str(error):
                raise
            if not any(node.online for node in self.nodes):
                raise DdlsimError(
                    "churn: all nodes have left for good before the run was through. A longer trace, a smaller "
                    "time_scale or fewer rounds would help."
                ) from error
            stuck = {node.id: self.mailboxes.waiting_for(node.id) for node in self.nodes if not node.done}
            raise DdlsimError(
                f"at {self.env.now:.3f} simulated seconds nothing can happen any more, but nodes still wait "
                f"(node: round: senders): {stuck}. {self._why_stuck()}"
            ) from error
        self._measurements.write()

    def _why_stuck(self) -> str:
        if self.network.num_sending == 0:
            return "An algorithm must receive only from nodes that send to it."
        instead = (
            ", or set protocol.deadline_s or mode: async, where no node waits for ever" if self.synchronous else ""
        )
        return (
            f"{self.network.num_sending} messages are on links without capacity, or with too little for centuries: "
            f"give them more{instead}."
        )

    def state(self, node: Node) -> Any:
        """What a node remembers."""
        return self._states[node.id]

    @property
    def completed_by_all(self) -> int:
        """Rounds that everybody who took part has completed."""
        return self._reported

    def measure(self, node: int, completed: int, name: str, model) -> None:
        """Writes how well a model does on a node's validation samples, once it is known."""
        self._measurements.take(self.env.now, node, completed, name, model)

    def turns(self, round_num: int) -> np.ndarray:
        """Per node its place in the round's random order."""
        if round_num not in self._turns:
            self._turns = {known: turns for known, turns in self._turns.items() if known >= self._reported}
            self._turns[round_num] = self.stream("turns", round_num).permutation(self.num_nodes)
        return self._turns[round_num]

    def evaluation_due(self, completed: int) -> bool:
        """Whether the run is evaluated when this many rounds are completed."""
        if completed == self.rounds:
            return not hasattr(self.algorithm, "finish") or completed % self._every == 0
        return completed > self.rounds or completed % self._every == 0

    def computing_s(self, node: int, steps: float) -> float:
        """How long a node takes for so many local steps (a forward pass is a part of one) if it begins now."""
        if isinstance(self.step_time_s, StepTimeTrace):
            return self.step_time_s.duration_s(node, steps, self.env.now)
        return steps * self.step_time_s[node]

    # -- messages --------------------------------------------------------------------------------------------------

    def send(self, messages: list[Message]) -> None:
        """Hands messages to the network; to a node that is away nothing can be sent."""
        if self.network.num_away:
            messages = [reachable for message in messages if (reachable := self._to_those_online(message))]
        self.contents.count(messages)
        self.network.send(messages)

    def _to_those_online(self, message: Message) -> Message | None:
        receivers = message.receivers
        online = tuple(receiver for receiver in receivers if self.nodes[receiver].online)
        if len(online) == len(receivers):
            return message
        for receiver in (receiver for receiver in receivers if not self.nodes[receiver].online):
            self.fail(to_one(message, receiver))
        return replace(message, dst=online) if online else None

    def _delivered(self, message: Message) -> None:
        for copies, version in message.streams:
            copies.reached(message.dst, version)
        node = self.nodes[message.dst]
        if message.kind == REQUEST:
            node.answer(message)
        elif message.kind == SCORE_REQUEST:
            node.score(message)
        else:  # the mailbox knows what is too late
            self.mailboxes.deliver(message)

    def fail(self, message: Message) -> None:
        """A message will never arrive: who waits for it, or for the answer to it, is told."""
        if message.kind in ANSWER_TO:
            self.mailboxes.fail(message.src, ANSWER_TO[message.kind], message.dst, message.round_num)
        else:
            self.mailboxes.fail(message.dst, message.kind, message.src, message.round_num)

    # -- lives -----------------------------------------------------------------------------------------------------

    def _life(self, node: Node) -> Generator[simpy.Event, Any, None]:
        newcomer = not node.joined
        if newcomer:
            yield self._departures.returned[node.id]
        else:
            self.start_afresh(node)
        last = self.rounds + 1 if hasattr(self.algorithm, "finish") else self.rounds
        while node.round_num < last:
            try:
                if newcomer and hasattr(self.algorithm, "join"):
                    newcomer = False
                    yield from self._perform(self.algorithm.join(node, self._states[node.id], node.round_num))
                yield from self._perform(self._steps(node))
            except simpy.Interrupt:
                yield self._departures.returned[node.id]
                continue
            if node.best is not None:
                self._validate(node)
            self._complete(node)
            if node.stopped:
                self.presence.num_online -= 1
                break
        self.presence.through(node)
        self.mailboxes.close(node.id)
        self._check_evaluations()
        self._stop_if_over()

    def _stop_if_over(self) -> None:
        """See presence.py."""
        if not self._stop.triggered and self.presence.over(self.env.now):
            for node in self.presence.cut_off():
                self.recorder.row(self.env.now, node.id, node.completed_rounds, "cut_off", 1)
            self._evaluate_early_end()
            self._stop.succeed()

    def _validate(self, node: Node) -> None:
        """The node looks at what its trainings of this round were worth, and stops if its patience is over."""
        for loss in node.best.resolve(self.learner.value):
            node.record("validation_loss", loss, node.round_num)
        if node.best.run_out:
            node.record("stopped", 1, node.round_num)
            if hasattr(self.algorithm, "stopped"):
                self.algorithm.stopped(node, self._states[node.id], node.best.model)
            node.stop()

    def _evaluate_early_end(self) -> None:
        """All nodes have stopped before the last round: what they ended with is measured."""
        reached = max(node.completed_rounds for node in self.nodes)
        if any(node.stopped for node in self.nodes) and reached > self.evaluator.evaluated:
            for node in (node for node in self.nodes if node.joined):
                self.evaluator.completed(node, reached, self._snapshot)
            self._check_evaluations()

    def _steps(self, node: Node) -> Steps:
        step = self.algorithm.round if node.round_num < self.rounds else self.algorithm.finish  # type: ignore[attr-defined]
        return step(node, self._states[node.id], node.round_num)

    def _perform(self, steps: Steps) -> Generator[simpy.Event, Any, None]:
        """Drives an algorithm's generator: waits for each verb, then hands back its outcome."""
        outcome = None
        try:
            while True:
                verb = steps.send(outcome)
                yield verb.event
                outcome = verb.result()
        except StopIteration:
            return
        finally:
            steps.close()

    def _complete(self, node: Node) -> None:
        completed = node.round_num = node.round_num + 1
        if self.env.now >= END_OF_TIME_S:
            raise DdlsimError(
                f"simulated time has passed {END_OF_TIME_S:g} s in round {completed} of node {node.id}, beyond which "
                "nanoseconds cannot be counted. Check step times, deadlines, churn, capacities and latencies."
            )
        self.presence.completed(node, completed)
        self._completions[completed] = self._completions.get(completed, 0) + 1
        if completed > self._reported and self._completions[completed] >= self.presence.num_online:
            self._reported = completed
            self.learner.jobs.flush()
            self._measurements.write()
            self.recorder.flush()
            self._on_round(min(completed, self.rounds), self.env.now, self.network.all_bytes_sent())
        if self.evaluator.due(completed):
            self.evaluator.completed(node, completed, self._snapshot)
            self._check_evaluations()
        self.mailboxes.closed(node.id, None if node.stopped else max(node.first_round, completed))

    def _snapshot(self, node: Node) -> Snapshot:
        serving = self.algorithm.serving(node, self._states[node.id])
        if (node.stopped or self._evaluates_best) and node.best.model is not None:
            serving = Serving([node.best.model])
        seen = self._similarities.seen(self._states[node.id])
        return Snapshot(self.env.now, self.network.bytes_sent(node.id), serving, seen)

    def _check_evaluations(self) -> None:
        self.evaluator.close_complete(self._snapshot)

    def _evaluated(self, outcome: Evaluated) -> None:
        self._on_evaluated(outcome)
        if self._stop_at is not None and outcome.reaches(self._stop_at) and not self._stop.triggered:
            self._stop.succeed()

    # -- who is there ----------------------------------------------------------------------------------------------

    def start_afresh(self, node: Node) -> None:
        """Gives a node its first state, or a new first one."""
        self._states[node.id] = self.algorithm.start(node)

    def abandon_round(self, node: Node) -> None:
        """A node has left in the middle of a round; who waits for it looks again."""
        self._lives[node.id].interrupt()
        self.mailboxes.reconsider(node.id)
        self._check_evaluations()
        self._stop_if_over()

    def stream(self, purpose: str, *indices: int) -> np.random.Generator:
        """A named stream of random numbers of this run."""
        return stream(self.seed, purpose, *indices)

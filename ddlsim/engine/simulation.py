"""One run in simulated time: a SimPy process per node that drives its algorithm, round by round."""

from collections.abc import Callable, Generator, Iterator, Mapping
from typing import Any

import simpy
from simpy.core import EmptySchedule
from simpy.events import URGENT
from simpy.exceptions import SimPyException

from ddlsim.algorithms.base import Algorithm
from ddlsim.churn.schedule import Absences
from ddlsim.engine.evaluator import Monitor
from ddlsim.engine.gc_tuning import relaxed_gc
from ddlsim.engine.membership import Member, Membership
from ddlsim.engine.monitor import Records
from ddlsim.engine.presence import Presence
from ddlsim.engine.steps import candidates, no_verb, start_steps, stuck_text, unused_verb
from ddlsim.engine.transport import EnginePorts
from ddlsim.foundation.errors import DdlsimError
from ddlsim.foundation.units import END_OF_TIME_S
from ddlsim.network.messages.message import Message
from ddlsim.node.candidates import BestModel, EvaluationCandidates, Snapshot
from ddlsim.node.node import Node, Steps

SEQUENCES = tuple, list


class Simulation:
    """The nodes of one run and their lives.

    Args:
        env: SimPy's environment.
        algorithm: the algorithm of every node, see algorithms/base.py.
        ports: the nodes' view of the run; its transport and its clock's meter are notified of nodes that join and
            leave.
        members: all nodes by id, the server last; the simulation makes their nodes and states.
        absences: per node its absences, see churn/schedule.py.
        state_lost: whether a node returns from an absence without its state.
        monitor: measures completed rounds and decides whether the run has reached its target.
        records: destination of rows.
        on_round: called when all nodes that took part have completed a round: (completed, time_s, bytes sent).
    """

    def __init__(
        self,
        env: simpy.Environment,
        algorithm: Algorithm,
        ports: EnginePorts,
        members: list[Member],
        absences: Absences,
        state_lost: bool,
        monitor: Monitor,
        records: Records,
        on_round: Callable[[int, float, int], None] = lambda *_: None,
    ):
        self.env = env
        self.algorithm = algorithm
        self._by_round: list[tuple[int, Algorithm]] = [(0, algorithm)]  # first rounds, newest first
        self.ports, self._run, self._compute = ports, ports.run, ports.compute
        self.transport, self.meter = ports.transport, ports.clock.meter
        self.network = self.transport.network
        self.members = members
        self.monitor = monitor
        self._records = records
        self._on_round = on_round
        self._last_round = ports.run.rounds + 1 if algorithm.has_final_exchange else ports.run.rounds
        self._stop = env.event()
        self._over = False
        self._latest_s = 0.0
        self.clock_errors = 0
        for member in members:
            member.node = Node(member.id, ports, member.best)
        self.transport.answers.to_offer = self._answer
        self.membership = Membership(members, ports.run.in_step)
        self._run.online = self.membership.available
        self._compute.launch_full(self.membership.num_training)
        own = env, ports, members, self.membership, records
        self.presence = Presence(*own, absences, state_lost, self._reset_state, self._departed)
        self._lives = [self._life(member) for member in members]
        self._processes = [env.process(life) for life in self._lives]
        self.presence.begin()

    @property
    def completed_by_all(self) -> int:
        """Rounds completed by all nodes that took part; a last exchange counts as one."""
        return self._run.completed_by_all

    @property
    def furthest(self) -> int:
        """Number, from 0, of the latest round that a node has started."""
        return max(member.round_num for member in self.members)

    def use_algorithm(self, algorithm: Algorithm) -> None:
        """Use an algorithm of the same kind with other options for every round that no node has started."""
        self.algorithm = algorithm
        self._by_round.insert(0, (self.furthest + 1, algorithm))

    def run(self) -> None:
        """Run until every online node has finished, or until the target is reached.

        Raises:
            DdlsimError: if nodes wait for messages that never arrive (a fault of the algorithm); names them. If all
                nodes have left permanently.
        """
        try:
            with relaxed_gc(self._run.num_nodes):
                self.env.run(until=self._stop)
        except RuntimeError as error:
            if not isinstance(error.__context__, EmptySchedule):
                raise
            raise DdlsimError(stuck_text(self.env.now, self.members, self.transport, self.network)) from error
        except SimPyException as error:
            text = f"at {self.env.now:.3f} simulated seconds the simulation failed ({type(error).__name__})"
            raise DdlsimError(f"{text}, a fault of ddlsim: report it with the scenario and log.txt.") from error
        self.monitor.write_measurements(self._run.completed_by_all)

    # -- lives -----------------------------------------------------------------------------------------------------

    def _life(self, member: Member) -> Generator[simpy.Event, Any, None]:
        rounds = self._run.rounds
        joins = not member.joined
        if joins:
            yield from self.presence.until_returned(member)
        else:
            self._reset_state(member)
            self._measure_start(member)
        if member.is_server and not self._run.in_step:
            self.membership.only_answers(member)
            return
        while member.round_num < self._last_round:
            algorithm = self._algorithm_of(member.round_num)
            stage, begin = ("round", algorithm.round) if member.round_num < rounds else ("finish", algorithm.finish)
            takes_part = self._run.takes_part(member.id, member.round_num)
            if joins and takes_part:
                stage, begin = "join", algorithm.join
            member.node.round_num, member.node.unanswered = member.round_num, False
            if takes_part:
                steps = start_steps(algorithm, stage, begin(member.node, member.state, member.round_num))
            else:
                steps = self._sit_out(member)
            outcome = None
            try:
                while True:  # wait for each verb, then pass its outcome; no function, since half of all events pass
                    verb = steps.send(outcome)
                    if not isinstance(verb, SEQUENCES) or len(verb) != 2 or not isinstance(verb[0], simpy.Event):
                        raise no_verb(algorithm, stage, steps, verb)
                    event, result = verb
                    member.node.open_verbs -= 1
                    yield event
                    outcome = result()
            except simpy.Interrupt:
                steps.close()
                member.node.restart_round()
                member.node.stay += 1
                yield from self.presence.until_returned(member)
                joins = joins or self.presence.state_lost or algorithm.rejoins_after_absence
                continue
            except KeyboardInterrupt as signal:
                self._end_at_once(member, signal)
                return
            except StopIteration:
                if stage == "join":
                    joins = False
                    self._catch_up(member, member.round_num)
                    continue
            if member.node.open_verbs > 0:
                raise unused_verb(algorithm, stage)
            if self.membership.serves_no_node(member):
                member.node.restart_round()
                anyone = self.presence.until_anyone_returns()
                self.membership.server_waits = True
                self._stop_if_over()
                yield anyone
                self.membership.server_waits = False
                continue
            if member.best is not None:
                self._validate(member, member.best)
            if (member.late or member.node.unanswered) and not member.stopped:  # unanswered: a message was lost
                member.node.restart_round()
                self._catch_up(member, member.round_num + 1)
                joins = joins or algorithm.rejoins_after_absence
                continue
            joins = joins or (not takes_part and algorithm.rejoins_after_absence)
            if member.is_server:
                self._close_round_of(member)
            self._complete(member)
            if member.stopped:
                break
        self.membership.finished(member, did_last_round=member.completed_rounds >= self._last_round)
        self.transport.finished(member.id)
        if self.meter is not None:
            self.meter.devices[member.id].end_idle(self.env.now)
        self._report_rounds()
        self._measure_complete()
        self._stop_if_over()

    def _sit_out(self, member: Member) -> Steps:
        """Let a node be idle in a round that it does not join, as long as its local training would take."""
        node = member.node
        self._records.row(self.env.now, member.id, member.round_num + 1, "sits_out", 1)
        member.sits_out = True
        try:
            yield node.sleep(self.ports.clock.steps_s(member.id, node.local_steps))
        finally:
            member.sits_out = False

    def _end_at_once(self, member: Member, error: BaseException) -> None:
        """End the simulation by an error in a node's process, before all other events of this instant.

        In SimPy an error that leaves a process waits its turn: other nodes would compute first.
        """
        for number, life in enumerate(self._lives):
            if number != member.id:
                life.close()
        ends = self.env.event()
        ends._ok, ends._value = False, error
        self.env.schedule(ends, URGENT)

    def _algorithm_of(self, round_num: int) -> Algorithm:
        return next(algorithm for first, algorithm in self._by_round if round_num >= first)

    def _answer(self, offer: Message) -> Mapping[str, Any]:
        """Return the answer of a node's algorithm to an offer, see Node.exchange."""
        member = self.members[offer.receiver]
        return self._algorithm_of(member.round_num).answer(member.node, member.state, offer)

    def _reset_state(self, member: Member) -> None:
        """Give a node its first state, or a new one after a loss."""
        member.state = self.algorithm.start(member.node)

    def _validate(self, member: Member, best: BestModel) -> None:
        """Validate the trainings of the round, and stop the node if its patience is exhausted."""
        now_s, completed = self.env.now, member.round_num + 1
        for loss in best.resolve(self._compute.value):
            self.ports.log.row(now_s, member.id, completed, "validation_loss", loss)
        if best.run_out:
            self.ports.log.row(now_s, member.id, completed, "stopped", 1)
            self.algorithm.stopped(member.node, member.state, best.model, member.round_num)
            member.stopped = True
            self.transport.stopped(member.id)

    def _catch_up(self, member: Member, round_num: int) -> None:
        """Move a node to this round, or to the server's current round if that is later."""
        server = self.members[-1]
        if server.is_server and server.round_num > round_num:
            round_num = server.round_num
        if round_num > member.round_num:
            member.round_num = member.first_round = round_num
            member.late = False
            self.transport.opens(member.id, round_num)

    def _close_round_of(self, server: Member) -> None:
        """Close the server's round; nodes in it without a received message are late."""
        if not self.membership.has_node_in(server.round_num):
            self._records.row(self.env.now, server.id, server.round_num + 1, "empty", 1)
        self._run.close_round(server.round_num)
        if server.node.last_received_round != server.round_num:
            return
        missing = {*server.node.awaited} - server.node.received_from
        for member in self.members[:-1]:
            takes_part = member.online and not member.finished and member.round_num <= server.round_num
            takes_part = takes_part and self._run.takes_part(member.id, server.round_num)
            member.late = member.late or (takes_part and member.id in missing)

    def _complete(self, member: Member) -> None:
        completed = member.round_num = member.round_num + 1
        member.late = False
        now_s = self.env.now
        if now_s >= END_OF_TIME_S:
            text = f"simulated time has passed {END_OF_TIME_S:g} s in round {completed} of node {member.id}"
            raise DdlsimError(f"{text}. Check step times, deadlines, churn, capacities and latencies.")
        self.clock_errors += now_s < self._latest_s
        self._latest_s = now_s
        monitor = self.monitor
        self.membership.completed(member, completed)
        self._report_rounds()
        if member.stopped:
            member.at_stop = self.snapshot(member.id, completed)
        if completed > monitor.evaluated and monitor.due(completed):  # otherwise it has been measured without this node
            monitor.completed(member.id, completed, self)
            self._measure_complete()
        next_round = None if member.stopped else max(member.first_round, completed)
        self.transport.round_closed(member.id, next_round)

    def _departed(self, member: Member) -> None:
        """Abort the work of a node that has left."""
        if member.finished:
            if self.membership.only_finished_move:
                raise DdlsimError(stuck_text(self.env.now, self.members, self.transport, self.network))
            return
        self._processes[member.id].interrupt()
        self._report_rounds()
        self._measure_complete()
        self._stop_if_over()

    def _report_rounds(self) -> None:
        """Count and report the rounds that at least one node has completed and no node still has to complete."""
        run, membership = self._run, self.membership
        while run.completed_by_all < membership.reached and not membership.any_on_the_way_to(run.completed_by_all + 1):
            run.completed_by_all += 1
            self._compute.flush()
            self.monitor.write_measurements(run.completed_by_all)
            self._records.flush()
            self._on_round(min(run.completed_by_all, run.rounds), self.env.now, self.network.all_bytes_sent())

    # -- measuring (for the monitor) -------------------------------------------------------------------------------

    def any_on_the_way_to(self, completed: int) -> bool:
        """Whether a node that takes part has not yet completed this number of rounds; if rounds do not wait for each
        other, the last one is incomplete until the run is over, since the run waits for offline nodes.
        """
        if self._over:
            return False
        if completed >= self._last_round and not self._run.in_step:
            return not self.membership.over(self.env.now)
        return self.membership.any_on_the_way_to(completed)

    def joined(self) -> Iterator[int]:
        """Return all nodes that have ever been online, ascending."""
        return (member.id for member in self.members if member.joined)

    def now_s(self) -> float:
        """Simulated seconds since the start."""
        return self.env.now

    def snapshot(self, node: int, completed: int) -> Snapshot:
        """Return the current snapshot of a node, or the snapshot at its stop if it has stopped after this number of
        rounds.
        """
        member = self.members[node]
        if member.at_stop is not None and member.completed_rounds == completed:
            return member.at_stop
        return Snapshot(
            self.env.now,
            self.network.bytes_sent(node),
            self.served(node),
            member.best.model if member.best else None,
            self.algorithm.seen(member.state) if self.monitor.compares_models else None,
            member.node.local_state,
            member.best.local_state if member.best else None,
            self.algorithm.tests_server_model and not member.is_server,
        )

    def served(self, node: int) -> EvaluationCandidates | None:
        """Return the models that a node would answer queries with now; None for a server."""
        member = self.members[node]
        tests_server = self.algorithm.tests_server_model and not member.is_server
        return candidates(self.algorithm, member.node, self.members[-1].state if tests_server else member.state)

    def _measure_start(self, member: Member) -> None:
        """Take the snapshot of a node before its first round, if the start is evaluated."""
        if not self.monitor.measures_start or self.env.now > 0:
            return
        is_last = member is next(one for one in reversed(self.members) if one.joined)
        of_server = self.algorithm.tests_server_model  # which starts last
        for one in [each for each in self.members if each.joined] if of_server and is_last else [member]:
            if is_last or not of_server:
                self.monitor.completed(one.id, 0, self)
        if is_last:
            self._measure_complete()

    def _measure_complete(self) -> None:
        self.monitor.close_complete(self)
        if self.monitor.target_reached and not self._stop.triggered:
            self._stop.succeed()

    def _stop_if_over(self) -> None:
        if self._stop.triggered or not self.membership.over(self.env.now):
            return
        self._over = True
        for member in self.membership.cut_off():
            self._records.row(self.env.now, member.id, member.completed_rounds, "cut_off", 1)
        if any(member.stopped for member in self.members):
            self._measure_ends()
        if not self._stop.triggered:
            self._stop.succeed()

    def _measure_ends(self) -> None:
        """Measure the final models of nodes that have all stopped before the last round, unless they have been
        measured.
        """
        monitor = self.monitor
        reached = max(member.completed_rounds for member in self.members if not member.is_server)
        after = max(reached, monitor.evaluated + 1)
        if after > reached:
            found = ((node, self.snapshot(node, reached)) for node in self.joined()) if self.presence.changed else ()
            if all(monitor.has_measured(node, snapshot) for node, snapshot in found):
                return
        for node in self.joined():
            monitor.completed(node, after, self)
        self._measure_complete()

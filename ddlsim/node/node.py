"""The node that an algorithm uses: operations that take simulated time (verbs), and plain calls.

A verb (train, losses, receive, pull, ...) is a method whose operation takes simulated time. It returns a `Verb`, which
the algorithm yields, and receives the outcome: `losses = yield node.losses(models, batches=10)`. Operations whose time
on a device is negligible (handing messages to the network, merging, recording) are plain calls: a message travels while
the node continues.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from operator import index
from typing import TYPE_CHECKING, Any

from ddlsim.foundation.errors import DdlsimError
from ddlsim.learning.training_inputs import TrainingContext, no_samples
from ddlsim.network.messages.encoder import as_sent
from ddlsim.network.messages.message import PUSH, RESPONSE, SCORE
from ddlsim.node import arguments
from ddlsim.node.collective_verbs import CollectiveVerbs
from ddlsim.node.collective_verbs import Steps as Steps
from ddlsim.node.collective_verbs import Verb as Verb
from ddlsim.node.parameters import Deferred

if TYPE_CHECKING:
    import numpy as np

    from ddlsim.learning.bank import Params
    from ddlsim.learning.job_types import Model
    from ddlsim.learning.optimizing.state import LocalState
    from ddlsim.learning.training_inputs import Objective
    from ddlsim.network.messages.message import Message
    from ddlsim.node.candidates import BestModel
    from ddlsim.node.ports import Ports


class Node(CollectiveVerbs):
    """One simulated participant: its device, its data (by node id, in the learner).

    Args:
        node_id: 0 .. num_nodes-1; the server, if there is one, is num_nodes.
        ports: the rest of the run.
        best: record in which each local training is validated; None: no validation.
        times_lost: number of times that the participant has lost its state; this node started after the last loss.

    Attributes:
        round_num: current round; the engine updates it.
        awaited: nodes whose messages the node has waited for last.
        last_received_round: last round whose pushed messages the node has received, all at once.
        local_state: the learner's state of the node's trainings.
        received_from: on a server, senders of the received messages of that round.
        unanswered: with a server, whether the node has waited for its message in vain; the engine resets it.
        open_verbs: number of verbs created and not yet yielded; the engine counts them down.
    """

    def __init__(self, node_id: int, ports: "Ports", best: "BestModel | None" = None, times_lost: int = 0):
        super().__init__(node_id, ports, times_lost)
        self._log, self._released, self._best = ports.log, ports.released, best
        self._sent = arguments.SendGuard(node_id, ports.transport)
        self.round_num, self.last_received_round, self.open_verbs = 0, -1, 0
        self.local_state: LocalState | None = None
        self._pieces: tuple[int, Model] | None = None  # of an unfinished training the steps done, and the start
        self.awaited: Sequence[int] = ()
        self.received_from: set[int] = set()
        self.unanswered = False

    def restart_round(self) -> None:
        """Forget the messages sent in this round, because the node may repeat it after its return. Called by the
        engine.
        """
        self._sent.forget()
        self.open_verbs, self._pieces = 0, None

    def settings_changed(self) -> None:
        """Discard values derived from settings, because the run continues with other settings. Called by the engine."""
        self._local_steps = None

    # -- verbs that take time --------------------------------------------------------------------------------------

    def train(
        self,
        model: "Model",
        steps: int | None = None,
        only: str | None = None,
        objective: "Objective | None" = None,
        after_step: "Callable[[Model], Model] | None" = None,
        proximal: float = 0.0,
        control: "Params | None" = None,
        steps_of_run: int | None = None,
        of: int | None = None,
    ) -> Verb:
        """Run local SGD steps on this node's samples; outcome: the trained model, part by part.

        With an objective that collects class means the outcome is (model, {label: mean of its features}).

        With early stopping, or if the best model is evaluated, one more pass is made over the node's validation
        samples.

        Args:
            model: parts in order, (core, head, ...) or (model,).
            steps: number of mini-batches; local_steps by default.
            only: "core", "head", ... to train that part and freeze the others.
            objective: loss to minimize; None: the task's loss. Each view of an image takes the time of an image.
            after_step: change of the model after every step, at no simulated time, such as the correction of its
                gradient by a control variate. Each step is then a separate pass over the samples, so it draws its
                mini-batch from all of them, and with training.optimizer_state `fresh` it has a new optimizer. Not with
                an objective that collects class means; see Algorithm.splits_local_steps.
            proximal: mu of a term `mu / 2 |w - w_0|^2` in the loss, with the given model as w_0; added to
                training.proximal.
            control: vector added to every gradient: a control variate, over the trained values of a model of one part
                (see `trained_values`).
            steps_of_run: mini-batches that the algorithm trains on in all rounds, which give a schedule `per: step`
                its length; local_steps in each by default.
            of: mini-batches of a training that is cut into pieces, of which this call computes the next `steps`. It has
                one optimizer, one order of samples and one series of random numbers, so its pieces compute the same as
                one call. A node that leaves starts it again.

        Raises:
            DdlsimError: the model has no part `only`, the training has fewer steps left than `steps`, or steps is not a
                whole number, or the node is a server.
        """
        arguments.check_has_samples(self.id, self.is_server, "train")
        if only is not None:
            arguments.check_part(only, model)
        compute = self._compute
        steps = self.local_steps if steps is None else arguments.step_count(steps)
        done, start = self._pieces if of is not None and self._pieces else (0, model)
        of = steps if of is None else arguments.step_count(of)
        if done + steps > of or (of != steps and after_step is not None):
            text = f"expected at most {of - done} more steps of {of}, and no after_step, got {steps} steps"
            raise DdlsimError(f"node.train: of: {text}. Cut the training into pieces that sum to it.")
        is_last = done + steps == of
        batches = compute.batches_in("validation", self.id) if self._best is not None and is_last else 0
        passes = steps * (1 if objective is None else objective.views)
        duration_s = self._clock.computing_s(self.id, passes, batches)
        if self._attack is not None:
            duration_s += self._attack.delay_s(self.round_num)
            if self._attack.idles(self.round_num) and not (objective is not None and objective.class_means):
                return self._after(duration_s, lambda: model)
        rng, terms = self._batch_rng("training batches"), self._loss_terms(proximal, control, steps_of_run, of, done)
        if after_step is None:
            trained, local_state, means = compute.train_towards(
                self.id, model, steps, rng, only, self.local_state, objective, terms
            )
            losses = [local_state.loss] if local_state is not None else []
        else:
            assert objective is None or not objective.class_means
            trained, local_state, means, losses = model, self.local_state, {}, []
            for _ in range(steps):
                trained, local_state, means = compute.train_towards(
                    self.id, trained, 1, rng, only, local_state, objective, terms
                )
                trained = after_step(trained)
                if local_state is not None:
                    losses.append(local_state.loss)
        validation = None
        if self._best is not None and is_last:
            validation = compute.losses(self.id, [trained], batches, None, split="validation", local_state=local_state)
        outcome = (trained, means) if objective is not None and objective.class_means else trained
        if self._starts is not None:
            self._starts.trained(trained, start)
        pieces = None if is_last else (done + steps, start)
        finish = partial(self._finish_training, outcome, trained, local_state, validation, steps, pieces, losses)
        return self._after(duration_s, finish)

    @property
    def learning_rate(self) -> float:
        """The scenario's learning rate (node 0's) at the start of the run, the same on all nodes and in all
        rounds, independent of schedules and branches: see `learning_rates`.
        """
        return self._compute.learning_rate

    def learning_rates(self, steps: int | None = None) -> list[float]:
        """Return the learning rate of every update of the next training (of local_steps mini-batches by default)."""
        steps = self.local_steps if steps is None else steps
        return self._compute.learning_rates(self.id, steps, self.local_state, self._loss_terms())

    def losses(
        self,
        models: "Sequence[Model]",
        batches: int | None,
        *,
        common: bool = False,
        split: str = "train",
        later: bool = False,
        takes_time: bool = True,
    ) -> Verb:
        """Compute the mean loss of each model over mini-batches of this node's samples; outcome: a list of floats.

        Args:
            models: candidates.
            batches: mini-batches per model, at most one pass over the data; None: one pass.
            common: the same mini-batches for all models.
            split: "train" or "validation".
            later: whether the outcome is a `Deferred`, for a node that does not need the losses yet.
            takes_time: whether the device is charged for the forward passes.

        Raises:
            DdlsimError: there are no such samples, or the number of mini-batches is 0.
        """
        arguments.check_has_samples(self.id, self.is_server, "losses")
        compute = self._compute
        if split not in ("train", "validation"):
            raise DdlsimError(f"node.losses: expected the split train or validation, got {split!r}.")
        one_pass = compute.batches_in(split, self.id)
        if not one_pass:
            raise no_samples(self.id, split)
        if batches is not None and batches < 1:
            raise DdlsimError(f"node.losses: expected at least one mini-batch, or None for one pass, got {batches}.")
        batches = one_pass if batches is None else min(batches, one_pass)
        job = compute.losses(self.id, models, batches, self._batch_rng("loss batches"), common, split, self.local_state)
        value = Deferred(lambda: compute.value(job))
        duration_s = self._clock.computing_s(self.id, 0.0, len(models) * batches if takes_time else 0)
        return self._after(duration_s, (lambda: value) if later else value)

    def sleep(self, seconds: float) -> Verb:
        """Wait for this number of simulated seconds; outcome: None.

        Args:
            seconds: 0 or more.
        """
        return self._after(float(seconds), lambda: None)

    def round_end(self, round_num: int) -> Verb:
        """Wait until the server has closed this round, without a message; outcome: None."""
        event = self._run.round_end(round_num, self._clock.event)
        if event is None:
            return self._after(0.0, lambda: None)
        self.open_verbs += 1
        return event, lambda: None

    def receive(self, round_num: int, senders: Iterable[int] | None = None, *, wait: bool | None = None) -> Verb:
        """Receive messages pushed to this node, ordered by sender, at most one of each.

        Synchronous: all messages of this round, once every message that can still arrive from `senders` (by default
        those of the round's graph) has arrived, or at the deadline (protocol.deadline_s). With protocol.late_messages
        `keep`, the result includes messages that arrived too late for their own round. Asynchronous: at once, the
        newest message of every sender that has not been received yet, unless it was sent more than protocol.staleness_s
        ago. Messages of a last exchange after all rounds wait for this node's own last exchange, which receives no
        others.

        Args:
            round_num: the round.
            senders: the nodes whose messages are waited for; None: the senders of the round's graph (`senders`).
            wait: true: as in synchronous runs, whatever the mode; false: as in asynchronous runs; None: by the mode.
        """
        if not (self._run.synchronous if wait is None else wait):
            first, last = self._run.rounds_taken(self.round_num)
            return self._after(0.0, lambda: self._transport.take_newest(self.id, PUSH, first, last))
        if senders is None:
            self.awaited = self.senders(round_num)
        else:
            self.awaited = arguments.node_ids(senders, self._num_members, "receive")
        return self._collect(PUSH, round_num, self.awaited)

    def pull(
        self,
        peers: Iterable[int],
        round_num: int,
        keys: Sequence[str] | None = None,
        *,
        stages: Mapping[int, int] | None = None,
    ) -> Verb:
        """Ask peers for their publications, or for some keys of them; outcome: their messages, ordered by sender.

        Synchronous: a peer answers when it has published for this round. Asynchronous: with its newest publication. The
        deadline and late answers are as with `receive`, in both modes.

        Args:
            peers: the nodes to ask.
            round_num: round of the answers.
            keys: keys of their publications; None: all keys.
            stages: per peer the requested stage of the round, if peers publish several; a number that travels with the
                request. In synchronous runs the answer is exactly that stage, even if the peer has published later
                ones. None: the first of the round, or the newest if peers publish without stages.
        """
        peers, round_num = arguments.node_ids(peers, self._num_members, "pull"), index(round_num)
        self._transport.pull(self.id, peers, round_num, keys, stages)
        return self._collect(RESPONSE, round_num, peers)

    def exchange(self, peers: Iterable[int], round_num: int, **payload: Any) -> Verb:
        """Offer a payload to peers; outcome: their answers in time, ordered by sender.

        The algorithm of a peer answers when the offer arrives, whatever the peer does (`Algorithm.answer`). The
        deadline is as with `receive`; answers after it are discarded.

        Raises:
            DdlsimError: as `send`.
        """
        peers, round_num = arguments.node_ids(peers, self._num_members, "exchange"), index(round_num)
        self._transport.exchange(self.id, peers, round_num, as_sent(payload))
        event, take = self._collect(RESPONSE, round_num, peers)
        return event, lambda: [answer for answer in take() if answer.round_num == round_num]

    def score_remotely(self, peers: Iterable[int], model: "Model", round_num: int) -> Verb:
        """Send a model to peers, which compute it on all their training samples and answer with the mean loss.

        Outcome: their messages, ordered by sender, each with a `Deferred` loss as payload["loss"]. The deadline is as
        with `receive`. A peer scores in parallel to its other work; a slower training meanwhile is not modeled.
        """
        peers, round_num = arguments.node_ids(peers, self._num_members, "score_remotely"), index(round_num)
        self._transport.ask_for_scores(self.id, peers, round_num, model)
        return self._collect(SCORE, round_num, peers)

    def turn_stages(self, peers: Iterable[int], round_num: int) -> dict[int, int]:
        """Return for each peer 1 if its turn in this round is before this node's, else 0.

        The turns are a random order of all nodes, drawn in each round and known to all. Pulling with these stages is
        equivalent to processing the nodes in that order, but a node waits only for the answers that it asked for.
        """
        turns = self._run.turns(round_num)
        return {peer: int(turns[peer] < turns[self.id]) for peer in peers}

    # -- messages and records --------------------------------------------------------------------------------------

    def send(self, peers: Iterable[int], round_num: int, **payload: Any) -> None:
        """Hand one message per peer to the network.

        Numbers travel as 8 bytes, arrays and tensors as they are, texts in UTF-8, parameters as 4 bytes a value or as
        network.compression says (see network/messages/encoder.py: it follows the parameters that are sent under one
        name, so different things need different names, or different keys of a mapping under one). Receivers do not see
        changes in place after this call; they share the received objects, and must not change them.

        Raises:
            DdlsimError: a value whose bytes on the wire are unknown, see network/messages/encoder.py; a second message
                to a node that has not received the first one of this round, if nodes do their rounds together; or a
                message of the last exchange before that exchange, if no node waits.
        """
        known = peers is self._peers[1]  # ids of the node's own topology need no check
        receivers = tuple(peers) if known else arguments.node_ids(peers, self._num_members, "send")
        round_num = index(round_num)
        if self._run.in_step:
            self._sent.note(receivers, round_num)
        elif round_num >= self._run.rounds > self.round_num and self._run.has_final_exchange:
            raise DdlsimError(
                f"node.send: expected a round_num of 0 to {self._run.rounds - 1} with mode async, got {round_num}. "
                "Later rounds belong to the last exchange (finish), which takes no messages of rounds."
            )
        self._transport.push(self.id, receivers, round_num, as_sent(payload))

    def publish(self, round_num: int, *, stage: int | None = None, **payload: Any) -> None:
        """Make this payload available to peers that pull, now and later.

        Args:
            round_num: peers that ask for this round, or an earlier one, get this payload.
            stage: for peers that ask for a stage of the round; earlier stages remain available to peers in earlier
                stages.
            payload: content of the answers; see `send`.

        Raises:
            DdlsimError: as `send`.
        """
        self._transport.publish(self.id, round_num, stage, as_sent(payload))

    def measure(self, name: str, model: "Model", round_num: int) -> None:
        """Write a row of a model's quality on this node's validation samples, for monitoring, at no simulated time."""
        self._log.measure(self._clock.now_s, self.id, round_num + 1, name, model, self.local_state)

    def record(self, name: str, value: Any, round_num: int) -> None:
        """Write one row of the run's metrics; the round counts as completed. A network-only run omits such rows, since
        placeholder values would determine them.

        Args:
            name: name of the rows; not the name of a metric.
            value: a number, a text, a boolean, None, or lists and mappings (with texts as keys) of them; arrays and
                tensors are written as lists, and NumPy's scalars as numbers.
            round_num: the round.

        Raises:
            DdlsimError: a value that metrics.jsonl cannot hold, or a name under which the simulator writes rows.
        """
        arguments.refuse_simulator_rows(name, self._log.measured)
        self._log.row(self._clock.now_s, self.id, index(round_num) + 1, name, arguments.to_json_value(name, value))

    # --------------------------------------------------------------------------------------------------------------

    def _loss_terms(
        self,
        proximal: float = 0.0,
        control: "Params | None" = None,
        of_run: int | None = None,
        of: int | None = None,
        done: int = 0,
    ) -> TrainingContext:
        rounds = self._run.rounds
        of_run = rounds * self.local_steps if of_run is None else of_run
        return TrainingContext(self.round_num, rounds, of_run, proximal, control, of, done)

    def _batch_rng(self, purpose: str) -> "np.random.Generator | None":
        """Return the stream that draws mini-batches; None if there are no samples to draw."""
        return self.rng(purpose) if self._compute.draws_numbers else None

    def _finish_training(
        self,
        outcome: Any,
        trained: "Model",
        local_state: "LocalState | None",
        validation: Any,
        steps: int,
        pieces: "tuple[int, Model] | None",
        losses: "list[Params | None]",
    ) -> Any:
        """Finish a training, or a piece of one; return its outcome."""
        self.local_state, self._pieces = local_state, pieces
        if losses and steps:
            self._log.trained(self._clock.now_s, self.id, self.round_num + 1, steps, losses)
        if self._released is not None:
            self._released(self.id, self.round_num, steps)
        if self._best is not None and validation is not None:
            self._best.trained(trained, validation, local_state)
        return outcome

    def _collect(self, kind: str, round_num: int, senders: Sequence[int]) -> Verb:
        self.open_verbs += 1
        transport = self._transport
        event = transport.wait(self.id, kind, round_num, senders)
        if kind == PUSH:
            return event, partial(self._take_pushed, round_num)
        return event, partial(transport.take, self.id, kind, round_num)

    def _take_pushed(self, round_num: int) -> "list[Message]":
        self.last_received_round = round_num
        messages = self._transport.take(self.id, PUSH, round_num)
        if self._run.server is not None:
            self.received_from = {message.src for message in messages if message.round_num == round_num}
            self.unanswered = self._run.server in self.awaited and self._run.server not in self.received_from
        return messages

    def _after(self, seconds: float, result: Callable[[], Any]) -> Verb:
        self.open_verbs += 1
        return self._clock.after(seconds), result

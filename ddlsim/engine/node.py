"""A node as an algorithm sees it: the verbs.

A verb that costs simulated time returns a `Verb` to be yielded: `losses = yield node.losses(models, batches=10)`.
What costs a device nothing worth counting (handing messages to the network, merging, recording) is a plain call:
a message travels while the node goes on.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import simpy

from ddlsim import rng as random_streams
from ddlsim.engine.best_model import BestModel
from ddlsim.engine.devices import FORWARD_SHARE
from ddlsim.engine.later import Later
from ddlsim.engine.message import PUSH, REQUEST, RESPONSE, SCORE, SCORE_REQUEST, Message
from ddlsim.engine.node_models import Models
from ddlsim.engine.outbox import Outbox, payload_bytes
from ddlsim.engine.shelf import Shelf

if TYPE_CHECKING:
    from ddlsim.engine.simulation import Simulation
    from ddlsim.learning.bank import Params
    from ddlsim.learning.kinds import Model
    from ddlsim.learning.objective import Objective


class Verb(NamedTuple):
    """Something a node does that takes simulated time: the event of its end and its outcome."""

    event: simpy.Event
    result: Callable[[], Any]


class Node(Models):
    """One simulated participant: its device, its data (by node id, in the learner).

    Args:
        node_id: 0 .. num_nodes-1.
        sim: the simulation it lives in; algorithms do not touch it.
    """

    def __init__(self, node_id: int, sim: "Simulation"):
        self.id = node_id
        self.num_nodes = sim.num_nodes  # a server is none of them
        self.is_server = node_id == sim.server
        self.online = True
        self.joined = True  # false: it has never been there yet
        self.first_round = 0  # of its present stay; peers wait for it from this round on
        self.round_num = 0
        self.completed_rounds = 0
        self.done = False
        self._sim = sim
        self._streams: dict[str, np.random.Generator] = {}
        self.outbox = (
            None
            if sim.codec is None
            else Outbox(sim.codec, sim.learner.compress, lambda: int(self.rng("compression").integers(2**63 - 1)))
        )
        self._shelf = Shelf(sim.synchronous)
        self._times_lost = 0
        self._stay = 0
        self._moments: dict[str, Any] = {}
        self.best = BestModel(sim.patience) if sim.validates else None
        self.stopped = False

    # -- what a node knows -----------------------------------------------------------------------------------------

    @property
    def now_s(self) -> float:
        """Simulated seconds since the start."""
        return self._sim.env.now

    @property
    def seed(self) -> int:
        """The scenario's seed, the same on every node."""
        return self._sim.seed

    @property
    def rounds(self) -> int:
        """How many rounds the run has."""
        return self._sim.rounds

    @property
    def local_steps(self) -> int:
        """This node's mini-batch steps per round (training.local_steps, or training.epochs over its samples)."""
        return self._sim.steps_of(self.steps_per_epoch)

    @property
    def num_samples(self) -> int:
        """How many training samples this node has."""
        return self._sim.learner.num_samples(self.id)

    @property
    def steps_per_epoch(self) -> int:
        """Mini-batches in one pass over this node's samples."""
        return self._sim.learner.steps_per_epoch(self.id)

    @property
    def true_cluster(self) -> int:
        """The hidden truth; only oracle baselines may look."""
        return int(self._sim.node_cluster[self.id])

    def rng(self, purpose: str) -> np.random.Generator:
        """This node's stream of random numbers for one purpose."""
        if purpose not in self._streams:
            self._streams[purpose] = random_streams.stream(self._sim.seed, purpose, self.id)
        return self._streams[purpose]

    def stream_seed(self, purpose: str, *, own: bool = True) -> int:
        """An integer seed for one purpose: this node's own, or one that all nodes share."""
        return random_streams.stream_seed(self._sim.seed, purpose, *((self.id,) if own else ()))

    def random_peer(self, round_num: int) -> tuple[int, ...]:
        """One of this round's peers, each as likely; none if there is none."""
        peers = self.peers(round_num)
        return (int(self.rng("random peer").choice(peers)),) if len(peers) else ()

    def peers(self, round_num: int) -> tuple[int, ...]:
        """Neighbours in the topology's graph of this round, ascending."""
        return self._sim.neighbours(round_num)[self.id]

    def neighbours(self, round_num: int) -> Sequence[Sequence[int]]:
        """The whole graph of this round, per node (Metropolis-Hastings weights need the peers' degrees)."""
        return self._sim.neighbours(round_num)

    def cluster_members(self, cluster: int) -> tuple[int, ...]:
        """The nodes of a cluster but for this one, ascending; only oracle baselines may look."""
        return tuple(peer for peer in self.others() if self._sim.node_cluster[peer] == cluster)

    def others(self) -> tuple[int, ...]:
        """All other nodes, ascending."""
        return tuple(peer for peer in range(self.num_nodes) if peer != self.id)

    # -- verbs that take time --------------------------------------------------------------------------------------

    def train(
        self, model: "Model", steps: int | None = None, only: str | None = None, objective: "Objective | None" = None
    ) -> Verb:
        """Local SGD steps on this node's samples; outcome: the trained model, part by part.

        With an objective that collects class means the outcome is (model, {label: mean of its features}).

        With early stopping, or where the best model is evaluated, the node's validation samples are passed once more.

        Args:
            model: parts in order, (core, head, ...) or (model,).
            steps: number of mini-batches; local_steps by default.
            only: "core", "head", ... to train that part and freeze the others.
            objective: what is minimised; None: the task's loss. Each view of an image takes the time of an image.
        """
        steps = self.local_steps if steps is None else steps
        learner = self._sim.learner
        trained, moments, means = learner.train_towards(
            self.id, model, steps, self._batch_rng("training batches"), only, self._moments, objective
        )
        validation, batches = None, 0
        if self.best is not None:
            batches = learner.batches_in("validation", self.id)
            validation = learner.losses(
                self.id, [trained], batches, self._batch_rng("validation batches"), split="validation"
            )

        def ended() -> "Model | tuple[Model, dict[int, Params]]":
            self._moments = moments
            if self.best is not None:
                self.best.trained(trained, validation)
            return (trained, means) if objective is not None and objective.class_means else trained

        passes = steps * (1 if objective is None else objective.views)
        return self._after(self._sim.computing_s(self.id, passes + batches * FORWARD_SHARE), ended)

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
        """Mean loss of each model over mini-batches of this node's samples; outcome: a list of floats.

        Args:
            models: candidates.
            batches: mini-batches per model, at most one pass over the data; None: one pass.
            common: the same mini-batches for all models.
            split: "train" or "validation".
            later: the outcome is a `Later`, for a node that has no use for the losses yet.
            takes_time: false: the device is not charged for the forward passes.
        """
        batches = self._sim.learner.batches_in(split, self.id) if batches is None else batches
        learner = self._sim.learner
        job = learner.losses(self.id, models, batches, self._batch_rng("loss batches"), common, split)
        steps = len(models) * batches * FORWARD_SHARE if takes_time else 0.0
        duration_s = self._sim.computing_s(self.id, steps)
        value = Later(lambda: learner.value(job))
        return self._after(duration_s, (lambda: value) if later else value)

    def sleep(self, seconds: float) -> Verb:
        """Waits."""
        return self._after(seconds, lambda: None)

    def receive(self, round_num: int, senders: Iterable[int] | None = None, *, wait: bool | None = None) -> Verb:
        """Messages pushed to this node, ordered by sender, at most one of each.

        Synchronous: all of this round, once everything that can still come from `senders` (the round's peers by
        default) has come, or at the deadline (protocol.deadline_s); what came too late for its own round is among them
        if protocol.late is `keep`. Asynchronous: at once, the newest of every sender that is at most protocol.staleness
        rounds older than this round.

        Args:
            round_num: the round.
            senders: whose messages are waited for; None: the round's peers.
            wait: true: as in synchronous runs, whatever the mode; false: as in asynchronous ones; None: as the mode
                has it.
        """
        if not (self._sim.synchronous if wait is None else wait):
            oldest = round_num - self._sim.staleness
            return self._after(0.0, lambda: self._sim.mailboxes.take_all(self.id, PUSH, oldest))
        return self._collect(PUSH, round_num, self.peers(round_num) if senders is None else senders)

    def pull(
        self,
        peers: Iterable[int],
        round_num: int,
        keys: Sequence[str] | None = None,
        *,
        stages: Mapping[int, int] | None = None,
    ) -> Verb:
        """Asks peers for what they publish, or for some keys of it; outcome: their messages, ordered by sender.

        Synchronous: a peer answers when it has published for this round. Asynchronous: with what it has now. The
        deadline and late answers are as with `receive`, in both modes.

        Args:
            peers: whom to ask.
            round_num: of the answers.
            keys: of what they publish; None: everything.
            stages: per peer the stage of the round that is asked for, where peers publish several; a number that
                travels with the request. In synchronous runs the answer is just what was published then, even if the
                peer is further by now. None: the first of the round, or the newest if peers publish without stages.
        """
        peers = tuple(peers)
        if stages is None:
            self._sim.send(self._messages(peers, round_num, REQUEST, {}, keys))
        else:
            asked = [self._messages((peer,), round_num, REQUEST, {"stage": stages[peer]}, keys) for peer in peers]
            self._sim.send([message for messages in asked for message in messages])
        return self._collect(RESPONSE, round_num, peers)

    def score_remotely(self, peers: Iterable[int], model: "Model", round_num: int) -> Verb:
        """Sends one's model to peers, who pass all their training samples through it and answer with the mean loss.

        Outcome: their messages, ordered by sender, each with a `Later` of the loss as payload["loss"]. The deadline is
        as with `receive`. A peer scores beside what else it does; that this slows its training is not modelled.
        """
        peers = tuple(peers)
        self._sim.send(self._messages(peers, round_num, SCORE_REQUEST, {"model": model}))
        return self._collect(SCORE, round_num, peers)

    def turn_stages(self, peers: Iterable[int], round_num: int) -> dict[int, int]:
        """Per peer 1 if its turn in this round comes before this node's, else 0.

        The turns are a new random order of all nodes each round, the same to everybody. Asking with these stages is
        what a loop over the nodes in that order would see, though nobody waits who need not.
        """
        turns = self._sim.turns(round_num)
        return {peer: int(turns[peer] < turns[self.id]) for peer in peers}

    def compare(self, metric: str, own: "Model", peers: "Sequence[Model]", **references: Any) -> Later:
        """Similarities of one's model to others' (see learning/kinds.py: SimilarityJob); later a list of floats.

        Counted as no simulated time: they cost less than a single training step.
        """
        learner = self._sim.learner
        job = learner.compare(metric, own, peers, **references)
        return Later(lambda: learner.value(job))

    # -- plain calls -----------------------------------------------------------------------------------------------

    def send(self, peers: Iterable[int], round_num: int, **payload: Any) -> None:
        """Hands one message per peer to the network.

        Numbers travel as 8 bytes, arrays as they are, parameters as 4 bytes a value or as network.compression says
        (see outbox.py: it follows the parameters that are sent under one name, so different things need different
        names, or different keys of a mapping under one).
        """
        self._sim.send(self._messages(peers, round_num, PUSH, payload))

    def publish(self, round_num: int, *, stage: int | None = None, **payload: Any) -> None:
        """Makes this available to peers that pull, now and later.

        Args:
            round_num: what peers who ask for this round, or an earlier one, get.
            stage: for peers that ask for a stage of the round; the earlier ones stay available to those who are behind.
            payload: what travels.
        """
        self._shelf.publish(round_num, stage, payload, self._sim.completed_by_all)
        self._answer_waiting()

    def answer(self, request: Message) -> None:
        """Serves a peer's pull, or keeps it until this node has published for that round."""
        payload = self._shelf.answer_to(request)
        if payload is None:
            self._shelf.wait(request)
        else:
            if request.keys is not None:
                payload = {key: payload[key] for key in request.keys if key in payload}
            self._sim.send(self._messages((request.src,), request.round_num, RESPONSE, payload))

    def score(self, request: Message) -> None:
        """Passes its training samples through a peer's model and sends it the loss when its device is through."""
        learner, stay = self._sim.learner, self._stay
        batches = learner.batches_in("train", self.id)
        rng = self._batch_rng("scoring batches")
        job = learner.losses(self.id, [request.payload["model"]], batches, rng)
        loss = Later(lambda: learner.value(job)[0])

        def scored(_: simpy.Event) -> None:
            if self.online and self._stay == stay:
                self._sim.send(self._messages((request.src,), request.round_num, SCORE, {"loss": loss}))

        self._sim.env.timeout(self._sim.computing_s(self.id, batches * FORWARD_SHARE)).callbacks.append(scored)

    def measure(self, name: str, model: "Model", round_num: int) -> None:
        """Writes a row of how well a model does on this node's validation samples, for an onlooker: costs no time."""
        if not self._sim.network_only:
            self._sim.measure(self.id, round_num + 1, name, model)

    def record(self, name: str, value: Any, round_num: int) -> None:
        """Writes one row of the run's metrics; the round counts as completed. What a network-only run would write was
        steered by values that stand in for learning, and is left out.
        """
        if self._sim.network_only:
            return
        self._sim.recorder.row(self.now_s, self.id, round_num + 1, name, value)

    def stop(self) -> None:
        """Ends its rounds for good: what it published last answers the pulls of that round and all later ones."""
        self.stopped = True
        self._shelf.close()
        self._answer_waiting()

    def drop_requests(self) -> list[Message]:
        """Forgets pulls it has not answered: it leaves."""
        self._stay += 1
        return self._shelf.take_waiting()

    def forget(self) -> None:
        """Loses what it published and what it has told others; its next models are drawn anew."""
        self._shelf.clear()
        self._moments = {}
        if self.best is not None:
            self.best.forget()
        if self.outbox is not None:
            self.outbox.forget()
        self._times_lost += 1

    # --------------------------------------------------------------------------------------------------------------

    def _batch_rng(self, purpose: str) -> np.random.Generator | None:
        """The stream that draws mini-batches; none where there are no samples to draw."""
        return None if self._sim.network_only else self.rng(purpose)

    def _answer_waiting(self) -> None:
        for request in self._shelf.take_waiting():
            self.answer(request)

    def _collect(self, kind: str, round_num: int, senders: Iterable[int]) -> Verb:
        mailboxes, sim = self._sim.mailboxes, self._sim
        event = mailboxes.wait(self.id, kind, round_num, senders, sim.deadline_s)
        return Verb(event, lambda: mailboxes.take(self.id, kind, round_num, sim.keep_late))

    def _after(self, seconds: float, result: Callable[[], Any]) -> Verb:
        return Verb(self._sim.env.timeout(seconds), result)

    def _messages(
        self,
        peers: Iterable[int],
        round_num: int,
        kind: str,
        payload: dict[str, Any],
        keys: Sequence[str] | None = None,
    ) -> list[Message]:
        peers, header_bytes = tuple(peers), self._sim.header_bytes
        if self.outbox is None or not peers:
            size = payload_bytes(payload)
            return [Message(self.id, peers, round_num, kind, payload, size, header_bytes, keys=keys)] if peers else []
        packed = self.outbox.pack(payload)
        return [
            Message(
                self.id,
                peer,
                round_num,
                kind,
                packed.payload,
                packed.bytes_to(peer),
                header_bytes,
                streams=packed.streams,
                keys=keys,
            )
            for peer in peers
        ]

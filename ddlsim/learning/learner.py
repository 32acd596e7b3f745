"""The interface of the simulation to real computing: enqueues jobs, and hands out parameters and values.

Every method but `resolve` and `flush` returns at once; see jobs.py and full_waves.py for when the work is done, and
backends/ for how.
"""

import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ddlsim.errors import DdlsimError
from ddlsim.learning.architecture import Architecture, Build, read_architecture
from ddlsim.learning.attacking import PoisonedNodes
from ddlsim.learning.backends.base import Waves
from ddlsim.learning.backends.choose import make_backends
from ddlsim.learning.bank import Params, Rows
from ddlsim.learning.batches import batches_in_order, draw_batches
from ddlsim.learning.fitting import Fitting
from ddlsim.learning.full_waves import FullWaves
from ddlsim.learning.job_types import (
    KINDS,
    AggregateSpec,
    AttackSpec,
    ClassCosineSpec,
    CompressSpec,
    CopySpec,
    JobSpec,
    LossSpec,
    MergeSpec,
    Model,
    ModelRows,
    SimilaritySpec,
    TestSpec,
)
from ddlsim.learning.jobs import Job, Jobs
from ddlsim.learning.layout import Buffers, Entry, Part
from ddlsim.learning.local_trainings import LocalTrainings
from ddlsim.learning.node_datasets import NodeDatasets
from ddlsim.learning.objective import Objective
from ddlsim.learning.optimizing.state import Kept, KeptRows
from ddlsim.learning.terms import Terms
from ddlsim.learning.whole_models import CORE, MODEL, check_model, no_samples
from ddlsim.privacy.accounting import Releases

if TYPE_CHECKING:
    from ddlsim.aggregation.base import Aggregation
    from ddlsim.attacks.attackers import Attackers
    from ddlsim.attacks.base import Attack
    from ddlsim.data.prepared import PreparedData
    from ddlsim.learning.remote.waves import RemoteWaves
    from ddlsim.scenario.model import Training
    from ddlsim.scenario.privacy import Privacy


class Learner:
    """Parameters, data and pending jobs of all nodes; the Compute port of runs that learn (see node/ports.py).

    Args:
        builders: per architecture, by its name for messages, what makes a fresh module with submodules `core`, `head`.
        prepared: result of `ddlsim.data.prepare`.
        training: scenario section `training`.
        device: torch device.
        threads: CPU threads of a wave.
        chunk: images per forward pass in evaluations.
        assigned: per node the name of its architecture; None: all have the only one.
        seed: of what an architecture's models have in common and never train (see architecture.py).
        buffers: whether floating-point buffers are merged and sent like trained parameters, or stay with each node.
        privacy: scenario section `privacy`, if gradients are to be private; None: they are not.
        elsewhere: computes in other processes; None: this one does.
        attackers: who attacks, and how; None: all nodes are honest.

    Raises:
        ScenarioError: if a module does not fit (see Layout); nothing has been run.
    """

    draws_numbers = True

    def __init__(
        self,
        builders: Mapping[str, Build],
        prepared: "PreparedData",
        training: "Training",
        device: torch.device,
        threads: int,
        chunk: int,
        assigned: Sequence[str] | None = None,
        seed: int = 0,
        buffers: Buffers = "shared",
        privacy: "Privacy | None" = None,
        elsewhere: "RemoteWaves | None" = None,
        attackers: "Attackers | None" = None,
    ):
        self._training = training
        self._first_rate = training.learning_rate
        self._assigned = assigned
        self._fitting = Fitting(assigned)
        self.data = NodeDatasets(prepared, device)
        poisoned = None if attackers is None else PoisonedNodes(attackers, self.data, seed)
        self._owners = {} if poisoned is None else poisoned.owners
        nodes = {name: assigned.index(name) if assigned and name in assigned else 0 for name in builders}
        self.architectures = {
            name: read_architecture(
                name, build, seed, buffers, self.data.train[nodes[name]], self.data.num_classes, self.data.task
            )
            for name, build in builders.items()
        }
        kept_rows = KeptRows(training)
        for architecture in self.architectures.values():
            kept_rows.check(architecture.layout.parts[MODEL])
        self.rows: Rows
        self.backends: Waves
        if elsewhere is not None:
            self.data.forget_inputs()
            self.rows, self.backends = elsewhere.rows, elsewhere
            elsewhere.rows.owners |= self._owners
        else:
            self.rows = Rows(device)
            self.backends = make_backends(self.rows, self.architectures, self.data, training, chunk, device, threads)
        self.jobs = Jobs([spec.kind for spec in KINDS], self.backends.run)
        self._trainings = LocalTrainings(self.rows, self.data, self.architecture_of, training, privacy, poisoned)
        self._full_waves: FullWaves | None = None
        self._slices: dict[tuple, Part] = {}
        self._same_start: dict[tuple, list[list[weakref.ref[Params]]]] = {}
        self._same_merge: weakref.WeakValueDictionary[tuple, Params] = weakref.WeakValueDictionary()

    def use_training(self, training: "Training") -> None:
        """Trainings that are enqueued from now on have these settings; those that are pending run first."""
        if self.jobs.past is None:
            self.jobs.run_all()
        self._training = training
        self._trainings.use(training)
        self.backends.use_training(training)

    # -- models ----------------------------------------------------------------------------------------------------

    def architecture_of(self, node: int) -> Architecture:
        """What a node trains; a server has what all have.

        Raises:
            DdlsimError: it is the server's, and there are several.
        """
        if not self._assigned:
            return next(iter(self.architectures.values()))
        if node >= len(self._assigned):
            raise DdlsimError(
                "model: the server keeps a model of its own, which it cannot where nodes have several architectures "
                f"({', '.join(self.architectures)}). Give all nodes one model, or choose an algorithm that merges only "
                "what they have in common (fedclassavg, fedproto, fedsim, mapl)."
            )
        return self.architectures[self._assigned[node]]

    def init_models(self, seed: int, count: int = 1, whole: bool = False, node: int = 0) -> list[Model]:
        """Fresh models, drawn one after the other from one seed with torch's default initialization.

        While they are held, the same draw again gives the same handles: a start that all nodes share is one row.

        Args:
            seed: of these draws alone.
            count: how many.
            whole: one row per model, (model,); otherwise one per part, (core, head) and what else there is.
            node: the node that has the architecture.
        """
        architecture = self.architecture_of(node)
        layout = architecture.layout
        key = (layout, seed, count, whole)
        known = self._same_start.get(key, [])
        held = [tuple(params for ref in model if (params := ref()) is not None) for model in known]
        if held and all(len(model) == len(refs) for model, refs in zip(held, known, strict=True)):
            return held
        if not whole and not layout.parts[CORE].size:
            raise DdlsimError(
                f"model: {layout.architecture} has no core that is trained, and this algorithm shares core and head "
                "apart. Choose a model with a core (gn_lenet, mlp, ...), or an algorithm that shares whole models "
                "(el, dpsgd)."
            )
        parts = [layout.parts[name] for name in ((MODEL,) if whole else layout.names)]
        models = self.rows.draw(architecture, parts, seed, count, node, known=self.jobs.past is None)
        self._same_start[key] = [[weakref.ref(params) for params in model] for model in models]
        return models

    def merge(self, sources: Sequence[Params], weights: Sequence[float], node: int | None = None) -> Params:
        """The weighted sum of parameters of one kind, summed in the given order; `node` is the one that merges.

        Merging the same parameters with the same weights again gives the same handle, so nodes that end with the same
        model (an all-reduce) are recognized as such.

        Raises:
            DdlsimError: if the shapes differ.
        """
        self._fitting.check_merge([params.part for params in sources])
        numbers, weights = _numbers(sources), tuple(map(float, weights))
        merged = self._same_merge.get((numbers, weights))
        if merged is None:
            merged = self._same_merge[numbers, weights] = self.rows.new(sources[0].part)
            spec = MergeSpec(sources=numbers, weights=weights, target=merged.serial, node=node)
            self._submit(spec, sources, [merged])
        return merged

    def aggregate(
        self,
        rule: "Aggregation",
        sources: Sequence[Params],
        weights: Sequence[float],
        own: int | None,
        start: Params | None,
        node: int | None = None,
    ) -> Params:
        """Parameters of one kind combined by a robust rule; as with `merge`, the same again gives the same handle.

        Raises:
            DdlsimError: if the shapes differ.
        """
        self._fitting.check_merge([params.part for params in sources])
        numbers, weights = _numbers(sources), tuple(map(float, weights))
        key = (rule, numbers, weights, own, _number(start))
        made = self._same_merge.get(key)
        if made is None:
            made = self._same_merge[key] = self.rows.new(sources[0].part)
            spec = AggregateSpec(
                rule=rule,
                sources=numbers,
                weights=weights,
                own=own,
                start=_number(start),
                target=made.serial,
                node=node,
            )
            self._submit(spec, _handles(tuple(sources), start), [made])
        return made

    def trained_values(self, params: Params) -> Params:
        """The trained values alone, without buffers (BatchNorm statistics)."""
        return self._slice(params, params.part.trainable_columns)

    def with_trained_values(self, params: Params, values: Params) -> Params:
        """`params` with other trained values and its own buffers."""
        pieces, at, taken = [], 0, 0
        for start, stop in params.part.trainable_columns:  # several in a whole model with buffers: part after part
            pieces += [(params, at, start), (values, taken, taken + stop - start)]
            at, taken = stop, taken + stop - start
        pieces.append((params, at, params.size))
        return self._copy([piece for piece in pieces if piece[1] < piece[2]], params.part)

    def classifier(self, head: Params) -> Params:
        """The weights [C, D] of a head's last linear layer, without its bias.

        Raises:
            DdlsimError: if the head does not end in a linear layer.
        """
        weights = self._fitting.classifier(head.part)
        return self._slice(head, ((weights.start, weights.stop),))

    def compress(self, codec: Any, params: Params, copy: Params | None, seed: int) -> Params:
        """What receivers of a message decode of `params`; see compressing.py."""
        decoded = self.rows.new(params.part)
        reads = [params] if copy is None else [params, copy]
        spec = CompressSpec(
            codec=codec,
            source=params.serial,
            copy=None if copy is None else copy.serial,
            seed=seed,
            target=decoded.serial,
        )
        self._submit(spec, reads, [decoded])
        return decoded

    def attack(
        self,
        attack: "Attack",
        own: Params,
        known: Sequence[Params],
        start: Params | None,
        receiver: Params | None,
        seed: int,
        sizes: tuple[int, int, int],
    ) -> Params:
        """What an attacked node sends in the place of `own`; see job_types.py: AttackSpec."""
        made = self.rows.new(own.part)
        spec = AttackSpec(
            attack=attack,
            own=own.serial,
            known=_numbers(known),
            start=_number(start),
            receiver=_number(receiver),
            seed=seed,
            sizes=sizes,
            target=made.serial,
        )
        self._submit(spec, _handles(own, tuple(known), start, receiver), [made])
        return made

    def _slice(self, params: Params, columns: tuple[tuple[int, int], ...]) -> Params:
        """A row of these columns, range [start, stop) after range."""
        key = (params.part, columns)
        if key not in self._slices:
            size = sum(stop - start for start, stop in columns)
            name = f"{params.part.name}[{','.join(f'{start}:{stop}' for start, stop in columns)}]"
            self._slices[key] = Part(params.part.architecture, name, (Entry("values", (size,), 0, size, True),))
        return self._copy([(params, start, stop) for start, stop in columns], self._slices[key])

    def _copy(self, pieces: Sequence[tuple[Params, int, int]], part: Part) -> Params:
        """A row of a part, put together from columns [start, stop) of others."""
        made = self.rows.new(part)
        sources = [source for source, _, _ in pieces]
        columns = tuple((start, stop) for _, start, stop in pieces)
        self._submit(CopySpec(sources=_numbers(sources), columns=columns, target=made.serial), sources, [made])
        return made

    # -- jobs ------------------------------------------------------------------------------------------------------

    def train(self, node: int, model: Model, steps: int, rng: np.random.Generator, only: str | None = None) -> Model:
        """The trained model alone, from an optimizer that begins afresh; see `train_towards`."""
        return self.train_towards(node, model, steps, rng, only, None, None)[0]

    def train_towards(
        self,
        node: int,
        model: Model,
        steps: int,
        rng: np.random.Generator | None,
        only: str | None,
        kept: Kept | None,
        objective: Objective | None,
        terms: Terms = Terms(),  # noqa: B008  frozen
    ) -> tuple[Model, Kept, dict[int, Params]]:
        """Local training.

        Args:
            node: the node that has the samples.
            model: where training starts, part by part.
            steps: number of mini-batches.
            rng: draws them.
            only: trains that part and returns the others unchanged; None: all.
            kept: what the node kept of its last training; None: nothing.
            objective: what is minimized; None: the task's loss.
            terms: where in the run the training stands, and what the algorithm adds to its gradients.

        Returns:
            The trained model, what the node keeps then (moments unless training.optimizer_state is `fresh`), and by
            label the class means, if the objective collects them.
        Raises:
            DdlsimError: if it is no whole model.
        """
        assert rng is not None
        check_model("node.train", model)
        made = self._trainings.make(node, model, steps, rng, only, kept or Kept(), objective, terms)
        job = self._submit(made.spec, made.reads, made.writes)
        if self._full_waves is not None:
            self._full_waves.submitted(node, job)
        return made.trained, made.kept, made.means

    def private_updates(self, node: int) -> Releases:
        """What private training has released of a node's samples so far."""
        return self._trainings.releases(node)

    @property
    def learning_rate(self) -> float:
        """See ports.py."""
        return self._first_rate

    def learning_rates(self, steps: int, kept: Kept | None, terms: Terms) -> list[float]:
        """The learning rate of every update of a training, see local_trainings.py."""
        return self._trainings.learning_rates(steps, kept, terms)

    def losses(
        self,
        node: int,
        models: Sequence[Model],
        num_batches: int,
        rng: np.random.Generator | None,
        common: bool = False,
        split: str = "train",
        kept: Kept | None = None,
    ) -> Job:
        """Mean losses of models on a node's own data, over at most one pass of it.

        Args:
            node: the node that has the data.
            models: candidates.
            num_batches: mini-batches per model.
            rng: draws them; None: they are the first ones of the samples in their order.
            common: the same batches for every model; otherwise each model gets its own.
            split: "train" or "validation".
            kept: what the node keeps of its trainings, see `train_towards`.
        Raises:
            DdlsimError: if one is no whole model, or the node has no such samples.
        """
        for model in models:
            check_model("losses", model)
        samples, batch_size = self.data.num_samples(split, node), self._training.batch_size
        num_batches = min(num_batches, -(-samples // batch_size))
        if num_batches < 1:
            raise no_samples(node, split)
        if rng is None:
            batches = (batches_in_order(samples, batch_size, num_batches),) * len(models)
        elif common:
            batches = (draw_batches(rng, samples, batch_size, num_batches),) * len(models)
        else:
            batches = tuple(draw_batches(rng, samples, batch_size, num_batches) for _ in models)
        numbers, local = tuple(map(_numbers, models)), self._local_of(kept)
        spec = LossSpec(node=node, models=numbers, batches=batches, split=split, local=_number(local))
        return self._submit(spec, _handles(*models, local))

    def test(
        self,
        models: Sequence[Model],
        test_set: int,
        split: str = "test",
        kept: Kept | None = None,
        precision: str = "float32",
    ) -> Job:
        """Predictions of models on an evaluation set; `kept` is what the node keeps of its trainings.

        Raises:
            DdlsimError: if one is no whole model.
        """
        for model in models:
            check_model("serving", model)
        local, numbers = self._local_of(kept), tuple(map(_numbers, models))
        spec = TestSpec(models=numbers, split=split, cluster=test_set, local=_number(local), precision=precision)
        return self._submit(spec, _handles(*models, local))

    def class_cosine(self, own: Params, others: Sequence[Params]) -> Job:
        """Mean over classes of the cosine between the rows of classifiers, own to each other."""
        spec = ClassCosineSpec(own=own.serial, others=_numbers(others), num_classes=self.data.num_classes)
        return self._submit(spec, [own, *others])

    def compare(
        self,
        metric: str,
        own: Model,
        peers: Sequence[Model],
        start: Model | None = None,
        own_last: Model | None = None,
        peers_last: Sequence[Model] = (),
        alpha: float = 0.0,
    ) -> Job:
        """Similarities of a model to others; see job_types.py: SimilaritySpec.

        Raises:
            DdlsimError: if the shapes differ.
        """
        self._fitting.check_comparison(own, peers)
        spec = SimilaritySpec(
            metric=metric,
            own=_numbers(own),
            peers=tuple(map(_numbers, peers)),
            start=None if start is None else _numbers(start),
            own_last=None if own_last is None else _numbers(own_last),
            peers_last=tuple(map(_numbers, peers_last)),
            alpha=alpha,
        )
        return self._submit(spec, _handles(own, *peers, start, own_last, *peers_last))

    def resolve(self, jobs: Sequence[Job]) -> list:
        """What jobs compute; they run together if they have not run yet. This is the only way in which values leave."""
        return self.jobs.values(jobs)

    def value(self, job: Job) -> Any:
        """What one job computes, see `resolve`."""
        return self.resolve([job])[0]

    def launch_full(self, num_training: Callable[[], int]) -> None:
        """Waves of training run as soon as they are full, where they are computed beside the simulation.

        Args:
            num_training: how many nodes there are now that train.
        """
        if self.backends.asynchronous:
            self._full_waves = FullWaves(self.jobs, num_training)

    def flush(self) -> None:
        """Runs what has been pending for long, see jobs.py."""
        self.jobs.flush()

    def num_samples(self, node: int) -> int:
        """A node's training samples."""
        return self.data.num_samples("train", node)

    def steps_per_epoch(self, node: int) -> int:
        """Mini-batches in one pass over a node's training samples."""
        return self._trainings.steps_per_epoch(node)

    def batches_in(self, split: str, node: int) -> int:
        """Mini-batches in one pass over a node's "train" or "validation" samples."""
        return -(-self.data.num_samples(split, node) // self._training.batch_size)

    @property
    def paths(self) -> dict[str, dict[str, int]]:
        """Backend -> kind of job -> how many it has computed."""
        return {name: dict(kinds) for name, kinds in self.backends.taken.items()}

    @property
    def detours(self) -> dict[str, dict[str, int]]:
        """Backend -> kind of job and why this backend did not take it -> how often."""
        return self.backends.detours()

    @property
    def device_s(self) -> dict[str, float]:
        """Kind of job -> seconds that a device has spent on it; empty without a GPU."""
        return self.backends.device_s()

    def keep_training_samples(self, nodes: Collection[int]) -> None:
        """Lets the training samples of all other nodes go, poisoned ones among them."""
        self.data.keep_training_samples({*nodes, *(number for number, node in self._owners.items() if node in nodes)})

    def close(self) -> None:
        """Ends the worker threads."""
        self.backends.close()

    def _submit(self, spec: JobSpec, reads: Sequence[Params], writes: Sequence[Params] = ()) -> Job:
        node = reads[0].row.node if spec.node is None else spec.node
        for params in writes:
            params.row.node = node
        return self.jobs.submit(Job(spec, [params.row for params in reads], [params.row for params in writes]))

    def _local_of(self, kept: Kept | None) -> Params | None:
        """The row of a node's own buffers, if predictions depend on it."""
        if kept is None or kept.local is None:
            return None
        predicts = self.architectures[kept.local.part.architecture].layout.predicts_with_local
        return kept.local if predicts else None


def _number(params: Params | None) -> int | None:
    """The row's number, where there is one."""
    return None if params is None else params.serial


def _numbers(handles: Sequence[Params]) -> ModelRows:
    return tuple(params.serial for params in handles)


def _handles(*groups: Model | Params | None) -> list[Params]:
    """The handles in models, one after the other."""
    found: list[Params] = []
    for group in groups:
        if group is not None:
            found += [group] if isinstance(group, Params) else group
    return found

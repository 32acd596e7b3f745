"""The interface of the simulation to real computing: enqueues jobs, and hands out parameters and values.

Every method but `resolve` and `flush` returns at once. jobs.py decides when the work is done, and backends/ do it.
"""

import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

from ddlsim.attacks.node_attacks import Attackers
from ddlsim.data.prepared import PreparedData
from ddlsim.devices.base import StepWork
from ddlsim.foundation.accounting import Releases
from ddlsim.foundation.errors import DdlsimError
from ddlsim.learning import job_types, training_inputs
from ddlsim.learning.architecture import Architecture, Build, read_architecture
from ddlsim.learning.backends.base import Dispatcher
from ddlsim.learning.backends.stacked import make_backends
from ddlsim.learning.bank import Params, Rows
from ddlsim.learning.datasets import NodeDatasets
from ddlsim.learning.job_types import KINDS, Model
from ddlsim.learning.jobs import EagerWaves, Job, Jobs
from ddlsim.learning.layout import Buffers
from ddlsim.learning.local_trainings import LocalTrainings
from ddlsim.learning.optimizing.state import LocalState, StateRows
from ddlsim.learning.remote.waves import RemoteWaves
from ddlsim.learning.row_jobs import RowOperations, ShapeChecks
from ddlsim.learning.row_operations import PoisonedNodes
from ddlsim.learning.training_inputs import CORE, MODEL, Objective, TrainingContext
from ddlsim.scenario.network_sections import Privacy
from ddlsim.scenario.per_node import of_node
from ddlsim.scenario.sections import Training


class Learner(RowOperations):
    """Parameters, data and pending jobs of all nodes; the Compute port of runs that learn (see node/ports.py).

    Args:
        builders: per architecture, by its name for messages, makes a fresh module with submodules `core`, `head`.
        prepared: result of `ddlsim.data.prepare`.
        training: scenario section `training`, with the values of each node drawn.
        device: torch device.
        threads: CPU threads of a wave.
        chunk: images per forward pass in evaluations.
        assigned: per node the name of its architecture; None if all have the same.
        seed: seed of the values that an architecture's models share and never train (see architecture.py).
        buffers: whether floating-point buffers are merged and sent like trained parameters, or stay with each node.
        privacy: scenario section `privacy`, if gradients are private; None if they are not.
        elsewhere: computes in other processes; None if this process computes.
        attackers: the attacking nodes and their attack; None if all nodes are honest.

    Raises:
        ScenarioError: if a module does not fit (see Layout); nothing has been run.
    """

    draws_numbers = True
    """Whether it uses the random numbers passed to it. If not, None is accepted, and nothing is computed."""

    step_work: Callable[[], Mapping[str, StepWork]]
    """Operations of a training step per architecture, set by assembly/learner.py."""

    def __init__(
        self,
        builders: Mapping[str, Build],
        prepared: PreparedData,
        training: Training,
        device: torch.device,
        threads: int,
        chunk: int,
        assigned: Sequence[str] | None = None,
        seed: int = 0,
        buffers: Buffers = "shared",
        privacy: Privacy | None = None,
        elsewhere: RemoteWaves | None = None,
        attackers: Attackers | None = None,
        nodes: Collection[int] | None = None,
    ):
        self.training = training
        self.learning_rate = of_node(training.learning_rate, 0)
        """The scenario's learning rate (node 0's) at the start of the run, without its schedule."""
        self._assigned = assigned
        self.data = NodeDatasets(prepared, device)
        poisoned = None if attackers is None else PoisonedNodes(attackers, self.data, seed)
        self._owners = {} if poisoned is None else poisoned.owners
        first = {name: assigned.index(name) if assigned and name in assigned else 0 for name in builders}
        self.architectures = {
            name: read_architecture(
                name, build, seed, buffers, self.data.train[first[name]], self.data.num_classes, self.data.task
            )
            for name, build in builders.items()
        }
        state_rows = StateRows(training)
        for architecture in self.architectures.values():
            state_rows.check(architecture.layout.parts[MODEL])
        rows: Rows
        self.backends: Dispatcher | RemoteWaves
        if elsewhere is not None:
            self.data.forget_inputs()
            rows, self.backends = elsewhere.rows, elsewhere
            elsewhere.rows.owners |= self._owners
        else:
            rows = Rows(device)
            if nodes is not None:
                own = {number for number, node in self._owners.items() if node in nodes}
                self.data.keep_training_samples({*nodes, *own})
            self.backends_on = partial(
                make_backends, self.architectures, training=training, chunk=chunk, device=device, threads=threads
            )
            """Make backends that compute on the data of several runs like this one."""
            self.backends = self.backends_on(data=self.data)
        super().__init__(rows, Jobs([spec.kind for spec in KINDS], self.backends.run), ShapeChecks(assigned))
        ports = self.rows, self._submit, self.data, self.architecture_of
        self._trainings = LocalTrainings(*ports, training, privacy, poisoned)
        self._full_waves: EagerWaves | None = None
        self._same_start: dict[tuple, list[list[weakref.ref[Params]]]] = {}

    def use_training(self, training: Training) -> None:
        """Use these settings for trainings enqueued from now on; pending trainings run first."""
        if self.jobs.past is None:
            self.jobs.run_all()
        self.training = training
        self._trainings.use(training)
        self.backends.use_training(training)

    @property
    def sizes(self) -> dict[str, int]:
        """Number of parameters of each architecture."""
        return {name: each.layout.parts[MODEL].size for name, each in self.architectures.items()}

    # -- models ----------------------------------------------------------------------------------------------------

    def architecture_of(self, node: int) -> Architecture:
        """Return the architecture that a node trains; a server has the one that all nodes share.

        Raises:
            DdlsimError: if the node is the server, and there are several.
        """
        if not self._assigned:
            return next(iter(self.architectures.values()))
        if node >= len(self._assigned):
            names = ", ".join(self.architectures)
            raise DdlsimError(
                f"model: the server keeps a model, but the nodes have several architectures ({names}). Give all nodes "
                "one model, or choose another algorithm (fedclassavg, fedproto, fedsim, mapl)."
            )
        return self.architectures[self._assigned[node]]

    def init_models(self, seed: int, count: int = 1, whole: bool = False, node: int = 0) -> list[Model]:
        """Fresh models, drawn one after the other from one seed with torch's default initialization.

        While they are held, the same draw again gives the same handles: a start that all nodes share is one row.

        Args:
            seed: of these draws alone.
            count: number of models.
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
            raise training_inputs.no_core(layout.architecture)
        parts = [layout.parts[name] for name in ((MODEL,) if whole else layout.names)]
        models = self.rows.draw(architecture, parts, seed, count, node, known=self.jobs.past is None)
        self._same_start[key] = [[weakref.ref(params) for params in model] for model in models]
        return models

    # -- jobs ------------------------------------------------------------------------------------------------------

    def train(self, node: int, model: Model, steps: int, rng: np.random.Generator, only: str | None = None) -> Model:
        """Train from a fresh optimizer and return the trained model alone; see `train_towards`."""
        return self.train_towards(node, model, steps, rng, only, None, None)[0]

    def train_towards(
        self,
        node: int,
        model: Model,
        steps: int,
        rng: np.random.Generator | None,
        only: str | None,
        local_state: LocalState | None,
        objective: Objective | None,
        context: TrainingContext = TrainingContext(),  # noqa: B008  frozen
    ) -> tuple[Model, LocalState, dict[int, Params]]:
        """Train a model on a node's samples.

        Args:
            node: the node that has the samples.
            model: model at the start, part by part.
            steps: number of mini-batches.
            rng: draws them.
            only: part to train, with the others returned unchanged; None for all.
            local_state: state that the node kept from its last training; None without.
            objective: the loss; None for the task's loss.
            context: place of the training in the run, and the algorithm's additions to its gradients.

        Returns:
            The trained model, the state that the node keeps (moments unless training.optimizer_state is `fresh`), and
                by label the class means, if the objective collects them.
        Raises:
            DdlsimError: if it is not a whole model.
        """
        assert rng is not None
        training_inputs.check_model("node.train", model)
        job, trained, kept, means = self._trainings.enqueue(
            node, model, steps, rng, only, local_state or LocalState(), objective, context
        )
        if self._full_waves is not None:
            self._full_waves.submitted(node, job)
        return trained, kept, means

    def private_step(self, node: int) -> Releases:
        """Return the release of a node's samples by one step of private training."""
        return self._trainings.one_release(node)

    def learning_rates(
        self, node: int, steps: int, local_state: LocalState | None, context: TrainingContext
    ) -> list[float]:
        """Return the learning rate of every update of a training, see local_trainings.py."""
        return self._trainings.learning_rates(node, steps, local_state, context)

    def losses(
        self,
        node: int,
        models: Sequence[Model],
        num_batches: int,
        rng: np.random.Generator | None,
        common: bool = False,
        split: str = "train",
        local_state: LocalState | None = None,
    ) -> Job:
        """Mean losses of models on a node's own data, over at most one pass of it.

        Args:
            node: the node that has the data.
            models: candidates.
            num_batches: mini-batches per model.
            rng: draws them; None for the first ones of the samples in their order.
            common: the same batches for every model; otherwise each model gets its own.
            split: "train" or "validation".
            local_state: state that the node keeps from its trainings, see `train_towards`.
        Raises:
            DdlsimError: if one is not a whole model, or the node has no such samples.
        """
        for model in models:
            training_inputs.check_model("losses", model)
        samples, batch_size = self.data.num_samples(split, node), self._trainings.batch_size(node)
        num_batches = min(num_batches, -(-samples // batch_size))
        if num_batches < 1:
            raise training_inputs.no_samples(node, split)
        if rng is None:
            batches = (training_inputs.batches_in_order(samples, batch_size, num_batches),) * len(models)
        elif common:
            batches = (training_inputs.draw_batches(rng, samples, batch_size, num_batches),) * len(models)
        else:
            batches = tuple(training_inputs.draw_batches(rng, samples, batch_size, num_batches) for _ in models)
        models, local = tuple(models), self._local_of(local_state)
        return self._submit(job_types.LossSpec, node=node, models=models, batches=batches, split=split, local=local)

    def test(
        self,
        models: Sequence[Model],
        test_set: int,
        split: str = "test",
        local_state: LocalState | None = None,
        precision: str = "float32",
    ) -> Job:
        """Evaluate models on an evaluation set; `local_state` is the state that the node keeps from its trainings.

        Raises:
            DdlsimError: if one is not a whole model.
        """
        for model in models:
            training_inputs.check_model("serving", model)
        local = self._local_of(local_state)
        return self._submit(
            job_types.TestSpec, models=tuple(models), split=split, cluster=test_set, local=local, precision=precision
        )

    def training_losses(self, losses: Sequence[Params]) -> Job:
        """Read the mean losses of trainings, see LocalState; NOT_COMPUTED where a backend does not compute it."""
        return self._submit(job_types.ReadSpec, sources=tuple(losses))

    def consensus_distances(self, models: Sequence[Model]) -> Job | None:
        """Squared distances of models, of their cores if they have parts, to the average; None if shapes differ."""
        shared = [model[0] for model in models]
        if len({params.part.signature for params in shared}) > 1:
            return None
        return self._submit(job_types.ConsensusSpec, sources=tuple(shared))

    def class_cosine(self, own: Params, others: Sequence[Params]) -> Job:
        """Mean over classes of the cosine between the rows of classifiers, own to each other."""
        return self._submit(job_types.ClassCosineSpec, own=own, others=tuple(others), num_classes=self.data.num_classes)

    def compare(self, metric: str, own: Model, peers: Sequence[Model], **references: Any) -> Job:
        """Similarities of a model to others; `references` are fields of SimilaritySpec (job_types.py).

        Raises:
            DdlsimError: if the shapes differ.
        """
        for parts in zip(own, *peers, strict=True):
            self._shapes.check("compare", [params.part for params in parts])
        return self._submit(job_types.SimilaritySpec, metric=metric, own=own, peers=tuple(peers), **references)

    def resolve(self, jobs: Sequence[Job]) -> list:
        """Return the results of jobs; the pending ones run together. Values leave only through this method."""
        return self.jobs.values(jobs)

    def value(self, job: Job) -> Any:
        """Return the result of one job, see `resolve`."""
        return self.resolve([job])[0]

    def launch_full(self, num_training: Callable[[], int]) -> None:
        """Let waves of training run as soon as they are full, if a device or other processes compute.

        Args:
            num_training: current number of nodes that train.
        """
        if self.backends.asynchronous:
            self._full_waves = EagerWaves(self.jobs, num_training)

    def flush(self) -> None:
        """Run jobs that have been pending for long, see jobs.py."""
        self.jobs.flush()

    def num_samples(self, node: int) -> int:
        """A node's training samples."""
        return self.data.num_samples("train", node)

    def steps_per_epoch(self, node: int) -> int:
        """Mini-batches in one pass over a node's training samples."""
        return self._trainings.steps_per_epoch(node)

    def batches_in(self, split: str, node: int) -> int:
        """Mini-batches in one pass over a node's "train" or "validation" samples."""
        return -(-self.data.num_samples(split, node) // self._trainings.batch_size(node))

    @property
    def paths(self) -> dict[str, dict[str, int]]:
        """Backend -> kind of job -> how many it has computed."""
        return {name: dict(kinds) for name, kinds in self.backends.taken.items()}

    @property
    def fallback_counts(self) -> dict[str, dict[str, int]]:
        """Backend -> kind of job and why this backend did not take it -> how often."""
        return self.backends.fallback_counts()

    @property
    def device_s(self) -> dict[str, float]:
        """Kind of job -> seconds that a device has spent on it; empty without a GPU."""
        return self.backends.device_s()

    def close(self) -> None:
        """End the worker threads."""
        self.backends.close()

    def _local_of(self, local_state: LocalState | None) -> Params | None:
        """The row of a node's own buffers, if predictions depend on it."""
        if local_state is None or local_state.local is None:
            return None
        predicts = self.architectures[local_state.local.part.architecture].layout.predicts_with_local
        return local_state.local if predicts else None

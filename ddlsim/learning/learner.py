"""The door between simulated nodes and real computing: enqueues jobs, merges, and hands out parameters.

Every method returns at once; see jobs.py for when the work is done.
"""

import weakref
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import count

import numpy as np
import torch

from ddlsim import kernels
from ddlsim.errors import DdlsimError
from ddlsim.learning.architecture import Architecture, Build, read_architecture
from ddlsim.learning.bank import Bank, Params
from ddlsim.learning.batches import batches_per_pass, draw_batches
from ddlsim.learning.comparing import compare
from ddlsim.learning.compressing import CompressJob, run_compressions
from ddlsim.learning.cpu import CpuWaves
from ddlsim.learning.heads import latent_size
from ddlsim.learning.jobs import Job, Jobs
from ddlsim.learning.kinds import ClassCosineJob, CopyJob, LossJob, MergeJob, Model, SimilarityJob, TestJob, TrainJob
from ddlsim.learning.layout import CORE, MODEL, Buffers, Entry, Layout, Part
from ddlsim.learning.moments import Kept, Moments, rows_kept
from ddlsim.learning.objective import Objective
from ddlsim.learning.shards import Shards


class Learner:
    """Parameters, data and pending jobs of all nodes.

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

    Raises:
        ScenarioError: if a module does not fit (see Layout); nothing has been run.
    """

    def __init__(
        self,
        builders: Mapping[str, Build],
        prepared,
        training,
        device: torch.device,
        threads: int,
        chunk: int,
        assigned: Sequence[str] | None = None,
        seed: int = 0,
        buffers: Buffers = "shared",
    ):
        self._training = training
        self._device = device
        self.shards = Shards(prepared, device)
        nodes = {name: assigned.index(name) if assigned and name in assigned else 0 for name in builders}
        self.architectures = {
            name: read_architecture(name, build, seed, buffers, self.shards.train[nodes[name]], self.shards.num_classes)
            for name, build in builders.items()
        }
        self._serials = count()
        self._assigned = assigned
        self._banks: dict[tuple, Bank] = {}
        self._waves = make_waves(self.architectures, self.shards, training, chunk, device, threads)
        self._slices: dict[tuple, Part] = {}
        runners = {
            "copying": self._run_copies,
            "merging": self._run_merges,
            "training": self._run_training,
            "compression": run_compressions,
            "similarity": self._run_similarities,
            "comparison": self._run_comparisons,
            "head losses": self._run_losses,
            "evaluation": self._run_tests,
        }
        self.jobs = Jobs(runners)
        self._same_start: dict[tuple[Layout, int, int, bool], list[list[weakref.ref[Params]]]] = {}
        self._same_merge: weakref.WeakValueDictionary[tuple, Params] = weakref.WeakValueDictionary()

    # -- models ----------------------------------------------------------------------------------------------------

    def architecture_of(self, node: int) -> Architecture:
        """What a node trains."""
        return self.architectures[self._assigned[node] if self._assigned else next(iter(self.architectures))]

    def init_models(self, seed: int, count: int = 1, whole: bool = False, node: int = 0) -> list[Model]:
        """Freshly initialised models, drawn one after the other from one seed with torch's default initialisation.

        While somebody holds them, the same draw again gives the same handles: a start that all nodes share is one row.

        Args:
            seed: of these draws alone.
            count: how many.
            whole: one row per model, (model,); otherwise one per part, (core, head) and what else there is.
            node: whose architecture.
        """
        architecture = self.architecture_of(node)
        layout = architecture.layout
        key = (layout, seed, count, whole)
        held = [[ref() for ref in model] for model in self._same_start.get(key, ())]
        if held and all(params is not None for model in held for params in model):
            return [tuple(model) for model in held]
        if not whole and not layout.parts[CORE].size:
            raise DdlsimError(
                f"model: {layout.architecture} has no core that is trained, and this algorithm shares core and head "
                "apart. Choose a model with a core (gn_lenet, mlp, ...), or an algorithm that shares whole models "
                "(el, dpsgd)."
            )
        modules = architecture.draw(seed, count)
        parts = [layout.parts[name] for name in ((MODEL,) if whole else layout.names)]
        models = [
            tuple(self._bank(part).store(layout.flatten(module, part.name), part) for part in parts)
            for module in modules
        ]
        self._same_start[key] = [[weakref.ref(params) for params in model] for model in models]
        return models

    def merge(self, sources: Sequence[Params], weights: Sequence[float]) -> Params:
        """The weighted sum of parameters of one kind, summed in the given order.

        Merging the same parameters with the same weights again gives the same handle, so nodes that end with the same
        model (an all-reduce) are recognised as such.

        Raises:
            DdlsimError: if the shapes differ; the text names both architectures and the nodes that have them.
        """
        first = sources[0].part
        for params in sources[1:]:
            if params.part.signature != first.signature:
                raise DdlsimError(
                    f"cannot merge the {params.part.name} of {self._whose(params.part)} ({params.size} values) into "
                    f"the {first.name} of {self._whose(first)} ({first.size} values): their shapes differ. Merge only "
                    "what the models have in common, or give every node the same model."
                )
        key = (*((params.serial, float(weight)) for params, weight in zip(sources, weights, strict=True)),)
        merged = self._same_merge.get(key)
        if merged is None:
            job = MergeJob(sources, weights)
            merged = self._same_merge[key] = job.output(self._bank(first), first)
            self.jobs.submit(job)
        return merged

    def trained_values(self, params: Params) -> Params:
        """The trained values alone, without buffers (BatchNorm statistics)."""
        return self._slice(params, 0, sum(params.part.trained_sizes))

    def with_trained_values(self, params: Params, values: Params) -> Params:
        """`params` with other trained values and its own buffers."""
        job = CopyJob([(values, 0, values.size), (params, values.size, params.size)])
        made = job.output(self._bank(params.part), params.part)
        self.jobs.submit(job)
        return made

    def classifier(self, head: Params) -> Params:
        """The weights [C, D] of a head's last linear layer, without its bias.

        Raises:
            DdlsimError: if the head does not end in a linear layer.
        """
        last = [entry for entry in head.part.entries if entry.trainable][-2:]
        if [len(entry.shape) for entry in last] != [2, 1]:
            raise DdlsimError(
                f"model: the {head.part.name} of {self._whose(head.part)} does not end in a linear layer, whose rows "
                "this algorithm compares. Choose a model whose head does (mlp, resnet18, ...)."
            )
        return self._slice(head, last[0].start, last[0].stop)

    def class_cosine(self, own: Params, others: Sequence[Params]) -> Job:
        """Mean over classes of the cosine between the rows of classifiers, own to each other."""
        return self.jobs.submit(ClassCosineJob(own, others, self.shards.num_classes))

    def _slice(self, params: Params, start: int, stop: int) -> Params:
        key = (params.part, start, stop)
        if key not in self._slices:
            entry = Entry("values", (stop - start,), 0, stop - start, True)
            name = f"{params.part.name}[{start}:{stop}]"
            self._slices[key] = Part(params.part.architecture, name, (entry,))
        part = self._slices[key]
        job = CopyJob([(params, start, stop)])
        made = job.output(self._bank(part), part)
        self.jobs.submit(job)
        return made

    def compress(self, codec, params: Params, copy: Params | None, seed: int) -> Params:
        """What receivers of a message decode of `params`; see compressing.py."""
        job = CompressJob(codec, params, copy, seed)
        decoded = job.output(self._bank(params.part), params.part)
        self.jobs.submit(job)
        return decoded

    # -- jobs ------------------------------------------------------------------------------------------------------

    def train(self, node: int, model: Model, steps: int, rng: np.random.Generator, only: str | None = None) -> Model:
        """Local SGD from `model`; returns the model to be. `only` trains that part and returns the other unchanged."""
        return self.train_keeping(node, model, steps, rng, only, None)[0]

    def train_keeping(
        self, node: int, model: Model, steps: int, rng: np.random.Generator, only: str | None, kept: Kept | None
    ) -> tuple[Model, Kept]:
        """As `train`, with what the node kept of its last training (None: nothing); also returns what it keeps then.

        Where training.optimizer_state is `fresh` no moments are kept.
        """
        return self.train_towards(node, model, steps, rng, only, kept, None)[:2]

    def train_towards(
        self,
        node: int,
        model: Model,
        steps: int,
        rng: np.random.Generator,
        only: str | None,
        kept: Kept | None,
        objective: Objective | None,
    ) -> tuple[Model, Kept, dict[int, Params]]:
        """As `train_keeping`, with an objective; also returns per label the class means, if it collects them."""
        kept = kept or Kept()
        samples, settings = self.shards.num_samples("train", node), self._training
        batches = draw_batches(rng, samples, settings.batch_size, steps, settings.drop_last)
        noisy = settings.augmentation != "none" or self.architecture_of(node).layout.draws_noise
        seed = int(rng.integers(2**63 - 1)) if noisy else None
        last_pass = min(steps, self.steps_per_epoch(node))
        labels = self._labels_of(node, batches[-last_pass:]) if objective and objective.class_means else []
        count = rows_kept(settings)
        job = TrainJob(
            model,
            node,
            batches,
            only,
            [kept.moments.get(p.part.name) for p in model] if count else (),
            objective,
            seed,
            labels,
            last_pass,
            kept.local,
        )
        in_training = [only in (None, params.part.name) for params in model]
        trained = tuple(
            job.output(self._bank(params.part), params.part) if moves else job.unchanged(params)
            for params, moves in zip(model, in_training, strict=True)
        )
        moments = dict(kept.moments)
        for params, moves in zip(model, in_training, strict=True):
            rows = tuple(
                job.output(self._bank(params.part), params.part) if moves else job.unchanged(params)
                for _ in range(count)
            )
            if moves and count:
                before = kept.moments.get(params.part.name)
                moments[params.part.name] = Moments(steps + (before.steps if before else 0), rows)
        mean = self._mean_part(node) if labels else None
        means = {label: job.output(self._bank(mean), mean) for label in labels}
        part = self.architecture_of(node).layout.local
        local = job.output(self._bank(part), part) if part.size else None
        self.jobs.submit(job)
        return trained, Kept(moments, local), means

    def losses(
        self,
        node: int,
        models: Sequence[Model],
        num_batches: int,
        rng: np.random.Generator,
        common: bool = False,
        split: str = "train",
        kept: Kept | None = None,
    ) -> Job:
        """Mean losses of models on a node's own data, over at most one pass of it.

        Args:
            num_batches: mini-batches per model.
            common: the same batches for every model; otherwise each model gets its own.
            split: "train" or "validation".
            kept: what the node keeps of its trainings, see `train_keeping`.
        """
        samples = self.shards.num_samples(split, node)
        num_batches = min(num_batches, -(-samples // self._training.batch_size))
        draws = [
            draw_batches(rng, samples, self._training.batch_size, num_batches)
            for _ in range(1 if common else len(models))
        ]
        batches = draws * len(models) if common else draws
        return self.jobs.submit(LossJob(models, node, batches, split, self._local_of(kept)))

    def test(self, models: Sequence[Model], cluster: int, split: str = "test", kept: Kept | None = None) -> Job:
        """Predictions of models on a cluster's evaluation set, by a node that keeps `kept` of its trainings."""
        return self.jobs.submit(TestJob(models, split, cluster, self._local_of(kept)))

    def compare(self, metric: str, own: Model, peers: Sequence[Model], **references) -> Job:
        """Similarities of a model to others; see kinds.py: SimilarityJob.

        Raises:
            DdlsimError: if the shapes differ; the text names both architectures and the nodes that have them.
        """
        for peer in peers:
            for mine, other in zip(own, peer, strict=True):
                if mine.part.signature != other.part.signature:
                    raise DdlsimError(
                        f"cannot compare the {other.part.name} of {self._whose(other.part)} with the {mine.part.name} "
                        f"of {self._whose(mine.part)}: their shapes differ. Give every node the same model, or choose "
                        "the similarity inverse_loss and a merge of what the models have in common."
                    )
        return self.jobs.submit(SimilarityJob(metric, own, peers, **references))

    draws_numbers = True

    def resolve(self, jobs: Sequence[Job]) -> list:
        """What jobs compute; they run together if they have not run yet."""
        self.jobs.force(jobs)
        return [job.value for job in jobs]

    def flush(self) -> None:
        """Runs what has been pending for long, see jobs.py."""
        self.jobs.flush()

    def value(self, job: Job):
        """What a job computes; runs it, and others of the kinds on its way, if it has not run yet."""
        self.jobs.force([job])
        return job.value

    def num_samples(self, node: int) -> int:
        """A node's training samples."""
        return self.shards.num_samples("train", node)

    def steps_per_epoch(self, node: int) -> int:
        """Mini-batches in one pass over a node's training samples."""
        samples = self.shards.num_samples("train", node)
        return batches_per_pass(samples, self._training.batch_size, self._training.drop_last)

    def batches_in(self, split: str, node: int) -> int:
        """Mini-batches in one pass over a node's "train" or "validation" samples."""
        return -(-self.shards.num_samples(split, node) // self._training.batch_size)

    @property
    def through_pytorch(self) -> dict[str, int]:
        """Trainings on the CPU that no native plan could do, by the reason (empty on a GPU)."""
        return dict(getattr(self._waves, "through_pytorch", {}))

    @property
    def one_by_one(self) -> dict[str, int]:
        """Jobs on a GPU that were not stacked with those of other nodes, by kind and reason (empty on the CPU)."""
        return dict(getattr(self._waves, "one_by_one", {}))

    def close(self) -> None:
        """Ends the worker threads."""
        self._waves.close()

    # -- runners ---------------------------------------------------------------------------------------------------

    def _run_training(self, jobs: list[TrainJob]) -> None:
        self._waves.train(jobs)
        for job in jobs:
            job.finish()

    def _run_losses(self, jobs: list[LossJob]) -> None:
        for job, value in zip(jobs, self._waves.losses(jobs), strict=True):
            job.finish(value)

    def _run_tests(self, jobs: list[TestJob]) -> None:
        """Jobs that ask for the same models on the same data are computed once."""
        distinct: dict[tuple, TestJob] = {}
        keys = []
        for job in jobs:
            models = tuple(tuple(params.serial for params in model) for model in job.models)
            key = (job.split, job.cluster, models, job.local and job.local.serial)
            distinct.setdefault(key, job)
            keys.append(key)
        values = self._waves.test(list(distinct.values()))
        found = dict(zip(distinct, values, strict=True))
        for job, key in zip(jobs, keys, strict=True):
            job.finish(found[key])

    def _run_comparisons(self, jobs: list[SimilarityJob]) -> None:
        for job, value in zip(jobs, compare(jobs, self._bank), strict=True):
            job.finish(value)

    def _run_merges(self, jobs: list[MergeJob]) -> None:
        by_bank: dict[Bank, list[tuple[MergeJob, Params]]] = defaultdict(list)
        for job in jobs:
            (target,) = job.outputs()
            by_bank[self._bank(target.part)].append((job, target))
        for bank, work in by_bank.items():
            targets = [target for _, target in work]
            bank.merge(targets, [list(job.inputs) for job, _ in work], [job.weights for job, _ in work])
        for job in jobs:
            job.finish()

    def _run_copies(self, jobs: list[CopyJob]) -> None:
        for job in jobs:
            (target,) = job.outputs()
            target.allocate()
            offset = 0
            for source, (start, stop) in zip(job.inputs, job.columns, strict=True):
                target.values()[offset : offset + stop - start].copy_(source.values()[start:stop])
                offset += stop - start
            job.finish()

    def _run_similarities(self, jobs: list[ClassCosineJob]) -> None:
        for job in jobs:
            bank = self._bank(job.inputs[0].part)
            rows = np.array([params.row for params in job.inputs], dtype=np.int64)
            pairs = np.stack([np.zeros(len(rows) - 1, np.int64), np.arange(1, len(rows))], axis=1)
            columns = (0, job.inputs[0].size)
            found = kernels.class_cosine(bank.matrix, job.num_classes, columns, pairs, rows=rows)
            job.finish([float(value) for value in found])

    def _local_of(self, kept: Kept | None) -> Params | None:
        """The row of a node's own buffers, if predictions depend on it."""
        if kept is None or kept.local is None:
            return None
        predicts = self.architectures[kept.local.part.architecture].layout.predicts_with_local
        return kept.local if predicts else None

    def _labels_of(self, node: int, batches: Sequence[np.ndarray]) -> list[int]:
        """The labels that occur in mini-batches, ascending."""
        labels = self.shards.train[node][1]
        return labels[torch.from_numpy(np.concatenate(batches)).to(labels.device)].unique().tolist()

    def _mean_part(self, node: int) -> Part:
        """What a row with one mean of features holds."""
        architecture = self.architecture_of(node)
        name = architecture.layout.architecture
        if (name, "class mean") not in self._slices:
            inputs = self.shards.train[node][0]
            size = latent_size(architecture.module(torch.device("cpu")), inputs.shape[1:], inputs.dtype)
            entry = Entry("mean", (size,), 0, size, True)
            self._slices[name, "class mean"] = Part(name, "class mean", (entry,))
        return self._slices[name, "class mean"]

    def _bank(self, part: Part) -> Bank:
        """The matrix of all parts of this name and these shapes, whatever their architecture."""
        key = (part.name, part.signature)
        if key not in self._banks:
            self._banks[key] = Bank(part, self._device, self._serials)
        return self._banks[key]

    def _whose(self, part: Part) -> str:
        """An architecture's name, with the nodes that have it where nodes differ."""
        if not self._assigned:
            return part.architecture
        nodes = [str(node) for node, name in enumerate(self._assigned) if name == part.architecture]
        listed = ", ".join(nodes[:8]) + (", ..." if len(nodes) > 8 else "")
        return f"{part.architecture} (node{'s' * (len(nodes) != 1)} {listed})"


def make_waves(
    architectures: Mapping[str, Architecture], shards: Shards, training, chunk: int, device: torch.device, threads: int
):
    """The way in which this device runs waves."""
    if device.type == "cuda":
        from ddlsim.learning.gpu import GpuWaves

        return GpuWaves(architectures, shards, training, chunk, device)
    return CpuWaves(architectures, shards, training, chunk, threads)

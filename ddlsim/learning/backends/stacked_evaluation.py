"""Losses and predictions of many models at once, stacked by architecture; job_types.py describes the jobs.

A core that several models share has its features computed once. Models of one architecture are stacked whatever images
they see, pass after pass, as many images each as memory allows (device.py); models that see the same images share one
copy of them.
"""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np
import torch

from ddlsim.kernels.matrices import downloaded, uploaded
from ddlsim.learning.backends.device import Memory
from ddlsim.learning.backends.sample_pool import Gathered, SamplePool
from ddlsim.learning.backends.stacked_models import StackedModels, stack_models
from ddlsim.learning.backends.workspace import autocast
from ddlsim.learning.bank import LazyValue, Row, architecture_of, lazy_values, stacked_rows
from ddlsim.learning.datasets import Inputs, NodeDatasets, Samples
from ddlsim.learning.job_types import LossSpec, TestSpec
from ddlsim.learning.losses import EvalResult, MetricSum
from ddlsim.learning.training_inputs import CORE, HEAD, Batches

Answers = tuple[Sequence[tuple[int, int]], Callable[[], Iterable[Any]]]
"""Places of questions, and a function that waits for their answers."""


Look = Callable[[slice], Gathered]
"""Range of images -> these images [S, n, ...] and labels [S, n, ...] of S sources."""


class Question(NamedTuple):
    """One model, the images that it is evaluated on, and the place of the result.

    Args:
        model: computed.
        source: names the images; equal ones are the same images.
        place: (job, model in the job).
    """

    model: tuple[Row, ...]
    source: Hashable
    place: tuple[int, int]


def stacked_losses(
    jobs: Sequence[LossSpec],
    models: Mapping[str, StackedModels],
    data: NodeDatasets,
    memory: Memory,
    pools: dict[str, SamplePool],
) -> list[LazyValue]:
    """Return the results of threads.py: losses_of, for jobs whose models can all be stacked.

    Args:
        jobs, models, data, memory: see outputs_of.
        pools: the samples of splits; others are added.
    """
    answers: list[Answers] = []
    groups: dict[tuple, list[Question]] = defaultdict(list)
    batches_of: dict[Hashable, tuple[LossSpec, Batches]] = {}
    for index, job in enumerate(jobs):
        split = job.split
        if split not in pools:
            pools[split] = SamplePool(data.sets(split))
        kind = pools[split].kind_of[data.place(split, job.node)]
        for place, (model, batches) in enumerate(zip(job.models, job.batches, strict=True)):
            source: Hashable = (index, id(batches))
            batches_of[source] = job, batches
            groups[architecture_of(model), len(model), split, kind, batches.ends].append(
                Question(model, source, (index, place))
            )
    for (architecture, _, split, (shape, dtype, *_), ends), questions in groups.items():
        asked = {question.source: batches_of[question.source] for question in questions}
        nodes = [data.place(split, job.node) for job, _ in asked.values()]
        look = pools[split].look(nodes, [batches.rows for _, batches in asked.values()])
        device = data.sets(split)[nodes[0]][1].device
        image = torch.zeros(1, *shape, dtype=dtype, device=device)
        passes = outputs_of(models[architecture], questions, list(asked), look, image, ends[-1], memory)
        losses = [_losses(data, *outputs) for outputs in passes]
        each = losses[0] if len(losses) == 1 else torch.cat(losses, dim=1)
        means = (each * _shares(ends, device)).sum(dim=1)
        answers.append(([question.place for question in questions], downloaded(means)))
    return _values(jobs, answers)


def _needs_separate_passes(job: TestSpec, images: Inputs) -> bool:
    """Whether models that see different images need separate passes.

    Images of one channel, one per model, would be a convolution with as many groups as channels, which libraries
    compute slowly; the same images for all models are an ordinary one.
    """
    return job.split != "own validation" and len(images.shape) == 4 and images.shape[1] == 1


def _values(jobs: Sequence[LossSpec | TestSpec], answers: Sequence[Answers]) -> list[LazyValue]:
    """Return per job the answers about its models, in their order. The waiting function holds no rows."""
    sizes = [len(job.models) for job in jobs]

    def get() -> list[list[Any]]:
        found: list[list[Any]] = [[None] * size for size in sizes]
        for places, values in answers:
            for (job, model), value in zip(places, values(), strict=True):
                found[job][model] = value if isinstance(value, EvalResult) else float(value)
        return found

    return lazy_values(get, len(jobs))


def stacked_predictions(
    jobs: Sequence[TestSpec], models: Mapping[str, StackedModels], data: NodeDatasets, memory: Memory
) -> list[LazyValue]:
    """Return the results of threads.py: predictions_of, for jobs whose models can all be stacked."""
    answers: list[Answers] = []
    groups: dict[tuple, list[Question]] = defaultdict(list)
    for index, job in enumerate(jobs):
        source = (job.split, job.cluster)
        images = data.evaluation(*source)[0]
        together: Hashable = (images.shape, images.dtype, _needs_separate_passes(job, images) and source)
        for place, model in enumerate(job.models):
            key = architecture_of(model), len(model), together, job.precision
            groups[key].append(Question(model, source, (index, place)))
    for (architecture, *_, precision), questions in groups.items():
        samples = {question.source: data.evaluation(*question.source) for question in questions}  # type: ignore[misc]
        tested = _tested(models[architecture], questions, samples, data, memory, precision)
        answers.append(([question.place for question in questions], tested))
    return _values(jobs, answers)


def outputs_of(
    models: StackedModels,
    questions: Sequence[Question],
    sources: Sequence[Hashable],
    look: Look,
    image: torch.Tensor,
    count: int,
    memory: Memory,
    precision: str = "float32",
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield per pass over some images the outputs [N, n, classes] of every question, and the labels [N, n].

    Args:
        models: the architecture of all questions.
        questions: N, whose models have equally many parts.
        sources: of the questions, S of them.
        look: returns images and labels of the sources.
        image: one of its shape and type, [1, ...].
        count: images of each source.
        memory: decides how many images a pass has.
        precision: of the passes; outputs are float32.
    """
    cores = {(question.model[0].number, question.source): question for question in questions}
    core_rows, head_rows = _parts(models, list(cores.values()), questions)
    find = partial(_places, device=core_rows.device)
    core_of = find([(question.model[0].number, question.source) for question in questions], list(cores))
    of_cores = find([unit.source for unit in cores.values()], sources)
    of_questions = core_of if of_cores is None else find([question.source for question in questions], sources)
    shared = len(sources) == 1

    def one_pass(part: slice) -> tuple[torch.Tensor, torch.Tensor]:
        images, labels = look(part)
        if shared:
            images, labels = images[0], labels.expand(len(questions), *labels.shape[1:])
        else:
            images, labels = _picked(images, of_cores), _picked(labels, of_questions)
        with autocast(precision, core_rows.device):
            features = models.features(core_rows, images, shared)
            outputs = models.outputs(head_rows, _picked(features, core_of))
        return outputs if precision == "float32" else outputs.float(), labels

    of_core, of_head = models.image_bytes(image)
    yield from memory.passes(count, max(len(cores) * of_core, len(questions) * of_head), one_pass)


def _places(wanted: Sequence[Hashable], known: Sequence[Hashable], device: torch.device) -> torch.Tensor | None:
    """Return the places of the wanted ones, int64 [n]; None if these are all known ones in order."""
    if wanted == known:
        return None
    place = {each: number for number, each in enumerate(known)}
    return _on_device(tuple(place[each] for each in wanted), device)


@lru_cache(maxsize=64)
def _on_device(numbers: tuple[int, ...], device: torch.device) -> torch.Tensor:
    """Return whole numbers as a tensor, which waves of one pattern share."""
    return uploaded(np.array(numbers), device)


@lru_cache(maxsize=64)
def _shares(ends: tuple[int, ...], device: torch.device) -> torch.Tensor:
    """Return the share of each sample in the mean of the means of batches, float64 [n]."""
    sizes = np.diff(ends, prepend=0)
    return uploaded(np.repeat(1 / (len(sizes) * sizes), sizes), device)


def _picked(values: torch.Tensor, places: torch.Tensor | None) -> torch.Tensor:
    return values if places is None else values.index_select(0, places)


def _parts(
    models: StackedModels, cores: Sequence[Question], questions: Sequence[Question]
) -> tuple[torch.Tensor, torch.Tensor]:
    """The cores [U, P_core] and heads [N, P_head] as matrices, of models in parts or whole."""
    core, head = (models.layout.parts[name].size for name in (CORE, HEAD))
    if len(questions[0].model) > 1:
        return stacked_rows([unit.model[0] for unit in cores]), stacked_rows([each.model[1] for each in questions])
    rows = stack_models([question.model for question in questions])
    return stack_models([unit.model for unit in cores])[:, :core], rows[:, core : core + head]


def _losses(data: NodeDatasets, outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Every sample's loss [N, n], float64, of outputs [N, n, ...] and labels [N, n] or [N, n, T]."""
    each = data.loss(outputs.flatten(0, 1), labels.flatten(0, 1), reduction="none")
    return each.double().view(labels.shape[:2])


def _stack(values: list[torch.Tensor]) -> torch.Tensor:
    return values[0][None] if len(values) == 1 else torch.stack(values)


def _tested(
    models: StackedModels,
    questions: Sequence[Question],
    samples: Mapping[Hashable, Samples],
    data: NodeDatasets,
    memory: Memory,
    precision: str,
) -> Callable[[], list[EvalResult]]:
    images, labels = next(iter(samples.values()))
    tally = MetricSum(data.task, len(questions), labels.device)

    def look(part: slice) -> Gathered:
        seen = [(images[part], labels[part]) for images, labels in samples.values()]
        return _stack([images for images, _ in seen]), _stack([labels for _, labels in seen])

    asked = list(samples), look, images[:1], len(images)
    for outputs, labels in outputs_of(models, questions, *asked, memory, precision):
        tally.add(outputs, labels, _losses(data, outputs, labels).sum(dim=1))
    return tally.results_later()

"""Losses and predictions of many models at once, stacked by architecture; job_types.py describes the jobs.

A core that several models share has its features computed once. Models of one architecture are stacked whatever images
they see, pass after pass, as many images each as memory allows (device.py); models that see the same images share one
copy of them.
"""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ddlsim.kernels.matrices import downloaded, uploaded
from ddlsim.learning.backends.device import Memory
from ddlsim.learning.backends.stacked_models import StackedModels, stack_models
from ddlsim.learning.backends.workspace import autocast
from ddlsim.learning.bank import LazyValue, Row, architecture_of, lazy_values, stacked_rows
from ddlsim.learning.datasets import Inputs, NodeDatasets, Samples
from ddlsim.learning.job_types import LossSpec, TestSpec
from ddlsim.learning.losses import EvalResult, MetricSum
from ddlsim.learning.training_inputs import CORE, HEAD, Batches

Answers = tuple[Sequence[tuple[int, int]], Callable[[], Iterable[Any]]]
"""Places of questions, and a function that waits for their answers."""


@dataclass(frozen=True)
class Question:
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
    jobs: Sequence[LossSpec], models: Mapping[str, StackedModels], data: NodeDatasets, memory: Memory
) -> list[LazyValue]:
    """Return the results of threads.py: losses_of, for jobs whose models can all be stacked."""
    answers: list[Answers] = []
    groups: dict[tuple, list[Question]] = defaultdict(list)
    batches_of: dict[Hashable, tuple[LossSpec, Batches]] = {}
    for index, job in enumerate(jobs):
        for place, (model, batches) in enumerate(zip(job.models, job.batches, strict=True)):
            source: Hashable = (index, id(batches))
            batches_of[source] = job, batches
            sizes = tuple(len(batch) for batch in batches)
            like = data.local(job.split, job.node)[0]
            key = architecture_of(model), len(model), like.shape[1:], like.dtype, sizes
            groups[key].append(Question(model, source, (index, place)))
    for (architecture, *_, sizes), questions in groups.items():
        asked = {question.source: batches_of[question.source] for question in questions}
        samples = _gathered(data, asked)
        losses = torch.cat(
            [
                _losses(data, outputs, labels)
                for outputs, labels in outputs_of(models[architecture], questions, samples, memory)
            ],
            dim=1,
        )
        means = torch.stack([batch.mean(dim=1) for batch in losses.split(sizes, dim=1)]).mean(dim=0)
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


def _gathered(data: NodeDatasets, asked: Mapping[Hashable, tuple[LossSpec, Batches]]) -> dict[Hashable, Samples]:
    """The samples of batches, whose rows are uploaded in one copy."""
    local = [data.local(job.split, job.node) for job, _ in asked.values()]
    rows = uploaded(np.concatenate([batch for _, batches in asked.values() for batch in batches]), local[0][1].device)
    parts = rows.split([sum(map(len, batches)) for _, batches in asked.values()])
    each = zip(asked, local, parts, strict=True)
    return {source: (images[part], labels[part]) for source, (images, labels), part in each}


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
    samples: Mapping[Hashable, Samples],
    memory: Memory,
    precision: str = "float32",
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield per pass over some images the outputs [N, n, classes] of every question, and the labels [N, n].

    Args:
        questions: N, whose models have equally many parts.
        samples: per source images and labels, as many as every other's.
        memory: decides how many images a pass has.
        precision: of the passes; outputs are float32.
    """
    cores = {(question.model[0].number, question.source): question for question in questions}
    position = {key: index for index, key in enumerate(cores)}
    unit_of = [position[question.model[0].number, question.source] for question in questions]
    core_rows, head_rows = _parts(models, list(cores.values()), questions)
    sources = list(dict.fromkeys(question.source for question in questions))
    shared = len(sources) == 1
    picked = None if unit_of == list(range(len(cores))) else uploaded(np.array(unit_of), core_rows.device)

    def one_pass(part: slice) -> tuple[torch.Tensor, torch.Tensor]:
        seen = {source: tuple(values[part] for values in samples[source]) for source in sources}
        if shared:
            images, labels = seen[sources[0]]
            labels = labels.expand(len(questions), *labels.shape)
        else:
            images = torch.stack([seen[unit.source][0] for unit in cores.values()])
            labels = torch.stack([seen[question.source][1] for question in questions])
        with autocast(precision, core_rows.device):
            features = models.features(core_rows, images, shared)
            outputs = models.outputs(head_rows, features if picked is None else features[picked])
        return outputs if precision == "float32" else outputs.float(), labels

    inputs = samples[sources[0]][0]
    of_core, of_head = models.image_bytes(inputs[:1])
    yield from memory.passes(len(inputs), max(len(cores) * of_core, len(questions) * of_head), one_pass)


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


def _tested(
    models: StackedModels,
    questions: Sequence[Question],
    samples: Mapping[Hashable, Samples],
    data: NodeDatasets,
    memory: Memory,
    precision: str,
) -> Callable[[], list[EvalResult]]:
    tally = MetricSum(data.task, len(questions), next(iter(samples.values()))[1].device)
    for outputs, labels in outputs_of(models, questions, samples, memory, precision):
        tally.add(outputs, labels, _losses(data, outputs, labels).sum(dim=1))
    return tally.results_later()

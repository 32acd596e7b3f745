"""From what an algorithm asks of a training to its specification: which rows it reads, and which it will fill."""

from collections.abc import Sequence
from dataclasses import dataclass

from ddlsim.learning.bank import Params, Rows
from ddlsim.learning.batches import Batches
from ddlsim.learning.job_types import Model, TrainSpec
from ddlsim.learning.layout import Part
from ddlsim.learning.objective import Objective
from ddlsim.learning.optimizing.state import Kept, KeptRows, OptimizerState
from ddlsim.learning.private_steps import PrivateSteps


@dataclass(frozen=True)
class Request:
    """What is asked for.

    Args:
        node: the node that has the samples.
        model: where training starts, part by part.
        batches: sample indices per step.
        only: part that is trained alone; None: all.
        kept: what the node kept of its last training.
        objective: what is minimized; None: the task's loss.
        seed: of random numbers drawn in it; None: none are.
        rates: learning rate per update.
        proximal: mu of the proximal term.
        control: what is added to every gradient; None: nothing.
        labels: whose mean features are wanted.
        last_pass: number of steps, the last ones, whose features count in these means.
        private: how gradients are clipped and noised; None: they are not.
    """

    node: int
    model: Model
    batches: Batches
    only: str | None
    kept: Kept
    objective: Objective | None
    seed: int | None
    rates: Sequence[float]
    proximal: float
    control: Params | None
    labels: Sequence[int]
    last_pass: int
    private: PrivateSteps | None = None


@dataclass(frozen=True)
class Training:
    """A training that can be enqueued.

    Args:
        spec: what is computed.
        reads: handles to the rows that it reads.
        writes: handles to those that it fills.
        trained: the model to be; parts that are not trained are those of the start.
        kept: what the node keeps then.
        means: by label the mean of its features.
    """

    spec: TrainSpec
    reads: list[Params]
    writes: list[Params]
    trained: Model
    kept: Kept
    means: dict[int, Params]


def make_training(
    rows: Rows, asked: Request, kept_rows: KeptRows, mean_part: Part | None, local_part: Part
) -> Training:
    """Numbers the rows of a training: the trained parts, moments, means, own buffers.

    Args:
        rows: of the run.
        asked: see there.
        kept_rows: what the optimizer keeps of each part.
        mean_part: what the mean of a label's features is; None: no labels are asked for.
        local_part: the architecture's own buffers of a node, perhaps none.
    """
    model, kept = asked.model, asked.kept
    moves = [asked.only in (None, params.part.name) for params in model]
    trained = tuple(rows.new(params.part) if own else params for params, own in zip(model, moves, strict=True))
    moments = [
        tuple(rows.new(row) if own else None for row in kept_rows.of(params.part))
        for params, own in zip(model, moves, strict=True)
    ]
    means = {} if mean_part is None else {label: rows.new(mean_part) for label in asked.labels}
    local = rows.new(local_part) if local_part.size else None
    before = [kept.moments.get(params.part.name) for params in model] if kept_rows.kept else []
    targets = dict(asked.objective.targets) if asked.objective else {}
    spec = TrainSpec(
        node=asked.node,
        architecture=model[0].part.architecture,
        model=tuple(params.serial for params in model),
        sizes=tuple(params.size for params in model),
        trained=tuple(params.serial if own else None for params, own in zip(trained, moves, strict=True)),
        batches=asked.batches,
        only=asked.only,
        moments=tuple(each and OptimizerState(each.steps, tuple(row.serial for row in each.rows)) for each in before),
        new_moments=tuple(_number(row) for of_part in moments for row in of_part),
        objective=asked.objective and asked.objective.without_targets(),
        targets={label: params.serial for label, params in targets.items()},
        seed=asked.seed,
        rates=tuple(asked.rates),
        proximal=asked.proximal,
        control=_number(asked.control),
        means={label: params.serial for label, params in means.items()},
        last_pass=asked.last_pass,
        local=_number(kept.local),
        new_local=_number(local),
        private=asked.private,
    )
    reads = [
        *model,
        *(row for each in before if each for row in each.rows),
        *targets.values(),
        kept.local,
        asked.control,
    ]
    made = [params for params, own in zip(trained, moves, strict=True) if own]
    writes = [*made, *(row for of_part in moments for row in of_part), *means.values(), local]
    moments_then = _moments_then(asked, moves, moments) if kept_rows.kept else kept.moments
    keeps = Kept(moments_then, local, kept.batches + len(asked.batches))
    return Training(spec, _held(reads), _held(writes), trained, keeps, means)


def _moments_then(asked: Request, moves: Sequence[bool], rows: Sequence[tuple]) -> dict[str, OptimizerState]:
    """What the optimizer keeps of each part after the training."""
    found = dict(asked.kept.moments)
    for params, own, new in zip(asked.model, moves, rows, strict=True):
        if own:
            last = asked.kept.moments.get(params.part.name)
            found[params.part.name] = OptimizerState(len(asked.rates) + (last.steps if last else 0), new)
    return found


def _number(params: Params | None) -> int | None:
    return None if params is None else params.serial


def _held(handles: Sequence[Params | None]) -> list[Params]:
    return [params for params in handles if params is not None]

"""Parts that are functions of their arguments, each called on a few small values: what they return is looked at.

Churn, schedules, optimizers, compressions, attacks and aggregation rules; a trial without learning calls none of these.
"""

from collections.abc import Callable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from ddlsim.contract.places import method
from ddlsim.errors import kind_of
from ddlsim.learning.optimizing.schedules import no_factor
from ddlsim.tasks import as_task

if TYPE_CHECKING:
    from ddlsim.scenario import Scenario

VALUES, ROWS, SAMPLES = 6, 3, 4
FIRST_ABSENCES = 20
SEED_BYTES = 8
MOST_DRAWN, MOST_ROWS = 2000, 64
"""Nodes of a graph that is drawn to know how many models a node combines; and models in a trial."""


def churn_problems(part: Any, scenario: "Scenario", outline: Any) -> Iterator[str]:
    """Its first absences are those of nodes that exist, in order."""
    from ddlsim.build.drawn import absences_drawn

    for absent in absences_drawn(part, scenario.nodes.count, scenario.seed).values():
        for _ in islice(absent, FIRST_ABSENCES):
            pass
    yield from ()


def schedule_problems(part: Any, scenario: "Scenario", outline: Any) -> Iterator[str]:
    """Its factors are numbers of 0 or more, from the first position to the last, or beyond where a run asks so."""
    length = max(1, scenario.rounds)
    beyond = part.per == "step" or scenario.algorithm.has_final_exchange
    for position in sorted({0, min(1, length - 1), length - 1, *([length] if beyond else [])}):
        wrong = no_factor(part.factor(position, length), position, length)
        if wrong:
            yield f"{method(part, 'factor')} returns {wrong}"
            return


def optimizer_problems(part: Any, scenario: "Scenario", outline: Any) -> Iterator[str]:
    """It makes an optimizer of torch, whose step leaves finite values."""
    import torch

    values = torch.ones(2, VALUES // 2, requires_grad=True)
    made = part.make([values], scenario.training.learning_rate)
    if not isinstance(made, torch.optim.Optimizer):
        yield f"{method(part, 'make')} returns {kind_of(made)}, expected a torch.optim.Optimizer"
        return
    (values * values).sum().backward()
    made.step()
    if not values.isfinite().all():
        yield f"{method(part, 'make')}: the first step from ones, with a gradient of twos, leads to {values.tolist()}"


def compression_problems(part: Any, scenario: "Scenario", outline: Any) -> Iterator[str]:
    """What it encodes takes as many bytes as it says, and is decoded to as many values."""
    import torch

    values, sizes, seeds = torch.linspace(-1, 1, 2 * VALUES).reshape(2, VALUES), (VALUES - 2, 2), (1, 2)
    copies = torch.zeros(2, VALUES) if part.keeps_copies else None
    encoded = part.encode(values.clone(), copies, sizes, seeds)
    said, held = part.num_bytes(sizes), sum(each.nbytes for each in encoded) / 2
    if said not in (held, held + SEED_BYTES):  # a seed that the receiver needs is on the wire, but no tensor
        yield f"{method(part, 'num_bytes')} returns {said}, but encode returns {held:g} bytes a row"
        return
    copies = torch.zeros(2, VALUES) if part.keeps_copies else None
    yield from _wrong_tensor(method(part, "decode"), part.decode(encoded, copies, sizes, seeds), values)


def attack_problems(part: Any, scenario: "Scenario", outline: Any) -> Iterator[str]:
    """What it forges has the shape of what it was given; what it poisons are samples and labels."""
    import torch

    from ddlsim.attacks.base import Seen
    from ddlsim.attacks.results import wrong_samples

    if part.forges:
        rows = [row.clone() for row in torch.linspace(-1, 1, ROWS * VALUES).reshape(ROWS, VALUES)]
        start = torch.zeros(VALUES) if part.compares_updates else None
        receiver = torch.ones(VALUES) if part.per_receiver else None
        seen = Seen(rows[0].clone(), rows, start, receiver, 1, scenario.nodes.count, 1)
        yield from _wrong_tensor(method(part, "forge"), part.forge(seen), rows[0])
    if part.poisons and outline is not None:
        inputs = torch.zeros(SAMPLES, *outline.image_shape, dtype=getattr(torch, outline.dtype))
        classes, shape, task = outline.num_classes, (SAMPLES, *outline.label_shape), as_task(outline.task)
        labels = torch.arange(SAMPLES) * (classes - 1) // (SAMPLES - 1)
        labels = labels.reshape(SAMPLES, *[1] * len(outline.label_shape)).expand(shape)
        labels = labels.to(getattr(torch, task.label_dtype))
        found = part.poison(inputs.clone(), labels.clone(), classes, np.random.default_rng(0))
        wrong = wrong_samples(found, inputs, labels, classes, task)
        if wrong:
            yield f"{method(part, 'poison')} returns {wrong}"


def aggregation_problems(part: Any, scenario: "Scenario", outline: Any) -> Iterator[str]:
    """How it combines rows is a Combination of just these rows."""
    from ddlsim.aggregation.base import Rows, unfit
    from ddlsim.topologies.base import neighbors

    rows = scenario.nodes.count
    if scenario.algorithm.heeds_topology and rows <= MOST_DRAWN:
        rows = 1 + max(map(len, neighbors(scenario.topology, rows, 0, scenario.seed)))
    rows = min(rows, MOST_ROWS)
    seen = rows + part.needs_start
    apart = 1.0 - np.eye(seen)
    found = part.combine(Rows(np.full(rows, 1 / rows), 0, apart if part.needs_distances else None))
    wrong = unfit(found, rows, part.needs_start)
    if wrong:
        yield f"{method(part, 'combine')}{wrong}"


CALLS: "dict[str, Callable[[Any, Scenario, Any], Iterator[str]]]" = {
    "churn": churn_problems,
    "schedule": schedule_problems,
    "optimizer": optimizer_problems,
    "compression": compression_problems,
    "attacks": attack_problems,
    "aggregation": aggregation_problems,
}
"""Key of a part -> what is wrong with one of its kind, in a scenario whose samples are as an outline says (None: it is
not known)."""


def _wrong_tensor(place: str, found: Any, like: Any) -> Iterator[str]:
    """What is not as another tensor, in shape and numbers."""
    from ddlsim.attacks.results import wrong_tensor

    wrong = wrong_tensor(found, like)
    if wrong:
        yield f"{place} returns {wrong}"

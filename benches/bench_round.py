"""One round of FACADE's CIFAR-10 30:2 cell, and FedProto's trainings on it, against the plain training loop; see
helpers/facade_cell.py.
"""

import facade_cell as cell
import pytest
import torch
from machine_limits import floor_s

ALTERNATIVE = "plain PyTorch training loop"


@pytest.fixture(scope="module")
def learner():
    learner = cell.make_learner()
    yield learner
    learner.close()


@pytest.fixture(scope="module")
def starts(learner):
    return [learner.init_models(node)[0] for node in range(cell.NODES)]


def check_first_step(starts, trained, theirs) -> None:
    """Check only the first step: later steps amplify rounding. Pixels at the edge of ReLU or pooling may differ."""
    values = [torch.cat([params.values() for params in model]) for model in starts]
    ours = [torch.cat([params.values() for params in model]) for model in trained]
    apart = sorted(float((a - b).norm() / (b - c).norm()) for a, b, c in zip(ours, theirs, values, strict=True))
    assert apart[-4] < 1e-5, apart  # of all nodes except three
    assert apart[-1] < 0.005, apart


def test_training_wave(ratio, learner, starts, benchmark, request):
    trained = cell.training_wave(learner, starts, steps=1)
    check_first_step(starts, trained, cell.plain_training(learner, starts, steps=1))
    ratio(lambda: cell.training_wave(learner, starts), lambda: cell.plain_training(learner, starts), ALTERNATIVE, 5)
    instructions = "x86-64-v3" if request.config.getoption("--avx2") else "native"
    least = None if benchmark.disabled else floor_s(cell.THREADS, cell.multiply_adds(), instruction_set=instructions)
    if least is not None:
        benchmark.extra_info.update(floor_s=least, of_floor=benchmark.extra_info["ours_s"] / least)


def test_fedproto_training_wave(ratio, learner, starts):
    """A loss of the algorithm's own: only the core is native."""
    (_, prototypes), *_ = cell.fedproto_wave(learner, starts, {})
    loss_of = cell.plain_fedproto(prototypes)
    trained = [model for model, _ in cell.fedproto_wave(learner, starts, prototypes, steps=1)]
    check_first_step(starts, trained, cell.plain_training(learner, starts, 1, loss_of))
    ours = lambda: cell.fedproto_wave(learner, starts, prototypes)  # noqa: E731
    ratio(ours, lambda: cell.plain_training(learner, starts, loss_of=loss_of), ALTERNATIVE, 5)


@pytest.mark.parametrize("batches", ["common", "per_head"])
def test_facade_round(ratio, learner, starts, batches):
    """With common batches (scenarios/facade_30_2.yaml), and as in the published code."""
    common = batches == "common"
    merged = cell.whole_round(learner, starts, common)
    assert len(merged) == 2 * cell.NODES and torch.isfinite(merged[0].values()).all()
    ours, theirs = lambda: cell.whole_round(learner, starts, common), lambda: cell.plain_training(learner, starts)
    ratio(ours, theirs, ALTERNATIVE, 5)

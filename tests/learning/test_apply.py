"""Functions of parameters: node by node or together, after a resume, on workers, and without learning."""

from functools import partial

import pytest
import torch
from torn_runs import SMOKE, outcome, run_until, run_whole
from workers_here import workers_here

from ddlsim import runs
from ddlsim.foundation.errors import DdlsimError
from ddlsim.learning import row_operations
from ddlsim.learning.job_types import ApplySpec
from ddlsim.runs.checkpoint import Every
from ddlsim.runs.cluster.cluster import Executor
from ddlsim.scenario import load

SIGN_GOSSIP = """
from dataclasses import dataclass
from functools import partial
import torch
from ddlsim.algorithms.rounds import SharedModel

def sign_step(start, mean, rate):
    return start + rate * torch.sign(mean - start)

@dataclass(frozen=True, kw_only=True)
class SignGossip(SharedModel):
    def round(self, node, state, round_num):
        start = state.model
        (trained,) = yield node.train((start,))
        node.send(node.peers(round_num), round_num, model=trained)
        inbox = yield node.receive(round_num)
        mean = node.average(trained, {m.src: m.payload["model"] for m in inbox})
        state.model = node.apply(partial(sign_step, rate=0.01), start, mean)
"""


@pytest.fixture
def sign_gossip(tmp_path):
    """Return settings of a run with an algorithm whose nodes step along the signs of their average's change."""
    path = tmp_path / "sign.py"
    path.write_text(SIGN_GOSSIP)
    return f"algorithm={{name: '{path}:SignGossip'}}", "rounds=4", "evaluation={every: 2, samples: 100}"


def adam_step(model, change, moment):
    return model + 0.1 * change / (moment.sqrt() + 1e-3)


def clipped(values):
    return values / 2 if values.norm() > 1 else values  # control flow that depends on values


def test_function_is_computed_when_its_result_is_needed(make_learner):
    learner = make_learner()
    (core, _), (other, _) = learner.init_models(3, 2)
    result = learner.apply(torch.atan2, [core, other])
    assert result.row.slot is None
    learner.jobs.force_params([result])
    assert torch.equal(result.values(), torch.atan2(core.values(), other.values()))


def test_function_cannot_change_its_arguments(make_learner):
    learner = make_learner()
    core = learner.init_models(3)[0][0]
    before = core.values().clone()
    learner.jobs.force_params([learner.apply(lambda values: values.mul_(2), [core])])
    assert torch.equal(core.values(), before)


@pytest.mark.parametrize("function", [adam_step, partial(torch.addcmul, value=0.5)])
def test_nodes_computed_together_equal_nodes_computed_one_by_one(make_learner, function):
    learner = make_learner()
    rows = [core for core, _ in learner.init_models(3, 6)]
    squares = [learner.apply(torch.square, [row]) for row in rows]
    alone = [learner.apply(function, [a, b, c]) for a, b, c in zip(rows[:3], rows[3:], squares, strict=False)]
    learner.jobs.force_params(alone)
    targets = [learner.rows.new(rows[0].part) for _ in range(3)]
    specs = [
        ApplySpec(function=function, sources=(a.serial, b.serial, c.serial), target=target.serial)
        for a, b, c, target in zip(rows[:3], rows[3:], squares, targets, strict=False)
    ]
    for target in targets:
        target.row.allocate()
    assert row_operations._apply_together([spec.bound(learner.rows) for spec in specs])
    assert all(torch.equal(a.values(), b.values()) for a, b in zip(alone, targets, strict=True))


def test_unmappable_function_is_called_node_by_node(make_learner):
    learner = make_learner()
    (core, _), (other, _) = learner.init_models(3, 2)
    target = learner.rows.new(core.part)
    specs = [ApplySpec(function=clipped, sources=(each.serial,), target=target.serial) for each in (core, other)]
    assert not row_operations._apply_together([spec.bound(learner.rows) for spec in specs])


@pytest.mark.parametrize(
    ("function", "found"),
    [(torch.sum, r"a tensor \[\] of torch.float32"), (lambda x: x.numpy(), "a ndarray"), (torch.isnan, "torch.bool")],
)
def test_invalid_result_of_a_function_is_an_error(make_learner, function, found):
    learner = make_learner()
    core = learner.init_models(3)[0][0]
    result = learner.apply(function, [core])
    with pytest.raises(DdlsimError, match=rf"node.apply: \S+ returns .*{found}"):
        learner.jobs.force_params([result])


def test_parameters_of_different_sizes_are_an_error(make_learner):
    learner = make_learner()
    with pytest.raises(DdlsimError, match=r"cannot combine the head .* shapes differ"):
        learner.apply(torch.add, learner.init_models(3)[0])


def test_run_with_a_function_resumes_with_the_same_bytes(tmp_path, monkeypatch, sign_gossip):
    whole = run_whole(tmp_path / "whole", sign_gossip)
    run_until(tmp_path / "torn", sign_gossip, 3, 2, monkeypatch)
    runs.resume(tmp_path / "torn", checkpoint_every=Every())
    assert outcome(tmp_path / "torn") == whole


def test_workers_compute_functions_with_the_same_bytes(tmp_path, monkeypatch, sign_gossip):
    whole = run_whole(tmp_path / "whole", sign_gossip)
    with workers_here(monkeypatch):
        executor = Executor(name="ray", workers=3)
        runs.run(load(SMOKE, sign_gossip), out=tmp_path / "workers", executor=executor, checkpoint_every=Every())
    assert outcome(tmp_path / "workers") == whole


def test_function_is_not_called_without_learning(tmp_path, sign_gossip):
    for learning in ("real", "none"):
        runs.run(load(SMOKE, (*sign_gossip, f"learning={learning}")), out=tmp_path / learning)
    real, none = ((tmp_path / learning / "communication.jsonl").read_bytes() for learning in ("real", "none"))
    assert none == real

"""An asynchronous device launches a full wave of training at once; only requests for values wait."""

import sys
from pathlib import Path

import pytest
import torch
from workers_here import InProcess

from ddlsim import assembly
from ddlsim.learning.bank import LazyValue, lazy_values
from ddlsim.learning.remote.waves import RemoteWaves
from ddlsim.runs.loading import load_data, prepare
from ddlsim.scenario import load

SMOKE = Path(__file__).parents[1] / "helpers" / "smoke.yaml"
NODES, ROUNDS = 8, 4


class Aside:
    """An asynchronous device that records launches of waves and waits for values.

    Args:
        waves: the device that computes.
    """

    asynchronous = True

    def __init__(self, waves):
        self._waves = waves
        self.now_s = lambda: 0.0
        self.launched, self.waited = [], []  # (kind, jobs, time_s); (kind, whether `resolve` waited)
        self.resolving = False

    def __getattr__(self, name):
        return getattr(self._waves, name)

    def run(self, kind, specs):
        self.launched.append((kind, len(specs), self.now_s()))
        values = self._waves.run(kind, specs)
        if not specs or specs[0].writes_in:
            return values

        def wait():
            self.waited.append((kind, self.resolving))
            return values

        return lazy_values(wait, len(values))


@pytest.fixture
def run_aside():
    """Run a scenario on such a device; return it, the times of requests for training, and the rows."""
    learners = []

    def run(*changes, aside=True):
        sets = ("training.local_steps=1", f"rounds={ROUNDS}", f"evaluation.every={ROUNDS}", *changes)
        loaded = load_data(load(SMOKE, sets))
        prepared = prepare(loaded)
        learner = assembly.build_learner(loaded.scenario, prepared, "cpu")
        learners.append(learner)
        device, asked, rows = Aside(learner.backends), [], Rows()
        device.asynchronous = aside
        learner.backends, learner.jobs._run = device, device.run
        submit, resolve = learner.jobs.submit, learner.resolve

        def submitted(job):
            if job.kind == "training":
                asked.append(device.now_s())
            return submit(job)

        def resolved(jobs):
            device.resolving = True
            values = resolve(jobs)
            device.resolving = False
            return values

        learner.jobs.submit, learner.resolve = submitted, resolved
        simulation = assembly.build_simulation(loaded.scenario, prepared, learner, rows, lambda *_: None)
        device.now_s = lambda: simulation.env.now
        simulation.run()
        learner.jobs.settle()
        return device, asked, rows

    yield run
    for learner in learners:
        learner.close()


class Rows(list):
    """Collects the rows of a run."""

    def row(self, *row):
        self.append(row)

    def training_row(self, *_):
        pass

    def flush(self):
        pass


def trainings(device):
    return [(jobs, time_s) for kind, jobs, time_s in device.launched if kind == "training"]


@pytest.mark.parametrize("name", ["facade, heads: 2", "el", "deprl", "fedavg"])
def test_full_wave_is_launched_when_its_last_training_is_requested(run_aside, name):
    device, asked, _ = run_aside(f"algorithm={{name: {name}}}")
    last_of_wave = asked[NODES - 1 :: NODES]
    assert trainings(device) == [(NODES, time_s) for time_s in last_of_wave]


def test_waves_on_the_host_wait_for_the_first_value(run_aside):
    device, asked, _ = run_aside(aside=False)
    launched = trainings(device)
    assert [jobs for jobs, _ in launched] == [NODES] * ROUNDS
    assert all(time_s > asked_s for (_, time_s), asked_s in zip(launched, asked[NODES - 1 :: NODES], strict=True))


def test_waves_do_not_wait_for_offline_nodes(run_aside):
    away = "churn={name: schedule, offline: [{node: 2, start_s: 0.01, end_s: 1000}]}"
    device, asked, _ = run_aside("algorithm={name: el}", away)
    launched = trainings(device)
    assert [jobs for jobs, _ in launched[1:]] == [NODES - 1] * (ROUNDS - 1)
    assert launched[1][1] == asked[NODES + NODES - 2]


def test_learner_waits_only_for_needed_values(run_aside):
    device, _, _ = run_aside("evaluation.every=1", "validation={source: node, fraction: 0.2}")
    assert {kind for kind, _ in device.waited} == {"head losses", "evaluation", "consensus", "reading"}
    assert all(resolving for _, resolving in device.waited)


def test_nodes_without_a_common_time_get_the_same_rows(run_aside):
    changes = (
        "mode=async",
        "devices={name: lognormal, median_step_time_s: 0.05}",
        "churn={name: schedule, offline: [{node: 2, start_s: 0.4, end_s: 1}]}",
    )
    early, asked, rows = run_aside(*changes)
    assert any(time_s in asked for _, time_s in trainings(early)[1:])  # some waves were full
    assert rows == run_aside(*changes, aside=False)[2]


def test_only_workers_compute_asynchronously(make_learner):
    assert RemoteWaves(InProcess([]), [0]).asynchronous
    assert not make_learner().backends.asynchronous


def test_failed_value_fails_again():
    def lost():
        raise OSError("gone")

    for value in lazy_values(lost, 2):
        with pytest.raises(OSError, match="gone"):
            value.get()


@pytest.fixture
def host_waits(monkeypatch):
    """Record places where ddlsim's code copies a tensor value to the host."""
    found = []

    def note(name):
        own = getattr(torch.Tensor, name)

        def noted(self, *args, **kwargs):
            caller = sys._getframe(1).f_code.co_filename
            moves = name != "to" or any(isinstance(each, torch.device | str) for each in args)
            if moves and "/ddlsim/" in caller and not caller.endswith("matrices.py"):
                found.append((Path(caller).name, name))
            return own(self, *args, **kwargs)

        monkeypatch.setattr(torch.Tensor, name, noted)

    for name in ("item", "tolist", "cpu", "numpy", "to", "__bool__", "__float__", "__int__", "__index__"):
        note(name)
    return found


@pytest.mark.parametrize(
    "changes", [{}, {"augmentation": "crop_flip"}, {"optimizer": "adam", "optimizer_state": "kept"}]
)
def test_training_wave_copies_no_value_to_the_host(make_learner, as_on_a_gpu, host_waits, changes):
    import numpy as np

    learner = as_on_a_gpu(make_learner(batch_norm=True, **changes))

    def train(seed):
        starts = [learner.init_models(node)[0] for node in range(3)]
        trained = [learner.train(node, starts[node], 3, np.random.default_rng(seed)) for node in range(3)]
        return [params for model in trained for params in model]

    learner.jobs.force_params(train(0))  # models are checked once for stacking
    second = train(1)
    host_waits.clear()
    learner.jobs.force_params(second)
    assert not host_waits


def test_losses_and_evaluations_are_copied_to_the_host_on_demand(make_learner, as_on_a_gpu, host_waits):
    import numpy as np

    learner = as_on_a_gpu(make_learner())
    models = [learner.init_models(node)[0] for node in range(3)]
    first = [learner.test([model], 0) for model in models]
    learner.resolve(first)
    jobs = [learner.losses(0, models, 2, np.random.default_rng(0)), learner.test([models[0]], 1)]
    host_waits.clear()
    learner.jobs.run_all()
    assert not host_waits and all(isinstance(job.value, LazyValue) for job in jobs)
    losses, (tested,) = learner.resolve(jobs)
    assert len(losses) == 3 and all(isinstance(loss, float) for loss in losses) and tested.confusion.sum() == 25

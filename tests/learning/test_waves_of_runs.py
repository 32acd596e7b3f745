"""The waves of whole runs, and the independence of results from waves."""

import pickle
from pathlib import Path

import pytest

from ddlsim import assembly
from ddlsim.learning.job_types import TrainSpec
from ddlsim.learning.jobs import Jobs
from ddlsim.runs.loading import load_data, prepare
from ddlsim.scenario import load

SMOKE = Path(__file__).parents[1] / "helpers" / "smoke.yaml"
NODES, ROUNDS = 8, 6
TIMES = "devices={name: lognormal, median_step_time_s: 0.05}"
CHURN = "churn={name: schedule, state: lost, offline: [{node: 2, start_s: 0.35, end_s: 0.9}]}"


class Rows(list):
    """Collects the rows of a run."""

    def row(self, *row):
        self.append(row)

    def training_row(self, *_):
        pass

    def flush(self):
        pass


@pytest.fixture
def run():
    """Run a scenario; return its learner, waves in order ("|" at the end of a round), and rows."""
    learners = []

    def run_with(*changes: str, before=lambda learner: None):
        sets = ("training.local_steps=2", f"rounds={ROUNDS}", f"evaluation.every={ROUNDS}", *changes)
        loaded = load_data(load(SMOKE, sets))
        prepared = prepare(loaded)
        learner = assembly.build_learner(loaded.scenario, prepared, "cpu")
        learners.append(learner)
        waves, rows, compute = [], Rows(), learner.jobs._run
        learner.jobs._run = lambda kind, specs: waves.append((kind, len(specs))) or compute(kind, specs)
        before(learner)
        assembly.build_simulation(loaded.scenario, prepared, learner, rows, lambda *_: waves.append(("|", 0))).run()
        return learner, waves, rows

    yield run_with
    for learner in learners:
        learner.close()


def rounds_of(waves, first: int, last: int) -> list[list[tuple[str, int]]]:
    """Return the waves of rounds first .. last, each ending with losses."""
    found, current = [], []
    for kind, size in waves:
        if kind != "|":
            current.append((kind, size))
        if kind == "head losses":
            found.append(current)
            current = []
    return found[first : last + 1]


def test_a_round_of_facade_is_one_wave_of_each_kind(run):
    _, waves, _ = run()
    for round_num, one in enumerate(rounds_of(waves, 2, ROUNDS - 1)):
        assert [kind for kind, _ in one] == ["training", "merging", "head losses"], round_num
        assert one[0][1] == one[2][1] == NODES


@pytest.mark.parametrize("name", ["el", "dpsgd", "gossip", "dfedavgm", "adpsgd", "fedavg"])
def test_a_round_without_choices_is_one_wave_of_training(run, name):
    learner, _, _ = run(f"algorithm={{name: {name}}}")
    assert learner.jobs.waves["training"] == [NODES] * ROUNDS


def test_a_round_of_deprl_is_one_wave_for_heads_and_one_for_cores(run):
    learner, _, _ = run("algorithm={name: deprl}")
    assert learner.jobs.waves["training"] == [NODES] * 2 * ROUNDS


@pytest.mark.parametrize("name", ["el", "facade, heads: 2", "dac, sampled_peers: 3, loss_batches: local_steps"])
def test_asynchronous_nodes_share_waves_of_training(run, name):
    learner, _, _ = run(f"algorithm={{name: {name}}}", "mode=async", TIMES)
    sizes = learner.jobs.waves["training"]
    assert sum(sizes) / len(sizes) > 1.5


def test_jobs_do_not_accumulate_without_needed_values(run):
    pending = []

    def watch(learner):
        flush = learner.jobs.flush
        learner.jobs.flush = lambda: flush() or pending.append(len(learner.jobs._pending))

    run("algorithm={name: el}", "rounds=20", "evaluation.every=20", before=watch)
    assert max(pending) <= 4 * NODES


@pytest.mark.parametrize(
    "changes",
    [
        (CHURN, TIMES),
        ("algorithm={name: el}", "mode=async", CHURN, TIMES, "network.compression={name: top_k}"),
        ("algorithm={name: dpsgd}", "network.compression={name: int8}"),
    ],
)
def test_results_do_not_depend_on_the_time_of_waves(run, changes):
    def at_once(learner):
        """Let every job run as soon as it is enqueued."""
        submit = learner.jobs.submit
        learner.jobs.submit = lambda job: (submit(job), learner.jobs.run_all())[0]

    def watched(into, also=lambda learner: None):
        def before(learner):
            also(learner)
            submit = learner.jobs.submit
            learner.jobs.submit = lambda job: into.append((job.kind, job.spec.numbered().reads)) or submit(job)

        return before

    late, early = [], []
    _, _, expected = run(*changes, before=watched(late))
    _, _, found = run(*changes, before=watched(early, at_once))
    assert early == late
    assert found == expected


def test_a_specification_can_be_sent_to_another_process(run):
    seen = []

    def watch(learner):
        submit = learner.jobs.submit
        learner.jobs.submit = lambda job: seen.append(pickle.dumps(job.spec.numbered())) or submit(job)

    run("algorithm={name: mapl, warmup_rounds: 1, projection_units: 16}", "rounds=2", before=watch)
    specs = [pickle.loads(data) for data in seen]
    assert {spec.kind for spec in specs} >= {"training", "merging", "copying", "similarity", "evaluation"}
    training = next(spec for spec in specs if isinstance(spec, TrainSpec))
    assert training.reads == training.model and training.objective.views == 2


def test_dropped_job_drops_its_unshared_inputs(make_learner):
    import numpy as np

    learner = make_learner()
    model = learner.init_models(0)[0]
    for _ in range(3):
        model = learner.train(0, model, 1, np.random.default_rng(0))
    merged = learner.merge([model[1]], [1.0])
    del model
    learner.jobs.flush()
    assert len(learner.jobs._pending) == 4
    del merged
    learner.jobs.flush()
    assert not learner.jobs._pending and not learner.jobs.waves


def test_a_needed_value_leaves_other_kinds_of_work_for_later():
    ran = []
    jobs = Jobs(
        ["merging", "training", "head losses"], lambda kind, specs: ran.append((kind, len(specs))) or [1] * len(specs)
    )
    losses = [jobs.submit(stub("head losses")) for _ in range(3)]
    jobs.submit(stub("training"))
    jobs.force(losses[:1])
    assert ran == [("head losses", 3)]


def stub(kind: str):
    """Return a job without inputs that computes a value."""
    from ddlsim.learning.job_types import ReadSpec
    from ddlsim.learning.jobs import Job

    spec = ReadSpec(sources=())
    spec.kind = kind
    return Job(spec, (), ())

"""Nodes with different numbers of steps and batch sizes train in one matrix, each as alone."""

from itertools import accumulate

import pytest
import torch
from stacked_learners import HostRecorder, assert_equal_models, fallback_reasons, rng
from torch import nn
from torch.profiler import ProfilerActivity, profile

from ddlsim.learning.backends import stacked
from ddlsim.learning.backends.stacked_training import MOST_CHAINED, StackedTraining, spans_of
from ddlsim.learning.backends.step_graphs import CALLS_BEFORE, StepGraphs
from ddlsim.learning.optimizing import updates
from ddlsim.learning.training_inputs import TrainingContext
from ddlsim.models.split import SplitModel

STEPS, SIZES = (7, 2, 4), [6, 4, 6]
"""Of 20 samples each: the batches of the first node are 6, 6, 6, 2, 6, 6, 6."""


@pytest.fixture
def matrices(monkeypatch):
    """Numbers of models in the matrices that are trained."""
    found, train = [], StackedTraining.train
    monkeypatch.setattr(StackedTraining, "train", lambda *args: (found.append(len(args[2])), train(*args)))
    return found


def train_twice(learner, steps=STEPS):
    models, kept = [learner.init_models(node)[0] for node in range(3)], [None] * 3
    context = TrainingContext(rounds=2, steps=14)
    for number in range(2):
        done = [
            learner.train_towards(node, models[node], steps[node], rng(node + number), None, kept[node], None, context)
            for node in range(3)
        ]
        models, kept = [model for model, _, _ in done], [state for _, state, _ in done]
        learner.jobs.force_params([params for model in models for params in model])
    return [torch.cat([params.values() for params in model]).clone() for model in models]


def test_spans_end_where_rows_or_batch_sizes_change():
    found = spans_of(((8, 16, 19, 27), (8, 16, 18), (8, 16)))
    assert [(span.steps, span.runs) for span in found] == [
        (range(0, 2), ((slice(0, 3), 8),)),
        (range(2, 3), ((slice(0, 1), 3), (slice(1, 2), 2))),
        (range(3, 4), ((slice(0, 1), 8),)),
    ]


@pytest.mark.parametrize(
    "keys",
    [
        {},
        {"momentum": 0.9},
        {"optimizer": "rmsprop", "learning_rate": 0.01, "eps": 1e-3},
        {"clip_norm": 0.5, "proximal": 0.3, "weight_decay": 0.01, "weight_decay_on": "weights"},
        {"batch_norm": True, "augmentation": "crop_flip"},
        {"schedule": {"name": "cosine", "per": "step"}, "momentum": 0.5},
    ],
    ids=str,
)
def test_uneven_trainings_in_one_matrix_equal_those_alone(pair, matrices, keys):
    plain, together = pair(batch_size=SIZES, **keys)
    together.backends.backends[1]._waves._graphs = StepGraphs(HostRecorder(), 3)
    expected = train_twice(plain)
    found = train_twice(together)
    assert_equal_models(found, expected)
    assert matrices == [3, 3] and not together.fallback_counts


@pytest.mark.full
def test_matrix_holds_as_many_models_as_its_bytes_allow(pair, matrices, monkeypatch):
    plain, together = pair()
    size = 4 * together.architecture_of(0).layout.size
    expected = train_twice(plain)
    monkeypatch.setattr(stacked, "STACK_BYTES", 2 * size)
    assert_equal_models(train_twice(together), expected)
    assert matrices == [2, 1, 2, 1]


def train_rounds(learner, steps, parts):
    """Train parts of three nodes' models in rounds of these steps; return their models and moments."""
    models, kept = [learner.init_models(node)[0] for node in range(3)], [None] * 3
    for number, (of_nodes, only) in enumerate(zip(steps, parts, strict=True)):
        done = [
            learner.train_towards(node, models[node], count, rng(node + number), only, kept[node], None)
            for node, count in enumerate(of_nodes)
        ]
        models, kept = [model for model, _, _ in done], [state for _, state, _ in done]
        rows = [params for model in models for params in model]
        rows += [row for state in kept for moments in state.moments.values() for row in moments.rows]
        learner.jobs.force_params(rows)
    return [params.values().clone() for params in rows]


ROUNDS = [(3, 3, 5), (4, 2, 6), (2, 2, 2)]
"""In the second round the first node has a row between the others' and has done as many steps as the last row."""


@pytest.mark.parametrize("parts", [(None,) * 3, ("head",) * 3, ("head", "core", None)], ids=str)
@pytest.mark.parametrize(
    "keys",
    [
        {"momentum": 0.9},
        {"weight_decay": 0.1},
        {"optimizer": "adam", "eps": 1e-2, "clip_norm": 0.5},
        {"optimizer": "adamw", "eps": 1e-2, "weight_decay_on": "weights"},
        {"optimizer": "adamw", "eps": 1e-2, "fused": True},
    ],
    ids=str,
)
def test_models_whose_moments_have_done_different_steps_share_a_matrix(pair, matrices, monkeypatch, keys, parts):
    settings = {"optimizer_state": "kept", "batch_size": SIZES, "learning_rate": 0.01, **keys}
    fused = settings.pop("fused", False)
    plain, together = pair(**settings)
    expected = train_rounds(plain, ROUNDS, parts)
    monkeypatch.setattr(updates, "takes_fused_steps", lambda parameters: fused)
    assert_equal_models(train_rounds(together, ROUNDS, parts), expected)
    assert matrices == [3, 3, 3] and not together.fallback_counts


def wide() -> SplitModel:
    core = nn.Sequential(nn.Flatten(), nn.Linear(72, 300), nn.ReLU(), nn.Linear(300, 300))
    return SplitModel(core, nn.Linear(300, 3))


def train_whole(learner, start=None, kept=None):
    start = start or learner.init_models(0, whole=True)[0]
    model, state, _ = learner.train_towards(0, start, 4, rng(0), None, kept, None)
    learner.jobs.force_params([*model, *state.moments["model"].rows])
    return model, state


def test_training_of_a_large_model_allocates_its_gradients_and_no_copy(pair, monkeypatch):
    keys = {"optimizer": "adamw", "learning_rate": 0.01, "eps": 1e-2, "optimizer_state": "kept"}
    plain, alone = pair(builders={"net": wide}, **keys)
    size = 4 * alone.architecture_of(0).layout.size
    monkeypatch.setattr(stacked, "STACK_BYTES", 2 * size - 1)
    monkeypatch.setattr(updates, "takes_fused_steps", lambda parameters: True)  # as on a GPU
    alone.backends.backends[-1]._workers._pool = None  # as there: in this thread
    before = train_whole(alone)  # which makes the module
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        (model,), state = train_whole(alone, *before)
    events = profiler.profiler.kineto_results.events()
    held = accumulate(event.nbytes() for event in events if event.name() == "[memory]")
    assert size < max(held) < 1.2 * size
    (expected,), its_state = train_whole(plain, *train_whole(plain))
    for one, other in zip(
        [model, *state.moments["model"].rows], [expected, *its_state.moments["model"].rows], strict=True
    ):
        torch.testing.assert_close(one.values(), other.values())
    assert fallback_reasons(alone) == {"training: its models are too large for a stack": 2}


@pytest.mark.parametrize("only", [None, "head"])
def test_large_models_train_one_by_one_with_one_graph_for_all_nodes(pair, monkeypatch, only):
    plain, alone = pair(optimizer="adamw", learning_rate=0.01, eps=1e-2, optimizer_state="kept", accumulate=2)
    monkeypatch.setattr(stacked, "STACK_BYTES", 1)
    backend = alone.backends.backends[-1]
    backend._workers._pool = None  # as on a GPU: in this thread
    recorder = HostRecorder()
    backend._graphs = StepGraphs(recorder, 1)
    found, expected = (train_rounds(each, [(3, 3, 3)] * 3, [only] * 3) for each in (alone, plain))
    assert_equal_models(found, expected)
    assert len(backend._graphs._graphs) == 1
    assert recorder.replays == 9 * 3 - 3 - CALLS_BEFORE  # the first training is not known to be repeated


def test_plain_steps_of_a_training_are_one_graph(pair):
    plain, together = pair()
    recorder = HostRecorder()
    graphs = together.backends.backends[1]._waves._graphs = StepGraphs(recorder, 3)
    steps = (MOST_CHAINED + 5,) * 3
    for _ in range(CALLS_BEFORE // 2 + 1):
        assert_equal_models(train_twice(together, steps), train_twice(plain, steps))
    assert recorder.replays == 2 * 2 and len(graphs._graphs) == 2  # one of 16 steps, one of 5

"""Nodes with different numbers of steps and batch sizes train in one matrix, each as alone."""

import pytest
import torch
from stacked_learners import HostRecorder, assert_equal_models, rng

from ddlsim.learning.backends import stacked, step_graphs
from ddlsim.learning.backends.stacked_models import StackedModels
from ddlsim.learning.backends.stacked_training import MOST_CHAINED, StackedTraining, spans_of
from ddlsim.learning.backends.step_graphs import CALLS_BEFORE, STEPS_WORTH, StepGraphs
from ddlsim.learning.training_inputs import TrainingContext

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


def test_large_models_train_one_at_a_time_with_one_graph_for_all_nodes(pair, matrices, monkeypatch):
    plain, together = pair(momentum=0.9)
    weights = 4 * together.architecture_of(0).layout.size
    monkeypatch.setattr(stacked, "STACK_BYTES", weights)
    monkeypatch.setattr(step_graphs, "MOST_BYTES", weights - 1)
    recorder, compared, compare = HostRecorder(), [], StackedModels.why_not_train
    monkeypatch.setattr(
        StackedModels,
        "why_not_train",
        lambda *args: compared.extend(len(labels[0]) for _, labels in args[2]) or compare(*args),
    )
    graphs = together.backends.backends[1]._waves._graphs = StepGraphs(recorder, 3)
    steps = (STEPS_WORTH,) * 3
    assert_equal_models(train_twice(together, steps), train_twice(plain, steps))
    assert matrices == [1] * 6 and len(graphs._graphs) == 1
    assert recorder.replays == 6 * STEPS_WORTH - CALLS_BEFORE
    assert set(compared) == {2}  # samples: a comparison in float64 takes several times the memory of a step


def test_plain_steps_of_a_training_are_one_graph(pair):
    plain, together = pair()
    recorder = HostRecorder()
    graphs = together.backends.backends[1]._waves._graphs = StepGraphs(recorder, 3)
    steps = (MOST_CHAINED + 5,) * 3
    for _ in range(CALLS_BEFORE // 2 + 1):
        assert_equal_models(train_twice(together, steps), train_twice(plain, steps))
    assert recorder.replays == 2 * 2 and len(graphs._graphs) == 2  # one of 16 steps, one of 5

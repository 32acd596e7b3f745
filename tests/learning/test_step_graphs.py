"""Graphs of repeated steps, with a recorder for the host that repeats the recorded calls."""

import warnings

import pytest
import torch
from stacked_learners import HostRecorder

from ddlsim.learning.backends import step_graphs
from ddlsim.learning.backends.step_graphs import CALLS_BEFORE, STEPS_WORTH, CudaRecorder, Graph, StepGraphs

MOST = 30

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")


def weighted(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor]:
    return (x * w + 1,)


def negated(x: torch.Tensor) -> tuple[torch.Tensor]:
    return (-x,)


def call(graphs: StepGraphs, name: str, function, *inputs: torch.Tensor, steps: int = STEPS_WORTH):
    """Run one step of a separate wave."""
    return graphs.wave(name, function, len(inputs[0]), steps)(*inputs)


def test_graph_calls_equal_the_function():
    recorder = HostRecorder()
    graphs = StepGraphs(recorder, MOST)
    for step in range(10):
        x, w = torch.randn(4, 3), torch.randn(4, 3)
        assert torch.equal(call(graphs, "weighted", weighted, x, w)[0], x * w + 1)
        assert recorder.replays == max(0, step + 1 - CALLS_BEFORE)


def test_each_shape_and_name_has_a_graph():
    graphs = StepGraphs(HostRecorder(), MOST)
    for _ in range(5):
        for width in (2, 3):
            x = torch.randn(2, width)
            assert torch.equal(call(graphs, "weighted", weighted, x, torch.ones(2, 1))[0], x + 1)
            assert torch.equal(call(graphs, "doubled", lambda x, w: (2 * x,), x, torch.ones(2, 1))[0], 2 * x)
    assert len(graphs._graphs) == 4


def test_least_recently_used_graph_is_dropped(monkeypatch):
    monkeypatch.setattr(step_graphs, "MOST_GRAPHS", 2)
    graphs = StepGraphs(HostRecorder(), MOST)
    for name in ("a", "b", "a", "c"):
        for _ in range(CALLS_BEFORE + 1):
            call(graphs, name, negated, torch.ones(2))
    assert [key[0] for key in graphs._graphs] == ["a", "c"]


def test_large_inputs_need_no_graph(monkeypatch):
    monkeypatch.setattr(step_graphs, "MOST_BYTES", 15)
    recorder = HostRecorder()
    graphs = StepGraphs(recorder, MOST)
    for _ in range(5):
        assert torch.equal(call(graphs, "neg", negated, torch.ones(4))[0], -torch.ones(4))
    assert recorder.replays == 0


def test_graphs_read_values_in_place_without_a_copy(monkeypatch):
    """They change between the steps, and do not count among the bytes that a graph would hold twice."""
    monkeypatch.setattr(step_graphs, "MOST_BYTES", 3 * 2 * 4)  # the batch alone
    recorder = HostRecorder()
    graphs = StepGraphs(recorder, MOST)
    for wave in range(2):
        given = torch.randn(3, 100)
        weights = graphs.in_place("scaled", given)
        assert torch.equal(weights, given) and weights.data_ptr() != given.data_ptr()
        steps = graphs.wave("scaled", lambda w, x: (w.sum(dim=1, keepdim=True) * x,), 3, STEPS_WORTH)
        for _ in range(5):
            batch = torch.randn(3, 2)
            assert torch.equal(steps(weights, batch)[0], weights.sum(dim=1, keepdim=True) * batch)
            weights += 1
        assert recorder.replays == (5 - CALLS_BEFORE) + 5 * wave
    (graph,) = graphs._graphs.values()
    assert graph._inputs[0].data_ptr() == weights.data_ptr()


def test_waves_of_all_sizes_share_few_graphs():
    recorded = []

    def record(function, inputs):
        recorded.append(len(inputs[0]))
        return HostRecorder()(function, inputs)

    graphs, sizes = StepGraphs(record, 100), torch.randint(1, 101, (300,), generator=torch.Generator().manual_seed(1))
    for size in sizes.tolist():
        wave = graphs.wave("weighted", weighted, size, 10)
        for _ in range(10):
            x, w = torch.randn(size, 3), torch.randn(size, 3)
            torch.testing.assert_close(wave(x, w)[0], x * w + 1)
    assert len(recorded) == len(set(recorded)) <= 15


def test_nearly_full_waves_take_the_graph_of_full_ones():
    graphs = StepGraphs(HostRecorder(), MOST)
    for size in (30, 30, 30, 29, 27):
        wave = graphs.wave("neg", negated, size, 10)
        for _ in range(4):
            assert len(wave(torch.ones(size, 2))[0]) == size
    assert [key[1] for key in graphs._graphs] == [30]


def test_short_wave_of_a_new_size_records_no_graph():
    recorder = HostRecorder()
    graphs = StepGraphs(recorder, MOST)
    for expected in (0, 7 - CALLS_BEFORE):
        wave = graphs.wave("neg", negated, 3, 7)
        for _ in range(7):
            wave(torch.ones(3, 2))
        assert recorder.replays == expected


def cannot_record(function, inputs):
    raise RuntimeError("operation not permitted when stream is capturing\nmore")


def records_something_else(function, inputs):
    graph = HostRecorder()(function, inputs)
    return Graph(lambda: None, graph._inputs, tuple(torch.zeros_like(each) for each in graph._results))


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (cannot_record, "could not be recorded (operation not permitted when stream is capturing)"),
        (records_something_else, "computed something else than its steps"),
    ],
)
def test_without_a_matching_graph_steps_are_launched_one_by_one(record, message):
    graphs = StepGraphs(record, MOST)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(8):
            x = torch.randn(3)
            assert torch.equal(call(graphs, "neg", negated, x)[0], -x)
    assert [message in str(warning.message) for warning in caught] == [True]


def test_failing_graph_does_not_affect_the_others():
    def record(function, inputs):
        return (cannot_record if function is negated else HostRecorder())(function, inputs)

    graphs = StepGraphs(record, MOST)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(CALLS_BEFORE + 2):
            call(graphs, "neg", negated, torch.ones(2))
            call(graphs, "weighted", weighted, torch.ones(2), torch.ones(2))
    assert [key[0] for key in graphs._graphs] == ["weighted"]


def no_memory(function, inputs):
    raise torch.OutOfMemoryError("CUDA out of memory")


def no_memory_and_no_end(function, inputs):
    try:
        no_memory(function, inputs)
    finally:
        raise RuntimeError("the capture was invalidated")


@pytest.mark.parametrize("record", [no_memory, no_memory_and_no_end])
def test_out_of_memory_is_not_taken_for_a_missing_graph(record):
    graphs = StepGraphs(record, MOST)
    for _ in range(CALLS_BEFORE):
        call(graphs, "neg", negated, torch.ones(2))
    with pytest.raises(torch.OutOfMemoryError):
        call(graphs, "neg", negated, torch.ones(2))


@pytest.mark.parametrize("changes", [{}, {"batch_norm": True, "augmentation": "crop_flip"}])
def test_graphs_do_not_change_training(make_learner, as_on_a_gpu, changes):
    import numpy as np

    flats = []
    for recorder in (None, HostRecorder()):
        learner = as_on_a_gpu(make_learner(**changes))
        learner.backends.backends[1]._waves._graphs = StepGraphs(recorder, MOST)
        trained = []
        for count in (3, 3, 3, 3, 3, 2):  # nodes of a wave
            starts = [(only, node) for only in (None, "core", "head") for node in range(count)]
            wave = [
                learner.train(node, learner.init_models(node)[0], 7, np.random.default_rng(node), only)
                for only, node in starts
            ]
            learner.jobs.force_params([params for model in wave for params in model])
            trained += wave
        flats.append(torch.cat([params.values() for model in trained for params in model]).clone())
    assert recorder.replays >= 2 * 3
    assert torch.equal(*flats)


@needs_cuda
def test_graphs_are_recorded_on_a_device():
    graphs = StepGraphs(CudaRecorder(torch.device("cuda")), MOST)
    for _ in range(6):
        x, w = torch.randn(40, 3, device="cuda"), torch.randn(40, 3, device="cuda")
        torch.testing.assert_close(call(graphs, "weighted", weighted, x, w)[0], x * w + 1)
    assert len(graphs._graphs) == 1

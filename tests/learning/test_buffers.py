"""`model.buffers` decides whether floating-point buffers are sent; integer buffers always stay with their node."""

import numpy as np
import pytest
import torch
from torch import nn

from ddlsim.foundation.errors import ScenarioError
from ddlsim.learning.layout import Layout
from ddlsim.learning.training_inputs import draw_batches
from ddlsim.models.split import SplitModel


class Counting(nn.Module):
    """Counts training steps beyond what float32 can count, and flips a flag."""

    def __init__(self):
        super().__init__()
        self.register_buffer("flag", torch.tensor([True, False, True]))
        self.register_buffer("count", torch.tensor(2**40))

    def forward(self, x):
        if self.training:
            self.count = self.count + 1
            self.flag.logical_not_()
        return x.flatten(1) + self.flag[0]


@pytest.fixture
def make_norm(make_learner):
    return lambda buffers: make_learner(batch_norm=True, buffers=buffers)


def rng(node: int = 0) -> np.random.Generator:
    return np.random.default_rng(100 + node)


def norm_after(learner, model, trainings: int) -> tuple[torch.Tensor, torch.Tensor, int]:
    """Return mean, variance and count of PyTorch's BatchNorm after trainings of 5 steps with fixed parameters."""
    images, labels = learner.data.train[0]
    flat = model[0].values()
    conv, norm = nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4)
    with torch.no_grad():
        conv.weight.copy_(flat[:72].view(4, 2, 3, 3))
        conv.bias.copy_(flat[72:76])
        stream = rng()
        for _ in range(trainings):
            for batch in draw_batches(stream, len(labels), 4, 5):
                norm(conv(images[batch]))
    return norm.running_mean, norm.running_var, int(norm.num_batches_tracked)


def test_sent_rows_hold_shared_buffers_without_the_count(make_norm):
    layout = make_norm("shared").architectures["tiny"].layout
    assert layout.parts["core"].size == 84 + 8
    assert [entry.name for entry in layout.local.entries] == ["core.1.num_batches_tracked"]
    assert not layout.predicts_with_local


def test_local_buffers_have_a_separate_row(make_norm):
    layout = make_norm("local").architectures["tiny"].layout
    assert layout.parts["core"].size == 84 == sum(layout.parts["core"].trained_sizes)
    assert layout.local.size == 4 + 4 + 2  # an int64 takes two columns
    assert layout.predicts_with_local


def test_merging_averages_shared_buffers(make_norm):
    learner = make_norm("shared")
    models = [learner.train(node, learner.init_models(node)[0], 5, rng(node)) for node in (0, 1)]
    merged = learner.merge([core for core, _ in models], [0.5, 0.5])
    learner.jobs.force_params([merged])
    mean = (models[0][0].values() + models[1][0].values()) / 2
    torch.testing.assert_close(merged.values()[84:], mean[84:])


def test_trained_values_of_a_whole_model_exclude_buffers_between_them(make_norm):
    learner = make_norm("shared")
    ((model,),) = learner.init_models(0, whole=True)
    ((other,),) = learner.init_models(1, whole=True)
    core, buffers = slice(0, 84), slice(84, 84 + 8)  # then the head
    values = learner.trained_values(model)
    mixed = learner.with_trained_values(other, learner.merge([values, values], [1.0, 1.0]))
    learner.jobs.force_params([mixed])
    torch.testing.assert_close(values.values(), torch.cat([model.values()[core], model.values()[92:]]))
    torch.testing.assert_close(mixed.values()[core], 2 * model.values()[core])
    torch.testing.assert_close(mixed.values()[buffers], other.values()[buffers])
    torch.testing.assert_close(mixed.values()[92:], 2 * model.values()[92:])


def test_a_model_without_buffers_is_its_trained_values(make_learner):
    learner = make_learner()
    ((model,),) = learner.init_models(0, whole=True)
    ((other,),) = learner.init_models(1, whole=True)
    changed = learner.with_trained_values(other, learner.trained_values(model))
    learner.jobs.force_params([changed])
    assert torch.equal(changed.values(), model.values())


def test_local_buffers_continue_across_trainings(make_norm):
    learner = make_norm("local")
    learner.use_training(learner.training.model_copy(update={"learning_rate": 0.0}))
    start, stream, kept = learner.init_models(0)[0], rng(), None
    model = start
    for _ in range(2):
        model, kept = learner.train_towards(0, model, 5, stream, None, kept, None)[:2]
    learner.jobs.force_params([*model, kept.local])
    mean, variance, count = norm_after(learner, start, 2)
    found = {entry.name.rpartition(".")[2]: entry.view(kept.local.values()) for entry in kept.local.part.entries}
    torch.testing.assert_close(found["running_mean"], mean)
    torch.testing.assert_close(found["running_var"], variance)
    assert int(found["num_batches_tracked"]) == count == 10


def test_model_is_evaluated_with_the_buffers_of_the_evaluating_node(make_norm):
    learner = make_norm("local")
    model = learner.init_models(0)[0]
    kept = [
        learner.train_towards(node, learner.init_models(node)[0], 5, rng(node), None, None, None)[1] for node in (0, 1)
    ]
    values = [
        learner.value(learner.losses(0, [model], 5, rng(), local_state=each))[0] for each in (None, *kept, kept[0])
    ]
    assert values[1] == values[3] and len(set(values[:3])) == 3
    tests = [learner.value(learner.test([model], 0, local_state=each))[0][1] for each in (None, *kept)]
    assert len(set(tests)) == 3


def test_equal_models_with_shared_buffers_are_evaluated_once(make_norm):
    learner = make_norm("shared")
    model = learner.init_models(0)[0]
    kept = [learner.train_towards(node, model, 2, rng(node), None, None, None)[1] for node in (0, 1)]
    calls = []
    run = learner.backends.run_distinct
    learner.backends.run_distinct = lambda kind, specs: calls.append(len(specs)) or run(kind, specs)
    learner.jobs.force([learner.test([model], 0, local_state=each) for each in kept])
    assert calls == [1]


def test_untrained_part_keeps_its_local_buffers(make_norm):
    learner = make_norm("local")
    model = learner.init_models(0)[0]
    _, kept = learner.train_towards(0, model, 3, rng(), "head", None, None)[:2]
    learner.jobs.force_params([kept.local])
    assert torch.equal(kept.local.values(), learner.architectures["tiny"].local)


def test_aborted_training_does_not_change_local_buffers(make_norm):
    learner = make_norm("local")
    model, kept = learner.train_towards(0, learner.init_models(0)[0], 3, rng(), None, None, None)[:2]
    learner.jobs.force_params([kept.local])
    before = kept.local.values().clone()
    lost = learner.train_towards(0, model, 3, rng(), None, kept, None)[:2]
    del lost
    learner.jobs.run_all()
    assert torch.equal(kept.local.values(), before)


@pytest.mark.parametrize("buffers", ["shared", "local"])
def test_integer_buffers_are_exact_and_stay_with_their_node(make_learner, buffers):
    learner = make_learner(builders={"net": lambda: SplitModel(Counting(), nn.Linear(72, 3))}, buffers=buffers)
    assert learner.architectures["net"].layout.size == 72 * 3 + 3
    model, kept = learner.init_models(0, whole=True)[0], None
    for _ in range(2):
        model, kept = learner.train_towards(0, model, 3, rng(), None, kept, None)[:2]
    learner.jobs.force_params([kept.local])
    flag, count = (entry.view(kept.local.values()) for entry in kept.local.part.entries)
    assert count.item() == 2**40 + 6 and flag.tolist() == [True, False, True]


@pytest.mark.parametrize("buffers", ["shared", "local"])
def test_a_wave_on_a_gpu_equals_one_on_a_cpu(make_norm, as_on_a_gpu, buffers):
    found = []
    for learner in (make_norm(buffers), as_on_a_gpu(make_norm(buffers))):
        done = [
            learner.train_towards(node, learner.init_models(node)[0], 4, rng(node), None, None, None)[:2]
            for node in (0, 1)
        ]
        tests = [learner.test([model], node, local_state=kept) for node, (model, kept) in enumerate(done)]
        rows = [params for model, kept in done for params in (*model, kept.local)]
        learner.jobs.force_params(rows)
        learner.jobs.force(tests)
        found.append(
            [*(params.values() for params in rows), torch.tensor([learner.value(test)[0][1] for test in tests])]
        )
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5, equal_nan=True)


def test_a_buffer_with_two_names_has_one_entry():
    norm = nn.BatchNorm1d(3)
    layout = Layout("net", SplitModel(nn.Sequential(norm, norm), nn.Linear(3, 2)))
    assert layout.parts["core"].size == 6 + 6


def test_batch_norm_without_running_statistics_is_refused(make_learner):
    def build(norm):
        return SplitModel(nn.Sequential(nn.Conv2d(2, 4, 3), norm, nn.Flatten()), nn.Linear(64, 3))

    with pytest.raises(ScenarioError, match=r"core.1 of net is a BatchNorm without running statistics"):
        make_learner(builders={"net": lambda: build(nn.BatchNorm2d(4, track_running_stats=False))})
    make_learner(builders={"net": lambda: build(nn.InstanceNorm2d(4))})

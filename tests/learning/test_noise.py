"""Dropout: the masks of a node do not depend on the grouping of work."""

import copy

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from ddlsim.foundation.errors import ScenarioError
from ddlsim.learning.dropout import CounterDropout, draws_noise, mask, replace_dropouts, seed_dropouts
from ddlsim.learning.layout import Layout
from ddlsim.models.split import SplitModel


def net(p=0.5):
    return SplitModel(
        nn.Sequential(nn.Flatten(), nn.Linear(72, 16), nn.ReLU(), nn.Dropout(p)),
        nn.Sequential(nn.Dropout(p), nn.Linear(16, 3)),
    )


def rng(node):
    return np.random.default_rng(100 + node)


@pytest.fixture
def train(make_learner):
    """Train nodes from their starts; return their flat values."""

    def train(nodes, threads=2, one_by_one=False, p=0.5, waves=None):
        learner = make_learner(threads=threads, builders={"net": lambda: net(p)})
        if waves:
            waves(learner)
        trained = []
        for node in nodes:
            trained.append(learner.train(node, learner.init_models(node)[0], 5, rng(node)))
            if one_by_one:
                learner.jobs.force_params(trained[-1])
        learner.jobs.force_params([params for model in trained for params in model])
        return [torch.cat([params.values() for params in model]).clone() for model in trained]

    return train


def test_a_dropout_drops_its_share_and_keeps_the_mean():
    dropout = CounterDropout(0.2)
    values = dropout(torch.ones(100_000))
    assert abs((values == 0).float().mean() - 0.2) < 0.01
    assert torch.allclose(values[values > 0], torch.tensor(1.25)) and abs(values.mean() - 1) < 0.01
    assert torch.equal(dropout.eval()(torch.ones(5)), torch.ones(5))


def test_dropouts_of_a_module_are_replaced_and_differ():
    module = net()
    dropouts = list(replace_dropouts(module).values())
    assert [type(module.core[3]), type(module.head[0])] == [CounterDropout, CounterDropout]
    seed_dropouts(dropouts, 7)
    first, second = (dropout(torch.ones(50)) for dropout in dropouts)
    assert not torch.equal(first, second)
    seed_dropouts(dropouts, 7)
    assert torch.equal(dropouts[0](torch.ones(50)), first)
    seed_dropouts(dropouts, 8)
    assert not torch.equal(dropouts[0](torch.ones(50)), first)


def in_two_places():
    """One nn.Dropout as two layers."""
    dropout = nn.Dropout(0.5)
    core = nn.Sequential(nn.Flatten(), nn.Linear(72, 16), nn.ReLU(), dropout, nn.Linear(16, 16), nn.ReLU(), dropout)
    return SplitModel(core, nn.Sequential(nn.Linear(16, 3)))


def test_dropout_used_in_several_places_is_replaced_in_all(make_learner, monkeypatch):
    assert list(replace_dropouts(in_two_places())) == ["core.3", "core.6"]
    found = []
    for native in ("1", "0", "0"):
        monkeypatch.setenv("DDLSIM_NATIVE_TRAINING", native)
        learner = make_learner(builders={"net": in_two_places})
        trained = learner.train(0, learner.init_models(0)[0], 5, rng(0))
        learner.jobs.force_params(trained)
        assert next(iter(learner.paths)) == ("native" if native == "1" else "one by one")
        found.append(torch.cat([params.values() for params in trained]))
    torch.testing.assert_close(found[0], found[1], rtol=1e-5, atol=1e-6)
    assert torch.equal(found[1], found[2])


class Functional(SplitModel):
    """Draws from torch's generator: dropout in forward, or noise on its inputs."""

    def __init__(self, always=False):
        super().__init__(nn.Sequential(nn.Flatten(), nn.Linear(72, 16), nn.ReLU()), nn.Linear(16, 3))
        self.always = always

    def forward(self, inputs):
        if self.always:
            inputs = inputs + torch.rand_like(inputs)
        return self.head(functional.dropout(self.core(inputs), 0.5, self.training))


def test_draws_from_the_global_generator_are_seeded_per_training(make_learner):
    def train(nodes, threads):
        learner = make_learner(threads=threads, builders={"net": Functional})
        torch.rand(threads)  # in any state of the generator
        trained = {node: learner.train(node, learner.init_models(node)[0], 5, rng(node)) for node in nodes}
        learner.jobs.force_params([params for model in trained.values() for params in model])
        return {node: torch.cat([params.values() for params in model]).clone() for node, model in trained.items()}

    found, again = train((0, 1, 2), 2), train((2, 0, 1), 1)
    assert all(torch.equal(found[node], again[node]) for node in found)
    assert make_learner(builders={"net": net}).architectures["net"].draws_shared is False


def test_forward_with_random_predictions_is_refused(make_learner):
    with pytest.raises(ScenarioError, match="net draws random numbers when it predicts, too"):
        make_learner(builders={"net": lambda: Functional(always=True)})


class Counting(nn.Module):
    """Multiplies by how often it has been called in training, counted in an attribute or a buffer."""

    def __init__(self, buffer: bool, persistent: bool = False):
        super().__init__()
        self.calls = 0
        if buffer:
            del self.calls
            self.register_buffer("calls", torch.tensor(0), persistent=persistent)

    def forward(self, x):
        self.calls = self.calls + self.training
        return x * (1 + self.calls)


@pytest.mark.parametrize(("buffer", "text"), [(True, "core.2.calls of net"), (False, "the output of net")])
def test_state_outside_state_dict_is_refused(make_learner, buffer, text):
    def build(persistent=False):
        return SplitModel(
            nn.Sequential(nn.Flatten(), nn.Linear(72, 16), Counting(buffer, persistent), nn.Dropout()), nn.Linear(16, 3)
        )

    with pytest.raises(ScenarioError, match=text):
        make_learner(builders={"net": build})
    if buffer:
        make_learner(builders={"net": lambda: build(persistent=True)})


def test_masks_of_steps_and_neighbors_are_independent():
    dropout = CounterDropout(0.5)
    first, second = (dropout(torch.ones(100_000)).double() for _ in range(2))
    assert abs(torch.corrcoef(torch.stack([first, second]))[0, 1]) < 0.01
    assert abs(torch.corrcoef(torch.stack([first[1:], first[:-1]]))[0, 1]) < 0.01


def test_masks_equal_split_mix_64():
    """In integers, as in the authors' description."""
    counter, word = 0x123456789ABCDEF0, 2**64

    def mixed(z):
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % word
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB % word
        return z ^ (z >> 31)

    state = mixed(counter)
    drawn = [mixed((state + (i + 1) * 0x9E3779B97F4A7C15) % word) / word < 0.3 for i in range(500)]
    assert mask(0.7, torch.tensor(counter), 500).tolist() == drawn


CONVOLUTIONS = (nn.Conv2d(2, 5, 3), nn.ReLU(), nn.MaxPool2d(2))


@pytest.mark.parametrize(
    ("core", "head"),
    [
        ((nn.Flatten(), nn.Linear(72, 16), nn.ReLU(), nn.Dropout(0.3)), (nn.Dropout(0.4), nn.Linear(16, 3))),
        ((nn.Dropout(0.2), nn.Flatten(), nn.Linear(72, 17), nn.Dropout(0.5), nn.ReLU()), (nn.Linear(17, 3),)),
        ((*CONVOLUTIONS, nn.Dropout(0.4), nn.Flatten()), (nn.Linear(20, 7), nn.Dropout(0.3), nn.Linear(7, 3))),
        ((*CONVOLUTIONS, nn.Flatten(), nn.Dropout(0.0)), (nn.Dropout(0.6), nn.Linear(20, 3))),
    ],
)
@pytest.mark.parametrize("only", [None, "core", "head"])
def test_native_plans_draw_pytorchs_masks(make_learner, monkeypatch, core, head, only):
    flats = []
    for native in ("1", "0"):
        monkeypatch.setenv("DDLSIM_NATIVE_TRAINING", native)
        build = lambda: copy.deepcopy(SplitModel(nn.Sequential(*core), nn.Sequential(*head)))  # noqa: E731
        learner = make_learner(builders={"net": build}, momentum=0.9)
        trained = learner.train(0, learner.init_models(0)[0], 7, rng(0), only)
        learner.jobs.force_params(trained)
        flats.append(torch.cat([params.values() for params in trained]))
        assert ("native" in learner.fallback_counts) == (native == "0")
    torch.testing.assert_close(*flats, rtol=1e-4, atol=1e-5)


def test_pytorch_computes_dropout_before_a_convolution(make_learner):
    build = lambda: SplitModel(  # noqa: E731
        nn.Sequential(nn.Dropout(0.5), nn.Conv2d(2, 3, 3), nn.Flatten()), nn.Linear(48, 3)
    )
    learner = make_learner(builders={"net": build})
    learner.jobs.force_params(learner.train(0, learner.init_models(0)[0], 2, rng(0)))
    assert "comes after the images are flattened" in str(learner.fallback_counts)


@pytest.mark.parametrize("kind", ["crop_flip", "color"])
def test_native_plans_and_pytorch_see_the_same_augmented_images(make_learner, monkeypatch, kind):
    flats = []
    for native in ("1", "0"):
        monkeypatch.setenv("DDLSIM_NATIVE_TRAINING", native)
        learner = make_learner(augmentation=kind)
        trained = learner.train(0, learner.init_models(0)[0], 7, rng(0))
        learner.jobs.force_params(trained)
        flats.append(torch.cat([params.values() for params in trained]))
        assert ("native" in learner.fallback_counts) == (native == "0")
    torch.testing.assert_close(*flats, rtol=1e-4, atol=1e-5)


def test_masks_do_not_depend_on_threads_or_on_grouping(train):
    expected = train([0, 1, 2], threads=1)
    for found in (train([0, 1, 2], threads=2), train([0, 1, 2], one_by_one=True)):
        assert all(torch.equal(one, two) for one, two in zip(expected, found, strict=True))
    assert torch.equal(train([2])[0], expected[2])  # independently of other nodes


def test_gpu_backend_draws_the_same_masks(train, as_on_a_gpu):
    for one, two in zip(train([0, 1]), train([0, 1], waves=as_on_a_gpu), strict=True):
        torch.testing.assert_close(one, two, rtol=1e-5, atol=1e-6)


def test_dropout_changes_the_trained_model(train):
    assert not torch.equal(train([0])[0], train([0], p=0.0)[0])


def test_next_training_of_a_node_draws_different_masks(make_learner):
    learner = make_learner(builders={"net": net})
    stream, start = rng(0), learner.init_models(0)[0]
    seeds = []
    submit = learner.jobs.submit
    learner.jobs.submit = lambda job: seeds.append(job.spec.seed) or submit(job)
    for _ in range(2):
        learner.train(0, start, 1, stream)
    assert len(set(seeds)) == 2 and None not in seeds


def test_without_dropout_no_numbers_are_drawn(make_learner):
    learner = make_learner()
    stream, reference = rng(0), rng(0)
    learner.train(0, learner.init_models(0)[0], 3, stream)
    from ddlsim.learning.training_inputs import draw_batches

    draw_batches(reference, 20, 4, 3)
    assert stream.integers(2**62) == reference.integers(2**62)


def test_other_kinds_of_dropout_are_refused():
    with pytest.raises(ScenarioError, match=r"its Dropout2d draws from a generator.*Use nn\.Dropout"):
        Layout("net", SplitModel(nn.Dropout2d(0.1), nn.Linear(1, 1)))
    assert draws_noise(net()) and not draws_noise(net(0.0))

"""The GPU backend: stacked models compute the same as single models; unstackable models run one by one.

Stacking is the same code on every device, so all but the last tests run on the CPU.
"""

from itertools import combinations

import numpy as np
import pytest
import torch
from stacked_learners import assert_equal_models, fallback_reasons, rng, train_all
from torch import nn

from ddlsim.learning.backends import sample_pool, stacked_evaluation
from ddlsim.learning.backends.sample_pool import SamplePool
from ddlsim.learning.backends.stacked_models import StackedModels
from ddlsim.learning.backends.stacked_steps import METHODS
from ddlsim.learning.stacking.tensor import StackedTensor
from ddlsim.models.split import ResidualBlock, SplitModel

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")


def core() -> nn.Module:
    return nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), nn.ReLU(), nn.Flatten())


class LooksAtValues(SplitModel):
    """Its path through the layers depends on the images, so it cannot be stacked."""

    def __init__(self):
        super().__init__(nn.Sequential(core(), Doubled()), nn.Linear(144, 3))


class Doubled(nn.Module):
    def forward(self, features):
        return features * 2 if features.sum() > 0 else features


class NotTheSame(SplitModel):
    """It can be stacked, but its stacked result differs from single models."""

    def __init__(self):
        super().__init__(nn.Sequential(core(), OtherwiseStacked()), nn.Linear(144, 3))


class OtherwiseStacked(nn.Module):
    def forward(self, features):
        stacked = torch._C._functorch.is_functorch_wrapped_tensor(features) or isinstance(features, StackedTensor)
        return features * (3.0 if stacked else 1.0)


def test_waves_are_stacked_and_reported(pair):
    plain, stacked = pair()
    assert_equal_models(train_all(stacked), train_all(plain))
    assert not stacked.fallback_counts


class Sensitive(SplitModel):
    """Amplifies the rounding of float32 to differences of whole values."""

    def __init__(self):
        super().__init__(nn.Sequential(nn.Flatten(), nn.Linear(72, 8)), nn.Linear(8, 3))

    def forward(self, images):
        return torch.sin(1e7 * super().forward(images))


def test_networks_that_amplify_rounding_are_stacked(make_learner, as_on_a_gpu):
    learner = as_on_a_gpu(make_learner(builders={"net": Sensitive}))
    train_all(learner)
    assert not learner.fallback_counts


class Residual(SplitModel):
    """Strides, a shortcut, BatchNorm in core and head, and dropout in both."""

    def __init__(self):
        core = nn.Sequential(nn.Conv2d(2, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(0.2))
        head = nn.Sequential(ResidualBlock(4, 5, 2), nn.Flatten(), nn.Dropout(0.4), nn.Linear(45, 3))
        super().__init__(core, head)


class Counts(nn.Module):
    """Buffers that the module replaces by new tensors: a mean without BatchNorm, a count, flags."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(2, 1, 1))
        self.register_buffer("count", torch.tensor(2**40))
        self.register_buffer("seen", torch.tensor([False, True, False]))

    def forward(self, images):
        if self.training:
            self.mean = 0.5 * self.mean + 0.5 * images.mean(dim=(0, 2, 3), keepdim=True)[0].detach()
            self.count, self.seen = self.count + 1, self.seen.roll(1)
        return images - self.mean


def counting() -> nn.Module:
    return SplitModel(nn.Sequential(Counts(), nn.Conv2d(2, 3, 3), nn.Flatten()), nn.Linear(48, 3))


def trained_twice(learner, only):
    """Return the results of two trainings of three nodes: models, local buffers and moments."""
    models, kept = {node: learner.init_models(node)[0] for node in range(3)}, dict.fromkeys(range(3))
    for _ in range(2):
        done = [learner.train_towards(node, models[node], 6, rng(node), only, kept[node], None) for node in range(3)]
        models, kept = ({node: one[place] for node, one in enumerate(done)} for place in (0, 1))
    rows = [params for model in models.values() for params in model]
    rows += [row for own in kept.values() for state in own.moments.values() for row in state.rows]
    rows += [own.local for own in kept.values() if own.local is not None]
    learner.jobs.force_params(rows)
    return [params.values().clone() for params in rows]


@pytest.mark.parametrize(
    ("module", "only", "keys"),
    [
        (Residual, None, {"augmentation": "color", "momentum": 0.9, "optimizer_state": "kept"}),
        (Residual, "core", {"buffers": "local", "optimizer": "adam", "optimizer_state": "kept"}),
        (Residual, "head", {"augmentation": "crop_flip", "accumulate": 4, "clip_norm": 0.1}),
        (counting, "core", {}),
        (counting, "head", {}),
        (counting, None, {"buffers": "local"}),
    ],
)
def test_buffers_that_change_in_training_are_stacked(pair, module, keys, only):
    plain, stacked = pair(builders={"net": module}, learning_rate=0.01, **keys)
    for found, expected in zip(trained_twice(stacked, only), trained_twice(plain, only), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5, equal_nan=True)
    assert not fallback_reasons(stacked)


@pytest.mark.parametrize("common", [True, False])
@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("batch_norm", [True, False])
@pytest.mark.parametrize("split", ["train", "validation"])
def test_losses(pair, common, whole, batch_norm, split):
    found = []
    for learner in pair(batch_norm):
        train_all(learner, whole=whole)  # BatchNorm statistics after some training
        models = {node: learner.init_models(10 + node, 2, whole=whole) for node in range(3)}
        if not whole:
            models = {node: [own[0], (own[0][0], own[1][1])] for node, own in models.items()}
        jobs = [learner.losses(node, its, 2 + node, rng(node), common, split) for node, its in models.items()]
        learner.jobs.force(jobs)
        assert learner.jobs.waves["head losses"] == [3]
        assert not any("head losses" in reason for reason in fallback_reasons(learner))
        found.append(learner.resolve(jobs))
    np.testing.assert_allclose(found[1], found[0], rtol=1e-5)


@pytest.mark.parametrize("split", ["test", "validation", "own validation"])
@pytest.mark.parametrize("batch_norm", [True, False])
def test_predictions(pair, split, batch_norm):
    found = []
    for learner in pair(batch_norm):
        models = {node: learner.init_models(10 + node, 2) for node in range(3)}
        jobs = [
            learner.test([own[0], (own[0][0], own[1][1]), own[1]], node if "own" in split else node % 2, split)
            for node, own in models.items()
        ]
        learner.jobs.force(jobs)
        assert not fallback_reasons(learner)
        found.append([tested for job in jobs for tested in learner.value(job)])
    for (_, loss, confusion), (_, its_loss, expected) in zip(found[1], found[0], strict=True):
        assert confusion.dtype == expected.dtype and np.array_equal(confusion, expected)
        assert loss == pytest.approx(its_loss, rel=1e-5)


def test_a_wave_of_losses_or_of_training_uploads_once(pair, monkeypatch):
    _, learner = pair()

    def losses(seed):
        learner.resolve([learner.losses(node, learner.init_models(seed, 2), 3, rng(node), True) for node in range(3)])

    train_all(learner)  # which checks that they can be stacked
    losses(1)
    uploads = []
    for module in (sample_pool, stacked_evaluation):
        upload = module.uploaded
        monkeypatch.setattr(module, "uploaded", lambda *given, up=upload: uploads.append(given[0].size) or up(*given))
    train_all(learner, steps=5)
    assert uploads == [3 * 5 * 4]
    losses(2)  # the places of models and the weights of batches are as before
    assert uploads[1:] == [3 * 3 * 4]


def test_one_core_is_computed_once_for_all_its_heads(pair, monkeypatch):
    _, learner = pair()
    seen = []
    features = StackedModels.features
    monkeypatch.setattr(
        StackedModels, "features", lambda self, cores, *rest: seen.append(len(cores)) or features(self, cores, *rest)
    )
    learner.value(learner.test(learner.init_models(0, 2), 0))  # which checks that they can be stacked
    seen.clear()
    (shared, first), (_, second) = learner.init_models(1, 2)
    ((other, third),) = learner.init_models(2)
    learner.value(learner.test([(shared, first), (other, third), (shared, second)], 0))
    assert seen == [2]  # all 25 images


@pytest.mark.parametrize(
    ("module", "reason"),
    [
        (LooksAtValues, "torch.func.vmap: RuntimeError: vmap: It looks like you're "),
        (NotTheSame, "stacked it computes something else"),
    ],
)
def test_unstackable_jobs_run_one_by_one(pair, module, reason):
    plain, stacked = pair(builders={"own": module})
    assert_equal_models(train_all(stacked), train_all(plain))
    ((found, count),) = fallback_reasons(stacked).items()
    assert found.startswith("training: " + reason) and count == 3
    jobs = [learner.test([learner.init_models(node)[0] for node in range(2)], 0) for learner in (plain, stacked)]
    (_, loss, _), (_, other, _) = plain.value(jobs[0])
    (_, found_loss, _), (_, found_other, _) = stacked.value(jobs[1])
    assert [found_loss, found_other] == pytest.approx([loss, other], rel=1e-5)
    assert [key.startswith("evaluation: " + reason) for key in fallback_reasons(stacked)] == [False, True]


@pytest.mark.parametrize("unlucky", [1, 3, 4])
def test_one_matching_batch_suffices_to_train_layer_by_layer(pair, monkeypatch, unlucky):
    """Two pixels of a maximum in a batch may differ only by rounding."""
    looks = []

    def same(self, *look):
        looks.append(look)
        return len(looks) > unlucky and computed(self, *look)

    computed = StackedModels._same_step
    monkeypatch.setattr(StackedModels, "_same_step", same)
    plain, stacked = pair()
    assert_equal_models(train_all(stacked), train_all(plain))
    assert not stacked.fallback_counts
    assert {way.name for way, *_ in looks} == ({"layer by layer"} if unlucky < 4 else {way.name for way in METHODS})
    assert not any(torch.equal(one[2], other[2]) for one, other in combinations(looks[:4], 2))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"optimizer": "adafactor"}, "the optimizer is Adafactor"),
        ({"optimizer": "rmsprop", "optimizer_state": "kept"}, "the optimizer is RMSprop"),
        ({"builders": {"net": lambda: SplitModel(core(), CumulativeNorm())}}, "torch.func.vmap: RuntimeError: "),
    ],
)
def test_fallback_reasons_are_reported(make_learner, as_on_a_gpu, changes, reason):
    learner = as_on_a_gpu(make_learner(**changes))
    train_all(learner)
    ((found, count),) = fallback_reasons(learner).items()
    assert found.startswith("training: " + reason) and count == 3


class CumulativeNorm(nn.Sequential):
    """Its statistics are means over all batches: their share is a number that depends on the count."""

    def __init__(self):
        super().__init__(nn.BatchNorm1d(144, momentum=None), nn.Linear(144, 3))


def test_a_node_alone_with_its_batch_sizes_is_stacked_too(pair):
    found = []
    for learner in pair(batch_norm=True):
        models = [learner.train(node, learner.init_models(node)[0], node + 1, rng(node)) for node in range(3)]
        learner.jobs.force_params([params for model in models for params in model])
        found.append([torch.cat([params.values() for params in model]) for model in models])
    assert_equal_models(found[1], found[0])
    assert not fallback_reasons(learner)


def test_single_node_with_an_odd_number_of_words_is_stacked(pair):
    plain, stacked = pair(builders={"net": counting})
    assert_equal_models(train_all(stacked, nodes=(0,)), train_all(plain, nodes=(0,)))
    assert plain.architectures["net"].layout.local.size == 3 and not fallback_reasons(stacked)


def test_diverged_models_are_stacked_too(pair):
    plain, stacked = pair()
    values = []
    for learner in (plain, stacked):
        models = learner.init_models(1, 2)
        models[1][1].values().fill_(torch.inf)
        values.append(learner.value(learner.test(models, 0)))
    assert stacked.backends.backends[1]._stacked["tiny"].reasons["evaluation"] == ""
    assert values[1][0][1] == pytest.approx(values[0][0][1], rel=1e-5)
    assert np.isnan([values[0][1][1], values[1][1][1]]).all()


def test_an_evaluation_beyond_the_memory_runs_in_halves(pair, monkeypatch):
    plain, stacked = pair()
    stacked.value(stacked.test(stacked.init_models(9, 2), 0))  # which checks that they can be stacked
    features, sizes = StackedModels.features, []

    def limited(self, cores, *rest):
        sizes.append(len(cores))
        if len(cores) > 1:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return features(self, cores, *rest)

    monkeypatch.setattr(StackedModels, "features", limited)
    values = []
    for learner in (plain, stacked):
        jobs = [learner.test([learner.init_models(node)[0]], 1) for node in range(3)]
        learner.jobs.force(jobs)
        values.append([learner.value(job)[0] for job in jobs])
    assert sizes[0] == 3 and 2 in sizes and sizes.count(1) == 3
    for (_, loss, confusion), (_, its_loss, expected) in zip(values[1], values[0], strict=True):
        assert np.array_equal(confusion, expected) and loss == pytest.approx(its_loss, rel=1e-5)
    monkeypatch.setattr(StackedModels, "features", _out_of_memory)
    with pytest.raises(torch.OutOfMemoryError):
        stacked.value(stacked.test([stacked.init_models(7)[0]], 0))


def _out_of_memory(*_):
    raise torch.OutOfMemoryError("CUDA out of memory")


def test_training_beyond_the_memory_runs_in_halves(pair, monkeypatch):
    plain, stacked = pair()
    expected = train_all(plain)
    gradients, sizes = StackedModels.gradients, []

    def limited(self, only):
        def call(weights, *rest):
            sizes.append(len(weights))
            if len(weights) > 2:
                raise torch.OutOfMemoryError("CUDA out of memory")
            return gradients(self, only)(weights, *rest)

        return call

    monkeypatch.setattr(StackedModels, "gradients", limited)
    assert_equal_models(train_all(stacked), expected)
    assert 3 in sizes and 2 in sizes and 1 in sizes
    assert {bank._num_allocated - len(bank._free) for bank in stacked.rows._banks.values()} <= {
        0
    }  # no row was assigned twice


def test_pool_may_hold_samples_of_several_types():
    draw = lambda *shape: torch.randn(shape)  # noqa: E731
    samples = [
        (draw(count, *shape), torch.arange(count))
        for count, shape in ((5, (1, 2, 2)), (3, (2, 2, 2)), (4, (1, 2, 2)), (0, (1, 2, 2)))
    ]
    before = [(images.clone(), labels.clone()) for images, labels in samples]
    pool = SamplePool(samples)
    assert pool.pool_of[0] == pool.pool_of[2] == pool.pool_of[3] != pool.pool_of[1]
    assert all(torch.equal(*pair) for node in range(4) for pair in zip(samples[node], before[node], strict=True))
    nodes, indices = [0, 2], np.array([[[4, 0], [3, 3]]])  # one step, two samples of each node
    (rows,) = pool.rows([(nodes, indices)])
    images, labels = pool.gather(0, rows)
    for place, node in enumerate(nodes):
        assert torch.equal(images[0, place], before[node][0][indices[0, place]])
        assert torch.equal(labels[0, place], before[node][1][indices[0, place]])
    assert pool.rows([]) == []


@needs_cuda
@pytest.mark.parametrize("only", [None, "head"])
@pytest.mark.parametrize("changes", [{}, {"momentum": 0.9}, {"optimizer": "adam", "learning_rate": 0.01}])
def test_device_waves_equal_cpu_waves(make_learner, only, changes):
    host, device = make_learner(**changes), make_learner(device="cuda", **changes)
    for _ in range(2):
        expected, found = train_all(host, only=only, steps=8), train_all(device, only=only, steps=8)
        for one, other in zip(found, expected, strict=True):
            torch.testing.assert_close(one.cpu(), other, rtol=1e-4, atol=1e-5)
    assert device.backends.backends[1]._waves._graphs._record is not None
    assert len(device.backends.backends[1]._waves._graphs._graphs) == 1
    again = train_all(make_learner(device="cuda", **changes), only=only, steps=8)
    assert all(torch.equal(one, other) for one, other in zip(found, again, strict=True))


@needs_cuda
@pytest.mark.parametrize("batch_norm", [True, False])
def test_device_evaluations_equal_cpu_evaluations(make_learner, batch_norm):
    values = []
    for learner in (make_learner(batch_norm), make_learner(batch_norm, device="cuda")):
        models = [learner.init_models(node)[0] for node in range(3)]
        jobs = [learner.test([model], node % 2) for node, model in enumerate(models)]
        jobs += [learner.losses(node, [model], 4, rng(node)) for node, model in enumerate(models)]
        learner.jobs.force(jobs)
        values.append([learner.value(job)[0][1] for job in jobs[:3]] + [learner.value(job)[0] for job in jobs[3:]])
    assert values[1] == pytest.approx(values[0], rel=1e-4)

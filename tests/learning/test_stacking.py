"""Layers of many models in one call: equal results to single models, and the number of operators."""

from functools import partial
from types import SimpleNamespace

import pytest
import torch
from counted_operators import CountedOperators
from torch import nn
from torch.nn import functional as F

from ddlsim.algorithms.personalized.mapl import MAPL
from ddlsim.learning.architecture import read_architecture
from ddlsim.learning.backends.stacked_models import TRAINING, StackedModels
from ddlsim.learning.backends.stacked_steps import LayerRules, VmapFallback
from ddlsim.learning.backends.workspace import ModelWorkspace
from ddlsim.learning.bank import Rows
from ddlsim.learning.dropout import first_counters, seed_dropouts
from ddlsim.learning.layout import CORE, HEAD, MODEL, named_tensors
from ddlsim.learning.model_sizes import with_extra_parts
from ddlsim.learning.stacking.layers import Stacked
from ddlsim.learning.stacking.tensor import NotStackable
from ddlsim.learning.training_inputs import Objective
from ddlsim.models import MODELS
from ddlsim.models.sequences import Block, LastPosition, LSTMLayers, MeanOverPositions, TokensAndPositions
from ddlsim.models.split import ResidualBlock, SplitModel
from ddlsim.tasks import task_named

NODES, BATCH = 3, 4
BY_LAYERS = LayerRules()


def trained_with(seed, **keys):
    """Return what a stacked step reads of a training job."""
    return SimpleNamespace(seed=seed, skipped=(), local=None, targets={}, **keys)


class Models:
    """Three models of one architecture with different values, as rows and one by one."""

    def __init__(self, build, loss=F.cross_entropy):
        torch.manual_seed(3)
        self.loss = loss
        self.architecture = read_architecture("own", build)
        self.workspace = ModelWorkspace(self.architecture, torch.device("cpu"))
        self.stacked = StackedModels(self.workspace, loss, SimpleNamespace(precision="float32"))
        self.rows = torch.randn(NODES, self.architecture.layout.size) * 0.2
        for entry in self.architecture.layout.parts[MODEL].entries:
            if not entry.trainable:
                self.rows[:, entry.start : entry.stop].abs_().add_(0.5)  # variances
        self.local = self.stacked.buffers.local([None] * NODES)
        self.buffers = self.stacked.buffers.read(
            self.rows, self.local, [trained_with(5 + node) for node in range(NODES)]
        )

    def step(self, images, labels, way=BY_LAYERS, only=None):
        """Return gradients, buffers and losses of all models, stacked."""
        _, weights, others = self.stacked.split(only, self.rows)
        job = SimpleNamespace(objective=None, targets={})
        return self.stacked._make_gradients(only, way, job)(weights, others, *self.buffers, images, labels)

    def load(self, node):
        self.workspace.flat.copy_(self.rows[node])
        self.workspace.local.copy_(self.local[node])
        return self.workspace.module

    def step_alone(self, node, images, labels, only=None):
        module = self.load(node)
        seed_dropouts(self.workspace.dropouts.values(), 5 + node)
        trained = [each for name, each in module.named_parameters() if only is None or name.startswith(only)]
        trained = [each for each in trained if each.requires_grad]
        loss = self.loss(module.train()(images), labels)
        found = torch.autograd.grad(loss, trained, materialize_grads=True)
        none = torch.empty(0)
        moved = self.stacked.buffers.gathered(named_tensors(module), none, none.long())
        return torch.cat([each.flatten() for each in found]), *(each.clone() for each in moved), loss.detach()


def images_net(*layers, features, head=None):
    return lambda: SplitModel(nn.Sequential(*(make() for make in layers), nn.Flatten()), head or nn.Linear(features, 3))


def frozen(layer):
    return layer.requires_grad_(False)


class Odd(nn.Module):
    """Shapes, reductions and in-place operators, as in users' modules."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(4, 1, 1))
        self.narrow = nn.Conv2d(4, 2, 1)

    def forward(self, x):
        count, channels, *size = x.shape
        one, other = (x * self.scale).chunk(2, dim=1)
        weights = torch.softmax(x.mean([2, 3]), dim=-1)
        y = torch.cat([one, F.relu(other)], dim=1)
        y += x * weights.unsqueeze(-1).unsqueeze(-1) - x.amax(dim=(2, 3), keepdim=True)
        y = y.view(count, 2, channels // 2, *size).transpose(1, 2).reshape(count, channels, *size)
        y = torch.cat([self.narrow(y).mul_(2.0), y[:, 1:3], x[..., :]], 1)
        return y.permute(0, 2, 3, 1).flatten(1).sum(-1, keepdim=True) - y.flatten(1)


ALL = (2, 6, 6)
CASES = {
    "convolution": (images_net(lambda: nn.Conv2d(2, 4, 3, stride=2, padding=1, bias=False), features=36), ALL),
    "dilated, with groups": (images_net(lambda: nn.Conv2d(2, 4, 3, dilation=2, groups=2), features=16), ALL),
    "reflected": (images_net(lambda: nn.Conv2d(2, 3, 3, padding=1, padding_mode="reflect"), features=108), ALL),
    "of sequences": (images_net(lambda: nn.Conv1d(2, 3, 3), nn.ReLU, lambda: nn.MaxPool1d(2), features=6), (2, 6)),
    "group norm": (
        images_net(lambda: nn.GroupNorm(1, 2), lambda: nn.Conv2d(2, 4, 3), lambda: nn.GroupNorm(2, 4), features=64),
        ALL,
    ),
    "batch norm": (
        images_net(lambda: nn.BatchNorm2d(2), lambda: nn.Conv2d(2, 4, 3), lambda: nn.BatchNorm2d(4), features=64),
        ALL,
    ),
    "batch norm of features": (images_net(nn.Flatten, lambda: nn.BatchNorm1d(72), features=72), ALL),
    "pools": (
        images_net(
            lambda: nn.Conv2d(2, 4, 3, padding=1),
            lambda: nn.MaxPool2d(3, 1, padding=1),
            lambda: nn.ReLU(inplace=True),
            lambda: nn.AvgPool2d(2),
            lambda: nn.AdaptiveAvgPool2d(2),
            features=16,
        ),
        ALL,
    ),
    "pool first": (images_net(lambda: nn.MaxPool2d(2), lambda: nn.Dropout(0.3), features=18), ALL),
    "dropout": (images_net(lambda: nn.Conv2d(2, 4, 3), lambda: nn.Dropout(0.4), nn.Tanh, features=64), ALL),
    "residual": (images_net(lambda: ResidualBlock(2, 4, 2), lambda: ResidualBlock(4, 4, 1), features=36), ALL),
    "frozen": (
        images_net(
            lambda: frozen(nn.Conv2d(2, 4, 3, padding=1)),
            lambda: frozen(nn.GroupNorm(2, 4)),
            lambda: frozen(nn.Conv2d(4, 4, 3, padding=1)),
            features=144,
        ),
        ALL,
    ),
    "frozen norm": (images_net(lambda: nn.Conv2d(2, 4, 3), lambda: frozen(nn.BatchNorm2d(4)), features=64), ALL),
    "shapes": (images_net(lambda: nn.Conv2d(2, 4, 3), Odd, features=128), ALL),
    "head of images": (
        lambda: SplitModel(
            nn.Conv2d(2, 4, 3), nn.Sequential(nn.ReLU(), nn.Conv2d(4, 2, 3), nn.Flatten(), nn.Linear(8, 3))
        ),
        ALL,
    ),
    "linear alone": (lambda: SplitModel(nn.Flatten(), nn.Linear(72, 3, bias=False)), ALL),
}


def sequences(*layers, features=8, each=False):
    def build():
        last = [] if each else [LastPosition()]
        return SplitModel(nn.Sequential(*(make() for make in layers), *last), nn.Linear(features, 7))

    return build


TEXTS = {
    "embedding": lambda: SplitModel(nn.Sequential(nn.Embedding(7, 8), MeanOverPositions()), nn.Linear(8, 7)),
    "lstm": sequences(lambda: nn.Embedding(7, 5), lambda: LSTMLayers(5, 8, 2)),
    "attention": sequences(lambda: TokensAndPositions(7, 9, 8), lambda: Block(8, 2, 0.2), lambda: nn.LayerNorm(8)),
    "each position": sequences(lambda: TokensAndPositions(7, 9, 8), lambda: Block(8, 2, 0.0), each=True),
    "frozen embedding": sequences(lambda: frozen(nn.Embedding(7, 8)), lambda: nn.LayerNorm(8)),
}


def assert_step_is_that_of_each(models, images, labels, only=None):
    found = models.step(images, labels, only=only)
    for node in range(NODES):
        expected = models.step_alone(node, images[node], labels[node], only)
        for one, other in zip(found, expected, strict=True):
            torch.testing.assert_close(one[node], other, rtol=1e-4, atol=1e-5)


def assert_outputs_are_those_of_each(models, images):
    layout, way = models.architecture.layout, BY_LAYERS
    core, head = (layout.parts[name].size for name in (CORE, HEAD))
    for shared in (True, False):
        seen = images[0] if shared else images
        features = models.stacked._apply(way, CORE, models.rows[:, :core], seen, shared)
        found = models.stacked._apply(way, HEAD, models.rows[:, core : core + head], features, False)
        for node in range(NODES):
            with torch.no_grad():
                expected = models.load(node).eval()(images[0 if shared else node])
            torch.testing.assert_close(found[node], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", CASES)
def test_layers_of_images_equal_each_model(name):
    build, shape = CASES[name]
    models = Models(build)
    images, labels = torch.randn(NODES, BATCH, *shape), torch.randint(0, 3, (NODES, BATCH))
    for only in (None, "core", "head"):
        if only != "core" or models.stacked.trained_entries("core"):
            assert_step_is_that_of_each(models, images, labels, only)
    assert_outputs_are_those_of_each(models, images)


@pytest.mark.parametrize("name", TEXTS)
def test_layers_of_tokens_equal_each_model(name):
    models = Models(TEXTS[name], task_named("next_token").loss)
    tokens = torch.randint(0, 7, (NODES, BATCH, 9))
    labels = tokens.roll(1, 2) if name == "each position" else tokens[:, :, 0]
    if name == "each position":
        labels[0, 1, 2:] = -100
    assert_step_is_that_of_each(models, tokens, labels)
    assert_outputs_are_those_of_each(models, tokens)


LABELS = {
    "regression": (1, torch.randn(NODES, BATCH)),
    "multi_label": (4, torch.randint(0, 2, (NODES, BATCH, 4))),
    "next_token": (3, torch.tensor([[0, -100, 2, 1]] * NODES)),
}


@pytest.mark.parametrize("task", LABELS)
def test_losses_of_every_task_equal_each_model(task):
    outputs, labels = LABELS[task]
    models = Models(lambda: SplitModel(nn.Flatten(), nn.Linear(72, outputs)), task_named(task).loss)
    assert_step_is_that_of_each(models, torch.randn(NODES, BATCH, *ALL), labels)


def test_cross_entropy_is_the_mean_over_counted_labels():
    outputs, labels = torch.randn(NODES, BATCH, 5), torch.randint(0, 5, (NODES, BATCH))
    labels[1, 2:] = -100
    for kwargs in ({}, {"reduction": "sum"}, {"label_smoothing": 0.2}, {"reduction": "none"}):
        found = F.cross_entropy(Stacked(outputs, NODES), Stacked(labels, NODES), **kwargs)
        for node in range(NODES):
            torch.testing.assert_close(found.rows[node], F.cross_entropy(outputs[node], labels[node], **kwargs))


LARGE_OF_MAPL = ("resnet18", "googlenet")
LARGE = [pytest.param(name, marks=pytest.mark.slow) for name in ("resnet18", "shufflenet_v2", "googlenet")]


@pytest.mark.parametrize("name", ["resnet8", "alexnet_small", "cifar_cnn", *LARGE])
def test_shipped_models_are_computed_layer_by_layer(name):
    models = Models(lambda: MODELS[name]().build((3, 32, 32), 10))
    models.rows = torch.stack(
        [models.architecture.layout.flatten(each, MODEL) for each in models.architecture.draw(1, NODES)]
    )
    with torch.no_grad():
        assert_outputs_are_those_of_each(models, torch.randn(NODES, 2, 3, 32, 32))


@pytest.mark.parametrize(
    "name", ["shufflenet_v2", "alexnet_small", *(pytest.param(name, marks=pytest.mark.full) for name in LARGE_OF_MAPL)]
)
def test_mapl_loss_of_its_networks_equals_each_model_in_float64(name):
    algorithm = MAPL(temperature=0.5, projection_units=8)
    parts = partial(algorithm.extra_parts, num_classes=4)
    build = with_extra_parts(lambda: MODELS[name](latent=16).build((3, 32, 32), 4), parts, lambda: 16)
    architecture = read_architecture(name, build)
    settings = SimpleNamespace(precision="float32")
    stacked = StackedModels(ModelWorkspace(architecture, torch.device("cpu")), F.cross_entropy, settings)
    drawn = Rows(torch.device("cpu")).draw(architecture, [architecture.layout.parts[MODEL]], 1, 2, 0, True)
    objective = Objective(algorithm.local_loss, views=2)
    jobs = [
        trained_with(5 + node, model=tuple(params.row for params in model), objective=objective)
        for node, model in enumerate(drawn)
    ]
    images, labels = torch.randn(2, BATCH, 3, 32, 32), torch.tensor([[0, 1, 0, 1], [2, 2, 2, 2]])
    (gradients, floats, numbers, _), alone = stacked.compared_steps(torch.float64, BY_LAYERS, jobs, images, labels)
    for node, (gradient, its_floats, its_numbers) in enumerate(alone):
        assert gradients.dtype == gradient.dtype == torch.float64
        assert (gradients[node] - gradient).abs().max() <= 5e-15 * gradient.abs().max()
        torch.testing.assert_close(floats[node], its_floats, rtol=1e-14, atol=1e-14)
        assert numbers[node].equal(its_numbers)


def test_a_step_of_gn_lenet_takes_few_operators():
    models = Models(lambda: MODELS["gn_lenet"]().build((3, 32, 32), 10))
    images, labels = torch.randn(NODES, 8, 3, 32, 32), torch.randint(0, 10, (NODES, 8))
    counts = {}
    for way in (BY_LAYERS, VmapFallback()):
        with CountedOperators() as operators:
            models.step(images, labels, way)
        counts[way.name] = operators.found.total()
    assert counts["layer by layer"] <= 55 < counts["torch.func.vmap"]


def test_functions_without_a_rule_use_vmap():
    class Sums(nn.Module):
        def forward(self, x):
            return x.flatten(1).cumsum(1)

    models = Models(lambda: SplitModel(Sums(), nn.Linear(72, 3)))
    images, labels = torch.randn(NODES, BATCH, *ALL), torch.randint(0, 3, (NODES, BATCH))
    with pytest.raises(NotStackable, match="no rule for cumsum"):
        models.step(images, labels)

    def same(way):
        models.step(images, labels, way)
        return True

    assert models.stacked._tried_methods(TRAINING, same) == ""
    assert models.stacked._method(TRAINING).name == "torch.func.vmap"
    assert models.stacked.reasons["training, layer by layer"] == "layer by layer: NotStackable: no rule for cumsum"


def test_counters_of_dropout_continue():
    models = Models(images_net(lambda: nn.Dropout(0.5), features=72))
    _, _, numbers, _ = models.step(torch.randn(NODES, BATCH, *ALL), torch.randint(0, 3, (NODES, BATCH)))
    for node in range(NODES):
        assert numbers[node].item() != first_counters(1, 5 + node)[0]


def test_random_numbers_of_the_process_are_not_drawn():
    with pytest.raises(RuntimeError, match="random"):
        F.dropout(Stacked(torch.ones(2, 3), 2), 0.5, training=True)


def test_a_stacked_tensor_has_the_shape_of_one():
    x = Stacked(torch.zeros(4, NODES * 2, 5, 5), NODES, joined=True)
    assert (x.shape, x.dim(), len(x), x.size(1), x.numel()) == ((4, 2, 5, 5), 4, 4, 2, 200)
    assert x.rows.shape == (NODES, 4, 2, 5, 5) and repr(x) == "Stacked(3 x [4, 2, 5, 5], channels)"
    with pytest.raises(NotStackable):
        bool(x.sum() > 0)

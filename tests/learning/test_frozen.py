"""Frozen parameters and buffers outside `state_dict()` are constants: the same on all nodes, never trained or sent."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from ddlsim.foundation.errors import DdlsimError, ScenarioError
from ddlsim.learning.architecture import read_architecture
from ddlsim.learning.layout import Layout
from ddlsim.learning.size_learner import parts_of
from ddlsim.learning.training_inputs import draw_batches
from ddlsim.models.split import SplitModel


def frozen(module: nn.Module) -> nn.Module:
    return module.requires_grad_(False)


def adapted() -> nn.Module:
    """A frozen convolution followed by a trained bias, and a head of two factors: 4 + 144 x 2 + 2 x 3 + 3."""
    core = nn.Sequential(frozen(nn.Conv2d(2, 4, 3, padding=1)), Shift(), nn.ReLU(), nn.Flatten())
    return SplitModel(core, nn.Sequential(nn.Linear(144, 2, bias=False), nn.Linear(2, 3)))


class Shift(nn.Module):
    def __init__(self):
        super().__init__()
        self.by = nn.Parameter(torch.rand(4))

    def forward(self, x):
        return x + self.by[:, None, None]


class Positions(nn.Module):
    """Adds an embedding of each channel's position, looked up by ids outside the state, as in many transformers."""

    def __init__(self):
        super().__init__()
        self.register_buffer("position_ids", torch.arange(2), persistent=False)
        self.embedding = nn.Embedding(2, 1)

    def forward(self, x):
        return (x + self.embedding(self.position_ids)[:, :, None]).flatten(1)


def rng(node: int) -> np.random.Generator:
    return np.random.default_rng(100 + node)


def test_rows_hold_only_trained_values():
    layout = Layout("adapted", adapted())
    assert (layout.parts["core"].size, layout.parts["head"].size, layout.size) == (4, 297, 301)
    assert sum(layout.parts["model"].trained_sizes) == 301


def test_sizes_of_a_network_only_run_equal_a_real_run():
    assert {name: part.size for name, part in parts_of("adapted", adapted).items()} == {"core": 4, "head": 297}


def test_constants_are_one_draw_for_all_starts_and_threads(make_learner):
    learner = make_learner(builders={"adapted": adapted})
    architecture = learner.architectures["adapted"]
    assert set(architecture.constants) == {"core.0.weight", "core.0.bias"}
    modules = [architecture.module(torch.device("cpu")) for _ in range(2)]
    assert torch.equal(modules[0].core[0].weight, modules[1].core[0].weight)
    other = read_architecture("adapted", adapted, seed=1)
    assert not torch.equal(other.constants["core.0.weight"], architecture.constants["core.0.weight"])


@pytest.mark.parametrize("stacked", [False, True])
def test_training_equals_pytorch(make_learner, as_on_a_gpu, stacked):
    learner = make_learner(builders={"adapted": adapted})
    if stacked:
        as_on_a_gpu(learner)
    architecture = learner.architectures["adapted"]
    starts = [learner.init_models(node)[0] for node in range(3)]
    trained = [learner.train(node, starts[node], 5, rng(node)) for node in range(3)]
    learner.jobs.force_params([params for model in trained for params in model])
    for node in range(3):
        module = architecture.module(torch.device("cpu"))
        flat = torch.cat([params.values() for params in starts[node]])
        parameters = dict(module.named_parameters())
        with torch.no_grad():
            for entry in architecture.layout.parts["model"].entries:
                parameters[entry.name].copy_(entry.view(flat))
        before = module.core[0].weight.clone()
        images, labels = learner.data.train[node]
        optimizer = torch.optim.SGD([each for each in module.parameters() if each.requires_grad], 0.1)
        for batch in draw_batches(rng(node), len(labels), 4, 5):
            optimizer.zero_grad()
            F.cross_entropy(module(images[batch]), labels[batch]).backward()
            optimizer.step()
        expected = architecture.layout.flatten(module, "model")
        found = torch.cat([params.values() for params in trained[node]])
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
        assert torch.equal(before, module.core[0].weight)


def test_a_model_with_frozen_layers_has_no_native_plan(make_learner):
    learner = make_learner(builders={"net": lambda: SplitModel(nn.Flatten(), half_frozen())})
    learner.jobs.force_params(learner.train(0, learner.init_models(0, whole=True)[0], 1, rng(0)))
    assert learner.fallback_counts == {"native": {"training: some of its parameters are frozen: head.0.weight": 1}}


def half_frozen() -> nn.Module:
    return nn.Sequential(frozen(nn.Linear(72, 8)), nn.ReLU(), nn.Linear(8, 3))


def test_fully_frozen_shared_core_is_refused(make_learner):
    learner = make_learner(builders={"net": lambda: SplitModel(nn.Flatten(), half_frozen())})
    with pytest.raises(DdlsimError, match="no core that is trained"):
        learner.init_models(0)


def test_a_model_without_trained_parameters_is_refused():
    with pytest.raises(ScenarioError, match="all parameters of net are frozen"):
        Layout("net", frozen(adapted()))


def test_a_tensor_of_two_parts_is_refused():
    linear = nn.Linear(3, 3)
    with pytest.raises(ScenarioError, match=r"head\.weight of net is the same tensor as core\.weight"):
        Layout("net", SplitModel(linear, linear))


def test_two_parameters_sharing_memory_are_refused():
    first, second = nn.Linear(3, 3), nn.Linear(3, 3)
    second.weight.data = first.weight.data
    with pytest.raises(ScenarioError, match=r"shares memory with core\.0\.weight, but is another parameter"):
        Layout("net", SplitModel(nn.Sequential(first, second), nn.Linear(3, 3)))
    second.weight.data = first.weight.data.T
    with pytest.raises(ScenarioError, match="shares memory with"):
        Layout("net", SplitModel(nn.Sequential(first, second), nn.Linear(3, 3)))
    second.weight = first.weight
    assert Layout("net", SplitModel(nn.Sequential(first, second), nn.Linear(3, 3))).parts["core"].size == 9 + 3 + 3


def test_a_parameter_outside_the_parts_is_refused():
    module = adapted()
    module.scale = nn.Parameter(torch.ones(1))
    with pytest.raises(ScenarioError, match="scale of net is outside its parts"):
        Layout("net", module)


def test_buffers_outside_the_state_are_neither_sent_nor_changed(make_learner):
    learner = make_learner(builders={"net": lambda: SplitModel(Positions(), nn.Linear(72, 3))})
    architecture = learner.architectures["net"]
    assert architecture.layout.size == 2 + 72 * 3 + 3
    trained = learner.train(0, learner.init_models(0)[0], 3, rng(0))
    learner.jobs.force_params(trained)
    ids = architecture.module(torch.device("cpu")).core.position_ids
    assert ids.dtype == torch.int64 and ids.tolist() == [0, 1]


@pytest.mark.full
def test_lora_of_peft_sends_only_its_factors(make_learner):
    peft = pytest.importorskip("peft")

    def build() -> nn.Module:
        config = peft.LoraConfig(r=2, target_modules=["0"], modules_to_save=None)
        core = peft.get_peft_model(nn.Sequential(nn.Linear(72, 16)), config)
        return SplitModel(nn.Sequential(nn.Flatten(), core), nn.Linear(16, 3))

    learner = make_learner(builders={"lora": build})
    parts = learner.architectures["lora"].layout.parts
    assert (parts["core"].size, parts["head"].size) == (2 * 72 + 2 * 16, 16 * 3 + 3)
    start = learner.init_models(0)[0]
    trained = learner.train(0, start, 3, rng(0))
    learner.jobs.force_params(trained)
    assert not torch.equal(trained[0].values(), start[0].values())

"""Updates equal a plain loop with torch's optimizers and utilities."""

import copy
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from local_training import local_training
from torch import nn
from torch.nn import functional as F

from ddlsim.learning.layout import hidden_matrices
from ddlsim.learning.optimizing import OPTIMIZERS, updates
from ddlsim.learning.optimizing.updates import Updates, clipped_by_norm
from ddlsim.learning.training_inputs import TrainingContext, draw_batches
from ddlsim.models.split import SplitModel
from ddlsim.models.texts import GPT


def rng(node: int = 0) -> np.random.Generator:
    return np.random.default_rng(100 + node)


def module_with(learner, build, model) -> nn.Module:
    """Return a module with the values of a model without buffers."""
    learner.jobs.force_params(model)
    module = build()
    nn.utils.vector_to_parameters(torch.cat([params.values() for params in model]), module.parameters())
    return module


def values(learner, model) -> torch.Tensor:
    learner.jobs.force_params(model)
    return torch.cat([params.values() for params in model])


def plain_loop(learner, module, make, calls=1, steps=6, change=lambda gradients: None, smoothing=0.0, every=1):
    """Run torch's loop; `make` creates the optimizer."""
    images, labels = learner.data.train[0]
    stream, optimizer = rng(), make(module.parameters())
    for _ in range(calls):
        batches = draw_batches(stream, len(labels), 4, steps)
        for first in range(0, steps, every):
            group = batches[first : first + every]
            optimizer.zero_grad()
            for batch in group:
                loss = F.cross_entropy(module(images[batch]), labels[batch], label_smoothing=smoothing)
                (loss / len(group)).backward()
            change(module)
            optimizer.step()
    return nn.utils.parameters_to_vector(module.parameters())


ALL = {
    "adadelta": {},
    "adafactor": {"d": 2.0},
    "adagrad": {"lr_decay": 0.1},
    "adam": {"amsgrad": True},
    "adamax": {"betas": (0.8, 0.99)},
    "adamw": {"weight_decay": 0.5},
    "asgd": {"t0": 2.0, "lambd": 0.1},
    "nadam": {"momentum_decay": 0.1},
    "radam": {"weight_decay": 0.1},
    "rmsprop": {"alpha": 0.5, "momentum": 0.5, "centered": True},
    "rprop": {"etas": (0.4, 1.3)},
    "sgd": {"momentum": 0.9, "dampening": 0.5, "weight_decay": 0.1},
}


def test_all_optimizers_of_torch_with_one_loss_per_step_are_supported():
    assert {*ALL, "muon"} == {*OPTIMIZERS}


@pytest.mark.parametrize("way", ["fresh", "kept", "stacked"])
@pytest.mark.parametrize("name", ALL)
def test_optimizers_equal_torchs_and_continue_from_kept_state(make_learner, tiny_net, as_on_a_gpu, name, way):
    keys = ALL[name]
    state = "fresh" if way == "fresh" else "kept"
    learner = make_learner(optimizer={"name": name, **keys}, learning_rate=0.01, optimizer_state=state)
    if way == "stacked":
        as_on_a_gpu(learner)
    starts = [learner.init_models(node)[0] for node in range(2)]
    module = module_with(learner, tiny_net, starts[0])
    cls = next(c for n, c in vars(torch.optim).items() if n.lower() == name)
    calls = 1 if way == "fresh" else 2
    expected = plain_loop(learner, module, lambda parameters: cls(parameters, lr=0.01, **keys), calls)
    streams, kept, models = [rng(node) for node in range(2)], [None, None], starts
    for _ in range(calls):
        done = [learner.train_towards(i, models[i], 6, streams[i], None, kept[i], None) for i in range(2)]
        models, kept = [one[0] for one in done], [one[1] for one in done]
    torch.testing.assert_close(values(learner, models[0]), expected, rtol=2e-4, atol=2e-5)


def two_layers() -> nn.Module:
    return SplitModel(nn.Sequential(nn.Flatten(), nn.Linear(72, 10), nn.ReLU()), nn.Linear(10, 3))


@pytest.mark.parametrize("state", ["fresh", "kept"])
def test_muon_trains_hidden_matrices_and_adamw_the_rest(make_learner, state):
    keys = {"name": "muon", "weight_decay": 0.2, "adamw_rate": 0.003, "betas": (0.8, 0.9)}
    learner = make_learner(builders={"two": two_layers}, optimizer=keys, learning_rate=0.02, optimizer_state=state)
    (start,) = learner.init_models(0)
    module = module_with(learner, two_layers, start)

    def both(parameters):
        weight, *others = parameters
        muon = torch.optim.Muon([weight], lr=0.02, weight_decay=0.2)
        adamw = torch.optim.AdamW(others, lr=0.003, betas=(0.8, 0.9), weight_decay=0.2)
        return SimpleNamespace(step=lambda: (muon.step(), adamw.step()), zero_grad=module.zero_grad)

    calls = 1 if state == "fresh" else 2
    expected = plain_loop(learner, module, both, calls)
    stream, kept, model = rng(), None, start
    for _ in range(calls):
        model, kept, _ = learner.train_towards(0, model, 6, stream, None, kept, None)
    torch.testing.assert_close(values(learner, model), expected, rtol=1e-5, atol=1e-6)


def test_hidden_matrices_of_a_gpt_are_those_of_its_blocks():
    module = GPT(layers=1, heads=2, width=8).build((6,), 11)
    names = {name for name, each in module.named_parameters() if any(each is one for one in hidden_matrices(module))}
    weights = {name for name, each in module.named_parameters() if each.dim() == 2}
    assert len(names) == 4 and weights - names == {"core.0.tokens.weight", "core.0.positions.weight", "head.weight"}


@pytest.mark.parametrize("stacked", [False, True])
@pytest.mark.parametrize(
    ("keys", "change"),
    [
        ({"clip_norm": 0.1}, lambda module: nn.utils.clip_grad_norm_(module.parameters(), 0.1)),
        ({"clip_value": 0.01}, lambda module: nn.utils.clip_grad_value_(module.parameters(), 0.01)),
        ({"label_smoothing": 0.3}, lambda module: None),
        ({"accumulate": 4}, lambda module: None),  # of six batches: four, then two
        ({"accumulate": 2, "momentum": 0.9, "clip_norm": 0.1}, lambda m: nn.utils.clip_grad_norm_(m.parameters(), 0.1)),
    ],
)
def test_gradients_are_treated_as_in_torchs_loop(make_learner, tiny_net, as_on_a_gpu, stacked, keys, change):
    learner = make_learner(**keys)
    if stacked:
        as_on_a_gpu(learner)
    starts = [learner.init_models(node)[0] for node in range(2)]
    module = module_with(learner, tiny_net, starts[0])
    make = lambda parameters: torch.optim.SGD(parameters, 0.1, keys.get("momentum", 0))  # noqa: E731
    smoothing, every = keys.get("label_smoothing", 0.0), keys.get("accumulate", 1)
    expected = plain_loop(learner, module, make, change=change, smoothing=smoothing, every=every)
    trained = [learner.train(node, starts[node], 6, rng(node)) for node in range(2)]
    torch.testing.assert_close(values(learner, trained[0]), expected, rtol=1e-4, atol=1e-5)
    if stacked:
        assert not any(name == "stacked" for name in learner.fallback_counts)


@pytest.mark.parametrize("stacked", [False, True])
@pytest.mark.parametrize("native", [False, True])
def test_weight_decay_can_be_limited_to_weights(make_learner, tiny_net, as_on_a_gpu, monkeypatch, stacked, native):
    if not native:
        monkeypatch.setenv("DDLSIM_NATIVE_TRAINING", "0")
    learner = make_learner(optimizer="adamw", learning_rate=0.01, weight_decay=5.0, weight_decay_on="weights")
    if stacked:
        as_on_a_gpu(learner)
    starts = [learner.init_models(node)[0] for node in range(2)]
    module = module_with(learner, tiny_net, starts[0])

    def make(parameters):
        parameters = list(parameters)
        flat, other = [p for p in parameters if p.dim() < 2], [p for p in parameters if p.dim() > 1]
        return torch.optim.AdamW([{"params": flat, "weight_decay": 0.0}, {"params": other}], 0.01, weight_decay=5.0)

    expected = plain_loop(learner, module, make)
    trained = [learner.train(node, starts[node], 6, rng(node)) for node in range(2)]
    torch.testing.assert_close(values(learner, trained[0]), expected, rtol=1e-4, atol=2e-4)


@pytest.mark.parametrize("way", ["native", "one by one", "stacked"])
def test_proximal_term_and_control_variate_are_added_to_every_gradient(
    make_learner, tiny_net, as_on_a_gpu, monkeypatch, way
):
    if way == "one by one":
        monkeypatch.setenv("DDLSIM_NATIVE_TRAINING", "0")
    learner = make_learner(proximal=0.5)
    if way == "stacked":
        as_on_a_gpu(learner)
    starts = [learner.init_models(node, whole=True)[0] for node in range(2)]
    control = learner.trained_values(learner.init_models(9, whole=True)[0][0])
    module = module_with(learner, tiny_net, starts[0])
    learner.jobs.force_params([control])
    first, offsets = copy.deepcopy(module), control.values().split([p.numel() for p in module.parameters()])

    def change(module):
        for p, p0, offset in zip(module.parameters(), first.parameters(), offsets, strict=True):
            p.grad += (0.5 + 1.5) * (p.detach() - p0.detach()) + offset.view_as(p)

    expected = plain_loop(learner, module, lambda p: torch.optim.SGD(p, 0.1), change=change)
    terms = TrainingContext(proximal=1.5, control=control)
    trained = [learner.train_towards(i, starts[i], 6, rng(i), None, None, None, terms)[0] for i in range(2)]
    torch.testing.assert_close(values(learner, trained[0]), expected, rtol=1e-4, atol=1e-5)
    assert not {"native", "stacked"} & set(learner.fallback_counts) or way == "one by one"


def test_clipping_scales_every_model_by_its_norm():
    gradients = [torch.tensor([[3.0], [0.3]]), torch.tensor([[4.0], [0.4]])]
    first, second = clipped_by_norm(gradients, 1.0, stacked=True)
    torch.testing.assert_close(first, torch.tensor([[0.6], [0.3]]))
    torch.testing.assert_close(second, torch.tensor([[0.8], [0.4]]))


def test_last_mini_batches_make_one_update():
    parameter = torch.zeros(1)
    training = local_training(accumulate=2)
    updates = Updates(training, [("p", slice(0, 1), parameter)], [1.0, 0.5])
    for gradient in (1.0, 3.0, 8.0):
        updates.take([torch.tensor([gradient])])
    updates.finish()
    assert parameter.item() == -2.0 - 4.0


@pytest.mark.parametrize("stacked", [False, True])
def test_bf16_computes_in_bfloat16_and_keeps_float32(make_learner, tiny_net, as_on_a_gpu, stacked):
    learner = make_learner(precision="bf16")
    if stacked:
        as_on_a_gpu(learner)
    starts = [learner.init_models(node)[0] for node in range(2)]
    module = module_with(learner, tiny_net, starts[0])
    images, labels = learner.data.train[0]
    for batch in draw_batches(rng(), len(labels), 4, 2):
        with torch.autocast("cpu", torch.bfloat16):
            loss = F.cross_entropy(module(images[batch]), labels[batch])
        gradients = torch.autograd.grad(loss, list(module.parameters()))
        with torch.no_grad():
            for parameter, gradient in zip(module.parameters(), gradients, strict=True):
                parameter -= 0.1 * gradient
    trained = [learner.train(node, starts[node], 2, rng(node)) for node in range(2)]
    found, expected = values(learner, trained[0]), nn.utils.parameters_to_vector(module.parameters())
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-3)
    full = make_learner()
    exact = values(full, full.train(0, full.init_models(0)[0], 2, rng(0)))
    assert not torch.allclose(found, exact, rtol=0, atol=1e-6)  # bfloat16 changes the result visibly
    assert not torch.equal(found, found.bfloat16().float())


class Signs(torch.optim.Optimizer):
    """Steps by signs; counts them in a number, and remembers half the last gradient in bfloat16."""

    def __init__(self, params, lr=0.1, share=0.5):
        super().__init__(params, {"lr": lr, "share": share})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                state["count"] = state.get("count", 0) + 1
                last = state.get("last", torch.zeros_like(p, dtype=torch.bfloat16))
                state["last"] = (group["share"] * p.grad).bfloat16()
                p -= group["lr"] / state["count"] * (p.grad + last.float()).sign()


def test_state_of_a_user_defined_optimizer_is_kept(make_learner, tiny_net):
    name = OPTIMIZERS.register_class(Signs)
    learner = make_learner(optimizer={"name": name, "share": 0.25}, optimizer_state="kept")
    model, kept, stream = learner.init_models(0)[0], None, rng()
    module = module_with(learner, tiny_net, model)
    expected = plain_loop(learner, module, lambda p: Signs(p, 0.1, 0.25), 3, 2)
    for _ in range(3):
        model, kept, _ = learner.train_towards(0, model, 2, stream, None, kept, None)
    torch.testing.assert_close(values(learner, model), expected, rtol=1e-5, atol=1e-6)


class Layered(torch.optim.SGD):
    forgets = False

    """Rates of its own: of all but the last tensor a share, of the last all. It forgets what it changes as it steps."""

    def __init__(self, params, lr=0.1, share=0.5):
        *others, last = params
        super().__init__([{"params": others, "lr": lr * share}, {"params": [last]}], lr=lr)

    def step(self):
        super().step()
        for group in self.param_groups:
            group["lr"] *= 0.5 if self.forgets else 1.0


class Bare(torch.optim.Optimizer):
    """An optimizer without rates: it subtracts a hundredth of the gradient."""

    def __init__(self, params, lr=0.1):
        super().__init__(params, {"rate": 0.01})

    @torch.no_grad()
    def step(self):
        for p in self.param_groups[0]["params"]:
            p -= self.param_groups[0]["rate"] * p.grad


def test_user_defined_optimizer_needs_no_rate_in_its_groups(make_learner, tiny_net):
    learner = make_learner(optimizer={"name": OPTIMIZERS.register_class(Bare)}, learning_rate=0.1)
    model = learner.init_models(0)[0]
    expected = plain_loop(learner, module_with(learner, tiny_net, model), Bare, steps=4)
    found = values(learner, learner.train(0, model, 4, rng()))
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


def test_group_rates_of_a_user_defined_optimizer_scale_with_the_schedule(make_learner, tiny_net, monkeypatch):
    name = OPTIMIZERS.register_class(Layered)
    learner = make_learner(optimizer={"name": name, "share": 0.25}, learning_rate=0.1)
    model = learner.init_models(0)[0]
    module = module_with(learner, tiny_net, model)
    expected = plain_loop(learner, module, lambda p: Layered(p, 0.1, 0.25), steps=4)
    monkeypatch.setattr(Layered, "forgets", True)
    found = values(learner, learner.train(0, model, 4, rng()))
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("keys", [{"optimizer": "adamw"}, {"optimizer": "adam"}, {"momentum": 0.9, "nesterov": True}])
@pytest.mark.parametrize("stacked", [False, True], ids=["alone", "stacked"])
def test_fused_steps_equal_those_of_several_kernels(make_learner, as_on_a_gpu, monkeypatch, keys, stacked):
    """torch has fused steps for the CPU, too; ddlsim takes them on a GPU."""
    flats, asked = [], []
    for fused in (False, True):
        monkeypatch.setattr(updates, "takes_fused_steps", lambda _, fused=fused: asked.append(fused) or fused)
        learner = make_learner(optimizer_state="kept", learning_rate=0.01, accumulate=2, **keys)  # no native plan
        learner = as_on_a_gpu(learner) if stacked else learner
        model, kept, stream = learner.init_models(0)[0], None, rng()
        for _ in range(2):
            model, kept, _ = learner.train_towards(0, model, 4, stream, None, kept, None)
        flats.append(values(learner, model).clone())
    torch.testing.assert_close(*flats, rtol=1e-5, atol=1e-6)
    assert asked == [False, False, True, True]

"""Networks that cannot be stacked: a GPU run detects them before or during training."""

import pytest
import torch
from stacked_learners import assert_equal_models, fallback_reasons, rng, train_all
from torch import nn

from ddlsim.models.sequences import Block
from ddlsim.models.split import SplitModel


def around(part: nn.Module):
    """A network of a convolution, a part for [b, 4, 6, 6], and a linear layer."""
    return lambda: SplitModel(nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), nn.ReLU(), part(), nn.Flatten()), head())


def head() -> nn.Module:
    return nn.Linear(144, 3)


class Jitter(nn.Module):
    """Draws from the random numbers of the process, too few to change a gradient visibly."""

    def forward(self, x):
        return x + 1e-5 * torch.randn(x.shape) if self.training else x


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, slopes):
        (x,) = ctx.saved_tensors
        return 3 * x**2 * slopes


class SwitchedOff(nn.Module):
    """A branch with a custom function, after a factor that starts at zero."""

    def __init__(self):
        super().__init__()
        self.factor, self.conv = nn.Parameter(torch.zeros(1)), nn.Conv2d(4, 4, 1)

    def forward(self, x):
        return x + self.factor * Cube.apply(self.conv(x))


class ThroughAView(nn.Module):
    """Changes some values in place, none at first."""

    def forward(self, x):
        x = x * 1.0
        x.flatten(1).clamp_(max=2.5)
        return x


class PutElsewhere(nn.Linear):
    """Limits the norm of its weights, as EEGNet does."""

    def forward(self, x):
        self.weight.data = torch.renorm(self.weight.data, p=2, dim=0, maxnorm=0.5)
        return super().forward(x)


def hooked_parameter():
    made = around(nn.Tanh)()
    made.head.weight.register_hook(lambda slope: slope.clamp(-0.5, 0.5))
    return made


NETWORKS = {
    "random numbers of the process": around(Jitter),
    "a function of one's own behind a zero": around(SwitchedOff),
    "in place through a view": around(ThroughAView),
    "a hook on a parameter": hooked_parameter,
    "weights that are put elsewhere": lambda: SplitModel(
        nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), nn.ReLU(), nn.Flatten()), PutElsewhere(144, 3)
    ),
}


@pytest.mark.parametrize("network", NETWORKS.values(), ids=NETWORKS)
def test_unstackable_networks_train_one_by_one(pair, network):
    plain, stacked = pair(builders={"own": network}, learning_rate=0.3)
    found, expected = (train_all(learner, steps=40) for learner in (stacked, plain))
    for one, other in zip(found, expected, strict=True):
        assert (one - other).abs().max() <= 1e-3 * other.abs().max()


def checkpointed():
    block = Block(36, 2, 0.0, recomputed=True)
    return SplitModel(nn.Sequential(nn.Flatten(2), block, nn.Flatten()), nn.Linear(72, 3))


def test_reason_for_training_alone_is_reported(pair):
    reasons = (around(Jitter), "random numbers"), (hooked_parameter, "hooks"), (checkpointed, "computed again")
    for network, why in reasons:
        _, stacked = pair(builders={"own": network})
        train_all(stacked)
        ((reason, count),) = fallback_reasons(stacked).items()
        assert why in reason and count == 3


def test_replaced_weight_data_belongs_to_the_node(make_learner):
    """Learned values do not reach the next node, and the layer learns."""
    network = NETWORKS["weights that are put elsewhere"]
    alone, after = (make_learner(builders={"own": network}) for _ in range(2))
    (found,) = train_all(alone, nodes=[0], steps=8)
    expected = train_all(after, nodes=[1, 0], steps=8)[1]
    assert torch.equal(found, expected)
    start = torch.cat([part.values() for part in alone.init_models(0)[0]])
    weights = slice(4 * 2 * 9 + 4, 4 * 2 * 9 + 4 + 3 * 144)
    assert not torch.equal(found[weights], start[weights])


class OfTwo(nn.Module):
    """An operation without a rule, on a single sample."""

    def forward(self, x):
        return x.repeat(2, 1, 1, 1)[:1] if len(x) == 1 else x


def test_error_in_a_later_shape_falls_back(pair):
    plain, stacked = pair(builders={"own": around(OfTwo)})
    first = [train_all(each) for each in (stacked, plain)]
    assert_equal_models(*first)
    values = []
    for learner in (stacked, plain):
        models = [learner.init_models(node)[0] for node in range(3)]
        job = learner.losses(0, [models[0]], 1, rng(0))
        values.append(learner.value(job))
    assert values[0] == pytest.approx(values[1], rel=1e-5)


class TakesTheMeanAway(nn.Module):
    """Changes a copy of the images in place, which evaluations share."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.full((2, 1, 1), 0.1))
        self.conv = nn.Conv2d(2, 4, 3, padding=1)

    def forward(self, x):
        x = x.clone()
        x -= self.mean
        return self.conv(x)


def test_evaluations_of_shared_images_are_checked(pair):
    made = lambda: SplitModel(nn.Sequential(TakesTheMeanAway(), nn.ReLU(), nn.Flatten()), head())  # noqa: E731
    losses = []
    for learner in pair(builders={"own": made}):
        models = [learner.init_models(node)[0] for node in range(3)]
        losses.append([value[1] for value in learner.value(learner.test(models, 0))])
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)

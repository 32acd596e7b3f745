"""DP-SGD: clipped and noised gradients, against Opacus and by hand."""

import copy

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from ddlsim.learning.private_steps import PrivateGradients, PrivateSteps, draw_poisson_batches, sample_rate


def small_net():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 3)
    )


def samples(count):
    generator = torch.Generator().manual_seed(1)
    return torch.randn(count, 1, 8, 8, generator=generator), torch.arange(count) % 3


def made(module, clip=0.5, noise=0.0, expected=5.0, seed=0, **options):
    steps = PrivateSteps(clip, noise, expected, seed)
    return PrivateGradients(steps, module, F.cross_entropy, torch.device("cpu"), **options)


@pytest.mark.parametrize("noise", [0.0, 1.3])
def test_step_equals_opacus_with_and_without_noise(noise):
    """Equal clipped gradients, and equal noise for the same seed, in one step of SGD."""
    opacus = pytest.importorskip("opacus")
    optimizers = pytest.importorskip("opacus.optimizers")
    images, labels = samples(5)
    theirs = small_net()
    ours = copy.deepcopy(theirs)
    found = made(ours, noise=noise, seed=7)(images, labels, list(ours.parameters()))
    wrapped = opacus.GradSampleModule(theirs)
    optimizer = optimizers.DPOptimizer(
        torch.optim.SGD(wrapped.parameters(), lr=0.1),
        noise_multiplier=noise,
        max_grad_norm=0.5,
        expected_batch_size=5,
        generator=torch.Generator().manual_seed(7),
    )
    F.cross_entropy(wrapped(images), labels).backward()
    optimizer.step()
    for parameter, gradient, other in zip(ours.parameters(), found, theirs.parameters(), strict=True):
        assert torch.allclose(gradient, other.grad, atol=1e-6, rtol=0)
        assert torch.allclose(parameter - 0.1 * gradient, other, atol=1e-6, rtol=0)


def test_without_noise_and_with_a_wide_clip_it_is_the_mean_gradient():
    images, labels = samples(5)
    module = small_net()
    parameters = list(module.parameters())
    found = made(module, clip=1e6)(images, labels, parameters)
    mean = torch.autograd.grad(F.cross_entropy(module(images), labels), parameters)
    assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(found, mean, strict=True))


def test_one_sample_cannot_move_the_sum_by_more_than_the_clip():
    images, labels = samples(5)
    module = small_net()
    gradients = made(module, clip=0.01, expected=1.0)
    whole, without = (gradients(images[i:], labels[i:], list(module.parameters())) for i in (0, 1))
    distance = torch.cat([(a - b).flatten() for a, b in zip(whole, without, strict=True)]).norm()
    assert 0.0099 < distance <= 0.01


def test_gradients_of_separate_samples_equal_gradients_of_a_batch():
    images, labels = samples(4)
    module = small_net()
    parameters = list(module.parameters())
    together = made(module).per_sample(images, labels, parameters)
    alone = made(module, at_once=False).per_sample(images, labels, parameters)
    assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(together, alone, strict=True))


def test_gradients_follow_the_order_of_the_requested_parameters():
    images, labels = samples(4)
    module = small_net()
    parameters = list(module.parameters())
    there, back = (made(module).per_sample(images, labels, asked) for asked in (parameters, parameters[::-1]))
    assert [one.shape[1:] for one in back] == [one.shape for one in parameters[::-1]]
    assert all(torch.equal(a, b) for a, b in zip(there, back[::-1], strict=True))


def test_empty_batch_gives_only_noise():
    images, labels = samples(4)
    module = small_net()
    gradients = made(module, noise=2.0, clip=0.5, expected=4.0)(images[:0], labels[:0], list(module.parameters()))
    drawn = torch.cat([gradient.flatten() for gradient in gradients])
    assert 0.2 < drawn.std() < 0.3  # 2.0 x 0.5 / 4


def test_every_sample_is_in_a_batch_with_the_same_chance():
    batches = draw_poisson_batches(np.random.default_rng(0), 20, 5, 4000)
    counts = np.bincount(np.concatenate(batches), minlength=20)
    assert abs(counts / 4000 - 0.25).max() < 0.04
    assert len({len(batch) for batch in batches}) > 5
    assert sample_rate(20, 5) == 0.25 and sample_rate(3, 8) == 1.0

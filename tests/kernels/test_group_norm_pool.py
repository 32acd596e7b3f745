"""Fused group normalization, ReLU and max pooling against torch's operations, on every instruction set."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn

from ddlsim.kernels.group_norm_pool import GroupNormReLUPool, group_norm_relu_pool, reference

SHAPES = [  # (N, C, H, W), groups
    ((8, 32, 32, 32), 2),
    ((3, 6, 7, 9), 3),
    ((2, 4, 28, 28), 1),
    ((2, 2, 7, 7), 2),
    ((1, 2, 2, 2), 1),
    ((2, 4, 2, 3), 2),
    ((2, 4, 3, 75), 2),
]


def draw(shape):
    """Images away from zero, and parameters of both signs; fresh numbers in every run."""
    x = 2 * torch.randn(shape) + 3
    return [tensor.requires_grad_() for tensor in (x, torch.randn(shape[1]), torch.randn(shape[1]))]


def gradients(layer, inputs, groups, grad_out):
    return torch.autograd.grad(layer(*inputs, groups, 1e-5), inputs, grad_out)


def pooled(shape):
    return torch.randn(*shape[:2], shape[2] // 2, shape[3] // 2)


@pytest.mark.parametrize(("shape", "groups"), SHAPES)
def test_forward_and_gradients_equal_torch_in_float64(isa, shape, groups):
    inputs, grad_out = draw(shape), pooled(shape)
    exact = [tensor.detach().double().requires_grad_() for tensor in inputs]
    out, expected = group_norm_relu_pool(*inputs, groups), reference(*exact, groups, 1e-5)
    torch.testing.assert_close(out.double(), expected, atol=5e-6, rtol=0)
    found = torch.autograd.grad(out, inputs, grad_out)
    wanted = torch.autograd.grad(expected, exact, grad_out.double())
    for ours, theirs in zip(found, wanted, strict=True):
        torch.testing.assert_close(ours.double(), theirs, atol=1e-6 * max(1, theirs.abs().max().item()), rtol=1e-5)


def test_the_spread_survives_a_large_offset(isa):
    x, weight, bias = (tensor.detach() for tensor in draw((2, 4, 16, 16)))
    x += 1000
    expected = reference(x.double(), weight.double(), bias.double(), 2, 1e-5)
    torch.testing.assert_close(group_norm_relu_pool(x, weight, bias, 2).double(), expected, atol=5e-4, rtol=0)


def test_inference_has_the_bits_of_training(isa):
    inputs = draw((3, 4, 15, 18))
    with torch.no_grad():
        alone = group_norm_relu_pool(*inputs, 2)
    assert not alone.requires_grad
    assert torch.equal(alone, group_norm_relu_pool(*inputs, 2))


def test_first_of_equal_pixels_gets_the_gradient(isa):
    x = torch.randn(2, 4, 5, 11).repeat_interleave(2, 2).repeat_interleave(2, 3)
    weight, bias, grad_out = torch.ones(4), torch.full((4,), 9.0), torch.rand(2, 4, 5, 11)
    inputs = [tensor.requires_grad_() for tensor in (x, weight, bias)]
    found, wanted = (gradients(layer, inputs, 2, grad_out)[0] for layer in (group_norm_relu_pool, reference))
    torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-5)
    assert (found[:, :, ::2, ::2] - found[:, :, 1::2, 1::2] > 0).all()


def test_no_gradient_passes_where_relu_cuts(isa):
    inputs = draw((1, 2, 6, 6))
    with torch.no_grad():
        inputs[1].fill_(1)
        inputs[2].fill_(-100)
    assert all(not gradient.any() for gradient in gradients(group_norm_relu_pool, inputs, 1, torch.ones(1, 2, 3, 3)))


@pytest.mark.parametrize("which", ["x", "weight", "bias"])
def test_nan_propagates_as_in_torch(isa, which):
    shape = (2, 6, 5, 18)
    inputs, grad_out = draw(shape), pooled(shape)
    with torch.no_grad():
        {"x": inputs[0][0, 1, 2:4, 3], "weight": inputs[1][3:4], "bias": inputs[2][3:4]}[which].fill_(float("nan"))
    torch.testing.assert_close(
        group_norm_relu_pool(*inputs, 3), reference(*inputs, 3, 1e-5), equal_nan=True, atol=1e-5, rtol=1e-5
    )
    found, wanted = (gradients(layer, inputs, 3, grad_out) for layer in (group_norm_relu_pool, reference))
    for ours, theirs in zip(found, wanted, strict=True):
        torch.testing.assert_close(ours, theirs, equal_nan=True, atol=1e-5, rtol=1e-5)


def test_an_image_has_the_same_bits_alone_and_in_a_batch(isa):
    shape = (5, 4, 9, 14)
    x, weight, bias = draw(shape)
    grad_out = pooled(shape)
    together = group_norm_relu_pool(x, weight, bias, 2)
    (grad_together,) = torch.autograd.grad(together, x, grad_out)
    for i in range(5):
        one = x[i : i + 1].detach().requires_grad_()
        alone = group_norm_relu_pool(one, weight, bias, 2)
        assert torch.equal(alone[0], together[i])
        assert torch.equal(torch.autograd.grad(alone, one, grad_out[i : i + 1])[0][0], grad_together[i])


def test_two_threads_at_once_have_the_bits_of_one():
    shape = (8, 8, 20, 20)
    jobs = [(draw(shape), pooled(shape)) for _ in range(16)]

    def run(job):
        return gradients(group_norm_relu_pool, job[0], 2, job[1])

    expected = [run(job) for job in jobs]
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(run, jobs))
    assert all(
        torch.equal(a, b)
        for ours, theirs in zip(found, expected, strict=True)
        for a, b in zip(ours, theirs, strict=True)
    )


def test_expanded_gradient_is_accepted():
    inputs = draw((2, 4, 6, 6))
    group_norm_relu_pool(*inputs, 2).sum().backward()
    wanted = gradients(reference, inputs, 2, torch.ones(2, 4, 3, 3))
    torch.testing.assert_close(inputs[0].grad, wanted[0], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("change", [torch.Tensor.double, lambda x: x.transpose(2, 3), lambda x: x[:, :, :, ::2]])
def test_other_types_and_layouts_go_through_torch(change):
    x, weight, bias = (tensor.detach() for tensor in draw((2, 4, 6, 8)))
    x = change(x)
    weight, bias = weight.to(x.dtype), bias.to(x.dtype)
    assert torch.equal(group_norm_relu_pool(x, weight, bias, 2), reference(x, weight, bias, 2, 1e-5))


def test_stacked_models_under_vmap_and_grad_agree_with_one_by_one():
    x, weights, biases = torch.randn(3, 2, 4, 6, 6), torch.randn(3, 4), torch.randn(3, 4)

    def loss(weight, bias, x):
        return group_norm_relu_pool(x, weight, bias, 2).square().sum()

    stacked = torch.func.vmap(torch.func.grad(loss))(weights, biases, x)
    for i in range(3):
        weight = weights[i].clone().requires_grad_()
        (alone,) = torch.autograd.grad(loss(weight, biases[i], x[i]), weight)
        torch.testing.assert_close(stacked[i], alone, atol=1e-4, rtol=1e-5)


def test_second_derivatives_equal_torch():
    inputs = draw((1, 2, 4, 4))

    def curvature(layer):
        (gradient,) = torch.autograd.grad(layer(*inputs, 1, 1e-5).sum(), inputs[0], create_graph=True)
        return torch.autograd.grad(gradient.square().sum(), inputs[0])[0]

    torch.testing.assert_close(curvature(group_norm_relu_pool), curvature(reference), atol=1e-4, rtol=1e-3)


def test_images_without_a_pooled_pixel_are_refused_by_torch():
    with pytest.raises(RuntimeError, match="too small"):
        group_norm_relu_pool(torch.zeros(1, 2, 1, 5), torch.ones(2), torch.zeros(2), 1)


def test_the_module_has_group_norms_parameters():
    ours, theirs = GroupNormReLUPool(2, 8), nn.GroupNorm(2, 8)
    for (name, parameter), (other_name, other) in zip(ours.named_parameters(), theirs.named_parameters(), strict=True):
        assert name == other_name
        assert torch.equal(parameter, other)
    with pytest.raises(ValueError, match="7 channels"):
        GroupNormReLUPool(2, 7)

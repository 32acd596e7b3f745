"""The fused layer of GN-LeNet against torch's three operations: forward and backward, and inference."""

import pytest
import torch

from ddlsim.kernels.group_norm_pool import group_norm_relu_pool, reference
from ddlsim.learning.bank import keep_freed_memory

GROUPS, EPS = 2, 1e-5


@pytest.fixture(autouse=True)
def one_thread():
    keep_freed_memory()
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def draw(shape):
    return [tensor.requires_grad_() for tensor in (torch.randn(shape), torch.rand(shape[1]), torch.randn(shape[1]))]


@pytest.mark.parametrize("shape", [(8, 32, 32, 32), (8, 32, 16, 16), (8, 64, 8, 8), (8, 64, 7, 7)], ids=str)
def bench_forward_and_backward(ratio, shape):
    inputs = draw(shape)
    grad_out = torch.randn(shape[0], shape[1], shape[2] // 2, shape[3] // 2)

    def run(layer):
        return torch.autograd.grad(layer(*inputs, GROUPS, EPS), inputs, grad_out)

    for ours, theirs in zip(run(group_norm_relu_pool), run(reference), strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-3, rtol=1e-4)
    ratio(lambda: run(group_norm_relu_pool), lambda: run(reference), "torch group_norm, relu, max_pool2d", rounds=101)


@pytest.mark.parametrize("shape", [(250, 32, 32, 32), (250, 64, 8, 8)], ids=str)
@torch.no_grad()
def bench_inference(ratio, shape):
    inputs = draw(shape)
    torch.testing.assert_close(
        group_norm_relu_pool(*inputs, GROUPS, EPS), reference(*inputs, GROUPS, EPS), atol=1e-5, rtol=1e-5
    )
    ratio(
        lambda: group_norm_relu_pool(*inputs, GROUPS, EPS),
        lambda: reference(*inputs, GROUPS, EPS),
        "torch group_norm, relu, max_pool2d",
        rounds=9,
    )

"""Group normalization, pooling and ReLU of many models in one kernel: interpreted, compiled, and in stacked models."""

import subprocess
import sys
from pathlib import Path

import interpreted_norm_pool
import pytest
import torch
from hopper_programs import hopper_programs, record_launches
from interpreted_convolutions import NO_INTERPRETER
from interpreted_norm_pool import results
from torch import nn
from torch.func import functional_call
from torch.nn import functional as F

from ddlsim.kernels import grouped_conv, pooled_norms
from ddlsim.kernels import norm_relu_pool as kernels
from ddlsim.learning.stacking import layers
from ddlsim.learning.stacking.layers import Stacked
from ddlsim.models import MODELS

CUDA = torch.device("cuda")
needs_kernels = pytest.mark.skipif(
    not torch.cuda.is_available() or bool(grouped_conv.why_no_kernels(CUDA)), reason="no CUDA device for the kernels"
)
CASES = {
    "as GN-LeNet's": dict(channels=4, groups=2, size=(8, 8)),
    "odd sizes, so that pixels are in no window": dict(channels=3, groups=1, size=(7, 5), count=3),
    "windows that overlap, with padding": dict(channels=6, groups=3, size=(9, 6), windows=(3, 2, 1)),
    "windows as large as the stride is small": dict(channels=2, groups=1, size=(5, 6), windows=(4, 1, 2)),
    "a stride beyond the window": dict(channels=2, groups=2, size=(8, 7), windows=(2, 3, 0)),
    "several blocks": dict(channels=5, groups=1, size=(5, 7), windows=(3, 2, 1), block=2**6),
    "equal maxima": dict(channels=4, groups=2, size=(8, 8), windows=(3, 2, 0), digits=0),
    "not a number": dict(channels=4, groups=2, size=(6, 6), nan=True),
    "bfloat16": dict(channels=4, groups=1, size=(6, 6), dtype=torch.bfloat16),
}


def plain(images, scales, shifts, groups, eps, windows):
    return F.relu(F.max_pool2d(F.group_norm(images, groups, scales, shifts, eps), *windows))


def made(
    channels, groups, size, windows=(2, 2, 0), count=2, batch=2, digits=6, nan=False, dtype=torch.float32, block=2**14
):
    """Return inputs in float32, as arguments of `results`, the size of a block, and the results in float64."""
    torch.manual_seed(1)
    images = torch.randn(batch, count * channels, *size).round(decimals=digits).to(dtype)
    if nan:
        images[1, 1, 2, 3] = torch.nan
    inputs = [images, torch.randn(count * channels), torch.randn(count * channels)]
    rest = count * groups, 1e-5, windows
    slopes = torch.randn(plain(images.float(), *inputs[1:], *rest).shape)
    return (inputs, slopes, *rest, block), results(plain, [e.double() for e in inputs], slopes.double(), *rest)


def assert_same(found, expected):
    for one, other in zip(found, expected, strict=True):
        finite = other.isfinite()
        assert one.shape == other.shape and torch.equal(one.isnan().cpu(), other.isnan())
        within = 2**-8 if one.dtype == torch.bfloat16 else 1e-6
        assert (one.cpu().double() - other)[finite].norm() <= within * other[finite].norm()


@pytest.fixture(scope="module")
def interpreted(tmp_path_factory):
    """Return the results of the interpreted kernels for each case."""
    given, found = (tmp_path_factory.mktemp("norm") / file for file in ("given.pt", "found.pt"))
    torch.save([made(**case)[0] for case in CASES.values()], given)
    done = subprocess.run(
        [sys.executable, Path(interpreted_norm_pool.__file__), given, found], capture_output=True, text=True
    )
    if done.returncode == NO_INTERPRETER:
        pytest.skip(f"Triton's interpreter does not work here: {done.stderr.splitlines()[-1]}")
    assert not done.returncode, done.stderr
    return dict(zip(CASES, torch.load(found), strict=True))


@pytest.mark.full
@pytest.mark.parametrize("name", CASES)
def test_interpreted_kernels_equal_torch_in_float64(interpreted, name):
    case, found = CASES[name], interpreted[name]
    assert_same(found, made(**case)[1])
    assert [each.dtype for each in found] == [torch.float32, case.get("dtype", torch.float32), *[torch.float32] * 2]


@needs_kernels
@pytest.mark.parametrize("name", CASES)
def test_device_kernels_equal_torch_and_repeat_to_the_bit(name):
    (inputs, slopes, *rest, _), expected = made(**CASES[name])
    given = [each.to(CUDA) for each in inputs], slopes.to(CUDA), *rest
    found, again = (results(kernels.norm_relu_pool, *given) for _ in range(2))
    assert_same(found, expected)
    assert all(torch.equal(one.nan_to_num(), other.nan_to_num()) for one, other in zip(found, again, strict=True))


@pytest.mark.full
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_kernels_of_gn_lenet_compile_for_hopper_without_atomic_sums(monkeypatch, tmp_path, dtype):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    launches = record_launches(monkeypatch, pooled_norms, "_pool", "_unpool")
    for channels, side in ((32, 32), (32, 16), (64, 8)):
        images = torch.zeros(8, 32 * channels, side, side, dtype=dtype, requires_grad=True)
        parameters = torch.zeros(2, 32 * channels)
        kernels.norm_relu_pool(images, *parameters, 64, 1e-5, (2, 2, 0)).sum().backward()
    assert [len(each) for each in launches.values()] == [3, 3]
    for program in hopper_programs(launches["_pool"] + launches["_unpool"]):
        assert "ld.global.v4.b32" in program
        assert "atom." not in program and "red.global" not in program


# -- in stacked models -------------------------------------------------------------------------------------------------

COUNT = 3


@pytest.fixture
def calls(monkeypatch):
    """Let stacked models call the kernel on the host, where torch computes it; return a list of its windows."""
    windows = []
    monkeypatch.setattr(layers, "normalizes", lambda *_: True)
    monkeypatch.setattr(layers, "norm_relu_pool", lambda *given: windows.append(given[-1]) or plain(*given))
    return windows


def assert_stack_is_each(module, shape):
    """Compare outputs and gradients of stacked models with those of each model alone."""
    torch.manual_seed(2)
    images = torch.randn(COUNT, *shape)
    tensors = {name: torch.randn(COUNT, *each.shape) for name, each in module.named_parameters()}
    leaves = {name: each.clone().requires_grad_() for name, each in tensors.items()}
    stacked = {name: Stacked(each, COUNT) for name, each in leaves.items()}
    found = functional_call(module, stacked, Stacked(images, COUNT)).rows
    slopes = torch.autograd.grad(found.square().mean(), list(leaves.values()))
    for node in range(COUNT):
        own = {name: each[node].clone().requires_grad_() for name, each in tensors.items()}
        expected = functional_call(module, own, images[node])
        assert found.dtype == expected.dtype
        torch.testing.assert_close(found[node], expected, rtol=1e-4, atol=1e-4)
        by_own = torch.autograd.grad(expected.square().mean() / COUNT, list(own.values()))
        for one, other in zip(slopes, by_own, strict=True):
            torch.testing.assert_close(one[node], other, rtol=1e-4, atol=1e-4)


def test_stacked_gn_lenet_calls_the_kernel_once_a_layer(calls):
    assert_stack_is_each(MODELS["gn_lenet"]().build((1, 8, 8), 3), (2, 1, 8, 8))
    assert calls == [(2, 2, 0)] * 3


class Custom(nn.Module):
    """A convolution, group normalization, and the forward function of a case."""

    def __init__(self, rest):
        super().__init__()
        self.rest = rest
        self.conv, self.norm = nn.Conv2d(2, 4, 3, padding=1), nn.GroupNorm(2, 4)

    def forward(self, x):
        return self.rest(self.norm(self.conv(x)))


def without_gradients(y):
    with torch.no_grad():
        pooled = F.max_pool2d(y, 2)
    return F.relu(pooled) + y.mean()


def changed_between(y):
    y += 0.5
    return F.relu(F.max_pool2d(y, 2))


def hooked():
    module = Custom(lambda y: F.relu(F.max_pool2d(y, 2)))
    module.norm.register_forward_hook(lambda _module, _inputs, output: 2 * output)
    return module


OTHER = {
    "the kernel with other windows": (1, lambda y: torch.relu(torch.max_pool2d(y, 3, 2, 1))),
    "the normalized images are read too": (1, lambda y: F.relu(F.max_pool2d(y, 2)) + F.avg_pool2d(y, 2)),
    "the pooled images are read too": (1, lambda y: F.relu(z := F.max_pool2d(y, 2)) + z.exp()),
    "changed before pooling": (0, changed_between),
    "no gradients of pooling": (0, without_gradients),
    "no ReLU": (0, lambda y: F.max_pool2d(y, 2)),
    "no pooling": (0, F.relu),
    "ReLU in place": (0, lambda y: F.relu(F.max_pool2d(y, 2), inplace=True)),
    "ReLU first": (0, lambda y: F.max_pool2d(F.relu(y), 2)),
    "pooled twice": (0, lambda y: F.relu(F.max_pool2d(F.max_pool2d(y, 2), 2))),
    "oblong windows": (0, lambda y: F.relu(F.max_pool2d(y, (2, 1)))),
    "dilated windows": (0, lambda y: F.relu(F.max_pool2d(y, 2, dilation=2))),
    "windows beyond the images": (0, lambda y: F.relu(F.max_pool2d(y, 4, 3, ceil_mode=True))),
}


@pytest.mark.parametrize("name", [*OTHER, "hook on the normalization"])
def test_other_modules_give_the_results_of_each_model(calls, name):
    times, rest = OTHER.get(name, (0, None))
    assert_stack_is_each(Custom(rest) if rest else hooked(), (2, 2, 8, 8))
    assert len(calls) == times


class OnGPU(torch.Tensor):
    """A tensor that says that it is on a GPU."""

    is_cuda = True


@pytest.mark.parametrize(
    ("change", "fits"),
    [
        ({}, True),
        ({"images": torch.zeros(2, 8, 4, 4)}, False),  # on the host
        ({"images": torch.zeros(2, 8, 4, 4).bfloat16().as_subclass(OnGPU)}, False),
        ({"images": torch.zeros(2, 8, 4, 4).bfloat16().as_subclass(OnGPU), "mixed": True}, True),
        ({"images": torch.zeros(2, 8, 4, 4).double().as_subclass(OnGPU)}, False),
        ({"images": torch.zeros(2, 8, 4).as_subclass(OnGPU)}, False),
        ({"images": torch.zeros(2, 8, 1, 1).as_subclass(OnGPU), "groups": 8}, False),  # torch raises an error
        ({"images": torch.zeros(0, 8, 4, 4).as_subclass(OnGPU)}, False),
        ({"images": torch.empty(2**16, 8, 64, 64, device="meta").as_subclass(OnGPU)}, False),
        ({"scales": None}, False),
        ({"groups": 3}, False),
        ({"count": 1}, False),
        ({"why": "DDLSIM_TRITON=0"}, False),
    ],
)
def test_kernels_normalize_float32_of_several_models_where_convolutions_are_theirs(monkeypatch, change, fits):
    given = {"images": torch.zeros(2, 8, 4, 4).as_subclass(OnGPU), "scales": torch.ones(8), "groups": 4, "count": 2}
    given |= {"shifts": torch.ones(8), "mixed": False, "why": ""} | change
    mixed, why = given.pop("mixed"), given.pop("why")
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda device: mixed)
    monkeypatch.setattr(kernels, "why_no_kernels", lambda device: why)
    assert kernels.normalizes(**given) == fits

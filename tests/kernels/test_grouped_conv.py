"""Convolutions of many models against one model at a time: in Triton's interpreter and on a device."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import interpreted_convolutions
import pytest
import torch
from hopper_programs import hopper_programs, record_launches
from interpreted_convolutions import gradients
from torch.nn import functional as F

from ddlsim.kernels import conv_products
from ddlsim.kernels import grouped_conv as convolving

grouped_conv = pytest.importorskip("ddlsim.kernels.grouped_conv", exc_type=ImportError)
needs_tensor_cores = pytest.mark.skipif(
    not torch.cuda.is_available() or convolving.why_no_kernels(torch.device("cuda")), reason="no CUDA device for TF32"
)

CASES = {
    "5x5 on three channels, as GN-LeNet's first": dict(channels=3, outputs=32, size=(8, 8), kernel=(5, 5), padding=2),
    "all channels in one product": dict(channels=32, outputs=32, size=(6, 6), kernel=(5, 5), padding=2),
    "more channels than a product has": dict(channels=64, outputs=17, size=(4, 5), kernel=(3, 3), padding=1),
    "more outputs than a block has": dict(channels=4, outputs=70, size=(7, 7), kernel=(3, 3), dilation=2),
    "odd numbers": dict(channels=5, outputs=7, size=(9, 6), kernel=(3, 3), padding=1, bias=False, count=3, batch=3),
    "stride": dict(channels=4, outputs=6, size=(9, 11), kernel=(3, 5), stride=2, padding=1),
    "stride and dilation": dict(channels=3, outputs=4, size=(10, 10), kernel=(3, 3), stride=2, padding=1, dilation=2),
    "rows and columns otherwise": dict(
        channels=3, outputs=4, size=(9, 8), kernel=(3, 2), stride=(1, 2), padding=(2, 0), dilation=(1, 3)
    ),
    "a stride beyond the kernel": dict(channels=3, outputs=4, size=(8, 8), kernel=(1, 1), stride=2),
    "an even kernel": dict(channels=3, outputs=4, size=(11, 11), kernel=(4, 4), stride=3, padding=1),
    "a product of matrices": dict(channels=6, outputs=5, size=(8, 8), kernel=(1, 1)),
}


def made(
    channels, outputs, size, kernel, stride=1, padding=0, dilation=1, bias=True, count=2, batch=2, dtype=torch.float32
):
    """Return the inputs of a convolution in float64 as arguments of `gradients`, and its results."""
    torch.manual_seed(1)
    draw = lambda *shape: torch.randn(shape).to(dtype).double()  # noqa: E731
    weights = draw(count * outputs, channels, *kernel)
    inputs = [draw(batch, count * channels, *size), weights, *([draw(len(weights))] if bias else [])]
    moves = stride, padding, dilation
    plain = lambda *given: F.conv2d(*given[:3], *moves, count)  # noqa: E731
    slopes = draw(*plain(*inputs, None).shape)
    given = inputs, slopes, count, moves
    return given, gradients(plain, *given)


def in_float32(case, device="cpu"):
    inputs, slopes, *rest = case[0]
    return [each.to(device, torch.float32) for each in inputs], slopes.to(device, torch.float32), *rest


def assert_same(found, case, within):
    for one, other in zip(found, case[1], strict=True):
        assert one.shape == other.shape
        assert (one.double().cpu() - other).norm() <= within * other.norm()


@pytest.fixture(params=CASES)
def name(request) -> str:
    return request.param


@pytest.fixture(scope="module")
def interpreted(tmp_path_factory):
    """Return the results of the interpreted kernels for each case."""
    given, found = (tmp_path_factory.mktemp("conv") / file for file in ("given.pt", "found.pt"))
    inputs, slopes, *rest = in_float32(rounded())
    torch.save(
        [*(in_float32(made(**case)) for case in CASES.values()), one_pixel(), (inputs, slopes.bfloat16(), *rest)], given
    )
    script = Path(interpreted_convolutions.__file__)
    done = subprocess.run([sys.executable, script, given, found], capture_output=True, text=True)
    if done.returncode == interpreted_convolutions.NO_INTERPRETER:
        pytest.skip(f"Triton's interpreter does not work here: {done.stderr.splitlines()[-1]}")
    assert not done.returncode, done.stderr
    return dict(zip((*CASES, "one pixel", "bfloat16"), torch.load(found), strict=True))


def rounded():
    """Return a convolution of values that bfloat16 holds, as `made` does."""
    return made(channels=5, outputs=7, size=(9, 6), kernel=(3, 3), padding=1, dtype=torch.bfloat16)


def one_pixel():
    """Return images whose strides do not determine their layout."""
    torch.manual_seed(1)
    images = F.avg_pool2d(torch.randn(2, 6, 4, 4).to(memory_format=torch.channels_last), 4)
    assert images.stride() == (6, 1, 6, 6)
    return [images, torch.randn(4, 3, 3, 3)], torch.randn(2, 4, 1, 1), 2, (1, 1, 1)


@pytest.mark.full
def test_interpreted_images_of_one_pixel_in_another_layout(interpreted):
    inputs, slopes, count, moves = one_pixel()
    plain = lambda images, weights, *_: F.conv2d(images, weights, None, *moves, count)  # noqa: E731
    for found, expected in zip(interpreted["one pixel"], gradients(plain, inputs, slopes, count, moves), strict=True):
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.full
def test_interpreted_kernels_equal_convolutions_model_by_model(interpreted, name):
    assert_same(interpreted[name], made(**CASES[name]), 2e-7)


@pytest.mark.full
def test_interpreted_kernels_multiply_bfloat16(interpreted):
    (outputs, *gradients), (expected, *others) = interpreted["bfloat16"], rounded()[1]
    assert outputs.dtype == torch.bfloat16
    assert (outputs.double() - expected).norm() <= 2**-8 * expected.norm()
    assert_same(gradients, (None, others), 2e-7)


@pytest.mark.full
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_products_of_gn_lenet_use_the_tensor_cores_of_hopper(monkeypatch, tmp_path, dtype):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    launches = record_launches(monkeypatch, conv_products, "_convolve", "_weight_gradient", "_copy")
    for channels, outputs, side in ((3, 32, 32), (32, 32, 16), (32, 64, 8)):
        images = torch.zeros(8, 32 * channels, side, side, requires_grad=channels > 3)
        weights, biases = torch.zeros(32 * outputs, channels, 5, 5, requires_grad=True), torch.zeros(32 * outputs)
        geometry = convolving.Geometry((1, 1), (2, 2), (1, 1))
        grouped_conv.grouped_conv2d(images, weights, biases, 32, geometry, dtype).sum().backward()
    assert [len(launches[name]) for name in ("_convolve", "_weight_gradient")] == [5, 3]
    for program in hopper_programs(launches["_convolve"] + launches["_weight_gradient"]):
        assert "wgmma.mma_async" in program and "mma.sync.aligned.m16n8" not in program
        copies = [line for line in program.splitlines() if "cp.async.c" in line and "shared.global" in line]
        assert copies and (dtype != torch.float32 or all("0x10" in line for line in copies))


@needs_tensor_cores
def test_device_convolutions_are_accurate_and_repeat_to_the_bit(name):
    case = made(**CASES[name])
    found, again = (gradients(convolving.stacked_conv2d, *in_float32(case, "cuda")) for _ in range(2))
    assert_same(found, case, 1e-5)
    assert all(torch.equal(one, other) for one, other in zip(found, again, strict=True))


def test_convolutions_on_the_host_equal_torch(name):
    case = made(**CASES[name])
    assert_same(gradients(convolving.stacked_conv2d, *in_float32(case)), case, 1e-5)
    assert convolving.why_no_kernels(torch.device("cpu"))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({}, None),
        ({"weights": torch.randn(8, 3, 3, 3)}, None),
        ({"padding": "same"}, "padding by name"),
        ({"padding": 3}, "windows that see nothing but padding"),
        ({"images": torch.randn(0, 6, 8, 8)}, "no image"),
        ({"count": 2**16}, "more models than a grid has"),
        ({"count": 1}, "one model alone"),
        ({"images": torch.randn(2, 4, 8, 8)}, "channels that do not fit the weights"),
        ({"padding": -1}, "padding that takes away"),
        ({"images": torch.empty(2**17, 6, 64, 64, device="meta")}, "places beyond 32 bits"),
        ({"weights": torch.empty(2**26, 3, 3, 3, device="meta", requires_grad=True)}, "as many weights"),
    ],
)
def test_unsupported_convolutions_are_computed_by_torch(monkeypatch, change, why):
    monkeypatch.setattr(convolving, "_precision", lambda images, weights: torch.float32)
    monkeypatch.setattr(grouped_conv, "grouped_conv2d", lambda *args: "the kernels")
    monkeypatch.setattr(F, "conv2d", lambda *args: "torch")
    weights = torch.randn(8, 3, 3, 3, requires_grad=True)
    given = {"images": torch.randn(2, 6, 8, 8), "weights": weights, "biases": None, "count": 2}
    given |= {"stride": 1, "padding": 1, "dilation": 1} | change
    assert convolving.stacked_conv2d(**given) == ("torch" if why else "the kernels")


@pytest.mark.parametrize(
    ("mixed", "images", "weights", "multiplied"),
    [
        (None, torch.float32, torch.float32, torch.float32),
        (None, torch.float64, torch.float64, None),
        (None, torch.bfloat16, torch.float32, None),
        (torch.bfloat16, torch.float32, torch.float32, torch.bfloat16),
        (torch.bfloat16, torch.bfloat16, torch.float32, torch.bfloat16),
        (torch.bfloat16, torch.float64, torch.float32, None),
        (torch.float16, torch.float32, torch.float32, None),
    ],
)
def test_kernels_multiply_float32_and_bfloat16_by_autocast(monkeypatch, mixed, images, weights, multiplied):
    monkeypatch.setattr(convolving, "why_no_kernels", lambda device: "")
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda device: mixed is not None)
    monkeypatch.setattr(torch, "get_autocast_dtype", lambda device: mixed)
    tensors = (SimpleNamespace(dtype=dtype, is_cuda=True, device=None) for dtype in (images, weights))
    assert convolving._precision(*tensors) == multiplied


def test_environment_variable_selects_cudnn(monkeypatch):
    convolving.why_no_kernels.cache_clear()
    monkeypatch.setattr(torch.version, "hip", None)
    monkeypatch.setenv("DDLSIM_TRITON", "0")
    assert convolving.why_no_kernels(torch.device("cuda")) == "DDLSIM_TRITON=0"
    convolving.why_no_kernels.cache_clear()


@pytest.mark.parametrize(
    ("capability", "error", "why"),
    [
        ((8, 0), None, ""),
        ((7, 5), None, "does not multiply TF32"),
        ((9, 0), RuntimeError("Failed to find C compiler. Please specify via CC"), "Failed to find C compiler"),
    ],
)
def test_unsuitable_device_reports_the_reason(monkeypatch, capability, error, why):
    def tried(*args):
        if error:
            raise error

    convolving.why_no_kernels.cache_clear()
    monkeypatch.setattr(torch.version, "hip", None)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    monkeypatch.setattr(torch, "zeros", lambda *shape, device: None)
    monkeypatch.setattr(grouped_conv, "grouped_conv2d", tried)
    found = convolving.why_no_kernels(torch.device("cuda"))
    convolving.why_no_kernels.cache_clear()
    assert why in found and bool(found) == bool(why)

"""A GPU's waves and kernels against plain PyTorch on the same GPU; skipped without a GPU.

Without one, `--benchmark-disable` runs each once on the CPU, with the GPU backend for waves, and checks results.
Times are until the device has finished.
"""

from collections.abc import Callable
from functools import partial
from itertools import cycle

import facade_cell as cell
import numpy as np
import pytest
import reference_kernels as reference
import torch
from mixing import regular_mixing
from torch.nn import functional as F

from ddlsim.kernels import aligned_rows, cosine, merge, project_simplex
from ddlsim.kernels.grouped_conv import stacked_conv2d
from ddlsim.learning.backends.stacked import make_backends
from ddlsim.learning.backends.workspace import autocast
from ddlsim.learning.stacking.layers import Stacked

ON_GPU = torch.cuda.is_available()
DEVICE = "cuda" if ON_GPU else "cpu"
NODES = cell.NODES if ON_GPU else cell.DEGREE + 2
SIZES = [(100, 62_006), (1000, 62_006), pytest.param((52, 11_200_000), marks=pytest.mark.slow)]


@pytest.fixture(autouse=True)
def skip_without_gpu(benchmark):
    if not (ON_GPU or benchmark.disabled):
        pytest.skip("no CUDA device")


@pytest.fixture
def compare(ratio, benchmark):
    """Call ratio() on calls that wait for the device; without a device, results are only checked."""
    if not ON_GPU:
        return lambda ours, theirs, name, rounds=7: benchmark(theirs)

    def ended(call: Callable[[], object]) -> Callable[[], None]:
        def run() -> None:
            call()
            torch.cuda.synchronize()

        return run

    return lambda ours, theirs, name, rounds=7: ratio(ended(ours), ended(theirs), name, rounds)


@pytest.fixture(scope="module")
def learner():
    learner = cell.make_learner(test_samples=100, device=DEVICE)
    if not ON_GPU:
        learner.backends.close()
        learner.backends = make_backends(
            learner.architectures, learner.data, cell.SETTINGS, 250, torch.device(DEVICE), 2, stacked=True
        )
        learner.jobs._run = learner.backends.run
    yield learner
    learner.close()


@pytest.fixture(scope="module")
def starts(learner):
    return [learner.init_models(node)[0] for node in range(NODES)]


@pytest.fixture(scope="module")
def models(learner):
    return cell.two_heads_per_node(learner, nodes=NODES)


@pytest.fixture(params=SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
def params(request):
    if not ON_GPU:
        return aligned_rows(20, 1000).normal_()
    return aligned_rows(*request.param, DEVICE).normal_()


def test_training_wave(compare, learner, starts):
    expected = cell.plain_training(learner, starts, steps=1)  # later steps amplify the rounding of other operators
    for model, flat in zip(cell.training_wave(learner, starts, steps=1), expected, strict=True):
        torch.testing.assert_close(torch.cat([p.values() for p in model]), flat, rtol=1e-3, atol=1e-5)
    assert not learner.fallback_counts
    compare(
        lambda: cell.training_wave(learner, starts),
        lambda: cell.plain_training(learner, starts),
        "PyTorch, one node at a time",
    )


@pytest.mark.parametrize(("channels", "outputs", "side"), [(3, 32, 32), (32, 32, 16), (32, 64, 8)])
def test_training_convolution(compare, channels, outputs, side):
    """One layer of GN-LeNet, 32 models with 8 images each, forward and backward."""
    torch.manual_seed(0)
    count = cell.NODES if ON_GPU else 2
    draw = partial(torch.randn, device=DEVICE, requires_grad=True)
    images = draw(cell.BATCH, count * channels, side, side)
    weights, biases = draw(count * outputs, channels, 5, 5), draw(count * outputs)
    slopes = torch.randn(cell.BATCH, count * outputs, side, side, device=DEVICE)
    inputs = [weights, biases] if channels == 3 else [images, weights, biases]  # the first layer's images are given

    def gradients(convolve: Callable[..., torch.Tensor]) -> tuple[torch.Tensor, ...]:
        return torch.autograd.grad(convolve(images, weights, biases), inputs, slopes)

    ours = lambda x, w, b: stacked_conv2d(x, w, b, count, 1, 2, 1)  # noqa: E731
    cudnn = partial(F.conv2d, padding=2, groups=count)
    for found, expected in zip(gradients(ours), gradients(cudnn), strict=True):
        assert (found - expected).norm() <= 1e-5 * expected.norm()
    compare(lambda: gradients(ours), lambda: gradients(cudnn), "cuDNN, as many groups as models")


@pytest.mark.parametrize(("channels", "side"), [(32, 32), (32, 16), (64, 8)])
def test_training_norm_and_pooling(compare, channels, side):
    """What follows a convolution of GN-LeNet, 32 models with 8 images each, forward and backward."""
    torch.manual_seed(0)
    count, groups = cell.NODES if ON_GPU else 2, 2
    draw = partial(torch.randn, device=DEVICE, requires_grad=True)
    inputs = draw(cell.BATCH, count * channels, side, side), draw(count, channels), draw(count, channels)
    slopes = torch.randn(cell.BATCH, count * channels, side // 2, side // 2, device=DEVICE)

    def gradients(compute: Callable[..., torch.Tensor]) -> tuple[torch.Tensor, ...]:
        return torch.autograd.grad(compute(*inputs), inputs, slopes)

    def ours(images: torch.Tensor, *parameters: torch.Tensor) -> torch.Tensor:
        scales, shifts = (Stacked(each, count) for each in parameters)
        values = F.group_norm(Stacked(images, count, joined=True), groups, scales, shifts)
        return F.relu(F.max_pool2d(values, 2)).plain

    def separate(images: torch.Tensor, scales: torch.Tensor, shifts: torch.Tensor) -> torch.Tensor:
        values = F.group_norm(images, groups * count, scales.flatten(), shifts.flatten())
        return F.relu(F.max_pool2d(values, 2))

    for found, expected in zip(gradients(ours), gradients(separate), strict=True):
        assert (found - expected).norm() <= 1e-5 * expected.norm()
    compare(lambda: gradients(ours), lambda: gradients(separate), "PyTorch, one operator after the other")


@pytest.mark.parametrize("precision", ["float32", "bf16"])
@pytest.mark.parametrize(("channels", "outputs", "side"), [(3, 32, 32), (32, 32, 16), (32, 64, 8)])
def test_convolution_of_losses(compare, channels, outputs, side, precision):
    """One layer of GN-LeNet without gradients, 32 models with 80 images each."""
    torch.manual_seed(0)
    count, batch = (cell.NODES, 80) if ON_GPU else (2, 2)
    images = torch.randn(batch, count * channels, side, side, device=DEVICE)
    weights, biases = (
        torch.randn(count * outputs, channels, 5, 5, device=DEVICE),
        torch.randn(count * outputs).to(DEVICE),
    )

    def convolved(convolve: Callable[..., torch.Tensor], precision: str = precision) -> torch.Tensor:
        with torch.no_grad(), autocast(precision, images.device):
            return convolve(images, weights, biases)

    ours = lambda x, w, b: stacked_conv2d(x, w, b, count, 1, 2, 1)  # noqa: E731
    cudnn = partial(F.conv2d, padding=2, groups=count)
    expected = convolved(cudnn, "float32")
    assert (convolved(ours) - expected).norm() <= (1e-5 if precision == "float32" else 1e-2) * expected.norm()
    compare(lambda: convolved(ours), lambda: convolved(cudnn), "cuDNN, as many groups as models")


def test_facade_round(compare, learner, starts):
    assert torch.isfinite(cell.whole_round(learner, starts, True)[0].values()).all()
    compare(
        lambda: cell.whole_round(learner, starts, True),
        lambda: cell.plain_training(learner, starts),
        "PyTorch, the training of one node at a time",
    )


def test_evaluation(compare, learner, models):
    cell.check_tested(cell.evaluation(learner, models), cell.plain_evaluation(learner, models))
    assert not learner.fallback_counts
    turn = cycle(
        [cell.two_heads_per_node(learner, first_seed=NODES, nodes=NODES), models]
    )  # the last one is not tested again
    compare(
        lambda: cell.evaluation(learner, next(turn)),
        lambda: cell.plain_evaluation(learner, models),
        "PyTorch, one model at a time",
    )


def test_head_losses(compare, learner, models):
    found, expected = cell.head_losses(learner, models, True), cell.plain_head_losses(learner, models, True)
    np.testing.assert_allclose(found, expected, rtol=1e-4)
    compare(
        lambda: cell.head_losses(learner, models, True),
        lambda: cell.plain_head_losses(learner, models, True),
        "PyTorch, one model at a time",
    )


@pytest.mark.parametrize("where", ["buffered", "in_place"])
def test_sparse_merge(compare, params, where):
    mixing = regular_mixing(len(params))
    few = params[:, :1000].clone()
    expected = reference.merge(few.cpu(), torch.from_numpy(mixing.toarray()))
    torch.testing.assert_close(merge(few, mixing).double().cpu(), expected, atol=1e-5, rtol=1e-6)
    out = aligned_rows(*params.shape, DEVICE).copy_(params)
    as_torch = torch.sparse_csr_tensor(mixing.indptr, mixing.indices, mixing.data, size=mixing.shape, device=DEVICE)
    source, other = (out if where == "in_place" else params), torch.empty_like(params)
    compare(lambda: merge(source, mixing, out=out), lambda: torch.mm(as_torch, params, out=other), "torch CSR mm")


def test_cosine_of_all_pairs(compare, params):
    torch.testing.assert_close(cosine(params[:8]).double().cpu(), reference.cosine(params[:8].cpu()), atol=2e-7, rtol=0)

    def normalized() -> torch.Tensor:
        unit = torch.nn.functional.normalize(params)
        return unit @ unit.T

    compare(lambda: cosine(params), normalized, "torch normalize, mm")


def test_cosine_of_listed_pairs(compare, params):
    mixing = regular_mixing(len(params)).tocoo()
    pairs = np.stack([mixing.row, mixing.col], axis=1)[mixing.row != mixing.col]
    expected = torch.stack([reference.cosine(params[row].cpu())[0, 1] for row in pairs[:20]])
    torch.testing.assert_close(cosine(params, pairs=pairs)[:20].double().cpu(), expected, atol=2e-7, rtol=0)

    def dot_loop() -> torch.Tensor:
        norms = params.norm(dim=1)
        return torch.stack([torch.dot(params[i], params[j]) / (norms[i] * norms[j]) for i, j in pairs.tolist()])

    compare(lambda: cosine(params, pairs=pairs), dot_loop, "torch dot loop", 3)


@pytest.mark.parametrize("num_columns", [10, 100, 1000])
def test_simplex_projection(compare, num_columns):
    rows = torch.rand(500_000 // num_columns, num_columns, device=DEVICE)
    expected = reference.project_simplex(rows[:50].cpu())
    torch.testing.assert_close(project_simplex(rows[:50]).double().cpu(), expected, atol=3e-7, rtol=0)
    counts = torch.arange(1, num_columns + 1, device=DEVICE)

    def torch_sort() -> torch.Tensor:
        ordered = rows.sort(dim=1, descending=True).values
        sums = ordered.cumsum(dim=1) - 1
        support = (ordered * counts > sums).sum(dim=1, keepdim=True)
        return (rows - sums.gather(1, support - 1) / support).clamp_min(0)

    compare(lambda: project_simplex(rows), torch_sort, "torch sort")

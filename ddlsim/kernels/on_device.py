"""The kernels for matrices on a CUDA device: ddlsim._cuda on torch's current stream, without waiting for it.

Where ddlsim was installed without a CUDA compiler, plain torch (`plain.py`) does the same work more slowly.
"""

from contextlib import contextmanager
from types import ModuleType

import numpy as np
import torch

from ddlsim import native
from ddlsim.kernels import plain
from ddlsim.kernels.matrices import Rows
from ddlsim.kernels.model_rows import Models
from ddlsim.kernels.transfers import uploaded

PARTS_BYTES = 64 * 2**20  # of partial sums at a time
MOST_CHUNKS = 65_535  # of a launch: the second dimension of its grid
MOST_TILES = 65_535  # likewise, of pairs of 64 x 64 models
TILE = 64


def merge(
    source: Rows,
    target: Rows,
    indptr: np.ndarray,
    sources: np.ndarray,
    weights: np.ndarray,
    targets: np.ndarray,
    columns: tuple[int, int, int],
    in_place: bool,
) -> None:
    """Merges rows; arguments as `_native.merge_rows` has them, `columns` = (start, stop, start in the target)."""
    cuda = native.cuda()
    if cuda is None:
        plain.merge(source.matrix, target.matrix, indptr, sources, weights, targets, columns)
        return
    start, stop, out_start = columns
    used, positions = _distinct(sources, source.num_rows)
    if in_place and not cuda.merge_fits(len(used)):
        kept = np.flatnonzero(np.diff(indptr))
        waiting = torch.empty(len(targets), stop - start, device=source.device)
        merge(source, _rows_of_new(waiting), indptr, sources, weights, np.arange(len(targets)), (start, stop, 0), False)
        rows = uploaded(targets[kept], source.device)
        target.matrix[rows, out_start : out_start + stop - start] = waiting[uploaded(kept, source.device)]
        return
    with _launching(source.device) as stream:
        buffer, (indptr_at, weights_at, targets_at, used_at, positions_at) = _upload(
            source.device, indptr, weights, targets, used, positions
        )
        cuda.merge_rows(
            source.address + 4 * start,
            source.stride,
            target.address + 4 * out_start,
            target.stride,
            indptr_at,
            positions_at,
            weights_at,
            targets_at,
            len(targets),
            used_at,
            len(used),
            stop - start,
            in_place,
            stream,
        )
        del buffer  # torch hands its memory out again only to later work of this stream


def all_products(models: Models, squared: bool) -> torch.Tensor:
    """Products of all pairs of models, [n, n] float64 on the device."""
    cuda, n = native.cuda(), len(models.numbers)
    tiles = -(-n // TILE)
    if cuda is None or tiles * (tiles + 1) // 2 > MOST_TILES:
        return plain.all_products(models, squared)
    sums = torch.zeros(n, n, dtype=torch.float64, device=models.rows.device)
    if n == 0:
        return sums
    with _launching(models.rows.device) as stream:
        _buffer, rows, _ = _upload_models(models)
        for first, count, parts in _waves(cuda, models, n * n):
            cuda.all_pairs(*rows, squared, first, count, parts.data_ptr(), sums.data_ptr(), stream)
    return sums


def listed_products(models: Models, pairs: np.ndarray, squared: bool) -> torch.Tensor:
    """Products of listed pairs [E, 2] of models, [E] float64 on the device."""
    cuda = native.cuda()
    if cuda is None:
        return plain.listed_products(models, pairs, squared)
    count = len(pairs)
    sums = torch.zeros(count, dtype=torch.float64, device=models.rows.device)
    if count == 0:
        return sums
    left, right = (np.ascontiguousarray(side, dtype=np.int32) for side in pairs.T)
    with _launching(models.rows.device) as stream:
        _buffer, rows, (left_at, right_at) = _upload_models(models, left, right)
        for first, chunks, parts in _waves(cuda, models, count):
            cuda.listed_pairs(
                *rows, left_at, right_at, count, squared, first, chunks, parts.data_ptr(), sums.data_ptr(), stream
            )
    return sums


def cosines(models: Models, pairs: np.ndarray | None, smallest_norm: float) -> torch.Tensor:
    """Cosines of all pairs of models, [n, n], or of listed pairs [E, 2], [E], float64 on the device."""
    if pairs is None:
        products = all_products(models, squared=False)
        norms = products.diagonal().sqrt().clip(smallest_norm)
        return (products / (norms[:, None] * norms[None, :])).clip(-1, 1)
    used = np.unique(pairs)
    selves = np.stack([used, used], axis=1)
    products = listed_products(models, np.concatenate([pairs, selves]), squared=False)
    norms = products.new_zeros(len(models.numbers))
    norms[uploaded(used, norms.device)] = products[len(pairs) :].sqrt().clip(smallest_norm)
    left, right = (uploaded(np.ascontiguousarray(side), norms.device) for side in pairs.T)
    return (products[: len(pairs)] / (norms[left] * norms[right])).clip(-1, 1)


def project_simplex(source: Rows, target: Rows, double: bool) -> None:
    """Projects rows on the simplex."""
    cuda = native.cuda()
    if cuda is None:
        plain.project_simplex(source.matrix, target.matrix)
        return
    with _launching(source.device) as stream:
        cuda.project_simplex(
            source.address,
            source.stride,
            target.address,
            target.stride,
            source.num_rows,
            source.num_columns,
            double,
            stream,
        )


@contextmanager
def _launching(device: torch.device):
    with torch.cuda.device(device):
        yield torch.cuda.current_stream(device).cuda_stream


def _distinct(sources: np.ndarray, num_rows: int) -> tuple[np.ndarray, np.ndarray]:
    """The distinct source rows in rising order, and every source's position among them (int32)."""
    seen = np.zeros(num_rows, dtype=bool)
    seen[sources] = True
    return np.flatnonzero(seen), (np.cumsum(seen) - 1)[sources].astype(np.int32)


def _upload(device: torch.device, *arrays: np.ndarray) -> tuple[torch.Tensor, list[int]]:
    """One copy for several small arrays: the buffer that must outlive the launch, and each array's address."""
    sizes = [-(-array.nbytes // 16) * 16 for array in arrays]
    packed = np.zeros(sum(sizes) + 16, dtype=np.uint8)
    offsets = np.concatenate(([0], np.cumsum(sizes)))[:-1]
    for array, offset in zip(arrays, offsets, strict=True):
        packed[offset : offset + array.nbytes] = np.ascontiguousarray(array).view(np.uint8)
    buffer = uploaded(packed, device)
    return buffer, [buffer.data_ptr() + int(offset) for offset in offsets]


def _upload_models(models: Models, *arrays: np.ndarray) -> tuple[torch.Tensor, tuple, list[int]]:
    """The models as the launchers take them; beside them, addresses of further arrays."""
    buffer, addresses = _upload(models.rows.device, models.numbers, models.reference_numbers, *arrays)
    reference, stride = (models.reference.address, models.reference.stride) if models.reference else (0, 0)
    rows = (
        models.rows.address + 4 * models.start,
        models.rows.stride,
        addresses[0],
        reference + 4 * models.start if reference else 0,
        stride,
        addresses[1],
        len(models.numbers),
        models.stop - models.start,
    )
    return buffer, rows, addresses[2:]


def _waves(cuda: ModuleType, models: Models, sums_per_chunk: int):
    """(first chunk, number of chunks, memory for their parts) until all columns are done."""
    num_chunks = -(-(models.stop - models.start) // cuda.chunk_columns())
    wave = max(1, min(num_chunks, MOST_CHUNKS, PARTS_BYTES // (8 * sums_per_chunk)))
    parts = torch.empty(wave * sums_per_chunk, dtype=torch.float64, device=models.rows.device)
    for first in range(0, num_chunks, wave):
        yield first, min(wave, num_chunks - first), parts


def _rows_of_new(matrix: torch.Tensor) -> Rows:
    return Rows(matrix.data_ptr(), matrix.stride(0), *matrix.shape, matrix.device, matrix)

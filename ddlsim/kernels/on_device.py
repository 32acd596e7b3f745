"""The kernels for matrices on a CUDA device: ddlsim._cuda on torch's current stream, without waiting for it.

If ddlsim was installed without a CUDA compiler, plain torch (`plain.py`) does the same work more slowly.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType

import numpy as np
import torch

from ddlsim.foundation import native
from ddlsim.kernels import plain
from ddlsim.kernels.matrices import Mixing, Rows, rows_of, uploaded
from ddlsim.kernels.model_rows import Models

PARTS_BYTES = 64 * 2**20  # of partial sums at a time
MOST_CHUNKS = 65_535  # of a launch: the second dimension of its grid
FAST_DOUBLES = {(8, 0), (9, 0), (10, 0)}
"""Compute capabilities of devices (A100, H100, H200, B200) that multiply matrices of doubles about as fast as they do
floats in ordinary kernels; others do it 16 to 64 times more slowly."""
MANY = 32  # models, for which it was measured on an H200: 0.16 ms by doubles, 0.25 by tiles; of fewer not


def merge(source: Rows, target: Rows, mixing: Mixing, columns: tuple[int, int, int], in_place: bool) -> None:
    """Merge rows; arguments as in `_native.merge_rows`, `columns` = (start, stop, start in the target)."""
    cuda, device = native.cuda(), source.matrix.device
    if cuda is None:
        plain.merge(source.matrix, target.matrix, mixing, columns)
        return
    (indptr, sources, weights, targets), (start, stop, out_start) = mixing, columns
    used, positions = _distinct(sources, source.num_rows)
    with _launching(device):
        fits = not in_place or cuda.merge_fits(len(used))
    if not fits:
        kept = np.flatnonzero(np.diff(indptr))
        waiting = torch.empty(len(targets), stop - start, device=device)
        in_order = indptr, sources, weights, np.arange(len(targets))
        merge(source, rows_of(waiting, "waiting"), in_order, (start, stop, 0), False)
        rows = uploaded(targets[kept], device)
        target.matrix[rows, out_start : out_start + stop - start] = waiting[uploaded(kept, device)]
        return
    with _launching(device) as stream:
        buffer, (*arrays, used_at) = _upload(device, indptr, positions, weights, targets, used)
        places = source.address + 4 * start, source.stride, target.address + 4 * out_start, target.stride
        sizes = len(used), stop - start, in_place
        cuda.merge_rows(*places, *arrays, len(targets), used_at, *sizes, stream)
        del buffer  # torch hands its memory out again only to later work of this stream


def all_products(models: Models, squared: bool) -> torch.Tensor:
    """Products of all pairs of models, [n, n] float64 on the device."""
    cuda, n = native.cuda(), len(models.numbers)
    if cuda is None or n == 0 or (not squared and n >= MANY and _multiplies_doubles_fast(models.rows.matrix.device)):
        return plain.all_products(models, squared)
    return _products_by_tiles(cuda, models, squared)


def _products_by_tiles(cuda: ModuleType, models: Models, squared: bool) -> torch.Tensor:
    n, device = len(models.numbers), models.rows.matrix.device
    sums = torch.zeros(n, n, dtype=torch.float64, device=device)
    with _launching(device) as stream:
        _buffer, addresses = _upload(device, models.numbers, models.reference_numbers)
        rows = _row_arguments(models, *addresses)
        for first, count, parts in _waves(cuda, models, n * n):
            cuda.all_pairs(*rows, squared, first, count, parts.data_ptr(), sums.data_ptr(), stream)
    return sums


def listed_products(models: Models, pairs: np.ndarray, squared: bool) -> torch.Tensor:
    """Products of listed pairs [E, 2] of models, [E] float64 on the device."""
    return _listed([models], pairs, squared)[0][0]


def cosines(terms: Sequence[Models], pairs: np.ndarray | None, smallest_norm: float) -> list[torch.Tensor]:
    """Cosines of all pairs of models, [n, n], or of listed pairs [E, 2], [E], float64 on the device, for each term.

    Args:
        terms: as many models each.
        pairs: the same for all; None: all pairs.
        smallest_norm: below it, vectors count as that long.
    """
    if pairs is None:
        found = []
        for models in terms:
            products = all_products(models, squared=False)
            norms = products.diagonal().sqrt().clip(smallest_norm)
            found.append((products / (norms[:, None] * norms[None, :])).clip(-1, 1))
        return found
    used, places = np.unique(pairs, return_inverse=True)
    left_norms, right_norms = places.reshape(pairs.shape).T
    with_selves = np.concatenate([pairs, np.stack([used, used], axis=1)])
    count = len(pairs)
    listed, (left_at, right_at) = _listed(terms, with_selves, False, left_norms, right_norms)
    found = []
    for own in listed:
        norms = own[count:].sqrt().clip(smallest_norm)
        found.append((own[:count] / (norms[left_at] * norms[right_at])).clip(-1, 1))
    return found


def _listed(
    terms: Sequence[Models], pairs: np.ndarray, squared: bool, *further: np.ndarray
) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Products of listed pairs for each term, and further int64 arrays on the device.

    Terms of the same rows and references (one model's classes: other columns) are sent together, in one upload.
    """
    cuda, count, device = native.cuda(), len(pairs), terms[0].rows.matrix.device
    if cuda is None:
        found = [plain.listed_products(models, pairs, squared) for models in terms]
        return found, [uploaded(np.ascontiguousarray(each), found[0].device) for each in further]
    sums = [torch.zeros(count, dtype=torch.float64, device=device) for _ in terms]
    left, right = (np.ascontiguousarray(side, dtype=np.int32) for side in pairs.T)
    sent: dict[tuple[int, int], tuple[torch.Tensor, list[int]]] = {}
    with _launching(device) as stream:
        for place, models in enumerate(terms):
            key = id(models.numbers), id(models.reference_numbers)
            if key not in sent:
                arrays = (models.numbers, models.reference_numbers, left, right)
                sent[key] = _upload(device, *arrays, *(further if place == 0 else ()))
            numbers_at, references_at, left_at, right_at = sent[key][1][:4]
            if not count:
                continue
            rows = _row_arguments(models, numbers_at, references_at)
            for first, chunks, parts in _waves(cuda, models, count):
                memory = parts.data_ptr(), sums[place].data_ptr()
                cuda.listed_pairs(*rows, left_at, right_at, count, squared, first, chunks, *memory, stream)
    buffer, addresses = next(iter(sent.values()))
    starts = [address - buffer.data_ptr() for address in addresses[4:]]
    return sums, [
        buffer[start : start + 8 * len(each)].view(torch.int64) for start, each in zip(starts, further, strict=True)
    ]


def _multiplies_doubles_fast(device: torch.device) -> bool:
    return device.type == "cuda" and torch.cuda.get_device_capability(device) in FAST_DOUBLES


def project_simplex(source: Rows, target: Rows, double: bool) -> None:
    """Projects rows on the simplex."""
    cuda = native.cuda()
    if cuda is None:
        plain.project_simplex(source.matrix, target.matrix)
        return
    with _launching(source.matrix.device) as stream:
        sizes = source.num_rows, source.num_columns
        cuda.project_simplex(*source.place, *target.place, *sizes, double, stream)


@contextmanager
def _launching(device: torch.device) -> Iterator[int]:
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


def _row_arguments(models: Models, numbers_at: int, references_at: int) -> tuple:
    """The models as the launchers take them, whose row numbers have been uploaded."""
    offset, rows, base = 4 * models.start, models.rows, models.reference
    reference = (base.address + offset, base.stride) if base else (0, 0)
    sizes = len(models.numbers), models.stop - models.start
    return rows.address + offset, rows.stride, numbers_at, *reference, references_at, *sizes


def _waves(cuda: ModuleType, models: Models, sums_per_chunk: int) -> Iterator[tuple[int, int, torch.Tensor]]:
    """(first chunk, number of chunks, memory for their parts) until all columns are done."""
    num_chunks = -(-(models.stop - models.start) // cuda.chunk_columns())
    wave = max(1, min(num_chunks, MOST_CHUNKS, PARTS_BYTES // (8 * sums_per_chunk)))
    parts = torch.empty(wave * sums_per_chunk, dtype=torch.float64, device=models.rows.matrix.device)
    for first in range(0, num_chunks, wave):
        yield first, min(wave, num_chunks - first), parts

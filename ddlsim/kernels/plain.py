"""The kernels in plain torch, for CUDA devices if ddlsim was installed without a CUDA compiler."""

from collections.abc import Iterator

import numpy as np
import torch

from ddlsim.foundation import native
from ddlsim.kernels.matrices import Mixing, num_threads, uploaded
from ddlsim.kernels.model_rows import Models

ELEMENTS = 2**24  # of gathered rows at a time


def merge(source: torch.Tensor, out: torch.Tensor, mixing: Mixing, columns: tuple[int, int, int]) -> None:
    """out[targets[r], ...] = sum of weights * source rows; every source is read before anything is written."""
    (indptr, sources, weights, targets), (start, stop, out_start) = mixing, columns
    counts = np.diff(indptr)
    kept = np.flatnonzero(counts)
    if not kept.size:
        return
    merged = torch.zeros(len(kept), stop - start, device=source.device)
    for entry in range(int(counts.max())):  # the entries of a row in their order, of all rows together
        having = np.flatnonzero(counts[kept] > entry)
        entries = indptr[kept[having]] + entry
        weight = uploaded(weights[entries], source.device)[:, None]
        rows = uploaded(sources[entries], source.device)
        merged[uploaded(having, source.device)] += weight * source[rows, start:stop]
    out[uploaded(targets[kept], out.device), out_start : out_start + stop - start] = merged


def all_products(models: Models, squared: bool) -> torch.Tensor:
    """Products of all pairs of models, [n, n] float64."""
    n = len(models.numbers)
    sums = torch.zeros(n, n, dtype=torch.float64, device=models.rows.matrix.device)
    for vectors in _column_blocks(models):
        if squared:
            sums += torch.stack([(vectors - one).double().square().sum(dim=1) for one in vectors])
        else:
            sums += vectors.double() @ vectors.double().T
    return sums.fill_diagonal_(0) if squared else torch.triu(sums) + torch.triu(sums, 1).T


def listed_products(models: Models, pairs: np.ndarray, squared: bool) -> torch.Tensor:
    """Products of listed pairs [E, 2] of models, [E] float64."""
    device = models.rows.matrix.device
    left, right = (uploaded(np.ascontiguousarray(side), device) for side in pairs.T)
    sums = torch.zeros(len(pairs), dtype=torch.float64, device=device)
    for vectors in _column_blocks(models):
        a, b = vectors[left], vectors[right]
        sums += ((a - b).double().square() if squared else a.double() * b.double()).sum(dim=1)
    return sums


def project_simplex(rows: torch.Tensor, out: torch.Tensor) -> None:
    """Projects on the host and copies back: rows are few and short."""
    host = rows.cpu().contiguous()
    projected = torch.empty_like(host)
    places = host.data_ptr(), host.shape[1], projected.data_ptr(), host.shape[1]
    native.extension().project_simplex(*places, *host.shape, host.dtype == torch.float64, num_threads())
    out.copy_(projected)


def _column_blocks(models: Models) -> Iterator[torch.Tensor]:
    """The models' vectors, minus their references, some columns at a time: [n, block] float32."""
    device = models.rows.matrix.device
    numbers = uploaded(models.numbers, device)
    references = uploaded(models.reference_numbers, device)
    block = max(1, ELEMENTS // max(1, len(numbers)))
    for start in range(models.start, models.stop, block):
        stop = min(start + block, models.stop)
        vectors = models.rows.matrix[numbers, start:stop]
        if models.reference:
            vectors = vectors - models.reference.matrix[references, start:stop]
        yield vectors

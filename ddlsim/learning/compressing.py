"""What receivers decode of compressed parameters: a job whose output row is shared by all of them."""

from collections import defaultdict
from collections.abc import Sequence

import torch

from ddlsim.learning.job_types import CompressSpec
from ddlsim.learning.layout import Part

VALUES_AT_ONCE = 2**24
"""Rows are encoded together up to so many values; the temporaries are a few times as large."""


def compress(jobs: Sequence[CompressSpec]) -> None:
    """Computes jobs that are bound to rows: all rows of one part and codec together."""
    groups: dict[tuple, list[CompressSpec]] = defaultdict(list)
    for job in jobs:
        job.target.allocate()  # banks may grow here, so it is done before views of them are taken
        groups[id(job.codec), job.target.part].append(job)
    for (_, part), work in groups.items():
        at_once = max(1, VALUES_AT_ONCE // max(1, part.size))
        for start in range(0, len(work), at_once):
            _transmit(work[start : start + at_once], part)


@torch.no_grad()
def _transmit(jobs: Sequence[CompressSpec], part: Part) -> None:
    codec, seeds = jobs[0].codec, [job.seed for job in jobs]
    rows = torch.stack([job.source.values() for job in jobs])
    sizes, columns = part.trained_sizes, part.trainable_columns
    if sizes:
        copies = None
        if codec.keeps_copies:
            copies = _trained(torch.stack([job.copy.values() for job in jobs if job.copy is not None]), columns)
        encoded = codec.encode(_trained(rows, columns), copies, sizes, seeds)
        decoded = codec.decode(encoded, copies, sizes, seeds)
        widths = [stop - start for start, stop in columns]
        for (start, stop), values in zip(columns, decoded.split(widths, dim=1), strict=True):
            rows[:, start:stop] = values
    for job, row in zip(jobs, rows, strict=True):
        job.target.values().copy_(row)


def _trained(rows: torch.Tensor, columns: Sequence[tuple[int, int]]) -> torch.Tensor:
    """The trained values of rows, float32 [n, D], a copy."""
    return torch.cat([rows[:, start:stop] for start, stop in columns], dim=1)

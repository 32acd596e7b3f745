"""What receivers decode of compressed parameters: a job whose output row is shared by all of them."""

from collections import defaultdict
from collections.abc import Sequence

import torch

from ddlsim.learning.bank import Params
from ddlsim.learning.jobs import Job
from ddlsim.learning.layout import Part

VALUES_AT_ONCE = 2**24
"""Rows are encoded together up to so many values; the temporaries are a few times as large."""


class CompressJob(Job):
    """Encodes parameters and decodes them again; outputs one row.

    Args:
        codec: see ddlsim.messages.compression: Codec.
        params: what the sender has.
        copy: what the receivers held before, if the codec keeps copies.
        seed: random integer of this encoding.
    """

    kind = "compression"

    def __init__(self, codec, params: Params, copy: Params | None, seed: int):
        super().__init__((params,) if copy is None else (params, copy))
        self.codec = codec
        self.seed = seed


def run_compressions(jobs: Sequence[CompressJob]) -> None:
    """Runs a wave: all rows of one part and codec together."""
    groups: dict[tuple, list[tuple[CompressJob, Params]]] = defaultdict(list)
    for job in jobs:
        (target,) = job.outputs()
        target.allocate()  # banks may grow here, so it is done before views of them are taken
        groups[id(job.codec), target.part].append((job, target))
    for (_, part), work in groups.items():
        at_once = max(1, VALUES_AT_ONCE // max(1, part.size))
        for start in range(0, len(work), at_once):
            _transmit(work[start : start + at_once], part)
    for job in jobs:
        job.finish()


@torch.no_grad()
def _transmit(work: Sequence[tuple[CompressJob, Params]], part: Part) -> None:
    codec, seeds = work[0][0].codec, [job.seed for job, _ in work]
    rows = torch.stack([job.inputs[0].values() for job, _ in work])
    sizes, columns = part.trained_sizes, part.trainable_columns
    if sizes:
        copies = None
        if codec.keeps_copies:
            copies = _trained(torch.stack([job.inputs[1].values() for job, _ in work]), columns)
        encoded = codec.encode(_trained(rows, columns), copies, sizes, seeds)
        decoded = codec.decode(encoded, copies, sizes, seeds)
        widths = [stop - start for start, stop in columns]
        for (start, stop), values in zip(columns, decoded.split(widths, dim=1), strict=True):
            rows[:, start:stop] = values
    for (_, target), row in zip(work, rows, strict=True):
        target.values().copy_(row)


def _trained(rows: torch.Tensor, columns: Sequence[tuple[int, int]]) -> torch.Tensor:
    """The trained values of rows, float32 [n, D], a copy."""
    return torch.cat([rows[:, start:stop] for start, stop in columns], dim=1)

"""The backends of each device, in the order in which they are asked."""

from collections.abc import Mapping

import torch

from ddlsim.learning.architecture import Architecture
from ddlsim.learning.backends.base import Backend, Dispatcher
from ddlsim.learning.backends.device import device_time
from ddlsim.learning.backends.row_arithmetic import RowArithmetic
from ddlsim.learning.backends.stacked import StackedBackend
from ddlsim.learning.backends.threads import NativeBackend, OneByOneBackend, Workers
from ddlsim.learning.bank import Rows
from ddlsim.learning.datasets import NodeDatasets
from ddlsim.scenario.sections import Training


def make_backends(
    rows: Rows,
    architectures: Mapping[str, Architecture],
    data: NodeDatasets,
    training: Training,
    chunk: int,
    device: torch.device,
    threads: int,
    stacked: bool | None = None,
    asynchronous: bool | None = None,
) -> Dispatcher:
    """The backends of a device, in order.

    Args:
        rows: of the run.
        architectures: by name.
        data: the nodes' samples and the clusters' evaluation sets, on the device.
        training: scenario section `training`.
        chunk: images per forward pass in evaluations; stacked models decide by the memory that they need.
        device: where everything lives.
        threads: CPU threads of a wave.
        stacked: whether waves are stacked; None: on a GPU.
        asynchronous: whether waves are launched when they are full, see jobs.py; None for only on a GPU.
    """
    fast: Backend
    reasons: dict[str, dict[str, str]]
    workers = Workers(architectures, device, threads)
    alone = OneByOneBackend(workers, data, training, chunk)
    if device.type == "cuda" if stacked is None else stacked:
        stacking = StackedBackend(workers, data, training, alone)
        fast, reasons = stacking, stacking.reasons()
    else:
        fast, reasons = NativeBackend(workers, data, training, chunk), {}
    backends = [RowArithmetic(), fast, alone]
    asynchronous = device.type == "cuda" if asynchronous is None else asynchronous
    return Dispatcher(rows, backends, reasons, asynchronous, device_time(device))

"""Transfers of small arrays between the host and a device, without a wait of the host for the device.

A copy from or to pageable memory waits for the stream of the device; a copy from or to pinned memory does not. torch
keeps pinned blocks for reuse, and reuses one only after the copies with it have finished.
"""

from collections.abc import Callable

import numpy as np
import torch


def uploaded(values: np.ndarray | torch.Tensor, device: torch.device) -> torch.Tensor:
    """The same values of the host on a device; on the CPU in the same memory."""
    host = torch.from_numpy(values) if isinstance(values, np.ndarray) else values
    if device.type != "cuda":
        return host.to(device)
    return host.pin_memory().to(device, non_blocking=True)


def downloaded(values: torch.Tensor) -> Callable[[], np.ndarray]:
    """Start copying values to the host; return a function that waits for them."""
    if values.device.type != "cuda":
        return values.numpy
    host = torch.empty(values.shape, dtype=values.dtype, pin_memory=True)
    host.copy_(values, non_blocking=True)
    over = torch.cuda.current_stream(values.device).record_event()

    def get() -> np.ndarray:
        over.synchronize()
        return host.numpy()

    return get

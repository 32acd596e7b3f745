"""Draws from the global random generators (torch, random, numpy) from a seed, one thread at a time."""

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

LOCK = threading.RLock()
"""Held by whoever draws from a global generator."""


@contextmanager
def drawing(seed: int, device: torch.device) -> Iterator[None]:
    """Let code draw from the global generators, which then continue as if nothing had been drawn."""
    devices = [device] if device.type == "cuda" else []
    with LOCK, torch.random.fork_rng(devices=devices):
        of_random, of_numpy = random.getstate(), np.random.get_state()
        torch.default_generator.manual_seed(seed)
        if devices:
            torch.cuda.manual_seed(seed)
        random.seed(seed)
        np.random.seed(seed % 2**32)
        try:
            yield
        finally:
            random.setstate(of_random)
            np.random.set_state(of_numpy)

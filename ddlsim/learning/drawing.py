"""Seeded use of the global random generators (torch, random, numpy), one thread at a time."""

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

from ddlsim.foundation.torch_state import forked_generators


@contextmanager
def drawing(seed: int, device: torch.device) -> Iterator[None]:
    """Let code draw from the global generators, whose states are restored afterwards."""
    with forked_generators(seed, [device] if device.type == "cuda" else []):
        of_random, of_numpy = random.getstate(), np.random.get_state()
        random.seed(seed)
        np.random.seed(seed % 2**32)
        try:
            yield
        finally:
            random.setstate(of_random)
            np.random.set_state(of_numpy)

"""Parameter matrices for kernel tests."""

import numpy as np
import torch

from ddlsim.kernels import aligned_rows


def random_params(rng: np.random.Generator, num_rows: int, num_columns: int) -> torch.Tensor:
    """Return normal numbers, float32 [num_rows, num_columns], in the kernels' layout."""
    params = aligned_rows(num_rows, num_columns)
    return params.copy_(torch.from_numpy(rng.standard_normal((num_rows, num_columns), dtype=np.float32)))

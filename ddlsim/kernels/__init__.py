"""The hot path on parameter matrices: one door per native kernel, torch (CPU, CUDA) or numpy in and out."""

from ddlsim.kernels.matrices import aligned_rows
from ddlsim.kernels.merging import merge, merge_rows

__all__ = ["aligned_rows", "merge", "merge_rows"]

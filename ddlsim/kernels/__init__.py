"""Kernels of the hot path on parameter matrices: one Python function per native kernel; matrices of torch (CPU, CUDA)
or numpy.
"""

from ddlsim.kernels.matrices import aligned_rows
from ddlsim.kernels.merging import merge, merge_rows, project_simplex, trimmed_mean_rows
from ddlsim.kernels.similarity import class_cosine, cosine, dots, inverse_l2, sqdist

__all__ = [
    "aligned_rows",
    "class_cosine",
    "cosine",
    "dots",
    "inverse_l2",
    "merge",
    "merge_rows",
    "project_simplex",
    "sqdist",
    "trimmed_mean_rows",
]

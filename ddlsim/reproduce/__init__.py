"""Matrices: published tables as files that one command runs again and prints beside the published numbers.

matrix.py is the file's form, running.py runs what is not there yet, table.py lays ours beside theirs.
"""

from ddlsim.reproduce.matrix import Cell, Matrix, Published, read_matrix
from ddlsim.reproduce.running import Run, reproduce, runs_of
from ddlsim.reproduce.table import console_table, markdown_table, results

__all__ = [
    "Cell",
    "Matrix",
    "Published",
    "Run",
    "console_table",
    "markdown_table",
    "read_matrix",
    "reproduce",
    "results",
    "runs_of",
]

"""Matrices: published tables as files that one command runs again and prints beside the published numbers.

matrix.py and matrix_file.py are the file's form, running.py runs what is not there yet (in a process each), kept.py
keeps a small file of results per cell, result.py makes means of them, table.py lays ours beside theirs, pages.py makes
the pages of all matrices.
"""

from ddlsim.runs.reproduce.kept import ResultStore
from ddlsim.runs.reproduce.matrix import Cell, Matrix, Published, read_matrix
from ddlsim.runs.reproduce.result import results
from ddlsim.runs.reproduce.running import Failure, Outcome, Run, reproduce, runs_of
from ddlsim.runs.reproduce.table import console_table, markdown_table, write_pages

__all__ = [
    "Cell",
    "Failure",
    "Matrix",
    "Outcome",
    "Published",
    "ResultStore",
    "Run",
    "console_table",
    "markdown_table",
    "read_matrix",
    "reproduce",
    "results",
    "runs_of",
    "write_pages",
]

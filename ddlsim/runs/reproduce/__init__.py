"""Matrices: published tables as files that one command runs again and prints beside the published numbers.

matrix.py reads and checks the file, running.py starts a process for each missing run, stored_results.py stores the
results of a table in one file, result.py computes means, and table.py compares them with the published numbers.
"""

from ddlsim.runs.reproduce.matrix import Cell, Matrix, Published, read_matrix
from ddlsim.runs.reproduce.result import results
from ddlsim.runs.reproduce.running import Outcome, Run, reproduce, runs_of
from ddlsim.runs.reproduce.stored_results import ResultStore
from ddlsim.runs.reproduce.table import console_table, markdown_table

__all__ = [
    "Cell",
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
]

"""Matrices: published tables as files that one command runs again and prints beside the published numbers.

matrix.py reads and checks the file, running.py starts a process for each missing run, stored_results.py stores the
results of a table in one file, result.py computes means, and table.py compares them with the published numbers.
"""

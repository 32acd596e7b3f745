"""Matrices: published tables as files that one command runs again and compares with the published numbers.

published.py has the keys of the file and the measures, matrix.py checks its cells and starts a process for each missing
run, result.py stores results and computes means, and table.py compares them with the published numbers.
"""

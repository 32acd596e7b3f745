"""Comparison of several runs: groups.py collects the seeds of one setting, curves.py relates metrics to cost and draws
them, rows.py makes a row per setting, tables.py prints rows as text, CSV, Markdown, LaTeX or JSON.
"""

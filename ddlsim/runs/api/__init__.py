"""The Python API, which `import ddlsim` offers under its own name: runs, sweeps, and what became of them.

start.py begins and resumes runs, given.py takes what Python code gives in the place of names, run.py is the handle of a
run directory, frames.py makes tables of records, several.py compares runs and sweeps.
"""

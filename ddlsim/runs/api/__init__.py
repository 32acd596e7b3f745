"""The Python API, which `import ddlsim` re-exports: runs, sweeps and their results.

start.py starts and resumes runs, run.py is the handle of a run
directory, several.py compares runs and sweeps.
"""

"""A run's life: its data, directory, start, end and summary.

run.py runs from data to summary: loading.py (data, device, learner), directory.py, loop.py (rounds), finalize.py,
manifest.py. checkpoint.py resumes a run, branch.py branches it.
options.py has its options.
"""

from ddlsim.runs.loading import Loaded, choose_device, load_data, prepare
from ddlsim.runs.models import model_of
from ddlsim.runs.run import resume, run, run_in_directory

__all__ = ["Loaded", "choose_device", "load_data", "model_of", "prepare", "resume", "run", "run_in_directory"]

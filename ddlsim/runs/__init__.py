"""A run's life: its data, directory, start, end and summary.

run.py is the way of one run, with loading.py (data and device), directory.py and lock.py (where it writes), life.py
(what it has), under_way.py, ending.py, manifest.py, profile.py and progress.py; resume.py and branch.py go on from an
earlier one, with checkpoint.py, value_log.py and repetition.py.
"""

from ddlsim.runs.loading import Loaded, choose_device, load_data, prepare
from ddlsim.runs.models import model_of
from ddlsim.runs.run import resume, run, run_in_directory

__all__ = ["Loaded", "choose_device", "load_data", "model_of", "prepare", "resume", "run", "run_in_directory"]

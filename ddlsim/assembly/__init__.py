"""Build the objects of a run from a scenario: learner.py models and data, simulation.py everything else."""

from ddlsim.assembly.draws import step_times_of
from ddlsim.assembly.learner import build_learner, builders_of
from ddlsim.assembly.simulation import (
    absences_of,
    build_run,
    build_simulation,
    codec_of,
    links_of,
    losses_of,
    oracle_of,
    schedule_of,
)

__all__ = [
    "absences_of",
    "build_learner",
    "build_run",
    "build_simulation",
    "builders_of",
    "codec_of",
    "links_of",
    "losses_of",
    "oracle_of",
    "schedule_of",
    "step_times_of",
]

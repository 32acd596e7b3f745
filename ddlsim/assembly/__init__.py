"""Build the objects of a run from a scenario: learner.py models and data, simulation.py everything else."""

from ddlsim.assembly.draws import step_times_of as step_times_of
from ddlsim.assembly.learner import build_learner as build_learner
from ddlsim.assembly.learner import builders_of as builders_of
from ddlsim.assembly.simulation import build_simulation as build_simulation

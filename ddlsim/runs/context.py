"""The objects of a run."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ddlsim.engine.simulation import Simulation
from ddlsim.foundation.interrupts import Interrupts
from ddlsim.runs.branch_history import Stage
from ddlsim.runs.checkpoint import Checkpoints, ReplayToCheckpoint
from ddlsim.runs.directory import RunDirectory, samples_of
from ddlsim.runs.models import KeptModels
from ddlsim.runs.options import Options
from ddlsim.runs.progress import Progress
from ddlsim.runs.recorder import ContactsFile, Recorder
from ddlsim.scenario import Scenario


@dataclass
class RunContext:
    """The objects of a run; `execute` makes those without a description.

    Args:
        place: its directory.
        scenario: of the run.
        prepared: its data.
        learner: trains and evaluates.
        console: its progress.
        interrupts: signals received.
        manifest: content of manifest.json.
        started: wall clock at its start.
        data_s: wall seconds spent on data.
        options: how it is carried out.
        device: see `computes_on`.
        repetition: of a resumed run, until it reaches its checkpoint; then None.
        earlier_s: wall seconds of a resumed run before.
        stages: of a branched run, the scenarios to follow before `scenario`.
    """

    place: RunDirectory
    scenario: Scenario
    prepared: Any
    learner: Any
    console: Progress
    interrupts: Interrupts
    manifest: dict
    started: float
    data_s: float
    options: Options
    device: str
    repetition: ReplayToCheckpoint | None = None
    earlier_s: float = 0.0
    stages: tuple[Stage, ...] = ()
    recorder: Recorder | None = None
    models: KeptModels | None = None
    simulation: Simulation | None = None
    checkpoints: Checkpoints | None = None
    contacts: ContactsFile | None = None
    setup_s: float = 0.0
    completed: int = 0
    warned: bool = False

    def __post_init__(self) -> None:
        self.samples = samples_of(self.prepared) if self.scenario.records.detail == "full" else ""
        self.callbacks = self.options.all_callbacks
        self.followed = (*(stage.scenario for stage in self.stages), self.scenario)
        self.node_cluster = np.asarray(self.prepared.node_cluster)

    @property
    def path(self) -> Path:
        """The run directory."""
        return self.place.path

    def write_contacts(self, completed: int | None = None) -> None:
        """Write the messages per pair in the completed rounds; None: in all other rounds as well."""
        counted = self.simulation and self.simulation.transport.contacts
        if counted:
            rows = counted.take(completed)
            if self.contacts is not None:
                self.contacts.add(rows, hold=self.repetition is not None)

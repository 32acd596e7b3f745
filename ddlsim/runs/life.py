"""What a run has while it is under way: what it was given, and what is made for it on the way."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ddlsim.interrupts import Interrupts
from ddlsim.runs.callbacks import Callbacks
from ddlsim.runs.checkpoint import Checkpoints, Every
from ddlsim.runs.directory import RunDirectory, samples_of
from ddlsim.runs.models import KeptModels
from ddlsim.runs.options import Options
from ddlsim.runs.progress import Progress
from ddlsim.runs.repetition import Repetition
from ddlsim.runs.stages import Stage

if TYPE_CHECKING:
    from ddlsim.engine.simulation import Simulation
    from ddlsim.runs.recorder import ContactsFile, Recorder
    from ddlsim.scenario import Scenario


@dataclass
class Life:
    """A run under way; the parts with a default are made one after the other.

    Args:
        place: its directory.
        scenario: what is run.
        prepared: its data.
        learner: what computes.
        console: what it says.
        interrupts: signals that have come.
        manifest: what manifest.json says.
        started: wall clock at its start.
        data_s: wall seconds spent on data.
        options: how it is carried out.
        device: what it computes on.
        repetition: of a resumed run, until it is where it was; None: rounds are run for the first time.
        earlier_s: wall seconds that a resumed run had taken before.
        stages: of a branched run, what it still has to follow before `scenario`, see stages.py.
        samples: the lines of samples.jsonl.
    """

    place: RunDirectory
    scenario: "Scenario"
    prepared: Any
    learner: Any
    console: Progress
    interrupts: Interrupts
    manifest: dict
    started: float
    data_s: float
    options: Options
    device: str
    repetition: Repetition | None = None
    earlier_s: float = 0.0
    stages: tuple[Stage, ...] = ()
    recorder: "Recorder | None" = None
    models: KeptModels | None = None
    simulation: "Simulation | None" = None
    checkpoints: Checkpoints | None = None
    contacts: "ContactsFile | None" = None
    setup_s: float = 0.0
    completed: int = 0

    def __post_init__(self) -> None:
        self.samples = samples_of(self.prepared) if self.scenario.records.detail == "full" else ""
        self.callbacks = Callbacks(self.options.callbacks)
        self.followed = (*(stage.scenario for stage in self.stages), self.scenario)

    @property
    def path(self) -> Path:
        return self.place.path

    @property
    def every(self) -> Every:
        """How often a checkpoint is made."""
        return self.options.checkpoint_every

    def write_contacts(self, completed: int | None = None) -> None:
        """Writes which messages were sent in the rounds that are completed; None: in all others as well."""
        counted = self.simulation and self.simulation.transport.contacts
        if not counted:
            return
        rows = counted.take(completed)
        if self.contacts is not None:
            self.contacts.add(rows, hold=self.repetition is not None)

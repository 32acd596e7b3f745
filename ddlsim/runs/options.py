"""How a run is carried out: what may be another each time and changes nothing that is computed."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ddlsim.executors.options import LOCAL, Executor
from ddlsim.runs.callbacks import Callback, Callbacks
from ddlsim.runs.checkpoint import DEFAULT, Every
from ddlsim.runs.progress import Mode


@dataclass(frozen=True, kw_only=True)
class Options:
    """See `run`, `resume`: their further arguments.

    Args:
        data_dir: where to look for data first.
        download: whether torchvision may download.
        device: auto, cpu or cuda; by default the scenario's `compute_device`.
        profile: keep where wall time went (`profile` in the summary).
        progress: auto, bar, plain or none, see progress.py.
        checkpoint_every: how often a checkpoint is made and how many are kept, see checkpoint.py; none are made where
            nothing is learned.
        command: for the manifest; None: that of the process.
        callbacks: what is called while it runs; none of a run that is there already.
        executor: what computes.
        threads: of a wave in this process; None: as many as it may use cores.
        fewer_workers: make do with fewer workers than the executor says: some have been lost.
    """

    data_dir: Path | None = None
    download: bool = True
    device: str | None = None
    profile: bool = False
    progress: Mode = "none"
    checkpoint_every: Every = DEFAULT
    command: Sequence[str] | None = None
    callbacks: Sequence[Callback] = ()
    executor: Executor = LOCAL
    threads: int | None = None
    fewer_workers: bool = False

    def __post_init__(self) -> None:
        Callbacks(self.callbacks)  # refuses what is none

"""A worker: it reads the data of a scenario, builds what trains, and then does what it is told; see learning/remote."""

import os
import pickle
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ddlsim import own_code
from ddlsim.errors import DdlsimError
from ddlsim.executors.versions import versions
from ddlsim.host import cpu_name

if TYPE_CHECKING:
    from ddlsim.data.prepared import PreparedData
    from ddlsim.learning.remote.shard import Shard
    from ddlsim.scenario import Scenario

NEEDS_DATA = "data"
"""What `Worker.start` answers if the host has not the data."""


@dataclass(frozen=True)
class Assignment:
    """What a worker has to do.

    Args:
        scenario: what is run.
        read: reads its data from this host's disk: (scenario, data_dir) -> prepared.
        data_dir: where to look for data first.
        other: says what this host has in the place of what the run is made on; empty: nothing.
        nodes: for which it computes.
        device: cpu or cuda.
        threads: of a wave.
    """

    scenario: "Scenario"
    read: "Callable[[Scenario, Path | None], PreparedData]"
    data_dir: Path | None
    other: "Callable[[Scenario, PreparedData], str]"
    nodes: tuple[int, ...]
    device: str
    threads: int


class Worker:
    """The actor; every call but `about` and `start` is one of a Shard (learning/remote/shard.py)."""

    def __init__(self) -> None:
        self._shard: Shard | None = None

    def about(self) -> dict[str, Any]:
        """Where it is and what it would compute with."""
        return {"host": socket.gethostname(), "pid": os.getpid(), "cpu": cpu_name(), "versions": versions()}

    def start(self, code: dict[str, bytes], packed: bytes, prepared: "PreparedData | None" = None) -> str | None:
        """Makes what computes.

        Args:
            code: path -> text of the files that parts of the scenario are defined in.
            packed: an Assignment.
            prepared: the data, if this host has not got it.
        Returns:
            NEEDS_DATA, if `prepared` is needed. Otherwise the device's name.
        Raises:
            DdlsimError: if the host's data is not the run's.
        """
        import torch

        from ddlsim.build import build_learner
        from ddlsim.learning.learner import Learner
        from ddlsim.learning.remote.shard import Shard

        torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
        for path, source in code.items():
            own_code.provide(Path(path), source)
        assigned: Assignment = pickle.loads(packed)
        if prepared is None:
            try:
                prepared = assigned.read(assigned.scenario, assigned.data_dir)
            except DdlsimError:
                return NEEDS_DATA
        other = assigned.other(assigned.scenario, prepared)
        if other:
            raise DdlsimError(
                f"on {socket.gethostname()} {other}. Put the same files there; a host without the data gets the run's."
            )
        learner = build_learner(assigned.scenario, prepared, assigned.device, threads=assigned.threads)
        assert isinstance(learner, Learner), "a network-only run has no workers"
        self._shard = Shard(learner, frozenset(assigned.nodes))
        return torch.cuda.get_device_name() if assigned.device == "cuda" else "cpu"

    def do(self, method: str, *arguments: Any) -> Any:
        """A call of its shard."""
        assert self._shard is not None, "called before start"
        return getattr(self._shard, method)(*arguments)

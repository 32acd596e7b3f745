"""Epidemic Learning variants whose runs lose processes on Ray in the second round."""

import time

KILLED = """
import os, signal
from dataclasses import dataclass
from pathlib import Path
from ddlsim.algorithms.decentralized.el import EpidemicLearning

@dataclass(frozen=True, kw_only=True)
class Killed(EpidemicLearning):
    mark: str

    def round(self, node, state, round_num):
        if round_num == 1 and not Path(self.mark).exists():
            Path(self.mark).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        yield from super().round(node, state, round_num)
"""
"""The process of the first run that comes to its second round is killed there; the file `mark` says that it was."""

WAITING = """
import os, time
from dataclasses import dataclass
from pathlib import Path
import ray
from ddlsim.algorithms.decentralized.el import EpidemicLearning

@dataclass(frozen=True, kw_only=True)
class Waiting(EpidemicLearning):
    folder: str

    def round(self, node, state, round_num):
        if round_num == 1 and node.id == 0 and ray.is_initialized():
            Path(self.folder, f"at-{ray.get_runtime_context().get_node_id()}-{os.getpid()}").touch()
            while not Path(self.folder, "go").exists():
                time.sleep(0.05)
        yield from super().round(node, state, round_num)
"""
"""Processes say in `folder` on which host they have come to their second round, and wait there for the file go."""


def until(holds, most_s: float) -> None:
    """Wait until the condition holds."""
    end_s = time.monotonic() + most_s
    while not holds():
        assert time.monotonic() < end_s, "it takes too long"
        time.sleep(0.05)

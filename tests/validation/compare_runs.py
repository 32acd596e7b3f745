"""Measured runs of the deployment beside simulated ones: when had all nodes completed each round?"""

import json
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import ddlsim

HERE = Path(__file__).parent
RUNS = HERE.parents[1] / "docs" / "results" / "trust" / "runs"
TARGET = 0.6
NETWORKS: dict[str, dict[str, Any]] = {"flow": {}, "tcp": {"network.fidelity": "tcp"}}
PLAIN_QUEUE = {"network.fidelity": "tcp", "network.tcp": {"shares": "random", "utilization": 0.88}}


@dataclass(frozen=True)
class MeasuredRun:
    """A result of deployment/deploy.py.

    Args:
        about: what it stored.
    """

    about: dict[str, Any]

    @property
    def complete_s(self) -> np.ndarray:
        """Seconds until the last node had completed each round, float64 [rounds]."""
        return np.array(self.about["complete_s"]).max(axis=0)

    @property
    def target_round(self) -> int:
        """The first evaluated round with the target accuracy; in ddlsim, with the same models, it is the same."""
        return min(int(number) for number, accuracy in self.about["accuracy"].items() if accuracy >= TARGET)

    def simulated_s(self, network: dict[str, Any]) -> np.ndarray:
        """The same as ddlsim says; devices as calibrated, times their factors. Nothing is learned, so it is quick."""
        devices = {"name": "per_node", "step_times_s": self.about["step_times_s"]}
        settings = {"learning": "none", "rounds": len(self.complete_s), "devices": devices, **network}
        with tempfile.TemporaryDirectory() as folder:
            scenario = str(HERE / "deployment" / f"{self.about['name']}.yaml")
            run = ddlsim.run(scenario, set=settings, out=folder, progress=None)
            return np.array([row["last_s"] for row in run.summary["timetable"]])


def read_runs() -> list[MeasuredRun]:
    """All that are stored."""
    return [MeasuredRun(json.loads(path.read_text())) for path in sorted(RUNS.glob("*.json"))]

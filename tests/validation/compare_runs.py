"""Measured and simulated runs of the deployment: completion times of rounds."""

import json
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from compare_flows import FQ_CODEL, PLAIN_QUEUE

import ddlsim
from ddlsim.scenario import load

HERE = Path(__file__).parent
RUNS = HERE.parents[1] / "docs" / "results" / "trust" / "runs.json"
TCP = {"network.fidelity": "tcp"}
FITTED = {
    "pfifo": {**TCP, "network.tcp": {"shares": "random", "utilization": PLAIN_QUEUE.utilization}},
    "relay_fq_codel": {**TCP, "network.tcp": {"utilization": FQ_CODEL.utilization}},
}
"""By queue: what was fitted to rounds behind it, see compare_flows.py."""


@dataclass(frozen=True)
class MeasuredRun:
    """A result of deployment/deploy.py.

    Args:
        about: the stored result.
    """

    about: dict[str, Any]

    @property
    def complete_s(self) -> np.ndarray:
        """Return the seconds until the last node completed each round, float64 [rounds]."""
        return np.array(self.about["complete_s"]).max(axis=0)

    @property
    def name(self) -> str:
        """Scenario and queue."""
        return f"{self.about['name']}, {self.about['queue']}"

    @property
    def scenario(self) -> str:
        """The file of its scenario."""
        return str(HERE / "deployment" / f"{self.about['name']}.yaml")

    @property
    def target(self) -> float:
        """The scenario's target accuracy."""
        return load(self.scenario).evaluation.target_accuracy

    @property
    def target_round(self) -> int:
        """The first evaluated round with the target accuracy, the same as in ddlsim because models are equal."""
        return min(int(number) for number, accuracy in self.about["accuracy"].items() if accuracy >= self.target)

    @property
    def tcp(self) -> dict[str, Any]:
        """Settings of `tcp` for its queue."""
        return FITTED.get(self.about["queue"], TCP)

    def simulated_s(self, network: dict[str, Any]) -> np.ndarray:
        """Return the simulated times, with calibrated devices times their factors, without learning."""
        devices = {"name": "per_node", "step_times_s": self.about["step_times_s"]}
        settings = {"learning": "none", "rounds": len(self.complete_s), "devices": devices, **network}
        with tempfile.TemporaryDirectory() as folder:
            run = ddlsim.run(self.scenario, set=settings, out=folder, progress=None)
            return np.array([row["last_s"] for row in run.summary["timetable"]])


def read_runs() -> list[MeasuredRun]:
    """Return all stored runs."""
    return [MeasuredRun(stored) for stored in json.loads(RUNS.read_text()).values()]

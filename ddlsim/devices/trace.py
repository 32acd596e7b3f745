"""Devices whose speed changes in simulated time, from a CSV of our own: time_s,node,step_time_s.

A device works at one rate, 1 / step_time_s steps per second, until its next row; a training that runs across a change
does its first steps at the old rate and the rest at the new one.
"""

from dataclasses import dataclass

from ddlsim.csv_rows import Column, read_rows
from ddlsim.devices.base import Devices, StepTimeTrace
from ddlsim.errors import ScenarioError
from ddlsim.units import MAX_STEP_S


@dataclass(frozen=True, kw_only=True)
class Trace(Devices):
    """Every node's speed over time is given in a file.

    Args:
        path: CSV with the columns time_s,node,step_time_s: seconds per local step from that time on, the last value for
            ever; each node needs a row at time 0; nodes that the run does not have are skipped. Relative to the folder
            that the command is started in.
    """

    path: str

    def draw(self, num_nodes: int, seed: int) -> StepTimeTrace:
        """The trace of all nodes.

        Raises:
            ScenarioError: the file cannot be read, has wrong rows or a node twice at one time, or lacks a node at 0.
        """
        found: list[dict[float, float]] = [{} for _ in range(num_nodes)]
        columns = {"time_s": Column(), "node": Column(whole=True, below=2**31), "step_time_s": Column(below=MAX_STEP_S)}
        for line, row in read_rows(self.path, columns):
            if row["node"] >= num_nodes:
                continue
            changes = found[int(row["node"])]
            if row["time_s"] in changes:
                raise ScenarioError(
                    f"{self.path}:{line}: expected one row per node and time, got node {row['node']} at "
                    f"{row['time_s']:g} s again"
                )
            changes[row["time_s"]] = row["step_time_s"]
        missing = next((node for node, changes in enumerate(found) if 0 not in changes), None)
        if missing is not None:
            raise ScenarioError(
                f"{self.path}: expected a row at time 0 for each of {num_nodes} nodes, got none for node {missing}"
            )
        times_s = [sorted(changes) for changes in found]
        return StepTimeTrace(
            tuple(tuple(times) for times in times_s),
            tuple(tuple(changes[time] for time in times) for changes, times in zip(found, times_s, strict=True)),
        )

"""Devices whose speed changes in simulated time, from a CSV of our own: time_s,node,step_time_s.

A device works at one rate, 1 / step_time_s steps per second, until its next row; a training that runs across a change
does its first steps at the old rate and the rest at the new one.
"""

from bisect import bisect_right
from dataclasses import dataclass

from ddlsim.csv_rows import Column, read_rows
from ddlsim.errors import ScenarioError
from ddlsim.units import MAX_STEP_S


@dataclass(frozen=True)
class StepTimeTrace:
    """Seconds per step of every node over time.

    Args:
        times_s: per node the times from which its values hold, ascending, the first one 0.
        step_times_s: per node as many values.
    """

    times_s: tuple[tuple[float, ...], ...]
    step_times_s: tuple[tuple[float, ...], ...]

    def __len__(self) -> int:
        """The number of nodes."""
        return len(self.times_s)

    def duration_s(self, node: int, steps: float, start_s: float) -> float:
        """How long `steps` steps (whole or not) take a node that begins with them at `start_s`."""
        times_s, step_times_s = self.times_s[node], self.step_times_s[node]
        at = bisect_right(times_s, start_s) - 1
        now_s = start_s
        for i in range(at, len(times_s) - 1):
            needed_s = steps * step_times_s[i]
            if now_s + needed_s <= times_s[i + 1]:
                return now_s + needed_s - start_s
            steps -= (times_s[i + 1] - now_s) / step_times_s[i]
            now_s = times_s[i + 1]
        return now_s + steps * step_times_s[-1] - start_s


@dataclass(frozen=True, kw_only=True)
class Trace:
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

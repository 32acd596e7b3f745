"""Measured and simulated flows: relative errors per flow and per round."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ddlsim.network.replay import finish_times
from ddlsim.scenario.network_sections import Tcp

ROOT = Path(__file__).parents[2]
FLOWS = ROOT / "docs" / "results" / "trust" / "flows.json"

PLAIN = Tcp(acks_per_segment=0, initial_window=0)
VARIANTS: dict[str, Tcp | None] = {
    "flow": None,
    "headers": PLAIN,
    "and acknowledgements": Tcp(initial_window=0),
    "and slow start (tcp)": Tcp(),
    "tcp, shares: rtt": Tcp(shares="rtt"),
    "tcp, shares: random": Tcp(shares="random"),
}
"""What each option brings: one after the other."""

FITTED_TO, HELD_OUT = ("el_8", "facade_8", "el_32"), ("el_8_other", "facade_8_other", "el_16")
"""Rounds to which the next two were fitted by `fit_utilization`; others, of other graphs, that had no part in it."""

PLAIN_QUEUE = Tcp(shares="random", share_spread=0.3, utilization=0.82)
"""Behind plain queues; the spread is that of the measured flows."""

FQ_CODEL = Tcp(utilization=0.88)
"""Behind fq_codel."""


@dataclass(frozen=True)
class Measured:
    """One setting of measure_flows.py.

    Args:
        about: case, queue, packets, congestion, connections, kernel; disturbed: number of repetitions that were not
            stored, see measure_flows.py.
        links: node -> (uplink Mbit/s, downlink Mbit/s, latency ms).
        flows: start_s, src, dst, bytes.
        leaves: node -> time of its disconnection.
        taken_s: float64 [repetitions, flows], nan for flows that did not arrive.
    """

    about: dict[str, Any]
    links: dict[int, tuple[float, float, float]]
    flows: list[dict[str, Any]]
    leaves: dict[int, float]
    taken_s: np.ndarray

    @property
    def name(self) -> str:
        """Its case."""
        return self.about["case"]

    @property
    def rounds(self) -> np.ndarray:
        """Return per flow the index of its start among all starts."""
        return np.unique([flow["start_s"] for flow in self.flows], return_inverse=True)[1]

    def simulated_s(self, tcp: Tcp | None, seed: int = 0) -> np.ndarray:
        """Return the simulated seconds of each flow, nan if it does not arrive; float64 [flows]."""
        ends_s = finish_times(self.flows, self.links, tcp=tcp, leaves=self.leaves, seed=seed)
        return np.array(
            [
                np.nan if end_s is None else end_s - flow["start_s"]
                for end_s, flow in zip(ends_s, self.flows, strict=True)
            ]
        )

    def flow_errors(self, tcp: Tcp | None, seeds: Sequence[int] = (0,)) -> np.ndarray:
        """Return the relative errors of all flows, positive if the simulator takes longer."""
        found = [(self.simulated_s(tcp, seed) - self.taken_s) / self.taken_s for seed in seeds]
        errors = np.concatenate([each.ravel() for each in found])
        return errors[~np.isnan(errors)]

    def round_errors(self, tcp: Tcp | None, seeds: Sequence[int] = (0,)) -> np.ndarray:
        """Return the relative errors of rounds, from their start to the last arrival."""
        found = []
        for seed in seeds:
            simulated_s = self._last(self.simulated_s(tcp, seed))
            found += [(simulated_s - measured_s) / measured_s for measured_s in map(self._last, self.taken_s)]
        return np.concatenate(found)

    def _last(self, taken_s: np.ndarray) -> np.ndarray:
        rounds = self.rounds
        return np.array([np.nanmax(taken_s[rounds == number]) for number in range(rounds.max() + 1)])


def measured_of(stored: dict[str, Any]) -> Measured:
    """Return a setting that measure_flows.py has stored."""
    flows = [dict(zip(("start_s", "src", "dst", "bytes"), flow, strict=True)) for flow in stored["flows"]]
    links = dict(enumerate(tuple(link) for link in stored["links"]))
    leaves = {int(node): time_s for node, time_s in stored["leaves"].items()}
    taken_s = np.array([[np.nan if s is None else s for s in each] for each in stored["taken_s"]])
    about = {key: stored[key] for key in ("case", "queue", "packets", "congestion", "connections", "kernel")}
    about["disturbed"] = stored.get("disturbed", 0)
    return Measured(about, links, flows, leaves, taken_s)


def read_all(
    queue: str, packets: int = 100, congestion: str = "cubic", connections: str = "persistent"
) -> list[Measured]:
    """Return all cases measured in one setting, by name."""
    setting = {"queue": queue, "packets": packets, "congestion": congestion, "connections": connections}
    stored = json.loads(FLOWS.read_text()).values()
    return [measured_of(each) for each in stored if each["taken_s"] and setting.items() <= each.items()]


def fit_utilization(cases: Sequence[Measured], tcp: Tcp, tried: Sequence[float], seeds: Sequence[int] = (0,)) -> float:
    """Fit the utilization of links to the rounds of these cases, by the mean of their median errors."""
    medians = []
    for utilization in tried:
        settings = tcp.model_copy(update={"utilization": utilization})
        medians.append(np.mean([summary(case.round_errors(settings, seeds))[0] for case in cases]))
    return tried[int(np.argmin(medians))]


def summary(errors: np.ndarray) -> tuple[float, float, float]:
    """Return median and 95th percentile of the absolute errors, and the median error."""
    sizes = np.abs(errors)
    return float(np.median(sizes)), float(np.percentile(sizes, 95)), float(np.median(errors))

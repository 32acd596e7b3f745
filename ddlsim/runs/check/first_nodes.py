"""Devices and links from outside in a trial: drawn for all nodes of the scenario, and cut to the few of the trial."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from ddlsim.assembly.learner import links_drawn, step_times_drawn
from ddlsim.devices.base import Devices, StepTimeTrace, StepWork
from ddlsim.devices.model_work import Estimated
from ddlsim.foundation.own_code import is_from_outside
from ddlsim.network.access_links import Links, LinkTable

if TYPE_CHECKING:
    from ddlsim.scenario import Scenario


@dataclass(frozen=True)
class FirstDevices(Devices):
    """The first of a scenario's devices.

    Args:
        whole: all of them.
        count: their number.
    """

    whole: Devices
    count: int

    @property
    def scales(self) -> bool:
        return self.whole.scales

    def base_step_s(self, architecture: str, work: StepWork) -> float:
        return self.whole.base_step_s(architecture, work)

    def draw(self, num_nodes: int, seed: int) -> np.ndarray | StepTimeTrace:
        """See Devices."""
        found = step_times_drawn(self.whole, self.count, seed)
        if isinstance(found, StepTimeTrace):
            return StepTimeTrace(found.times_s[:num_nodes], found.step_times_s[:num_nodes])
        return found[:num_nodes]


@dataclass(frozen=True)
class FirstLinks(Links):
    """The links of a scenario's first nodes.

    Args:
        whole: those of all.
        count: how many these are.
    """

    whole: Links
    count: int

    def draw(self, num_nodes: int, seed: int) -> LinkTable:
        """See Links; a server is as far away as the median of these nodes."""
        found = links_drawn(self.whole, self.count, seed)
        latency_s = found.latency_s
        return replace(
            found,
            uplink_bytes_per_s=np.asarray(found.uplink_bytes_per_s)[:num_nodes],
            downlink_bytes_per_s=np.asarray(found.downlink_bytes_per_s)[:num_nodes],
            latency_s=latency_s[:num_nodes] if isinstance(latency_s, np.ndarray) else latency_s,
            changes=[change for change in found.changes if change.node < num_nodes],
            holds_for_server=False,
            site_bytes_per_s=None if found.site_bytes_per_s is None else found.site_bytes_per_s[:, :num_nodes],
        )


def with_first_nodes(scenario: "Scenario", count: int) -> "Scenario":
    """A scenario of few nodes whose devices and links are the first ones of so many, where they are from outside."""
    devices, links = scenario.devices, scenario.network.links
    network = scenario.network
    if is_from_outside(links):
        network = network.model_copy(update={"links": FirstLinks(links, count)})
    if is_from_outside(devices):
        devices = FirstDevices(devices, count)
    elif devices.measures:  # a trial measures nothing
        devices = Estimated()
    return scenario.model_copy(update={"devices": devices, "network": network})

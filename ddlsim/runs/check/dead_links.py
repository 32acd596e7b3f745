"""Links on which nothing ever arrives, in a run whose rounds wait for messages: `ddlsim check` finds them."""

from itertools import permutations
from typing import TYPE_CHECKING

import numpy as np

from ddlsim.assembly.learner import links_drawn
from ddlsim.foundation.errors import listing

if TYPE_CHECKING:
    from ddlsim.network.access_links import LinkTable
    from ddlsim.scenario import Scenario


MOST_ROUTED = 64
"""Nodes up to which the routes of all pairs are looked at."""


def dead_links(scenario: "Scenario") -> list[str]:
    """A sentence per kind of link that has no capacity at any time and for which nodes would wait for ever."""
    network, algorithm = scenario.network, scenario.algorithm
    waits = algorithm.has_server or (scenario.mode == "sync" and algorithm.waits)
    ends = scenario.protocol.deadline_s is not None or network.timeout_s is not None
    if not waits or ends or algorithm.exchanges == "nothing" or network.fidelity not in ("flow", "tcp"):
        return []
    drawn = links_drawn(network.links, scenario.nodes.count, scenario.seed)
    found = []
    for name, capacities in (("uplink", drawn.uplink_bytes_per_s), ("downlink", drawn.downlink_bytes_per_s)):
        opened = {change.node for change in drawn.changes if getattr(change, f"{name}_bytes_per_s", 0) > 0}
        dead = [node for node in np.flatnonzero(np.asarray(capacities) == 0).tolist() if node not in opened]
        if dead:
            found.append(
                f"the {name} of {'nodes' if len(dead) > 1 else 'node'} {listing(dead)} has 0 Mbit/s at all times"
            )
    pair = _dead_route(drawn, scenario.nodes.count)
    if pair:
        found.append(f"the route from node {pair[0]} to node {pair[1]} crosses a link of 0 Mbit/s")
    cure = (
        "set protocol.deadline_s, network.timeout_s or mode: async"
        if not algorithm.has_server
        else ("set protocol.deadline_s or network.timeout_s")
    )
    return [
        f"network.links: {what}, so rounds wait for ever for messages that never arrive. Give it capacity, or {cure}."
        for what in found
    ]


def _dead_route(drawn: "LinkTable", num_nodes: int) -> tuple[int, int] | None:
    """The first two nodes whose route crosses a shared link without capacity."""
    dead = {link for link, capacity in enumerate(drawn.shared_bytes_per_s) if capacity == 0}
    if drawn.route is None or not dead:
        return None
    return next(
        (pair for pair in permutations(range(min(num_nodes, MOST_ROUTED)), 2) if dead & {*drawn.route(*pair)}), None
    )

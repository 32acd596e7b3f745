"""Replay of a list of flows over a list of links, by the network engine of runs."""

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
import simpy

from ddlsim.foundation.errors import ScenarioError
from ddlsim.foundation.input_files import Column, Row, read_rows, refuse
from ddlsim.foundation.units import mbps_to_bytes_per_s, ms_to_s
from ddlsim.network.access_links import read_links
from ddlsim.network.link_table import LinkTable
from ddlsim.network.messages.message import Message
from ddlsim.network.network import Fidelity, Network
from ddlsim.network.routed_links import Routed
from ddlsim.scenario.network_sections import Tcp

FLOW_COLUMNS = {
    "start_s": Column(below=1e9),
    "src": Column(whole=True),
    "dst": Column(whole=True),
    "bytes": Column(whole=True, below=2**62),
}


@dataclass(frozen=True)
class ReplayedFlow:
    """One flow and the arrival time of its last byte; finish_s None: never.

    A flow never finishes if it stalls on a link of capacity zero, or would need longer than the limit of simulated
    time, 292 years.
    """

    start_s: float
    src: int
    dst: int
    bytes: int
    finish_s: float | None


def replay(
    flows_path: str, links_path: str, physical_path: str | None = None, tcp: Tcp | None = None
) -> list[ReplayedFlow]:
    """Send the flows of one file over the links of another.

    Args:
        flows_path: CSV with the columns start_s,src,dst,bytes; flows that start together are taken in its order.
        links_path: CSV with the columns node,uplink_mbps,downlink_mbps,latency_ms; node ids need not be consecutive;
            latency_ms is the one-way latency of the node's access, a flow waits for the latencies of both its ends.
        physical_path: graph of the network between the nodes, which are in it by their ids: an edge list or GraphML,
            each edge with bandwidth_mbps and latency_ms (see routed_links.py); flows are routed over it and share its
            links. None: nothing between the nodes' own links limits them.
        tcp: additions of TCP, see tcp.py; None: plain flows.

    Returns:
        One row per flow, in the order of the file.

    Raises:
        ScenarioError: a file cannot be read, has wrong rows, a flow names a node without links, or the physical network
            lacks a node, or does not connect all.
    """
    links = read_links(links_path)
    rows = read_rows(flows_path, FLOW_COLUMNS)
    if rows and not links:
        raise ScenarioError(f"{links_path}: expected a row for every node of {flows_path}, got only the columns")
    refuse(
        [
            f"{flows_path}:{line}: {end}: expected a node of {links_path}, got {row[end]}"
            for line, row in rows
            for end in ("src", "dst")
            if row[end] not in links
        ]
    )
    finish_s = finish_times([row for _, row in rows], links, physical_path, tcp)
    return [ReplayedFlow(**row, finish_s=found) for (_, row), found in zip(rows, finish_s, strict=True)]


def finish_times(
    flows: Sequence[Row],
    links: Mapping[int, tuple[float, float, float]],
    physical_path: str | None = None,
    tcp: Tcp | None = None,
    leaves: Mapping[int, float] | None = None,
    seed: int = 0,
) -> list[float | None]:
    """Return the arrival time of each flow's last byte, in seconds; None: never.

    Args:
        flows: start_s, src, dst, bytes of each.
        links: node -> (uplink Mbit/s, downlink Mbit/s, access latency ms).
        physical_path, tcp: see replay.
        leaves: node -> time at which it leaves permanently; its flows end then.
        seed: seed of random shares.
    """
    if not links:
        return []
    index = {node: i for i, node in enumerate(sorted(links))}
    finish_s: list[float | None] = [None] * len(flows)
    env = simpy.Environment()

    def arrived(message: Message) -> None:
        finish_s[message.payload] = env.now

    fidelity: Fidelity = "flow" if tcp is None else "tcp"
    table = _table(links, tuple(index), physical_path)
    network = Network(env, table, on_delivery=arrived, fidelity=fidelity, tcp=tcp, seed=seed)

    def message(i: int) -> Message:
        flow = flows[i]
        return Message(index[flow["src"]], index[flow["dst"]], 0, "flow", payload=i, payload_bytes=flow["bytes"])

    def start() -> Generator[simpy.Event, None, None]:
        order = sorted(range(len(flows)), key=lambda i: flows[i]["start_s"])
        for start_s, together in groupby(order, key=lambda i: flows[i]["start_s"]):
            yield env.timeout(start_s - env.now)
            messages = [message(i) for i in together]
            network.add_headers(messages)
            network.send(messages)

    def leave(node: int, time_s: float) -> Generator[simpy.Event, None, None]:
        yield env.timeout(time_s)
        network.remove_node(index[node])

    for node, time_s in (leaves or {}).items():
        env.process(leave(node, time_s))
    env.process(start())
    env.run()
    return finish_s


def _table(
    links: Mapping[int, tuple[float, float, float]], nodes: tuple[int, ...], physical_path: str | None
) -> LinkTable:
    """Return the links of all nodes, in this order, and the shared links between them; see finish_times."""
    uplink_mbps, downlink_mbps, latency_ms = np.array([links[node] for node in nodes]).T
    uplinks, downlinks = mbps_to_bytes_per_s(uplink_mbps), mbps_to_bytes_per_s(downlink_mbps)
    access_s = ms_to_s(latency_ms)
    if physical_path is None:
        return LinkTable(uplinks, downlinks, access_s)
    try:
        physical = Routed(path=physical_path, hosts=nodes).draw(len(nodes), seed=0)
    except ScenarioError as error:  # names a scenario's key
        raise ScenarioError(f"--physical: {str(error).partition(': ')[2]}") from error
    between_s = physical.latency_s
    assert callable(between_s)
    return LinkTable(
        uplinks,
        downlinks,
        lambda src, dst: access_s[src] + between_s(src, dst) + access_s[dst],
        shared_bytes_per_s=physical.shared_bytes_per_s,
        route=physical.route,
    )

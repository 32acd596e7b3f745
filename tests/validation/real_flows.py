"""Flows over real TCP between the hosts of a testbed, and the arrival of their last bytes.

One process has the sockets of all hosts, each in its host's namespace, so start and finish are read from one
clock. Run as a program it takes the files of `ddlsim network replay` and prints the same table, measured:

    python tests/validation/real_flows.py flows.csv --links links.csv
"""

import argparse
import select
import socket
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from testbed import PORT, QUEUES, HostLink, Testbed, missing

from ddlsim.foundation.input_files import read_rows
from ddlsim.network.access_links import read_links
from ddlsim.network.replay import FLOW_COLUMNS

CHUNK = memoryview(bytes(1 << 18))
LEAD_S = 0.3  # from connecting to the first start
CONNECT_S = 10.0
LOOK_S = 0.01  # longest interval between checks of the sockets

Connections = Literal["persistent", "per_message"]


@dataclass
class _Stream:
    """One direction of a connection: flows in sequence."""

    socket: socket.socket
    src: int
    dst: int
    flows: deque[tuple[int, int]] = field(default_factory=deque)  # (flow, missing bytes)
    unsent: int = 0
    ends: bool = False


class RealFlows:
    """Sender of flows.

    Args:
        testbed: an open one.
        connections: persistent: one connection per pair, made before the first start; per_message: one per flow, made
            when it starts.
        time_limit_s: flows that arrive later count as never arrived.

    Attributes:
        stalled_s: longest interval between checks of the sockets: a stall of the machine.
    """

    def __init__(self, testbed: Testbed, connections: Connections = "persistent", time_limit_s: float = 120.0):
        self._testbed, self._persistent, self._time_limit_s = testbed, connections == "persistent", time_limit_s
        self.stalled_s = 0.0
        self._epoll = select.epoll()
        self._listeners: dict[int, tuple[socket.socket, int]] = {}
        self._writers: dict[int, _Stream] = {}
        self._readers: dict[int, tuple[socket.socket, _Stream]] = {}
        self._by_port: dict[tuple[int, int], _Stream] = {}
        self._of_pair: dict[tuple[int, int], _Stream] = {}

    def run(
        self, flows: Sequence[tuple[float, int, int, int]], leaves: Mapping[int, float] | None = None
    ) -> list[float | None]:
        """Return the seconds from the common start to the arrival of each flow's last byte, or None.

        Args:
            flows: (start_s, src, dst, bytes); bytes above 0.
            leaves: host -> time of its disconnection.
        """
        try:
            return self._run(flows, dict(leaves or {}))
        finally:
            for sock in self._all_sockets():
                sock.close()
            self._epoll.close()

    def _run(self, flows: Sequence[tuple[float, int, int, int]], leaves: dict[int, float]) -> list[float | None]:
        for host in range(len(self._testbed.links)):
            self._listen(host)
        streams = {pair: self._connect(*pair) for pair in sorted({(src, dst) for _, src, dst, _ in flows})}
        self._wait_for(list(streams.values()))
        if self._persistent:
            self._of_pair = streams
        else:  # all paths are open
            for stream in streams.values():
                stream.socket.close()
        self._finish_s: list[float | None] = [None] * len(flows)
        to_start = deque(sorted(range(len(flows)), key=lambda i: flows[i][0]))
        to_leave = deque(sorted((time_s, host) for host, time_s in leaves.items()))
        open_flows = {i for i, (_, src, dst, _) in enumerate(flows) if src not in leaves and dst not in leaves}
        self._handle_until(time.monotonic() + LEAD_S)
        self._zero_s = time.monotonic()
        before_s = 0.0
        while any(self._finish_s[i] is None for i in open_flows) or to_leave:
            now_s = time.monotonic() - self._zero_s
            self.stalled_s, before_s = max(self.stalled_s, now_s - before_s - LOOK_S), now_s
            if now_s > self._time_limit_s:
                break
            while to_start and flows[to_start[0]][0] <= now_s:
                self._start(to_start[0], *flows[to_start.popleft()][1:])
            while to_leave and to_leave[0][0] <= now_s:
                self._testbed.cut_off(to_leave.popleft()[1])
            due = [flows[to_start[0]][0]] if to_start else []
            due += [to_leave[0][0]] if to_leave else []
            self._handle(min(min([*due, self._time_limit_s], default=0.0) - now_s, LOOK_S))
        return self._finish_s

    def _listen(self, host: int) -> None:
        listener = self._testbed.socket(host)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((self._testbed.address(host), PORT))
        listener.listen(4096)
        listener.setblocking(False)
        self._listeners[listener.fileno()] = listener, host
        self._epoll.register(listener, select.EPOLLIN)

    def _connect(self, src: int, dst: int) -> _Stream:
        sock = self._testbed.socket(src)
        sock.setblocking(False)
        sock.bind((self._testbed.address(src), 0))
        stream = _Stream(sock, src, dst)
        self._by_port[src, sock.getsockname()[1]] = stream
        sock.connect_ex((self._testbed.address(dst), PORT))
        self._writers[sock.fileno()] = stream
        return stream

    def _wait_for(self, streams: list[_Stream]) -> None:
        """Wait for all connections; first packets may be lost while links come up, and are sent again after 1 s."""
        limit_s = time.monotonic() + CONNECT_S
        while not all(_is_connected(stream.socket) for stream in streams):
            if time.monotonic() > limit_s:
                raise TimeoutError(f"not all of {len(streams)} connections are there after {CONNECT_S:g} s")
            self._handle(LOOK_S)

    def _start(self, flow: int, src: int, dst: int, size: int) -> None:
        stream = self._of_pair[src, dst] if self._persistent else self._connect(src, dst)
        stream.flows.append((flow, size))
        stream.ends = not self._persistent
        if stream.unsent == 0:
            self._epoll.register(stream.socket, select.EPOLLOUT)
        stream.unsent += size

    def _handle_until(self, time_s: float) -> None:
        while (left_s := time_s - time.monotonic()) > 0:
            self._handle(left_s)

    def _handle(self, timeout_s: float) -> None:
        for number, _ in self._epoll.poll(max(0.0, timeout_s)):
            if number in self._listeners:
                self._accept(*self._listeners[number])
            elif number in self._readers:
                self._read(*self._readers[number])
            else:
                self._write(self._writers[number])

    def _accept(self, listener: socket.socket, host: int) -> None:
        while True:
            try:
                sock, (address, port) = listener.accept()
            except BlockingIOError:
                return
            sock.setblocking(False)
            src = next(i for i in range(len(self._testbed.links)) if self._testbed.address(i) == address)
            self._readers[sock.fileno()] = sock, self._by_port[src, port]
            self._epoll.register(sock, select.EPOLLIN)

    def _write(self, stream: _Stream) -> None:
        try:
            while stream.unsent:
                stream.unsent -= stream.socket.send(CHUNK[: stream.unsent])
        except BlockingIOError:
            return
        except OSError:  # its host or its peer was disconnected
            stream.unsent = 0
        self._epoll.unregister(stream.socket)
        if stream.ends:
            stream.socket.shutdown(socket.SHUT_WR)

    def _read(self, sock: socket.socket, stream: _Stream) -> None:
        try:
            received = len(sock.recv(1 << 20))
        except BlockingIOError:
            return
        except OSError:
            received = 0
        if received == 0:
            self._epoll.unregister(sock)
            del self._readers[sock.fileno()]
            sock.close()
            return
        now_s = time.monotonic() - self._zero_s
        while stream.flows and received >= stream.flows[0][1]:
            flow, left = stream.flows.popleft()
            self._finish_s[flow] = now_s
            received -= left
        if received:
            flow, left = stream.flows.popleft()
            stream.flows.appendleft((flow, left - received))

    def _all_sockets(self) -> list[socket.socket]:
        listeners = [listener for listener, _ in self._listeners.values()]
        readers = [sock for sock, _ in self._readers.values()]
        return listeners + readers + [stream.socket for stream in self._writers.values()]


def _is_connected(sock: socket.socket) -> bool:
    try:
        sock.getpeername()
    except OSError:
        return False
    return True


def main() -> None:
    parser = argparse.ArgumentParser(description="Measures what `ddlsim network replay` computes.")
    parser.add_argument("flows", help="CSV with the columns start_s,src,dst,bytes")
    parser.add_argument("--links", required=True, help="CSV with the columns node,uplink_mbps,downlink_mbps,latency_ms")
    parser.add_argument("--queue", choices=QUEUES, default="pfifo")
    parser.add_argument("--packets", type=int, default=100)
    parser.add_argument("--congestion", default="cubic")
    parser.add_argument("--connections", choices=("persistent", "per_message"), default="persistent")
    parser.add_argument("--time-limit", type=float, default=120.0)
    given = parser.parse_args()
    if (reason := missing()) is not None:
        raise SystemExit(f"no testbed here: {reason}")
    links = read_links(given.links)
    index = {node: i for i, node in enumerate(sorted(links))}
    rows = [row for _, row in read_rows(given.flows, FLOW_COLUMNS)]
    flows = [(row["start_s"], index[row["src"]], index[row["dst"]], row["bytes"]) for row in rows]
    hosts = [HostLink(*links[node]) for node in index]
    with Testbed(hosts, given.queue, given.packets, given.congestion) as testbed:
        finish_s = RealFlows(testbed, given.connections, given.time_limit).run(flows)
    print("start_s,src,dst,bytes,finish_s")
    for row, found in zip(rows, finish_s, strict=True):
        values = (*row.values(), None if found is None else round(found, 6))
        print(",".join("" if value is None else f"{value!r}" for value in values))


if __name__ == "__main__":
    main()

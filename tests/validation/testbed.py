"""Hosts in network namespaces with rate-limited links, and this kernel's TCP between them.

Every host is a namespace. Its access link is in a common namespace of all links:

    host i: eth0 --- h<i> = bridge b<i> = c<i> --- relay --- c<j> = bridge b<j> = h<j> --- eth0 :host j
                     ^ downlink rate (htb)  ^ uplink rate (htb)

so both queues of a link are outside the host, as in a home router: a sender sees its uplink fill by losses and
delay alone. Rates count frames with their Ethernet headers (14 bytes), as `tc` counts them. The relay (relay.c)
forwards frames after the latencies of both ends; kernels without `netem` can do that too. Segmentation offload is off,
so queues hold frames of wire size.

The testbed is isolated from other networks. Namespaces carry the id of the process that made them;
they are removed when the testbed is closed, or when the next one is opened if that process has ended.
"""

import contextlib
import ctypes
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

PREFIX = "ddlsim"
PORT = 7000
CLONE_NEWNET = 0x40000000
TOOLS = ("ip", "tc", "ethtool", "cc")
QUEUES = ("pfifo", "fair", "relay_fq_codel", "fq_codel", "fq")

Queue = Literal["pfifo", "fair", "relay_fq_codel", "fq_codel", "fq"]


@dataclass(frozen=True)
class HostLink:
    """A host's access link."""

    uplink_mbps: float
    downlink_mbps: float
    latency_ms: float


def missing() -> str | None:
    """Return why this machine supports no testbed, or None if it does."""
    absent = [tool for tool in TOOLS if shutil.which(tool) is None]
    if absent:
        return f"needs {', '.join(absent)} (Debian: iproute2, ethtool, gcc)"
    if os.geteuid() != 0:
        return "needs root, for network namespaces"
    if not os.path.exists("/dev/net/tun"):
        return "needs /dev/net/tun"
    tried = f"{PREFIX}{os.getpid()}-try"
    try:
        _run("ip", "netns", "add", tried)
        _run("ip", "-n", tried, "link", "add", "x1", "type", "veth", "peer", "name", "x2")
        _run("ip", "netns", "exec", tried, "tc", "qdisc", "add", "dev", "x1", "root", "htb")
    except subprocess.CalledProcessError as error:
        return f"needs network namespaces, veth and htb: {error.stderr.strip()}"
    finally:
        subprocess.run(["ip", "netns", "del", tried], capture_output=True, check=False)
    return None


def has_queue(queue: str) -> bool:
    """Whether this kernel has a queueing discipline."""
    tried = f"{PREFIX}{os.getpid()}-queue"
    try:
        _run("ip", "netns", "add", tried)
        _run("ip", "-n", tried, "link", "add", "x1", "type", "veth", "peer", "name", "x2")
        _run("ip", "netns", "exec", tried, "tc", "qdisc", "add", "dev", "x1", "root", queue)
    except subprocess.CalledProcessError:
        return False
    finally:
        subprocess.run(["ip", "netns", "del", tried], capture_output=True, check=False)
    return True


def congestion_controls() -> list[str]:
    """Return the congestion controls of this kernel."""
    return Path("/proc/sys/net/ipv4/tcp_available_congestion_control").read_text().split()


def remove_stale() -> None:
    """Remove namespaces of testbeds whose process has ended."""
    for name in _run("ip", "netns", "list").split():
        pid = name.removeprefix(PREFIX).partition("-")[0]
        if name.startswith(PREFIX) and pid.isdigit() and not os.path.exists(f"/proc/{pid}"):
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


class Testbed:
    """N hosts and their links; a context manager.

    Args:
        links: one per host.
        queue: of each link: pfifo: one first-in first-out queue; fair: one per connection, served in turn (classes of
            htb by peer and port), and relay_fq_codel: the relay's own (fq_codel.h), for kernels without the next two;
            fq_codel, fq: the kernel's.
        packets: room in each queue; of relay_fq_codel, in all queues of a link together.
        congestion: control of all hosts' TCP.

    Attributes:
        dropped: frames dropped by full queues or CoDel; available once the testbed is closed.
        latest_s: largest delay of a forwarded frame: a stall of the machine.
    """

    __test__ = False

    def __init__(
        self, links: Sequence[HostLink], queue: Queue = "pfifo", packets: int = 100, congestion: str = "cubic"
    ):
        self.links = list(links)
        self._queue, self._packets, self._congestion = queue, packets, congestion.encode()
        self._name = f"{PREFIX}{os.getpid()}"
        self._relay: subprocess.Popen[str] | None = None
        self._under_way: list[subprocess.Popen[bytes]] = []
        self.dropped, self.latest_s = 0, 0.0
        self._home = os.open("/proc/thread-self/ns/net", os.O_RDONLY)

    def __enter__(self) -> "Testbed":
        remove_stale()
        try:
            self._make()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._under_way:
            process.wait(10)
        if self._relay is not None:
            self._relay.stdin.close()
            try:
                dropped, latest_us = self._relay.stdout.read().split()
                self.dropped, self.latest_s = int(dropped), int(latest_us) / 1e6
                self._relay.wait(5)
            except (subprocess.TimeoutExpired, ValueError):
                self._relay.kill()
        for name in _run("ip", "netns", "list").split():
            if name.startswith(f"{self._name}-"):
                subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)

    def namespace(self, host: int) -> str:
        """Return the name of a host's namespace."""
        return f"{self._name}-h{host}"

    @staticmethod
    def address(host: int) -> str:
        """Return a host's address inside the testbed."""
        return f"10.77.{host // 250}.{host % 250 + 1}"

    def socket(self, host: int) -> socket.socket:
        """Return a TCP socket of a host, with the testbed's congestion control."""
        with self.inside(host):
            made = socket.socket()
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, self._congestion)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return made

    @contextlib.contextmanager
    def inside(self, host: int) -> Iterator[None]:
        """Assign sockets that this thread opens in the context to the host."""
        _enter(os.open(f"/run/netns/{self.namespace(host)}", os.O_RDONLY), close=True)
        try:
            yield
        finally:
            _enter(self._home)

    def cut_off(self, host: int) -> None:
        """Disconnect a host's link without waiting."""
        command = ["ip", "-n", f"{self._name}-net", "link", "set", f"h{host}", "down"]
        self._under_way.append(subprocess.Popen(command))

    def _make(self) -> None:
        net, count = f"{self._name}-net", len(self.links)
        _run("ip", "netns", "add", net)
        _sysctl(net, "net.ipv6.conf.all.disable_ipv6=1", "net.ipv6.conf.default.disable_ipv6=1")
        lines = []
        for host in range(count):
            own = self.namespace(host)
            _run("ip", "netns", "add", own)
            lines += [
                f"link add h{host} type veth peer name eth0 address {_mac(host)} netns {own}",
                f"tuntap add dev c{host} mode tap",
                f"link set c{host} txqueuelen 10000",
                f"link add b{host} type bridge mcast_snooping 0",
                *(f"link set {port}{host} master b{host}" for port in "hc"),
                *(f"link set {device}{host} up" for device in "hcb"),
            ]
        _ip(net, lines)
        for host, link in enumerate(self.links):
            self._make_host(host, link)
        self._start_relay(net)

    def _make_host(self, host: int, link: HostLink) -> None:
        net, own = f"{self._name}-net", self.namespace(host)
        _sysctl(own, "net.ipv6.conf.all.disable_ipv6=1", "net.ipv4.tcp_no_metrics_save=1")
        peers = [other for other in range(len(self.links)) if other != host]
        neighbors = [f"neigh add {self.address(peer)} lladdr {_mac(peer)} dev eth0 nud permanent" for peer in peers]
        address = f"addr add {self.address(host)}/16 dev eth0"
        _ip(own, [address, "link set lo up", "link set eth0 up", *neighbors])
        for space, device in ((own, "eth0"), (net, f"h{host}")):
            _run("ip", "netns", "exec", space, "ethtool", "-K", device, "tso", "off", "gso", "off", "gro", "off")
        if self._queue != "relay_fq_codel":
            self._limit(net, f"h{host}", link.downlink_mbps, "src", peers)
            self._limit(net, f"c{host}", link.uplink_mbps, "dst", peers)

    def _limit(self, net: str, device: str, mbps: float, end: str, peers: list[int]) -> None:
        burst = max(3100, round(mbps * 125))  # two frames or 1 ms
        rate = f"rate {mbps}mbit burst {burst} cburst {burst} quantum 1514"
        lines = [f"qdisc add dev {device} root handle 1: htb default 1"]
        lines.append(f"class add dev {device} parent 1: classid 1:1 htb {rate}")
        if self._queue != "fair":
            limit = f"{self._queue} limit {self._packets}"
            lines.append(f"qdisc add dev {device} parent 1:1 handle 10: {limit}")
        else:
            share = f"rate {mbps / 2 / max(1, len(peers))}mbit ceil {mbps}mbit burst 1600 cburst {burst} quantum 1514"
            for peer in peers:
                for port, number in (("dport", 2 * peer + 10), ("sport", 2 * peer + 11)):  # data; acknowledgements
                    lines += [
                        f"class add dev {device} parent 1:1 classid 1:{number:x} htb {share}",
                        f"qdisc add dev {device} parent 1:{number:x} pfifo limit {self._packets}",
                        f"filter add dev {device} parent 1: protocol ip u32 match ip {end} {self.address(peer)}/32 "
                        f"match ip {port} {PORT} 0xffff flowid 1:{number:x}",
                    ]
        _run("ip", "netns", "exec", net, "tc", "-batch", "-", text="\n".join(lines) + "\n")

    def _start_relay(self, net: str) -> None:
        with tempfile.TemporaryDirectory() as folder:
            program = Path(folder) / "relay"
            _run("cc", "-O2", "-o", str(program), str(Path(__file__).with_name("relay.c")), "-lm")
            limit = self._packets if self._queue == "relay_fq_codel" else 0
            links = [
                f"{link.uplink_mbps * 1e6}:{link.downlink_mbps * 1e6}:{link.latency_ms * 1000}" for link in self.links
            ]
            self._relay = subprocess.Popen(
                ["ip", "netns", "exec", net, str(program), str(limit), *links],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            if self._relay.stdout.readline() != "ready\n":
                raise RuntimeError("the relay did not start")


def _mac(host: int) -> str:
    return f"02:00:00:00:{host >> 8:02x}:{host & 255:02x}"


def _run(*command: str, text: str | None = None) -> str:
    return subprocess.run(command, input=text, capture_output=True, text=True, check=True, timeout=60).stdout


def _ip(namespace: str, lines: list[str]) -> None:
    _run("ip", "-n", namespace, "-batch", "-", text="\n".join(lines) + "\n")


def _sysctl(namespace: str, *settings: str) -> None:
    _run("ip", "netns", "exec", namespace, "sysctl", "-qw", *settings)


def _enter(namespace: int, close: bool = False) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        if libc.setns(namespace, CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), "setns")
    finally:
        if close:
            os.close(namespace)

"""The testbed: real TCP between namespaces. Selected by `pytest -m real_network`; needs root."""

import socket
import subprocess
import time

import pytest
from real_flows import RealFlows
from testbed import QUEUES, HostLink, Testbed, congestion_controls, has_queue, missing

pytestmark = [pytest.mark.real_network, pytest.mark.timeout(60)]


@pytest.fixture(scope="module", autouse=True)
def possible():
    reason = missing()
    if reason is not None:
        pytest.skip(reason)


def namespaces():
    return {name for name in subprocess.check_output(["ip", "netns", "list"], text=True).split() if "ddlsim" in name}


def test_a_flow_takes_its_bytes_with_headers_and_its_latency():
    with Testbed([HostLink(20, 20, 10)] * 2) as testbed:
        (taken_s,) = RealFlows(testbed, time_limit_s=10).run([(0.0, 0, 1, 1_000_000)])
    # 1,000,000 bytes in segments of 1448, each 1514 bytes long, 20 ms, and slow start
    assert 0.43 < taken_s < 0.7


def test_two_flows_out_of_one_uplink_share_it():
    with Testbed([HostLink(20, 20, 0)] * 3, queue="fair") as testbed:
        taken_s = RealFlows(testbed, time_limit_s=10).run([(0.0, 0, 1, 500_000), (0.0, 0, 2, 500_000)])
    assert min(taken_s) > 0.3


@pytest.mark.parametrize("queue", QUEUES[1:])
def test_short_flow_does_not_wait_for_a_long_one(queue):
    if queue in ("fq_codel", "fq") and not has_queue(queue):
        pytest.skip(f"this kernel has no {queue}")
    with Testbed([HostLink(10, 10, 1)] * 3, queue=queue, packets=1000) as testbed:
        flows = [(0.0, 0, 1, 1_500_000), (0.5, 0, 2, 10_000)]
        _, short_s = RealFlows(testbed, time_limit_s=10).run(flows)
    # after the long flow's 1 MB of windows it would wait 0.8 s
    assert short_s < 0.6


@pytest.mark.parametrize("congestion", ["cubic", "bbr"])
def test_hosts_have_the_requested_congestion_control(congestion):
    if congestion not in congestion_controls():
        pytest.skip(f"this kernel has no {congestion}")
    with Testbed([HostLink(20, 20, 0)] * 2, congestion=congestion) as testbed:
        used = testbed.socket(0).getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)
        assert used.rstrip(b"\0").decode() == congestion


def test_codel_drops_old_packets():
    with Testbed([HostLink(4, 4, 5)] * 2, queue="relay_fq_codel", packets=10240) as testbed:
        (taken_s,) = RealFlows(testbed, time_limit_s=15).run([(0.0, 0, 1, 1_000_000)])
    assert testbed.dropped > 0
    assert 2.0 < taken_s < 2.6  # 1,000,000 bytes with their headers at 4 Mbit/s take 2.09 s


def test_disconnected_host_receives_nothing():
    with Testbed([HostLink(8, 8, 0)] * 3) as testbed:
        flows = [(0.0, 0, 1, 1_000_000), (0.0, 2, 0, 100_000)]
        taken_s = RealFlows(testbed, time_limit_s=3).run(flows, {1: 0.3})
    assert taken_s[0] is None
    assert taken_s[1] is not None


def test_a_run_ends_at_its_time_limit():
    with Testbed([HostLink(1, 1, 0)] * 2) as testbed:
        begin_s = time.monotonic()
        assert RealFlows(testbed, time_limit_s=1).run([(0.0, 0, 1, 10_000_000)]) == [None]
        assert time.monotonic() - begin_s < 3


def test_failure_leaves_no_namespaces():
    before = namespaces()
    with pytest.raises(ZeroDivisionError), Testbed([HostLink(20, 20, 0)] * 2):
        assert namespaces() > before
        _ = 1 / 0
    assert namespaces() == before


def test_namespaces_of_a_dead_process_are_removed():
    ended = subprocess.Popen(["true"])
    ended.wait()
    subprocess.run(["ip", "netns", "add", f"ddlsim{ended.pid}-h0"], check=True)
    with Testbed([HostLink(20, 20, 0)]):
        assert f"ddlsim{ended.pid}-h0" not in namespaces()

"""The core against SimGrid 4, an independent flow simulator, if it is installed.

SimGrid has no wheels: `pip install simgrid` builds it with Boost and a pybind11 before 3, in a quarter of an hour.
SimGrid is set to plain max-min sharing: model CM02, no TCP window, no cross traffic, no latency (shares depend on it).
"""

import json
import subprocess
import sys

import numpy as np
import pytest

from ddlsim.foundation.native import extension

SIMGRID = """
import json, sys
import simgrid
case = json.load(sys.stdin)
options = ["network/model:CM02", "network/TCP-gamma:0", "network/crosstraffic:0", "precision/timing:1e-12",
           "precision/work-amount:1e-9"]
engine = simgrid.Engine(["case", "--log=root.thres:critical", *(f"--cfg={option}" for option in options)])
engine.load_platform(case["platform"])
ends = [0.0] * len(case["flows"])

def send(i, start_s, size):
    simgrid.this_actor.sleep_until(start_s)
    simgrid.Mailbox.by_name(str(i)).put(i, size)

def receive(i):
    simgrid.Mailbox.by_name(str(i)).get()
    ends[i] = simgrid.Engine.clock

for i, (start_s, src, dst, size) in enumerate(case["flows"]):
    hosts = [engine.host_by_name(f"h{node}") for node in (src, dst)]
    if hasattr(hosts[0], "add_actor"):
        hosts[0].add_actor("send", send, i, start_s, size)
        hosts[1].add_actor("receive", receive, i)
    else:
        simgrid.Actor.create("send", hosts[0], send, i, start_s, size)
        simgrid.Actor.create("receive", hosts[1], receive, i)
engine.run()
print(json.dumps(ends))
"""


def platform(up, down, pairs):
    nodes = range(len(up))
    lines = [
        "<?xml version='1.0'?>",
        '<!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd">',
        '<platform version="4.1"><zone id="all" routing="Full">',
    ]
    lines += [f'<host id="h{node}" speed="1Gf"/>' for node in nodes]
    for name, capacities in (("u", up), ("d", down)):
        lines += [f'<link id="{name}{node}" bandwidth="{capacities[node]}Bps" latency="0s"/>' for node in nodes]
    for src, dst in sorted(pairs):
        links = f'<link_ctn id="u{src}"/><link_ctn id="d{dst}"/>'
        lines.append(f'<route src="h{src}" dst="h{dst}" symmetrical="NO">{links}</route>')
    return "\n".join([*lines, "</zone></platform>"])


@pytest.mark.parametrize("seed", range(3))
def test_finish_times_equal_simgrid(tmp_path, seed):
    pytest.importorskip("simgrid", exc_type=ImportError)
    random = np.random.default_rng(seed)
    nodes, count = 30, 400
    up, down = random.integers(10**5, 10**7, (2, nodes))
    src = random.integers(0, nodes, count)
    dst = (src + random.integers(1, nodes, count)) % nodes
    size, start_ms = random.integers(10**4, 10**7, count), random.integers(0, 60_000, count)
    (tmp_path / "platform.xml").write_text(platform(up, down, set(zip(src, dst, strict=True))))
    flows = np.stack([start_ms / 1e3, src, dst, size], axis=1).tolist()
    flows = [(start_s, int(s), int(d), int(b)) for start_s, s, d, b in flows]
    case = json.dumps({"platform": str(tmp_path / "platform.xml"), "flows": flows})
    process = subprocess.run([sys.executable, "-c", SIMGRID], input=case, capture_output=True, text=True, check=True)
    expected_s = np.array(json.loads(process.stdout.splitlines()[-1]))

    network = extension().FlowNetwork()
    network.add_nodes(up, down, np.zeros(nodes))
    slots = network.send_many(0, src, dst, size, 0, start_ms * 10**6)
    times_ns, ended = network.run()
    ours_s = np.zeros(count)
    ours_s[np.argsort(slots)[ended]] = times_ns / 1e9
    np.testing.assert_allclose(ours_s, expected_s, rtol=1e-8)

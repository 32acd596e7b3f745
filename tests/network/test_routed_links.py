"""Messages routed over a physical network: whole scenarios against closed forms, and paths by hand."""

import json

import networkx as nx
import pytest
from small_network import SmallNetwork

from ddlsim import runs
from ddlsim.foundation.errors import ScenarioError
from ddlsim.network.link_table import with_server
from ddlsim.network.routed_links import Routed, Routes
from ddlsim.scenario import from_mapping

VALUES = 250_000  # a million bytes; a link of 8 Mbit/s carries them in a second


@pytest.fixture
def network(tmp_path):
    """Write an edge list `node node bandwidth_mbps latency_ms`; return its path."""

    def write(*edges: str) -> str:
        (tmp_path / "net.txt").write_text("\n".join(edges))
        return str(tmp_path / "net.txt")

    return write


def round_times_s(tmp_path, clusters, topology, links, fidelity="flow", rounds=1) -> list[float]:
    """Return when the last node completed each round of Epidemic Learning; only messages take time."""
    scenario = from_mapping(
        {
            "rounds": rounds,
            "nodes": {"clusters": [clusters]},
            "learning": "none",
            "algorithm": {"name": "el", "final_all_reduce": False},
            "model": {"name": "sizes", "core": VALUES, "head": 0},
            "data": {"name": "fashion-mnist-mini"},
            "training": {"learning_rate": 1.0},
            "topology": topology,
            "network": {"header_bytes": 0, "fidelity": fidelity, "links": {"name": "routed", **links}},
            "devices": {"name": "constant", "step_time_s": 0.0},
        }
    )
    summary = runs.run(scenario, out=tmp_path / "run")
    return [row["last_s"] for row in summary["timetable"]][:rounds]


LINE = ("0 1 8 0", "1 2 8 0", "2 3 8 0")
RING = {"name": "ring"}


def test_parking_lot_shares_equal_the_closed_form(tmp_path, network):
    # The ring's message from 0 to 3 crosses the whole line and shares each of its links with one other message.
    assert round_times_s(tmp_path, 4, RING, {"path": network(*LINE)}, rounds=2) == pytest.approx([2, 4])


def test_links_without_access_limits_are_as_full_as_the_physical_ones(tmp_path, network):
    round_times_s(tmp_path, 4, RING, {"path": network(*LINE)}, rounds=2)
    rows = [json.loads(line) for line in (tmp_path / "run" / "links.jsonl").read_text().splitlines()]
    # each sends 4 MB in 4 s; end nodes use one link of 1 MB/s, inner nodes two
    for name in ("uplink_utilization", "downlink_utilization"):
        assert [row[name] for row in rows] == pytest.approx([1, 1 / 2, 1 / 2, 1])


def test_both_directions_share_a_link_of_half_duplex(tmp_path, network):
    assert round_times_s(tmp_path, 4, RING, {"path": network(*LINE), "duplex": "half"}) == pytest.approx([4])


def test_parking_lot_with_a_narrow_place_in_the_middle(tmp_path, network):
    narrow = network("0 1 8 0", "1 2 4 0", "2 3 8 0")
    assert round_times_s(tmp_path, 4, RING, {"path": narrow}) == pytest.approx([4])


def test_latencies_of_the_path_add_up(tmp_path, network):
    far = network("0 1 8 100", "1 2 8 20", "2 3 8 3")
    assert round_times_s(tmp_path, 4, RING, {"path": far}, "latency") == pytest.approx([0.123])


def routed(network, clusters=3, **keys):
    edges = network("0 1 8 10", "1 2 8 20", "2 3 8 30", "2 9 8 5")
    return with_server(Routed(path=edges, hosts=(0, 1, 3), **keys).draw(clusters, 0), 1.0)


def test_a_server_sits_where_the_latencies_to_all_hosts_have_the_smallest_sum(network):
    links = routed(network)  # at 1: 10 + 0 + 50 ms; at 2: 30 + 20 + 30 ms
    assert [links.latency_s(node, 3) for node in range(3)] == pytest.approx([0.010, 0.0, 0.050])
    assert [links.latency_s(3, node) for node in range(3)] == pytest.approx([0.010, 0.0, 0.050])


def test_server_sits_at_its_named_host_and_shares_its_links(network):
    links = routed(network, server_host=9)
    assert [links.latency_s(node, 3) for node in range(3)] == pytest.approx([0.035, 0.025, 0.035])
    assert links.route(0, 3)[:2] == links.route(0, 2)[:2] and len(links.route(0, 3)) == 3


def test_unknown_server_host_is_an_error(network):
    with pytest.raises(ScenarioError, match=r"links\.server_host: .* has no node 7"):
        routed(network, server_host=7)
    apart = network("0 1 8 0", "2 3 8 0")
    with pytest.raises(ScenarioError, match="no path leads from 0 to 3"):
        Routed(path=apart, hosts=(0, 1), server_host=3).draw(2, 0)


def test_access_links_of_nodes_count_as_well(tmp_path, network):
    slow = {"path": network(*LINE), "uplink_mbps": 1.6, "downlink_mbps": 8}  # two messages share 200,000 bytes/s
    assert round_times_s(tmp_path, 4, RING, slow) == pytest.approx([10])


def test_nodes_sit_at_hosts_and_meet_on_the_way_through_routers(tmp_path, network):
    # Two sites of two nodes behind routers 10 and 20; of the complete graph 4 messages each way cross the middle.
    dumbbell = network("10 20 8 0", "1 10 80 0", "2 10 80 0", "3 20 80 0", "4 20 80 0")
    links = {"path": dumbbell, "hosts": [1, 2, 3, 4]}
    assert round_times_s(tmp_path, 4, {"name": "complete"}, links) == pytest.approx([4])


def test_nodes_at_one_host_need_no_link(tmp_path, network):
    links = {"path": network("0 1 8 10"), "hosts": [0, 0]}
    assert round_times_s(tmp_path, 2, RING, links)[0] == pytest.approx(0, abs=1e-5)


def at_hosts(file, *hosts, **keys):
    return Routed(path=file, hosts=hosts, **keys).draw(len(hosts), 0)


@pytest.mark.parametrize("duplex", ["full", "half"])
def test_without_access_links_utilization_uses_the_links_of_the_host(network, duplex):
    net = SmallNetwork(links=at_hosts(network(*LINE), 0, 1, 2, 3, duplex=duplex))
    net.send(1, 3, 1_000_000)
    use = net.use(until_s=4)  # in the middle two links of 1 MB/s each, at the ends one
    assert use.uplink_utilization.tolist() == pytest.approx([0, 1 / 8, 0, 0])
    assert use.downlink_utilization.tolist() == pytest.approx([0, 0, 0, 1 / 4])


def test_messages_inside_a_host_do_not_use_its_links(network):
    net = SmallNetwork(links=at_hosts(network(*LINE), 0, 0, 1))
    net.send(0, 1, 5_000_000)
    net.send(0, 2, 1_000_000)
    use = net.use(until_s=4)
    assert use.sent_bytes[0] == 6_000_000
    assert use.uplink_utilization.tolist() == pytest.approx([1 / 4, 0, 0])
    assert use.downlink_utilization.tolist() == pytest.approx([0, 0, 1 / 8])


def test_utilization_uses_an_access_link_with_a_capacity(network):
    table = at_hosts(network(*LINE), 0, 1, 2, 3, uplink_mbps=4)
    assert table.uplink_bytes_per_s.tolist() == [5e5] * 4
    assert table.site_bytes_per_s.tolist() == [[float("inf")] * 4, [1e6, 2e6, 2e6, 1e6]]
    assert with_server(table, 1.0).site_bytes_per_s[:, 4].tolist() == [float("inf")] * 2


def test_utilization_follows_changing_links(network):
    table = at_hosts(network(*LINE), 0, 0, 1)
    net = SmallNetwork(3, capacity=1e6)
    for start_s in (0, 2):  # 1 s each at first; later messages stay at the host
        net.send(0, 1, 1_000_000, at_s=start_s)
    net.at(2, lambda: net.network.use_links(table))
    net.send(0, 2, 1_000_000, at_s=3)
    use = net.use(until_s=4)  # of 2 s at 1 MB/s and 2 s of the link at host 0
    assert use.uplink_utilization[0] == pytest.approx(2 / 4)
    assert use.downlink_utilization.tolist() == pytest.approx([0, 1 / 4, 1 / 6])


def routes(graph: nx.Graph) -> Routes:
    return Routes(graph, sorted(graph), full_duplex=True)


def physical(*edges: tuple[int, int, float]) -> nx.Graph:
    graph = nx.Graph()
    for one, other, latency_ms in edges:
        graph.add_edge(one, other, bandwidth_mbps=8.0, latency_ms=latency_ms)
    return graph


def test_the_path_has_least_latency_then_fewest_edges():
    graph = physical((0, 1, 1.0), (1, 2, 1.0), (0, 2, 2.0), (2, 3, 5.0), (0, 3, 7.1))
    found = routes(graph)
    edges = {(0, 1): 0, (1, 0): 1, (0, 2): 2, (2, 0): 3, (0, 3): 4, (1, 2): 6, (2, 3): 8, (3, 2): 9}
    assert found.links(0, 2) == (edges[0, 2],)
    assert found.links(0, 3) == (edges[0, 2], edges[2, 3])
    assert found.links(3, 0) == (edges[3, 2], edges[2, 0])
    assert found.latency_s(3, 0) == pytest.approx(0.007)


def test_paths_do_not_depend_on_the_order_of_edges_in_the_file():
    edges = [(0, 1, 0.1), (1, 3, 0.2), (0, 2, 0.2), (2, 3, 0.1), (3, 4, 1.0)]
    one, other = routes(physical(*edges)), routes(physical(*reversed(edges)))
    pairs = [(src, dst) for src in range(5) for dst in range(5)]
    assert [one.links(*pair) for pair in pairs] == [other.links(*pair) for pair in pairs]


@pytest.mark.parametrize(
    ("edges", "keys", "message"),
    [
        (["0 1 8 0", "1 2"], {}, "expected bandwidth_mbps of 0 to below 5e.08 on every edge.*got None between 1 and 2"),
        (["0 1 8 0", "1 2 8 -1"], {}, "expected latency_ms of 0 to below .* got -1.0 between 1 and 2"),
        (["0 1 8 0"], {}, "links.path: expected 3 hosts, one per node, got 2"),
        (["0 1 8 0"], {"hosts": (0, 1)}, "links.hosts: expected 3 hosts"),
        (["0 1 8 0"], {"hosts": (0, 1, 9)}, "links.hosts: .* has no node 9"),
        (["0 1 8 0", "2 3 8 0"], {}, "no path leads from 0 to 2"),
        (["0 1 8 0", "1 2 fast"], {}, "links.path: .*net.txt:2: expected"),
    ],
)
def test_unsuitable_networks_are_reported(network, edges, keys, message):
    with pytest.raises(ScenarioError, match=message):
        Routed(path=network(*edges), **keys).draw(3, seed=0)


def test_missing_file_is_reported_and_graphml_is_read(tmp_path):
    with pytest.raises(ScenarioError, match=r"links\.path: no file"):
        Routed(path="nowhere.graphml", format="graphml").draw(2, seed=0)
    nx.write_graphml(physical((0, 1, 2.5)), tmp_path / "net.graphml")
    table = Routed(path=str(tmp_path / "net.graphml"), format="graphml").draw(2, seed=0)
    assert (table.shared_bytes_per_s, list(table.route(1, 0)), table.latency_s(0, 1)) == ([1e6, 1e6], [1], 0.0025)

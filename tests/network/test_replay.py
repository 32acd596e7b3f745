import pytest

from ddlsim.foundation.errors import ScenarioError
from ddlsim.network.replay import replay

LINKS = "node,uplink_mbps,downlink_mbps,latency_ms\n7,8,8,10\n1,8,8,10\n3,8,0,10\n"


@pytest.fixture
def replayed(tmp_path):
    def run(flows, links=LINKS):
        (tmp_path / "flows.csv").write_text(flows)
        (tmp_path / "links.csv").write_text(links)
        return replay(str(tmp_path / "flows.csv"), str(tmp_path / "links.csv"))

    return run


def test_flows_end_as_computed_by_hand_in_the_order_of_the_file(replayed):
    rows = replayed("start_s,src,dst,bytes\n0.5,3,1,250000\n# a comment\n0,7,1,1000000\n")
    # 0.02 s latency; the long flow is alone until 0.52 s, then both get 500 kB/s until 1.02 s
    assert [row.finish_s for row in rows] == [1.02, 1.27]
    assert vars(rows[0]) == {"start_s": 0.5, "src": 3, "dst": 1, "bytes": 250000, "finish_s": 1.02}


def test_a_flow_over_a_link_of_capacity_zero_never_ends(replayed):
    assert [row.finish_s for row in replayed("start_s,src,dst,bytes\n0,1,3,1\n0,1,3,0\n")] == [None, 0.02]


def test_no_flows_give_no_rows(replayed):
    assert replayed("start_s,src,dst,bytes\n") == []


@pytest.mark.parametrize(
    ("flows", "problems"),
    [
        ("start_s,src,dst,bytes\n0,1,9,10\n", ["flows.csv:2: dst: expected a node of", "got 9"]),
        ("start_s,src,dst,bytes\n0,1,3,5e5\n-1,1,3,1\n", ["flows.csv:2: bytes: expected", "flows.csv:3: start_s"]),
        ("start_s,src,dst,bytes\n0,1,3\n", ["flows.csv:2: expected 4 values (start_s,src,dst,bytes), got 3"]),
    ],
)
def test_wrong_rows_are_named_with_file_and_line(replayed, flows, problems):
    with pytest.raises(ScenarioError) as error:
        replayed(flows)
    assert all(problem in str(error.value) for problem in problems)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ScenarioError, match=r"nothing\.csv: expected a CSV file with columns"):
        replay(str(tmp_path / "nothing.csv"), str(tmp_path / "nothing.csv"))


ROUTED = "node,uplink_mbps,downlink_mbps,latency_ms\n0,80,80,10\n1,80,80,10\n2,80,80,10\n"


@pytest.fixture
def routed(tmp_path):
    def run(flows, physical, name="physical.txt"):
        for file, text in (("flows.csv", flows), ("links.csv", ROUTED), (name, physical)):
            (tmp_path / file).write_bytes(text.encode("utf-8", "surrogateescape"))
        return replay(*(str(tmp_path / file) for file in ("flows.csv", "links.csv", name)))

    return run


def test_flows_share_the_links_of_a_physical_network_on_their_way(routed):
    # 0 and 1 meet at router 9, whose link to 2 carries a million bytes per second
    rows = routed("start_s,src,dst,bytes\n0,0,2,500000\n0,1,2,500000\n0,0,1,0\n", "0 9 80 5\n1 9 80 5\n9 2 8 25\n")
    assert [row.finish_s for row in rows] == pytest.approx([1.05, 1.05, 0.03])


def test_node_missing_from_the_physical_network_is_named(routed):
    with pytest.raises(ScenarioError, match=r"physical\.txt has no node 2"):
        routed("start_s,src,dst,bytes\n", "0 1 8 0\n")


@pytest.mark.parametrize(
    ("links", "message"),
    [
        ("0,8,8,1e300\n", "links.csv:2: latency_ms: expected a finite number from 0 to below 1e+09, got '1e300'"),
        ("0,1e308,8,0\n", "links.csv:2: uplink_mbps: expected a finite number from 0 to below 5e+08, got '1e308'"),
        ("0,1_000,8,0\n", "links.csv:2: uplink_mbps: expected a finite number from 0 to below 5e+08, got '1_000'"),
        ("", "links.csv: expected a row for every node of"),
        ("0,8,8," + "9" * 140_000, "links.csv: expected a CSV file with columns"),
        ("0,8,8," + "9" * 100_000, "links.csv:2: latency_ms: expected a finite number from 0 to below 1e+09, got '999"),
    ],
)
def test_error_on_impossible_links_is_short(replayed, links, message):
    with pytest.raises(ScenarioError) as error:
        replayed("start_s,src,dst,bytes\n0,0,0,1\n", "node,uplink_mbps,downlink_mbps,latency_ms\n" + links)
    assert message in str(error.value)
    assert "\n" not in str(error.value) and len(str(error.value)) < 500


def test_error_lists_the_first_wrong_rows_and_counts_the_rest(replayed):
    with pytest.raises(ScenarioError) as error:
        replayed("start_s,src,dst,bytes\n" + "0,1,9,10\n" * 50)
    assert len(str(error.value).splitlines()) == 21
    assert str(error.value).endswith("\nand 30 more like these")


def test_flow_longer_than_the_clock_never_ends(replayed):
    rows = replayed(
        f"start_s,src,dst,bytes\n0,0,0,1\n0,0,1,{2**62 - 1}\n0,0,2,0\n",
        "node,uplink_mbps,downlink_mbps,latency_ms\n0,1,1,0\n1,1,1,0\n2,1,1,0\n",
    )
    assert [row.finish_s for row in rows] == [0, None, 0]


@pytest.mark.parametrize(
    ("physical", "message"),
    [
        ("0 9 80 1e300\n1 9 80 5\n9 2 8 25\n", "--physical: expected latency_ms of 0 to below 1e+09 on every edge of"),
        ("0 1 8 0\n", "--physical: "),
        ("0 1 8\n", "--physical: "),
        ("\udcff", "--physical: "),
    ],
)
def test_faults_of_a_physical_network_name_the_option(routed, physical, message, tmp_path):
    physical.encode("utf-8", "surrogateescape")
    with pytest.raises(ScenarioError) as error:
        routed("start_s,src,dst,bytes\n0,0,1,1\n", physical)
    assert str(error.value).startswith(message)
    assert "physical.txt" in str(error.value)

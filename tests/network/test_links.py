from dataclasses import dataclass

import numpy as np
import pytest

from ddlsim.assembly.draws import links_drawn
from ddlsim.foundation.errors import ScenarioError
from ddlsim.network import LINKS
from ddlsim.network.access_links import (
    INTERNET_LATENCY_MS,
    Fiber,
    Internet,
    Links,
    Mix,
    MixPart,
    Mobile4G,
    Mobile5G,
    Table,
    Uniform,
    Wifi6,
)
from ddlsim.network.link_table import LinkTable, latencies, with_server


def test_uniform_converts_mbit_per_s_and_ms():
    links = Uniform(uplink_mbps=8, downlink_mbps=16, latency_ms=20).draw(2, seed=0)
    assert links.uplink_bytes_per_s.tolist() == [1e6, 1e6]
    assert links.downlink_bytes_per_s.tolist() == [2e6, 2e6]
    assert links.latency_s == 0.02


@pytest.mark.parametrize("preset", [Mobile4G(), Mobile5G(), Wifi6()])
def test_drawn_downlinks_have_the_measured_quantiles(preset):
    drawn = preset.draw(2000, seed=1).downlink_bytes_per_s * 8 / 1e6
    tenths = [preset.measured_mbps[i] for i in (2, 4, 6, 8, 10)]  # p10, p30, p50, p70, p90
    for percentile, known in zip((10, 30, 50, 70, 90), tenths, strict=True):
        share_below = np.mean(drawn < known)
        assert share_below == pytest.approx(percentile / 100, abs=0.04)
    assert drawn.min() >= preset.measured_mbps[0] * 0.999
    assert drawn.max() <= preset.measured_mbps[-1] * 1.001


def test_uplink_is_the_stated_share_of_the_downlink():
    links = Mobile4G(uplink_ratio=0.5).draw(5, seed=0)
    assert np.allclose(links.uplink_bytes_per_s, 0.5 * links.downlink_bytes_per_s)


@pytest.mark.parametrize("name", ["4g", "5g", "wifi6", "fiber", "datacenter"])
def test_adding_a_node_changes_no_other_nodes_links(name):
    few, more = (LINKS[name]().draw(count, seed=4) for count in (5, 6))
    assert few.downlink_bytes_per_s.tolist() == more.downlink_bytes_per_s[:5].tolist()
    assert few.latency_s.shape == (5,)


def test_another_seed_draws_other_links():
    first, second = (Mobile5G().draw(4, seed).downlink_bytes_per_s.tolist() for seed in (0, 1))
    assert first != second


def test_internet_latency_is_symmetric_and_has_the_measured_quantiles():
    latency_s = Internet().draw(60, seed=2).latency_s
    drawn = [latency_s(src, dst) for src in range(60) for dst in range(src)]
    assert latency_s(3, 7) == latency_s(7, 3)
    assert np.median(drawn) * 1e3 == pytest.approx(INTERNET_LATENCY_MS[6], rel=0.1)
    assert Internet().draw(60, seed=3).latency_s(3, 7) != latency_s(3, 7)


def test_mix_without_parts_is_an_error():
    assert list(Mix(parts=()).problems(5, seed=0)) == [(("parts",), "expected at least one {kind, share}, got none")]


def test_a_mix_gives_each_kind_its_share_of_the_nodes():
    mix = Mix(parts=(MixPart(kind="4g", share=1), MixPart(kind="fiber", share=3)))
    links = mix.draw(1000, seed=0)
    fiber = links.latency_s == Fiber().draw(1, 0).latency_s[0]
    assert np.mean(fiber) == pytest.approx(0.75, abs=0.05)
    assert set(links.uplink_bytes_per_s[fiber]) == {1.25e8}
    assert links.latency_s[~fiber].tolist() == [0.025] * np.sum(~fiber)


def test_table_sets_links_and_later_capacities_of_every_node(tmp_path):
    (tmp_path / "links.csv").write_text("node,uplink_mbps,downlink_mbps,latency_ms\n1,8,16,5\n0,80,160,10\n")
    (tmp_path / "changes.csv").write_text("time_s,node,uplink_mbps,downlink_mbps\n9,1,0,0\n2,0,8,8\n")
    links = Table(path=str(tmp_path / "links.csv"), changes=str(tmp_path / "changes.csv")).draw(2, seed=0)
    assert links.uplink_bytes_per_s.tolist() == [1e7, 1e6]
    assert links.latency_s.tolist() == [0.01, 0.005]
    assert [(change.time_s, change.node) for change in links.changes] == [(2, 0), (9, 1)]
    assert [change.uplink_bytes_per_s for change in links.changes] == [1e6, 0]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "node,uplink_mbps,downlink_mbps,latency_ms\n0,8,8,5\n0,8,8,5\n",
            r"links.csv:3: node: expected one row per node",
        ),
        (
            "node,uplink_mbps,downlink_mbps,latency_ms\n0,8,8,5\n",
            r"expected a row for each of 2 nodes, got none for node 1",
        ),
        ("node,uplink_mbps,downlink_mbps,latency_ms\n0,8,8,5\n1,-8,8,nan\n", r"links.csv:3: uplink_mbps: expected"),
        ("node,up\n", r"links.csv:1: expected the columns node,uplink_mbps,downlink_mbps,latency_ms, got node,up"),
        ("", r"got an empty file"),
    ],
)
def test_error_on_a_wrong_table_names_line_and_expected_value(tmp_path, text, problem):
    (tmp_path / "links.csv").write_text(text)
    with pytest.raises(ScenarioError, match=problem):
        Table(path=str(tmp_path / "links.csv")).draw(2, seed=0)


@dataclass(frozen=True, kw_only=True)
class Own(Links):
    """User-defined links."""

    table: object = None

    def draw(self, num_nodes, seed):
        return self.table


def table(up=(1.0, 2.0), down=(1.0, 2.0), latency_s=0.0, **more):
    return LinkTable(np.array(up), np.array(down), latency_s, **more)


@pytest.mark.parametrize(
    ("drawn", "text"),
    [
        (None, "returns nothing (None), expected a ddlsim.network.LinkTable"),
        (table(up=(1.0,)), "uplink_bytes_per_s: expected an array [2], one number per node, got [1]"),
        (table(down=(1.0, np.nan)), "downlink_bytes_per_s of node 1: expected numbers of 0 or more, got nan"),
        (table(up=(-1.0, 1.0)), "uplink_bytes_per_s of node 0: expected numbers of 0 or more, got -1.0"),
        (table(latency_s=np.nan), "latency_s: expected finite numbers of 0 or more, got nan"),
        (
            table(latency_s=np.array([0.1, np.nan])),
            "latency_s of node 1: expected finite numbers of 0 or more, got nan",
        ),
        (table(latency_s=[-0.1, 0.1]), "latency_s of node 0: expected finite numbers of 0 or more, got -0.1"),
        (table(latency_s=np.zeros(3)), "latency_s: expected one number, an array [2] or [2, 2], or a function"),
        (table(shared_bytes_per_s=(np.nan,)), "shared_bytes_per_s of link 0: expected numbers of 0 or more, got nan"),
    ],
)
def test_invalid_links_are_errors(drawn, text):
    with pytest.raises(ScenarioError) as raised:
        links_drawn(Own(table=drawn), 2, 0)
    assert str(raised.value).startswith("links: draw of Own") and text in str(raised.value)


def test_latency_to_a_server_is_the_median_of_the_node_s_latencies():
    matrix_s = [[0.0, 0.1, 0.3, 0.4], [0.2, 0.0, 0.5, 0.6], [0.1, 0.2, 0.0, 0.9], [0.7, 0.8, 0.9, 0.0]]
    drawn = links_drawn(Own(table=table((1.0,) * 4, (1.0,) * 4, latency_s=matrix_s)), 4, 0)
    latency_s = with_server(drawn, 1.0).latency_s
    assert [[latency_s(src, dst) for dst in range(4)] for src in range(4)] == matrix_s
    assert [latency_s(node, 4) for node in range(4)] == [0.3, 0.5, 0.2, 0.8]
    assert [latency_s(4, node) for node in range(4)] == [0.2, 0.2, 0.5, 0.6]


def test_server_of_one_node_has_latency_0():
    drawn = links_drawn(Own(table=table((1.0,), (1.0,), latency_s=lambda src, dst: 0.5)), 1, 0)
    assert with_server(drawn, 1.0).latency_s(0, 1) == 0.0


def test_a_server_is_one_more_site_of_the_internet():
    nodes, more = Internet().draw(5, 3), Internet().draw(6, 3)
    beside = with_server(nodes, 1.0).latency_s
    pairs = [(src, dst) for src in range(6) for dst in range(6) if src != dst]
    assert [beside(*pair) for pair in pairs] == [more.latency_s(*pair) for pair in pairs]
    assert min(beside(*pair) for pair in pairs) > 0


@pytest.mark.parametrize("seconds", [np.nan, -0.1, np.inf])
def test_invalid_latency_of_a_function_names_its_nodes(seconds):
    found = latencies(lambda src, dst: seconds, 2)
    with pytest.raises(ScenarioError, match=rf"links: latency_s\(0, 1\): expected seconds of 0 or more, got {seconds}"):
        found.of(0, 1)

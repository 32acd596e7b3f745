"""Compression and loss as options of `network`."""

import pytest

from ddlsim.cli.listing import rows_of
from ddlsim.network.messages.compression import TopK
from ddlsim.scenario import json_schema, load


def test_compression_is_a_named_part_of_the_network(write):
    assert load(write(), ["network.compression={name: top_k, fraction: 0.2}"]).network.compression == TopK(fraction=0.2)
    assert load(write(), ["network.compression.name=top_k"]).network.compression == TopK()


@pytest.mark.parametrize(
    ("option", "message"),
    [
        (
            "network.compression={name: topk}",
            "network.compression.name: unknown name 'topk'. Did you mean 'top_k'? "
            "Known: none, float16, int8, top_k, random_k",
        ),
        (
            "network.compression={name: top_k, fraction: 0}",
            "network.compression.fraction: expected a number above 0, got 0",
        ),
        ("network.drop_probability=1", "network.drop_probability: expected a number below 1, got 1"),
        ("network.timeout_s=0", "network.timeout_s: expected a number above 0, got 0"),
        ("network.on_drop=resend", "network.on_drop: expected one of retransmit, drop, got 'resend'"),
    ],
)
def test_wrong_options_are_errors(problems, option, message):
    assert problems(sets=[option]) == [f"--set {option}: {message}"]


def test_list_and_schema_know_all_compressions():
    names = [row["name"] for row in rows_of("compressions")]
    assert names == ["none", "float16", "int8", "top_k", "random_k"]
    assert all(row["about"] for row in rows_of("compressions"))
    assert json_schema()["$defs"]["compression"]["properties"]["name"]["anyOf"][0]["enum"] == names


@pytest.mark.parametrize("name", ["4g", "5g", "wifi6", "fiber", "datacenter", "internet-latency"])
def test_presets_of_links_have_names_of_connections(write, name):
    links = load(write(), [f"network.links={{name: {name}}}"]).network.links.draw(8, seed=0)
    assert (links.uplink_bytes_per_s > 0).all() and (links.downlink_bytes_per_s > 0).all()

"""Utilization, queueing and causes of bytes, from links.jsonl."""

import json

import pytest

from ddlsim.report.reading import read
from ddlsim.report.run_report import report
from ddlsim.report.summary import summarize

ZERO = {
    "push_bytes": 0,
    "request_bytes": 0,
    "response_bytes": 0,
    "ack_bytes": 0,
    "aborted_bytes": 0,
    "lost_bytes": 0,
    "unused_bytes": 0,
    "in_flight_bytes": 0,
}
NODES = [
    {
        "node": 0,
        "uplink_utilization": 0.5,
        "downlink_utilization": 0.1,
        "sent_bytes": 400,
        "received_bytes": 10,
        **ZERO,
        "push_bytes": 390,
        "lost_bytes": 10,
        "messages_received": 1,
        "queueing_s": 0.004,
        "max_queueing_s": 0.004,
    },
    {
        "node": 1,
        "uplink_utilization": 0.2,
        "downlink_utilization": 0.3,
        "sent_bytes": 408,
        "received_bytes": 10,
        **ZERO,
        "push_bytes": 401,
        "aborted_bytes": 7,
        "messages_received": 3,
        "queueing_s": 0.0,
        "max_queueing_s": 0.0,
    },
    {
        "node": 2,
        "uplink_utilization": None,
        "downlink_utilization": 0.2,
        "sent_bytes": 402,
        "received_bytes": 10,
        **ZERO,
        "response_bytes": 300,
        "in_flight_bytes": 102,
        "messages_received": 0,
        "queueing_s": None,
        "max_queueing_s": 0.0,
    },
]


@pytest.fixture
def with_links(make_run):
    directory = make_run()
    (directory / "links.jsonl").write_text("".join(json.dumps(node) + "\n" for node in NODES))
    return directory


def test_summary_holds_use_of_links_and_queueing(with_links):
    assert summarize(with_links)["links"] == {
        "uplink_utilization": {"mean": pytest.approx(0.35), "median": pytest.approx(0.35), "max": 0.5},
        "downlink_utilization": {"mean": pytest.approx(0.2), "median": pytest.approx(0.2), "max": 0.3},
        "queueing_s": {"mean": 0.001, "max": 0.004},
    }


def test_summary_has_bytes_by_kind_and_cause(with_links):
    found = summarize(with_links)["bytes"]
    assert found["of_use"] == {"push": 791, "request": 0, "response": 300, "ack": 0}
    assert found["wasted_for"] == {"aborted": 7, "lost": 10, "unused": 0}


def test_report_shows_nonzero_link_totals(with_links):
    text = report([with_links])
    assert "uplink utilization %" in text and "mean 35.00, median 35.00, max 50.00" in text
    assert "mean 1 ms, max 4 ms" in text
    assert "wasted: lost by the network" in text and "arrived, not used" not in text
    assert "in flight at the end" in text


def test_totals_alone_have_means_but_no_spread(make_run):
    directory = make_run()
    total = {**NODES[0], "node": None, "nodes": 3}
    (directory / "links.jsonl").write_text(json.dumps(total) + "\n")
    assert summarize(directory)["links"]["uplink_utilization"] == {"mean": 0.5, "median": None, "max": None}
    assert "mean 50.00\n" in report([directory])


def test_older_runs_have_no_links_file(make_run):
    directory = make_run()
    assert read(directory).links is None
    assert summarize(directory)["links"] is None
    assert "Links" not in report([directory])

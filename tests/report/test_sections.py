"""The page of one run, computed from hand-made records."""

import numpy as np
import pytest

from ddlsim.foundation.errors import RecordsDamaged
from ddlsim.report.html.page import run_page
from ddlsim.report.reading import read
from ddlsim.report.sections.about import blocks_of
from ddlsim.report.sections.churn import online_shares
from ddlsim.report.sections.quality import fairness, over_rounds


def of(page, key):
    return next(section for section in page.sections if section.key == key)


def test_page_of_a_run_has_a_section_for_all_its_records(make_run):
    page = run_page(read(make_run(paper=make_run.PAPER)))
    assert [section.key for section in page.sections] == [
        "quality",
        "fairness",
        "nodes",
        "published",
        "pairs",
        "causes",
        "totals",
        "clusters",
        "heads",
        "agreement",
        "summary",
        "scenario",
        "command",
        "environment",
    ]
    assert page.loud == []


def test_quality_has_means_ranges_and_three_axes(make_run):
    figure = over_rounds(read(make_run())).figure
    assert [axis.name for axis in figure.x] == ["round", "simulated time", "bytes sent by all nodes"]
    assert figure.x[0].values.tolist() == [2, 4]
    majority, minority, everyone = figure.series
    assert majority.values.tolist() == [0.6, 0.9] and majority.low.tolist() == [0.6, 0.9]
    assert minority.values.tolist() == [0.4, 0.6] and minority.low is None
    assert np.allclose(everyone.values, [1.6 / 3, 2.4 / 3])
    assert figure.marks[0].value == 0.7


def test_fairness_over_rounds_ends_with_the_value_of_the_summary(make_run):
    records = read(make_run())
    (section,) = fairness(records)
    tiles = {tile.name: tile for tile in run_page(records).tiles}
    values = [series.values[-1] for series in section.figure.series]
    assert tiles["Fair accuracy %"].value == f"{100 * values[0]:.2f}"


def test_killed_run_gives_its_records_and_one_note(make_run):
    directory = make_run(status="running", traffic=None)
    with (directory / "metrics.jsonl").open("a") as file:
        file.write('{"time_s": 99, "node"')
    page = run_page(read(directory))
    assert of(page, "quality").figure.x[0].values.tolist() == [2, 4]
    assert page.loud == [
        "NOT FINISHED: status running, evaluated up to round 4; not (yet) written, so that what they hold is missing "
        "below: communication.jsonl, links.jsonl, contents.jsonl"
    ]


def test_run_without_any_row_gives_a_page(make_run):
    page = run_page(read(make_run(rows=[], traffic=None, status="failed")))
    assert [section.key for section in page.sections] == ["summary", "scenario", "command", "environment"]


def test_blocks_hold_nodes_of_one_cluster():
    blocks = blocks_of(np.array([0] * 5 + [1] * 2), most=4)
    assert [block.tolist() for block in blocks.nodes] == [[0, 1], [2, 3], [4], [5, 6]]
    assert (blocks.labels, blocks.borders) == (["0–1", "2–3", "4", "5–6"], [3])
    assert blocks.means(np.array([1.0, 3, np.nan, 5, 6, np.nan, np.nan])).tolist()[:3] == [2, 5, 6]
    assert blocks.most_common(np.array([1, 1, 0, -1, 2, -1, -1])).tolist() == [1, 0, 2, -1]


def test_blocks_of_pairs_keep_the_sum():
    matrix = np.arange(25.0).reshape(5, 5)
    found = blocks_of(np.zeros(5, int), most=3).pairs(matrix)
    assert found.tolist() == [
        [0 + 1 + 5 + 6, 2 + 3 + 7 + 8, 4 + 9],
        [10 + 11 + 15 + 16, 12 + 13 + 17 + 18, 14 + 19],
        [41, 45, 24],
    ]


def rows_of(*entries):
    from ddlsim.report.records import Rows

    time_s, node, value = map(np.array, zip(*entries, strict=True))
    return Rows(time_s.astype(float), node, np.zeros(len(node), int), value.astype(float))


def test_share_of_time_online():
    shares = online_shares(rows_of((1.0, 0, 0), (3.5, 0, 1), (2.0, 1, 1)), 3, np.arange(0.0, 6.0))
    assert shares[0].tolist() == [1, 0, 0, 0.5, 1]  # leaves at 1, returns at 3.5
    assert shares[1].tolist() == [0, 0, 1, 1, 1]  # joins at 2
    assert shares[2].tolist() == [1, 1, 1, 1, 1]


def test_scenario_marks_differences_from_defaults(make_run):
    page = run_page(read(make_run()), {"seed": 0, "evaluation.every": 40})
    table = of(page, "scenario").table
    by_key = {row[0]: row[1:] for row in table.rows}
    assert by_key["seed"] == ("0", "") and by_key["evaluation.every"] == ("2", "40")
    assert by_key["rounds"] == ("4", "(no default)")
    assert [table.rows[i][0] for i in table.strong] == ["evaluation.every"]


def contacts(*rows):
    return "".join(
        f'{{"round":{number},"src":{src},"dst":{dst},"messages":{[1] * len(src)},"bytes":{[9] * len(src)}}}\n'
        for number, src, dst in rows
    )


def test_contacts_by_round(make_run):
    directory = make_run()
    (directory / "contacts.jsonl").write_text(contacts((1, [0, 1], [1, 2]), (2, [2], [0]), (1, [0], [1])))
    figure = of(run_page(read(directory)), "contacts").figure
    assert [frame.label for frame in figure.frames] == ["1", "2"]
    first, second = (np.nan_to_num(frame.values).tolist() for frame in figure.frames)
    assert first == [[0, 2, 0], [0, 0, 1], [0, 0, 0]]  # a round may come in two rows
    assert second == [[0, 0, 0], [0, 0, 0], [1, 0, 0]]


def test_many_rounds_are_counted_in_windows(make_run, monkeypatch):
    monkeypatch.setattr("ddlsim.report.sections.traffic.MOST_CELLS", 9 * 4)
    directory = make_run()
    (directory / "contacts.jsonl").write_text(contacts(*((number, [0], [1]) for number in range(1, 11))))
    figure = of(run_page(read(directory)), "contacts").figure
    assert len(figure.frames) == 4
    assert figure.frames[0].label.startswith("1–") and figure.frames[-1].label.endswith("–10")
    assert sum(frame.values[0, 1] for frame in figure.frames) == 10


def test_contacts_of_unknown_nodes_are_damage(make_run):
    directory = make_run()
    (directory / "contacts.jsonl").write_text(contacts((1, [0], [7])))
    with pytest.raises(RecordsDamaged, match=r"contacts\.jsonl: a row is of a node"):
        read(directory)


def test_churn_has_its_timeline_counts_and_aborted_transfers(make_run):
    rows = make_run.rows()
    for time_s, node, name, value in (
        (5, 0, "online", 0),
        (5, 0, "aborted", 3),
        (20, 0, "online", 1),
        (8, 2, "online", 1),
    ):
        rows.append({"time_s": time_s, "node": node, "round": 1, "name": name, "value": value})
    page = run_page(read(make_run(rows=rows)))
    assert of(page, "online").figure.frames[0].values.shape == (3, 240)
    count = of(page, "online-count").figure
    assert count.x[0].values.tolist() == [0, 5, 8, 20]
    assert count.series[0].values.tolist() == [2, 1, 2, 3]  # node 2 joins at 8
    assert of(page, "aborted").figure.series[0].values.sum() == 3

"""A comparison describes its runs; a table of one cluster shows no values that need several clusters."""

import json

import pytest
from compared_runs import compare

from ddlsim import runs
from ddlsim.report.html.page import comparison_page, printed, run_page
from ddlsim.report.reading import read
from ddlsim.report.run_report import report
from ddlsim.report.summary import read_all, summarize
from ddlsim.scenario import load

SMALL = ["rounds=2", "training.local_steps=1", "evaluation.every=1", "nodes.clusters=[5, 3]"]


def made(folder, name, *changes):
    runs.run(load("smoke", [*SMALL, *changes]), out=folder / name)
    return folder / name


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """Return runs of EL and D-PSGD on the same regular graphs."""
    folder = tmp_path_factory.mktemp("pair")
    return [made(folder, name, f"algorithm={{name: {name}}}") for name in ("el", "dpsgd")]


@pytest.mark.parametrize("format", ["text", "markdown", "latex"])
def test_el_and_dpsgd_on_a_regular_graph_are_reported_as_the_same(pair, format):
    text = compare(pair, format)
    first, second = text.splitlines()[:2]
    assert first.removeprefix("% ") == "compared: algorithm.name; everything else is the same"
    same = "el and dpsgd computed the same: their records are byte-identical, so their differences have no effect here"
    assert second.removeprefix("% ") == f"!! {same}"
    assert json.loads(compare(pair, "json"))["heading"] == [first.removeprefix("% "), f"!! {same}"]


def test_comparison_page_names_equal_runs(pair):
    page = printed(comparison_page(list(read_all(pair))))
    assert "el and dpsgd computed the same" in page and "everything else is the same" in page


def test_other_differences_are_listed_above_the_table(pair, tmp_path):
    own = made(tmp_path, "own", "algorithm={name: dpsgd}", "init=own", "training.batch_size=4")
    text = compare([pair[0], own])
    assert text.splitlines()[0] == (
        "compared: algorithm.name; the settings also differ in init (shared | own), training.batch_size (64 | 4)"
    )
    assert "computed the same" not in text


def test_one_cluster_has_no_fairness_and_no_cluster_columns(tmp_path):
    one = made(tmp_path, "one", "nodes.clusters=[8]", "shift.name=none")
    again = made(tmp_path, "again", "nodes.clusters=[8]", "shift.name=none", "init=own")
    summary = summarize(one)
    assert summary["fair_accuracy"] is None and summary["demographic_parity"] is None
    page = printed(run_page(read(one)))
    texts = [report([one]), compare([one, again]), compare([one, again], "latex"), page]
    texts.append(printed(comparison_page(list(read_all([one, again])))))
    for text in texts:
        body = text.split("</style>")[-1].lower()
        for word in ("fair acc", "parity", "equalized", "clusters apart", "cluster 0", "minority"):
            assert word not in body, word


def test_final_exchange_is_a_row_and_in_no_curve_or_cost(tmp_path):
    path = made(tmp_path, "run", "algorithm={name: el, final_all_reduce: true}", "evaluation.target_accuracy=0.05")
    rows = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    sent = {when: sum(r["value"] for r in rows if r["name"] == "bytes_sent" and r["round"] == when) for when in (2, 3)}
    accuracy = {when: [r["value"] for r in rows if r["name"] == "accuracy" and r["round"] == when] for when in (2, 3)}
    gain = sum(accuracy[3]) / 8 - sum(accuracy[2]) / 8
    summary = summarize(path)
    assert summary["final_exchange"] == {"bytes": sent[3] - sent[2], "gain": pytest.approx(gain)}
    assert summary["final_exchange"]["bytes"] == 8 * 7 * 102_034  # all to all others, 25,450 values and a header
    assert f"MB, {100 * gain:+.1f} points" in report([path])
    assert read(path).curve.round.tolist() == [1, 2] and summary["target"]["round"] <= 2
    hidden = made(
        tmp_path, "hidden", "algorithm={name: el, final_all_reduce: true}", "evaluation.target_accuracy=0.999"
    )
    assert summarize(hidden)["target"]["reached"] is False


def test_estimates_and_options_of_a_papers_code_are_marked(tmp_path):
    paper = "algorithm={name: facade, heads: 2, variant: code, final_all_reduce: true}"
    meter = "energy={device: jetson_nano_10w, link: wifi_2012}"
    marked = made(tmp_path, "marked", "learning=none", "devices={name: estimated}", paper, meter)
    given = made(tmp_path, "given", "learning=none", "devices={name: constant, step_time_s: 0.05}")
    summary, plain = summarize(marked), summarize(given)
    assert summary["estimated"] == ["sim_time_s", "joules", "gco2"] and plain["estimated"] == []
    assert summary["as_published"] == ["variant code", "final_all_reduce"] and plain["as_published"] == []
    lines = report([marked]).splitlines()
    for name in ("simulated time", "energy", "energy per node"):
        assert any(line.startswith(f"{name} ") and line.endswith("(estimated)") for line in lines), name
    assert any(
        line.split("  ")[0] == "as published" and line.endswith("variant code, final_all_reduce") for line in lines
    )
    assert "estimated" not in report([given])
    table = compare([marked, given])
    assert "estimated of some settings: simulated time, energy, emissions" in table
    assert "as published: variant code, final_all_reduce" in table
    remarks = {tile.name: tile.remark for tile in run_page(read(marked)).tiles}
    assert remarks["Simulated time"] == "estimated" and remarks["Energy"].endswith(", estimated")

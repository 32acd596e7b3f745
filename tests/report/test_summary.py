import json
import re
from pathlib import Path

import pytest

from ddlsim.report import columns
from ddlsim.report.comparing.curves import measure_of
from ddlsim.report.reading import read
from ddlsim.report.sections.quality import fairness
from ddlsim.report.sections.tables import curve
from ddlsim.report.summary import summarize
from ddlsim.report.summary_table import MOST_SHORT, loud_lines, rows, short_rows, table
from ddlsim.runs.reproduce.published import MEASURES
from ddlsim.runs.sweeps.search import Objective
from ddlsim.tasks.base import ACCURACY

KEYS = (
    "schema_version status scenario algorithm nodes rounds seed device data accuracy fair_accuracy demographic_parity "
    "equalized_odds bytes sim_time_s wall_s target labels"
)


def test_summary_has_every_promised_key_and_is_json(make_run):
    summary = summarize(make_run())
    assert set(KEYS.split()) <= set(summary)
    assert json.loads(json.dumps(summary, allow_nan=False)) == summary


def test_accuracy_per_cluster_and_over_all_nodes(make_run):
    accuracy = summarize(make_run())["accuracy"]
    assert accuracy["all"] == pytest.approx(0.8)
    assert accuracy["clusters"] == pytest.approx([0.9, 0.6])


def test_fairness_by_hand(make_run):
    summary = summarize(make_run())
    assert summary["fair_accuracy"] == pytest.approx(2 / 3 * 0.75 + 1 / 3 * 0.7)
    # Cluster 0: both nodes together predict both classes equally often, as cluster 1 does.
    assert summary["demographic_parity"] == pytest.approx(0)
    assert summary["equalized_odds"] == pytest.approx(0.3 + 0.3)


def test_short_summary_has_eight_of_the_rows_and_docs_explain_each(make_run):
    summary = summarize(make_run())
    page = (Path(__file__).parents[2] / "docs" / "start.md").read_text()
    explained = re.findall(r"^\| (\w[\w-]+).*\|$", page, re.M)
    shown = short_rows(summary)
    assert len(shown) <= MOST_SHORT == 8 and set(shown) < set(rows(summary))
    assert {re.match(r"[\w-]+", name)[0] for name, _ in shown} <= set(explained)
    assert ("accuracy %, cluster 1 (1)", "60.00") in shown
    many = summary | {"cluster_sizes": [1] * 9, "accuracy": summary["accuracy"] | {"clusters": [0.5] * 9}}
    assert len(short_rows(many)) == MOST_SHORT and short_rows(many)[-1][0].startswith("target")


def test_bytes_by_cause(make_run):
    assert summarize(make_run())["bytes"] == {"total": 1210, "payload": 1143, "header": 60, "wasted": 7, "in_flight": 0}


def test_bytes_of_an_unfinished_run_come_from_the_nodes_counters(make_run):
    summary = summarize(make_run(status="interrupted", traffic=None))
    nothing = dict.fromkeys(("payload", "header", "wasted", "in_flight"))
    assert summary["bytes"] == {"total": 1203, **nothing}


def test_target_at_the_first_evaluation_and_interpolated(make_run):
    target = summarize(make_run())["target"]
    # Over all nodes 0.5333 at round 2 and 0.8 at round 4: 0.7 lies at 0.625 of the way.
    assert (target["accuracy"], target["reached"]) == (0.7, True)
    assert (target["round"], target["bytes"], target["sim_time_s"]) == (4, 1203, 42.0)
    assert target["interpolated"]["round"] == pytest.approx(2 + 0.625 * 2)
    assert target["interpolated"]["bytes"] == pytest.approx(603 + 0.625 * 600)
    assert target["interpolated"]["sim_time_s"] == pytest.approx(22 + 0.625 * 20)


def test_target_not_reached_has_no_costs(make_run):
    summary = summarize(make_run(rows=make_run.rows(right={2: [(1, 1)] * 3})))
    assert summary["target"]["reached"] is False
    assert summary["target"]["bytes"] is None and summary["target"]["interpolated"]["bytes"] is None
    assert "not reached" in table(summary)


def test_settlement_names_heads_and_round(make_run):
    found = summarize(make_run())["settlement"]
    assert found == {"settled": True, "settled_round": 2, "heads": [0, 1], "agreement": 1.0, "apart": True}


@pytest.mark.parametrize(("last", "settled", "since"), [([0, 0, 1], True, 2), ([0, 1, 1], False, None)])
def test_the_evaluation_after_a_final_exchange_settles_nothing(make_run, last, settled, since):
    rows = make_run.rows(heads={1: [0, 1, 1], 2: [0, 0, 1], 3: [0, 0, 1], 4: last})
    rows += [row | {"round": 5} for row in rows if row["round"] == 4 and row["name"] != "head"]
    found = summarize(make_run(rows=rows))["settlement"]
    assert (found["settled"], found["settled_round"]) == (settled, since)


def test_heads_of_a_run_evaluated_after_its_final_exchange_alone(make_run):
    rows = make_run.rows(right={4: [(4, 5), (5, 4), (3, 3)]})
    rows = [row if row["name"] == "head" else row | {"round": 5} for row in rows]
    found = summarize(make_run(rows=rows))["settlement"]
    assert found == {"settled": True, "settled_round": 5, "heads": [0, 1], "agreement": 1.0, "apart": True}


def test_started_run_is_summarized_without_numbers(make_run):
    summary = summarize(make_run(rows=[], traffic=None, status="running"))
    assert summary["accuracy"] == {"all": None, "std": None, "clusters": None, "clusters_std": None}
    assert summary["target"]["reached"] is None
    assert "running" in table(summary)


def test_a_run_in_the_middle_of_its_first_evaluation_is_summarized_without_numbers(make_run):
    begun = [row for row in make_run.rows() if row["round"] <= 2 and row["node"] == 0]
    peeked = {"time_s": 20.0, "node": 0, "round": 2, "name": "accuracy_lowest_test_loss", "value": 0.6}
    data = {"name": "cifar10", "fallback": False, "tested": [[10, 100]]}
    f1 = {"name": "f1_macro", "share": True}
    f1_rows = [{**peeked, "name": "f1_macro"}]
    run = make_run(rows=[*begun, peeked, *f1_rows], traffic=None, status="interrupted", data=data, also_measured=[f1])
    summary = summarize(run)
    assert (summary["evaluated_round"], summary["accuracy"]["all"], summary["f1_macro"]["all"]) == (None, None, None)
    assert summary["labels"] == ["SAMPLED: tested on 10 of 100 samples"]


def test_spread_of_a_cluster_is_over_its_nodes(make_run):
    rows = make_run.rows({2: [(3, 3), (3, 3), (2, 2)], 4: [(3, 4), (5, 4), (3, 3)]})
    accuracy = summarize(make_run(rows=rows))["accuracy"]
    assert accuracy["clusters"] == pytest.approx([0.8, 0.6])
    assert accuracy["clusters_std"] == pytest.approx([0.1, 0.0])


def test_accuracy_of_the_published_head_choice_is_shown_apart(make_run):
    extra = [
        {"time_s": 42.0, "node": node, "round": 4, "name": "accuracy_lowest_test_loss", "value": value}
        for node, value in enumerate((0.95, 0.95, 0.65))
    ]
    summary = summarize(make_run(rows=make_run.rows() + extra))
    assert summary["accuracy_lowest_test_loss"]["clusters"] == pytest.approx([0.95, 0.65])
    assert summary["accuracy"]["all"] == pytest.approx(0.8)
    assert "with the head of lowest test loss" in table(summary)


def test_fallback_and_labels_precede_the_numbers(make_run):
    data = {"name": "fashion-mnist-mini", "fallback": True}
    summary = summarize(make_run(data=data, labels=["lowest_test_loss peeks at test data"]))
    assert len([*loud_lines(summary)]) == 2
    first, second = table(summary).splitlines()[:2]
    assert first.startswith("!! FALLBACK DATA: ran on fashion-mnist-mini") and "peeks" in second


def test_finished_run_on_its_data_has_no_warnings(make_run):
    assert [*loud_lines(summarize(make_run()))] == []


def test_recorded_profile_is_shown(make_run):
    summary = summarize(make_run(profile={"training": 1.25, "total": 1.5, "simulated to wall": 28.0}))
    assert summary["profile"]["training"] == 1.25
    assert "wall s, training" in table(summary)


def test_plain_table_has_no_control_characters(make_run):
    text = table(summarize(make_run()))
    assert "\x1b" not in text
    assert "accuracy %, cluster 1 (1)" in text and "60.00" in text
    assert "round 4, 1.2 kB, 42.0s" in text


def test_run_ended_before_its_first_evaluation_is_reported(make_run):
    text = table(summarize(make_run(rows=[], status="interrupted")))
    assert "NOT FINISHED: status interrupted, never evaluated" in text
    assert "4 (not evaluated)" in text and "None" not in text


def test_fair_accuracy_is_consistent_if_all_nodes_of_a_cluster_attack(make_run):
    run = make_run(attacks=[{"name": "sign_flip", "nodes": [2]}])  # cluster 1; the others have 0.9 at the end
    records, fair = read(run), pytest.approx(2 / 3 * 0.9 + 1 / 3)
    assert summarize(run)["honest"]["fair_accuracy"] == fair
    assert measure_of(records, "fair_accuracy")[-1] == fair
    assert columns.rounds(records)["fair_accuracy"][-1] == fair
    assert curve(records, None).rows[-1][-1] == "93.33"
    assert next(fairness(records)).figure.series[0].values[-1] == fair
    assert MEASURES["highest_fair_accuracy"].value({}, run) == pytest.approx(100 * (2 / 3 * 0.9 + 1 / 3))
    assert Objective("fair_accuracy", ACCURACY, "accuracy", "fairness").curve(records, True)[-1][1] == fair


def test_heads_changing_between_evaluations_have_not_settled(make_run):
    """Evaluations after rounds 2 and 4 have equal heads, but round 3 has different ones."""
    between = make_run.rows(heads={1: [0, 0, 1], 2: [0, 0, 1], 3: [0, 1, 1], 4: [0, 0, 1]})
    found = summarize(make_run("between", rows=between))["settlement"]
    assert (found["settled"], found["settled_round"]) == (False, None)
    early = make_run.rows(heads={1: [0, 1, 1], 2: [0, 1, 1], 3: [0, 0, 1], 4: [0, 0, 1]})
    found = summarize(make_run("early", rows=early))["settlement"]
    assert (found["settled"], found["settled_round"]) == (True, 4)

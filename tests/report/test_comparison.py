import csv
import io
import json

import pytest
from compared_runs import compare

from ddlsim.foundation.errors import ScenarioError


def better(rows, by):
    return [row | {"value": row["value"] + by} if row["name"] == "accuracy" else row for row in rows]


@pytest.fixture
def two_seeds(make_run):
    one = make_run("s0", seed=0, paper=make_run.PAPER)
    return [one, make_run("s1", seed=1, paper=make_run.PAPER, rows=better(make_run.rows(), 0.02))]


def test_seeds_share_a_row_with_mean_and_population_deviation(two_seeds):
    (row,) = json.loads(compare(two_seeds, "json"))["rows"]
    assert row["seeds"] == [0, 1]
    assert row["numbers"]["accuracy_all"] == pytest.approx({"mean": 0.81, "std": 0.01})


def test_mean_over_some_runs_reports_their_number(make_run):
    without_node_2 = [row for row in make_run.rows() if row["node"] != 2]  # the only one of cluster 1
    runs = [make_run("s0", seed=0), make_run("s1", seed=1, rows=without_node_2)]
    (row,) = json.loads(compare(runs, "json"))["rows"]
    assert row["numbers"]["accuracy_1"] == pytest.approx({"mean": 0.6, "std": 0.0, "runs": 1})
    assert "runs" not in row["numbers"]["accuracy_0"]
    label = "accuracy_1, fair_accuracy, demographic_parity, equalized_odds: over 1 of 2 runs, others have none"
    assert "  60.00 (1/2)  " in compare(runs) and f"facade: {label}" in compare(runs)
    assert next(csv.DictReader(io.StringIO(compare(runs, "csv"))))["labels"] == label


def test_published_numbers_are_shown_in_brackets(two_seeds):
    (row,) = json.loads(compare(two_seeds, "json"))["rows"]
    assert row["published"] == pytest.approx(
        {"accuracy_all": 0.8, "accuracy_0": 0.9, "accuracy_1": 0.6, "equalized_odds": 0.5}
    )
    assert "81.00 ± 1.00 [80.00]" in compare(two_seeds)


def test_published_numbers_are_not_shown_for_fallback_data(make_run):
    assert "[80.00]" not in compare([make_run(paper=make_run.PAPER, data={"name": "mini", "fallback": True})])


def test_one_seed_has_no_deviation(make_run):
    text = compare([make_run()])
    assert "80.00" in text and "±" not in text


def test_different_settings_get_a_labeled_row(make_run):
    text = compare([make_run("a"), make_run("b", heads=3)])
    assert "facade heads=2" in text and "facade heads=3" in text


def test_unfinished_and_fallback_runs_never_share_a_row_with_others(make_run):
    data = {"name": "fashion-mnist-mini", "fallback": True}
    runs = [make_run("a"), make_run("b", seed=1, status="interrupted"), make_run("c", seed=2, data=data)]
    rows = json.loads(compare(runs, "json"))["rows"]
    assert [row["seeds"] for row in rows] == [[0], [1], [2]]
    text = compare(runs)
    assert "NOT FINISHED (interrupted)" in text and "FALLBACK DATA (fashion-mnist-mini)" in text


def test_labels_are_printed_below_the_table(make_run):
    assert "!! tiny facade: peeks at test data" in compare([make_run(labels=["peeks at test data"])])


def test_number_of_seeds_at_the_target_is_shown(make_run):
    runs = [make_run("a"), make_run("b", seed=1, rows=make_run.rows(right={4: [(1, 1)] * 3}))]
    (row,) = json.loads(compare(runs, "json"))["rows"]
    assert row["reached"] == 1
    assert "(1/2)" in compare(runs)


def test_repeated_seed_is_reported(make_run):
    assert "one seed occurs more than once: [0, 0]" in compare([make_run("a"), make_run("b")])


def test_code_without_a_digest_is_reported_and_digests_separate_rows(make_run):
    runs = [make_run(name, seed=seed) for seed, name in enumerate("abc")]
    for run, digest in zip(runs, ("1" * 64, "1" * 64, "2" * 64), strict=True):
        manifest = json.loads((run / "manifest.json").read_text())
        algorithm = {"name": "Mine", "kind": "algorithms", "sha256": digest}
        topology = {"name": "Mine", "kind": "topologies", "sha256": None}
        (run / "manifest.json").write_text(json.dumps(manifest | {"plugins": [algorithm, topology]}))
    assert [row["seeds"] for row in json.loads(compare(runs, "json"))["rows"]] == [[0, 1], [2]]
    (label,) = [line for line in compare(runs).splitlines() if "no source file" in line]
    assert "the code of Mine has no source file and may differ between runs" in label


def test_markdown_is_a_table_of_equal_columns(two_seeds):
    table = [line for line in compare(two_seeds, "markdown").splitlines() if line.startswith("|")]
    assert len(table) == 3
    assert len({line.count("|") for line in table}) == 1


def test_csv_has_a_column_per_number(two_seeds):
    (row,) = csv.DictReader(io.StringIO(compare(two_seeds, "csv")))
    assert float(row["accuracy_1_mean"]) == pytest.approx(0.61)
    assert float(row["accuracy_1_published"]) == 0.6
    assert row["seeds"] == "0 1"


def test_a_run_without_evaluations_can_be_compared(make_run):
    assert "running" in compare([make_run(rows=[], traffic=None, status="running")])


def test_unknown_format_is_an_error_that_lists_the_known(make_run):
    with pytest.raises(ScenarioError, match="Known: text, csv, markdown, latex, siunitx, json"):
        compare([make_run()], "html")

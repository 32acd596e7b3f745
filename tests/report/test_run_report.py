from ddlsim.report.reading import read
from ddlsim.report.run_report import body, report
from ddlsim.report.section import Section
from ddlsim.report.sections import tables
from ddlsim.report.sections.quality import published_numbers
from ddlsim.report.summary import summary_of
from ddlsim.tasks.base import F1_MACRO


def words(found):
    """Return the printed words of a section or table."""
    section = found if isinstance(found, Section) else Section("x", "x", "x", table=found)
    return [line.split() for line in body(section).splitlines()]


def test_curve_has_a_line_per_evaluation_and_marks_the_target(make_run):
    lines = words(tables.curve(read(make_run()), 0.7))
    assert lines[2] == ["2", "22.0s", "603", "B", "53.33", "60.00", "40.00", "60.00"]
    assert lines[3][0] == "4*"
    assert "70.00" in lines[4]


def test_curve_of_a_scenario_without_target_has_no_mark(make_run):
    assert "*" not in str(words(tables.curve(read(make_run()), None)))


def test_long_curves_are_thinned_but_keep_first_last_and_target():
    kept = tables.thinned(100, 37)
    assert kept[0] == 0 and kept[-1] == 99 and 37 in kept
    assert len(kept) == 17


def test_heads_counts_nodes_per_cluster(make_run):
    lines = words(tables.heads(read(make_run())))
    assert lines[2] == ["2", "2", "0", "0", "1"]


def test_communication_totals_and_traffic_between_clusters(make_run):
    records = read(make_run())
    totals = words(tables.totals(records, records.communication))
    assert ["messages", "12"] in totals
    assert ["pairs", "with", "traffic", "3", "of", "6"] in totals
    assert words(tables.between_clusters(records))[-2:] == [
        ["cluster", "0", "400", "B", "408", "B"],
        ["cluster", "1", "402", "B", "0", "B"],
    ]


def test_published_numbers_are_shown_with_simulated_values_and_differences(make_run):
    records = read(make_run(paper=make_run.PAPER))
    lines = words(next(published_numbers(records, summary_of(records))))
    assert ["equalized_odds", "0.5000", "0.6000", "+0.1000"] in lines
    assert ["accuracy_all", "%", "80.00", "80.00", "+0.00"] in lines


def test_published_numbers_are_not_called_comparable_with_fallback_data(make_run):
    records = read(make_run(paper=make_run.PAPER, data={"name": "mini", "fallback": True}))
    assert "not comparable" in body(next(published_numbers(records, summary_of(records))))


def test_report_of_one_run_has_all_its_sections(make_run):
    text = report([make_run(paper=make_run.PAPER)])
    for title in ("Accuracy % per cluster", "Nodes per head", "Communication", "Published numbers (Table I)"):
        assert title in text
    assert "All runs" not in text


def test_report_of_several_runs_ends_with_their_comparison(make_run):
    assert "All runs" in report([make_run("a"), make_run("b", seed=1)])


def test_report_names_a_run_without_evaluations(make_run):
    assert "NOT FINISHED" in report([make_run(rows=[], traffic=None, status="running")])


def test_report_of_a_run_without_heads_shows_no_heads(make_run):
    text = report([make_run(rows=make_run.rows(heads={}))])
    assert "Nodes per head" not in text


def test_published_numbers_of_other_metrics_are_compared(make_run):
    also = [{**row, "name": "f1_macro", "value": 0.5} for row in make_run.rows() if row["name"] == "accuracy"]
    paper = "paper: {source: a table, f1_macro: {all: 55.0}}"
    records = read(make_run(paper=paper, rows=make_run.rows() + also, also_measured=[F1_MACRO.plain()]))
    (row,) = next(published_numbers(records, summary_of(records))).table.rows
    assert row == ["f1_macro_all %", "55.00", "50.00", "-5.00"]

"""Contacts within clusters, measured similarities and merges, on three nodes; node 2 is alone in its cluster."""

from dataclasses import asdict

import numpy as np
import pytest

from ddlsim.report.reading import read
from ddlsim.report.run_report import save_plots
from ddlsim.report.sections.peers import (
    TRUE_SIMILARITY,
    in_cluster_share,
    merge_quality,
    merges,
    pull_counts,
    similarities,
    similarity_sections,
)
from ddlsim.tasks.base import KNOWN


def rows(*found):
    return [
        {"time_s": 1.0 * round_num, "node": node, "round": round_num, "name": name, "value": value}
        for node, round_num, name, value in found
    ]


PULLS = rows(
    (0, 1, "pulled_from", 1),
    (0, 1, "pulled_from", 2),
    (1, 1, "pulled_from", 0),
    (2, 1, "pulled_from", 0),
    (0, 3, "pulled_from", 1),
)
MEASURED = rows((0, 3, "similarity_1", 0.5), (0, 1, "similarity_2", 0.25), (0, 1, "similarity_1", 0.75))
MERGES = rows(
    (0, 1, "accuracy_before_merge", 0.5),
    (1, 1, "accuracy_before_merge", 0.7),
    (2, 1, "accuracy_before_merge", 0.1),
    (0, 1, "accuracy_after_merge", 0.4),
    (1, 1, "accuracy_after_merge", 0.8),
    (2, 1, "accuracy_after_merge", 0.3),
)


def test_share_of_pulls_within_the_cluster(make_run):
    rounds, share = in_cluster_share(read(make_run(rows=make_run.rows() + PULLS)))
    assert rounds.tolist() == [1, 3]
    assert share[0] == pytest.approx([2 / 3, 0])
    assert share[1, 0] == 1 and np.isnan(share[1, 1])


def test_similarities_by_node_in_the_order_of_rounds(make_run):
    (found,) = similarities(read(make_run(rows=make_run.rows() + MEASURED))).items()
    assert found[0] == 0
    assert [column.tolist() for column in found[1]] == [[1, 1, 3], [1, 2, 1], [0.75, 0.25, 0.5]]


TRUE = rows(
    (0, 2, "true_similarity_1", 0.5),
    (0, 2, "true_similarity_2", 0.25),
    (0, 4, "true_similarity_1", 0.75),
    (0, 4, "true_similarity_2", 0.125),
    (2, 2, "true_similarity_0", 0.1),
    (2, 2, "true_similarity_1", 0.3),
)


def test_true_similarities_are_separate_from_measured_ones(make_run):
    records = read(make_run(rows=make_run.rows() + TRUE))
    assert similarities(records) == {}
    assert sorted(similarities(records, TRUE_SIMILARITY)) == [0, 2]


def test_true_similarities_are_a_line_and_a_band_per_cluster(make_run):
    first, second = (section.figure for section in similarity_sections(read(make_run(rows=make_run.rows() + TRUE))))
    assert [(one.label, one.values.tolist()) for one in first.series] == [
        ("cluster 0 (its own)", [0.5, 0.75]),
        ("cluster 1", [0.25, 0.125]),
    ]
    (line,) = second.series  # both peers are of cluster 0
    assert (line.values[0], line.low[0], line.high[0]) == pytest.approx((0.2, 0.1, 0.3))


def test_pulls_are_counted_from_row_to_column(make_run):
    counts = pull_counts(read(make_run(rows=make_run.rows() + PULLS)))
    assert counts.tolist() == [[0, 2, 1], [1, 0, 0], [1, 0, 0]]


def test_accuracy_before_and_after_merging_is_the_mean_of_a_cluster(make_run):
    rounds, accuracy = merge_quality(read(make_run(rows=make_run.rows() + MERGES)))
    assert rounds.tolist() == [1]
    assert accuracy[0] == pytest.approx(np.array([[0.6, 0.6], [0.1, 0.3]]))


def test_attackers_are_excluded_from_merges(make_run):
    about = {"attacks": [{"name": "label_flip", "nodes": [2]}]}
    _, accuracy = merge_quality(read(make_run(rows=make_run.rows() + MERGES, **about)))
    assert accuracy[0, 0] == pytest.approx([0.6, 0.6]) and np.isnan(accuracy[0, 1]).all()


@pytest.mark.parametrize(
    ("metric", "name", "words"),
    [("accuracy", "accuracy", "accuracy"), ("auroc", "auroc", "area under the ROC curve"), ("mse", "loss", "loss")],
)
def test_merges_are_drawn_by_the_recorded_metric(make_run, metric, name, words):
    """Regression runs record only the loss."""
    measured = [row | {"name": row["name"].replace("accuracy", name)} for row in MERGES]
    plain = [row | {"name": row["name"].replace("accuracy", metric)} for row in make_run.rows()]
    (section,) = merges(read(make_run(rows=plain + measured, metric=asdict(KNOWN[metric]))))
    assert section.title.lower() == f"{words} before and after merging".lower()
    assert section.figure.y == f"validation {words}"
    assert section.figure.unit == ("percent" if metric == "accuracy" else "number")
    assert section.figure.series[1].values == pytest.approx([0.6])


def test_measures_without_records_are_none(make_run):
    records = read(make_run())
    assert in_cluster_share(records) is None and merge_quality(records) is None and similarities(records) == {}


@pytest.mark.full
def test_figures_are_saved(make_run, tmp_path):
    pytest.importorskip("matplotlib")
    run = make_run(rows=make_run.rows() + PULLS + MEASURED + TRUE + MERGES)
    names = {path.stem for path in save_plots(run, tmp_path / "plots")}
    assert {"pulls", "pulls_inside", "similarities_0", "true_similarities_0", "true_similarities_2", "merges"} <= names


def test_stopped_node_counts_in_later_merges_with_its_last_value(make_run):
    """Node 0 stops in round 1 with an accuracy of 20 %; node 1 continues to round 3."""
    later = rows(
        (0, 1, "stopped", 1),
        (0, 2, "accuracy_before_merge", 0.2),
        (0, 2, "accuracy_after_merge", 0.2),
        (1, 2, "accuracy_before_merge", 0.6),
        (1, 2, "accuracy_after_merge", 0.8),
        (1, 3, "accuracy_before_merge", 0.8),
        (1, 3, "accuracy_after_merge", 1.0),
    )
    _, accuracy = merge_quality(read(make_run(rows=make_run.rows() + MERGES + later)))
    assert accuracy[:, 0].tolist() == [pytest.approx(pair) for pair in ([0.6, 0.6], [0.4, 0.5], [0.5, 0.6])]
    assert np.isnan(accuracy[2, 1]).all()  # node 2 neither merged nor stopped

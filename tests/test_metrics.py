import math

import numpy as np
import pytest

from ddlsim.tasks import metrics

nan = float("nan")


def uniform_confusion(accuracy, num_classes=10, per_class=1000):
    """Return a balanced confusion matrix: every class has this accuracy, errors are spread evenly."""
    matrix = np.full((num_classes, num_classes), per_class * (1 - accuracy) / (num_classes - 1))
    np.fill_diagonal(matrix, per_class * accuracy)
    return matrix


def test_accuracy_is_the_share_on_the_diagonal():
    assert metrics.accuracy([[3, 1], [2, 4]]) == pytest.approx(0.7)
    assert np.isnan(metrics.accuracy([[0, 0], [0, 0]]))


def test_cluster_mean_uses_the_nodes_of_each_cluster():
    assert metrics.over_clusters([0.6, 0.8, 0.1], [0, 0, 1]).tolist() == pytest.approx([0.7, 0.1])


def test_nodes_without_a_value_do_not_count():
    assert metrics.over_clusters([0.6, nan, 0.1], [0, 0, 1]).tolist() == pytest.approx([0.6, 0.1])
    assert metrics.over_nodes([0.6, nan, 0.1]) == pytest.approx(0.35)
    assert np.isnan(metrics.over_nodes([nan, nan]))


def test_accuracy_over_all_nodes_reproduces_the_papers_24_8_row():
    # EL at 24:8: majority 69.13, minority 54.76, all 65.53 (printed with the rounding of unrounded inputs).
    nodes = [69.13] * 24 + [54.76] * 8
    assert metrics.over_nodes(nodes) == pytest.approx(65.53, abs=0.01)


def test_class_rates_by_hand():
    predicted, true_positive, false_positive = metrics.class_rates([[3, 1], [2, 4]])
    assert predicted.tolist() == pytest.approx([0.5, 0.5])
    assert true_positive.tolist() == pytest.approx([3 / 4, 4 / 6])
    assert false_positive.tolist() == pytest.approx([2 / 6, 1 / 4])


def test_demographic_parity_by_hand():
    # Shares predicted: cluster 0 (5/10, 5/10), cluster 1 (8/10, 2/10): mean of 0.3 and 0.3.
    confusion = [[[3, 1], [2, 4]], [[4, 1], [4, 1]]]
    assert metrics.demographic_parity(np.array(confusion), [0, 1]) == pytest.approx(0.3)


def test_equalized_odds_by_hand():
    # TPR (3/4, 4/6) and (4/5, 1/5); FPR (2/6, 1/4) and (4/5, 1/5).
    confusion = [[[3, 1], [2, 4]], [[4, 1], [4, 1]]]
    by_hand = ((0.05 + (4 / 6 - 0.2)) + ((0.8 - 2 / 6) + 0.05)) / 2
    assert metrics.equalized_odds(np.array(confusion), [0, 1]) == pytest.approx(by_hand)


def test_rates_are_averaged_over_the_nodes_of_a_cluster_before_they_are_compared():
    # Node 0 always predicts class 0, node 1 class 1: the cluster predicts both equally often.
    confusion = np.array([[[5, 0], [5, 0]], [[0, 5], [0, 5]], [[3, 2], [2, 3]]])
    assert metrics.demographic_parity(confusion, [0, 0, 1]) == pytest.approx(0)


def test_equalized_odds_reproduces_the_papers_30_2_row_of_el():
    # 71.99 and 38.77 with errors spread evenly: 0.3322 + 0.3322 / 9 = 0.3691 (0.3693 printed from uneven errors).
    confusion = np.array([uniform_confusion(0.7199)] * 30 + [uniform_confusion(0.3877)] * 2)
    assert round(metrics.equalized_odds(confusion, [0] * 30 + [1] * 2), 4) == 0.3691
    assert metrics.demographic_parity(confusion, [0] * 30 + [1] * 2) == pytest.approx(0, abs=1e-12)


def test_with_three_clusters_the_largest_gap_between_two_counts():
    confusion = np.array([uniform_confusion(a, num_classes=2) for a in (0.9, 0.7, 0.6)])
    # Two classes, even errors: |dTPR| + |dFPR| = 2 x 0.3 between the first and the last.
    assert metrics.equalized_odds(confusion, [0, 1, 2]) == pytest.approx(0.6)


def test_one_cluster_has_no_gap():
    confusion = np.array([uniform_confusion(0.9), uniform_confusion(0.1)])
    assert metrics.equalized_odds(confusion, [0, 0]) == 0
    assert metrics.fair_accuracy([0.5]) == pytest.approx(2 / 3 * 0.5 + 1 / 3)


def test_a_class_without_samples_is_left_out_of_the_mean():
    # Class 2 never occurs and is never predicted: its true positive rate does not exist.
    confusion = np.array([[[4, 0, 0], [0, 4, 0], [0, 0, 0]], [[2, 2, 0], [2, 2, 0], [0, 0, 0]]])
    assert metrics.equalized_odds(confusion, [0, 1]) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("majority", "minority", "printed"),
    [(73.32, 59.96, 73.31), (69.13, 54.76, 69.84), (71.99, 38.77, 59.18), (69.61, 66.44, 77.63), (67.63, 59.55, 73.03)],
)
def test_fair_accuracy_reproduces_the_papers_table_with_lambda_two_thirds(majority, minority, printed):
    assert 100 * metrics.fair_accuracy([majority / 100, minority / 100]) == pytest.approx(printed, abs=0.0101)


def test_fair_accuracy_of_facade_30_2_is_73_31():
    assert round(100 * float(metrics.fair_accuracy([0.7332, 0.5996])), 2) == 73.31


def test_fair_accuracy_takes_curves_and_other_lambdas():
    assert metrics.fair_accuracy([[1.0, 0.0], [0.5, 0.5]], 0.5).tolist() == pytest.approx([0.25, 0.75])


@pytest.mark.parametrize(("value", "nodes", "falling"), [(0.7, 3, False), (0.1, 3, True)])
def test_mean_within_rounding_of_the_target_reaches_it(value, nodes, falling):
    mean = float(metrics.over_nodes(np.full(nodes, value)))
    assert mean != value
    assert metrics.first_reaching([mean], value, falling) == 0
    assert metrics.interpolated_cost_to_target([2 * value if falling else 0.0, mean], [0, 8], value, falling) == 8
    beyond = value * (1 + 1e-9 if falling else 1 - 1e-9)
    assert metrics.first_reaching([beyond], value, falling) is None


def test_cost_to_target_uses_the_first_evaluation_at_the_target():
    assert metrics.cost_to_target([0.1, 0.5, 0.4, 0.7], [10, 20, 30, 40], 0.5) == 20
    assert metrics.cost_to_target([0.1, 0.4], [10, 20], 0.5) is None
    assert metrics.cost_to_target([nan, 0.6], [10, 20], 0.5) == 20


def test_interpolated_cost_lies_on_the_line_between_two_evaluations():
    assert metrics.interpolated_cost_to_target([0.1, 0.3, 0.7], [10, 20, 40], 0.4) == pytest.approx(25)
    assert metrics.interpolated_cost_to_target([0.6, 0.7], [10, 20], 0.5) == 10
    assert metrics.interpolated_cost_to_target([0.1, 0.2], [10, 20], 0.5) is None


def test_settlement_counts_from_the_evaluation_after_the_last_change():
    heads = [[0, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0, 1], [0, 0, 1]]
    found = metrics.settlement(heads, [0, 0, 1])
    assert found == metrics.Settlement(settled_after=2, heads=(0, 1), agreement=1.0, apart=True)


def test_a_change_at_the_last_evaluation_is_not_settled():
    assert metrics.settlement([[0, 0], [0, 1]], [0, 1]).settled_after is None


def test_clusters_sharing_a_head_are_not_separated():
    found = metrics.settlement([[1, 1, 0, 1]], [0, 0, 0, 1])
    assert found == metrics.Settlement(settled_after=0, heads=(1, 1), agreement=0.75, apart=False)


def test_head_counts_per_cluster():
    assert metrics.head_counts([1, 1, 0, 2], [0, 0, 0, 1]).tolist() == [[1, 2, 0], [0, 0, 1]]


def test_docstring_of_every_metric_has_a_first_sentence():
    assert all(function.__doc__.splitlines()[0].strip() for function in metrics.METRICS.values())


def test_fairness_of_clusters_without_common_labels_is_undefined():
    """Each cluster is tested on one class: no class has a true or false positive rate in both."""
    confusion = np.array([[[3, 1], [0, 0]], [[0, 0], [2, 2]]])
    assert np.isnan(metrics.equalized_odds(confusion, [0, 1]))
    assert metrics.demographic_parity(confusion, [0, 1]) == pytest.approx(0.25)
    assert metrics.equalized_odds(confusion, [0, 0]) == 0.0


def test_pair_of_clusters_without_a_gap_does_not_hide_other_gaps():
    confusion = np.array([[[4, 0], [0, 4]], [[0, 0], [2, 2]], [[3, 1], [0, 4]]])
    assert metrics.equalized_odds(confusion, [0, 1, 2]) == pytest.approx(0.25)  # of the first and the last: 0.25, twice


def test_an_evaluation_of_diverged_nodes_gives_no_line():
    assert metrics.interpolated_cost_to_target([math.inf, 3], [10, 20], 5, falling=True) == 20


@pytest.mark.parametrize(("share", "samples"), [(0.5, 100), (0.95, 30), (0.98, 50), (0.99, 100), (0.1, 10), (0.0, 20)])
def test_interval_contains_the_true_value_in_95_percent_of_samples(share, samples):
    population, rng = 2000, np.random.default_rng(0)
    found = rng.hypergeometric(round(share * population), round((1 - share) * population), samples, 4000) / samples
    error = metrics.sampling_error(found, samples, population)
    assert (np.abs(found - share) <= error).mean() > 0.93
    assert (error > 0).all() and (metrics.sampling_error(found, population, population) == 0).all()

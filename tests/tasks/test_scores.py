"""Scores of predictions by hand, and against scikit-learn and torchmetrics if installed."""

import math

import numpy as np
import pytest
import torch

from ddlsim.tasks import as_task
from ddlsim.tasks.builtin import auroc, f1, f1_of_confusion, perplexity

LABELS = np.array([[1, 0], [1, 1], [0, 1], [0, 0]], bool)
PREDICTED = np.array([[1, 0], [0, 1], [1, 1], [0, 1]], bool)


def test_f1_by_hand():
    # label 0: TP 1, FP 1, FN 1 -> 2/4; label 1: TP 2, FP 1, FN 0 -> 4/5; together TP 3, FP 2, FN 1 -> 6/9
    assert f1(PREDICTED, LABELS, "macro") == pytest.approx((0.5 + 0.8) / 2)
    assert f1(PREDICTED, LABELS, "micro") == pytest.approx(6 / 9)


def test_a_label_without_true_or_predicted_samples_is_left_out_of_the_mean():
    assert f1(np.array([[1, 0]], bool), np.array([[1, 0]], bool), "macro") == 1
    assert math.isnan(f1(np.zeros((2, 1), bool), np.zeros((2, 1), bool), "macro"))


def test_macro_f1_of_a_confusion_matrix_by_hand():
    # class 0: 2*3 / (2*3 + 1 + 2); class 1: 2*4 / (2*4 + 2 + 1)
    assert f1_of_confusion(np.array([[3, 1], [2, 4]])) == pytest.approx((6 / 9 + 8 / 11) / 2)


def test_auroc_counts_pairs_in_the_right_order_and_ties_half():
    scores, labels = np.array([0.1, 0.4, 0.4, 0.8]), np.array([0, 0, 1, 1], bool)
    # pairs (positive, negative): .4>.1, .4=.4, .8>.1, .8>.4 -> 3.5 of 4
    assert auroc(scores[:, None], labels[:, None]) == 3.5 / 4


def test_auroc_is_undefined_if_all_samples_have_one_label():
    assert math.isnan(auroc(np.array([[0.1], [0.2]]), np.array([[1], [1]], bool)))


def test_auroc_of_nan_scores_is_one_half():
    assert auroc(np.full((4, 1), np.nan), np.array([[1], [0], [1], [0]], bool)) == 0.5


def test_perplexity_of_equally_likely_tokens_is_their_number():
    assert perplexity(math.log(65)) == pytest.approx(65)
    assert perplexity(1e6) == math.inf


@pytest.fixture
def drawn():
    rng = np.random.default_rng(3)
    return np.round(rng.normal(size=(200, 4)), 1), rng.integers(0, 2, (200, 4)).astype(bool)


def test_scores_equal_scikit_learn(drawn):
    measures = pytest.importorskip("sklearn.metrics", reason="scikit-learn is not installed")
    scores, labels = drawn
    for average in ("macro", "micro"):
        assert f1(scores > 0, labels, average) == pytest.approx(measures.f1_score(labels, scores > 0, average=average))
    assert auroc(scores, labels) == pytest.approx(measures.roc_auc_score(labels, scores))
    rng = np.random.default_rng(4)
    true, found = rng.integers(0, 5, (2, 300))
    confusion = measures.confusion_matrix(true, found)
    assert f1_of_confusion(confusion) == pytest.approx(measures.f1_score(true, found, average="macro"))


def test_scores_equal_torchmetrics(drawn):
    measures = pytest.importorskip("torchmetrics.functional", reason="torchmetrics is not installed")
    text = pytest.importorskip("torchmetrics.functional.text")
    scores, labels = (torch.from_numpy(each) for each in drawn)
    found = measures.classification.multilabel_auroc(scores, labels.long(), num_labels=4)
    assert auroc(*drawn) == pytest.approx(float(found), abs=1e-6)
    found = measures.classification.multilabel_f1_score(scores, labels.long(), num_labels=4, threshold=0.5)
    assert f1(drawn[0] > 0, drawn[1]) == pytest.approx(float(found), abs=1e-6)
    outputs, tokens = torch.randn(3, 5, 7), torch.randint(0, 7, (3, 5))
    task = as_task("next_token")
    ours = task.measures(task.statistics(outputs[None], tokens[None])[0].numpy(), 0.0)["perplexity"]
    assert ours == pytest.approx(float(text.perplexity(outputs, tokens)), rel=1e-5)

"""Loss terms against cases computed by hand."""

import math

import pytest
import torch

from ddlsim.learning.losses import (
    distance_to_targets,
    prototype_contrast,
    prototype_uniformity,
    proximity,
    supervised_contrastive,
)

E1, E2 = [1.0, 0.0], [0.0, 1.0]
FEATURES = torch.tensor([[2.0, 0.0], [1.0, 0.0], [0.0, 5.0]])
LABELS = torch.tensor([0, 0, 1])
e = math.e


def test_contrastive_loss_with_one_positive_each():
    # cosines 1 between the first two, 0 to the third, which has no positive
    expected = 2 / 3 * math.log((e + 1) / e)
    for variant in ("thesis", "code"):
        assert supervised_contrastive(FEATURES, LABELS, 1.0, variant).item() == pytest.approx(expected)


def test_variants_of_the_contrastive_loss_differ_with_several_positives():
    features, labels = torch.tensor([E1, E1, E2]), torch.tensor([0, 0, 0])
    # first two: positives e and 1 of a total e + 1; third: positives 1 and 1 of 2
    thesis = (2 * (math.log(e + 1) - 0.5) + math.log(2)) / 3
    assert supervised_contrastive(features, labels, 1.0, "thesis").item() == pytest.approx(thesis)
    assert supervised_contrastive(features, labels, 1.0, "code").item() == pytest.approx(0.0, abs=1e-6)


def test_temperature_divides_cosines():
    expected = 2 / 3 * math.log((math.exp(2) + 1) / math.exp(2))
    assert supervised_contrastive(FEATURES, LABELS, 0.5).item() == pytest.approx(expected)


def test_batch_without_positives_has_no_contrastive_loss():
    features = FEATURES.clone().requires_grad_()
    for variant in ("thesis", "code"):
        loss = supervised_contrastive(features, torch.tensor([0, 1, 2]), 1.0, variant)
        (gradient,) = torch.autograd.grad(loss, features)
        assert loss.item() == 0 and torch.equal(gradient, torch.zeros_like(features))


def test_prototype_loss_takes_cosines_in_the_thesis_and_not_in_its_code():
    prototypes = torch.tensor([[3.0, 0.0], [0.0, 1.0]])
    features, labels = torch.tensor([[2.0, 0.0]]), torch.tensor([0])
    assert prototype_contrast(features, labels, prototypes, 0.5, "thesis").item() == pytest.approx(
        math.log(1 + math.exp(-2))
    )
    assert prototype_contrast(features, labels, prototypes, 0.5, "code").item() == pytest.approx(
        math.log(1 + math.exp(-3)), rel=1e-5
    )


def test_uniformity_is_a_sum_of_cosines_or_a_mean_of_exponentials():
    prototypes = torch.tensor([[2.0, 0.0], [1.0, 1.0], [0.0, 3.0]])
    assert prototype_uniformity(prototypes, 100.0, "thesis").item() == pytest.approx(4 / math.sqrt(2))
    inner = [2.0, 0.0, 3.0]  # pairs 01, 02, 12
    code = 2 * sum(math.exp(value / 10) for value in inner) / 3
    assert prototype_uniformity(prototypes, 10.0, "code").item() == pytest.approx(code)


def test_proximity_sums_mean_squares_over_tensors():
    now, before = [torch.tensor([1.0, 3.0]), torch.tensor([2.0])], [torch.tensor([0.0, 1.0]), torch.tensor([5.0])]
    assert proximity(now, before).item() == (1 + 4) / 2 + 9


def test_labels_without_target_count_nothing():
    features = torch.tensor([[1.0, 1.0], [4.0, 0.0]], requires_grad=True)
    loss = distance_to_targets(features, torch.tensor([0, 7]), {0: torch.tensor([0.0, 3.0])})
    assert loss.item() == (1 + 4) / 4
    (gradient,) = torch.autograd.grad(loss, features)
    assert torch.equal(gradient[1], torch.zeros(2))
    assert distance_to_targets(features, torch.tensor([0, 7]), {}).item() == 0

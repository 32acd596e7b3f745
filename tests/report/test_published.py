import pytest

from ddlsim.report.published import published

FRACTIONS = {"accuracy": {"all": 0.7248, "clusters": [0.7332, 0.5996]}, "fair_accuracy": 0.7331}
PERCENT = {"accuracy": {"all": 72.48, "clusters": [73.32, {"mean": 59.96}]}, "fair_accuracy": 73.31}


@pytest.mark.parametrize("paper", [FRACTIONS, PERCENT])
def test_accuracies_may_be_fractions_or_percent(paper):
    assert published({"paper": paper}) == pytest.approx(
        {"accuracy_all": 0.7248, "accuracy_0": 0.7332, "accuracy_1": 0.5996, "fair_accuracy": 0.7331}
    )


def test_free_text_is_ignored():
    assert published({"paper": {"equalized_odds": 0.1491, "note": "mean of four seeds"}}) == {"equalized_odds": 0.1491}


@pytest.mark.parametrize("scenario", [{}, {"paper": None}])
def test_a_scenario_without_published_numbers_has_none(scenario):
    assert published(scenario) == {}

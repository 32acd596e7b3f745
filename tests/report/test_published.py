import pytest

from ddlsim.cli.report import published_of
from ddlsim.report.published import published
from ddlsim.runs.reproduce.matrix import read_matrix
from ddlsim.scenario.model import to_plain

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


def test_numbers_of_a_matrix_cell_are_not_those_of_other_data_or_nodes():
    matrix = read_matrix("facade_table_cifar10")
    cell = next(cell for cell in matrix.cells if cell.published is not None)
    plain = to_plain(cell.scenario) | {"name": f"{matrix.name}-{cell.name.replace('/', '-')}"}
    assert published_of(plain | {"rounds": 3})["note"].startswith("this run differs from the cell")
    assert published_of(plain | {"data": {"name": "fashion-mnist-mini"}}) is None
    assert published_of(plain | {"nodes": {"clusters": [3, 3]}}) is None

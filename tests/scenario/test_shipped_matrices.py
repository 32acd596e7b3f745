"""Every matrix shipped with ddlsim."""

from pathlib import Path

import numpy as np
import pytest

from ddlsim.runs.reproduce.matrix import read_matrix
from ddlsim.scenario import by_name, digest, load
from ddlsim.scenario.files import is_matrix

FOLDER = Path(__file__).parents[2] / "scenarios"
pytestmark = pytest.mark.full  # it reads 900 cells
FILES = sorted(path for path in FOLDER.rglob("*.yaml") if is_matrix(path))


@pytest.fixture(scope="module")
def matrices():
    return {path.stem: read_matrix(path) for path in FILES}


def test_matrices_exist_and_have_unique_names():
    assert len(FILES) >= 10
    assert {path.stem for path in FILES} <= set(by_name(matrices=True))
    assert not {path.stem for path in FILES} & set(by_name())


def test_every_cell_is_a_different_scenario(matrices):
    digests = {name: [digest(cell.scenario) for cell in matrix.cells] for name, matrix in matrices.items()}
    assert [name for name, found in digests.items() if len(set(found)) < len(found)] == []


def test_published_means_equal_the_mean_of_their_clusters(matrices):
    """Catches most typing errors: the mean is the clusters' numbers weighted by nodes (or clusters)."""
    wrong, compared = [], 0
    for name, matrix in matrices.items():
        for cell in matrix.cells:
            published = cell.published
            if published is None or published.mean is None or None in (published.clusters or [None]):
                continue
            sizes = cell.scenario.nodes.clusters if matrix.content.average == "nodes" else None
            mean = np.average(published.clusters, weights=sizes)
            compared += 1
            if mean != pytest.approx(published.mean, abs=0.06):
                wrong.append((name, cell.name, mean, published.mean))
    assert compared and wrong == []


SAME = {
    "30_2/facade": "facade_30_2",
    "30_2/el": "el_30_2",
    "30_2/dac": "dac_30_2",
    "30_2/deprl": "deprl_30_2",
    "30_2/dpsgd": "dpsgd_30_2",
    **{
        f"{split}/{name}": f"{name}_{split}" for split in ("24_8", "16_16") for name in ("facade", "el", "dac", "deprl")
    },
}


@pytest.mark.parametrize(("cell", "name"), SAME.items())
def test_cell_of_facades_table_equals_the_scenario_of_the_same_name(matrices, cell, name):
    (found,) = (one for one in matrices["facade_table_cifar10"].cells if one.name == cell)
    own = load(name)
    apart = {"name": "", "description": "", "paper": None, "fallback": None, "seed": 0}
    assert found.scenario.model_copy(update=apart) == own.model_copy(update=apart)
    if own.paper:
        published, accuracy = found.published, own.paper["accuracy"]
        assert published.mean == pytest.approx(100 * accuracy["all"])
        assert list(published.clusters) == pytest.approx([100 * value for value in accuracy["clusters"]])
        assert published.std == pytest.approx(100 * own.paper["accuracy_std"]["all"])
        assert published.measure("equalized_odds").mean == own.paper["equalized_odds"]["mean"]

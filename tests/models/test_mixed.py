"""Several architectures: their assignment to nodes, and invalid lists."""

import pytest

from ddlsim.foundation.errors import ScenarioError
from ddlsim.models.mixed import Mixed

TWO = ("linear", {"name": "mlp", "hidden": [8]})


def test_round_robin_deals_in_order():
    assert Mixed(models=TWO).assignment(5, seed=0) == ["linear", "mlp", "linear", "mlp", "linear"]


def test_list_assigns_architectures_to_nodes():
    assert Mixed(models=TWO, assign=(1, 1, 0)).assignment(3, seed=0) == ["mlp", "mlp", "linear"]


def test_adding_nodes_does_not_shift_random_draws():
    mixed = Mixed(models=TWO, assign="random")
    few, many = mixed.assignment(20, seed=3), mixed.assignment(40, seed=3)
    assert many[:20] == few and set(few) == {"linear", "mlp"}


def test_equal_names_are_distinguished():
    mixed = Mixed(models=({"name": "mlp", "hidden": [8]}, {"name": "mlp", "hidden": [4]}))
    built = mixed.builders((1, 4, 4), 3)
    assert list(built) == ["mlp#0", "mlp#1"]
    assert [build().head.in_features for build in built.values()] == [8, 4]


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"models": ("resnet99",)}, "unknown name 'resnet99'"),
        ({"models": ({"name": "mlp", "hiden": [3]},)}, "no key 'hiden'"),
        ({"models": ({"name": "mlp", "dropout": 2.0},)}, "mlp.dropout"),
        ({"models": TWO, "assign": (0, 2)}, "0..1, got 2"),
    ],
)
def test_bad_lists_are_refused(changes, text):
    with pytest.raises(ScenarioError, match=text.replace(".", r"\.")):
        Mixed(**changes)


def test_list_of_the_wrong_length_is_refused():
    with pytest.raises(ScenarioError, match="each of 4 nodes, got 2"):
        Mixed(models=TWO, assign=(0, 1)).assignment(4, seed=0)

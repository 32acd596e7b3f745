"""Claims about figures, judged on made-up means."""

import pytest
from pydantic import ValidationError

from ddlsim.runs.reproduce.published import Shape


@pytest.mark.parametrize(
    ("keys", "verdict"),
    [
        ({"order": ("a", "b", "c")}, "holds"),
        ({"order": ("b", "a")}, "does not hold"),
        ({"order": ("a", "b"), "margin": 3.0}, "does not hold"),
        ({"order": ("b", "a"), "margin": -3.0}, "holds"),  # at most three below
        ({"order": ("a", ("c", "b"))}, "holds"),  # the highest, for any order of the rest
        ({"order": (("c", "a"), "b")}, "does not hold"),
        ({"order": (("b", "a"), "c"), "margin": 5.0}, "holds"),
        ({"order": ("a", ("b", "none"))}, "not run"),
        ({"near": ("a", "b", "c"), "within": 7.0}, "holds"),
        ({"near": ("a", "b", "c"), "within": 6.0}, "does not hold"),
        ({"order": ("a", "none")}, "not run"),
        ({"near": ("a", "diverged"), "within": 100.0}, "no value"),
        ({"order": ("diverged", "none")}, "not run"),
    ],
)
def test_shape_compares_an_order_or_nearness(keys, verdict):
    values = {"a": 9.0, "b": 7.0, "c": 2.0, "diverged": None}
    assert Shape(claim="", **keys).judge(values) == verdict


@pytest.mark.parametrize("keys", [{}, {"order": ("a", "b"), "near": ("a", "b")}])
def test_shape_needs_exactly_one_comparison(keys):
    with pytest.raises(ValidationError, match="either order or near"):
        Shape(claim="", **keys)

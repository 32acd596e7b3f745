"""Robust aggregation as a job: rows in, one row out."""

import re
from dataclasses import dataclass

import numpy as np
import pytest
import reference_kernels as reference
import torch

from ddlsim.aggregation import AGGREGATIONS
from ddlsim.aggregation.base import Aggregation, Combination, weighted_sum
from ddlsim.foundation.errors import ScenarioError
from ddlsim.learning.bank import Rows
from ddlsim.learning.job_types import AggregateSpec
from ddlsim.learning.layout import Entry, Part
from ddlsim.learning.row_operations import aggregate

PART = Part("net", "model", (Entry("w", (70,), 0, 70, True), Entry("buffer", (3,), 70, 73, False)))


def outcome(name, values, own=0, start=None, **keys):
    """Apply a rule, or the rule of a name, to rows [n, 73]; repeated objects in a list are one row."""
    rows, values = Rows(torch.device("cpu")), list(values)
    stored = {id(row): rows.store(PART, torch.as_tensor(row, dtype=torch.float32)) for row in values}
    held = [stored[id(row)] for row in values]
    begun = None if start is None else rows.store(PART, torch.as_tensor(start, dtype=torch.float32))
    made = rows.new(PART)
    spec = AggregateSpec(
        rule=AGGREGATIONS[name](**keys) if isinstance(name, str) else name,
        sources=tuple(params.serial for params in held),
        weights=tuple([1 / len(held)] * len(held)),
        own=own,
        start=None if begun is None else begun.serial,
        target=made.serial,
    )
    aggregate([spec.bound(rows)])
    return made.values().double()


@pytest.fixture
def values():
    return torch.randn(7, 73, generator=torch.Generator().manual_seed(0))


def test_median_is_taken_per_column(values):
    torch.testing.assert_close(outcome("median", values), reference.trimmed_mean(values, 3), atol=1e-6, rtol=0)


def test_bridge_keeps_the_row_of_the_node(values):
    expected = reference.trimmed_mean(values[1:], 1, values[0])
    torch.testing.assert_close(outcome("bridge", values), expected, atol=1e-6, rtol=0)


def test_bridge_trims_copies_of_the_nodes_row_sent_by_others(values):
    own, *others = values
    expected = reference.trimmed_mean(torch.stack([own, own, *others]), 1, own)
    torch.testing.assert_close(outcome("bridge", [own, own, own, *others]), expected, atol=1e-6, rtol=0)


def test_krum_takes_one_row_to_the_bit(values):
    found = outcome("krum", values)
    assert any(torch.equal(found, row.double()) for row in values)


def test_distances_are_over_trained_values(values):
    values = values.clone()
    values[:, 70:] = torch.arange(7.0)[:, None] * 1e6  # buffers would change the result
    without = values.clone()
    without[:, 70:] = 0
    assert torch.equal(outcome("krum", values)[:70], outcome("krum", without)[:70])


def test_mixed_rows_are_trimmed(values):
    from itertools import combinations

    found = outcome("nearest_neighbor_mixing", values, byzantine=1)
    means = torch.stack([values[list(rows)].double().mean(0) for rows in combinations(range(7), 6)])
    assert ((found >= means.min(0).values - 1e-6) & (found <= means.max(0).values + 1e-6)).all()


@pytest.mark.parametrize("name", [name for name in AGGREGATIONS.own_names if name != "mean"])
@pytest.mark.parametrize("bad", [np.nan, np.inf, 3e38])
def test_non_finite_row_is_dropped(values, name, bad):
    values = values.clone()
    values[3, 5] = bad
    assert torch.equal(outcome(name, values), outcome(name, values[[0, 1, 2, 4, 5, 6]]))


def test_node_with_a_non_finite_row_keeps_it(values):
    values = values.clone()
    values[0, 0] = torch.nan
    torch.testing.assert_close(outcome("median", values), values[0].double(), equal_nan=True)


def test_cosine_clipping_compares_updates(values):
    start = values[0] - 0.1
    back = start - (values[0] - start)  # the opposite update
    found = outcome("cosine_clipping", torch.stack([values[0], back]), start=start)
    torch.testing.assert_close(found, values[0].double(), atol=1e-6, rtol=0)


@dataclass(frozen=True, kw_only=True)
class SignVote(Aggregation):
    needs_rows = True

    def combine(self, rows):
        return rows.values[rows.own] + torch.sign(torch.sign(rows.values - rows.values[rows.own]).sum(0))


def test_rule_that_needs_rows_returns_any_function_of_them(values):
    above = (values > values[2]).sum(0) - (values < values[2]).sum(0)
    expected = values[2] + (above > 0).float() - (above < 0).float()
    assert torch.equal(outcome(SignVote(), values, own=2).float(), expected)


@dataclass(frozen=True, kw_only=True)
class WholeMatrix(Aggregation):
    needs_rows = True

    def combine(self, rows):
        return rows.values


def test_rule_whose_values_have_another_shape_is_refused(values):
    with pytest.raises(
        ScenarioError, match=re.escape("WholeMatrix returns a tensor [7, 73] of torch.float32, expected")
    ):
        outcome(WholeMatrix(), values)


@dataclass(frozen=True, kw_only=True)
class Own(Aggregation):
    made: object

    def combine(self, rows):
        return self.made


@pytest.mark.parametrize(
    ("made", "text"),
    [
        (np.ones(7) / 7, " returns a ndarray, expected a ddlsim.aggregation.base.Combination."),
        (weighted_sum(np.ones(8) / 8), ": mixing: expected finite weights [m, 7] for 7 rows, got [[0.125, "),
        (weighted_sum(np.ones(6) / 6), ": mixing: expected finite weights [m, 7] for 7 rows, got [[0.1666"),
        (weighted_sum([1.0] * 6 + [np.inf]), ": mixing: expected finite weights [m, 7] for 7 rows, got [[1.0, 1.0, "),
        (Combination(cut=4), ": cut: expected fewer than half of 7 rows on either side, got 4."),
        (Combination(kept=7), ": kept: expected the index of one of 7 rows, got 7."),
    ],
)
def test_rule_with_invalid_rows_is_refused(values, made, text):
    with pytest.raises(ScenarioError, match=re.escape(f"aggregation: combine of Own{text}")):
        outcome(Own(made=made), values)

"""Robust rules against hand-computed numbers, general properties, and byzpy if it is installed."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ddlsim.aggregation import AGGREGATIONS
from ddlsim.aggregation.base import Rows, tolerated
from ddlsim.aggregation.rules import _distances_of

SETTINGS = {"self_centered_clipping": {"radius": 3.0, "iterations": 2}}
RULES = [AGGREGATIONS[name](**SETTINGS.get(name, {})) for name in AGGREGATIONS.own_names]
NAMES = list(AGGREGATIONS.own_names)


def sqdist(x):
    return ((x[:, None] - x[None, :]) ** 2).sum(axis=2)


def combined(rule, x, own=0, weights=None, start=None):
    """Apply a rule to rows in float64, by its definition."""
    x = np.asarray(x, float)
    weights = np.full(len(x), 1 / len(x)) if weights is None else np.asarray(weights, float)
    everything = np.vstack([x, np.zeros_like(x[0]) if start is None else start]) if rule.needs_start else x
    found = rule.combine(Rows(weights, own, sqdist(everything)))
    mixed = x if found.mixing is None else found.mixing @ everything
    if found.kept is not None:
        kept, mixed = mixed[found.kept], np.delete(mixed, found.kept, axis=0)
    left = np.sort(mixed, axis=0)[found.cut : len(mixed) - found.cut]
    return left.mean(axis=0) if found.kept is None else np.vstack([left, kept]).mean(axis=0)


def rule(name, **keys):
    return AGGREGATIONS[name](**keys)


LINE = [[0.0], [1.0], [2.0], [3.0], [100.0]]


@pytest.mark.parametrize(
    ("name", "keys", "expected"),
    [
        ("mean", {}, 21.2),
        ("median", {}, 2),
        ("trimmed_mean", {"trim": 1}, 2),
        ("trimmed_mean", {"trim": 0.2}, 2),
        ("trimmed_mean", {"trim": 9}, 2),  # the largest possible number: the median
        ("bridge", {"byzantine": 1}, 5 / 3),  # own 0, and 2 and 3 of 1, 2, 3, 100
        ("bridge", {"variant": "M"}, 2),
        ("bridge", {"variant": "K"}, 1),
        ("krum", {}, 1),  # two nearest: 1 + 1 of 1 and of 2, the lower id wins
        ("multi_krum", {"selected": 3}, 1),  # 1 and 2 score 2, 0 and 3 score 5; own is 0
        ("clipped_gossip", {"radius": 1.0}, 0.8),
        ("self_centered_clipping", {"radius": 1.0}, 0.8),
        ("nearest_neighbor_mixing", {"then": "mean"}, (1.5 * 4 + 26.5) / 5),
    ],
)
def test_rule_on_numbers_with_an_outlier_by_hand(name, keys, expected):
    assert combined(rule(name, **keys), LINE)[0] == pytest.approx(expected)


def test_geometric_median_of_three_numbers_is_the_middle_one():
    assert combined(rule("geometric_median"), [[0.0], [1.0], [50.0]])[0] == pytest.approx(1, abs=1e-4)


def test_geometric_median_of_a_triangle_sees_its_corners_under_120_degrees():
    corners = np.array([[0.0, 0], [4, 0], [1, 3]])
    point = combined(rule("geometric_median"), corners)
    units = [(corner - point) / np.linalg.norm(corner - point) for corner in corners]
    assert np.linalg.norm(sum(units)) < 1e-5


@pytest.mark.parametrize("attackers", [1, 2, 4])
def test_distance_of_a_minority_does_not_move_the_geometric_median(attackers):
    rng = np.random.default_rng(attackers)
    honest, direction = rng.normal(size=(9 - attackers, 20)), np.eye(20)[0]
    near, far, farther = (
        combined(rule("geometric_median"), np.vstack([honest, np.tile(distance * direction, (attackers, 1))]))
        for distance in (1e4, 1e9, 1e12)
    )
    assert far == pytest.approx(near, abs=2e-3) and farther == pytest.approx(near, abs=2e-3)


def test_geometric_median_of_mostly_equal_rows_is_that_row():
    rows = [[1.0, 2.0]] * 4 + [[5.0, 5.0], [1e6, 0.0]]
    assert combined(rule("geometric_median"), rows) == pytest.approx([1.0, 2.0], abs=1e-5)


@pytest.mark.parametrize(("byzantine", "tau"), [(1, 3), (2, 2), (0.4, 2), (0, 100)])
def test_adaptive_clipped_gossip_takes_the_largest_distance_of_the_trusted_neighbors(byzantine, tau):
    # By hand, from 0 with weights 0.2: distances 1, 2, 3 and 100, each cut to tau; with 1 as the authors' code: 1.8.
    expected = 0.2 * sum(min(distance, tau) for distance in (1, 2, 3, 100))
    assert combined(rule("clipped_gossip", byzantine=byzantine), LINE)[0] == pytest.approx(expected)


def test_cosine_clipping_drops_opposite_updates_and_shortens_long_ones():
    start, own, ahead, back = [1.0, 1], [2.0, 1], [11.0, 1], [-5.0, 1]
    assert combined(rule("cosine_clipping"), [own, ahead, back], start=start) == pytest.approx(own)


def test_cosine_clipping_trusts_by_the_cosine():
    found = combined(rule("cosine_clipping"), [[1.0, 0], [1.0, 1]])  # from zeros; cosine sqrt(1/2), length 1
    trust = np.sqrt(0.5)
    assert found == pytest.approx((np.array([1, 0]) + trust * np.array([1, 1]) * np.sqrt(0.5)) / (1 + trust))


def test_a_share_is_rounded_down_and_a_number_is_limited():
    assert [tolerated(0.25, n, 9) for n in (3, 4, 8)] == [0, 1, 2]
    assert tolerated(0.29, 100, 99) == 29 and tolerated(0.35, 180, 99) == 63
    assert tolerated(5, 4, 1) == 1 and tolerated(2, 4, -1) == 0


ROWS = st.integers(1, 9).flatmap(lambda n: st.tuples(st.just(n), st.integers(1, 6), st.integers(0, 2**31)))


@pytest.mark.parametrize("one", RULES, ids=NAMES)
@settings(max_examples=25, deadline=None)
@given(shape=ROWS)
def test_equal_rows_are_unchanged(one, shape):
    n, columns, seed = shape
    row = np.random.default_rng(seed).normal(size=columns)
    assert combined(one, np.tile(row, (n, 1))) == pytest.approx(row, abs=1e-9)


@pytest.mark.parametrize("one", RULES, ids=NAMES)
@settings(max_examples=25, deadline=None)
@given(shape=ROWS)
def test_rules_are_translation_equivariant(one, shape):
    n, columns, seed = shape
    generator = np.random.default_rng(seed)
    x, by = generator.normal(size=(n, columns)), generator.normal(size=columns)
    start = generator.normal(size=columns) if one.needs_start else None
    moved = combined(one, x + by, start=None if start is None else start + by)
    assert moved == pytest.approx(combined(one, x, start=start) + by, abs=1e-6)


@pytest.mark.parametrize("one", RULES, ids=NAMES)
@settings(max_examples=25, deadline=None)
@given(shape=ROWS)
def test_order_of_the_neighbors_does_not_matter(one, shape):
    n, columns, seed = shape
    n += 4  # of fewer, Krum's two nearest have the same score
    generator = np.random.default_rng(seed)
    x = generator.normal(size=(n, columns))
    order = [0, *(1 + generator.permutation(n - 1))]
    assert combined(one, x[order]) == pytest.approx(combined(one, x), abs=1e-6)


@pytest.mark.parametrize("name", [name for name in NAMES if name not in ("mean", "self_centered_clipping")])
def test_one_outlier_moves_the_result_by_a_bounded_amount(name):
    x = np.random.default_rng(3).normal(size=(8, 5))
    far = [np.linalg.norm(combined(rule(name), np.vstack([x, np.full((1, 5), by)]))) for by in (1e3, 1e6)]
    assert far[1] < 10 and far[1] == pytest.approx(far[0], rel=0.5, abs=0.5)


class TestByzpy:
    """An independent implementation of the same papers, to 1e-6."""

    x = np.random.default_rng(7).normal(size=(9, 40))

    @pytest.mark.parametrize("selected", [1, 4])
    def test_krum_and_multi_krum_equal_byzpy(self, selected):
        krum = pytest.importorskip("byzpy.aggregators.geometric_wise.krum")
        # byzpy sums n - f - 1 distances, the paper n - f - 2: its f is one less than ddlsim's
        theirs = krum.MultiKrum(f=3, q=selected).aggregate(list(torch.from_numpy(self.x)))
        assert combined(rule("multi_krum", byzantine=2, selected=selected), self.x) == pytest.approx(
            theirs.numpy(), abs=1e-6
        )

    def test_geometric_median(self):
        median = pytest.importorskip("byzpy.aggregators.geometric_wise.geometric_median")
        theirs = median.GeometricMedian(tol=1e-12, max_iter=5000).aggregate(list(torch.from_numpy(self.x)))
        assert combined(rule("geometric_median"), self.x) == pytest.approx(theirs.numpy(), abs=1e-6)

    def test_trimmed_mean(self):
        trimmed = pytest.importorskip("byzpy.aggregators.coordinate_wise.trimmed_mean")
        theirs = trimmed.CoordinateWiseTrimmedMean(f=2).aggregate(list(torch.from_numpy(self.x)))
        assert combined(rule("trimmed_mean", trim=2), self.x) == pytest.approx(theirs.numpy(), abs=1e-6)

    def test_nearest_neighbor_mixing(self):
        nnm = pytest.importorskip("byzpy.pre_aggregators.nnm")
        theirs = torch.stack(nnm.NearestNeighborMixing(f=2).pre_aggregate(list(torch.from_numpy(self.x)))).mean(0)
        found = combined(rule("nearest_neighbor_mixing", byzantine=2, then="mean"), self.x)
        assert found == pytest.approx(theirs.numpy(), abs=1e-6)


@given(st.integers(0, 10**6), st.integers(3, 8))
@settings(max_examples=50, deadline=None)
def test_distances_of_mixtures_are_symmetric_and_zero_for_equal_mixtures(seed, n):
    """Ties are broken by the order of nodes, so rounding must not break them."""
    rng = np.random.default_rng(seed)
    mixing = rng.integers(0, 2, (n, n)) + np.eye(n)
    mixing[-1] = mixing[0]
    found = _distances_of(mixing / mixing.sum(axis=1, keepdims=True), sqdist(rng.normal(size=(n, 5))))
    assert (found == found.T).all() and (np.diag(found) == 0).all() and found[0, -1] == 0

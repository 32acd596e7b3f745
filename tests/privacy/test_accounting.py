"""Epsilon by Opacus' accountants."""

import math

import pytest

from ddlsim.foundation import accounting
from ddlsim.foundation.accounting import Releases, epsilon
from ddlsim.foundation.errors import DataMissing


def test_nothing_released_costs_nothing_and_no_noise_guarantees_nothing():
    assert epsilon([], 1e-5) == epsilon([Releases(1.0, 1.0, 0)], 1e-5) == 0.0
    assert epsilon([Releases(0.0, 1.0, 1)], 1e-5) == math.inf


def test_without_opacus_the_extra_is_named(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(DataMissing, match=r"ddlsim\[privacy\]"):
        epsilon([Releases(1.2345, 1.0, 1)], 1e-5)


def test_the_gaussian_mechanism_has_its_closed_form_in_renyi_divergence():
    """k releases at order a cost k a / (2 noise^2); then Opacus' conversion to (epsilon, delta)."""
    pytest.importorskip("opacus")
    noise, count, delta = 4.0, 10, 1e-5
    orders = [1 + x / 10 for x in range(1, 100)] + list(range(12, 64))
    best = min(
        count * a / (2 * noise**2) - (math.log(delta) + math.log(a)) / (a - 1) + math.log((a - 1) / a) for a in orders
    )
    assert epsilon([Releases(noise, 1.0, count)], delta) == pytest.approx(best, rel=1e-6)


def test_epsilon_equals_opacus_after_every_step():
    accountants = pytest.importorskip("opacus.accountants")
    made = accountants.RDPAccountant()
    for _ in range(50):
        made.step(noise_multiplier=1.1, sample_rate=0.05)
    assert epsilon([Releases(1.1, 0.05, 50)], 1e-5) == pytest.approx(made.get_epsilon(1e-5), rel=1e-9)
    assert 0 < epsilon([Releases(1.1, 0.05, 50)], 1e-5, "prv") < epsilon([Releases(1.1, 0.05, 50)], 1e-5, "rdp")


def test_nodes_with_equal_counts_are_accounted_once():
    pytest.importorskip("opacus")
    epsilon([Releases(3.3, 1.0, 7)], 1e-5)
    before = accounting._of_opacus.cache_info().hits
    epsilon([Releases(3.3, 1.0, 7)], 1e-5)
    assert accounting._of_opacus.cache_info().hits == before + 1

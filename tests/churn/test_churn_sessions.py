from itertools import islice

import numpy as np
import pytest

from ddlsim.churn import CHURNS
from ddlsim.churn.schedule import HOUR_S, Exponential, Lengths, Weibull
from ddlsim.foundation.rng import stream

PRESETS = {"skype": 0.529, "overnet": 0.222, "microsoft": 0.810, "planetlab": 0.825}
"""Share of nodes online in the long run: mean stay / (mean stay + mean absence), means scale * gamma(1 + 1 / shape)."""


def first(churn, num_nodes=4, seed=0, length=50):
    return {node: list(islice(gaps, length)) for node, gaps in churn.absences(num_nodes, seed).items()}


def online_share(churn, times_s, num_nodes=1000) -> np.ndarray:
    """Share of nodes online at each time."""
    away = np.zeros(len(times_s))
    for gaps in churn.absences(num_nodes, seed=3).values():
        for start_s, end_s in gaps:
            if start_s > times_s[-1]:
                break
            away += (start_s <= times_s) & (times_s < end_s)
    return 1 - away / num_nodes


def test_absences_follow_each_other_in_time():
    for gaps in first(Exponential(mean_online_s=3, mean_offline_s=1)).values():
        times = np.ravel(gaps)
        assert len(times) == 100
        assert (np.diff(times) > 0).all()


def test_exponential_stays_and_absences_have_their_means():
    gaps = np.array(first(Exponential(mean_online_s=30, mean_offline_s=10), 1, length=4000)[0])
    stays, absences = gaps[1:, 0] - gaps[:-1, 1], gaps[:, 1] - gaps[:, 0]
    assert stays.mean() == pytest.approx(30, rel=0.1)
    assert absences.mean() == pytest.approx(10, rel=0.1)
    assert stays.std() == pytest.approx(30, rel=0.15)  # as its mean


def test_weibull_of_shape_two_has_its_mean_in_scaled_time():
    churn = Weibull(online_shape=2, online_scale_h=10, offline_shape=1, offline_scale_h=1, time_scale=HOUR_S)
    gaps = np.array(first(churn, 1, length=4000)[0])
    assert (gaps[1:, 0] - gaps[:-1, 1]).mean() == pytest.approx(10 * np.sqrt(np.pi) / 2, rel=0.05)  # in seconds
    assert (gaps[:, 1] - gaps[:, 0]).mean() == pytest.approx(1, rel=0.1)


@pytest.mark.parametrize(("name", "expected"), PRESETS.items())
def test_preset_is_as_often_online_at_the_start_as_later(name, expected):
    hours = np.array([0.0, 1.0, 24.0])
    churn = CHURNS[name](time_scale=HOUR_S)
    assert online_share(churn, hours) == pytest.approx([expected] * 3, abs=0.06)


@pytest.mark.parametrize("share", [0, 0.3, 1])
def test_share_online_at_the_start_equals_its_key(share):
    churn = Exponential(mean_online_s=1, mean_offline_s=1, initially_online=share)
    start, late = online_share(churn, np.array([0.0, 5.0]))
    assert start == pytest.approx(share, abs=0.05)
    assert late == pytest.approx(0.5, abs=0.06)


def test_rest_of_an_exponential_length_is_as_long_as_a_whole_one():
    rng, lengths = stream(0, "rests"), Lengths(1, 5.0)
    assert np.mean([lengths.draw_rest(rng) for _ in range(5000)]) == pytest.approx(5, rel=0.06)


def test_rest_of_a_weibull_length_has_the_mean_of_renewal_theory():
    rng, lengths = stream(0, "rests"), Lengths(2, 1.0)
    expected = 1 / (2 * lengths.mean_s)  # second moment, scale^2 gamma(1 + 2 / 2) = 1, by twice the mean
    assert np.mean([lengths.draw_rest(rng) for _ in range(5000)]) == pytest.approx(expected, rel=0.05)


def test_adding_a_node_changes_no_draw_of_other_nodes():
    churn = Exponential(mean_online_s=3, mean_offline_s=1)
    few, more = first(churn, 3), first(churn, 4)
    assert {node: more[node] for node in few} == few
    assert more[3] not in few.values()


def test_another_seed_gives_other_sessions():
    churn = Exponential(mean_online_s=3, mean_offline_s=1)
    assert first(churn, seed=1) == first(churn, seed=1) != first(churn, seed=2)

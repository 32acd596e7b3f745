"""Replays of flows measured over real TCP, without root or a network."""

import numpy as np
import pytest
from compare_flows import FITTED_TO, FQ_CODEL, HELD_OUT, PLAIN_QUEUE, fit_utilization, read_all, summary

from ddlsim.scenario.network_sections import Tcp

FAIR, CODEL, PLAIN = ("fair", 1000), ("relay_fq_codel", 10240), ("pfifo", 100)
ROUNDS = ("el_8", "facade_8")


def of(name, *setting):
    (found,) = [measured for measured in read_all(*setting) if measured.name == name]
    return found


@pytest.mark.parametrize("name", [*ROUNDS, "el_16", "el_8_rtts", "incast", "uplink", "churn"])
def test_rounds_with_fair_queues_are_within_five_percent(name):
    median, p95, _ = summary(of(name, *FAIR).round_errors(Tcp()))
    assert median < 0.05
    assert p95 < 0.1


@pytest.mark.parametrize("name", ROUNDS)
def test_rounds_with_a_connection_per_message_are_within_five_percent(name):
    errors = of(name, "fair", 100, "cubic", "per_message").round_errors(Tcp(connections="per_message"))
    assert summary(errors)[0] < 0.05
    assert summary(errors)[1] < 0.1


@pytest.mark.parametrize("name", ["hetero", "random"])
def test_scattered_flows_over_equal_and_unequal_links_are_within_five_percent_and_ten_at_most(name):
    median, p95, _ = summary(of(name, *FAIR).flow_errors(Tcp()))
    assert median < 0.05
    assert p95 < 0.1


@pytest.mark.parametrize("name", [*ROUNDS, "el_8_other", "el_8_rtts", "hetero", "random", "incast", "uplink"])
def test_flows_with_fq_codel_are_within_fifteen_percent(name):
    assert summary(of(name, *CODEL).flow_errors(Tcp()))[0] < 0.15


@pytest.mark.parametrize("name", ROUNDS)
def test_tcp_is_nearer_to_the_measured_rounds_than_flow(name):
    measured = of(name, *FAIR)
    assert summary(measured.round_errors(Tcp()))[0] < summary(measured.round_errors(None))[0] / 3


def test_messages_alone_on_their_connection_are_right_in_the_median():
    # to 1 %, unless the number of timeouts between two is miscounted
    assert summary(of("single_rtts", *FAIR).flow_errors(Tcp()))[0] < 0.01


def test_single_flow_is_right_at_any_size():
    # except at 1 kB, where a millisecond on the hosts matters
    assert abs(of("single_20ms", *FAIR).flow_errors(Tcp())[1:]).max() < 0.05


@pytest.mark.parametrize(("setting", "settings"), [(CODEL, FQ_CODEL), (PLAIN, PLAIN_QUEUE)])
def test_stored_utilization_equals_a_new_fit(setting, settings):
    cases = [of(name, *setting) for name in FITTED_TO]
    near = [round(settings.utilization + change, 2) for change in (-0.08, -0.04, 0, 0.04, 0.08)]
    assert fit_utilization(cases, settings, near, seeds=range(2)) == settings.utilization


@pytest.mark.parametrize("name", HELD_OUT)
def test_the_fit_for_fq_codel_holds_for_rounds_it_was_not_fitted_to(name):
    median, p95, _ = summary(of(name, *CODEL).round_errors(FQ_CODEL))
    assert median < 0.05
    assert p95 < 0.1


@pytest.mark.parametrize("name", HELD_OUT)
def test_the_fit_for_plain_queues_is_within_ten_percent_for_rounds_it_was_not_fitted_to(name):
    assert summary(of(name, *PLAIN).round_errors(PLAIN_QUEUE))[0] < 0.1


@pytest.mark.parametrize("name", ["facade_8", "el_8_other", "facade_8_other"])
def test_random_shares_have_the_measured_spread(name):
    measured = of(name, *PLAIN)
    simulated, real = (np.log(taken_s).std() for taken_s in (measured.simulated_s(PLAIN_QUEUE), measured.taken_s))
    assert simulated == pytest.approx(real, rel=0.25)

"""Flows that were measured over real TCP, replayed: no root and no network are needed."""

import numpy as np
import pytest
from compare_flows import PLAIN_QUEUE, read_all, summary

from ddlsim.network.tcp import Tcp

ROUNDS = ("el_8", "facade_8", "el_32")


def of(name, *setting):
    (found,) = [measured for measured in read_all(*setting) if measured.name == name]
    return found


@pytest.mark.parametrize("connections", ["persistent", "per_message"])
@pytest.mark.parametrize("name", ROUNDS[:2])
def test_rounds_behind_fair_queues_are_within_five_percent(name, connections):
    median, p95, _ = summary(of(name, "fair", 100, "cubic", connections).round_errors(Tcp(connections=connections)))
    assert median < 0.05
    assert p95 < 0.1


@pytest.mark.parametrize("name", ["uplink", "incast", "random", "single_20ms", "el_8"])
def test_flows_behind_fair_queues_are_within_fifteen_percent(name):
    assert summary(of(name, "fair").flow_errors(Tcp()))[0] < 0.15


@pytest.mark.parametrize("name", ROUNDS[:2])
def test_tcp_is_nearer_to_the_measured_rounds_than_flow(name):
    measured = of(name, "fair")
    assert summary(measured.round_errors(Tcp()))[0] < summary(measured.round_errors(None))[0] / 3


def test_a_flow_alone_is_right_whatever_its_size():
    # but at 1 kB, where a millisecond of the hosts themselves counts
    assert abs(of("single_20ms", "fair").flow_errors(Tcp())[1:]).max() < 0.05


@pytest.mark.parametrize("name", ROUNDS[:2])
def test_random_shares_have_the_spread_that_was_measured_behind_plain_queues(name):
    measured = of(name, "pfifo")
    simulated, real = (np.log(taken_s).std() for taken_s in (measured.simulated_s(PLAIN_QUEUE), measured.taken_s))
    assert simulated == pytest.approx(real, rel=0.25)


@pytest.mark.parametrize("name", ROUNDS)
def test_rounds_behind_plain_queues_are_within_fifteen_percent_with_settings_for_them(name):
    assert summary(of(name, "pfifo").round_errors(PLAIN_QUEUE))[0] < 0.15

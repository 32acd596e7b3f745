"""Energy from seconds, steps and bytes, in simulations counted by hand."""

import pytest
from small_network import equal_network
from small_simulation import Plain, assemble

from ddlsim.devices.energy import Costs
from ddlsim.engine.meters import DeviceMeter, EnergyMeter
from ddlsim.network.messages.message import Message


def test_departure_ends_work_and_charges_its_completed_share():
    device = DeviceMeter()
    device.computes(8, 1.0, 4.0)
    device.left(2.0)
    assert (device.steps(9.0), device.computing_s(9.0), device.idle_s(9.0)) == (2.0, 1.0, 1.0)


def test_simultaneous_work_counts_its_time_once_and_all_its_steps():
    device = DeviceMeter()
    device.computes(4, 0.0, 4.0)
    device.computes(6, 2.0, 3.0)
    assert (device.computing_s(2.5), device.steps(2.5)) == (2.5, 2.5 + 1.0)
    device.computes(1, 10.0, 1.0)
    assert (device.computing_s(20.0), device.steps(20.0)) == (6.0, 11.0)


def test_scores_for_others_after_the_last_round_do_not_change_idle_time():
    device = DeviceMeter()
    device.computes(5, 0.0, 5.0)
    device.computes(2, 9.0, 2.0)
    device.end_idle(10.0)
    device.computes(1, 12.0, 4.0)
    assert (device.idle_s(10.0), device.idle_s(20.0), device.computing_s(20.0)) == (4.0, 4.0, 11.0)


def test_idle_time_sums_over_all_stays():
    device = DeviceMeter()
    device.computes(3, 0.0, 3.0)
    device.left(4.0)
    assert (device.idle_s(4.0), device.idle_s(9.0)) == (1.0, 1.0)
    device.returned(10.0)
    device.computes(3, 11.0, 3.0)
    assert (device.idle_s(11.5), device.idle_s(15.0)) == (2.0, 3.0)


def test_steps_of_zero_time_finish_at_once():
    device = DeviceMeter()
    device.computes(5, 3.0, 0.0)
    assert (device.steps(3.0), device.computing_s(3.0)) == (5.0, 0.0)


class Training(Plain):
    """A local step a round, then a message to all others, then theirs."""

    def start(self, node):
        return {"model": node.init_models(whole=True)[0]}

    def round(self, node, state, round_num):
        yield node.train(state["model"], 1)
        node.send(node.others(), round_num, number=1)
        yield node.receive(round_num, node.others())


def simulate(rounds, step_time_s, absences=(), **settings):
    """Two nodes with links of 100 bytes/s; a message has 8 bytes and no header."""
    made = assemble(
        Training(),
        2,
        lambda env: equal_network(env, 2, 100.0, 100.0),
        rounds=rounds,
        step_time_s=step_time_s,
        graph=[(1,), (0,)],
        absences=absences,
        metered=Costs(watts=10.0, idle_w=1.0, j_per_byte_up=1.0, j_per_byte_down=0.5),
        **settings,
    )
    made.run()
    return made.meter.rows()


def test_a_fast_node_is_idle_while_it_waits_for_a_slow_one():
    fast, slow = simulate(2, [1.0, 3.0])
    # The fast node's messages arrive long before the slow node's steps end, at 3 and 6 s; 8 bytes take 0.08 s.
    assert (fast["computing_s"], fast["idle_s"]) == pytest.approx((2.0, 4.08))
    assert (slow["computing_s"], slow["idle_s"]) == pytest.approx((6.0, 0.0))
    assert (fast["compute_j"], fast["idle_j"]) == pytest.approx((20.0, 4.08))
    assert [fast[name] for name in ("sent_bytes", "received_bytes", "upload_j", "download_j")] == [16, 16, 16.0, 8.0]


def test_absent_node_costs_nothing_and_aborted_step_costs_its_share():
    stays, leaves = simulate(3, [1.0, 1.0], {1: [(0.25, 1.75)]})
    # Node 0 has done two rounds alone when node 1 returns and joins the third.
    assert stays["computing_s"] == 3.0
    assert leaves["steps"] == pytest.approx(0.25 + 1.0)
    assert leaves["computing_s"] == pytest.approx(0.25 + 1.0)
    assert leaves["sent_bytes"] == 8


def test_asynchronous_nodes_are_idle_until_their_last_round():
    fast, slow = simulate(2, [1.0, 3.0], synchronous=False)
    assert (fast["computing_s"], fast["idle_s"]) == (2.0, 0.0)
    assert (slow["computing_s"], slow["idle_s"]) == (6.0, 0.0)


def test_bytes_of_an_aborted_message_are_charged_at_both_ends():
    from simpy import Environment

    env = Environment()
    network = equal_network(env, 2, 100.0, 100.0)
    meter = EnergyMeter(2, None, Costs(j_per_byte_up=1.0, j_per_byte_down=2.0), lambda: env.now, network)
    network.send([Message(0, 1, 0, "push", {}, 1000)])
    env.run(until=3.0)
    network.remove_node(1)
    sender, receiver = meter.rows()
    assert (sender["upload_j"], receiver["download_j"]) == (300.0, 600.0)

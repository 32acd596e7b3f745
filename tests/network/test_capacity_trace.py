from simpy import Environment
from small_network import equal_network

from ddlsim.network.link_table import CapacityChange
from ddlsim.network.messages.message import Message


def test_capacities_follow_their_trace():
    env, arrived = Environment(), []
    network = equal_network(env, 2, 1000.0, 1000.0, on_delivery=lambda _: arrived.append(env.now))
    changes = [CapacityChange(1, 0, 500, 1000), CapacityChange(2, 0, 0, 1000), CapacityChange(4, 0, 250, 1000)]
    network.follow(changes)
    network.send([Message(0, 1, 0, "push", None, 2000)])
    env.run()
    assert arrived == [6]  # 1000 + 500 + 0 + 0 + 250 + 250

from simpy import Environment

from ddlsim.network.access_links import CapacityChange, follow
from ddlsim.network.messages.message import Message
from ddlsim.network.network import Network


def test_capacities_follow_their_trace():
    env, arrived = Environment(), []
    network = Network(env, 2, 1000.0, 1000.0, on_delivery=lambda _: arrived.append(env.now))
    changes = [CapacityChange(1, 0, 500, 1000), CapacityChange(2, 0, 0, 1000), CapacityChange(4, 0, 250, 1000)]
    env.process(follow(env, network, changes))
    network.send([Message(0, 1, 0, "push", None, 2000)])
    env.run()
    assert arrived == [6]  # 1000 + 500 + 0 + 0 + 250 + 250

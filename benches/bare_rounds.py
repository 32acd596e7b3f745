"""The minimal cost of rounds of a network-only run: SimPy and the network, without algorithm and engine.

    python benches/bare_rounds.py NODES ROUNDS

A process per node waits for the time of a training, sends one message to its four neighbors, waits for theirs and
takes them: the events and messages of Epidemic Learning in scenarios/million_network_only.yaml. Prints the user
CPU seconds of the process, imports included.
"""

import resource
import sys
from collections.abc import Generator

import simpy

from ddlsim.network.link_table import LinkTable
from ddlsim.network.messages.message import PUSH, Message
from ddlsim.network.network import Network
from ddlsim.topologies.random_graphs import random_regular

DEGREE, STEP_S, PAYLOAD_BYTES, HEADER_BYTES = 4, 0.5, 359_336, 234


def main(num_nodes: int, rounds: int) -> None:
    env = simpy.Environment()
    network = Network(env, LinkTable.equal(num_nodes, 12.5e6, 12.5e6, 0.02), header_bytes=HEADER_BYTES)
    mailboxes = network.use_mailboxes()
    graphs = [[tuple(row) for row in random_regular(DEGREE, num_nodes, seed).table.tolist()] for seed in range(rounds)]

    def life(node: int) -> Generator[simpy.Event, None, None]:
        for round_num, graph in enumerate(graphs):
            yield env.timeout(STEP_S)
            network.send([Message(node, graph[node], round_num, PUSH, None, PAYLOAD_BYTES, HEADER_BYTES)])
            yield mailboxes.wait(node, PUSH, round_num, graph[node])
            mailboxes.take(node, PUSH, round_num)
            mailboxes.closed(node, round_num + 1)

    for node in range(num_nodes):
        env.process(life(node))
    env.run()
    print(f"{resource.getrusage(resource.RUSAGE_SELF).ru_utime:.2f} user CPU s, {env.now:.3f} simulated s")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))

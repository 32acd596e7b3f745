"""Small networks for tests: the flows alone, and messages through SimPy. Capacities in bytes/s."""

from dataclasses import replace

from simpy import Environment

from ddlsim.foundation.native import extension
from ddlsim.network.link_settings import Losses
from ddlsim.network.link_table import LinkTable
from ddlsim.network.messages.message import Message
from ddlsim.network.network import Network

LOSSES = ("drop_prob", "bursts", "on_drop", "timeout_s")
SHARED = ("shared_bytes_per_s", "route")


def flow_network(*links, **options):
    """Return the native network alone; `links` are (uplink, downlink) of each node."""
    network = extension().FlowNetwork(**options)
    network.add_nodes([up for up, _ in links], [down for _, down in links], [0] * len(links))
    return network


def equal_network(env, num_nodes, up_bytes_per_s, down_bytes_per_s, latency_s=0.0, **options):
    """Return a network in which all nodes have the same links; options are keys of Network, LinkTable and Losses."""
    losses, shared = ({key: options.pop(key) for key in keys if key in options} for keys in (LOSSES, SHARED))
    links = replace(LinkTable.equal(num_nodes, up_bytes_per_s, down_bytes_per_s, latency_s), **shared)
    return Network(env, links, losses=Losses(**losses), **options)


class SmallNetwork:
    """A network of three nodes with links of 1000 bytes/s by default; `log` holds (event, time, src, dst)."""

    def __init__(self, num_nodes=3, capacity=1000.0, latency_s=0.0, links=None, **options):
        self.env = Environment()
        self.log = []
        options = {"on_delivery": self.note("arrived"), "on_abort": self.note("aborted"), **options}
        if links is None:
            self.network = equal_network(self.env, num_nodes, capacity, capacity, latency_s, **options)
        else:
            self.network = Network(self.env, links, **options)

    def note(self, what):
        return lambda message: self.log.append((what, self.env.now, message.src, message.dst))

    def send(self, src, dst, num_bytes=1000, kind="push", at_s=None, **keys):
        """Send a message now or at a later time."""
        message = Message(src, dst, 0, kind, None, num_bytes, **keys)
        if at_s is None:
            self.network.send([message])
        else:
            self.at(at_s, lambda: self.network.send([message]))
        return message

    def at(self, time_s, call):
        def later():
            yield self.env.timeout(time_s)
            call()

        self.env.process(later())

    def use(self, until_s=None):
        """Finish the simulation; return the fate of all bytes."""
        self.env.run(until=until_s)
        return self.network.use()

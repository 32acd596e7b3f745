"""Small networks for tests: the flows alone, and messages through SimPy. Capacities in bytes/s."""

from simpy import Environment

from ddlsim.foundation.native import extension
from ddlsim.network.messages.message import Message
from ddlsim.network.network import Network


def flow_network(*links, **options):
    """The native network alone; `links` are (uplink, downlink) of each node."""
    network = extension().FlowNetwork(**options)
    network.add_nodes([up for up, _ in links], [down for _, down in links], [0] * len(links))
    return network


class SmallNetwork:
    """Three nodes with links of 1000 bytes/s, unless told otherwise; `log` holds (what, time, src, dst)."""

    def __init__(self, num_nodes=3, capacity=1000.0, latency_s=0.0, **options):
        self.env = Environment()
        self.log = []
        options = {"on_delivery": self.note("arrived"), "on_abort": self.note("aborted"), **options}
        self.network = Network(self.env, num_nodes, capacity, capacity, latency_s, **options)

    def note(self, what):
        return lambda message: self.log.append((what, self.env.now, message.src, message.dst))

    def send(self, src, dst, num_bytes=1000, kind="push", at_s=None, **keys):
        """Sends a message now, or at a time to come."""
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
        """What became of all bytes when the simulation has run on."""
        self.env.run(until=until_s)
        return self.network.use()

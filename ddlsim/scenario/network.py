"""The scenario's section `network`, with what belongs to TCP and to losses."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from annotated_types import Ge, Gt, Le, Lt

from ddlsim.scenario.parts import NamedPart
from ddlsim.scenario.section import Section
from ddlsim.units import END_OF_TIME_S, MAX_MBPS


class Tcp(Section):
    """What TCP adds to flows that share links max-min fairly (docs: How far to trust a simulated second).

    Args:
        segment_bytes: of a message in one segment.
        segment_header_bytes: beside them on the wire; 66: Ethernet, IP, and TCP with time stamps.
        acks_per_segment: segments of headers alone that go back for each; 0.5: delayed acknowledgements.
        connections: persistent: one per pair of nodes, from the start, whose messages go one after the other;
            per_message: one for each message, whose set-up costs a round trip.
        initial_window: segments on their way when a connection begins; then twice as many in each round trip, until
            they fill the path; half of them for each time-out (0.2 s and a round trip) that it rests. 0: no slow start.
        shares: of links, among messages: equal; rtt: inversely to round-trip times; random: drawn for each message, as
            behind a plain queue.
        share_spread: of random shares: standard deviation of their logarithm.
        utilization: share of links' capacity that TCP fills, above 0; measured behind fq_codel 0.88, behind plain
            queues with shares: random 0.82.
    """

    segment_bytes: Annotated[int, Ge(1), Lt(2**20)] = 1448
    segment_header_bytes: Annotated[int, Ge(0), Lt(2**16)] = 66
    acks_per_segment: Annotated[float, Ge(0), Le(1)] = 0.5
    connections: Literal["persistent", "per_message"] = "persistent"
    initial_window: Annotated[int, Ge(0), Lt(2**20)] = 10
    shares: Literal["equal", "rtt", "random"] = "equal"
    share_spread: Annotated[float, Ge(0), Le(2)] = 0.3
    utilization: Annotated[float, Gt(0), Le(1)] = 1.0


class LossBursts(Section):
    """Losses in bursts (Gilbert, Elliott): the link of each sender is good or bad, for exponentially distributed times.

    Args:
        mean_good_s: mean simulated seconds of a stay in the good state.
        mean_bad_s: the same of the bad state.
        good: chance that a message is lost that is sent in the good state, below 1.
        bad: the same in the bad state.
    """

    mean_good_s: Annotated[float, Gt(0), Lt(END_OF_TIME_S)]
    mean_bad_s: Annotated[float, Gt(0), Lt(END_OF_TIME_S)]
    good: Annotated[float, Ge(0), Lt(1)] = 0.0
    bad: Annotated[float, Gt(0), Lt(1)]


class Network(Section):
    """How messages travel.

    Args:
        fidelity: flow: messages share bandwidth; tcp: and have TCP's headers, acknowledgements and slow start;
            latency: a message arrives after its latency alone, its bytes take no time; ideal: no delay at all.
        header_bytes: added to every message.
        drop_probability: chance that a message is lost on its way, below 1; the network only knows whole messages.
        loss_bursts: losses that come in bursts, in the place of drop_probability; null: each message is lost or not by
            itself.
        on_drop: what follows: retransmit: it is sent again as a whole, when its last byte should have arrived, until it
            arrives; drop: the receiver never gets it and stops waiting for it at that moment. Its bytes are wasted.
        timeout_s: a message that has not arrived so many simulated seconds after it was sent is given up: its flow
            ends, what was sent of it is wasted, its receiver stops waiting for it; null: it takes its time.
        server_mbps: Mbit/s of the server's uplink and of its downlink, where the algorithm has a server. Its access
            latency is the median of the nodes'; where links give latencies of pairs, it is one more site of
            internet-latency and latency_matrix, sits at a host of routed (links.server_host), and with links of one's
            own is as far from a node as the median of the others.
        links: the nodes' access to the network.
        compression: how parameters are encoded in messages.
        tcp: of fidelity tcp; null: its defaults.
    """

    why: ClassVar[Mapping[str, str]] = {
        "fidelity": "bandwidth is shared, without the details of TCP",
        "header_bytes": "about what TCP, IP and a small frame add",
        "drop_probability": "no losses",
        "loss_bursts": "no losses",
        "on_drop": "as TCP does",
        "timeout_s": "messages take their time",
        "server_mbps": "a server in a data center",
        "tcp": "the defaults of the fidelity",
    }

    fidelity: Literal["flow", "tcp", "latency", "ideal"] = "flow"
    header_bytes: Annotated[int, Ge(0), Lt(2**40)] = 64
    drop_probability: Annotated[float, Ge(0), Lt(1)] = 0.0
    loss_bursts: LossBursts | None = None
    on_drop: Literal["retransmit", "drop"] = "retransmit"
    timeout_s: Annotated[float, Gt(0), Lt(END_OF_TIME_S)] | None = None
    server_mbps: Annotated[float, Gt(0), Lt(MAX_MBPS)] = 1000.0
    links: Annotated[Any, NamedPart("links")]
    compression: Annotated[Any, NamedPart("compression")]
    tcp: Tcp | None = None

"""The sections of a scenario on communication and its costs: network, privacy, secure aggregation and energy."""

import math
from dataclasses import replace
from typing import Annotated, Any, Literal

from annotated_types import Ge, Gt, Le, Lt
from pydantic import field_validator, model_validator

from ddlsim.devices.energy import KINDS, Costs
from ddlsim.foundation.errors import did_you_mean
from ddlsim.foundation.units import END_OF_TIME_S, MAX_MBPS
from ddlsim.scenario.parts import NamedPart, refused
from ddlsim.scenario.sections import Section, default

Joules = Annotated[float, Ge(0), Lt(1e15)]
Watts = Annotated[float, Ge(0), Lt(1e12)]


class Energy(Section):
    """Electricity of the run, with joules and CO2 per node and until the target; null: not computed.

    Args:
        device: preset of watts, see `ddlsim list energy`; null: none.
        link: preset of j_per_byte_up and j_per_byte_down; null: none.
        grid: preset of gco2_per_kwh; null: none.
        j_per_step: joules of one local step on every node; a forward pass costs a third. Excludes watts.
        watts: power of a node's device while it computes, W; null: that of `device`, or else of devices language_model.
        idle_w: power of an online node that does not compute and has rounds left, W. Offline nodes use no energy.
        j_per_byte_up: joules per byte on a node's uplink, including wasted bytes.
        j_per_byte_down: joules per byte on a node's downlink, including wasted bytes.
        server_w: power of the server from the start to its last round, W, if the algorithm has one. Its bytes cost as
            much as a node's.
        gco2_per_kwh: grams of CO2 equivalents per kWh of the grid; null: emissions are not computed.
    """

    device: str | None = None
    link: str | None = None
    grid: str | None = None
    j_per_step: Joules | None = None
    watts: Watts | None = None
    idle_w: Watts = 0.0
    j_per_byte_up: Joules | None = None
    j_per_byte_down: Joules | None = None
    server_w: Watts = 0.0
    gco2_per_kwh: Annotated[float, Ge(0), Lt(1e6)] | None = None

    @field_validator("device", "link", "grid")
    @classmethod
    def _is_known(cls, name: str | None, info: Any) -> str | None:
        known = KINDS[info.field_name]
        if name is not None and name not in known:
            raise refused(f"unknown preset {name!r}.{did_you_mean(name, known)} Known: {', '.join(known)}")
        return name

    @model_validator(mode="after")
    def _adds_up(self) -> "Energy":
        if self.j_per_step is not None and (self.watts is not None or self.device is not None):
            other = "watts" if self.watts is not None else "device"
            raise refused(f"computing costs j_per_step or {other}; leave one out")
        return self

    @property
    def is_free(self) -> bool:
        """Whether no cost is set."""
        costs = replace(self.costs, gco2_per_kwh=None)
        return not any(vars(costs).values())

    @property
    def costs(self) -> Costs:
        """Every cost, from its key or else from its preset."""
        found: dict[str, float] = {}
        for kind, known in KINDS.items():
            name = getattr(self, kind)
            found |= known[name].values if name is not None else {}
        given = {key: getattr(self, key) for key in Costs.__dataclass_fields__ if getattr(self, key) is not None}
        return Costs(**found | given)


class Privacy(Section):
    """Differential privacy by the Gaussian mechanism; evaluations record epsilon per node; null: none.

    Args:
        kind: message: clip and noise all parameters that a node sends, which protects all its data from all other nodes
            (local DP); dp_sgd: clip and noise gradients of single samples in local training, which protects each
            sample.
        clip: L2 norm to which an update (message) or the gradient of a sample (dp_sgd) is scaled down.
        noise_multiplier: standard deviation of the noise divided by `clip`; 0: no noise and no guarantee.
        delta: delta of (epsilon, delta)-privacy.
        accountant: accountant of Opacus; rdp: an upper bound, fast; prv: numerical, tighter.
        clips: for messages, the clipped value. update: parameters minus those last sent (at first minus the node's
            first model); model: the parameters.
        adjacency: for messages, the pairs that an observer cannot distinguish. replace: any two data sets of a node,
            sensitivity 2 clip; zero_out: a node's update and a zero update (the node still merges and sends),
            sensitivity clip.
    """

    kind: Literal["message", "dp_sgd"] = "message"
    clip: Annotated[float, Gt(0), Lt(1e30)]
    noise_multiplier: Annotated[float, Ge(0), Lt(1e30)]
    delta: Annotated[float, Gt(0), Lt(1)] = 1e-5
    accountant: Literal["rdp", "prv"] = "rdp"
    clips: Literal["update", "model"] = "update"
    adjacency: Literal["replace", "zero_out"] = "replace"

    @property
    def noise_of_message(self) -> float:
        """Standard deviation of a message's noise over its sensitivity."""
        return self.noise_multiplier / (2 if self.adjacency == "replace" else 1)


class SecureAggregation(Section):
    """Secure aggregation: an aggregator learns only the sum of its users' models; null: messages in the clear.

    Args:
        protocol: bonawitz2017: Bonawitz et al., CCS 2017, against honest but curious nodes.
        threshold: t, the number of users that must remain after every stage: a number from 2, or a share of the
            aggregator's users (below 1), rounded down, plus 1. Fewer users give no sum. Offline nodes count as users,
            nodes that stopped early do not.
        value_bits: bits of a value of a model as an integer, log2 R_U in the paper, whose examples use 16. Sums are
            computed in float32.
        key_bytes: bytes of a public key, a_K in the paper: 256 bits.
        share_bytes: bytes of a share of a secret, a_S in the paper: 256 bits.
        encryption_bytes: bytes added to two encrypted shares, which the paper does not count; 28 with AES-GCM.
        stage_timeout_s: simulated seconds after which a stage closes and users without an answer drop out; null: a
            stage ends with its last message. The first stage starts when the aggregator starts to wait.
    """

    protocol: Literal["bonawitz2017"] = "bonawitz2017"
    threshold: Annotated[int, Ge(2)] | Annotated[float, Gt(0), Lt(1)] = 2 / 3
    value_bits: Annotated[int, Ge(1), Le(64)] = 32
    key_bytes: Annotated[int, Ge(1), Lt(2**20)] = 32
    share_bytes: Annotated[int, Ge(1), Lt(2**20)] = 32
    encryption_bytes: Annotated[int, Ge(0), Lt(2**20)] = 0
    stage_timeout_s: Annotated[float, Gt(0), Lt(END_OF_TIME_S)] | None = None


class Tcp(Section):
    """TCP on top of flows that share links max-min fairly (docs: How far to trust a simulated second).

    Args:
        segment_bytes: bytes of a message in one segment.
        segment_header_bytes: header bytes of a segment on the wire; 66: Ethernet, IP, and TCP with time stamps.
        acks_per_segment: acknowledgements (headers only) per segment; 0.5: delayed acknowledgements.
        connections: persistent: one connection per pair of nodes from the start, which sends messages one after the
            other; per_message: one connection per message, whose set-up takes a round trip.
        initial_window: segments in flight at the start of a connection. The window doubles in each round trip until it
            fills the path, and halves for each time-out (0.2 s and a round trip) of inactivity. 0: no slow start.
        shares: shares of a link among messages: equal; rtt: inversely to round-trip times; random: drawn for each
            message, as after a plain queue.
        share_spread: standard deviation of the logarithm of random shares.
        utilization: share of a link's capacity that TCP uses, above 0; measured after fq_codel 0.88, after plain queues
            with shares: random 0.82.
    """

    segment_bytes: Annotated[int, Ge(1), Lt(2**20)] = 1448
    segment_header_bytes: Annotated[int, Ge(0), Lt(2**16)] = 66
    acks_per_segment: Annotated[float, Ge(0), Le(1)] = 0.5
    connections: Literal["persistent", "per_message"] = "persistent"
    initial_window: Annotated[int, Ge(0), Lt(2**20)] = 10
    shares: Literal["equal", "rtt", "random"] = "equal"
    share_spread: Annotated[float, Ge(0), Le(2)] = 0.3
    utilization: Annotated[float, Gt(0), Le(1)] = 1.0

    def headers(self, num_bytes: int) -> int:
        """Return the bytes of headers of the segments for this number of bytes; 0 for 0 bytes."""
        return -(-num_bytes // self.segment_bytes) * self.segment_header_bytes

    def segments(self, wire_bytes: int) -> int:
        """Return the number of segments in this number of bytes, headers included."""
        return -(-wire_bytes // (self.segment_bytes + self.segment_header_bytes))

    def acks(self, wire_bytes: int) -> int:
        """Return the bytes of acknowledgements sent back meanwhile."""
        return math.ceil(self.segments(wire_bytes) * self.acks_per_segment) * self.segment_header_bytes

    @property
    def first_window_bytes(self) -> int:
        """Bytes of the initial window, with headers; 0: no slow start."""
        return self.initial_window * (self.segment_bytes + self.segment_header_bytes)


class LossBursts(Section):
    """Losses in bursts (Gilbert, Elliott): each sender's link is good or bad for exponentially distributed times.

    Args:
        mean_good_s: mean simulated seconds in the good state.
        mean_bad_s: mean simulated seconds in the bad state.
        good: probability that a message sent in the good state is lost, below 1.
        bad: probability that a message sent in the bad state is lost, below 1.
    """

    mean_good_s: Annotated[float, Gt(0), Lt(END_OF_TIME_S)]
    mean_bad_s: Annotated[float, Gt(0), Lt(END_OF_TIME_S)]
    good: Annotated[float, Ge(0), Lt(1)] = 0.0
    bad: Annotated[float, Gt(0), Lt(1)]


class Network(Section):
    """The network that carries the messages.

    Args:
        fidelity: flow: messages share bandwidth; tcp: as flow, with TCP's headers, acknowledgements and slow start;
            latency: a message takes only its latency, whatever its size; ideal: no delay.
        header_bytes: bytes added to every message.
        drop_probability: probability that a message is lost, below 1. Only whole messages are lost.
        loss_bursts: losses in bursts instead of drop_probability; null: losses are independent.
        on_drop: retransmit: send the lost message again at the time when its last byte should have arrived, until it
            arrives; drop: the receiver stops waiting for it at that time. Bytes of lost messages are wasted.
        timeout_s: simulated seconds after which an undelivered message is cancelled: its flow ends, its sent bytes are
            wasted, and its receiver stops waiting; null: no limit.
        server_mbps: Mbit/s of the server's uplink and of its downlink, if the algorithm has a server. Its access
            latency is the median of the nodes' latencies. With latencies of pairs, it is an additional site of
            internet-latency and latency_matrix, a host of routed (links.server_host), and with user-defined links at
            the median distance from every node.
        links: the nodes' access links.
        compression: encoding of parameters in messages.
        tcp: settings of fidelity tcp; null: its defaults.
    """

    fidelity: Literal["flow", "tcp", "latency", "ideal"] = default(
        "flow", "bandwidth is shared, without the details of TCP"
    )
    header_bytes: Annotated[int, Ge(0), Lt(2**40)] = default(64, "about what TCP, IP and a small frame add")
    drop_probability: Annotated[float, Ge(0), Lt(1)] = default(0.0, "no losses")
    loss_bursts: LossBursts | None = default(None, "no losses")
    on_drop: Literal["retransmit", "drop"] = default("retransmit", "TCP retransmits")
    timeout_s: Annotated[float, Gt(0), Lt(END_OF_TIME_S)] | None = default(None, "no limit")
    server_mbps: Annotated[float, Gt(0), Lt(MAX_MBPS)] = default(1000.0, "a server in a data center")
    links: Annotated[Any, NamedPart("links")]
    compression: Annotated[Any, NamedPart("compression")]
    tcp: Tcp | None = default(None, "the defaults of the fidelity")

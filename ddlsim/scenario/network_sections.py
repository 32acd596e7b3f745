"""The sections of a scenario on communication and its costs: network, privacy, secure aggregation and energy."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from annotated_types import Ge, Gt, Le, Lt
from pydantic import field_validator, model_validator
from pydantic_core import PydanticCustomError

from ddlsim.devices.energy import KINDS, Costs
from ddlsim.foundation.units import END_OF_TIME_S, MAX_MBPS
from ddlsim.scenario.parts import NamedPart
from ddlsim.scenario.sections import Section
from ddlsim.scenario.tree import did_you_mean

Joules = Annotated[float, Ge(0), Lt(1e15)]
Watts = Annotated[float, Ge(0), Lt(1e12)]


class Energy(Section):
    """What a run costs in electricity; null: it is not counted. Joules and CO2 per node and to the target are recorded.

    Args:
        device: preset of watts, see `ddlsim list energy`; null: none.
        link: preset of j_per_byte_up and j_per_byte_down; null: none.
        grid: preset of gco2_per_kwh; null: none.
        j_per_step: joules of one local step on every node; a forward pass costs a third. Not beside watts.
        watts: power of a node's device while it computes, W.
        idle_w: power of a node that is online, has rounds to go and does not compute, W. Away, it costs nothing.
        j_per_byte_up: joules per byte that a node's uplink carries, wasted ones included.
        j_per_byte_down: the same of its downlink.
        server_w: power of the server from the start to its last round, W, where the algorithm has one; its bytes cost
            what a node's do.
        gco2_per_kwh: grams of CO2 equivalents per kWh of the grid; null: emissions are not told.
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
            text = f"unknown preset {name!r}.{did_you_mean(name, list(known))} Known: {', '.join(known)}"
            raise PydanticCustomError("refused", "{text}", {"text": text})
        return name

    @model_validator(mode="after")
    def _adds_up(self) -> "Energy":
        text = None
        if self.j_per_step is not None and (self.watts is not None or self.device is not None):
            other = "watts" if self.watts is not None else "device"
            text = f"computing costs j_per_step or {other}; leave one out"
        elif not any((self.costs.j_per_step, self.costs.watts, self.idle_w, self.server_w)) and not (
            self.costs.j_per_byte_up or self.costs.j_per_byte_down
        ):
            text = (
                "nothing costs anything. Give a device or watts, a link or j_per_byte_up, idle_w, ..., or leave it out"
            )
        if text:
            raise PydanticCustomError("refused", "{text}", {"text": text})
        return self

    @property
    def costs(self) -> Costs:
        """Every cost, those of presets where no key gives it."""
        found: dict[str, float] = {}
        for kind, known in KINDS.items():
            name = getattr(self, kind)
            found |= known[name].values if name is not None else {}
        given = {key: getattr(self, key) for key in Costs.__dataclass_fields__ if getattr(self, key) is not None}
        return Costs(**found | given)


class Privacy(Section):
    """Differential privacy by the Gaussian mechanism; null: none. Epsilon per node is recorded at every evaluation.

    Args:
        kind: message: all parameters that a node sends are clipped and noised, which protects its whole data from all
            others (local DP); dp_sgd: gradients of single samples are, in local training, which protects each sample.
        clip: L2 norm that an update (message) or the gradient of a sample (dp_sgd) is scaled down to.
        noise_multiplier: standard deviation of the noise over `clip`; 0: none, and no guarantee.
        delta: of (epsilon, delta).
        accountant: of Opacus; rdp: an upper bound, quick; prv: numerical, tighter.
        clips: of messages, what is clipped. update: parameters minus what was last sent in their place, at first minus
            the node's first model; model: the parameters themselves.
        adjacency: of messages, what an observer cannot distinguish. replace: any two data sets of a node, sensitivity 2
            clip; zero_out: a node's update and a zero update (of a node that still merges and sends), sensitivity clip.
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
    """What it costs that an aggregator learns the sum of its users' models alone; null: models travel in the clear.

    Args:
        protocol: bonawitz2017: Bonawitz et al., CCS 2017, against honest but curious nodes.
        threshold: t, how many users must be left after every stage: a number from 2, or a share of the users of an
            aggregator, below 1, rounded down, plus 1. Fewer make no sum. Who is away counts as a user, who has stopped
            early does not.
        value_bits: of a value of a model as an integer, log2 R_U in the paper, whose examples have 16; sums themselves
            are computed in float32.
        key_bytes: of a public key, a_K in the paper: 256 bits.
        share_bytes: of a share of a secret, a_S in the paper: 256 bits.
        encryption_bytes: that are added to two encrypted shares, which the paper does not count; 28 with AES-GCM.
        stage_timeout_s: a stage closes this many simulated seconds after it began, and who has not answered drops out;
            null: it takes as long as its messages do. The first begins when the aggregator starts to wait.
    """

    protocol: Literal["bonawitz2017"] = "bonawitz2017"
    threshold: Annotated[int, Ge(2)] | Annotated[float, Gt(0), Lt(1)] = 2 / 3
    value_bits: Annotated[int, Ge(1), Le(64)] = 32
    key_bytes: Annotated[int, Ge(1), Lt(2**20)] = 32
    share_bytes: Annotated[int, Ge(1), Lt(2**20)] = 32
    encryption_bytes: Annotated[int, Ge(0), Lt(2**20)] = 0
    stage_timeout_s: Annotated[float, Gt(0), Lt(END_OF_TIME_S)] | None = None


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

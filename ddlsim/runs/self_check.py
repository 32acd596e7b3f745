"""Invariants of every finished run: bytes, clock and messages; a violation is a fault of ddlsim."""

from typing import TYPE_CHECKING

from ddlsim.foundation.units import FLOAT32_BYTES
from ddlsim.network.messages.message import HEADER

if TYPE_CHECKING:
    from ddlsim.engine.simulation import Simulation
    from ddlsim.network.link_use import Traffic

PASSED = "all passed (bytes, clock, messages, parameters)"


def violations(simulation: "Simulation", traffic: "Traffic | None") -> list[str]:
    """Compare what the engine, the links and the payloads have counted independently of each other.

    Args:
        simulation: at its end.
        traffic: of this moment; None: counted anew.
    """
    network, contents = simulation.network, list(simulation.transport.contents.rows())
    traffic = network.traffic if traffic is None else traffic
    use = network.use(traffic)
    on_wire, sent = int(traffic.on_the_wire.sum()), network.all_bytes_sent()
    carried = int((use.push_bytes + use.request_bytes + use.response_bytes + use.unused_bytes).sum())
    of_others = int((use.ack_bytes + use.aborted_bytes + use.lost_bytes + use.in_flight_bytes).sum())
    handed = sum(row["bytes"] for row in contents)
    messages = sum(row["messages"] for row in contents if row["content"] == HEADER)
    arrived = int(use.messages_received.sum())
    found = []
    if not sent == on_wire == carried + of_others:
        found.append(f"nodes sent {sent} bytes, pairs {on_wire}, and the causes sum to {carried + of_others}")
    if simulation.clock_errors:
        found.append(f"the clock went back {simulation.clock_errors} times")
    ended = arrived + network.num_failed
    if messages != ended and messages != (ended := ended + network.abort_all()):
        found.append(f"{messages} messages were sent, and {ended} arrived, failed or are on their way")
    if carried > handed or (messages == arrived and carried != handed):
        found.append(f"messages hold {handed} bytes of payloads and headers, and {carried} bytes of messages arrived")
    found += [
        f"a message with {count} parameters in {content} was counted as {num_bytes} bytes"
        for content, num_bytes, count in simulation.transport.contents.parameters()
        if num_bytes != count * FLOAT32_BYTES
    ]
    return found

"""The ports of a run as the engine makes them: its own clock, transport and run information in their places."""

from dataclasses import dataclass

from ddlsim.engine.clock import SimulatedClock
from ddlsim.engine.run_info import Run
from ddlsim.engine.transport import NetworkTransport
from ddlsim.node.ports import Ports


@dataclass(frozen=True, slots=True)
class EnginePorts(Ports):
    """Ports of which the engine uses more than a node sees: it says which nodes come, go and end."""

    clock: SimulatedClock
    transport: NetworkTransport
    run: Run

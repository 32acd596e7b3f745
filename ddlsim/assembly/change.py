"""Change a running simulation to another scenario, at the branching point of a branched run.

Network, churn, devices, protocol, evaluations and training settings change at once. Messages in flight and started
trainings end with the old settings: nodes that complete the branching round at one instant are in the next round then.
The algorithm's options change from the first round that no node has started, so that all nodes run a round alike.
"""

from collections.abc import Generator
from typing import TYPE_CHECKING, Any, cast

from ddlsim.assembly.draws import step_times_of
from ddlsim.assembly.simulation import absences_of, codec_of, links_of, losses_of, oracle_of
from ddlsim.engine.evaluator import Evaluator
from ddlsim.engine.monitor import Records
from ddlsim.engine.simulation import Simulation
from ddlsim.node.ports import Compute

if TYPE_CHECKING:
    from ddlsim.learning.learner import Learner
    from ddlsim.scenario import Scenario


def change_at_once(
    simulation: Simulation, before: "Scenario", after: "Scenario", learner: Compute, recorder: Records
) -> None:
    """Change the simulation to the other scenario at this instant, after the events that are due now.

    Args:
        simulation: a running simulation.
        before: its current scenario.
        after: its new scenario; may differ in the keys that runs/branch.py allows.
        learner: learner of the simulation.
        recorder: recorder of the simulation.
    """

    def change() -> Generator[Any, Any, None]:
        _change_surroundings(simulation, before, after, learner)
        run, monitor = simulation.ports.run, simulation.monitor
        if before.training != after.training:
            if after.learning != "none":
                cast("Learner", learner).use_training(after.training)
            run.local_steps = after.training.steps
            for member in simulation.members:
                member.node.settings_changed()
        if before.algorithm != after.algorithm:
            simulation.use_algorithm(after.algorithm)
        changed = any(getattr(before, key) != getattr(after, key) for key in ("evaluation", "records", "algorithm"))
        if changed and isinstance(monitor, Evaluator):
            oracle = oracle_of(after, learner, recorder, run, simulation.members)
            monitor.use(after.evaluation, after.rounds, simulation.furthest, oracle)
        return
        yield

    simulation.env.process(change())


def _change_surroundings(simulation: Simulation, before: "Scenario", after: "Scenario", learner: Compute) -> None:
    was, now = before.network, after.network
    network, transport = simulation.network, simulation.transport
    clock = simulation.ports.clock
    if (was.links, was.server_mbps) != (now.links, now.server_mbps):
        network.use_links(links_of(after, after.algorithm.has_server))
    network.header_bytes = now.header_bytes
    network.use_losses(losses_of(after))
    if was.compression != now.compression:
        transport.packer.use_codec(codec_of(after))
    transport.use_protocol(after.protocol)
    if before.devices != after.devices:
        times = step_times_of(after, learner)
        clock.use(times.seconds, times.forward_share, times.about)
    if before.churn != after.churn:
        simulation.presence.replace(absences_of(after), after.churn is not None and after.churn.state == "lost")

"""A simulation without scenario and data; models are None."""

import numpy as np
from simpy import Environment

from ddlsim.algorithms.base import Algorithm
from ddlsim.engine.clock import RunParts, SimulatedClock
from ddlsim.engine.evaluator import Evaluator, Measurements
from ddlsim.engine.membership import Member
from ddlsim.engine.meters import EnergyMeter
from ddlsim.engine.monitor import OracleSimilarities
from ddlsim.engine.packing import MessagePacker
from ddlsim.engine.simulation import Simulation
from ddlsim.engine.transport import EnginePorts, NetworkTransport
from ddlsim.node.candidates import EvaluationCandidates
from ddlsim.node.ports import Log
from ddlsim.node.run import Run
from ddlsim.runs.recorder import Recorder
from ddlsim.scenario.sections import Evaluation, Protocol
from ddlsim.tasks.builtin import Classification


class NoLearning:
    """Models are None; every node has an accuracy of 1."""

    draws_numbers = False

    def __init__(self):
        self.seeds = []

    def init_models(self, seed, count, whole, node):
        self.seeds.append(seed)
        return [(None,)] * count

    def num_samples(self, node):
        return 1

    def steps_per_epoch(self, node):
        return 1

    def train_towards(self, node, model, steps, rng, only, local_state, objective, terms=None):
        return model, local_state, {}

    def merge(self, sources, weights, node=None):
        return None

    def test(self, models, test_set, split="test", local_state=None, precision="float32"):
        return [((1.0,), 0.0, np.eye(2))]

    def resolve(self, jobs):
        return list(jobs)

    def flush(self):
        pass

    def launch_full(self, num_training):
        pass


class NoMonitor:
    """Measures nothing."""

    evaluated, target_reached, compares_models, measures_start = 0, False, False, False

    def due(self, completed):
        return False

    def completed(self, node, completed, population):
        raise AssertionError("nothing is due")

    def close_complete(self, population):
        pass

    def write_measurements(self, completed):
        pass


class Plain(Algorithm):
    """Base of algorithms without models."""

    def start(self, node):
        return None

    def serving(self, node, state):
        return EvaluationCandidates([(None,)])


def assemble(
    algorithm,
    num_nodes,
    make_network,
    *,
    rounds,
    step_time_s=1.0,
    graph=None,
    absences=(),
    state_lost=False,
    evaluated=False,
    synchronous=True,
    compute=None,
    metered=None,
    secure=None,
    joins=None,
    **protocol,
):
    """A simulation, ready to run.

    Args:
        make_network: environment -> Network.
        metered: the energy meter, or None; see devices/energy.py.
        secure: a SecureAggregation, or None; its records are in `rows`.
        joins: per round which nodes join it; None: all nodes join all rounds.
        evaluated: whether rows of accuracy are recorded at the end; they are in `records.rows`.
        protocol: keys of the scenario section `protocol`.
    """
    env, records, compute, task = Environment(), Recorder(None), compute or NoLearning(), Classification()
    run = Run(0, rounds, np.zeros(num_nodes, int), lambda _: graph, lambda *_: 1, synchronous)
    if joins is not None:
        run.participation, run._participants = 0.5, joins.__getitem__
    members = [Member(node) for node in range(num_nodes)]
    if not hasattr(step_time_s, "duration_s"):
        step_time_s = np.broadcast_to(step_time_s, num_nodes)
    network = make_network(env)
    meter = None if metered is None else EnergyMeter(num_nodes, None, metered, lambda: env.now, network)
    clock, measurements = SimulatedClock(env, step_time_s, meter), Measurements(compute, records, task.judged_by)
    rows = []
    parts = RunParts(network, members, run, clock, compute)
    settings = Protocol(**protocol), secure, lambda *row: rows.append((env.now, *row))
    transport = NetworkTransport(parts, MessagePacker(parts), *settings)
    monitor = NoMonitor()
    if evaluated:
        similarities = OracleSimilarities((), None, records, run.rng_after)
        section, tested = Evaluation(every=100, consensus_distance=False), np.zeros(num_nodes, int)
        monitor = Evaluator(compute, records, section, rounds, tested, task, run.rng_after, measurements, similarities)
    ports = EnginePorts(clock, transport, compute, run, Log())
    made = Simulation(env, algorithm, ports, members, dict(absences), state_lost, monitor, records)
    made.records, made.compute, made.rows = records, compute, rows
    return made

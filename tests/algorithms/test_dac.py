"""DAC, random gossip and the oracle by hand, and their order of turns against a loop over nodes."""

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from number_node import NumberNode, answer, message

from ddlsim import assembly, runs
from ddlsim.algorithms.decentralized.baselines import Oracle, RandomGossip
from ddlsim.algorithms.personalized.dac import DAC
from ddlsim.algorithms.similarity import Knowledge, Similarity, draw, probabilities
from ddlsim.foundation.errors import ScenarioError
from ddlsim.foundation.rng import stream, stream_seed
from ddlsim.node.parameters import Deferred
from ddlsim.scenario import load

SMOKE = Path(__file__).parents[1] / "helpers" / "smoke.yaml"


def later(value) -> Deferred:
    return Deferred(lambda: value)


def table(num_nodes=8, **scores) -> Deferred:
    """Return a peer's table: node=score, all measured."""
    values, measured = np.full(num_nodes, np.nan, np.float32), np.zeros(num_nodes, bool)
    for name, score in scores.items():
        values[int(name[1:])], measured[int(name[1:])] = score, True
    return later(Knowledge(values, measured))


def test_facade_variant_trains_then_pulls_and_prefers_peers_of_low_loss():
    node, dac = NumberNode(num_nodes=8), DAC(variant="facade", sampled_peers=2)
    state = dac.start(node)
    inbox = [message(3, model=3.0), message(5, model=6.0)]
    verbs = answer(dac.round(node, state, 0), (12.0,), inbox, later([0.5, 2.0]))
    assert [verb[0] for verb in verbs] == ["train", "pull", "losses"]
    assert verbs[1][3] is None and verbs[2][2] == node.local_steps
    assert state.model == 7.0
    known = state.memory.knowledge().scores
    assert known[3] == 2.0 and known[5] == 0.5 and np.isnan(known[4])
    assert node.published == [(0, 0, {"model": 12.0})]


def test_facade_variant_draws_by_the_sigmoid_of_the_previous_round():
    node, dac = NumberNode(num_nodes=4), DAC(variant="facade", sampled_peers=1)
    state = dac.start(node)
    state.memory.knowledge = later(Knowledge(np.array([2.0, np.nan, 0.5, np.nan], np.float32), np.zeros(4, bool)))
    dac.choose(node, state, 6)
    tau = 60 / (1 + np.exp(-0.2 * 5)) - 29
    weights = np.exp(tau * np.array([2.0, 0.5, 0.0]))
    assert list(state.memory.drawn_by.values()) == pytest.approx(list(weights / weights.sum()))


def test_frozen_sampling_draws_the_same_every_round():
    node, dac = NumberNode(num_nodes=30), DAC(variant="facade", frozen_sampling=True)
    state = dac.start(node)
    assert dac.choose(node, state, 0) == dac.choose(node, state, 1)
    assert dac.labels


def test_hagander_variant_trains_first_merges_by_samples_and_uses_estimates_of_the_least_similar_peer():
    node, dac = NumberNode(num_nodes=8), DAC(variant="hagander_2024", sampled_peers=2)
    state = dac.start(node)
    inbox = [
        message(0, model=2.0, samples=10, table=table(n4=1.0, n6=3.0)),
        message(5, model=6.0, samples=20, table=table(n4=9.0)),
    ]
    verbs = answer(dac.round(node, state, 0), (12.0,), inbox, later([0.5, 2.0]), (8.0,))
    assert [verb[0] for verb in verbs] == ["train", "pull", "losses", "train"]
    assert set(verbs[1][3].values()) <= {0, 1}
    assert [(round_num, stage) for round_num, stage, _ in node.published] == [(0, 0), (0, 1)]
    assert verbs[3][1] == pytest.approx(((2.0 * 10 + 6.0 * 20 + 12.0 * 30) / 60,))
    known = state.memory.knowledge()
    # Peer 5 is less like this node (loss 2 against 0.5), so its estimate for node 4 counts; only peer 0 knows node 6.
    assert known.scores[[0, 4, 5, 6]] == pytest.approx([2.0, 9.0, 0.5, 3.0], rel=1e-4)
    assert known.measured.tolist() == [True, False, False, False, False, True, False, False]


@pytest.mark.parametrize(("drawn", "similarity"), [([5, 0], 1.0), ([0, 5], 9.0)])
def test_two_hop_last_uses_the_peer_drawn_last(drawn, similarity):
    node, dac = NumberNode(num_nodes=8), DAC(two_hop="last", sampled_peers=2)
    state = dac.start(node)
    state.memory.drawn = drawn
    received = {0: {"table": table(n4=1.0)}, 5: {"table": table(n4=9.0)}, 7: {"table": table(n4=3.0, n6=2.0)}}
    dac._learn(node, state, received, later({0: 5.0, 5: 4.0, 7: 6.0}))
    known = state.memory.knowledge().scores
    assert known[4] == similarity and known[6] == 2.0


def test_table_travels_with_four_bytes_and_a_bit_per_node():
    node, dac = NumberNode(num_nodes=99), DAC(variant="hagander_2024")
    assert dac.extras(node, dac.start(node))["table"].wire_bytes == 4 * 99 + 13


def test_immediate_schedule_trains_within_the_turn():
    node, dac = NumberNode(num_nodes=8), DAC(variant="listo_zec_2022", two_hop="none")
    state = dac.start(node)
    state.trained = True
    inbox = [message(3, model=6.0, samples=30)]
    verbs = answer(dac.round(node, state, 1), inbox, later([0.5]), (5.0,))
    assert [verb[0] for verb in verbs] == ["pull", "losses", "train"]
    assert [(stage, payload["model"]) for _, stage, payload in node.published] == [(0, 10.0), (1, 5.0)]


@pytest.mark.parametrize("schedule", ["immediate", "merge-then-train"])
def test_joining_node_trains_before_it_publishes_a_model(schedule):
    node, gossip = NumberNode(), RandomGossip(schedule=schedule)
    state = gossip.start(node)
    verbs = answer(gossip.round(node, state, 5), (12.0,), [], (13.0,))
    assert [verb[0] for verb in verbs] == ["train", "pull", "train"]
    assert node.published[0] == (5, 0, {"model": 12.0, "samples": 30})
    assert [verb[0] for verb in answer(gossip.round(node, state, 6), [], (14.0,))] == ["pull", "train"]


def test_fedsim_uses_draw_probabilities_and_the_largest_for_the_local_model():
    node = NumberNode(num_nodes=4)
    dac = DAC(variant="hagander_2024", merge="fedsim", sampled_peers=2, two_hop="none")
    state = dac.start(node)
    state.memory.drawn_by = {0: 0.6, 2: 0.3, 3: 0.1}
    steps = dac.weigh(node, state, {0: {"model": 1.0}, 3: {"model": 2.0}}, 1)
    next(steps)
    with pytest.raises(StopIteration) as stop:
        steps.send(later([1.0, 1.0]))
    assert stop.value.value == pytest.approx({0: 0.6 / 1.3, 3: 0.1 / 1.3, 1: 0.6 / 1.3})


def test_remote_scoring_needs_a_loss():
    with pytest.raises(ScenarioError, match="inverse_loss only"):
        DAC(remote_scoring=True, similarity="inverse_l2")


def test_cosine_of_the_last_update_sends_the_start_of_the_training():
    node, dac = NumberNode(), DAC(variant="hagander_2024", similarity="cosine_gradients", alpha=0.5, two_hop="none")
    state = dac.start(node)
    answer(dac.round(node, state, 0), (12.0,), [], (13.0,))
    assert [payload["last"] for _, _, payload in node.published] == [10.0, 10.0]
    assert state.last == 12.0


def test_oracle_draws_from_its_cluster_and_deluded_nodes_from_others():
    oracle = Oracle(deluded=2, deluded_cluster=1, delusion_start=3, sampled_peers=2)
    nodes = [NumberNode(node_id, num_nodes=12) for node_id in range(12)]
    assert sum(oracle.is_deluded(node) for node in nodes) == 2
    for node in nodes:
        state = oracle.start(node)
        for round_num in (2, 3):
            away = oracle.is_deluded(node) and round_num == 3
            assert {peer % 2 for peer in oracle.choose(node, state, round_num)} == {(node.id + away) % 2}


class NoRows:
    def row(self, *_):
        pass

    flush = training_row = row


def simulated(tmp_path, algorithm, rounds) -> tuple[SimpleNamespace, list[torch.Tensor]]:
    """Return the scenario and the state of every node after a run in simulated time."""
    scenario = load(
        SMOKE, (f"algorithm={algorithm}", f"rounds={rounds}", "devices={name: lognormal, median_step_time_s: 0.05}")
    )
    prepared = runs.prepare(runs.load_data(scenario))
    learner = assembly.build_learner(scenario, prepared, "cpu")
    simulation = assembly.build_simulation(scenario, prepared, learner, NoRows())
    simulation.run()
    models = [member.state.model for member in simulation.members]
    learner.jobs.force_params(models)
    return SimpleNamespace(scenario=scenario, learner=learner), [params.values().clone() for params in models]


class Loop:
    """The published loop, node by node, on a separate learner with the same random streams."""

    def __init__(self, setting, sampled=3):
        self.learner, self.seed, self.nodes = setting.learner, setting.scenario.seed, range(8)
        self.sampled, self.streams = sampled, {}
        start = self.learner.init_models(stream_seed(self.seed, "init"), whole=True)
        self.models = {node: start[0] for node in self.nodes}
        self.known = {node: Knowledge.nothing(8) for node in self.nodes}

    def rng(self, purpose, node):
        return self.streams.setdefault((purpose, node), stream(self.seed, purpose, node))

    def train(self, node):
        self.models[node] = self.learner.train(node, self.models[node], 5, self.rng("training batches", node))

    def turn(self, node, like):
        others = [peer for peer in self.nodes if peer != node]
        weights = None
        if like:
            weights = probabilities(self.known[node].scores[others], 19.0)
        peers = draw(self.rng("sampled peers", node), others, self.sampled, weights)
        if like:
            measured = self.learner.value(
                self.learner.compare("inverse_l2", self.models[node], [self.models[peer] for peer in peers])
            )
            tables = {peer: self.known[peer] for peer in peers}
            scores = dict(zip(peers, measured, strict=True))
            self.known[node] = self.known[node].learn(node, scores, tables, "min", False)
        merged = sorted((*peers, node))
        sizes = [self.learner.num_samples(peer) for peer in merged]
        models = [self.models[peer][0] for peer in merged]
        self.models[node] = (self.learner.merge(models, [size / sum(sizes) for size in sizes]),)

    def run(self, rounds, immediate, like):
        for round_num in range(rounds):
            order = np.argsort(stream(self.seed, "turns", round_num).permutation(8))
            if round_num == 0:
                [self.train(node) for node in self.nodes]
            for node in order.tolist():
                self.turn(node, like)
                if immediate:
                    self.train(node)
            if not immediate:
                [self.train(node) for node in self.nodes]
        self.learner.jobs.force_params([model[0] for model in self.models.values()])
        return [self.models[node][0].values() for node in self.nodes]


@pytest.mark.parametrize(
    ("algorithm", "immediate", "like"),
    [
        ("{name: random, sampled_peers: 3}", False, False),
        ("{name: random, sampled_peers: 3, schedule: immediate}", True, False),
        ("{name: dac, variant: hagander_2024, sampled_peers: 3, similarity: inverse_l2, tau: 19}", False, True),
    ],
)
def test_turns_equal_the_published_sequential_loop(tmp_path, algorithm, immediate, like):
    """With devices of different speeds and a network with delays, for any order of waits."""
    setting, models = simulated(tmp_path, algorithm, rounds=4)
    for ours, loops in zip(models, Loop(setting).run(4, immediate, like), strict=True):
        assert torch.equal(ours, loops)


def test_random_gossip_refuses_fedsim():
    with pytest.raises(ScenarioError, match="fedsim"):
        RandomGossip(merge="fedsim")


def test_similarity_of_a_loss_of_0_is_finite():
    assert np.isfinite(Similarity("inverse_loss", offset=0.0).of_loss(0.0))


def test_merges_and_similarities_are_recorded_on_request(tmp_path):
    algorithm = "{name: random, sampled_peers: 2, record_merges: true}"
    sets = ("validation={source: node, fraction: 0.2}", "rounds=2")
    runs.run(load(SMOKE, (f"algorithm={algorithm}", *sets)), out=tmp_path / "merges")
    rows = [json.loads(line) for line in (tmp_path / "merges" / "metrics.jsonl").read_text().splitlines()]
    for name in ("accuracy_before_merge", "accuracy_after_merge", "loss_before_merge", "loss_after_merge"):
        found = [(row["node"], row["round"]) for row in rows if row["name"] == name]
        assert sorted(found) == [(node, round_num) for node in range(8) for round_num in (1, 2)]

    keys = "variant: hagander_2024, similarity: inverse_l2, sampled_peers: 2, record_similarities: [3]"
    algorithm = f"{{name: dac, {keys}}}"
    runs.run(load(SMOKE, (f"algorithm={algorithm}", *sets)), out=tmp_path / "similar")
    rows = [json.loads(line) for line in (tmp_path / "similar" / "metrics.jsonl").read_text().splitlines()]
    measured = {(r["node"], r["round"], int(r["name"][11:])) for r in rows if r["name"].startswith("similarity_")}
    pulled = {(r["node"], r["round"], r["value"]) for r in rows if r["name"] == "pulled_from" and r["node"] == 3}
    assert measured == pulled and len(pulled) == 4


def test_remote_scoring_sends_every_model_twice_and_a_score(tmp_path):
    """Six rounds in which eight nodes pull from two peers: they exchange models and receive a loss."""
    total = []
    for remote in ("false", "true"):
        keys = f"name: dac, variant: text, sampled_peers: 2, two_hop: none, remote_scoring: {remote}"
        summary = runs.run(load(SMOKE, (f"algorithm={{{keys}}}",)), out=tmp_path / remote)
        total.append(summary["bytes"]["payload"])
    assert total[1] - total[0] == 6 * 8 * 2 * (25_450 * 4 + 8)

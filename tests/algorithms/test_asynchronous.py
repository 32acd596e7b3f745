"""Gossip learning and AD-PSGD by hand."""

import json
from pathlib import Path

import numpy as np
import pytest
from number_node import NumberNode, answer, message

from ddlsim import runs
from ddlsim.algorithms.decentralized.adpsgd import ADPSGD, State
from ddlsim.algorithms.decentralized.gossip import GossipLearning
from ddlsim.algorithms.personalized.pens import PENS
from ddlsim.node.run import NO_LIMIT, Run
from ddlsim.scenario import load

SMOKE = Path(__file__).parents[1] / "helpers" / "smoke.yaml"
SLOW_AND_AWAY = (
    *("learning=none", "nodes.clusters=[3, 1]", "topology={name: ring}", "energy={watts: 1}"),
    "devices={name: per_node, step_times_s: [0.2, 0.05, 0.05, 0.05]}",
    "churn={name: schedule, offline: [{node: 0, start_s: 1.5, end_s: 1.75}]}",
)


def test_gossip_sends_to_one_neighbor_without_waiting():
    node, gossip = NumberNode(), GossipLearning()
    verbs = answer(gossip.round(node, gossip.start(node), 0), (12.0,), [])
    assert [verb[0] for verb in verbs] == ["train", "look"]
    assert node.sent == [((0,), 0, {"model": 12.0, "age": 10})]


def test_gossip_merges_received_models_by_the_mean():
    node, gossip = NumberNode(), GossipLearning()
    state = gossip.start(node)
    answer(gossip.round(node, state, 0), (12.0,), [message(0, model=3.0, age=10), message(2, model=6.0, age=70)])
    assert state.model == pytest.approx(7.0)
    assert state.age == 70


def test_gossip_merges_by_age():
    node, gossip = NumberNode(), GossipLearning(merge="age")
    state = gossip.start(node)
    answer(gossip.round(node, state, 0), (12.0,), [message(0, model=4.0, age=30)])
    assert state.model == pytest.approx((12 * 10 + 4 * 30) / 40)


def test_gossip_continues_training_without_messages():
    node, gossip = NumberNode(peers=()), GossipLearning()
    state = gossip.start(node)
    answer(gossip.round(node, state, 0), (12.0,), [])
    assert (state.model, state.age) == (12.0, 10)
    assert node.sent == [((), 0, {"model": 12.0, "age": 10})]


def test_adpsgd_offers_its_trained_model_and_adds_half_the_difference():
    node, adpsgd = NumberNode(), ADPSGD()
    state = adpsgd.start(node)
    verbs = answer(adpsgd.round(node, state, 0), (12.0,), [message(0, model=4.0)])
    assert verbs[1] == ("exchange", [0], 0, {"model": 12.0})
    assert state.model == 8.0


def test_adpsgd_answers_with_its_previous_model_and_adds_the_opposite_half():
    node, adpsgd = NumberNode(), ADPSGD()
    state = State(10.0, averages=True)
    assert adpsgd.answer(node, state, message(0, model=4.0)) == {"model": 10.0}
    assert state.model == 7.0


def test_adpsgd_adds_training_and_half_to_the_concurrently_averaged_model():
    node, adpsgd = NumberNode(), ADPSGD()
    state = adpsgd.start(node)
    life = adpsgd.round(node, state, 0)
    next(life)  # trains from 10
    adpsgd.answer(node, state, message(0, model=4.0))
    assert state.model == 7.0
    assert life.send((12.0,)) == ("exchange", [0], 0, {"model": 9.0})  # 7 + (12 - 10)
    adpsgd.answer(node, state, message(2, model=1.0))
    assert state.model == 5.0
    with pytest.raises(StopIteration):
        life.send([message(0, model=3.0)])
    assert state.model == 2.0  # 5 - (9 - 3) / 2


@pytest.mark.parametrize("answers", [[], [message(0)]])
def test_adpsgd_keeps_its_model_if_its_neighbor_does_not_average(answers):
    node, adpsgd = NumberNode(), ADPSGD()
    state = adpsgd.start(node)
    answer(adpsgd.round(node, state, 0), (12.0,), answers)
    assert state.model == 12.0


def test_adpsgd_averages_only_with_nodes_between_joining_and_last_round():
    node, adpsgd = NumberNode(), ADPSGD()
    state = adpsgd.start(node)
    assert adpsgd.answer(node, state, message(0, model=4.0)) == {} and state.model == 10.0
    answer(adpsgd.join(node, state, 0), [message(0, model=6.0)])
    answer(adpsgd.round(node, state, 0), (12.0,), [])
    assert adpsgd.answer(node, state, message(0)) == {"model": 12.0} and state.model == 12.0
    answer(adpsgd.round(node, state, node.rounds - 1), (12.0,), [])
    assert adpsgd.answer(node, state, message(0, model=4.0)) == {}
    state.averages = True
    adpsgd.stopped(node, state, None, 0)
    assert adpsgd.answer(node, state, message(0, model=4.0)) == {} and state.model == 12.0


@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("algorithm", ["gossip", "adpsgd"])
def test_returning_slow_node_continues_its_rounds_in_both_modes(algorithm, mode, tmp_path):
    runs.run(load(SMOKE, (*SLOW_AND_AWAY, f"mode={mode}", f"algorithm={{name: {algorithm}}}")), out=tmp_path / "run")
    steps = [json.loads(line)["steps"] for line in (tmp_path / "run" / "energy.jsonl").read_text().splitlines()]
    assert steps == pytest.approx([6 * 5 + 2.5, 30, 30, 30], abs=0.3)  # half a training is lost when it leaves


@pytest.mark.parametrize(
    ("final", "own_round", "taken"), [(False, 3, (0, NO_LIMIT)), (True, 3, (0, 5)), (True, 6, (6, NO_LIMIT))]
)
def test_messages_of_the_final_exchange_are_received_only_in_it(final, own_round, taken):
    run = Run(0, 6, np.zeros(2, int), lambda _: (), lambda steps: steps, has_final_exchange=final)
    assert run.rounds_taken(own_round) == taken


def test_gossip_age_counts_the_steps_of_the_training():
    node, gossip = NumberNode(), GossipLearning()
    state = gossip.start(node)
    life = gossip.round(node, state, 0)
    next(life)
    node.local_steps = 99  # of a branch that starts during its training
    life.send((12.0,))
    assert state.age == 10 and node.sent[0][2]["age"] == 10


def test_pens_counts_a_repeated_round_once(tmp_path, monkeypatch):
    done, memories, weigh = [], {}, PENS.weigh

    def noted(self, node, state, received, round_num):
        if node.id == 0:
            done.append(round_num)
        memories[node.id] = state.memory
        return (yield from weigh(self, node, state, received, round_num))

    monkeypatch.setattr(PENS, "weigh", noted)
    away = ", ".join(f"{{node: 0, start_s: {start}, end_s: {start + 0.2}}}" for start in (2.7, 4.9, 7.1, 9.3))
    keys = (
        *("mode=async", "rounds=6", "nodes.clusters=[6]", "model.hidden=[8]", "evaluation.every=6"),
        "algorithm={name: pens, sampled_peers: 3, top_m: 1, stage1_rounds: 4, loss_batches: local_steps}",
        *("devices={name: constant, step_time_s: 0.1}", f"churn={{name: schedule, offline: [{away}]}}"),
        "network.links={name: uniform, uplink_mbps: 10, downlink_mbps: 10, latency_ms: 20}",
    )
    runs.run(load(SMOKE, keys), out=tmp_path / "run")
    assert sum(round_num < 4 for round_num in done) > 4
    assert all(sum(memory.best_rounds.values()) == 4 for memory in memories.values())

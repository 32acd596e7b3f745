"""The models that an early-stopped node sends, is compared by and is evaluated with."""

import json
from pathlib import Path

import pytest
from number_node import NumberNode

from ddlsim import runs
from ddlsim.algorithms.decentralized.baselines import Oracle, RandomGossip
from ddlsim.algorithms.personalized.dac import DAC
from ddlsim.algorithms.personalized.panm import PANM
from ddlsim.algorithms.personalized.pens import PENS
from ddlsim.scenario import load

SMOKE = Path(__file__).parents[1] / "helpers" / "smoke.yaml"
LAST, BEST = 7.0, 3.0


def stopped(algorithm, round_num=2):
    """Return a node that stopped in a round with the model LAST, and its state."""
    node = NumberNode()
    node.round_num = round_num
    state = algorithm.start(node)
    state.model = LAST
    algorithm.stopped(node, state, (BEST,), round_num)
    return node, state


@pytest.mark.parametrize(
    ("algorithm", "served"),
    [
        (Oracle(), LAST),
        (RandomGossip(), LAST),
        (PANM(), LAST),
        (PENS(), LAST),
        (DAC(), BEST),
        (DAC(variant="hagander_2024"), BEST),
        (DAC(variant="facade"), BEST),
        (Oracle(stopped_serves="best"), BEST),
        (DAC(stopped_serves="last"), LAST),
    ],
)
def test_stopped_node_serves_the_model_of_the_published_code(algorithm, served):
    node, state = stopped(algorithm)
    ((round_num, stage, payload),) = node.published
    assert (round_num, stage) == (3, 0)  # from the round after the one in which it stopped
    assert payload["model"] == served
    assert state.model == LAST  # it is evaluated and compared with its last model


@pytest.mark.parametrize(
    ("keys", "compared"),
    [
        ({"variant": "hagander_2024", "similarity": "inverse_l2"}, LAST),
        ({"variant": "hagander_2024", "similarity": "cosine_weights"}, LAST),
        ({"variant": "hagander_2024", "similarity": "inverse_loss"}, None),
        ({"variant": "hagander_2024", "similarity": "inverse_l2", "stopped_compared": "served"}, None),
        ({"variant": "hagander_2024", "similarity": "inverse_l2", "stopped_serves": "last"}, None),
        ({"variant": "text", "similarity": "inverse_l2"}, None),
        ({"variant": "text", "similarity": "cosine_gradients"}, None),
        ({"variant": "text", "similarity": "cosine_gradients", "alpha": 0.5}, LAST),
    ],
)
def test_published_l2_and_cosines_use_the_last_model_of_a_stopped_peer(keys, compared):
    node, _ = stopped(DAC(**keys))
    assert node.published[0][2].get("compared") == compared


def test_stopped_peer_is_compared_by_its_compared_model():
    class Comparing(NumberNode):
        def compare(self, metric, own, peers, **references):
            self.compared = peers
            return DAC().remember(self, None).knowledge

    node, dac = Comparing(), DAC(variant="hagander_2024", similarity="inverse_l2")
    received = {0: {"model": BEST, "compared": LAST}, 2: {"model": 5.0}}
    with pytest.raises(StopIteration):
        next(dac.measure(node, dac.start(node), received, 0))
    assert node.compared == [(LAST,), (5.0,)]


def test_stopped_node_records_one_more_merge_accuracy():
    node, _ = stopped(RandomGossip(record_merges=True))
    assert node.measured == [(name, (LAST,), 3) for name in ("before_merge", "after_merge")]
    node, _ = stopped(RandomGossip(record_merges=True), round_num=5)  # the run has no round after it
    assert node.measured == []


def test_last_model_is_served_if_all_validation_losses_are_nan():
    node, dac = NumberNode(), DAC()
    state = dac.start(node)
    dac.stopped(node, state, None, 0)
    assert node.published[0][2]["model"] == state.model


@pytest.mark.parametrize("checkpoint", ["last", "best"])
def test_evaluated_model_of_a_stopped_node_follows_the_scenario(tmp_path, checkpoint):
    """The final evaluation uses the model of the round that the scenario selects."""
    sets = (
        "algorithm={name: local}",
        "validation={source: node, fraction: 0.2}",
        "training.early_stopping={patience: 2}",
        "training.learning_rate=0.5",
        "evaluation.every=1",
        "rounds=12",
    )
    found = {}
    for each in ("last", checkpoint):
        runs.run(load(SMOKE, (*sets, f"evaluation.evaluated_model={each}")), out=tmp_path / f"{each} {len(found)}")
        lines = (tmp_path / f"{each} {len(found)}" / "metrics.jsonl").read_text().splitlines()
        found[each] = [json.loads(line) for line in lines]
    stops = {row["node"]: row["round"] for row in found["last"] if row["name"] == "stopped"}
    assert stops
    tested = {(row["node"], row["round"]): row["value"] for row in found["last"] if row["name"] == "test_loss"}
    losses = {(row["node"], row["round"]): row["value"] for row in found["last"] if row["name"] == "validation_loss"}
    final = {row["node"]: row["value"] for row in found[checkpoint] if row["name"] == "test_loss"}
    for node, stop in stops.items():
        best = min(range(1, stop + 1), key=lambda number: losses[node, number])
        assert best < stop
        assert final[node] == tested[node, best if checkpoint == "best" else stop]

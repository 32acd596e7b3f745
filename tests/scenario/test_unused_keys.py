"""Notes on keys without effect, and no notes on effective keys."""

import pytest
from typer.testing import CliRunner

from ddlsim.cli import app
from ddlsim.scenario import load
from ddlsim.scenario.unused_keys import unused_key_notes

COUNTED = "attacks[0] has no effect except that it is counted: "
NOTES = [
    ("validation.fraction=0.3", "validation.fraction has no effect: validation.source is none"),
    ("network.on_drop=drop", "network.on_drop has no effect: no message is lost: network.drop_probability is 0"),
    ("network.server_mbps=5", "network.server_mbps has no effect: facade has no server"),
    ("energy={watts: 5, device: jetson_nano_5w}", "energy.device has no effect: energy.watts is set"),
    ("energy={watts: 5, server_w: 3}", "energy.server_w has no effect: facade has no server"),
    (
        "protocol.late_messages=keep",
        "protocol.late_messages has no effect: no message is too late without protocol.deadline_s or churn",
    ),
    (
        ("algorithm={name: fedavg}", "mode=async"),
        "mode has no effect: the rounds of fedavg wait for its server in either mode",
    ),
    (
        ("algorithm={name: gossip}", "mode=async"),
        "mode has no effect: nodes of gossip do not wait for each other in either mode",
    ),
    (("algorithm={name: local}", "mode=async"), "mode has no effect: nodes of local exchange nothing"),
    ("protocol.staleness_s=5", "protocol.staleness_s has no effect: mode is sync, where rounds wait"),
    ("training.optimizer={name: sgd, dampening: 0.1}", "training.optimizer.dampening has no effect: momentum is 0"),
    (
        ("algorithm={name: gtsgd}", "training.optimizer={name: sgd, momentum: 0.9}"),
        "training.optimizer.momentum has no effect: each local step starts a new optimizer",
    ),
    ("training.weight_decay_on=weights", "training.weight_decay_on has no effect: weight_decay is 0"),
    (
        "algorithm={name: facade, heads: 1, warmup_rounds: 2}",
        "algorithm.warmup_rounds has no effect: there is one head",
    ),
    ("algorithm={name: el, fanout: 2}", "algorithm.fanout has no effect: with variant oracle"),
    ("algorithm={name: deprl, local_training: epochs, core_steps: 3}", "algorithm.core_steps has no effect"),
    ("algorithm={name: dac, similarity: cosine_weights, loss_batches: local_steps}", "algorithm.loss_batches has no"),
    ("algorithm={name: dac, tau_growth: 0.5}", "algorithm.tau_growth has no effect: tau_schedule is constant"),
    ("algorithm={name: random, stopped_serves: best}", "algorithm.stopped_serves has no effect: no node stops"),
    ("algorithm={name: random, monitored_similarity: inverse_l2}", "algorithm.monitored_similarity has no effect"),
    ("algorithm={name: oracle, delusion_start: 2}", "algorithm.delusion_start has no effect: deluded is 0"),
    ("algorithm={name: oracle, deluded: 1}", "algorithm.deluded has no effect: delusion_start is 50, and the run has"),
    ("algorithm={name: fedclassavg, contrastive: 0, temperature: 9}", "algorithm.temperature has no effect"),
    ("aggregation={name: clipped_gossip, radius: 1, byzantine: 2}", "aggregation.byzantine has no effect: radius is"),
    ("aggregation={name: bridge, variant: M, byzantine: 2}", "aggregation.byzantine has no effect: variant M is the"),
    ("attacks=[{name: alie, nodes: [1]}]", COUNTED + "one node that knows its own model alone"),
    ("attacks=[{name: alie, nodes: [1], knowledge: all}]", COUNTED + "the paper's z_max is 0 for 1 of 8 nodes"),
    ("attacks=[{name: alie, nodes: [1, 2], knowledge: all}]", COUNTED + "the paper's z_max is 0 for 2 of 8 nodes"),
    (
        "attacks=[{name: sign_flip, nodes: [1]}, {name: alie, nodes: {cluster: 1}}]",
        "attacks[1] does not attack by itself: ",
    ),
    (
        "attacks=[{name: sign_flip, nodes: [1]}, {name: alie, nodes: [1]}]",
        "attacks[1] does not attack by itself: one node",
    ),
    ("attacks=[{name: sybil, nodes: [1]}]", COUNTED + "one node is one identity"),
    ("attacks=[{name: withholding, nodes: [1], probability: 0}]", COUNTED + "probability and delay_s"),
]


@pytest.mark.parametrize(("change", "message"), NOTES)
def test_key_without_effect_gets_a_note(change, message):
    changes = ["topology.dynamic=false", *([change] if isinstance(change, str) else change)]
    (note,) = [note for note in unused_key_notes(load("smoke", changes)) if " is defined for " not in note]
    assert note.startswith(f"NOTE: {message}") and note.endswith(".")


@pytest.mark.parametrize(
    "changes",
    [
        (),
        ("validation={source: train, fraction: 0.3}",),
        ("network={on_drop: drop, drop_probability: 0.1}",),
        ("algorithm={name: fedavg}", "network.server_mbps=5", "energy={watts: 5, server_w: 3}"),
        ("protocol={late_messages: keep, deadline_s: 3}",),
        ("algorithm={name: el, variant: local, fanout: 2}",),
        ("algorithm={name: dac, loss_batches: local_steps}",),
        ("algorithm={name: dac, variant: facade, similarity: cosine_weights, two_hop: min}",),
        ("algorithm={name: oracle, deluded: 1, delusion_start: 2}",),
        ("attacks=[{name: alie, nodes: [1], z: 1.5, knowledge: all}, {name: sybil, nodes: [2, 3]}]",),
        ("nodes.clusters=[6, 3]", "topology.degree=4", "attacks=[{name: alie, nodes: [1, 2]}]"),  # z_max is 0.18
        ("training.accumulate=20",),
        ("algorithm={name: facade, heads: 1, selection_batches: 1}",),  # they take their time
        ("algorithm={name: gtsgd}", "training.optimizer={name: sgd, momentum: 0.9, nesterov: true}"),
    ],
)
def test_effective_or_default_keys_get_no_note(changes):
    assert unused_key_notes(load("smoke", changes)) == []


def test_check_and_runs_note_unused_keys(tmp_path):
    more = ["--set", "network.on_drop=drop", "--set", "rounds=1"]
    checked = CliRunner().invoke(app, ["check", "smoke", *more])
    assert "ok." in checked.output and "smoke: NOTE: network.on_drop has no effect" in checked.output
    ran = CliRunner().invoke(app, ["run", "smoke", *more, "--out", str(tmp_path / "run"), "-q"])
    assert ran.exit_code == 0 and "NOTE: network.on_drop has no effect" in ran.output

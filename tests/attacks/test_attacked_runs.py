"""Every attack against every algorithm, and every rule against every attack, on a small simulated network.

One run has all attacks at once, each on separate nodes, so every attack meets every algorithm. Rules alternate, so each
meets every attack and two or more algorithms. The full product would be slow.
"""

import itertools
import json
import textwrap
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from ddlsim import runs
from ddlsim.aggregation import AGGREGATIONS
from ddlsim.algorithms import ALGORITHMS
from ddlsim.attacks import ATTACKS
from ddlsim.attacks.forgeries import FOE, Dissensus
from ddlsim.engine.forging import ForgingPacker
from ddlsim.learning.size_learner import SizedParams, SizedPart
from ddlsim.network.messages.message import PUSH, Message
from ddlsim.scenario import ScenarioProblems, load

SMOKE = Path(__file__).parents[1] / "helpers" / "smoke.yaml"
SMALL = ("rounds=2", "training.local_steps=2", "evaluation.every=2", "model.hidden=[8]", "nodes.clusters=[7, 3]")
KEYS = {
    "mapl": ", warmup_rounds: 0, projection_units: 8",
    "pens": ", loss_batches: local_steps, sampled_peers: 3, stage1_rounds: 1",
    "panm": ", loss_batches: local_steps, sampled_peers: 2, stage1_rounds: 1",
    "dac": ", loss_batches: local_steps, sampled_peers: 3",
}
OPTIONS = {
    "withholding": ", probability: 0.5, delay_s: 0.1",
    "alie": ", knowledge: neighbors",
    "flooding": ", factor: 2",
}
ALL_AT_ONCE = [  # nodes 0, 8 and 9 are honest; some nodes are under two attacks
    f"{{name: {name}, nodes: {nodes}{OPTIONS.get(name, '')}}}"
    for name, nodes in zip(
        ATTACKS.own_names, ([1], [2], [3], [4, 5], [6], [7], [1], [2], [3], [4], [5, 6], [7], [6]), strict=True
    )
]
ONE_PER_KIND_OF_MESSAGE = ("dac", "el", "facade", "fedavg", "fedproto", "gossip")
TURNS = [rule for rule in AGGREGATIONS.own_names if rule != "mean"]


def run(out, algorithm, rule, attacks, *more):
    """Return a summary, or None if the scenario is refused because of its rules or attacks."""
    named = f"algorithm={{name: {algorithm}{KEYS.get(algorithm, '')}}}"
    try:
        scenario = load(
            SMOKE, (*SMALL, named, f"aggregation={{name: {rule}}}", f"attacks=[{', '.join(attacks)}]", *more)
        )
    except ScenarioProblems as error:
        sections = {problem.path.partition("[")[0].partition(".")[0] for problem in error.problems}
        assert sections <= {"aggregation", "attacks"}
        return None
    return runs.run(scenario, out=out)


def check(summary):
    honest, attacked = summary["honest"], summary["attacked"]
    assert summary["status"] == "done"
    assert sorted([*honest["nodes"], *attacked["nodes"]]) == list(range(10))
    assert np.isfinite(honest["accuracy"]["all"]) and np.isfinite(honest["fair_accuracy"])


@pytest.mark.parametrize(
    ("place", "algorithm"),
    [
        pytest.param(place, name, marks=() if name in ONE_PER_KIND_OF_MESSAGE else pytest.mark.slow)
        for place, name in enumerate(
            sorted(name for name in ALGORITHMS if ALGORITHMS[name].averages and not ALGORITHMS[name].collective)
        )
    ],
)
def test_all_attacks_at_once_on_every_algorithm(tmp_path, place, algorithm):
    done = 0
    for turn in range(len(TURNS)):
        mode = "async" if turn % 2 else "sync"
        rule = TURNS[(2 * place + turn) % len(TURNS)]
        summary = run(tmp_path / str(turn), algorithm, rule, ALL_AT_ONCE, f"mode={mode}")
        if summary is not None:
            check(summary)
            assert "backdoor_success" in summary["honest"]
            done += 1
        if done == 2:
            return
    raise AssertionError("hardly any rule is taken")


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", sorted(ALGORITHMS))
def test_all_attacks_with_all_rules(tmp_path, algorithm):
    for number, (name, rule, mode) in enumerate(
        itertools.product(ATTACKS.own_names, AGGREGATIONS.own_names, ["sync", "async"])
    ):
        one = f"{{name: {name}, nodes: 0.3{OPTIONS.get(name, '')}}}"
        summary = run(tmp_path / str(number), algorithm, rule, [one], f"mode={mode}")
        if summary is not None:
            check(summary)


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_same_bytes_with_any_number_of_threads(tmp_path):
    found, before = [], torch.get_num_threads()
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            out = tmp_path / str(threads)
            run(out, "facade", "nearest_neighbor_mixing", ALL_AT_ONCE)
            found.append([(out / name).read_bytes() for name in ("metrics.jsonl", "communication.jsonl")])
    finally:
        torch.set_num_threads(before)
    assert found[0] == found[1]


def test_attacks_before_their_start_round_change_only_the_report(tmp_path):
    late = [f"{{name: {name}, nodes: [1, 2], start_round: 1}}" for name in ATTACKS.own_names]
    attacked = run(tmp_path / "attacked", "el", "mean", late, "evaluation.every=1")
    honest = run(tmp_path / "honest", "el", "mean", [], "evaluation.every=1")
    rows = [
        [r for r in lines(tmp_path / name / "metrics.jsonl") if r["round"] == 1 and r["name"] != "backdoor_success"]
        for name in ("attacked", "honest")
    ]
    assert rows[0] == rows[1] and rows[0]
    assert attacked["attacks"][0] == {"name": "sign_flip", "knows": "own", "nodes": [1, 2]} and "attacks" not in honest


def test_figures_of_honest_nodes_exclude_attackers(tmp_path):
    summary = run(tmp_path / "run", "el", "mean", ["{name: label_flip, nodes: [0, 7]}"])
    rows = [row for row in lines(tmp_path / "run" / "metrics.jsonl") if row["name"] == "accuracy"]
    last = max(row["round"] for row in rows)
    by_node = {row["node"]: row["value"] for row in rows if row["round"] == last}
    honest = [value for node, value in by_node.items() if node not in (0, 7)]
    assert summary["honest"]["accuracy"]["all"] == pytest.approx(np.mean(honest))
    assert summary["attacked"]["accuracy"]["all"] == pytest.approx(np.mean([by_node[0], by_node[7]]))


def test_free_riders_do_not_train(tmp_path):
    free = run(tmp_path / "free", "el", "mean", ["{name: free_rider, nodes: 1.0}"])
    assert free["attacked"]["accuracy"]["all"] < 0.25  # as drawn for ten classes


@pytest.mark.parametrize(
    ("algorithm", "more"),
    [
        ("el", ()),
        ("el", ("network.compression={name: int8}",)),
        ("random", ("network.compression={name: top_k, fraction: 0.1}",)),
        ("fedavg", ("secure_aggregation={}",)),
    ],
)
def test_flooding_bytes_are_proportional_and_wasted(tmp_path, algorithm, more):
    quiet = run(tmp_path / "quiet", algorithm, "mean", [], *more)
    loud = run(tmp_path / "loud", algorithm, "mean", ["{name: flooding, nodes: [1], factor: 3}"], *more)
    own = next(row for row in lines(tmp_path / "quiet" / "links.jsonl") if row["node"] == 1)
    junk = sum(row["bytes"] for row in lines(tmp_path / "loud" / "contents.jsonl") if row["content"] == "junk")
    # given to the network; messages in flight at the end are not sent completely
    assert junk == pytest.approx(3 * (own["sent_bytes"] - own["request_bytes"]), rel=0.01)
    assert loud["bytes"]["wasted"] > quiet["bytes"]["wasted"]


@pytest.fixture
def forged(monkeypatch):
    """Return per forgery: round, place, sender, the honest row, the sent row, the row of the first sybil."""
    rows, forge = [], ForgingPacker._forge

    def noted(self, sender, own, path, receiver, round_num, forging):
        row = forge(self, sender, own, path, receiver, round_num, forging)
        firsts = self._forged_last.get((path, own.size), {})
        rows.append((round_num, path, sender, own, row, firsts.get(forging[0][1][0]) if forging else None))
        return row

    monkeypatch.setattr(ForgingPacker, "_forge", noted)
    return rows


def test_nodes_with_the_same_model_forge_different_rows(tmp_path, forged):
    kinds = [
        f"{{name: free_rider, send: {send}, nodes: {nodes}}}" for send, nodes in (("stale", [0]), ("random", [1, 2]))
    ]
    run(tmp_path / "run", "fedavg", "mean", kinds)
    for of_round in ([row for row in forged if row[0] == number] for number in (0, 1)):
        assert [row[2] for row in of_round] == [0, 1, 2] and len(
            {row[3] for row in of_round}
        ) == 1  # the server's model
        assert len({row[4] for row in of_round}) == 3


def test_sybils_send_the_last_parameters_of_the_first(tmp_path, forged):
    run(tmp_path / "run", "gossip", "mean", ["{name: sybil, nodes: [4, 5, 6, 7]}"], "rounds=6")
    followed = [row for row in forged if row[2] != 4 and row[5] is not None]
    assert followed and all(row[4] is row[5] for row in followed)


@pytest.mark.parametrize(
    "attack",
    [
        *(pytest.param(name, marks=pytest.mark.full) for name in ("alie, knowledge: own", "foe, knowledge: neighbors")),
        "foe, knowledge: all",
        "dissensus",
    ],
)
def test_models_sent_for_scoring_are_forged_and_known(tmp_path, attack):
    attacks = [f"{{name: {attack}, nodes: [1, 2, 3]}}"]
    for place, more in enumerate(((), ("privacy={clip: 1.0, noise_multiplier: 0.0}",))):
        check(run(tmp_path / str(place), "dac", "mean", attacks, "algorithm.variant=text", *more))


def test_receivers_wait_for_withheld_messages_until_the_deadline(tmp_path):
    kept = ["{name: withholding, nodes: [1]}"]
    at_once = run(tmp_path / "at_once", "dpsgd", "mean", kept)
    waiting = run(tmp_path / "waiting", "dpsgd", "mean", kept, "protocol.deadline_s=5")
    assert at_once["status"] == waiting["status"] == "done"


def test_attacks_run_without_learning(tmp_path):
    attacks = f"attacks=[{', '.join(ALL_AT_ONCE)}]"
    scenario = load(SMOKE, ("learning=none", "rounds=2", "nodes.clusters=[7, 3]", attacks))
    assert runs.run(scenario, out=tmp_path / "run")["status"] == "done"


@pytest.mark.parametrize(
    ("algorithm", "knowledge", "rows"),
    [
        ("dpsgd", "neighbors", [1, 8, 8]),
        ("fedavg", "neighbors", [1, 1, 1]),
        ("dpsgd", "all", [7, 7, 7]),
        ("fedavg", "all", [7, 7, 7]),
    ],
)
def test_attacker_knows_rows_of_honest_nodes_and_no_server_average(tmp_path, monkeypatch, algorithm, knowledge, rows):
    seen = []
    monkeypatch.setattr(FOE, "forge", lambda self, given: seen.append(len(given.known)) or given.own)
    last = "" if algorithm == "fedavg" else ", final_all_reduce: false"
    attacks = f"attacks=[{{name: foe, nodes: [7], knowledge: {knowledge}}}]"
    sets = (f"algorithm={{name: {algorithm}{last}}}", "topology={name: complete}", "rounds=3", attacks)
    runs.run(load(SMOKE, sets), out=tmp_path / "run")
    assert seen == rows


def test_dissensus_drives_a_server_away_from_honest_nodes(tmp_path, monkeypatch):
    seen = []

    def forge(self, given):
        seen.append((len(given.known), given.accomplices, given.receiver is not None))
        return given.own

    monkeypatch.setattr(Dissensus, "forge", forge)
    sets = ("algorithm={name: fedavg}", "rounds=3", "attacks=[{name: dissensus, nodes: [5, 7]}]")
    runs.run(load(SMOKE, sets), out=tmp_path / "run")
    assert seen[-2:] == [(6, 2, True)] * 2


@pytest.mark.parametrize("name", ["random", "el, variant: local"])
def test_dissensus_ignores_an_unused_topology(tmp_path, name):
    """Such a run may have a topology that does not match its nodes."""
    sets = (f"algorithm={{name: {name}}}", "attacks=[{name: dissensus, nodes: [5, 7]}]", "records.models=last")
    for topology in ("ring", "complete", "random_regular, degree: 30"):
        scenario = load(SMOKE, (*SMALL, *sets, f"topology={{name: {topology}}}"))
        runs.run(scenario, out=tmp_path / topology)
    one, *others = ((tmp_path / folder / "models-0.safetensors").read_bytes() for folder in ("ring", "complete"))
    assert [one] == others


def test_sybil_with_another_attack_repeats_one_forgery(tmp_path, forged):
    attacks = ["{name: sybil, nodes: [1, 2]}", "{name: gaussian_noise, nodes: [1]}"]
    run(tmp_path / "run", "random", "mean", attacks, "rounds=4", "mode=async", "algorithm.order=at_once")
    own, sent = zip(*((row[3], row[4]) for row in forged if row[2] == 1), strict=True)
    assert len(set(own)) == len(set(sent)) < len(own)


def test_unforged_rows_of_the_first_sybil_are_released(tmp_path, monkeypatch):
    kept, forge = [], ForgingPacker._forge

    def noted(self, *args):
        row = forge(self, *args)
        kept.append(len(self._forged))
        return row

    monkeypatch.setattr(ForgingPacker, "_forge", noted)
    run(tmp_path / "run", "dpsgd", "mean", ["{name: sybil, nodes: [1, 2, 3]}"], "rounds=8")
    assert len(kept) > 20 and max(kept) <= 3


def test_late_sybils_send_the_honest_parameters_of_the_first(tmp_path, forged):
    attacks = ["{name: sybil, nodes: [1, 2, 3], start_round: 2}"]
    steps = "devices={name: per_node, step_times_s: [0.1, 0.15, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1]}"
    run(tmp_path / "run", "dpsgd", "mean", attacks, "rounds=6", "mode=async", steps)
    followed = [row for row in forged if row[2] in (2, 3)]
    assert followed[0][0] == 2 and all(row[4] is row[5] for row in followed)


def test_attack_forges_answers_to_requests_before_its_start(tmp_path, forged):
    attacks = ["{name: sign_flip, of: model, nodes: [1]}", "{name: foe, tau: 4, nodes: [1], start_round: 1}"]
    steps = "devices={name: per_node, step_times_s: [0.1, 0.5, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1]}"
    asked = ("algorithm.order=newest", "algorithm.schedule=train-then-merge", "mode=async", "rounds=6", steps)
    run(tmp_path / "run", "random", "mean", attacks, *asked)
    sent = {}
    for round_num, _, sender, own, row, _ in forged:
        assert sender == 1
        sent.setdefault(own, []).append((round_num, row))
    assert {len({row for _, row in rows}) for rows in sent.values()} == {1, 2}


@pytest.mark.parametrize("compression", ["int8", "top_k, fraction: 0.1"])
def test_later_forgeries_per_receiver_do_not_split_earlier_ones(tmp_path, forged, compression):
    attacks = ["{name: gaussian_noise, nodes: [1]}", "{name: dissensus, nodes: [1], start_round: 1}"]
    run(tmp_path / "run", "dpsgd", "mean", attacks, f"network.compression={{name: {compression}}}")
    sent = [{row[4] for row in forged if row[0] == round_num} for round_num in (0, 1)]
    assert len(sent[0]) == 1 and len(sent[1]) > 1


def test_user_attack_may_have_lists_as_keys(tmp_path):
    own = """
        from dataclasses import dataclass, field
        from ddlsim.attacks.base import Attack

        @dataclass(frozen=True, kw_only=True)
        class Scaled(Attack):
            factors: list[float] = field(default_factory=lambda: [-1.0])

            def forge(self, given):
                return given.own * self.factors[0]
    """
    (tmp_path / "own.py").write_text(textwrap.dedent(own))
    check(run(tmp_path / "run", "dpsgd", "mean", [f"{{name: '{tmp_path}/own.py:Scaled', nodes: [1]}}"]))


@pytest.mark.parametrize("name", ["top_k", "random_k"])
def test_forgeries_per_receiver_are_decoded_separately(tmp_path, monkeypatch, name):
    """The first message contains a whole copy; later ones contain changes of the forgeries for this receiver."""
    sent, messages = [], ForgingPacker.messages

    def noted(self, sender, receivers, round_num, kind, payload, keys=None):
        made = messages(self, sender, receivers, round_num, kind, payload, keys)
        if sender == 1:
            sent.extend((m.receiver, payload["model"], m.payload["model"], m.payload_bytes) for m in made)
        return made

    monkeypatch.setattr(ForgingPacker, "messages", noted)
    sets = ("algorithm={name: dpsgd}", "attacks=[{name: dissensus, nodes: [1]}]", "rounds=3")
    compression = f"network.compression={{name: {name}, fraction: 0.1}}"
    runs.run(load(SMOKE, (*SMALL[1:], *sets, compression)), out=tmp_path / "run")
    first = {}
    for receiver, meant, decoded, num_bytes in sent:
        if receiver not in first:
            first[receiver] = num_bytes
            assert torch.equal(decoded.values(), meant.values()) and num_bytes == 4 * meant.size
        else:
            assert num_bytes < first[receiver] / 2
    assert len(first) > 2 and len(sent) > len(first)


def test_dissensus_counts_all_nodes_in_the_final_exchange(tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(Dissensus, "forge", lambda self, given: seen.append(len(given.known)) or given.own)
    sets = ("algorithm={name: dpsgd, final_all_reduce: true}", "topology={name: ring}", "rounds=2")
    runs.run(load(SMOKE, (*sets, "attacks=[{name: dissensus, nodes: [5]}]")), out=tmp_path / "run")
    assert seen[-7:] == [7] * 7 and set(seen[:-7]) <= {1, 2}


def test_attacker_knows_the_newest_row_even_if_older_ones_arrive_later():
    packer = ForgingPacker.__new__(ForgingPacker)
    packer._received, packer._newest_s = {}, {}
    packer.attackers = SimpleNamespace(of=lambda node: "attacks" if node == 1 else None)
    packer._run = SimpleNamespace(server=None)
    rows = [SizedParams(SizedPart("model", 3, (3,)), serial) for serial in range(3)]
    for sent_s, row in zip((0.5, 2.5, 1.5), rows, strict=True):
        packer.receive(Message(4, 1, 3, PUSH, {"model": row}, 12, sent_s=sent_s))
    assert packer._received[1] == {(("model",), 3): {4: rows[1]}}

"""The effect of each attack on rows and samples, the selection of nodes, and invalid attacks."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from ddlsim.attacks import ATTACKS
from ddlsim.attacks.base import AttackInput, OfCluster
from ddlsim.attacks.forgeries import LabelFlip, SignFlip
from ddlsim.attacks.node_attacks import Attackers
from ddlsim.foundation.errors import ScenarioError
from ddlsim.learning.bank import Rows
from ddlsim.learning.job_types import AttackSpec
from ddlsim.learning.layout import Entry, Part
from ddlsim.learning.row_operations import PoisonedNodes
from ddlsim.learning.row_operations import attack as forge_all
from ddlsim.scenario import load
from ddlsim.tasks.builtin import Classification

SMOKE = "tests/helpers/smoke.yaml"
CLUSTERS = np.array([0] * 6 + [1] * 4)


def attack(name, **keys):
    return ATTACKS[name](**{"nodes": (0,), **keys})


def seen(own=(2.0, 4.0), known=((1.0, 1.0), (3.0, 5.0)), start=(1.0, 1.0), receiver=None, seed=1):
    def row(values):
        return None if values is None else torch.tensor(values)

    return AttackInput(row(own), [row(one) for one in known], row(start), row(receiver), seed, 10, 2)


@pytest.mark.parametrize(
    ("name", "keys", "expected"),
    [
        ("sign_flip", {}, (0, -2)),
        ("sign_flip", {"scale": 2.0}, (-1, -5)),
        ("sign_flip", {"of": "model"}, (-2, -4)),
        ("model_replacement", {"boost": 10.0}, (11, 31)),
        ("alie", {"z": 1.0}, (1, 1)),  # mean (2, 3), standard deviation (1, 2)
        ("inner_product_manipulation", {"epsilon": 2.0}, (-1, -3)),
        ("foe", {"tau": 3.0}, (-4, -6)),
        ("free_rider", {}, (2, 4)),
        ("sybil", {}, (1, 1)),
    ],
)
def test_forgery_by_hand(name, keys, expected):
    assert attack(name, **keys).forge(seen()).tolist() == list(expected)


def test_untrained_row_has_a_start_of_zeros():
    assert attack("sign_flip").forge(seen(start=None)).tolist() == [-2, -4]


def test_dissensus_pushes_the_receiver_away_from_its_honest_neighbors():
    found = attack("dissensus").forge(seen(known=((1.0, 0.0), (3.0, 0.0)), receiver=(1.0, 0.0)))
    # two neighbors pull by 0 and 2; one accomplice undoes their sum
    assert found.tolist() == [-1, 0]
    mean = (torch.tensor([1.0, 0]) + torch.tensor([1.0, 0]) + torch.tensor([3.0, 0]) + found) / 4
    assert mean.tolist() == [1, 0]


def test_noise_has_the_requested_deviation_and_depends_on_the_seed_only():
    own = torch.randn(20_000, generator=torch.Generator().manual_seed(0)) * 3

    def added(seed):
        return attack("gaussian_noise", scale=2.0).forge(AttackInput(own, [own], None, None, seed, 10, 2)) - own

    assert added(5).std().item() == pytest.approx(6, rel=0.02)
    assert torch.equal(added(5), added(5)) and not torch.equal(added(5), added(6))


def test_alie_uses_the_papers_z():
    # 50 nodes, 24 attackers (the paper's example): 2 supporters of 26, z = 1.43
    assert attack("alie").z_of(50, 24) == pytest.approx(1.426, abs=1e-3)


def test_flipped_labels_are_mirrored():
    labels = torch.tensor([0, 1, 9])
    assert attack("label_flip").poison(torch.zeros(3, 1), labels, 10, np.random.default_rng(0))[1].tolist() == [9, 8, 0]


def test_backdoor_marks_a_share_of_the_samples_with_the_target():
    images, labels = torch.zeros(10, 1, 5, 5), torch.arange(10)
    images[0, 0, 0, 0] = 7
    one = attack("backdoor", target=3, fraction=0.4, size=2)
    stamped, poisoned = one.poison(images, labels, 10, np.random.default_rng(0))
    changed = (stamped != images).flatten(1).any(1)
    assert changed.sum() == 4 and (poisoned[changed] == 3).all() and (poisoned[~changed] == labels[~changed]).all()
    assert (stamped[changed][:, 0, 3:, 3:] == stamped[changed].max()).all()


def test_backdoor_to_a_missing_class_is_refused():
    with pytest.raises(ScenarioError, match="expected a class from 0 to 9, got 10"):
        attack("backdoor", target=10).poison(torch.zeros(3, 1), torch.arange(3), 10, np.random.default_rng(0))


def test_backdoor_is_measured_on_samples_of_other_classes():
    one = torch.ones(4, 1, 5, 5), torch.tensor([0, 1, 0, 2])
    inputs, wanted = attack("backdoor", target=0).measured_on(*one)
    assert len(inputs) == 2 and wanted.tolist() == [0, 0]


def test_backdoor_is_measured_on_sequences_without_the_target():
    inputs, labels = torch.arange(8).view(4, 2), torch.tensor([[0, 1], [1, 2], [2, 2], [0, 0]])
    found, wanted = attack("backdoor", target=0, size=1).measured_on(inputs, labels)
    assert found.tolist() == [[2, 0], [4, 0]] and wanted.tolist() == [[0, 0], [0, 0]]  # token 0 is the trigger


def test_backdoor_to_the_only_class_of_a_test_set_is_refused():
    with pytest.raises(ScenarioError, match="got a test set with class 2 in every sample"):
        attack("backdoor", target=2).measured_on(torch.ones(3, 1, 5, 5), torch.tensor([2, 2, 2]))


def test_shares_nest_and_are_the_same_in_every_attack():
    few = attack("alie", nodes=0.2).members(CLUSTERS, seed=3)
    many = attack("label_flip", nodes=0.5).members(CLUSTERS, seed=3)
    assert len(few) == 2 and len(many) == 5 and set(few) < set(many)


def test_attack_can_select_nodes_of_a_cluster():
    assert attack("alie", nodes=OfCluster(cluster=1)).members(CLUSTERS, 0) == (6, 7, 8, 9)
    half = attack("alie", nodes=OfCluster(cluster=1, share=0.5)).members(CLUSTERS, 0)
    assert len(half) == 2 and set(half) < {6, 7, 8, 9}


def test_attacks_of_a_node_start_at_their_round_and_add_up():
    listed = [
        attack("flooding", nodes=(1,), factor=2.0, start_round=3),
        attack("flooding", nodes=(1, 2), factor=1.0),
        attack("withholding", nodes=(1,), probability=0.5, delay_s=2.0),
        attack("withholding", nodes=(1,), probability=0.5, delay_s=1.0),
    ]
    one = Attackers(listed, CLUSTERS, 0).of(1)
    assert [one.flood(2), one.flood(3)] == [1, 3]
    assert one.delay_s(0) == 3 and one.withholds(0) == 0.75


def test_first_sybil_trains():
    attackers = Attackers([attack("sybil", nodes=(2, 5, 7))], CLUSTERS, 0)
    assert [attackers.of(node).idles(0) for node in (2, 5, 7)] == [False, True, True]
    assert attackers.of(3) is None


@pytest.mark.parametrize(
    ("attacks", "words"),
    [
        ("[{name: sign_flip, nodes: [8]}]", r"attacks\[0\].nodes\[0\].*0 to 7.*got 8"),
        ("[{name: alie, nodes: {cluster: 2}}]", r"attacks\[0\].nodes.cluster.*0 to 1"),
        ("[{name: alie, nodes: 0.2, start_round: 6}]", r"attacks\[0\].start_round.*less than"),
        ("[{name: alie, nodes: 1.5}]", r"attacks\[0\].nodes"),
        ("[{name: alie}]", r"attacks\[0\].nodes"),
        ("[{name: allie, nodes: 0.2}]", r"attacks\[0\].name.*alie"),
        ("[{nodes: 0.2}]", r"attacks\[0\].name"),
        ("[alie]", r"attacks\[0\].*mapping"),
    ],
)
def test_invalid_attacks_are_reported_with_their_place(attacks, words):
    with pytest.raises(ScenarioError, match=f"(?s){words}"):
        load(SMOKE, (f"attacks={attacks}",))


@pytest.mark.parametrize("name", ["alie", "flooding", "withholding"])
def test_attacks_on_messages_need_a_sending_algorithm(name):
    with pytest.raises(ScenarioError, match="sends none"):
        load(SMOKE, (f"attacks=[{{name: {name}, nodes: 0.2}}]", "algorithm={name: local}"))
    for other in ("label_flip", "withholding, delay_s: 1.0"):  # which act on training
        load(SMOKE, (f"attacks=[{{name: {other}, nodes: 0.2}}]", "algorithm={name: local}"))


def test_robust_rules_need_an_averaging_algorithm_and_a_local_model():
    with pytest.raises(ScenarioError, match="averages nothing"):
        load(SMOKE, ("aggregation={name: median}", "algorithm={name: local}"))
    with pytest.raises(ScenarioError, match="the server of fedavg has none"):
        load(SMOKE, ("aggregation={name: clipped_gossip}", "algorithm={name: fedavg}"))


@pytest.mark.parametrize(
    ("poisoned", "text"),
    [
        (lambda x, y: (x[:1], y[:1]), r"inputs \[1, 2\] of torch.float32, expected \["),
        (lambda x, y: (x, y + 5), r"labels that must be 0..1, got 5..6 \(task: classification\)"),
        (lambda x, y: (x, y.float()), r"labels \[4\] of torch.float32, expected \[4\] of torch.int64"),
        (lambda x, y: x, r"a Tensor, expected a pair of tensors \(inputs, labels\)"),
    ],
)
def test_invalid_result_of_poison_is_refused(poisoned, text):
    class Own(LabelFlip):
        def poison(self, inputs, labels, num_classes, rng):
            return poisoned(inputs, labels)

    labels = torch.arange(4) % 2
    data = SimpleNamespace(
        train=[(torch.zeros(4, 2), labels)], num_classes=2, task=Classification(), occurring_classes=labels.unique
    )
    attackers = Attackers([Own(nodes=(0,))], np.zeros(1, int), 0)
    with pytest.raises(ScenarioError, match=rf"attacks: poison of .*Own returns {text}"):
        PoisonedNodes(attackers, data, 0)


@pytest.mark.parametrize(
    ("forged", "text"),
    [
        (torch.zeros(3), r"a tensor \[3\] of torch.float32, expected \[4\] of torch.float32"),
        (None, r"nothing \(None\), expected a tensor \[4\]"),
        (np.zeros(4), r"a ndarray, expected a tensor \[4\]"),
    ],
)
def test_invalid_result_of_forge_is_refused(forged, text):
    class Own(SignFlip):
        def forge(self, seen):
            return forged

    rows = Rows(torch.device("cpu"))
    part = Part("net", "model", (Entry("w", (4,), 0, 4, True),))
    own, made = rows.store(part, torch.ones(4)), rows.new(part)
    spec = AttackSpec(
        attack=Own(nodes=(0,)), own=own.serial, known=(), start=None, receiver=None, seed=0, sizes=(1, 1, 1),
        target=made.serial,
    )  # fmt: skip
    with pytest.raises(ScenarioError, match=rf"attacks: forge of .*Own returns {text}."):
        forge_all([spec.bound(rows)])


def test_label_flip_uses_the_occurring_classes():
    labels = torch.tensor([1, 2, 4, 1])
    data = SimpleNamespace(
        train=[(torch.zeros(4, 2), labels)], num_classes=5, task=Classification(), occurring_classes=labels.unique
    )
    PoisonedNodes(Attackers([LabelFlip(nodes=(0,))], np.zeros(1, int), 0), data, 0)
    assert data.train[1][1].tolist() == [4, 2, 1, 4]

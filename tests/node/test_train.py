"""The verbs `train` and `losses`: simulated time, validation, and the callback after every step."""

from types import SimpleNamespace

import pytest

from ddlsim.devices.base import FORWARD_SHARE
from ddlsim.foundation.errors import DdlsimError
from ddlsim.learning.bank import Params
from ddlsim.node.node import Node
from ddlsim.node.parameters import TrainingStarts
from ddlsim.node.ports import Ports


class Count(int):
    """The state of an optimizer: its steps."""

    loss = None


class Compute:
    """Models are tuples of one number; a training adds its steps, which are also the optimizer state."""

    draws_numbers = False

    def __init__(self):
        self.calls, self.validated = [], []

    def train_towards(self, node, model, steps, rng, only, local_state, objective, terms=None):
        self.calls.append((model, steps, local_state))
        self.terms = terms
        return (model[0] + steps,), Count((local_state or 0) + steps), {}

    def batches_in(self, split, node):
        return 3

    def losses(self, node, models, batches, rng, common=False, split="train", local_state=None):
        self.validated.append((models, local_state))
        return "losses"


@pytest.fixture
def compute():
    return Compute()


def node_of(compute, best=None, server=None):
    """Return a node whose events are durations in steps."""
    clock = SimpleNamespace(
        now_s=0.0,
        computing_s=lambda node, steps, passes=0: steps + passes * FORWARD_SHARE,
        after=lambda seconds: seconds,
    )
    run = SimpleNamespace(server=server, num_nodes=1, rounds=5, in_step=True, local_steps=lambda node, per_epoch: 4)
    compute.steps_per_epoch = lambda node: 1
    log = SimpleNamespace(trained=lambda *record: None)
    return Node(0, Ports(clock, None, compute, run, log), best)


def test_steps_without_after_step_are_one_training(compute):
    verb = node_of(compute).train((10.0,))
    assert (verb[0], verb[1]()) == (4, (14.0,))
    assert compute.calls == [((10.0,), 4, None)]


def test_after_step_changes_the_model_and_keeps_the_optimizer_state(compute):
    node = node_of(compute)
    verb = node.train((10.0,), steps=3, after_step=lambda model: (model[0] * 2,))
    assert (verb[0], verb[1](), node.local_state) == (3, (2 * (2 * (2 * 11 + 1) + 1),), 3)
    assert compute.calls == [((10.0,), 1, None), ((22.0,), 1, 1), ((46.0,), 1, 2)]


def test_training_with_after_step_is_validated_once(compute):
    best = SimpleNamespace(trained=lambda *arguments: found.append(arguments))
    found = []
    node = node_of(compute, best)
    node.train((10.0,), steps=2, after_step=lambda model: (-model[0],))[1]()
    assert compute.validated == [([(10.0,)], 2)]
    assert found == [((10.0,), "losses", 2)]


@pytest.mark.parametrize(("asked", "passed"), [(2, 2), (3, 3), (100, 3), (None, 3)])
def test_losses_take_the_time_of_at_most_one_pass(compute, asked, passed):
    duration, _ = node_of(compute).losses([(10.0,), (20.0,)], asked)
    assert duration == pytest.approx(2 * passed * FORWARD_SHARE)


@pytest.mark.parametrize(("given", "expected"), [(None, 20), (6, 6)])
def test_schedule_per_step_spans_all_trainings_of_the_run(compute, given, expected):
    node_of(compute).train((10.0,), steps=2, steps_of_run=given)
    assert compute.terms.steps == expected


def part(name):
    return SimpleNamespace(part=SimpleNamespace(name=name), serial=0)


@pytest.mark.parametrize(
    ("names", "only"), [(["core", "head"], "heads"), (["core", "head"], "model"), (["model"], "head")]
)
def test_unknown_part_is_refused(compute, names, only):
    with pytest.raises(DdlsimError, match=rf"as `only`, {' or '.join(names)}, got '{only}'"):
        node_of(compute).train(tuple(map(part, names)), only=only)
    assert compute.calls == []


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        ({"batches": 0}, "at least one mini-batch, or None for one pass, got 0"),
        ({"batches": 1, "split": "test"}, "expected the split train or validation, got 'test'"),
    ],
)
def test_losses_of_no_batches_are_refused(compute, asked, text):
    with pytest.raises(DdlsimError, match=text):
        node_of(compute).losses([(10.0,)], **asked)


def test_losses_without_validation_samples_are_refused(compute):
    compute.batches_in = lambda split, node: 0
    with pytest.raises(DdlsimError, match=r"node 0 has no validation samples. The key `validation` of a scenario"):
        node_of(compute).losses([(10.0,)], None, split="validation")


@pytest.mark.parametrize("validated", [False, True])
def test_free_rider_takes_the_time_of_a_training(compute, validated):
    objective = SimpleNamespace(class_means=False, views=2)
    compute.losses = lambda *args, **kwargs: "losses"
    best = SimpleNamespace(trained=lambda *args: None) if validated else None
    honest, idle = node_of(compute, best), node_of(compute, best)
    idle._attack = SimpleNamespace(delay_s=lambda round_num: 0.25, idles=lambda round_num: True)
    passes = 4 * 2 + (3 * FORWARD_SHARE if validated else 0)
    assert honest.train((10.0,), objective=objective)[0] == passes
    verb = idle.train((10.0,), objective=objective)
    assert (verb[0], verb[1]()) == (passes + 0.25, (10.0,))
    assert len(compute.calls) == 1


def test_model_with_other_trained_values_keeps_its_start(compute):
    """Needed by SGP, whose attacks and rules compare updates."""
    begun, trained, made = (Params(None) for _ in range(3))
    compute.with_trained_values = lambda params, values: made
    node = node_of(compute)
    node._starts = TrainingStarts()
    node._starts._of[trained] = begun
    assert node.with_trained_values(trained, None) is made
    assert node.started_from(made) is begun


@pytest.mark.parametrize("taken", ["trained_values", "classifier"])
def test_part_of_a_trained_model_has_the_same_part_of_its_start(compute, taken):
    """Needed by MAPL, whose attacks and rules compare updates."""
    begun, trained, other = (Params(None) for _ in range(3))
    parts = {params: Params(None) for params in (begun, trained, other)}
    setattr(compute, taken, parts.__getitem__)
    node = node_of(compute)
    node._starts = TrainingStarts()
    node._starts._of[trained] = begun
    assert getattr(node, taken)(trained) is parts[trained] and getattr(node, taken)(other) is parts[other]
    assert node.started_from(parts[trained]) is parts[begun] and node.started_from(parts[other]) is None


@pytest.mark.parametrize(("sources", "weights"), [(2, [1.0]), (1, [0.5, 0.5]), (0, [])])
def test_merge_needs_one_weight_per_model(compute, sources, weights):
    with pytest.raises(DdlsimError, match=f"node.merge: .* got {len(weights)} weights of {sources}"):
        node_of(compute).merge([None] * sources, weights)


@pytest.mark.parametrize("steps", [2.5, -1, "3"])
def test_invalid_number_of_steps_is_refused(compute, steps):
    with pytest.raises(DdlsimError, match=r"node\.train: steps: expected a whole number of mini-batches.*got"):
        node_of(compute).train((part("model"),), steps)


@pytest.mark.parametrize(
    ("asked", "ask"),
    [
        ("train", lambda node: node.train((10.0,), 1)),
        ("losses", lambda node: node.losses([(10.0,)], 1)),
        ("local_steps", lambda node: node.local_steps),
        ("steps_per_epoch", lambda node: node.steps_per_epoch),
        ("num_samples", lambda node: node.num_samples),
    ],
)
def test_server_without_samples_is_refused(compute, asked, ask):
    with pytest.raises(
        DdlsimError, match=rf"node\.{asked}: expected a node with samples and a device, got node 0, the server"
    ):
        ask(node_of(compute, server=0))

"""One rule for defaults, extends, fallback and --set."""

from pathlib import Path

import jsonschema
import pytest

from ddlsim.data.torchvision_sets import FashionMnistMini
from ddlsim.foundation.errors import ScenarioError
from ddlsim.network.access_links import Uniform
from ddlsim.runs.sweeps.axes import parse_grid
from ddlsim.scenario import from_python, json_schema, load, with_fallback
from ddlsim.scenario.unused_keys import unused_key_notes
from ddlsim.topologies.named_graphs import Ring
from ddlsim.topologies.random_graphs import RandomRegular


def test_missing_keys_have_their_defaults(write):
    scenario = load(write())
    assert (scenario.name, scenario.seed, scenario.mode, scenario.nodes.count) == ("test", 0, "sync", 8)
    assert scenario.topology == RandomRegular(degree=4)
    assert scenario.network.links == Uniform(uplink_mbps=100, downlink_mbps=100, latency_ms=20)
    assert scenario.evaluation.fair_lambda == 2 / 3
    assert scenario.churn is None and with_fallback(scenario) is None


def test_part_without_a_name_changes_the_default_part(write):
    assert load(write(more="topology: {degree: 2}\n")).topology == RandomRegular(degree=2)


def test_yaml_1_2_scalars(write):
    more = "description: 30:2\npaper: {on: no, rate: 1e-3, big: 1_000}\n"
    scenario = load(write(more=more), ["training.learning_rate=1e-3"])
    assert scenario.description == "30:2"
    assert scenario.paper == {"on": "no", "rate": 0.001, "big": 1000}
    assert scenario.training.learning_rate == 0.001


def test_aliases_and_merge_keys(write):
    more = "shift: {name: rotate, degrees: &angles [0, 90]}\npaper: {a: *angles, b: &b {x: 1}, c: {<<: *b, y: 2}}\n"
    assert load(write(more=more)).paper == {"a": [0, 90], "b": {"x": 1}, "c": {"x": 1, "y": 2}}


def test_child_changes_keys_and_replaces_named_parts(write):
    write(name="parent.yaml", more="name: parent\ntopology: {degree: 2, dynamic: false}\n")
    child = load(write("extends: parent.yaml\ntraining: {batch_size: 4}\ntopology: {name: ring}\n", "child.yaml"))
    assert (child.training.learning_rate, child.training.batch_size) == (0.1, 4)
    assert child.topology == Ring()
    assert child.name == "child"


def test_extends_is_relative_to_the_file(here, write):
    (here / "base").mkdir()
    write(name="base/parent.yaml")
    write("extends: parent.yaml\nrounds: 7\n", "base/middle.yaml")
    assert load(write("extends: base/middle.yaml\n")).rounds == 7


def test_error_in_a_parent_points_into_the_parent(write):
    write(name="parent.yaml", more="mode: sink\n")
    with pytest.raises(ScenarioError, match=r"^parent.yaml:7:7: mode: expected one of sync, async, got 'sink'"):
        load(write("extends: parent.yaml\n"))


def test_circular_extends_is_an_error(write):
    write("extends: b.yaml\n", "a.yaml")
    write("extends: a.yaml\n", "b.yaml")
    with pytest.raises(
        ScenarioError, match=r"b.yaml:1:10: extends: files extend each other in a cycle: a.yaml -> b.yaml -> a.yaml"
    ):
        load("a.yaml")


def test_extends_of_a_missing_file_is_an_error(write):
    with pytest.raises(ScenarioError, match=r"test.yaml:1:10: extends: no file nix.yaml.*no scenario of that name"):
        load(write("extends: nix.yaml\n"))


@pytest.mark.parametrize("name", ["smoke", "smoke.yaml"])
def test_extends_a_scenario_by_name_unless_there_is_a_file(write, name):
    assert load(write(f"extends: {name}\nrounds: 7\n")).algorithm_name == "facade"
    write("extends: dpsgd_30_2\n", "smoke.yaml")
    assert load(write(f"extends: {name}\nrounds: 7\n")).algorithm_name == "dpsgd"


def test_override_of_the_name_drops_the_old_keys_in_any_order(write):
    name = write(more="topology: {name: watts_strogatz, degree: 2, rewire_probability: 0.5}\n")
    scenario = load(name, ["topology.degree=6", "topology.name=random_regular"])
    assert scenario.topology == RandomRegular(degree=6)


def test_override_of_a_key_survives_an_override_of_its_part_in_any_order(write):
    scenario = load(write(), ["topology.degree=6", "topology={name: random_regular, degree: 2}"])
    assert scenario.topology == RandomRegular(degree=6)
    assert load(write(), ["topology={name: random_regular, degree: 2}", "topology.name=ring"]).topology == Ring()


def test_override_of_the_same_name_keeps_the_keys(write):
    name = write(more="topology: {degree: 2, name: random_regular}\n")
    assert load(name, ["topology.name=random_regular"]).topology.degree == 2


def test_bare_name_is_the_name_of_the_part_everywhere(write):
    file = write("extends: facade_30_2\nalgorithm: el\ntopology: ring\n", "bare.yaml")
    assert load(file).algorithm.variant == "oracle" and isinstance(load(file).topology, Ring)
    el = load("facade_30_2", ["algorithm=el", "churn=skype", "network.links=5g"])
    assert el == load("facade_30_2", ["algorithm.name=el", "churn.name=skype", "network.links={name: 5g}"])
    assert from_python("facade_30_2", {"algorithm": "el", "churn": "skype", "network.links": "5g"}) == el
    assert load("facade_30_2", ["algorithm=facade"]) == load("facade_30_2")  # the same part keeps its keys
    assert load("facade_30_2", ["algorithm.variant=local", "algorithm=el"]).algorithm.variant == "local"
    assert [value.option for value in parse_grid("algorithm=el,dpsgd")] == ["algorithm=el", "algorithm=dpsgd"]
    jsonschema.validate({"extends": "smoke", "algorithm": "el", "training": {"optimizer": "adam"}}, json_schema())
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"extends": "smoke", "algorithm": "elephant"}, json_schema())


def test_override_with_a_mapping_replaces(write):
    assert load(write(), ["topology={name: ring}", "nodes.clusters=[1, 2]"]).nodes.clusters == (1, 2)


FALLBACK = """
fallback:
  data: {name: fashion-mnist-mini}
  rounds: 80
  evaluation: {target_accuracy: 0.7}
"""


def test_fallback_is_applied_by_the_same_rule(write):
    name = write(more=f"evaluation: {{every: 2}}\n{FALLBACK}")
    scenario = load(name, ["data={name: npz, path: x.npz}"])
    other = with_fallback(scenario)
    assert other.data == FashionMnistMini() and scenario.data_name == "npz"
    assert (other.rounds, other.evaluation.every, other.evaluation.target_accuracy) == (80, 2, 0.7)
    assert (scenario.rounds, other.fallback, other.name) == (3, None, scenario.name)


def test_override_holds_in_the_fallback_too_except_for_its_data(write):
    scenario = load(write(more=FALLBACK), ["rounds=5", "data.name=cifar10", "seed=3"])
    other = with_fallback(scenario)
    assert (scenario.data_name, other.data_name) == ("cifar10", "fashion-mnist-mini")
    assert (other.rounds, other.seed) == (5, 3)


def test_override_of_a_key_holds_if_the_fallback_names_the_same_part(write):
    more = """
    fallback:
      algorithm: {name: facade, warmup_rounds: 2}
      model: {name: gn_lenet}
      topology: {name: regular, dynamic: false}
      training: {optimizer: sgd}
    """
    sets = ["algorithm.heads=5", "model.hidden=[7]", "topology.degree=6", "training.momentum=0.5"]
    scenario = load(write(more=more), sets)
    other = with_fallback(scenario)
    assert (other.algorithm.heads, other.algorithm.warmup_rounds) == (5, 2)
    assert scenario.model.hidden == (7,) and type(other.model).__name__ == "GNLeNet"
    assert other.topology == RandomRegular(degree=6, dynamic=False)
    assert other.training.optimizer.momentum == 0.5


@pytest.mark.parametrize(
    ("change", "part"), [("algorithm.name=el", "algorithm is 'el'"), ("model.name=gn_lenet", "model is 'gn_lenet'")]
)
def test_fallback_keys_of_a_replaced_part_are_dropped_with_a_note(write, change, part):
    fallback = "fallback: {algorithm: {warmup_rounds: 3}, model: {hidden: [8]}, rounds: 9}"
    scenario = load(write(more=fallback), [change])
    (note,) = [note for note in unused_key_notes(scenario) if "fallback" in note]
    assert note.endswith(f"is dropped: {part} now.")
    assert unused_key_notes(with_fallback(scenario))[0] == note
    other = {"algorithm": "model", "model": "algorithm"}[change.split(".")[0]]
    assert set(scenario.fallback) == {other, "rounds"} and with_fallback(scenario).rounds == 9


def test_override_inside_the_fallback(write):
    scenario = load(write(more=FALLBACK), ["fallback.rounds=9"])
    assert (scenario.rounds, with_fallback(scenario).rounds) == (3, 9)


@pytest.mark.parametrize(
    ("fallback", "message"),
    [
        ("rounds: 0", "test.yaml:7:20: fallback.rounds: expected a number of at least 1, got 0"),
        ("data: {name: x}", "test.yaml:7:25: fallback.data.name: unknown name 'x'."),
        ("fallback: null", "test.yaml:7:12: fallback.fallback: a fallback cannot hold 'fallback'"),
        ("rouns: 1", "test.yaml:7:12: fallback.rouns: unknown key 'rouns'. Did you mean 'rounds'?"),
        ("nodes: {clusters: [2, 2]}", "test.yaml:1:1: topology.degree: with the fallback applied: must be below"),
    ],
)
def test_fallback_is_checked_as_if_it_were_applied(problems, fallback, message):
    (found,) = problems(more=f"fallback: {{{fallback}}}\n")
    assert found.startswith(message)


def test_error_outside_the_fallback_is_reported_once(problems):
    assert len(problems(more=f"mode: sink\n{FALLBACK}")) == 1


def test_an_augmentation_is_replaced_whole_and_its_keys_can_be_changed(write):
    base = {"name": "RandomCrop", "size": 28, "padding": 4}
    write(name="base.yaml")
    (file := Path("base.yaml")).write_text(file.read_text().replace("rate: 0.1", f"rate: 0.1, augmentation: {base}"))
    child = write("extends: base.yaml\ntraining: {augmentation: {name: RandomRotation, degrees: 5}}\n", "child.yaml")
    assert load(child).training.augmentation == {"name": "RandomRotation", "degrees": 5}
    assert load("base.yaml", ["training.augmentation.padding=2"]).training.augmentation == {**base, "padding": 2}

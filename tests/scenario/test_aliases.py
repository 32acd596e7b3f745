"""Aliases of keys: accepted, and replaced by the names in the resolved scenario."""

import pytest

from ddlsim.foundation.errors import ScenarioError
from ddlsim.scenario import from_mapping, from_python, load
from ddlsim.scenario.model import to_plain

BASE = """
rounds: 4
nodes: {clusters: [6]}
algorithm: {name: el}
model: {name: mlp}
data: {name: table, path: t.csv, target: sick, test_share: 0.3}
training: {lr: 0.1, bs: 4}
fallback: {training: {lr: 0.2}}
"""


@pytest.fixture
def base(tmp_path):
    (tmp_path / "base.yaml").write_text(BASE)
    return tmp_path / "base.yaml"


def test_resolved_scenario_has_the_names_of_keys(base):
    found = to_plain(load(base))
    assert (found["data"]["label"], found["data"]["test_fraction"]) == ("sick", 0.3)
    assert (found["training"]["learning_rate"], found["training"]["batch_size"]) == (0.1, 4)
    assert found["fallback"] == {"training": {"learning_rate": 0.2}}


@pytest.mark.parametrize("key", ["training.lr", "training.learning_rate"])
def test_override_and_extension_replace_a_key_under_either_name(base, tmp_path, key):
    changed = load(base, [f"{key}=0.5", "data.file=u.csv"])
    assert changed.training.learning_rate == 0.5 and changed.data.path == "u.csv"
    assert changed.fallback == {"training": {"learning_rate": 0.5}}
    (tmp_path / "child.yaml").write_text(
        f"extends: base\ntraining: {{{key.split('.')[1]}: 0.5}}\ndata: {{label: ill}}\n"
    )
    child = load(tmp_path / "child.yaml")
    assert (child.training.learning_rate, child.training.batch_size, child.data.label) == (0.5, 4, "ill")
    assert from_python(base, {key: 0.5}).training.learning_rate == 0.5


def test_key_with_its_alias_is_an_error(base):
    base.write_text(BASE.replace("bs: 4", "learning_rate: 1"))
    with pytest.raises(ScenarioError) as caught:
        load(base)
    assert (
        str(caught.value)
        .splitlines()[0]
        .endswith("base.yaml:7:12: training.lr: alias of learning_rate, which is also set; remove one of them")
    )


def test_user_defined_part_keeps_a_key_that_is_an_alias_elsewhere(base, tmp_path):
    (tmp_path / "mine.py").write_text(
        "from dataclasses import dataclass\nfrom ddlsim.data.dataset import DataSettings\n\n"
        "@dataclass(frozen=True, kw_only=True)\nclass Mine(DataSettings):\n    file: str = ''\n    path: str = ''\n"
    )
    base.write_text(
        BASE.replace("name: table, path: t.csv, target: sick, test_share: 0.3", "name: ./mine.py:Mine, file: a")
    )
    (tmp_path / "child.yaml").write_text("extends: base\ndata: {file: b}\n")
    assert load(tmp_path / "child.yaml").data.file == "b"
    assert load(base, ["data.file=c"]).data.file == "c"


@pytest.mark.parametrize("none", [None, {"name": "none"}])
def test_null_and_none_are_equal(none):
    plain = {"rounds": 1, "nodes": {"clusters": [6]}, "algorithm": {"name": "el"}, "model": {"name": "mlp"}}
    plain |= {"data": {"name": "fashion-mnist-mini"}, "training": {"learning_rate": 0.1}}
    found = to_plain(from_mapping({**plain, "shift": none, "churn": none, "network": {"compression": none}}))
    assert (found["shift"], found["churn"], found["network"]["compression"]) == (
        {"name": "none"},
        None,
        {"name": "none"},
    )

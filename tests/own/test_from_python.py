"""Parts as Python objects and classes, for example from a notebook."""

import importlib
import json
import re
import sys
from dataclasses import dataclass
from types import SimpleNamespace

import pytest

from ddlsim import runs
from ddlsim.aggregation.base import Aggregation
from ddlsim.algorithms import ALGORITHMS
from ddlsim.algorithms.decentralized.el import EpidemicLearning
from ddlsim.algorithms.personalized.facade import Facade
from ddlsim.foundation.errors import ScenarioError
from ddlsim.scenario import digest, from_mapping, load, parts, to_yaml, with_fallback
from ddlsim.scenario.model import to_plain
from ddlsim.topologies.named_graphs import Ring


@dataclass(frozen=True, kw_only=True)
class Quiet(EpidemicLearning):
    """An algorithm without an entry in the table."""

    volume: float = 0.5


def mapping(**changes):
    return {
        "rounds": 2,
        "nodes": {"clusters": [3]},
        "algorithm": {"name": "el"},
        "model": {"name": "mlp", "hidden": [4]},
        "data": {"name": "fashion-mnist-mini"},
        "topology": Ring,
        "training": {"learning_rate": 0.1},
        "learning": "none",
        **changes,
    }


def test_builtin_object_is_written_by_its_name():
    scenario = from_mapping(mapping(algorithm=Facade(heads=2)))
    assert to_plain(scenario)["algorithm"]["name"] == "facade" and scenario.algorithm.heads == 2
    assert to_plain(scenario)["topology"] == {"name": "ring"}


def test_objects_are_checked_as_keys_are():
    with pytest.raises(ScenarioError, match=r"algorithm.heads: expected a number of at least"):
        from_mapping(mapping(algorithm=Facade(heads=-1)))


@pytest.mark.parametrize("given", [Quiet(volume=0.25), {"name": Quiet, "volume": 0.25}])
def test_unregistered_class_is_named_by_its_class(given):
    scenario = from_mapping(mapping(algorithm=given))
    assert scenario.algorithm == Quiet(volume=0.25) and scenario.algorithm_name == "Quiet"
    assert to_plain(scenario)["algorithm"]["name"] == "Quiet"


def test_a_class_stands_for_its_defaults():
    assert from_mapping(mapping(algorithm=Quiet)).algorithm == Quiet()


def test_a_scenario_can_be_copied_with_another_part(tmp_path):
    """Regression: a class without a table entry has no name."""
    scenario = load("scenarios/smoke.yaml", ["learning=none"]).model_copy(update={"algorithm": Quiet()})
    assert scenario.algorithm_name == "Quiet" and "name: Quiet" in to_yaml(scenario) and digest(scenario)
    assert runs.run(scenario, out=tmp_path / "run")["algorithm"] == "Quiet"


def test_a_fallback_keeps_the_class():
    scenario = from_mapping(mapping(algorithm=Quiet(volume=0.25), fallback={"rounds": 1, "topology": Ring()}))
    assert with_fallback(scenario).algorithm == Quiet(volume=0.25)


def test_two_classes_with_one_name_are_distinguished():
    first = from_mapping(mapping(algorithm=Quiet, fallback={"rounds": 1}))
    other = dataclass(frozen=True, kw_only=True)(type("Quiet", (EpidemicLearning,), {"__module__": __name__}))
    second = from_mapping(mapping(algorithm=other, fallback={"rounds": 1}))
    assert type(with_fallback(first).algorithm) is Quiet and type(with_fallback(second).algorithm) is other


def test_class_named_like_a_builtin_part_is_distinguished():
    el = dataclass(frozen=True, kw_only=True)(type("el", (Quiet,), {"__module__": __name__}))
    scenario = from_mapping(mapping(algorithm=el))
    assert type(scenario.algorithm) is el and scenario.algorithm_name != "el"


def test_a_class_without_the_contract_is_refused():
    with pytest.raises(ScenarioError, match=r"algorithm 'object': .* must extend ddlsim.algorithms.base.Algorithm"):
        from_mapping(mapping(algorithm=object))


def test_rule_without_combine_is_refused():
    half = dataclass(frozen=True, kw_only=True)(type("Half", (Aggregation,), {"__module__": __name__}))
    text = "Half does not define combine; ddlsim.aggregation.base.Aggregation says what"
    with pytest.raises(ScenarioError, match=re.escape(text)):
        parts.table("aggregation").register_class(half)


def test_manifest_contains_the_digest_of_the_class(tmp_path):
    runs.run(from_mapping(mapping(algorithm=Quiet)), out=tmp_path / "run")
    (found,) = json.loads((tmp_path / "run" / "manifest.json").read_text())["plugins"]
    assert found["name"] == "Quiet" and found["path"] == __file__ and len(found["sha256"]) == 64


def test_manifest_contains_package_and_version_of_an_entry_point(tmp_path, monkeypatch):
    point = SimpleNamespace(load=lambda: Quiet, dist=SimpleNamespace(name="mine-pkg", version="1.2"))
    monkeypatch.setitem(ALGORITHMS._plugins, "quiet", point)
    runs.run(from_mapping(mapping(algorithm={"name": "quiet"})), out=tmp_path / "run")
    (found,) = json.loads((tmp_path / "run" / "manifest.json").read_text())["plugins"]
    assert len(found.pop("sha256")) == 64  # this file is not in an installed package
    assert found == {"kind": "algorithm", "name": "quiet", "distribution": "mine-pkg", "version": "1.2"}


def test_run_repeats_after_an_edit_of_its_package(tmp_path, monkeypatch):
    file = tmp_path / "edited_in_place.py"
    monkeypatch.syspath_prepend(tmp_path)

    def loaded(width):
        file.write_text(
            "from ddlsim.algorithms.decentralized.el import EpidemicLearning as Base\n"
            f"class Quiet(Base):\n    width = {width}\n"
        )
        sys.modules.pop("edited_in_place", None)
        cls = importlib.import_module("edited_in_place").Quiet
        point = SimpleNamespace(load=lambda: cls, dist=SimpleNamespace(name="mine-pkg", version="1.2"))
        monkeypatch.setitem(ALGORITHMS._plugins, "quiet", point)
        runs.run(from_mapping(mapping(algorithm={"name": "quiet"})), out=tmp_path / "run")
        return (tmp_path / "run.earlier-1").exists()

    assert [loaded(1), loaded(1), loaded(22)] == [False, False, True]

"""Plug-in classes fulfill the contract of their table, or one error names the missing methods."""

from dataclasses import dataclass
from types import SimpleNamespace

import pytest

from ddlsim.algorithms import ALGORITHMS
from ddlsim.algorithms.base import Algorithm
from ddlsim.foundation.errors import ScenarioError


@dataclass(frozen=True, kw_only=True)
class Whole(Algorithm):
    """Fulfills the contract."""

    def start(self, node):
        return None

    def round(self, node, state, round_num):
        yield node.sleep(1.0)

    def serving(self, node, state):
        return None


class NoServing(Algorithm):
    def start(self, node):
        return None

    def round(self, node, state, round_num):
        yield node.sleep(1.0)


@pytest.fixture
def load(monkeypatch):
    def load(cls):
        monkeypatch.setitem(ALGORITHMS._plugins, "mine", SimpleNamespace(load=lambda: cls))
        return ALGORITHMS["mine"]

    return load


def test_valid_class_is_loaded(load):
    assert load(Whole) is Whole


def test_error_of_a_class_without_its_base_names_the_base(load):
    with pytest.raises(ScenarioError, match=r"algorithm 'mine': .*object must extend ddlsim.algorithms.base.Algorithm"):
        load(object)


def test_missing_methods_are_named(load):
    with pytest.raises(ScenarioError, match=r"NoServing does not define serving; ddlsim.algorithms.base.Algorithm"):
        load(NoServing)


def test_class_without_the_dataclass_decorator_is_refused(load):
    class Bare(Algorithm):
        start = round = serving = lambda self, *_: None

    with pytest.raises(ScenarioError, match="must be a dataclass"):
        load(Bare)


def test_every_builtin_entry_fulfills_its_contract():
    from ddlsim.churn import CHURNS
    from ddlsim.data import DATASETS, PARTITIONS, SHIFTS
    from ddlsim.devices import DEVICES
    from ddlsim.models import MODELS
    from ddlsim.network import LINKS
    from ddlsim.topologies import TOPOLOGIES

    for table in (ALGORITHMS, CHURNS, DATASETS, PARTITIONS, SHIFTS, DEVICES, MODELS, LINKS, TOPOLOGIES):
        for name in table:
            assert table._checked(name, table[name]) is table[name]

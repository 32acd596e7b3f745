"""What tells values that own code goes by: objects of packages, mappings, layers with functions of one's own."""

import copy
import enum
import os
import re
import subprocess
import sys
from collections import OrderedDict, defaultdict, namedtuple
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import sparse
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from torch import nn

from ddlsim.foundation.identity import Identity

pytestmark = pytest.mark.full


def told(value):
    identity = Identity()
    identity.value(value)
    return identity.sha256 if identity.known else None


def module_told(module):
    identity = Identity()
    identity.module(module, with_values=False)
    return identity.sha256 if identity.known else None


class Slots:
    __slots__ = ("a",)

    def __init__(self, a):
        self.a = a


def twice(x):
    return 2 * x


def thrice(x):
    return 3 * x


def fitted(mean):
    return StandardScaler().fit(np.array([[mean], [mean + 2.0]]))


def frame(value):
    return pd.DataFrame({"a": [value]})


class Missing(dict):
    def __missing__(self, key):
        return 1.0


class OtherMissing(dict):
    def __missing__(self, key):
        return 2.0


class Closed:
    """What neither copy nor pickle can make anew."""

    __slots__ = ()

    def __reduce_ex__(self, protocol):
        raise TypeError("no")


class Listed(list):
    def total(self):
        return sum(self)


class OtherListed(list):
    def total(self):
        return -sum(self)


class Pause(NamedTuple):
    s: float

    def __float__(self):
        return self.s


class OtherPause(NamedTuple):
    s: float

    def __float__(self):
        return 50 * self.s


class Pace(enum.Enum):
    SLOW = 1

    def __float__(self):
        return 1.0


class OtherPace(enum.Enum):
    SLOW = 1

    def __float__(self):
        return 50.0


class Below(Slots):
    """Has a __dict__ as well."""


def with_rate(rate):
    def paced(x):
        return paced.rate * x

    paced.rate = rate
    return paced


Bare, OtherBare = namedtuple("Bare", "a b"), namedtuple("Bare", "b a")

PAIRS = {
    "a fitted scaler": (lambda: fitted(1.0), lambda: fitted(5.0)),
    "a distribution": (
        lambda: torch.distributions.Normal(torch.zeros(2), torch.ones(2)),
        lambda: torch.distributions.Normal(torch.zeros(2), 2 * torch.ones(2)),
    ),
    "a sparse matrix": (lambda: sparse.csr_matrix([[1.0, 0.0]]), lambda: sparse.csr_matrix([[5.0, 0.0]])),
    "a frame": (lambda: frame(12.3456781), lambda: frame(12.3456784)),
    "an array of objects": (lambda: np.array([Slots, None]), lambda: np.array([Closed, None])),
    "an array of many": (
        lambda: pd.Series(np.arange(9e3)),
        lambda: pd.Series([*np.arange(4e3), 0.0, *np.arange(4001, 9e3)]),
    ),
    "slots": (lambda: Slots(1), lambda: Slots(2)),
    "a pattern": (lambda: re.compile("a" * 300 + "b"), lambda: re.compile("a" * 300 + "c")),
    "a fraction": (lambda: Fraction(1, 3), lambda: Fraction(2, 3)),
    "a default": (lambda: defaultdict(lambda: 1.0), lambda: defaultdict(lambda: 5.0)),
    "a class of mappings": (lambda: Missing(), lambda: OtherMissing()),
    "an order": (lambda: OrderedDict(a=1, b=2), lambda: OrderedDict(a=1, b=3)),
    "a type": (lambda: torch.float32, lambda: torch.float64),
    "a list of an own class": (lambda: Listed([1]), lambda: OtherListed([1])),
    "a named tuple of an own class": (lambda: Pause(1.0), lambda: OtherPause(1.0)),
    "a bare named tuple": (lambda: Bare(1, 2), lambda: OtherBare(1, 2)),
    "a member of an enumeration": (lambda: Pace.SLOW, lambda: OtherPace.SLOW),
    "a mask": (lambda: np.ma.array([1, 2], mask=[0, 1]), lambda: np.ma.array([1, 2], mask=[1, 0])),
    "a matrix": (lambda: np.matrix([[1, 2]]), lambda: np.array([[1, 2]])),
    "names of fields": (
        lambda: np.zeros(2, [("a", "i4"), ("b", "i4")]),
        lambda: np.zeros(2, [("b", "i4"), ("a", "i4")]),
    ),
    "an order of keys": (lambda: {"1": 0, "50": 0}, lambda: {"50": 0, "1": 0}),
    "slots below an object": (lambda: Below(1), lambda: Below(2)),
    "an attribute of a function": (lambda: with_rate(1), lambda: with_rate(2)),
    "a set": (lambda: {frozenset("ad"), frozenset("bc")}, lambda: {frozenset("ad"), frozenset("bd")}),
    "a range": (lambda: range(5), lambda: range(6)),
}


@pytest.mark.parametrize("what", PAIRS)
def test_values_that_differ_are_told_apart_and_equal_ones_are_not(what):
    first, other = PAIRS[what]
    assert told(first()) == told(first()) != told(other())
    assert None not in (told(first()), told(other()))


@pytest.mark.parametrize(
    "value",
    [
        *(Closed(), object(), np.random.default_rng(0), torch.Generator(), (i for i in ())),
        *(FunctionTransformer(twice), np.array([twice, None])),  # they show where a function lies
        torch.distributions.Categorical(torch.ones(3)),  # it keeps its logits once they were asked for
    ],
)
def test_what_cannot_be_made_anew_or_changes_by_use_is_unknown(value):
    assert told(value) is None


def test_use_changes_nothing():
    matrix = sparse.csr_matrix([[1.0, 0.0], [2.0, 3.0]])
    before = told(matrix)
    assert matrix.max() == 3.0 and told(matrix) == before is not None


def test_sets_are_told_alike_by_all_processes():
    text = "from ddlsim.foundation.identity import Identity; i = Identity(); "
    text += "i.value({frozenset('ad'): 1, 'x': {frozenset('bc'), 'y'}})"
    found = {
        subprocess.run(
            [sys.executable, "-c", f"{text}; print(i.sha256)"],
            env={**os.environ, "PYTHONHASHSEED": str(seed)},
            capture_output=True,
            check=True,
        ).stdout
        for seed in range(3)
    }
    assert len(found) == 1


def layer(activation):
    return nn.TransformerEncoderLayer(8, 2, 16, activation=activation)


class Activation:
    def __init__(self, times):
        self.times = times

    def __call__(self, x):
        return self.times * x


def patched(function):
    net = nn.Sequential(nn.Linear(3, 2), nn.ReLU())
    net[1].forward = function.__get__(net[1])
    return net


def relu_twice(self, x):
    return 2 * x.relu()


def relu_thrice(self, x):
    return 3 * x.relu()


@pytest.mark.parametrize(
    ("make", "first", "other"),
    [
        (layer, twice, thrice),
        (layer, Activation(1.0), Activation(2.0)),
        (layer, torch.relu, torch.sigmoid),
        (patched, relu_twice, relu_thrice),
    ],
)
def test_a_layer_of_torch_counts_with_what_it_was_given_of_one_s_own(make, first, other):
    torch.manual_seed(0)
    assert module_told(make(first)) == module_told(make(first)) != module_told(make(other))
    assert module_told(make(first)) is not None


def test_a_recurrent_layer_s_own_lists_of_tensors_do_not_count():
    assert module_told(nn.LSTM(3, 4)) == module_told(nn.LSTM(3, 4)) != module_told(nn.LSTM(3, 5))


def test_a_mapping_that_holds_itself_is_told_or_unknown():
    inside = Activation(1.0)
    inside.times = [inside]
    assert told(inside) == told(copy.deepcopy(inside)) != told(Activation(1.0))

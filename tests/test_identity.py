"""What tells the code of models and parts that a notebook or a file gives from other code of the same text."""

import importlib
import linecache
import subprocess
import sys
from importlib.util import find_spec
from itertools import count

import numpy as np
import pytest
import torch

import ddlsim
from ddlsim.foundation import own_code, provenance
from ddlsim.foundation.identity import Identity
from ddlsim.models.given import given_model
from ddlsim.runs.api.start import resolve
from ddlsim.scenario import digest

pytestmark = pytest.mark.full
NUMBERS = count(1)

NET = """
from torch import nn

class Net(nn.Module):
    def __init__(self, num_classes):
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(784, WIDTH), nn.ReLU(), nn.Linear(WIDTH, num_classes))

    def forward(self, x):
        return self.layers(scaled(x) * ACT)
"""
SCALED = "def scaled(x):\n    return x * {}\n"

PARTS = """
from dataclasses import dataclass, field

import numpy as np

from ddlsim.aggregation.base import Aggregation
from ddlsim.algorithms.dpsgd import DPSGD
from ddlsim.topologies.base import Topology

class Paused:
    @property
    def pause_s(self):
        return [PAUSE_S for _ in range(2)][0]

@dataclass(frozen=True, kw_only=True)
class Own{base}:
    times: int = 1
    names: list = field(default_factory=list)
    {body}
"""
BODIES = {
    "(Paused, DPSGD)": "def state_size(self):\n        return 0",
    "(DPSGD)": "def round(self, node, state, round_num):\n        yield node.sleep(PAUSE_S)",
    "(Topology)": "@classmethod\n    def graph(cls, num_nodes, node_cluster, stream):\n        return PAUSE_S",
    "(Aggregation)": "late_s = PAUSE_S\n    @staticmethod\n    def combine(own, models, weights): return models",
}


@pytest.fixture
def cell(monkeypatch):
    """Runs the text of a notebook's cell in the notebook's names."""
    monkeypatch.delattr(sys.modules["__main__"], "__file__", raising=False)
    space = vars(sys.modules["__main__"])
    before = dict(space)

    def run(text):
        name = f"<cell {next(NUMBERS)} of {__name__}>"
        linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
        exec(compile(text, name, "exec"), space)
        return space

    yield run
    space.clear()
    space.update(before)


@pytest.fixture
def helper(tmp_path, monkeypatch):
    """Writes a module of a user's own; what has imported it forgets it."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def write(name, text):
        (tmp_path / f"{name}.py").write_text(text)
        sys.modules.pop(name, None)
        importlib.invalidate_caches()

    yield write
    for path in tmp_path.glob("*.py"):
        sys.modules.pop(path.stem, None)


SETUP = "WIDTH, ACT = 8, 1.0\n" + SCALED.format(1) + NET


@pytest.mark.parametrize("change", ["WIDTH = 64", "ACT = 0.0", SCALED.format(2)])
def test_a_class_is_another_model_when_a_global_of_its_methods_is(cell, change):
    model = cell(SETUP)["Net"]
    first, again = given_model(model), given_model(model)
    assert first.identified and first.digest == again.digest
    assert given_model(cell(change)["Net"]).digest != first.digest
    assert given_model(cell(SETUP)["Net"]).digest == first.digest


def test_code_of_main_is_looked_into_also_where_a_package_runs_it(cell, monkeypatch):
    """As with `python -m pytest`."""
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", find_spec("pytest.__main__"))
    first = given_model(cell(SETUP)["Net"])
    assert given_model(cell("WIDTH = 64")["Net"]).digest != first.digest


def test_a_module_is_another_one_when_a_global_of_its_forward_or_an_attribute_is(cell):
    net = cell(SETUP)["Net"](10)
    first = given_model(net)
    assert first.identified
    cell("ACT = 0.0")
    assert given_model(net).digest != first.digest
    cell("ACT = 1.0")
    assert given_model(net).digest == first.digest
    net.rate = 0.5
    assert given_model(net).digest != first.digest


def test_a_module_is_another_one_when_a_layer_of_torch_does_what_it_does_not_show():
    def found(heads, first, activation):
        torch.manual_seed(0)
        model = given_model(torch.nn.TransformerEncoderLayer(8, heads, 4, norm_first=first, activation=activation))
        assert model.identified
        return model.digest

    relu, gelu = torch.nn.functional.relu, torch.nn.functional.gelu
    layers = ((2, False, relu), (4, False, relu), (2, True, relu), (2, False, gelu))
    assert len({found(*layer) for layer in (*layers, *layers)}) == 4


def test_a_run_of_a_class_does_not_come_back_for_other_globals(cell, tmp_path):
    def run():
        small = {"rounds": 1, "nodes": {"clusters": [2]}, "topology": {"name": "ring"}, "algorithm": {"name": "el"}}
        training = {"learning_rate": 0.1, "local_steps": 1}
        given = {**small, "data": {"name": "fashion-mnist-mini"}, "training": training}
        return ddlsim.run(given, model=cell("")["Net"], out=tmp_path / "run").summary["bytes"]["total"]

    cell(SETUP)
    first = run()
    assert run() == first and not list(tmp_path.glob("run.earlier-*"))
    cell("WIDTH = 64")
    assert run() > 2 * first


@pytest.mark.parametrize("base", BODIES)
def test_a_part_of_a_notebook_is_another_one_when_a_global_is(cell, base):
    text = PARTS.format(base=base, body=BODIES[base])

    def sha256(pause_s):
        return provenance.about(cell(f"PAUSE_S = {pause_s}\n{text}")["Own"])["sha256"]

    assert sha256(1) is not None and sha256(1) == sha256(1) != sha256(2)


def test_the_digest_of_a_scenario_goes_by_the_globals_of_its_parts(cell):
    text = PARTS.format(base="(DPSGD)", body=BODIES["(DPSGD)"])
    one, again, other = (
        digest(resolve("smoke", algorithm=cell(f"PAUSE_S = {pause_s}\n{text}")["Own"])) for pause_s in (1, 1, 2)
    )
    assert one == again != other


def test_what_cannot_be_told_is_said(cell):
    assert not given_model(cell("WIDTH, ACT, scaled = 8, object(), abs\n" + NET)["Net"]).identified
    text = PARTS.format(base="(DPSGD)", body=BODIES["(DPSGD)"])
    assert provenance.about(cell("PAUSE_S = object()\n" + text)["Own"])["sha256"] is None


def test_a_global_that_an_attribute_is_called_like_does_not_count(cell):
    first = given_model(cell(SETUP)["Net"]).digest
    assert given_model(cell("layers = object()")["Net"]).digest == first


def test_objects_of_own_classes_count_by_what_they_hold_and_do(cell):
    config = "class Config:\n    def __init__(self, width): self.width = width\n    def __float__(self): return {}\n"

    def found(width, value):
        text = config.format(value) + f"ACT = Config({width})\n" + "WIDTH = 8\n" + SCALED.format(1) + NET
        model = given_model(cell(text)["Net"])
        assert model.identified
        return model.digest

    assert found(1, "1.0") == found(1, "1.0")
    assert len({found(1, "1.0"), found(2, "1.0"), found(1, "2.0")}) == 3


def test_what_comes_again_counts_every_time(cell):
    def found(layers):
        text = f"def conv(x): return x\ndef pool(x): return x[0]\nLAYERS = [{layers}]\ndef ACT(): return LAYERS\n"
        told = Identity()
        told.maker(cell(text)["ACT"])
        assert told.known
        return told.sha256

    orders = ("conv, pool, conv", "conv, pool, pool", "conv, conv, pool")
    assert len({found(order) for order in (*orders, *orders)}) == 3


def test_a_function_that_wraps_one_of_a_package_is_not_of_that_package(cell):
    wrapped = "import functools, torch\n@functools.wraps(torch.nn.functional.relu)\ndef scaled(x):\n    return x * {}\n"
    first, other = (given_model(cell(SETUP + wrapped.format(times))["Net"]) for times in (1, 2))
    assert first.identified and first.digest != other.digest


def test_what_a_decorator_of_one_s_own_does_counts(cell):
    decorator = (
        "import functools\ndef times(f):\n    @functools.wraps(f)\n    def g(x): return {} * f(x)\n    return g\n"
    )
    first, other = (
        given_model(cell(decorator.format(n) + SETUP.replace("def scaled", "@times\ndef scaled"))["Net"])
        for n in (1, 2)
    )
    assert first.identified and first.digest != other.digest


def test_functions_whose_text_is_not_kept_are_told_by_their_code():
    def found(text):
        told = Identity()
        told.maker(eval(text, {}))
        assert told.known
        return told.sha256

    texts = ("lambda x: x.a((8, 16))", "lambda x: x.b((8, 16))", "lambda x: x.a((8, 64))", "lambda x: lambda: x.a(8)")
    assert len({found(text) for text in (*texts, *texts)}) == 4


@pytest.mark.parametrize(
    ("setup", "said", "known"),
    [
        ("", "globals()['WIDTH']", False),
        ("import os", "float(os.environ['WIDTH'])", False),
        ("import os", "os.getenv('WIDTH', 1.0)", False),
        ("from os import environ as env, getenv", "getenv('WIDTH', 1.0)", False),
        ("import sys", "getattr(sys.modules['__main__'], 'WIDTH')", False),
        ("from sys import modules", "getattr(modules['__main__'], 'WIDTH')", False),
        ("", "[eval('WIDTH') for _ in range(1)][0]", False),
        ("import os", "len(list(self.modules())) + len(os.sep)", True),
        ("", "WIDTH", True),
    ],
)
def test_what_code_looks_up_by_a_text_is_not_known(cell, setup, said, known):
    net = NET.replace("scaled(x) * ACT", f"x * ({said})")
    assert given_model(cell(f"{setup}\nWIDTH = 8\n{net}")["Net"]).identified == known


def test_decorators_of_packages_leave_a_method_known(cell):
    net = SETUP + "    @torch.no_grad()\n    def quiet(self):\n        return ACT\n"
    first = given_model(cell("import torch\n" + net)["Net"])
    assert first.identified and given_model(cell("ACT = 0.0")["Net"]).digest != first.digest


def test_a_module_that_a_notebook_imports_counts(cell, helper):
    def found(text, then="", how="import widths"):
        helper("widths", text)
        net = NET.replace("784, WIDTH", "784, widths.WIDTH").replace("Linear(WIDTH", "Linear(widths.WIDTH")
        model = given_model(cell(f"{how}\nACT = 1.0\n{SCALED.format(1)}{net}\n{then}")["Net"])
        assert model.identified
        return model.digest

    assert found("WIDTH = 8") == found("WIDTH = 8")
    assert len({found("WIDTH = 8"), found("WIDTH = 9"), found("WIDTH = 8", "widths.WIDTH = 9")}) == 3


def test_a_module_that_has_changed_and_is_not_loaded_anew_is_not_taken_for_what_it_would_be(helper, tmp_path):
    text = "from torch import nn\n\ndef net(num_classes):\n    return nn.Sequential(nn.Flatten(), nn.Linear(784, {}))\n"

    def found(module):
        model = given_model(module.net)
        assert model.identified
        return model.digest

    helper("changing", text.format("num_classes"))
    module = importlib.import_module("changing")
    first = found(module)
    (tmp_path / "changing.py").write_text(text.format("num_classes, bias=False"))
    not_anew, anew = found(module), found(importlib.reload(module))
    assert len({first, not_anew, anew}) == 3


ATTACK = """
from dataclasses import dataclass
from ddlsim.attacks.base import Attack

@dataclass(frozen=True, kw_only=True)
class Mine(Attack):
    def forge(self, *given):
        {}
"""


@pytest.mark.parametrize("within", ["from strength import HOW; return HOW", "import strength; return strength.HOW"])
def test_the_digest_of_a_file_covers_the_modules_beside_it_that_it_imports(helper, tmp_path, within):
    helper("mine", ATTACK.format(within))
    helper("further", "MORE = 1\n")
    place = f"{tmp_path / 'mine.py'}:Mine"

    def sha256(text):
        helper("strength", text)
        return provenance.about(own_code.load_class(place))["sha256"]

    with_further = sha256("import further\nHOW = 1\n")
    assert sha256("HOW = 1\n") == sha256("HOW = 1\n") not in (sha256("HOW = 2\n"), own_code.digest_of(place))
    helper("further", "MORE = 2\n")
    assert with_further != sha256("import further\nHOW = 1\n")


def test_a_module_that_is_not_what_its_file_says_by_now_has_no_digest(helper, tmp_path):
    helper("mine", ATTACK.format("return 1"))

    def sha256():
        return provenance.about(own_code.load_class("mine:Mine"))["sha256"]

    first = sha256()
    (tmp_path / "mine.py").write_text(ATTACK.format("return 2.5"))
    assert sha256() is None
    importlib.reload(sys.modules["mine"])
    assert first is not None and sha256() not in (None, first)


def test_the_digest_of_a_file_without_such_modules_is_that_of_its_text(helper, tmp_path):
    helper("mine", ATTACK.format("import json, numpy.linalg; return 1"))
    place = f"{tmp_path / 'mine.py'}:Mine"
    assert provenance.about(own_code.load_class(place))["sha256"] == own_code.digest_of(place)


def test_a_loaded_module_counts_as_it_was_until_it_is_loaded_anew(helper, tmp_path):
    helper("mine", ATTACK.format("import strength"))
    helper("strength", "HOW = 1\n")
    place = f"{tmp_path / 'mine.py'}:Mine"
    module = importlib.import_module("strength")
    first = provenance.about(own_code.load_class(place))["sha256"]
    (tmp_path / "strength.py").write_text("HOW = 2.5\n")
    assert provenance.about(own_code.load_class(place))["sha256"] == first
    importlib.reload(module)
    assert provenance.about(own_code.load_class(place))["sha256"] != first


def test_processes_find_the_same_digests(tmp_path):
    (tmp_path / "beside.py").write_text("NAMES = {'a', 'b', 'c', 'd'}\n")
    text = "import beside\nimport numpy as np\n" + SETUP.replace("ACT)", "ACT * len(beside.NAMES & {'a', 'b', 'x'}))")
    (tmp_path / "net.py").write_text(f"{text}\nfrom ddlsim.models.given import given_model\nm = given_model(Net)\n")
    code = "import net; print(net.m.digest, net.m.identified)"
    found = set()
    for seed in ("1", "2"):
        path = [str(tmp_path), *filter(None, sys.path)]
        env = {"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(path)}
        done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
        found.add(done.stdout)
    assert len(found) == 1 and found.pop().endswith("True\n")


def test_arrays_and_functions_of_numpy_are_known():
    told = Identity()
    told.value({"mean": np.mean, "x": np.arange(3), "type": np.float32, "ufunc": np.add, "relu": torch.relu})
    assert told.known
    told.value(np.random.default_rng(0).normal)
    assert not told.known


class Hooked(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a = torch.nn.Linear(3, 2)

    def forward(self, x):
        return self.a(x)


def digest_of_model(given):
    return given_model(given).sha256


def test_lambdas_of_one_line_are_told_apart():
    first, second = (lambda: torch.nn.Linear(4, 2)), (lambda: torch.nn.Linear(4, 2).double())  # fmt: skip
    again = digest_of_model(first)
    assert digest_of_model(first) == again != digest_of_model(second)


def test_a_module_with_a_hook_is_another_one():
    torch.manual_seed(0)
    plain = Hooked()
    torch.manual_seed(0)
    hooked = Hooked()
    assert digest_of_model(plain) == digest_of_model(hooked)
    hooked.a.register_forward_hook(lambda module, given, found: found * 0)
    assert digest_of_model(plain) != digest_of_model(hooked)

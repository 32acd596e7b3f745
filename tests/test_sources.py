"""The SHA-256 of source files that identifies user code, and runs that are not repeated."""

import hashlib
import importlib
import sys

import pytest
import torch
from torch import nn

import ddlsim
from ddlsim.foundation import own_code, sources
from ddlsim.models.from_python import model_from_python

NET = "from torch import nn\n\nclass Net(nn.Sequential):\n    def __init__(self):\n        super().__init__({})\n"


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Write and import a user's module."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def write(name, text):
        (tmp_path / f"{name}.py").write_text(text)
        sys.modules.pop(name, None)
        importlib.invalidate_caches()
        return importlib.import_module(name)

    yield write
    for path in tmp_path.glob("*.py"):
        sys.modules.pop(path.stem, None)


def test_digest_covers_the_file_and_imported_user_modules(module, tmp_path):
    module("further", "MORE = 1\n")
    module("helper", "import further\nHOW = 1\n")
    alone = "import json\nimport torch\n\nclass Mine:\n    pass\n"
    assert sources.digest_of(module("mine", alone).Mine) == hashlib.sha256(alone.encode()).hexdigest()
    first = sources.digest_of(module("mine", f"import helper\n{alone}").Mine)
    in_file = own_code.load_object(f"{tmp_path / 'mine.py'}:Mine")
    assert sources.digest_of(in_file) == first == sources.digest_of(module("mine", f"import helper\n{alone}").Mine)
    module("further", "MORE = 2\n")
    assert sources.digest_of(in_file) not in (None, first)


def test_loaded_module_keeps_its_digest_until_its_reload(module, tmp_path):
    loaded = module("mine", "class Mine:\n    pass\n")
    first = sources.digest_of(loaded.Mine)
    (tmp_path / "mine.py").write_text("class Mine:\n    times = 2\n")
    assert sources.digest_of(loaded.Mine) == first != sources.digest_of(importlib.reload(loaded).Mine)


def test_code_without_a_defining_file_has_no_digest(monkeypatch):
    def inner():
        pass

    monkeypatch.delattr(sys.modules["__main__"], "__file__", raising=False)
    exec("class Cell: pass", space := vars(sys.modules["__main__"]))
    cell = space.pop("Cell")
    monkeypatch.setattr(sys.modules["__main__"], "Cell", cell, raising=False)
    assert [sources.digest_of(each) for each in (inner, lambda: 1, cell, type("Made", (), {}))] == [None] * 4


def test_module_is_identified_by_its_values_plain_attributes_and_files():
    def model(heads, activation=nn.functional.relu):
        torch.manual_seed(0)
        return model_from_python(nn.TransformerEncoderLayer(8, heads, 4, activation=activation))

    assert model(2).code is not None
    assert model(2).sha256 == model(2).sha256
    assert len({model(2).sha256, model(4).sha256, model(2, nn.functional.gelu).sha256}) == 3
    assert model(2, lambda x: x).code is None
    hooked = nn.Sequential(nn.Linear(4, 2))
    hooked.register_forward_hook(lambda module, given, found: found * 0)
    assert model_from_python(hooked).code is None


def test_finished_run_returns_unless_the_source_file_changes_or_is_missing(module, tmp_path):
    def is_repeated(model):
        small = {"rounds": 1, "nodes": {"clusters": [2]}, "topology": "ring", "algorithm": "el", "learning": "none"}
        small |= {"data": "fashion-mnist-mini", "training": {"learning_rate": 0.1, "local_steps": 1}}
        before = len(list(tmp_path.glob("run.earlier-*")))
        ddlsim.run(small, model=model, out=tmp_path / "run")
        return len(list(tmp_path.glob("run.earlier-*"))) > before

    layers = "nn.Flatten(), nn.Linear(784, 10)"
    first = module("nets", NET.format(layers)).Net
    assert [is_repeated(first), is_repeated(first)] == [False, False]
    again = module("nets", f"# the same\n{NET.format(layers)}").Net
    assert [is_repeated(again), is_repeated(again)] == [True, False]
    assert [is_repeated(lambda: again()), is_repeated(lambda: again())] == [True, True]

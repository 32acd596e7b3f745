"""A scenario names torch.nn.Module classes and functions that return modules."""

import re
import warnings
from pathlib import Path

import pytest
import torch

import ddlsim
from ddlsim import runs
from ddlsim.algorithms.personalized.deprl import DePRL
from ddlsim.assembly import builders_of
from ddlsim.foundation.errors import ScenarioError
from ddlsim.scenario import digest, load, to_yaml

NETS = """
from torch import nn


class Net(nn.Sequential):
    '''A hidden layer.'''

    def __init__(self, num_classes, width: int = 4, bias=True, sizes=[3]):
        super().__init__(nn.Flatten(), nn.Linear(784, width, bias), nn.ReLU(), nn.Linear(width, num_classes))


def net(image_shape, depth):
    return nn.Sequential(nn.Flatten(), *(nn.Linear(784, 784) for _ in range(depth)), nn.Linear(784, 10))


def of_any(**more):
    return nn.Sequential(nn.Flatten(), nn.Linear(784, more["num_classes"]))


def taken(buffers):
    return nn.Linear(1, buffers)


class Plain(nn.Module):
    def forward(self, x):
        return x


def nothing():
    pass


three = 3
"""
OUTLINE = type(
    "DatasetSpec", (), {"num_tokens": None, "label_shape": (), "image_shape": (1, 28, 28), "num_classes": 10}
)
OUTLINE.dtype, OUTLINE.task = "float32", "classification"


@pytest.fixture
def model(write):
    """Return the scenario with a model of nets.py, by the text of its mapping."""
    path = write()
    Path("nets.py").write_text(NETS)
    return lambda text: load(path, [f"model={text}"])


def module_of(scenario):
    (build,) = builders_of(scenario, OUTLINE).values()
    return build()


def test_the_arguments_of_a_module_are_keys(model):
    scenario = model("{name: ./nets.py:Net, width: 6, buffers: local}")
    assert {tuple(each.shape) for each in module_of(scenario).parameters()} == {(6, 784), (6,), (10, 6), (10,)}
    assert re.search(r"name: \S*nets.py:Net\n *buffers: local\n *width: 6\n *bias: true\n", to_yaml(scenario))
    assert scenario == model("{name: ./nets.py:Net, width: 6, buffers: local}") != model("{name: ./nets.py:Net}")


def test_function_returning_modules_is_a_model(model):
    assert len(list(module_of(model("{name: ./nets.py:net, depth: 1}")).parameters())) == 4
    assert len(list(module_of(model("{name: ./nets.py:of_any}")).parameters())) == 2


def test_module_without_a_constructor_gets_no_arguments(model):
    scenario = model("{name: ./nets.py:Plain}")
    assert type(module_of(scenario).core).__name__ == "Plain"
    apart = scenario.model_copy(update={"algorithm": DePRL()})
    with pytest.raises(ScenarioError, match=r"makes a Plain \(\S*nets.py:\d+\) without submodules core and head"):
        module_of(apart)


def test_a_module_of_an_importable_package_goes_by_its_class_path(model, monkeypatch):
    monkeypatch.syspath_prepend(str(Path.cwd()))
    Path("some_nets.py").write_text(NETS)
    scenario = model("{name: 'some_nets:Net'}")
    assert "name: some_nets:Net" in to_yaml(scenario) and isinstance(module_of(scenario), torch.nn.Module)
    before = digest(scenario)
    assert before == digest(model("{name: 'some_nets:Net'}")) != digest(model("{name: ./nets.py:Net}"))


def test_run_records_the_file_of_the_module(model):
    import json

    assert runs.run(model("{name: ./nets.py:Net}"), out=Path("out"))["rounds"] == 2
    origin = next(
        each for each in json.loads(Path("out/manifest.json").read_text())["plugins"] if each["kind"] == "model"
    )
    assert origin["path"].endswith("nets.py") and len(origin["sha256"]) == 64


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{name: ./nets.py:Net, widht: 3}", r"model.widht: unknown key 'widht'. Did you mean 'width'\?"),
        ("{name: ./nets.py:Net, width: x}", r"model.width: expected a whole number, got 'x'"),
        ("{name: ./nets.py:net}", r"model.depth: required key 'depth' is missing"),
        ("{name: ./nets.py:taken}", r"taken takes buffers, which cannot be a key"),
        ("{name: ./nets.py:three}", r"nets.py: expected the class three, got"),
        ("{name: 'nets_nix:Net'}", r"unknown name 'nets_nix:Net'.*No module named 'nets_nix'.*\./mine\.py:Mine"),
        ("{name: 'json:Net'}", r"json has no class Net"),
    ],
)
def test_object_of_another_type_than_a_model_is_one_error(model, text, said):
    with pytest.raises(ScenarioError, match=said):
        model(text)


def test_function_without_a_module_is_an_error(model):
    with pytest.raises(ScenarioError, match=r"build of nothing returns nothing \(None\), expected a torch.nn.Module"):
        module_of(model("{name: ./nets.py:nothing}"))


def test_values_of_changed_code_give_a_warning(here):
    net = "from torch import nn\ndef net():\n    return nn.Sequential(nn.Flatten(), nn.Linear(784, 10){})\n"
    (here / "nets.py").write_text(net.format(""))
    small = {"rounds": 1, "nodes": {"clusters": [2]}, "topology": {"name": "ring"}, "algorithm": {"name": "el"}}
    small |= {"model": {"name": "./nets.py:net"}, "data": {"name": "fashion-mnist-mini"}}
    small |= {"training": {"learning_rate": 0.1, "local_steps": 1}, "validation": {"source": "none"}}
    run = ddlsim.run(small, out="run")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run.model(0)
    (here / "nets.py").write_text(net.format(", nn.Tanh()"))
    with pytest.warns(UserWarning, match=r"the code of the model .*nets.py:net has changed since the run"):
        run.model(0)

"""Modules without declared core and head: the last linear layer is the head."""

from dataclasses import dataclass

import pytest
import torch
from torch import nn

import ddlsim
from ddlsim import runs
from ddlsim.foundation.errors import ScenarioError
from ddlsim.learning.architecture import read_architecture
from ddlsim.models.base import ModelSettings
from ddlsim.models.from_python import model_from_python
from ddlsim.models.split import SplitModel
from ddlsim.models.whole import WholeModel, with_core_and_head
from ddlsim.runs.models import read_model
from ddlsim.scenario import from_mapping

SAMPLE = torch.linspace(-1, 1, 5).reshape(1, 5)


def cut(build, notes=None, may_be_whole=False):
    tell = (notes if notes is not None else []).append
    return with_core_and_head(build, "Net", (5,), torch.float32, tell, may_be_whole)


class Named(nn.Module):
    """The last registered linear layer is in a submodule other than nn.Sequential."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.ReLU())
        self.top = nn.ModuleDict({"drop": nn.Dropout(0.5), "fc": nn.Linear(4, 3)})

    def forward(self, inputs):
        return self.top["fc"](self.top["drop"](self.body(inputs)))


def test_core_and_head_compute_the_output_of_the_module():
    module = Named().eval()
    expected = module(SAMPLE)
    whole = WholeModel(module, "top.fc")
    assert torch.equal(whole(SAMPLE), expected) and torch.equal(whole.head(whole.core(SAMPLE)), expected)


def test_run_reports_the_head_layer_once():
    notes = []
    build = cut(Named, notes)
    build(), build()
    assert notes == [
        "model: Net has no submodules core and head: its head is its last linear layer, 'top.fc' (4 -> 3)."
    ]


def test_rows_hold_core_and_head():
    parts = read_architecture("Net", cut(Named)).layout.parts
    assert (parts["core"].size, parts["head"].size) == (5 * 4 + 4 + 4 * 4, 4 * 3 + 3)


def test_parameter_names_equal_the_names_of_the_module():
    whole = cut(Named)()
    assert {whole.own_name(name) for name in whole.state_dict()} == set(Named().state_dict())


def test_single_linear_layer_is_the_whole_head():
    whole = cut(lambda: nn.Linear(5, 3))()
    assert {whole.own_name(name) for name in whole.state_dict()} == {"weight", "bias"}
    assert list(whole.core.parameters()) == []


def test_module_with_core_and_head_stays_unchanged():
    notes = []
    assert type(cut(lambda: SplitModel(nn.Linear(5, 4), nn.Linear(4, 3)), notes)()) is SplitModel and notes == []


class Between(SplitModel):
    """An operation between its parts, which a zero head hides."""

    def __init__(self, zeros=False):
        super().__init__(nn.Linear(5, 4), nn.Linear(4, 3))
        if zeros:
            nn.init.zeros_(self.head.weight)

    def forward(self, inputs):
        return self.head(self.core(inputs).relu())


@pytest.mark.parametrize("zeros", [False, True])
def test_forward_with_code_outside_core_and_head_is_refused(zeros):
    with pytest.raises(ScenarioError, match=r"forward of Net computes something else than head\(core\(x\)\)"):
        cut(lambda: Between(zeros))()


@pytest.mark.parametrize("dtype", [torch.float16, torch.float64])
def test_forward_in_another_precision_is_checked(dtype):
    with pytest.raises(ScenarioError, match="computes something else than head"):
        cut(lambda: Between().to(dtype))()
    with pytest.raises(ScenarioError, match="cannot be cut before '0'"):
        cut(lambda: nn.Sequential(nn.Linear(5, 3), nn.Softmax(1)).to(dtype))()


def test_zero_head_stays_zero():
    module = SplitModel(nn.Linear(5, 4), nn.Linear(4, 3))
    nn.init.zeros_(module.head.weight)
    assert not cut(lambda: module)().head.weight.any()


def test_cutting_does_not_change_initial_values():
    torch.manual_seed(1)
    expected = [Named().state_dict() for _ in range(2)]
    torch.manual_seed(1)
    build = cut(Named)
    for state in expected:
        whole = build()
        assert all(torch.equal(state[whole.own_name(key)], each) for key, each in whole.state_dict().items())


class ReusedLinear(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(5, 5)

    def forward(self, inputs):
        return self.fc(self.fc(inputs))


@pytest.mark.parametrize(
    ("build", "text"),
    [
        (lambda: nn.Sequential(nn.Linear(5, 3), nn.Softmax(1)), "cannot be cut before '0', its last linear layer"),
        (lambda: nn.Sequential(nn.Linear(5, 3), nn.Dropout(0.5)), "cannot be cut before '0', its last linear layer"),
        (ReusedLinear, "cannot be cut before 'fc'"),
        (lambda: nn.Conv1d(1, 1, 1), r"Conv1d without submodules core and head.* return SplitModel\(core, head\)"),
        (lambda: None, r"build of Net returns nothing \(None\), expected a torch.nn.Module"),
    ],
)
def test_uncuttable_module_is_one_error(build, text):
    with pytest.raises(ScenarioError, match=text):
        cut(build)()


class NoLinear(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(5, 3))

    def forward(self, inputs):
        return inputs @ self.weight


@pytest.mark.parametrize(
    ("build", "why"),
    [
        (lambda: nn.Sequential(nn.Linear(5, 3), nn.LogSoftmax(1)), "cannot be cut before '0', its last linear layer"),
        (lambda: nn.Sequential(nn.Sequential(nn.ReLU(), nn.Linear(5, 3)), nn.Softmax(1)), "cannot be cut before '0.1'"),
        (ReusedLinear, "cannot be cut before 'fc'"),
        (NoLinear, "has no nn.Linear that could be the head: all of it is the core."),
    ],
)
def test_uncuttable_module_is_all_core_if_allowed(build, why):
    torch.manual_seed(1)
    expected = [build().eval() for _ in range(2)]
    torch.manual_seed(1)
    notes: list[str] = []
    made = cut(build, notes, may_be_whole=True)
    for module in expected:
        whole = made().eval()
        assert torch.equal(whole(SAMPLE), module(SAMPLE))
        names = {whole.own_name(name): each for name, each in whole.state_dict().items()}
        assert list(names) == list(module.state_dict())
    assert len(notes) == 1 and why in notes[0]
    parts = read_architecture("Net", made).layout.parts
    assert parts["head"].size == 0 and parts["core"].size == sum(each.numel() for each in module.parameters())


@pytest.mark.parametrize("learning", ["real", "none"])
def test_dpsgd_runs_on_any_module_and_facade_needs_core_and_head(tmp_path, learning):
    def run(algorithm):
        small = {"rounds": 1, "nodes": {"clusters": [3]}, "topology": {"name": "ring"}, "learning": learning}
        training = {"training": {"learning_rate": 0.1, "local_steps": 1}, "data": {"name": "fashion-mnist-mini"}}
        model = model_from_python(nn.Sequential(nn.Flatten(), nn.Linear(784, 10), nn.LogSoftmax(1)))
        scenario = {**small, **training, "algorithm": {"name": algorithm}, "model": model}
        return ddlsim.run(scenario, out=tmp_path / algorithm)

    assert run("dpsgd").summary["bytes"]["payload"] == 6 * 4 * 7850  # three nodes, two neighbors each
    if learning == "real":
        assert set(ddlsim.load(tmp_path / "dpsgd").state_dict(0)) == {"1.weight", "1.bias"}
        with pytest.raises(ScenarioError, match="cannot be cut before '1'"):
            run("facade")


@dataclass(frozen=True, kw_only=True)
class Plain(ModelSettings):
    """784 x 8 + 8 values and a head of 8 x 10 + 10."""

    def build(self, image_shape, num_classes):
        return nn.Sequential(nn.Flatten(), nn.Linear(784, 8), nn.ReLU(), nn.Linear(8, num_classes))


def test_facade_runs_on_a_plain_module_and_its_model_loads_into_one(tmp_path, capsys):
    scenario = from_mapping(
        {
            "rounds": 2,
            "nodes": {"clusters": [3, 3]},
            "algorithm": {"name": "facade", "warmup_rounds": 0},
            "model": Plain,
            "data": {"name": "fashion-mnist-mini"},
            "topology": {"name": "ring"},
            "training": {"learning_rate": 0.1, "local_steps": 1},
        }
    )
    assert runs.run(scenario, out=tmp_path / "run")["status"] == "done"
    assert "its head is its last linear layer, '3' (8 -> 10)" in capsys.readouterr().err
    module = Plain().build((1, 28, 28), 10)
    assert module.load_state_dict(read_model(tmp_path / "run", 0)).missing_keys == []


@pytest.mark.parametrize(
    "build",
    [
        lambda: torch.jit.script(nn.Linear(4, 2)),
        lambda: torch.jit.trace(nn.Linear(4, 2), torch.zeros(1, 4)),
        lambda: nn.Sequential(torch.jit.script(nn.Linear(4, 3)), nn.Linear(3, 2)),
    ],
)
@pytest.mark.filterwarnings("ignore:.*torch.jit")
def test_torchscript_modules_and_parts_are_refused(build):
    with pytest.raises(ScenarioError, match=r"TorchScript module .* Pass the torch.nn.Module that it was made from"):
        read_architecture("Net", build)

"""Classes, modules and functions passed from Python: their meaning, the manifest, and resume."""

import gc
import json
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import nn

import ddlsim
from ddlsim.algorithms.decentralized.dpsgd import DPSGD
from ddlsim.algorithms.server.fedavg import FedAvg
from ddlsim.foundation import sources
from ddlsim.foundation.errors import ScenarioError
from ddlsim.runs.api.start import resolve
from ddlsim.scenario import digest
from ddlsim.scenario.model import to_plain


@dataclass(frozen=True, kw_only=True)
class Quiet(DPSGD):
    """An algorithm without an entry in the table."""

    times: int = 1


class Net(nn.Module):
    """A network with one argument."""

    def __init__(self, hidden=3):
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(784, hidden), nn.ReLU(), nn.Linear(hidden, 10))

    def forward(self, images):
        return self.layers(images)


def sized(image_shape, num_classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(image_shape[1] * image_shape[2], num_classes))


class StopAt1(ddlsim.Callback):
    def on_round(self, completed):
        if completed.round == 1:
            raise ddlsim.StopRun


def forget(monkeypatch):
    """Forget all classes by name, as in a new process."""
    from ddlsim.algorithms import ALGORITHMS
    from ddlsim.models import MODELS

    for table in (ALGORITHMS, MODELS):
        monkeypatch.setattr(table, "_given", {})


@pytest.mark.parametrize("given", [Quiet, Quiet(times=2), {"name": Quiet, "times": 2}])
def test_an_algorithm_is_a_class_an_object_or_a_mapping(scenario, given):
    found = resolve(scenario(), algorithm=given)
    assert type(found.algorithm) is Quiet and found.algorithm_name == "Quiet"


def test_every_node_starts_with_the_values_of_a_module(scenario, tmp_path):
    net = Net()
    run = ddlsim.run(
        scenario(rounds=1), set={"training.learning_rate": 1e-30}, model=net, algorithm="local", out=tmp_path / "run"
    )
    for node in range(3):
        for name, values in run.state_dict(node).items():
            assert torch.equal(values, net.state_dict()[name]), name
    assert isinstance(run.model(0), Net)


@pytest.mark.parametrize("given", [Net, sized, lambda: Net(2)])
def test_module_factory_is_called_with_the_seed_of_the_run(scenario, tmp_path, given):
    first = ddlsim.run(scenario(rounds=1), model=given, out=tmp_path / "first")
    torch.manual_seed(1)
    second = ddlsim.run(scenario(rounds=1), model=given, out=tmp_path / "second")
    assert (first.dir / "metrics.jsonl").read_bytes() == (second.dir / "metrics.jsonl").read_bytes()


def test_factory_with_unknown_arguments_is_refused():
    class Wide(Net):
        def __init__(self, width):
            super().__init__(width)

    with pytest.raises(ScenarioError, match=r"Wide may take .* alone: .*'width'.*lambda: Wide\(...\)"):
        resolve("smoke", model=Wide)


def test_module_class_with_keys_is_refused():
    with pytest.raises(ScenarioError, match=r"model: expected a name, .* a function that makes a torch.nn.Module"):
        resolve("smoke", model={"name": Net, "width": 4})


def test_modules_of_other_values_are_other_scenarios(scenario):
    torch.manual_seed(0)
    one, other = (resolve(scenario(), model=Net()) for _ in range(2))
    assert digest(one) != digest(other) and digest(one) == digest(resolve(one))


def test_manifest_has_source_text_and_digest_of_the_file(scenario, tmp_path):
    run = ddlsim.run(scenario(rounds=1), algorithm=Quiet, model=Net(), out=tmp_path / "run")
    algorithm, model = run.manifest["plugins"]
    assert algorithm["name"] == "Quiet" and "class Quiet(DPSGD):" in algorithm["source"]
    assert model["name"] == "Net" and "def __init__(self, hidden=3):" in model["source"]
    assert algorithm["sha256"] == sources.digest_of(Quiet) and len(model["sha256"]) == 64


@pytest.fixture
def stopped(scenario, tmp_path):
    torch.manual_seed(0)
    net = Net()
    given = {"algorithm": Quiet(times=2), "model": net}
    run = ddlsim.run(scenario(), out=tmp_path / "run", callbacks=[StopAt1()], **given)
    whole = ddlsim.run(scenario(), out=tmp_path / "whole", **given)
    return run, whole, net


def test_resume_names_and_accepts_the_objects_it_needs(stopped, monkeypatch):
    run, whole, net = stopped
    forget(monkeypatch)
    with pytest.raises(ScenarioError, match=r"made from Python with algorithm Quiet \(.*test_given\.py\)"):
        ddlsim.resume(run.dir)
    with pytest.raises(ScenarioError, match=r"ddlsim.resume\('.*', model=Net\)"):
        ddlsim.resume(run.dir, algorithm=Quiet)
    assert ddlsim.resume(run.dir, algorithm=Quiet, model=net).status == "done"
    assert (run.dir / "metrics.jsonl").read_bytes() == (whole.dir / "metrics.jsonl").read_bytes()


def test_a_resume_with_another_module_is_refused(stopped, monkeypatch):
    run, _, _ = stopped
    forget(monkeypatch)
    with pytest.raises(ScenarioError, match="model: expected the Net of the run"):
        ddlsim.resume(run.dir, algorithm=Quiet, model=Net())


def test_report_needs_no_objects(stopped, monkeypatch):
    forget(monkeypatch)
    assert ddlsim.load(stopped[0].dir).summary["algorithm"] == "Quiet"
    assert json.loads(ddlsim.compare([stopped[1]]).table("json"))["rows"][0]["algorithm"] == "Quiet"


def test_data_are_pairs_of_arrays_or_torch_data_sets(scenario, tmp_path):
    x, y = torch.randn(30, 1, 28, 28, generator=torch.Generator().manual_seed(0)), torch.arange(30) % 10
    loaded = torch.utils.data.TensorDataset(x, y)
    pairs = ddlsim.run(scenario(rounds=1), data=((x, y), (x, y)), out=tmp_path / "pairs")
    named = ddlsim.run(scenario(rounds=1), data={"train": loaded, "test": (x, y)}, out=tmp_path / "named")
    assert (pairs.dir / "metrics.jsonl").read_bytes() == (named.dir / "metrics.jsonl").read_bytes()
    assert pairs.scenario["data"]["name"] == "arrays" and len(pairs.scenario["data"]["sha256"]) == 64


def test_model_of_a_run_needs_no_arrays(scenario, tmp_path):
    x, y = torch.randn(30, 1, 28, 28, generator=torch.Generator().manual_seed(0)), torch.arange(30) % 10
    given = {"train": (x, y), "test": (x, y), "validation": (x, y)}
    made = scenario(rounds=1, validation={"source": "own"})
    run = ddlsim.run(made, data=given, model=sized, out=tmp_path / "run")
    gc.collect()
    for found in (run, ddlsim.load(run.dir)):
        assert [values.shape for values in found.model(0).parameters()] == [(10, 784), (10,)]


def test_module_with_lazy_layers_is_refused():
    net = nn.Sequential(nn.Flatten(), nn.LazyLinear(10))
    with pytest.raises(ScenarioError, match=r"1\.weight of Sequential has no shape yet.*Call the module once"):
        ddlsim.run("smoke", model=net)


def net(hidden):
    return nn.Sequential(nn.Flatten(), nn.Linear(784, hidden), nn.ReLU(), nn.Linear(hidden, 10))


def by_closure(hidden):
    return lambda: net(hidden)


@pytest.mark.full
@pytest.mark.parametrize("anyway", [False, True])
def test_run_of_a_lambda_is_repeated_and_resumed_only_with_anyway(scenario, tmp_path, anyway):
    model = by_closure(2)
    for _ in range(2):
        ddlsim.run(scenario(), model=model, out=tmp_path / "run", callbacks=[StopAt1()], force=True)
    assert (tmp_path / "run.earlier-1").exists()
    if anyway:
        assert ddlsim.resume(tmp_path / "run", model=model, anyway=True).status == "done"
    else:
        with pytest.raises(ScenarioError, match=r"cannot compare the code of model Model .* pass --anyway"):
            ddlsim.resume(tmp_path / "run", model=model)


def test_sweep_over_factories_has_a_setting_for_each(scenario, tmp_path):
    found = ddlsim.sweep(scenario(rounds=1), {"model": [by_closure(2), by_closure(5)]}, out=tmp_path)
    assert len(found.rows) == 2 and found.rows[0].numbers["bytes"] != found.rows[1].numbers["bytes"]


def test_sweep_accepts_parts_common_to_all_runs(scenario, tmp_path):
    grid = {"algorithm.times": [1, 2]}
    found = ddlsim.sweep(scenario(rounds=1), grid, algorithm=Quiet, model=by_closure(2), out=tmp_path)
    chosen = [run.scenario["algorithm"] for run in found.runs]
    assert [(each["name"], each["times"]) for each in chosen] == [("Quiet", 1), ("Quiet", 2)]
    with pytest.raises(ScenarioError, match="algorithm is given twice"):
        ddlsim.sweep(scenario(), {"algorithm": ["el", "dpsgd"]}, algorithm=Quiet)


def test_batch_norm_with_a_last_batch_of_one_sample_is_one_clear_error(scenario, tmp_path):
    x, y = torch.randn(99, 4, generator=torch.Generator().manual_seed(0)), torch.arange(99) % 2
    given = {"data": ((x, y), (x, y)), "model": lambda: nn.Sequential(nn.Flatten(), nn.BatchNorm1d(4), nn.Linear(4, 2))}
    dealt = {"partition": {"name": "random"}}
    training = {"learning_rate": 0.1, "epochs": 1, "batch_size": 32}  # 33 samples per node
    with pytest.raises(
        ScenarioError, match=r"training.batch_size: node \d has .* one sample, .*training.drop_last: true"
    ):
        ddlsim.run(scenario(rounds=1, **dealt, training=training), out=tmp_path / "bare", **given)
    kept = scenario(rounds=1, **dealt, training={**training, "drop_last": True})
    assert ddlsim.run(kept, out=tmp_path / "kept", **given).status == "done"


class Weighted:
    """A class that is not a part and cannot be a value of a scenario."""


@dataclass(frozen=True, kw_only=True)
class Anything(DPSGD):
    value: object = None


@pytest.mark.parametrize(
    ("value", "held"), [(np.float32(0.5), 0.5), (np.array([1.0, 2.0]), [1.0, 2.0]), (torch.tensor(3), 3)]
)
def test_numpy_and_torch_values_become_numbers(scenario, value, held):
    assert to_plain(resolve(scenario(), algorithm=Anything(value=value)))["algorithm"]["value"] == held


@pytest.mark.parametrize("value", [Weighted(), len, {"a": Weighted()}])
def test_unsupported_value_of_a_scenario_is_refused(scenario, value):
    with pytest.raises(ScenarioError, match=r"expected a number, text, .* Pass a text"):
        resolve(scenario(), algorithm=Anything(value=value))


def test_resume_refuses_an_object_with_other_values(scenario, tmp_path):
    run = ddlsim.run(scenario(), algorithm=Quiet(times=2), out=tmp_path / "run")
    with pytest.raises(ScenarioError, match=r"algorithm: expected the Quiet of the run .*set="):
        ddlsim.resume(run.dir, from_round=1, algorithm=Quiet(times=5), out=tmp_path / "branch")
    for number, same in enumerate((Quiet(times=2), Quiet)):
        branch = ddlsim.resume(run.dir, from_round=1, algorithm=same, out=tmp_path / f"branch-{number}")
        assert branch.status == "done"


def test_module_that_cannot_be_copied_is_refused(scenario, tmp_path):
    net = Net()
    net.kept = net(torch.zeros(1, 1, 28, 28)) * 1
    with pytest.raises(ScenarioError, match=r"model: this Net cannot be copied \(RuntimeError"):
        ddlsim.run(scenario(), model=net, out=tmp_path / "run")


class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(784, 10)

    def forward(self, x):
        found = self.layer(x.flatten(1))
        return found, found


def test_model_with_several_outputs_is_refused(scenario, tmp_path):
    with pytest.raises(ScenarioError, match=r"forward of Pair returns a tuple, expected one tensor"):
        ddlsim.run(scenario(), model=Pair, out=tmp_path / "run")


def test_other_default_dtype_is_refused_before_the_run(scenario, tmp_path):
    torch.set_default_dtype(torch.float64)
    try:
        with pytest.raises(ScenarioError, match=r"torch's default type: expected torch.float32, got torch.float64"):
            ddlsim.run(scenario(), out=tmp_path / "run")
    finally:
        torch.set_default_dtype(torch.float32)
    with torch.inference_mode(), pytest.raises(ScenarioError, match="torch's inference mode: expected False, got True"):
        ddlsim.run(scenario(), out=tmp_path / "run")


@dataclass(frozen=True, kw_only=True)
class Twice(DPSGD):
    """Sends two messages to each neighbor in a round."""

    def round(self, node, state, round_num):
        node.send(node.peers(round_num), round_num, first=1)
        node.send(node.peers(round_num), round_num, second=2)
        yield node.receive(round_num)


@dataclass(frozen=True, kw_only=True)
class TwoPhases(FedAvg):
    """Two exchanges with the server per round; the server takes the first before the second is sent."""

    def round(self, node, state, round_num):
        for phase in range(2):
            if not node.is_server:
                yield node.sleep(0.1 * (node.id + 1))
                node.send(node.peers(round_num), round_num, phase=phase)
            inbox = yield node.receive(round_num)
            assert [m.payload["phase"] for m in inbox] == [phase] * len(node.peers(round_num))
            if node.is_server:
                node.send(node.peers(round_num), round_num, phase=phase)


def test_second_message_to_a_node_is_valid_after_it_took_the_first(scenario, tmp_path):
    given = scenario(algorithm=TwoPhases)
    given.pop("topology")
    assert ddlsim.run(given, out=tmp_path / "run").status == "done"


@dataclass(frozen=True, kw_only=True)
class Swapped(DPSGD):
    """Trains the parts of a model in the wrong order."""

    def round(self, node, state, round_num):
        ((core, head),) = node.init_models()
        yield node.train((head, core))


@pytest.mark.parametrize(
    ("algorithm", "text"),
    [
        (Twice, r"node.send: expected one message per receiver and round, got a second one from node 0 to node 1"),
        (Swapped, r"node.train: expected a whole model, .*, got \(head, core\)"),
    ],
)
def test_check_from_python_tests_parts_like_the_command(scenario, algorithm, text):
    with pytest.raises(ScenarioError, match=r"test_given.py:\d+: " + text):
        ddlsim.check(scenario(), algorithm=algorithm)


def test_valid_objects_pass_a_check(scenario):
    assert ddlsim.check(scenario(), algorithm=Quiet(times=2), seed=3) is None


@pytest.mark.parametrize(
    ("model", "text"),
    [
        (lambda: 3, "model: build of Model returns a int"),
        (
            nn.Sequential(nn.Flatten(), nn.Linear(784, 10), nn.Softmax(1)),
            "model: Sequential makes a Sequential without submodules core and head, which cannot be cut",
        ),
    ],
)
def test_errors_of_a_model_name_only_files_of_the_user(scenario, model, text):
    with pytest.raises(ScenarioError) as raised:
        ddlsim.check(scenario(), algorithm="deprl", model=model)
    assert str(raised.value).startswith(text)


def test_resume_refuses_other_samples(scenario, tmp_path):
    def samples(value):
        x = np.full((20, 4), value, np.float32)
        return (x, np.arange(20) % 2), (x, np.arange(20) % 2)

    run = ddlsim.run(scenario(), data=samples(1.0), out=tmp_path / "run")
    with pytest.raises(ScenarioError, match=r"data: expected the Arrays of the run .* Pass the same one"):
        ddlsim.resume(run.dir, from_round=1, data=samples(2.0), out=tmp_path / "branch")
    assert ddlsim.resume(run.dir, from_round=1, data=samples(1.0), out=tmp_path / "branch").status == "done"

"""Stored models of a run, and their export into a user's module."""

import json
import weakref
from itertools import accumulate

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save
from typer.testing import CliRunner

from ddlsim import runs
from ddlsim.cli import app
from ddlsim.foundation.errors import RecordsDamaged, ScenarioError
from ddlsim.models.cnn import MLP
from ddlsim.runs import directory, models
from ddlsim.runs.models import MODELS, export_model, read_model
from ddlsim.scenario import load

SMOKE = "tests/helpers/smoke.yaml"
SMALL = (
    "rounds=1",
    "evaluation.every=1",
    "training.local_steps=2",
    "model={name: mlp, hidden: [8]}",
    "nodes.clusters=[2, 2]",
    "topology={name: ring}",
)
FEW = ("nodes.clusters=[1, 1]", "topology={name: complete}", "evaluation.samples=200")  # a ResNet costs seconds a node


@pytest.fixture
def ran(tmp_path):
    """Run smoke with changes; return its scenario, directory and summary."""

    def ran(*changes, name="run"):
        scenario = load(SMOKE, [*SMALL, *changes])
        return scenario, tmp_path / name, runs.run(scenario, out=tmp_path / name)

    return ran


def accuracy(module, scenario):
    """Return a module's accuracy on the test set of cluster 0, computed in plain PyTorch."""
    prepared = runs.prepare(runs.load_data(scenario))
    images, labels = prepared.cluster_test[0]
    with torch.no_grad():
        found = module.eval()(torch.as_tensor(np.asarray(images))).argmax(1)
    return float((found == torch.as_tensor(labels)).float().mean())


@pytest.mark.parametrize(
    ("model", "algorithm"),
    [("resnet8, buffers: local", "el"), ("mlp, hidden: [8]", "mapl, warmup_rounds: 0, projection_units: 16")],
)
def test_module_of_a_node_predicts_as_the_run_recorded(ran, model, algorithm):
    scenario, out, _ = ran(f"algorithm={{name: {algorithm}}}", f"model={{name: {model}}}", *FEW)
    node = json.loads((out / "manifest.json").read_text())["node_cluster"].index(0)
    rows = [json.loads(line) for line in (out / "metrics.jsonl").open()]
    accuracies = [row["value"] for row in rows if row["name"] == "accuracy" and row["node"] == node]
    module = runs.model_of(out, node)
    assert not module.training
    assert accuracy(module, scenario) == pytest.approx(accuracies[-1], abs=2e-3)


def test_a_model_needs_no_files_of_other_parts(ran, tmp_path, monkeypatch):
    lists = tmp_path / "lists.json"
    lists.write_text(json.dumps([list(range(100 * node, 100 * node + 20)) for node in range(4)]))
    _, out, _ = ran(f"partition={{name: file, path: {lists}}}")
    lists.unlink()
    kept = read_model(out, 0)
    assert all(torch.equal(values, kept[name]) for name, values in runs.model_of(out, 0).state_dict().items())
    monkeypatch.setattr(models, "MAY_NAME_FILES", ())
    with pytest.raises(ScenarioError, match=r"partition\.path: no file"):
        runs.model_of(out, 0)


def test_node_of_mixed_models_gets_its_architecture(ran):
    models = "{name: mixed, latent: 8, models: [mlp, gn_lenet]}"
    _, out, _ = ran("algorithm={name: local}", f"model={models}")
    one, other = runs.model_of(out, 0), runs.model_of(out, 1)
    assert {name: values.shape for name, values in one.state_dict().items()} != {
        name: values.shape for name, values in other.state_dict().items()
    }


def test_constants_outside_the_state_dict_equal_the_run(ran, monkeypatch):
    build = MLP.build

    def noisy(self, *shape):
        module = build(self, *shape)
        module.head.register_buffer("mask", torch.rand(8), persistent=False)
        return module

    monkeypatch.setattr(MLP, "build", noisy)
    _, out, _ = ran("algorithm={name: local}")
    assert torch.equal(runs.model_of(out, 0).head.mask, runs.model_of(out, 3).head.mask)


def test_values_incompatible_with_the_module_are_reported(ran):
    scenario, out, _ = ran("algorithm={name: local}")
    directory.write_scenario(out, scenario.model_copy(update={"model": MLP(hidden=[9])}))
    with pytest.raises(ScenarioError, match=r"values of node 0 do not fit the module .* size mismatch"):
        runs.model_of(out, 0)


@pytest.mark.parametrize("model", ["mlp, hidden: [8]", "resnet8", "resnet8, buffers: local"])
def test_exported_model_loads_into_a_module_with_the_recorded_accuracy(ran, tmp_path, model):
    scenario, out, _ = ran("algorithm={name: el}", f"model={{name: {model}}}", *FEW)
    node = json.loads((out / "manifest.json").read_text())["node_cluster"].index(0)
    done = CliRunner().invoke(app, ["export", str(out), "--node", str(node), "-o", str(tmp_path / "net.safetensors")])
    assert done.exit_code == 0, done.output
    module = scenario.model.build((1, 28, 28), 10)
    module.load_state_dict(load_file(tmp_path / "net.safetensors"))
    rows = [json.loads(line) for line in (out / "metrics.jsonl").open()]
    accuracies = [row["value"] for row in rows if row["name"] == "accuracy" and row["node"] == node]
    assert accuracy(module, scenario) == pytest.approx(accuracies[-1], abs=2e-3)


def test_models_of_parts_are_exported_whole_and_the_chosen_head_is_taken(ran):
    scenario, out, _ = ran("algorithm={name: facade, heads: 3}")
    for node in range(scenario.nodes.count):
        scenario.model.build((1, 28, 28), 10).load_state_dict(read_model(out, node))


def test_extra_parts_of_an_algorithm_are_left_out(ran):
    scenario, out, _ = ran("algorithm={name: mapl, warmup_rounds: 0, projection_units: 16}")
    own = set(scenario.model.build((1, 28, 28), 10).state_dict())
    assert set(read_model(out, 0)) == own


def test_equal_models_are_written_once(ran):
    _, shared, _ = ran("algorithm={name: fedavg}", "evaluation.every=1", "rounds=1", name="shared")
    scenario, apart, _ = ran("algorithm={name: local}", name="apart")
    one = sum(4 * values.numel() for values in scenario.model.build((1, 28, 28), 10).state_dict().values())
    bytes_of_one, bytes_of_four = (path.joinpath("models-0.safetensors").stat().st_size for path in (shared, apart))
    assert bytes_of_four > 4 * one and one < bytes_of_one < 2 * one
    for name, values in read_model(shared, 0).items():
        assert torch.equal(values, read_model(shared, 0)[name])


def test_frozen_values_are_written_once_and_exported_for_every_node(ran, monkeypatch):
    build = MLP.build

    def frozen(self, *shape):
        module = build(self, *shape)
        for parameter in module.core.parameters():
            parameter.requires_grad_(False)
        return module

    monkeypatch.setattr(MLP, "build", frozen)
    scenario, out, _ = ran("algorithm={name: local}")
    written = load_file(out / "models-0.safetensors")
    assert [name for name in written if "core" in name and not name.startswith("0/")] == []
    assert torch.equal(read_model(out, 3)["core.1.weight"], written["0/core.1.weight"])
    assert not torch.equal(read_model(out, 3)["head.weight"], read_model(out, 2)["head.weight"])
    scenario.model.build((1, 28, 28), 10).load_state_dict(read_model(out, 3))


def test_manifest_lists_the_stored_models_with_the_reason(ran, monkeypatch):
    _, kept, _ = ran("algorithm={name: el}", name="kept")
    monkeypatch.setattr(models, "MOST_BYTES", 1000)
    _, large, _ = ran("algorithm={name: el}", name="large")
    _, asked, _ = ran("algorithm={name: el}", "records.models=last", name="asked")
    _, none, _ = ran("algorithm={name: el}", "learning=none", name="none")
    which = {
        path.name: json.loads((path / "manifest.json").read_text())["models"] for path in (kept, large, asked, none)
    }
    assert which["kept"].startswith("last: together ") and "above 256 MB" in which["kept"]
    assert which["large"].startswith("none: ") and "records.models: last keeps them" in which["large"]
    assert (which["asked"], which["none"]) == ("last: as records.models says", "none: nothing is learned")
    assert [(path / MODELS).exists() for path in (kept, large, asked, none)] == [True, False, True, False]
    with pytest.raises(ScenarioError, match=r"large: has no models\.safetensors\.index\.json: none: .* MB"):
        read_model(large, 0)


def test_best_models_have_the_lowest_validation_loss(ran):
    changes = ("algorithm={name: local}", "validation={source: node, fraction: 0.2}", "training.learning_rate=2.0")
    _, best, _ = ran(*changes, "evaluation.evaluated_model=best", "records.models=best", "rounds=6", name="best")
    _, last, _ = ran(*changes, "records.models=last", "rounds=6", name="last")
    assert any(
        not torch.equal(read_model(best, node)["head.weight"], read_model(last, node)["head.weight"])
        for node in range(4)
    )


def test_best_models_need_early_stopping_or_evaluation_of_the_best():
    with pytest.raises(
        ScenarioError, match=r"records.models: needs evaluation.evaluated_model: best or training.early_stop"
    ):
        load(SMOKE, ["records.models=best"])


def test_keeping_models_changes_no_record(ran):
    _, with_models, _ = ran("algorithm={name: facade}", name="with")
    _, without, _ = ran("algorithm={name: facade}", "records.models=none", name="without")
    for file in ("metrics.jsonl", "communication.jsonl", "contents.jsonl"):
        assert (with_models / file).read_bytes() == (without / file).read_bytes()


def test_node_without_a_model_and_a_damaged_file_are_reported(ran, tmp_path):
    _, out, _ = ran("algorithm={name: local}")
    with pytest.raises(ScenarioError, match=r"expected one of the nodes 0, 1, 2, 3, got 9\."):
        read_model(out, 9)
    piece, index = out / "models-0.safetensors", json.loads((out / MODELS).read_text())
    for content in (b"torn", save({"x": torch.zeros(1)})):
        piece.write_bytes(content)
        with pytest.raises(RecordsDamaged, match=r"models\.safetensors\.index\.json: cannot be read: SafetensorError"):
            export_model(out, 0, tmp_path / "net.safetensors")
    for text, error in (("torn", "JSONDecodeError"), ("{}", "KeyError"), ("[]", "TypeError")):
        (out / MODELS).write_text(text)
        with pytest.raises(RecordsDamaged, match=rf"models\.safetensors\.index\.json: cannot be read: {error}"):
            export_model(out, 0, tmp_path / "net.safetensors")
    piece.rename(tmp_path / "models-0.safetensors")
    outside = dict.fromkeys(index["weight_map"], "../models-0.safetensors")
    (out / MODELS).write_text(json.dumps(index | {"weight_map": outside}))
    with pytest.raises(RecordsDamaged, match=r"models\.safetensors\.index\.json: cannot be read: FileNotFoundError"):
        export_model(out, 0, tmp_path / "net.safetensors")
    assert not list(tmp_path.glob("net*"))


def test_no_more_than_one_large_model_is_in_memory_at_once(ran, monkeypatch):
    scenario, whole, _ = ran("algorithm={name: local}", name="whole")
    one = sum(4 * values.numel() for values in scenario.model.build((1, 28, 28), 10).state_dict().values())
    held, state_of = [], models._state

    def tracked(*arguments):
        state = state_of(*arguments)
        held.extend(weakref.ref(values, lambda _: alive.append(-1)) for values in state.values())
        alive.append(len(state))
        return state

    alive = []
    monkeypatch.setattr(models, "_state", tracked)
    monkeypatch.setattr(models, "PIECE_BYTES", one)
    _, pieces, _ = ran("algorithm={name: local}", name="pieces")
    assert max(accumulate(alive)) == len(held) / 4
    names = [f"models-{node}.safetensors" for node in range(4)]
    assert sorted(path.name for path in pieces.glob("models-*")) == names
    index = json.loads((pieces / MODELS).read_text())
    assert all(file == f"models-{name[0]}.safetensors" for name, file in index["weight_map"].items())
    assert all(set(load_file(pieces / file)) <= set(index["weight_map"]) for file in names)
    for node in range(4):
        expected = read_model(whole, node)
        assert all(torch.equal(values, expected[name]) for name, values in read_model(pieces, node).items())

"""Exported models in plain PyTorch: inputs are prepared by the exported file, and results equal the run."""

import json

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from safetensors import safe_open
from safetensors.torch import load_file
from torch import nn

import ddlsim
from ddlsim.data import DATASETS, Arrays, DataSearch
from ddlsim.foundation.errors import DataDamaged

BASE = {
    "rounds": 2,
    "nodes": {"clusters": [2]},
    "algorithm": "dpsgd",
    "topology": {"name": "complete"},
    "partition": {"name": "random", "samples_per_node": 100},
    "training": {"learning_rate": 0.1, "local_steps": 10, "batch_size": 10},
}


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden, self.out = nn.Linear(784, 8), nn.Linear(8, 10)

    def forward(self, x):
        return self.out(self.hidden(x.flatten(1)).relu())


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    data = {"name": "fashion-mnist-mini"}
    return ddlsim.run(BASE, model=Net, data=data, out=tmp_path_factory.mktemp("run") / "o")


@pytest.fixture(scope="module")
def tests():
    data = DATASETS["fashion-mnist-mini"]().load(DataSearch(download=False))
    return data.test_images, data.test_labels


def accuracy_of(run, node):
    rows = [json.loads(line) for line in (run.dir / "metrics.jsonl").read_text().splitlines()]
    return [row["value"] for row in rows if row["name"] == "accuracy" and row["node"] == node][-1]


def test_an_exported_model_gets_the_runs_accuracy_in_plain_pytorch(run, tests, tmp_path):
    from typer.testing import CliRunner

    from ddlsim.cli import app

    file = tmp_path / "net.safetensors"
    output = CliRunner().invoke(app, ["export", str(run.dir), "--node", "1", "-o", str(file)]).output
    with safe_open(file, "pt") as opened:
        about = opened.metadata()
    mean, std = (torch.tensor(json.loads(about[key])).view(1, -1, 1, 1) for key in ("mean", "std"))
    assert (about["layout"], about["dtype"], about["shape"]) == ("[N, C, H, W]", "float32", "[1, 28, 28]")
    assert about["classes"] == "10" and about["mean"] in output and about["std"] in output and "[N, C, H, W]" in output
    net = Net()
    net.load_state_dict(load_file(file))
    x = torch.from_numpy(tests[0]).permute(0, 3, 1, 2).float() / int(about["divided_by"])
    with torch.no_grad():
        right = net((x - mean) / std).argmax(1).eq(torch.from_numpy(tests[1])).sum().item()
    assert right / len(tests[1]) == accuracy_of(run, 1) == run.evaluate(tests, node=1)["accuracy"]


def test_evaluate_accepts_the_test_samples_of_the_run(run, tests):
    x, y = torch.from_numpy(tests[0]).permute(0, 3, 1, 2), torch.from_numpy(tests[1])
    assert run.evaluate(torch.utils.data.TensorDataset(x, y)) == run.evaluate(tests)
    assert run.evaluate((x / 255, y))["accuracy"] == pytest.approx(accuracy_of(run, 0), abs=1e-3)
    with pytest.raises(DataDamaged, match=r"labels must be 0\.\.9, got"):
        run.evaluate((x, y + 1))


def test_preprocess_takes_one_sample_or_several(run, tests):
    images = tests[0][:3]
    expected = (torch.from_numpy(images).permute(0, 3, 1, 2).float() / 255 - 0.5) / 0.5
    about = json.loads((run.dir / "manifest.json").read_text())["data"]["inputs"]
    assert about["mean"] == about["std"] == [0.5]
    for given in (images, images[..., 0], torch.from_numpy(images).permute(0, 3, 1, 2), images / 255):
        torch.testing.assert_close(run.preprocess(given), expected, rtol=0, atol=1e-6)
    for given in (images[0], images[0, ..., 0], Image.fromarray(images[0, ..., 0])):
        torch.testing.assert_close(run.preprocess(given), expected[0], rtol=0, atol=1e-6)
    for wrong in (images.astype("int64"), images.astype("float32"), images[:, :5]):
        with pytest.raises(DataDamaged, match="preprocess: expected"):
            run.preprocess(wrong)


def test_columns_of_a_table_are_prepared_as_in_the_run(tmp_path):
    rng = np.random.default_rng(0)
    rows = pd.DataFrame({"age": rng.integers(20, 80, 60), "kind": rng.choice(["x", "y"], 60)})
    rows["sick"] = np.where(rows["age"] > 50, "yes", "no")
    rows.to_csv(tmp_path / "t.csv", index=False)
    data = {"name": "table", "path": str(tmp_path / "t.csv"), "target": "sick"}
    made = ddlsim.run(
        {**BASE, "partition": {"name": "random"}, "model": {"name": "linear"}}, data=data, out=tmp_path / "o"
    )
    about = made.manifest["data"]["inputs"]
    number = about["features"][0]
    expected = np.stack(
        [(rows["age"] - number["mean"]) / number["std"], rows["kind"] == "x", rows["kind"] == "y"], axis=1
    ).astype(np.float32)
    assert about["classes"] == ["no", "yes"]
    torch.testing.assert_close(made.preprocess(rows)[:, 0, :, 0], torch.from_numpy(expected))
    assert made.evaluate((rows, (rows["sick"] == "yes").astype(int)))["accuracy"] > 0.6


def test_the_names_of_folders_are_the_classes(tmp_path):
    for split in ("train", "test"):
        for name in ("bee", "ant"):
            (tmp_path / split / name).mkdir(parents=True)
            Image.new("RGB", (8, 8)).save(tmp_path / split / name / "0.png")
    data = DATASETS["image-folder"](path=str(tmp_path), size=4).load(DataSearch(download=False))
    assert data.inputs["classes"] == ["ant", "bee"]
    tokens = Arrays(train=(np.zeros((2, 5), int), [0, 1]), test=(np.zeros((2, 5), int), [0, 1])).load(None)
    assert tokens.inputs == {"layout": "[N, T]", "shape": [5], "dtype": "int64", "classes": 2}

"""Data sets of torchvision by the names of their classes."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from torchvision import datasets

from ddlsim.data import DataSearch
from ddlsim.data.torchvision_sets import Torchvision
from ddlsim.foundation.errors import DataDamaged, DataMissing, ScenarioError

ROOT = Path(__file__).parents[2]
NOWHERE = DataSearch(download=False)


class Split:
    """A class with splits, as torchvision's newer ones: images 2 x 3 in two gray values, or of several sizes."""

    def __init__(self, root, split="train", alike=True, download=False):
        if split not in ("train", "test"):
            raise ValueError(f"Unknown value '{split}' for argument split. Valid values are {{'train', 'test'}}.")
        self.count, self.alike = {"train": 4, "test": 2}[split], alike

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return Image.new("L", (3, 2 if self.alike else 2 + index), index), index % 2


@pytest.fixture(autouse=True)
def split_class(monkeypatch, tmp_path):
    monkeypatch.setattr(datasets, "Split", Split, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


def test_a_class_with_splits_gives_train_and_test(tmp_path):
    data = Torchvision(dataset="Split").load(DataSearch(tmp_path, download=False))
    assert data.train_images.shape == (4, 2, 3, 1) and data.test_labels.tolist() == [0, 1] and data.name == "Split"
    assert data.train_images[3].max() == 3 and data.train_images.dtype == np.uint8


class Letters(Split):
    """Like EMNIST: a separate `split`; train and test are an argument of the base class."""

    def __init__(self, root, split, **keys):
        if split != "letters":
            raise ValueError(split)
        Turned.__init__(self, root, **keys)


class Turned(Split):
    def __init__(self, root, train=True, download=False):
        Split.__init__(self, root, "train" if train else "test")


Letters.__bases__ = (Turned,)


def test_argument_of_a_base_class_selects_the_split(tmp_path, monkeypatch):
    monkeypatch.setattr(datasets, "Letters", Letters, raising=False)
    data = Torchvision(dataset="Letters", arguments={"split": "letters"}).load(DataSearch(tmp_path, download=False))
    assert (len(data.train_labels), len(data.test_labels)) == (4, 2)


def test_a_class_without_splits_is_split_by_class():
    arguments = {"size": 20, "num_classes": 2}
    data = Torchvision(dataset="FakeData", arguments=arguments, size=8, test_fraction=0.25).load(NOWHERE)
    assert data.train_images.shape[1:] == (8, 8, 3) and len(data.train_labels) + len(data.test_labels) == 20
    assert set(data.test_labels) == {0, 1}


def test_images_of_several_sizes_need_a_common_size(tmp_path):
    keys = {"dataset": "Split", "arguments": {"alike": False}}
    search = DataSearch(tmp_path, download=False)
    with pytest.raises(DataDamaged, match=r"sample 1 is uint8 \[3, 3\], the first is uint8 \[2, 3\].*data.size"):
        Torchvision(**keys).load(search)
    assert Torchvision(**keys, size=2).load(search).train_images.shape == (4, 2, 2, 1)


@pytest.mark.parametrize("dataset", ["FakeData", "MNIST"])
@pytest.mark.parametrize("key", ["train_split", "test_split"])
def test_unsupported_split_name_of_a_class_is_refused(dataset, key):
    with pytest.raises(ScenarioError, match=rf"data.{key}: .*{dataset} takes no name of a split"):
        Torchvision(dataset=dataset, **{key: "val"}).load(NOWHERE)


def test_one_split_cannot_be_both_training_and_test_set():
    with pytest.raises(ScenarioError, match="test_split: train is the training set"):
        Torchvision(dataset="Split", test_split="train")


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        ({"dataset": "SVNH"}, r"torchvision.datasets has no class SVNH. Did you mean .*SVHN"),
        ({"dataset": "Split", "arguments": {"colour": 1}}, r"Split has no argument colour; it has root, split"),
        ({"dataset": "Split", "test_split": "val"}, r"Split: Unknown value 'val' for argument split. Valid values are"),
    ],
)
def test_a_wrong_class_or_argument_is_reported(tmp_path, keys, text):
    with pytest.raises(ScenarioError, match=text):
        Torchvision(**keys).load(DataSearch(tmp_path, download=False))


def test_absent_data_is_reported_as_missing(tmp_path):
    with pytest.raises(DataMissing, match=r"SVHN is not on this machine.*downloading is switched off"):
        Torchvision(dataset="SVHN").load(DataSearch(tmp_path, download=False))


def test_absent_data_is_downloaded(tmp_path, monkeypatch):
    class Fetched(Split):
        def __init__(self, root, split="train", download=False):
            if not download:
                raise RuntimeError("Dataset not found.")
            super().__init__(root, split)

    monkeypatch.setattr(datasets, "Fetched", Fetched, raising=False)
    assert len(Torchvision(dataset="Fetched").load(DataSearch(tmp_path)).train_labels) == 4


WITHOUT = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("torchvision", "PIL"):
            raise ImportError(f"no {name} here")

sys.meta_path.insert(0, Blocked())
from ddlsim.cli import main
sys.argv = ["ddlsim", *sys.argv[1:]]
main()
"""


def without_torchvision(*words, cwd):
    command = [sys.executable, "-c", WITHOUT, *map(str, words)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.full
def test_the_embedded_data_needs_no_torchvision(tmp_path):
    smaller = ["rounds=1", "nodes.clusters=[2, 2]", "topology={name: ring}", "training.local_steps=1"]
    options = [word for change in smaller for word in ("--set", change)]
    done = without_torchvision("run", ROOT / "scenarios" / "smoke.yaml", *options, "--out", "run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    options = ["--set", "data={name: torchvision, dataset: SVHN}", "--no-fallback", "--out", "other"]
    done = without_torchvision("run", ROOT / "scenarios" / "smoke.yaml", *options, cwd=tmp_path)
    assert done.returncode == 3 and "SVHN needs torchvision, which cannot be imported" in done.stderr

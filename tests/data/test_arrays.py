"""Arrays, tensors and PyTorch data sets from Python."""

import re

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import Dataset, TensorDataset

from ddlsim import runs
from ddlsim.data import Arrays, DataSearch
from ddlsim.data.pixels import is_mapped
from ddlsim.foundation.errors import DataDamaged, DataMissing, ScenarioError
from ddlsim.scenario import from_mapping, to_yaml

NOWHERE = DataSearch(download=False)
X, Y = np.arange(4 * 2 * 3 * 3, dtype=np.uint8).reshape(4, 2, 3, 3), np.array([0, 1, 2, 0])
TEST = (X[:2], Y[:2])
MASKED = np.ma.masked_greater(np.arange(8.0).reshape(4, 2), 3.5)[[0, 1, 2, 0]]


class Pairs(Dataset):
    """Items returned unchanged."""

    def __init__(self, items):
        self.items = items

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        return self.items[index]


def loaded(**given):
    return Arrays(**{"train": (X, Y), "test": TEST, **given}).load(NOWHERE)


def mapping(data):
    return {
        "rounds": 1,
        "nodes": {"clusters": [2]},
        "algorithm": {"name": "el"},
        "model": {"name": "mlp", "hidden": [2]},
        "data": data,
        "topology": {"name": "ring"},
        "training": {"learning_rate": 0.1, "batch_size": 2, "local_steps": 1},
        "compute_device": "cpu",
    }


def test_arrays_are_used_unchanged():
    data = loaded()
    assert np.array_equal(data.train_images, X) and data.num_classes == 3
    assert data.mean.tolist() == [0.5] * 3 and data.sample_shape == (3, 2, 3)


@pytest.mark.parametrize("mode", ["P", "RGBA", "CMYK", "HSV"])
def test_pictures_are_converted_to_their_displayed_colors(mode):
    shown = [Image.fromarray(np.full((3, 3, 3), level, np.uint8)) for level in (0, 60, 255, 60)]
    given = [picture.quantize(8) if mode == "P" else picture.convert(mode) for picture in shown]
    data = loaded(
        train=Pairs(list(zip(given, Y.tolist(), strict=True))), test=(np.zeros((2, 3, 3, 3), np.uint8), Y[:2])
    )
    assert np.array_equal(data.train_images, np.stack([np.asarray(picture) for picture in shown]))


def test_a_tensor_has_its_channels_first():
    tensor = torch.from_numpy(X).permute(0, 3, 1, 2)
    assert np.array_equal(loaded(train=(tensor, torch.from_numpy(Y))).train_images, X)


@pytest.mark.parametrize(
    "given",
    [
        TensorDataset(torch.from_numpy(X).permute(0, 3, 1, 2), torch.from_numpy(Y)),
        Pairs([(torch.from_numpy(x).permute(2, 0, 1), int(y)) for x, y in zip(X, Y, strict=True)]),
        [(x, y) for x, y in zip(X, Y, strict=True)],
    ],
    ids=["TensorDataset", "Dataset of tensors", "list of pairs of arrays"],
)
def test_torch_dataset_equals_its_arrays(given):
    assert loaded(train=given).sha256 == loaded().sha256


@pytest.mark.parametrize(
    ("layout", "axes", "kind"),
    [
        ("channels_first", (2, 0, 1), torch.from_numpy),
        ("channels_first", (2, 0, 1), np.ascontiguousarray),
        ("channels_last", (0, 1, 2), torch.from_numpy),
        ("channels_last", (0, 1, 2), np.ascontiguousarray),
    ],
)
@pytest.mark.parametrize("as_set", [Pairs, list, lambda pairs: torch.utils.data.Subset(pairs, range(len(pairs)))])
def test_items_have_the_stated_layout(layout, axes, kind, as_set):
    pairs = [(kind(np.ascontiguousarray(x.transpose(axes))), int(y)) for x, y in zip(X, Y, strict=True)]
    found = loaded(train=as_set(pairs), test=as_set(pairs), layout=layout)
    assert np.array_equal(found.train_images, X) and np.array_equal(found.test_images, X)


def test_float_samples_are_not_normalized_twice():
    data = loaded(train=(X / 255, Y), test=(X[:2] / 255, Y[:2]))
    assert data.train_images.dtype == np.float32 and data.mean.tolist() == [0] * 3 and data.std.tolist() == [1] * 3


def test_a_memory_mapped_array_is_not_read(tmp_path):
    np.save(tmp_path / "x.npy", X)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    assert is_mapped(loaded(train=(mapped, Y)).train_images)


def test_changed_memory_mapped_array_is_refused(tmp_path):
    np.save(tmp_path / "x.npy", X)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r+")
    data = Arrays(train=(mapped, Y), test=TEST)
    assert data.load(NOWHERE).sha256 == loaded().sha256
    mapped[0] += 1
    with pytest.raises(DataDamaged, match=r"memory-mapped array has changed: .* Make the Arrays again"):
        data.load(NOWHERE)


@pytest.mark.parametrize("as_given", [np.asarray, torch.from_numpy], ids=["arrays", "tensors"])
def test_samples_do_not_change_with_the_original_arrays(as_given):
    features, labels, site = np.arange(12, dtype=np.float32).reshape(4, 3), Y.copy(), np.array([0, 0, 1, 1])
    given = as_given(features), as_given(labels)
    data = Arrays(train=given, test=given, validation=given, columns={"site": as_given(site)})
    features *= 0
    labels *= 0
    site *= 0
    made = data.load(NOWHERE)
    for split in made.splits:
        x, y = made.samples(split)
        assert x.ravel().tolist() == list(range(12)) and y.tolist() == [0, 1, 2, 0]
    assert made.columns["site"]["train"].tolist() == [0, 0, 1, 1]


def test_token_ids_keep_their_type():
    tokens = np.arange(12, dtype=np.int32).reshape(4, 3)
    data = loaded(train=(tokens, tokens), test=(tokens, tokens))
    assert data.sample_dtype == "int32" and data.train_labels.shape == (4, 3) and data.num_classes == 12


def test_a_scenario_runs_on_arrays(tmp_path):
    scenario = from_mapping(mapping(Arrays(train=(X, Y), test=TEST)))
    assert f"sha256: {scenario.data.sha256}" in to_yaml(scenario)
    assert runs.run(scenario, out=tmp_path / "run")["rounds"] == 1


def test_samples_of_another_process_are_reported_as_missing():
    with pytest.raises(DataMissing, match=r"SHA-256 abc.* not in this process.*here first"):
        Arrays(sha256="abc").load(NOWHERE)


def test_a_file_cannot_name_arrays():
    with pytest.raises(ScenarioError, match="arrays come from Python"):
        from_mapping(mapping({"name": "arrays"}))


def test_validation_arrays_become_the_validation_set():
    data = Arrays(train=(X, Y), test=TEST, validation=TEST)
    assert from_mapping(mapping(data) | {"validation": {"source": "own"}}).data.own_validation
    with pytest.raises(ScenarioError, match="without a validation set"):
        from_mapping(mapping(Arrays(train=(X, Y), test=TEST)) | {"validation": {"source": "own"}})


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"train": (X, Y[:3])}, r"train: expected .* as many labels, got x_train \[4, 2, 3, 3\] and y_train \[3\]"),
        ({"train": (X, np.array([0, 1, -1, 2]))}, r"train labels must be 0..2, got -1..2"),
        ({"num_classes": 2}, r"train labels must be 0..1, got 0..2"),
        ({"train": (X, Y / 2)}, r"y_train: expected .* whole numbers.*float32.*astype\('int64'\).*task: regression"),
        ({"train": (X, np.array(list("abca")))}, "expected words or numbers as labels of all splits, got both"),
        (
            {"train": (X, np.eye(4, dtype=int))},
            r"whole numbers \[N\] .*got int64 \[4, 4\].*one-hot rows with .argmax\(1\)",
        ),
        ({"train": (X > 2, Y)}, r"x_train: expected images .*got bool \[4, 2, 3, 3\].*astype"),
        ({"train": (X[:0], Y[:0])}, r"train: expected at least one sample"),
        ({"train": Pairs([])}, r"train: expected samples .* got none from the Pairs"),
        ({"test": (X[:2, :1], Y[:2])}, r"test samples like train, uint8 \[2, 3, 3\].*got uint8 \[1, 3, 3\]"),
        ({"test": (X[:2] / 255, Y[:2])}, r"test samples like train, uint8 .* got float32"),
        (
            {"train": Pairs([{"image": 1, "label": 2}])},
            r"item 0 of 1 of the Pairs is a dict with keys image, label, expected a",
        ),
        ({"train": Pairs([(X[0], 0, 1)])}, r"item 0 of 1 of the Pairs is a tuple of 3, expected a pair"),
        (
            {"train": Pairs([(X[0], 0), (X[0, :1], 1)])},
            r"sample 1 is uint8 \[1, 3, 3\], the first is uint8 \[2, 3, 3\]",
        ),
        ({"train": Pairs([(object(), 0)])}, r"sample 0 of train: expected an array or tensor of numbers, got a object"),
        ({"columns": {"site": ["a", "b"]}}, r"column site: expected one value per train sample, got \[2\]"),
        ({"mean": (0.1, 0.2)}, r"data.mean: expected 1 or 3 values"),
        ({"train": X}, r"train: expected \(samples, labels\) or a data set.*got a ndarray"),
        ({"train": iter([])}, r"expected \(samples, labels\).*list\(data\)"),
        ({"train": (X, Y, Y)}, r"train: expected \(samples, labels\) .*got a tuple of 3"),
        ({"test": None}, "test_fraction: 0.2 of 4 samples leaves one side empty"),
        ({"train": (np.zeros((4, 3, 8, 8), np.uint8), Y)}, r"expected \[N, H, W, C\], got .*layout='channels_first'"),
        (
            {"train": (np.ones((4, 5), np.uint8), Y)},
            r"x_train: expected images .*got uint8 \[4, 5\].*features with .astype\('float32'\)",
        ),
        ({"train": (np.full((4, 5), np.nan), Y)}, r"x_train: 20 values are not finite"),
        ({"train": (MASKED, Y)}, r"x_train: 2 values are masked. Fill them in"),
        ({"train": (X, np.ma.masked_equal(Y, 1))}, r"y_train: 1 values are masked\."),
        ({"train": list(zip(X, np.ma.masked_equal(Y, 1), strict=True))}, r"label 1 of train: 1 values are masked\."),
        ({"columns": {"site": np.ma.masked_equal(Y, 2)}}, r"columns: site: 1 values are masked\."),
    ],
)
def test_wrong_arrays_are_one_clear_error(given, text):
    with pytest.raises((DataDamaged, ScenarioError)) as caught:
        loaded(**given)
    assert re.search(text, str(caught.value)), str(caught.value)
    assert len(str(caught.value)) < 400


def test_masked_arrays_without_masked_values_are_accepted():
    assert np.array_equal(loaded(train=(np.ma.MaskedArray(X), Y)).train_images, X)


def test_tensors_of_bfloat16_become_float32():
    samples = torch.arange(8.0).reshape(4, 2) / 8
    data = loaded(train=(samples.bfloat16(), Y), test=(samples, Y))
    assert np.array_equal(data.train_images, data.test_images) and data.train_images.dtype == np.float32


@pytest.mark.parametrize("split", ["train", "test"])
def test_token_ids_below_0_are_refused(split):
    ids = np.array([[3, 4], [5, 6], [7, -1], [-2, 0]])
    with pytest.raises(DataDamaged, match=rf"x_{split}: expected token ids from 0 .* got -2\.\.7\."):
        loaded(**{"train": (abs(ids), Y), "test": (abs(ids), Y), split: (ids, Y)})


class Turned(TensorDataset):
    """Items with a transform."""

    def __getitem__(self, index):
        x, y = super().__getitem__(index)
        return -x, y


class Holder(Dataset):
    """Keeps tensors under the attribute name of TensorDataset."""

    def __init__(self, x, y):
        self.tensors = (x, y)

    def __len__(self):
        return len(self.tensors[0])

    def __getitem__(self, index):
        return -self.tensors[0][index], self.tensors[1][index]


@pytest.mark.parametrize("kind", [Turned, Holder])
def test_data_set_with_getitems_is_read_in_batches(kind):
    x, y = torch.arange(8.0).reshape(4, 2), torch.tensor([0, 1, 1, 0])
    found = Arrays(train=kind(x, y), test=(x, y)).load(DataSearch())
    assert found.train_images.ravel().tolist() == (-x).ravel().tolist()
    assert found.test_images.ravel().tolist() == x.ravel().tolist()


def test_means_may_be_an_array():
    x, y = np.ones((4, 2), np.float32), np.array([0, 1, 1, 0])
    found = Arrays(train=(x, y), test=(x, y), mean=np.array([0.0]), std=np.array([2.0])).load(DataSearch())
    assert found.mean.tolist() == [0] and found.std.tolist() == [2]


@pytest.mark.parametrize("texts", [["a", "b", "a", "b"], np.array(["a", "b", "a", "b"], dtype=object)])
def test_columns_may_be_pandas_object_texts(texts):
    x, y = np.ones((4, 2), np.float32), np.array([0, 1, 1, 0])
    found = Arrays(train=(x, y), test=(x, y), columns={"author": texts}).load(DataSearch())
    assert found.columns["author"]["train"].tolist() == ["a", "b", "a", "b"]


class Frame:
    """The interface of a pandas.DataFrame."""

    columns = ("a", "b")

    def __len__(self):
        return 4

    def __getitem__(self, key):
        raise KeyError(key)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (Frame(), "got a Frame. Give columns of a table as arrays"),
        (torch.utils.data.DataLoader(TensorDataset(torch.ones(4, 2), torch.ones(4))), "loader.dataset of a loader"),
        (np.ones((4, 2)), "expected (samples, labels)"),
    ],
)
def test_error_of_a_wrong_split_says_how_to_pass_it(given, text):
    with pytest.raises(ScenarioError, match=re.escape(text)):
        Arrays(train=given, test=(np.ones((4, 2)), np.zeros(4)))


def augmented(train, kind):
    rest = {"training": {"learning_rate": 0.1, "augmentation": kind}}
    return runs.prepare(runs.load_data(from_mapping({**mapping(Arrays(train=train, test=train)), **rest})))


@pytest.mark.parametrize("kind", ["crop_flip", "color"])
def test_rows_of_features_are_not_augmented(kind):
    with pytest.raises(ScenarioError, match=r"augmentation: only none fits samples that are not images \(1 x 1 x 5\)"):
        augmented((np.ones((4, 5), np.float32), Y), kind)


@pytest.mark.parametrize(("low", "high"), [(-2.5, 1.0), (0.0, 255.0)])
def test_color_augmentation_needs_the_scale_0_to_1(low, high):
    images = np.zeros((4, 8, 8, 3), np.float32)
    images[1, 0, 0, 0], images[2, 0, 0, 0] = low, high
    with pytest.raises(ScenarioError, match=rf"values of 0 to 1 for color, got values of {low:g} to {high:g}\."):
        augmented((images, Y), "color")
    assert augmented((images, Y), "crop_flip").image_shape == (3, 8, 8)
    assert augmented((np.clip(images, 0, 1), Y), "color").image_shape == (3, 8, 8)

import os
import pickle
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest
from torchvision import datasets

from ddlsim.data import DATASETS, DataSearch
from ddlsim.data.arrays import Npz
from ddlsim.data.pixels import is_mapped
from ddlsim.data.torchvision_sets import Cifar10, Cifar100, FashionMnist, Mnist
from ddlsim.foundation.errors import DataDamaged, DataMissing, ScenarioError


@pytest.fixture(autouse=True)
def nowhere_else(monkeypatch, tmp_path):
    """Hide all data except the files that a test writes."""
    monkeypatch.delenv("DDLSIM_DATA", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


def offline(path):
    return DataSearch(path, download=False)


def keras_npz(path, shape=(32, 32, 3), fill=7, **replaced):
    path.parent.mkdir(parents=True, exist_ok=True)
    arrays = {
        "x_train": np.full((4, *shape), fill, np.uint8),
        "y_train": np.arange(4)[:, None],
        "x_test": np.full((2, *shape), fill, np.uint8),
        "y_test": np.arange(2)[:, None],
        **replaced,
    }
    np.savez(path, **{key: array for key, array in arrays.items() if array is not None})


def idx(array):
    return struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.tobytes()


def fashion_folder(root):
    folder = root / "FashionMNIST" / "raw"
    folder.mkdir(parents=True)
    for split, count in (("train", 3), ("t10k", 2)):
        images, labels = np.full((count, 28, 28), count, np.uint8), np.arange(count, dtype=np.uint8)
        (folder / f"{split}-images-idx3-ubyte").write_bytes(idx(images))
        (folder / f"{split}-labels-idx1-ubyte").write_bytes(idx(labels))
    return folder


def cifar_folder(root, name, key, value=9):
    """Write the batches of a data set of torchvision, whose blue channel has this value."""
    cls = getattr(datasets, name)
    folder = root / cls.base_folder
    folder.mkdir(parents=True)
    flat = np.zeros((2, 3, 32, 32), np.uint8)
    flat[:, 2] = value
    for file, _ in cls.train_list + cls.test_list:
        (folder / file).write_bytes(pickle.dumps({"data": flat.reshape(2, -1), key: [0, 1]}))
    (folder / cls.meta["filename"]).write_bytes(pickle.dumps({cls.meta["key"]: ["a", "b"]}))
    return folder


def test_the_embedded_data_is_class_balanced_and_needs_no_search(tmp_path):
    data = DATASETS["fashion-mnist-mini"]().load(offline(tmp_path))
    assert data.train_images.shape == (10_000, 28, 28, 1) and data.test_images.shape == (2_000, 28, 28, 1)
    assert np.bincount(data.train_labels).tolist() == [1000] * 10
    assert np.bincount(data.test_labels).tolist() == [200] * 10
    assert data.sha256 == "0c23f98af71dc358efa77f0bc434c43438d38f70b554d25d41cac4809df96114"


def test_license_of_the_embedded_data_is_in_its_folder():
    import ddlsim.data

    embedded = Path(ddlsim.data.__file__).parent / "embedded"
    assert "Zalando SE" in (embedded / "LICENSE.fashion-mnist").read_text(encoding="utf-8")
    assert (embedded / "fashion-mnist-mini.npz").stat().st_size < 8_000_000


def test_missing_data_lists_the_searched_folders_and_a_cure(tmp_path, monkeypatch):
    monkeypatch.setenv("DDLSIM_DATA", str(tmp_path / "from-variable"))
    with pytest.raises(DataMissing) as caught:
        Cifar10().load(offline(tmp_path / "given"))
    text = str(caught.value)
    for part in (
        "cifar10.npz",
        "cifar-10-batches-py/",
        "given",
        "from-variable",
        str(Path(".cache") / "ddlsim"),
        "--data-dir",
        "$DDLSIM_DATA",
        "x_train",
        "fallback",
        "fashion-mnist-mini",
    ):
        assert part in text
    assert caught.value.exit_code == 3


def test_missing_data_is_downloaded_into_the_first_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(datasets.FashionMNIST, "download", lambda self: fashion_folder(Path(self.root)))
    assert FashionMnist().load(DataSearch(tmp_path / "new")).origin == str(tmp_path / "new")


def test_reason_of_a_failed_download_is_reported(tmp_path, monkeypatch):
    def fail(self):
        raise RuntimeError("no mirror answered")

    monkeypatch.setattr(datasets.MNIST, "download", fail)
    with pytest.raises(DataMissing, match="no mirror answered"):
        Mnist().load(DataSearch(tmp_path))


def test_folder_argument_precedes_the_variable_and_the_cache(tmp_path, monkeypatch):
    places = [tmp_path / "given", tmp_path / "variable", tmp_path / "home" / ".cache" / "ddlsim"]
    monkeypatch.setenv("DDLSIM_DATA", str(places[1]))
    for place in reversed(places):
        keras_npz(place / "cifar10.npz")
        assert Cifar10().load(offline(places[0])).origin == str(place / "cifar10.npz")


def test_keras_npz_gives_flat_int64_labels(tmp_path):
    keras_npz(tmp_path / "cifar10.npz")
    data = Cifar10().load(offline(tmp_path))
    assert data.train_labels.tolist() == [0, 1, 2, 3] and data.train_labels.dtype == np.int64
    assert data.train_images.shape == (4, 32, 32, 3)


def test_keras_mnist_without_channel_axis_gets_one(tmp_path):
    keras_npz(tmp_path / "mnist.npz", shape=(28, 28))
    assert Mnist().load(offline(tmp_path)).train_images.shape == (4, 28, 28, 1)


def test_idx_files_of_torchvision_are_read(tmp_path):
    fashion_folder(tmp_path)
    data = FashionMnist().load(offline(tmp_path))
    assert data.train_images.shape == (3, 28, 28, 1) and data.test_labels.tolist() == [0, 1]
    assert (data.train_images == 3).all()


@pytest.mark.parametrize(
    ("dataset", "name", "key"), [(Cifar10(), "CIFAR10", "labels"), (Cifar100(), "CIFAR100", "fine_labels")]
)
def test_cifar_batches_of_torchvision_are_read_channels_last(tmp_path, monkeypatch, dataset, name, key):
    monkeypatch.setattr(datasets.cifar, "check_integrity", lambda *arguments: True)
    cifar_folder(tmp_path, name, key)
    data = dataset.load(offline(tmp_path))
    assert data.train_images.shape == (10 if name == "CIFAR10" else 2, 32, 32, 3) and data.test_labels.tolist() == [
        0,
        1,
    ]
    assert data.train_images[0, 5, 5].tolist() == [0, 0, 9]


def test_folder_that_lacks_a_file_is_skipped(tmp_path):
    folder = fashion_folder(tmp_path)
    (folder / "t10k-labels-idx1-ubyte").unlink()
    with pytest.raises(DataMissing):
        FashionMnist().load(offline(tmp_path))


def test_truncated_idx_file_is_refused_with_the_reason(tmp_path):
    path = fashion_folder(tmp_path) / "train-images-idx3-ubyte"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(DataMissing, match=r"torchvision: shape '\[3, 28, 28\]' is invalid"):
        FashionMnist().load(offline(tmp_path))


@pytest.mark.parametrize("spoil", [lambda raw: raw[: len(raw) // 2], lambda raw: b"", lambda raw: b"<html>" + raw])
def test_a_cut_npz_is_named(tmp_path, spoil):
    path = tmp_path / "cifar10.npz"
    keras_npz(path)
    path.write_bytes(spoil(path.read_bytes()[:-10]))
    with pytest.raises(DataDamaged, match=r"cifar10\.npz cannot be read"):
        Cifar10().load(offline(tmp_path))


def test_flipped_bytes_in_an_npz_are_noticed(tmp_path):
    path = tmp_path / "cifar10.npz"
    keras_npz(path)
    raw = bytearray(path.read_bytes())
    raw[3000] ^= 0xFF
    path.write_bytes(raw)
    with pytest.raises(DataDamaged, match="CRC"):
        Cifar10().load(offline(tmp_path))


def test_changed_cifar_batch_is_not_unpickled(tmp_path):
    folder = cifar_folder(tmp_path, "CIFAR10", "labels")
    harmful = type("Harmful", (), {"__reduce__": lambda self: (os.mkdir, (str(tmp_path / "owned"),))})
    (folder / "data_batch_1").write_bytes(pickle.dumps(harmful()))
    with pytest.raises(DataMissing, match="not found or corrupted"):
        Cifar10().load(offline(tmp_path))
    assert not (tmp_path / "owned").exists()


@pytest.mark.parametrize(
    "replaced, text",
    [
        ({"y_test": None}, "no y_test"),
        ({"x_train": np.zeros((4, 28, 28), np.uint8)}, "32 x 32 x 3"),
        ({"x_train": np.zeros((4, 32, 32, 3), np.int64)}, "uint8 or floating"),
        ({"y_train": np.array([0, 1, 2, 99])}, "0..9"),
        ({"y_train": np.arange(3)}, "as many .* as labels"),
        ({"y_train": np.zeros(4)}, "whole numbers"),
    ],
)
def test_wrong_arrays_of_an_npz_are_named(tmp_path, replaced, text):
    keras_npz(tmp_path / "cifar10.npz", **replaced)
    with pytest.raises(DataDamaged, match=text):
        Cifar10().load(offline(tmp_path))


def test_npz_file_is_found_in_a_data_folder_and_its_classes_are_counted(tmp_path):
    keras_npz(tmp_path / "sub" / "mine.npz", shape=(5, 6, 3))
    data = Npz(path="sub/mine.npz").load(offline(tmp_path))
    assert data.num_classes == 4 and data.train_images.shape == (4, 5, 6, 3)
    assert data.mean.tolist() == [0.5] * 3


def test_table_of_features_is_used_unchanged(tmp_path):
    path = tmp_path / "table.npz"
    keras_npz(path, x_train=np.ones((4, 6)), x_test=np.ones((2, 6)))
    data = Npz(path=str(path)).load(offline(None))
    assert data.train_images.shape == (4, 1, 6, 1) and data.train_images.dtype == np.float32
    assert (data.mean.tolist(), data.std.tolist()) == ([0.0], [1.0])


@pytest.mark.parametrize(
    ("lacks", "text"),
    [
        ({"y_test": None}, r"no y_test in it; it has .* Save it again, as numbers: numpy.savez\(path, x_train="),
        ({"x_test": np.array([None, 1], object)}, r"Object arrays .* Save it again, as numbers.*astype\('float32'\)"),
    ],
)
def test_error_of_an_unusable_npz_file_does_not_advise_deleting_it(tmp_path, lacks, text):
    keras_npz(tmp_path / "mine.npz", **lacks)
    with pytest.raises(DataDamaged, match=text) as refused:
        Npz(path=str(tmp_path / "mine.npz")).load(offline(tmp_path))
    assert "delete" not in str(refused.value)


def test_absent_npz_is_data_missing(tmp_path):
    with pytest.raises(DataMissing, match=r"nothing\.npz"):
        Npz(path="nothing.npz").load(offline(tmp_path))


def test_a_mean_for_the_wrong_number_of_channels_is_refused(tmp_path):
    keras_npz(tmp_path / "mine.npz")
    with pytest.raises(ScenarioError, match=r"data\.mean"):
        Npz(path="mine.npz", mean=(0.1, 0.2)).load(offline(tmp_path))


def test_digest_depends_on_the_data_and_not_on_the_folder(tmp_path):
    for folder, fill in (("a", 7), ("b", 7), ("c", 8)):
        keras_npz(tmp_path / folder / "cifar10.npz", fill=fill)
    a, b, c = (Cifar10().load(offline(tmp_path / folder)).sha256 for folder in "abc")
    assert a == b != c


def entry(head: bytes) -> bytes:
    """Return an .npy entry with this header."""
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head


@pytest.mark.parametrize(
    ("spoilt", "message"),
    [
        (b"no numpy at all", "x_test is not an array"),
        (entry(b"{'descr': '|u1', 'fortran_order': False, 'shape': (4L, '\n"), "cannot be read"),
        (entry(b"{'descr': '|u1', 'fortran_order': False, 'shape': (9000000000000, 5), }\n"), "cannot be read"),
        (entry(b"{'descr': '|u1', 'fortran_order': False, 'shape': (2e99, 'a'), }\n"), "cannot be read"),
        (entry(b"{'descr': 3, 'fortran_order': [], 'shape': 7}\n"), "cannot be read"),
    ],
)
def test_an_array_with_a_damaged_head_is_data_damaged(tmp_path, spoilt, message):
    keras_npz(tmp_path / "mine.npz", x_test=None)
    with zipfile.ZipFile(tmp_path / "mine.npz", "a") as file:
        file.writestr("x_test.npy", spoilt)
    with pytest.raises(DataDamaged, match=message):
        Npz(path=str(tmp_path / "mine.npz")).load(offline(tmp_path))


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e300])
def test_non_finite_value_is_reported_with_its_sample(tmp_path, value):
    table = np.zeros((4, 5))
    table[2, 3] = value
    keras_npz(tmp_path / "mine.npz", x_train=table, x_test=np.zeros((2, 5)))
    with pytest.raises(DataDamaged, match=r"x_train: 1 values are not finite in float32, the first is .* in sample 2"):
        Npz(path=str(tmp_path / "mine.npz")).load(offline(tmp_path))


def test_non_finite_target_is_reported_with_its_sample(tmp_path):
    keras_npz(tmp_path / "mine.npz", y_train=np.array([0.0, np.nan, 1.0, 2.0]), y_test=np.zeros(2))
    with pytest.raises(DataDamaged, match=r"y_train: 1 values .* in sample 1"):
        Npz(path=str(tmp_path / "mine.npz"), task="regression").load(offline(tmp_path))


def test_labels_too_far_apart_are_refused(tmp_path):
    keras_npz(tmp_path / "mine.npz", y_train=np.array([0, 1, 2, 2**40]))
    with pytest.raises(DataDamaged, match="one after the other, got up to 1099511627776 in 6 samples"):
        Npz(path=str(tmp_path / "mine.npz")).load(offline(tmp_path))


def test_further_arrays_of_an_npz_are_columns(tmp_path):
    keras_npz(
        tmp_path / "mine.npz", site_train=np.array(list("abab")), site_test=np.array(list("ab")), other=np.ones(3)
    )
    columns = Npz(path=str(tmp_path / "mine.npz")).load(offline(tmp_path)).columns
    assert list(columns) == ["site"] and columns["site"]["train"].tolist() == list("abab")


def test_a_column_of_another_length_is_reported(tmp_path):
    keras_npz(tmp_path / "mine.npz", site_train=np.array(list("abc")))
    with pytest.raises(DataDamaged, match=r"column site: expected one value per train sample, got \[3\]"):
        Npz(path=str(tmp_path / "mine.npz")).load(offline(tmp_path))


@pytest.mark.parametrize("x", [np.uint8, np.float32, np.int64])
def test_mapped_npz_gives_equal_data_and_stays_in_its_file(tmp_path, x):
    train, test = np.arange(4 * 30, dtype=x).reshape(4, 30), np.arange(2 * 30, dtype=x).reshape(2, 30)
    if x == np.uint8:
        train, test = train.reshape(4, 5, 6), test.reshape(2, 5, 6)
    keras_npz(tmp_path / "mine.npz", x_train=train, x_test=test)
    read, mapped = (Npz(path=str(tmp_path / "mine.npz"), mapped=each).load(offline(None)) for each in (False, True))
    assert is_mapped(mapped.train_images) and not is_mapped(read.train_images)
    assert mapped.sha256 == read.sha256 and mapped.test_labels.tolist() == read.test_labels.tolist()


def test_a_compressed_npz_cannot_be_mapped(tmp_path):
    image = np.zeros((2, 3, 3), np.uint8)
    np.savez_compressed(tmp_path / "c.npz", x_train=image, y_train=[0, 1], x_test=image, y_test=[0, 1])
    with pytest.raises(ScenarioError, match=r"data.mapped: .*c.npz is compressed. Write it by numpy.savez"):
        Npz(path=str(tmp_path / "c.npz"), mapped=True).load(offline(None))


def test_a_mapped_npz_of_doubles_is_refused(tmp_path):
    keras_npz(tmp_path / "mine.npz", x_train=np.ones((4, 6)), x_test=np.ones((2, 6)))
    with pytest.raises(DataDamaged, match=r"x_train: expected float32 for data.mapped, got float64"):
        Npz(path=str(tmp_path / "mine.npz"), mapped=True).load(offline(None))

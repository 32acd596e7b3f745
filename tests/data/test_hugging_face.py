"""Data sets of Hugging Face `datasets`, from files that the tests write."""

import json

import numpy as np
import pytest

from ddlsim.data import DataSearch
from ddlsim.data.hugging_face import HuggingFace
from ddlsim.foundation.errors import DataDamaged, DataMissing, ScenarioError

datasets = pytest.importorskip("datasets", reason="needs the extra hf")

OFFLINE = DataSearch(download=False)
ROWS = [{"a": n, "b": n / 2, "kind": ["cat", "dog"][n % 2], "who": f"p{n % 3}", "text": "hi"} for n in range(10)]


@pytest.fixture(autouse=True)
def own_cache(monkeypatch, tmp_path):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(tmp_path))
    datasets.disable_progress_bars()


def lines(path, rows=ROWS):
    path.write_text("\n".join(map(json.dumps, rows)))
    return str(path)


def load(path, **keys):
    return HuggingFace(**{"path": str(path), "inputs": ("a", "b"), "label": "kind", "test": None, **keys}).load(OFFLINE)


def test_columns_of_numbers_become_a_table_and_words_classes(tmp_path):
    data = load(lines(tmp_path / "d.jsonl"), columns=("who",))
    assert data.train_images.shape == (8, 1, 2, 1) and data.num_classes == 2 and len(data.test_labels) == 2
    for (a, b), label, who in zip(
        data.train_images[:, 0, :, 0].tolist(), data.train_labels, data.columns["who"]["train"], strict=True
    ):
        assert b == a / 2 and label == a % 2 and who == f"p{a % 3:.0f}"


@pytest.mark.parametrize("kind", ["csv", "parquet", "arrow"])
def test_all_file_formats_give_the_same_data(tmp_path, kind):
    rows = datasets.Dataset.from_list(ROWS)
    if kind == "arrow":
        rows.save_to_disk(str(tmp_path / "saved"))
        path = tmp_path / "saved"
    else:
        path = tmp_path / f"d.{kind}"
        getattr(rows, f"to_{kind}")(str(path))
    assert load(path).sha256 == load(lines(tmp_path / "d.jsonl")).sha256


def test_splits_of_a_folder_follow_its_file_names(tmp_path):
    folder = tmp_path / "rows"
    folder.mkdir()
    lines(folder / "train.jsonl", ROWS[:6])
    lines(folder / "test.jsonl", ROWS[6:])
    data = load(folder, test="test", validation="test")
    assert (len(data.train_labels), len(data.test_labels), len(data.validation_labels)) == (6, 4, 4)


def test_images_are_bytes(tmp_path):
    from PIL import Image

    pictures = [{"x": Image.new("RGB", (4 + n, 4), (n, 0, 0)), "y": n % 2} for n in range(4)]
    saved = datasets.Dataset.from_list(
        pictures, features=datasets.Features(x=datasets.Image(), y=datasets.Value("int64"))
    )
    saved.save_to_disk(str(tmp_path / "saved"))
    data = load(tmp_path / "saved", inputs=("x",), label="y", size=3, test_fraction=0.5)
    assert data.train_images.shape == (2, 3, 3, 3) and data.train_images.dtype == np.uint8 and data.mean[0] == 0.5


def test_token_ids_stay_integers(tmp_path):
    rows = [{"ids": [n, 1, 2], "kind": n % 2} for n in range(10)]
    data = load(lines(tmp_path / "d.jsonl", rows), inputs=("ids",))
    assert data.sample_dtype == "int64" and data.train_images.shape == (8, 3)


@pytest.mark.parametrize(
    ("keys", "kind", "text"),
    [
        (
            {"inputs": ("c",)},
            DataDamaged,
            r"data.inputs: .* has no column c in its train split; it has a, b, kind, who, text",
        ),
        ({"label": "class"}, DataDamaged, r"data.label: .* has no column class in its train split"),
        ({"columns": ("age",)}, DataDamaged, r"data.columns: .* has no column age"),
        ({"inputs": ("text",)}, DataDamaged, r"data.inputs: text \(train\): expected images or numbers, got text"),
        ({"inputs": ("a", "text")}, DataDamaged, r"column text, row 1: expected a number, .* got 'hi'"),
        (
            {"label": "b"},
            DataDamaged,
            r"data.label: b \(train\): expected labels that are whole numbers.*task: regression",
        ),
        ({"test": "test"}, ScenarioError, r"has no split test: .*data.test: null"),
        ({"test_fraction": 0.01}, DataDamaged, r"data.test_fraction: 0.01 of 10 samples leaves one"),
    ],
)
def test_unsuitable_input_is_reported(tmp_path, keys, kind, text):
    with pytest.raises(kind, match=text):
        load(lines(tmp_path / "d.jsonl"), **keys)


def test_absent_file_is_reported_as_missing_data():
    with pytest.raises(DataMissing, match=r"nothing.csv"):
        load("nothing.csv")


def test_a_file_of_another_kind_is_refused(tmp_path):
    (tmp_path / "d.xls").write_text("?")
    with pytest.raises(ScenarioError, match=r"expected a file that ends in .csv"):
        load(tmp_path / "d.xls")


def test_an_odd_cell_is_an_error_with_its_column_and_row(tmp_path):
    rows = [{**row, "a": str(row["a"]), "kind": str(row["a"] % 2)} for row in ROWS]
    for keys in ({}, {"inputs": ("a",)}):
        path = lines(tmp_path / f"d{len(keys)}.jsonl", [*rows[:3], {**rows[3], "a": "-"}, *rows[4:]])
        with pytest.raises(DataDamaged, match=r"column a, row 4: expected a number, as in 9 of 10 cells, got '-'"):
            load(path, **keys)
    with pytest.raises(DataDamaged, match=r"column kind, row 4: expected a number, as in 9 of 10 cells, got 'x'"):
        load(lines(tmp_path / "e.jsonl", [*rows[:3], {**rows[3], "kind": "x"}, *rows[4:]]))
    with pytest.raises(DataDamaged, match="column b, row 2: expected a number, got nothing"):
        load(lines(tmp_path / "f.jsonl", [rows[0], {**rows[1], "b": None}, *rows[2:]]))

"""Ambiguous data: an error with the place and the cure, or a note."""

import numpy as np
import pytest
import torch

import ddlsim
from ddlsim.data import DATASETS, Arrays, DataSearch
from ddlsim.data.table import refuse_odd_cells
from ddlsim.foundation.errors import DataDamaged, ScenarioError

NOWHERE = DataSearch(download=False)
ZEROS = np.zeros((4, 2), np.float32)


def table(tmp_path, cells, **keys):
    rows = [f'"{cell}",{row},{row % 2}' for row, cell in enumerate(cells)]
    (tmp_path / "t.csv").write_text("a,b,y\n" + "\n".join(rows) + "\n")
    return DATASETS["table"](path=str(tmp_path / "t.csv"), label="y", **keys).load(NOWHERE)


@pytest.mark.parametrize(
    ("cells", "row", "shown"),
    [
        (["1", "2", "-", "4"], 3, "'-'"),
        (["1", "2", "3", "<0.1", "5"], 4, "'<0.1'"),
        (["1,5", "2,25", "3,0", "4"], 1, "'1,5'"),
        (["1", "12%", "15%", "9%"], 2, "'12%'"),
        (["1,234,567", "2,345,678", "3", "4"], 1, "'1,234,567'"),
        (["1 234", "2'345", "3.456.789", "5"], 1, "'1 234'"),
        (["2024-01-31", "31.01.2024", "1/31/2024", "2024-01-31 12:00"], 1, "'2024-01-31'"),
        (["$5", "5 €", "7", "8"], 1, r"'\$5'"),
        ([*map(str, range(100)), *["none known"] * 50], 101, "'none known'"),
    ],
)
def test_an_odd_cell_is_an_error_with_its_column_and_row(tmp_path, cells, row, shown):
    with pytest.raises(DataDamaged, match=f"column a, row {row}: expected a number, .* got {shown}.*data.categorical"):
        table(tmp_path, cells)
    as_words = table(tmp_path, cells, categorical=("a",), test_fraction=0.25)
    assert as_words.sample_shape[2] > 2
    left_out = table(tmp_path, cells, leave_out=("a",), test_fraction=0.25)
    assert left_out.sample_shape == (1, 1, 1)


def test_missing_cells_and_plain_words_are_no_odd_cells(tmp_path):
    assert table(tmp_path, ["1", "?", "NULL", "", "5", "6"]).sample_shape == (1, 1, 2)
    assert not table(tmp_path, ["x", "y", "18-25", "y", "x", "x"]).notes


@pytest.mark.parametrize(
    ("cells", "note"),
    [
        ([f"name {n}" for n in range(12)], "has 12 different words in 12 rows, each a feature; .*leave_out: .a. "),
        (["1", "2", "many", "many", "none at all", "1"], "has numbers and words .'many'.; all are taken as words"),
    ],
)
def test_ambiguous_column_of_words_is_noted(tmp_path, cells, note):
    (found,) = table(tmp_path, cells).notes
    assert np.char.find(found, "column a of") >= 0
    with pytest.raises(AssertionError, match=note):
        raise AssertionError(found)


def test_odd_cells_of_a_target_are_not_a_class(tmp_path):
    (tmp_path / "t.csv").write_text("a,y\n" + "".join(f"{n},{n % 2}\n" for n in range(9)) + "9,-\n")
    with pytest.raises(DataDamaged, match=r"column y, row 10: expected a number, as in 9 of 10 cells, got '-'"):
        DATASETS["table"](path=str(tmp_path / "t.csv"), label="y").load(NOWHERE)


def test_table_with_wrong_separators_is_reported(tmp_path):
    (tmp_path / "t.csv").write_text("a;b;y\n1,5;2;0\n2,5;3;1\n")
    with pytest.raises(DataDamaged, match=r"separated by commas, .* the first \['a;b;y'\]"):
        DATASETS["table"](path=str(tmp_path / "t.csv"), label="y").load(NOWHERE)


def test_numeric_columns_name_their_first_other_cell():
    with pytest.raises(DataDamaged, match="column a, row 2: expected a number, as in 0 of 2 cells, got 'dog'"):
        refuse_odd_cells("d", "a", ["", "dog", "cat"], "", always=True)


def test_error_names_the_first_non_numeric_cell():
    import pandas as pd

    frame = pd.DataFrame({"a": [1.0, 2.0], "b": [1.5, "-"]})
    with pytest.raises(DataDamaged, match=r"row 1, column b: '-'"):
        Arrays(train=(frame, [0, 1]), test=(ZEROS, [0, 1, 0, 1]))
    with pytest.raises(DataDamaged, match=r"row 0, column 0: '1,5'"):
        Arrays(train=(np.array([["1,5", "2"]]), [0]), test=(ZEROS, [0, 1, 0, 1]))


@pytest.mark.parametrize(
    ("labels", "note"),
    [
        ([1, 2, 2, 1], "class 0 has no samples, but models have an output for it"),
        ([0, 2, 2, 0], "class 1 has no samples.*return_inverse"),
    ],
)
def test_classes_without_samples_are_noted(labels, note):
    data = Arrays(train=(ZEROS, labels), test=(ZEROS, labels)).load(NOWHERE)
    with pytest.raises(AssertionError, match=note):
        raise AssertionError(*data.notes)
    assert not Arrays(train=(ZEROS, labels), test=(ZEROS, labels), num_classes=3).load(NOWHERE).notes


def test_bytes_in_floats_are_noted():
    levels = np.arange(4 * 6 * 6).reshape(4, 6, 6) % 256
    for images, noted in ((levels, True), (levels / 255, False)):
        pair = images.astype(np.float32), [0, 1, 0, 1]
        notes = Arrays(train=pair, test=pair).load(NOWHERE).notes
        assert any("float32 images of whole numbers up to 143 are not scaled" in note for note in notes) == noted
    assert not Arrays(train=pair, test=pair, mean=(0.5,)).load(NOWHERE).notes


def test_signals_read_as_pictures_name_the_layout(tmp_path):
    pair = np.zeros((4, 9, 16), np.float32), np.array([0, 1, 0, 1])
    mapping = {
        "rounds": 1,
        "nodes": {"clusters": [1]},
        "algorithm": "local",
        "topology": {"name": "complete"},
        "partition": {"name": "random"},
        "training": {"learning_rate": 0.1, "local_steps": 1, "batch_size": 2},
    }

    def net():
        return torch.nn.Sequential(torch.nn.Conv1d(9, 2, 3), torch.nn.Flatten(), torch.nn.Linear(28, 2))

    with pytest.raises(ScenarioError, match="layout='signals'"):
        ddlsim.run(mapping, model=net, data=(pair, pair), out=tmp_path / "o")
    signals = ddlsim.data.Arrays(train=pair, test=pair, layout="signals")
    run = ddlsim.run(mapping, model=net, data=signals, out=tmp_path / "o")
    assert run.evaluate(pair)["accuracy"] == run.summary["accuracy"]["all"]


def test_the_notes_on_data_are_in_the_summary_of_a_run(tmp_path):
    pair = np.eye(4, 2, dtype=np.float32), np.array([1, 2, 2, 1])
    run = ddlsim.run(
        {
            "rounds": 1,
            "nodes": {"clusters": [1]},
            "algorithm": "local",
            "topology": {"name": "complete"},
            "model": {"name": "linear"},
            "partition": {"name": "random"},
            "training": {"learning_rate": 0.1, "local_steps": 1, "batch_size": 2},
        },
        data=(pair, pair),
        out=tmp_path / "o",
    )
    assert "class 0 has no samples" in run.summary["labels"][0] and run.summary["labels"][0] in str(run)


@pytest.mark.parametrize("dtype", ["int64", "uint16"])
def test_pictures_of_integers_except_uint8_are_not_token_ids(dtype):
    pictures = np.zeros((4, 6, 6), dtype)
    with pytest.raises(DataDamaged, match=rf"token ids \[N, T\] .* got {dtype} .*astype\('uint8'\)"):
        Arrays(train=(pictures, [0, 1, 0, 1]), test=(pictures, [0, 1, 0, 1]))


def test_rows_of_integers_under_a_model_of_numbers_name_the_cure(tmp_path):
    pair = np.zeros((4, 6), np.int64), np.array([0, 1, 0, 1])
    mapping = {
        "rounds": 1,
        "nodes": {"clusters": [1]},
        "algorithm": "local",
        "topology": {"name": "complete"},
        "partition": {"name": "random"},
        "training": {"learning_rate": 0.1, "local_steps": 1, "batch_size": 2},
    }
    with pytest.raises(ScenarioError, match=r"\.astype\('float32'\) for numbers"):
        ddlsim.run(mapping, model=lambda: torch.nn.Linear(6, 2), data=(pair, pair), out=tmp_path / "o")


def test_pairs_of_inputs_are_not_stacked_into_one():
    items = [((torch.zeros(3), torch.ones(3)), 0)]
    with pytest.raises(
        DataDamaged, match=r"item 0 of 1 of the list is a tuple of 2, expected a pair .* with one array as the sample"
    ):
        Arrays(train=items, test=items)

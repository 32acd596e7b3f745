"""Files in the layouts of LEAF and of the authors of AG News, placed by hand."""

import json

import pytest

from ddlsim.data import DATASETS, DataSearch
from ddlsim.data.texts import character_ids
from ddlsim.foundation.errors import DataDamaged, DataMissing, ScenarioError

X, Y = {"train": ["To be", "o be,"], "test": [" be, "]}, {"train": [",", " "], "test": ["o"]}


def leaf(root, **changed):
    """Write LEAF's files of two users; `changed` replaces the content of a split."""
    for split in X:
        of_users = {user: {"x": X[split], "y": Y[split], "raw": "To be"} for user in ("HAMLET", "GHOST")}
        content = {"users": [*of_users], "num_samples": [len(X[split])] * 2, "user_data": of_users}
        path = root / "shakespeare" / split / f"all_data_niid_0_keep_0_{split}_9.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(changed.get(split, content)))
    return DataSearch(root, download=False)


def loaded(root, predict="last", length=5, **changed):
    return DATASETS["shakespeare"](text="leaf", predict=predict, length=length).load(leaf(root, **changed))


def test_windows_and_users_of_leaf_are_used_unchanged(tmp_path):
    data = loaded(tmp_path)
    assert data.train_images.tolist() == [character_ids(text).tolist() for text in [*X["train"]] * 2]
    assert data.train_labels.tolist() == character_ids(", , ").tolist() and data.num_outputs == 81
    assert data.columns["speaker"]["test"].tolist() == ["HAMLET", "GHOST"]


def test_every_position_of_leafs_windows_can_have_a_label(tmp_path):
    data = loaded(tmp_path, predict="each")
    assert data.train_labels[0].tolist() == character_ids("o be,").tolist()


def test_files_of_leaf_are_found_in_its_data_folder(tmp_path):
    leaf(tmp_path)
    (tmp_path / "shakespeare").rename(tmp_path / "data")
    (tmp_path / "shakespeare").mkdir()
    (tmp_path / "data").rename(tmp_path / "shakespeare" / "data")
    assert len(DATASETS["shakespeare"](text="leaf", length=5).load(DataSearch(tmp_path, False)).train_labels) == 4


def test_a_user_in_two_of_leafs_files_has_the_windows_of_both(tmp_path):
    leaf(tmp_path)
    (tmp_path / "shakespeare" / "train" / "._more.json").write_bytes(b"left behind by macOS")
    (tmp_path / "shakespeare" / "train" / "more.json").write_text(
        json.dumps({"user_data": {"GHOST": {"x": ["Alas,"], "y": [" "]}}})
    )
    data = DATASETS["shakespeare"](text="leaf", length=5).load(DataSearch(tmp_path, download=False))
    assert data.columns["speaker"]["train"].tolist() == ["HAMLET"] * 2 + ["GHOST"] * 3
    assert data.train_images[4].tolist() == character_ids("Alas,").tolist()


USER = {"user_data": {"HAMLET": {"x": ["To be"], "y": [","]}}}


@pytest.mark.parametrize(
    ("changed", "error", "text"),
    [
        ({"length": 80}, ScenarioError, r"data.length: expected 5, as in .* got 80"),
        ({"train": ["To be"]}, DataDamaged, r"9.json.*expected user_data"),
        (
            {"train": {"user_data": {"A": {"x": ["To be"], "y": []}}}},
            DataDamaged,
            "user A: expected as many entries of x as of y",
        ),
        ({"train": {"user_data": {"A": {"x": [[1, 2]], "y": [3]}}}}, DataDamaged, "user_data.A.x.0: .* valid string"),
        (
            {"train": {"user_data": {"A": {"x": ["To be"], "y": ["no"]}}}},
            DataDamaged,
            "user_data.A.y.0: .* at most 1 character",
        ),
        ({"train": {"user_data": {"A": 3}}}, DataDamaged, "user_data.A: .* object"),
        ({"train": {"user_data": {"GRAVEDIGGER": USER["user_data"]["HAMLET"]}}}, DataDamaged, r"no user .* test/"),
    ],
)
def test_wrong_files_of_leaf_are_one_clear_error(tmp_path, changed, error, text):
    with pytest.raises(error, match=text):
        loaded(tmp_path, **changed)


def test_missing_files_of_leaf_are_reported_with_instructions(tmp_path):
    with pytest.raises(DataMissing, match=r"(?s)shakespeare/train.*preprocess.sh"):
        DATASETS["shakespeare"](text="leaf").load(DataSearch(tmp_path, download=False))


def test_keys_fixed_by_leafs_files_are_refused():
    with pytest.raises(ScenarioError, match="leaf fixes unit, stride and test_fraction"):
        DATASETS["shakespeare"](text="leaf", stride=1)


NEWS = '"3","Oil rises","Oil, ""again"".\\nMore \\$"\n"4","Chips","New chips"\n'


def news(root, folder="ag_news_csv", train=NEWS, test='"1","War","No oil"\n'):
    (root / folder).mkdir()
    (root / folder / "classes.txt").write_text("World\nSports\nBusiness\nSci/Tech\n")
    for split, text in (("train", train), ("test", test)):
        if text is not None:
            (root / folder / f"{split}.csv").write_text(text)
    return DATASETS["ag_news"](length=3, vocabulary=5).load(DataSearch(root, download=False))


@pytest.mark.parametrize("folder", ["ag_news", "ag_news_csv"])
def test_the_folder_of_the_authors_archive_is_read(tmp_path, folder):
    assert news(tmp_path, folder).train_labels.tolist() == [2, 3]


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"train": NEWS + '"5","Weather","Rain"\n'}, r"train.csv.*class \(1 to 4\).*'5'.* in line 3"),
        ({"train": "Class Index,Title,Description\n" + NEWS}, r"train.csv.*'Class Index'.* in line 1"),
        ({"test": '{"label": 1}\n'}, r"test.csv.*expected lines of class"),
        ({"test": ""}, r"test.csv.*got none"),
        ({"test": None}, r"test.csv.*FileNotFoundError"),
    ],
)
def test_wrong_files_of_news_are_one_clear_error(tmp_path, changed, text):
    with pytest.raises(DataDamaged, match=text):
        news(tmp_path, **changed)

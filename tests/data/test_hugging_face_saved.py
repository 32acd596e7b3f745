"""A saved data set of Hugging Face `datasets`; the package itself is not needed."""

import json
import sys
from types import ModuleType

import pytest

from ddlsim.data import DataSearch
from ddlsim.data.hugging_face import HuggingFace
from ddlsim.foundation.errors import ScenarioError


class Rows:
    """A single split as `load_from_disk` returns it."""

    def __init__(self, count):
        self._rows = {"a": [[n, 1.0] for n in range(count)], "kind": [n % 2 for n in range(count)]}
        self.column_names = list(self._rows)

    def __len__(self):
        return len(self._rows["kind"])

    def __getitem__(self, column):
        return self._rows[column]


@pytest.fixture
def saved(tmp_path, monkeypatch):
    """Load a result of `load_from_disk`."""
    (tmp_path / "state.json").write_text(json.dumps({}))

    def load(found, **keys):
        stand_in = ModuleType("datasets")
        stand_in.load_from_disk = lambda path: found
        monkeypatch.setitem(sys.modules, "datasets", stand_in)
        return HuggingFace(path=str(tmp_path), inputs=("a",), label="kind", **keys).load(DataSearch(download=False))

    return load


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({}, r"test; it has train\. .*set data\.test: null"),
        ({"train": "train[:50%]", "test": None}, r"train\[:50%\]; it has train\."),
        ({"validation": "val", "test": None}, r"val; it has train\."),
    ],
)
def test_unknown_split_of_a_saved_set_is_refused(saved, keys, message):
    with pytest.raises(ScenarioError, match=f"has no split {message}"):
        saved(Rows(6), **keys)


def test_a_single_split_is_split_into_train_and_test(saved):
    data = saved(Rows(10), test=None)
    train, test = ({row[0] for row in images[:, 0, :, 0].tolist()} for images in (data.train_images, data.test_images))
    assert (len(train), len(test)) == (8, 2) and not train & test


def test_several_splits_are_selected_by_name(saved):
    data = saved({"train": Rows(6), "test": Rows(4)})
    assert (len(data.train_labels), len(data.test_labels)) == (6, 4)


def test_one_split_cannot_be_both_training_and_test_set(saved):
    with pytest.raises(ScenarioError, match="test: train is the training split"):
        saved({"train": Rows(6)}, test="train")

"""Texts of Hugging Face data sets as windows of bytes or tokens."""

import numpy as np
import pytest

from ddlsim.data.hugging_face import HuggingFace
from ddlsim.foundation.errors import DataMissing, ScenarioError

KEYS = {"path": "texts", "inputs": ("text",), "label": "text", "task": "next_token", "length": 4}


class Rows(dict):
    """A data set of one column."""

    column_names = ("text",)

    def __len__(self):
        return len(self["text"])


def test_texts_are_cut_into_windows_of_bytes_with_an_end_of_each_text():
    data = HuggingFace(**KEYS).dataset({"train": Rows(text=["abc", "é"]), "test": Rows(text=["abcdefgh"])})
    assert data.train_images.tolist() == [[97, 98, 99, 256]] and data.train_labels.tolist() == [[98, 99, 256, 195]]
    assert data.test_images.tolist() == [[97, 98, 99, 100], [101, 102, 103, 104]]
    assert data.known_tokens == data.num_classes == 257 and data.train_images.dtype == np.int64


def test_tokenizer_of_a_file_makes_the_ids_and_the_last_windows_are_the_test_set(tmp_path):
    tokenizers = pytest.importorskip("tokenizers", reason="needs the extra hf")
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"to": 0, "be": 1, "or": 2}, unk_token="or"))
    words.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    words.save(str(tmp_path / "tokenizer.json"))
    keys = KEYS | {"tokenizer": str(tmp_path / "tokenizer.json"), "length": 2, "test_fraction": 0.5}
    data = HuggingFace(**keys).dataset({"train": Rows(text=["to be or be to"])})
    assert (data.train_images.tolist(), data.test_images.tolist()) == ([[0, 1]], [[2, 1]])
    assert data.test_labels.tolist() == [[1, 0]] and data.known_tokens == 4


def test_unsuitable_keys_and_missing_tokenizers_are_errors():
    with pytest.raises(ScenarioError, match="length: expected one column of texts"):
        HuggingFace(**KEYS | {"task": "classification"})
    with pytest.raises(ScenarioError, match=r"data\.length: expected at most the tokens of the test split"):
        HuggingFace(**KEYS).dataset({"train": Rows(text=["abcdefgh"]), "test": Rows(text=["abc"])})
    pytest.importorskip("tokenizers", reason="needs the extra hf")
    with pytest.raises(DataMissing, match=r"data\.tokenizer: expected a file tokenizer\.json"):
        HuggingFace(**KEYS | {"tokenizer": "nowhere/none"}).dataset({"train": Rows(text=["abc"])}, download=False)

"""Texts by speaker, texts by word, tables, attributes, and the partition that deals samples by a column."""

import numpy as np
import pytest

from ddlsim.data import DATASETS, PARTITIONS, SHIFTS, DataSearch, Dataset
from ddlsim.data.prepared import prepare
from ddlsim.data.shakespeare import roles_of_gutenberg
from ddlsim.data.texts import ALPHABET, NUM_CHARACTERS, character_ids, vocabulary, windows, word_ids, words
from ddlsim.foundation.errors import DataDamaged, DataMissing, ScenarioError
from ddlsim.scenario.sections import Nodes, Validation

OFFLINE = DataSearch(download=False)


def test_characters_have_leafs_ids_and_unknown_ones_share_one():
    assert NUM_CHARACTERS == 81 and ALPHABET[25] == "A"
    assert character_ids("\n A~").tolist() == [0, 1, 25, 80]


def test_windows_are_labeled_with_the_next_tokens_and_stay_in_the_text():
    ids = np.arange(7)
    samples, labels = windows(ids, 3, 3, each=True)
    assert samples.tolist() == [[0, 1, 2], [3, 4, 5]] and labels.tolist() == [[1, 2, 3], [4, 5, 6]]
    samples, labels = windows(ids, 3, 1, each=False)
    assert len(samples) == 4 and labels.tolist() == [3, 4, 5, 6]
    assert windows(np.arange(3), 3, 1, each=True)[0].shape == (0, 3)


def test_words_are_ranked_by_count_and_short_texts_padded_on_the_left():
    texts = [words("To be, or not to be!"), words("Be.")]
    known = vocabulary(texts, 4)
    assert known == {"be": 2, "to": 3}
    assert word_ids(texts, known, 4).tolist() == [[3, 2, 1, 1], [0, 0, 0, 2]]


def test_the_text_inside_the_package_has_sixteen_roles_with_a_test_set_each():
    data = DATASETS["shakespeare"]().load(OFFLINE)
    speakers, counts = np.unique(data.columns["speaker"]["train"], return_counts=True)
    assert len(speakers) == 16 and counts.min() >= 30 and "Romeo and Juliet / JULIET" in speakers
    assert set(data.columns["speaker"]["test"]) == set(speakers)
    np.testing.assert_array_equal(data.train_images[:, 1:], data.train_labels[:, :-1])
    assert "".join(ALPHABET[i] for i in data.train_images[0][:25]) == "No harm.\nI have done noth"


def test_the_last_label_of_leaf_is_one_character_and_speakers_are_classes():
    last = DATASETS["shakespeare"](predict="last", stride=40).load(OFFLINE)
    assert last.train_labels.ndim == 1 and last.num_outputs == NUM_CHARACTERS
    who = DATASETS["shakespeare"](predict="speaker").load(OFFLINE)
    assert (who.task, who.num_outputs, who.num_tokens) == ("classification", 16, NUM_CHARACTERS)


GUTENBERG = """
THE TRAGEDY OF NOBODY

by William Shakespeare

DRAMATIS PERSONAE
  NO ONE, a nobody

  First Lord. {one}
    {two}
                                                     Exit

  NOBODY. {three}
"""


def test_roles_of_the_full_text_are_read_with_their_further_lines():
    one, two, three = "a" * 600, "b" * 600, "c" * 1200
    roles = roles_of_gutenberg(GUTENBERG.format(one=one, two=two, three=three))
    assert roles == {
        "The Tragedy Of Nobody / FIRST LORD": f"{one}\n{two}\n",
        "The Tragedy Of Nobody / NOBODY": three + "\n",
    }


@pytest.mark.parametrize(("name", "keys", "where"), [("shakespeare", {"text": "full"}, "100.txt"), ("ag_news", {}, "")])
def test_missing_texts_are_reported_with_their_folder(tmp_path, monkeypatch, name, keys, where):
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(DataMissing, match=f"{name} is not on this machine") as missing:
        DATASETS[name](**keys).load(DataSearch(tmp_path, download=False))
    assert f"To get it: {where}" in str(missing.value)


def test_ag_news_is_read_from_its_two_files(tmp_path):
    folder = tmp_path / "ag_news"
    folder.mkdir()
    (folder / "train.csv").write_text('"3","Oil rises","Oil, again."\n"4","Chips","New chips"\n')
    (folder / "test.csv").write_text('"1","War","No oil"\n')
    data = DATASETS["ag_news"](length=3, vocabulary=5).load(DataSearch(tmp_path, download=False))
    assert data.train_labels.tolist() == [2, 3] and data.test_labels.tolist() == [0]
    assert data.test_images.tolist() == [[1, 1, 3]] and data.num_tokens == 5  # war, no: unknown; chips and oil have ids
    (folder / "test.csv").write_text("one,two\n")
    with pytest.raises(DataDamaged, match=r"test.csv"):
        DATASETS["ag_news"]().load(DataSearch(tmp_path, download=False))


TABLE = "site,age,kind,sick\na,20,x,0\na,40,y,1\na,60,x,0\nb,30,?,1\nb,50,x,0\nb,,y,1\n"


def table(tmp_path, text=TABLE, **keys):
    (tmp_path / "t.csv").write_text(text)
    return DATASETS["table"](path=str(tmp_path / "t.csv"), **{"label": "sick", "domain": "site", **keys}).load(OFFLINE)


def test_a_table_is_normalized_by_its_training_rows_and_split_by_domain(tmp_path):
    data = table(tmp_path, test_fraction=0.34)
    assert data.train_images.shape == (4, 1, 3, 1) and data.num_classes == 2  # age, kind x, kind y
    assert np.bincount(data.domains["train"]).tolist() == [2, 2] and np.bincount(data.domains["test"]).tolist() == [
        1,
        1,
    ]
    ages = data.train_images[:, 0, 0, 0]
    assert abs(ages[ages != 0].mean()) < 1e-6 and set(np.unique(data.train_images[:, 0, 1:])) <= {0, 1}
    assert set(data.columns) == {"site", "kind", "sick"}


def test_domains_that_are_numbers_come_in_their_order(tmp_path):
    rows = [f"{site},{age},{age % 2}" for site, count in ((1, 8), (2, 6), (10, 4)) for age in range(count)]
    data = table(tmp_path, "site,age,sick\n" + "\n".join(rows) + "\n", test_fraction=0.5)
    assert np.bincount(data.domains["train"]).tolist() == [4, 3, 2]


def test_a_table_can_be_a_regression(tmp_path):
    data = table(tmp_path, label="age", task="regression", leave_out=("sick",), test_fraction=0.34)
    assert len(data.train_labels) + len(data.test_labels) == 5  # one row has no age
    assert data.train_labels.dtype == np.float32 and data.num_outputs == 1


def test_constant_columns_are_dropped(tmp_path):
    text = "y,dose,a\n" + "".join(f"{row % 2},0.1,{row}\n" for row in range(1250))
    assert np.full(1000, 0.1).std() > 0  # by rounding
    data = table(tmp_path, text, label="y", domain=None)
    assert data.train_images.shape == (1000, 1, 1, 1)


@pytest.mark.parametrize("cell", ["null", "NULL", "None", "none", "N/A", "n/a", "<NA>", "NAN"])
def test_a_cell_without_a_number_is_missing_among_numbers_and_a_word_among_words(tmp_path, cell):
    text = f"age,kind,sick\n20,x,0\n40,{cell},1\n{cell},y,0\n60,x,1\n80,{cell},0\n90,y,1\n"
    data = table(tmp_path, text, domain=None, test_fraction=0.2)
    assert data.train_images.shape == (5, 1, 4, 1)
    if cell != "NAN":  # which Python reads as a number; columns with words stay as in the file, for by_column
        found = np.concatenate([data.columns["age"][split] for split in ("train", "test")])
        assert sorted(found.tolist()) == sorted(["20", "40", "60", "80", "90", cell])


def test_words_of_digits_that_python_reads_as_numbers_stay_words(tmp_path):
    bands, text = ("18_25", "1_825", "36_50"), "age,site,kind\n"
    text += "".join(f"{bands[row % 3]},{('1_1', '11')[row // 15]},{('1_0', '10', '2')[row % 3]}\n" for row in range(30))
    data = table(tmp_path, text, label="kind", domain="site")
    assert (data.num_classes, data.num_domains, data.sample_shape) == (3, 2, (1, 1, 3))


def test_domain_of_two_rows_keeps_one_training_row(tmp_path):
    data = table(tmp_path, "a,site,sick\n1,x,0\n2,x,1\n3,y,1\n4,y,0\n", test_fraction=0.9)
    assert data.domains["train"].tolist() == data.domains["test"].tolist() == [0, 1]


def test_class_may_be_named_none(tmp_path):
    text = "age,kind\n" + "".join(f"{20 + row},{('0', '1', 'none')[row % 3]}\n" for row in range(30))
    data = table(tmp_path, text, label="kind", domain=None, test_fraction=0.2)
    assert data.num_classes == 3 and len(data.train_labels) + len(data.test_labels) == 30


@pytest.mark.parametrize(
    ("keys", "text", "error"),
    [
        ({"text": "a,site,sick\n1,x,0\n2,,1\n3,,1\n"}, r"site, the domain: .* and no empty cell, got", DataDamaged),
        (
            {"text": "a,site,sick\n1,x,0\n-inf,x,1\n3,x,1\n"},
            "t.csv: column a: 1 values are not finite in float32, the first is -inf in sample 1",
            DataDamaged,
        ),
        (
            {"text": "a,site,sick\n1,x,0\n2,x,inf\n3,x,1\n", "task": "regression"},
            "t.csv: column sick: 1 values are not finite in float32, the first is inf in sample 1",
            DataDamaged,
        ),
        ({"label": "ill"}, "data.label: .* has no column 'ill'. It has site, age, kind, sick", ScenarioError),
        ({"label": "kind", "task": "regression"}, "expected numbers in column .* for a regression, got", ScenarioError),
        ({"text": "a,b\n1,2\n3\n"}, r"t.csv:3: expected 2 cells, .* got 1", DataDamaged),
        ({"text": 'a,b\n\n"1\n",2\n3\n'}, r"t.csv:5: expected 2 cells, .* got 1", DataDamaged),
        (
            {"text": "a,site,sick\n1,x,0\n2,x,1\n3,y,1\n"},
            r"site, the domain: expected at least two rows .* got 'y'.*Take",
            DataDamaged,
        ),
        ({"text": "a,a\n1,2\n3,4\n"}, "expected different names", DataDamaged),
    ],
)
def test_unusable_table_is_reported_with_the_reason(tmp_path, keys, text, error):
    with pytest.raises(error, match=text):
        table(tmp_path, **keys)


def test_heart_disease_has_four_hospitals():
    data = DATASETS["heart_disease"]().load(OFFLINE)
    sizes = np.bincount(data.domains["train"]) + np.bincount(data.domains["test"])
    assert sizes.tolist() == [294, 303, 200, 123] and np.isfinite(data.train_images).all()


def test_attributes_follow_from_the_class():
    data = DATASETS["attributes"](of="fashion-mnist-mini").load(OFFLINE)
    plain = DATASETS["fashion-mnist-mini"]().load(OFFLINE)
    sneaker = np.flatnonzero(plain.train_labels == 7)[0]
    assert data.train_labels[sneaker].tolist() == [0, 0, 1, 0, 0] and data.num_outputs == 5


def test_node_is_tested_on_all_its_values_despite_validation():
    speaker, rows = np.arange(20), np.zeros((20, 1, 1, 1), np.float32)
    one, labels = np.ones(1, np.float32), np.zeros(20, np.int64)
    columns = {"speaker": {"train": speaker, "test": speaker}}
    data = Dataset("plays", rows, labels, rows, labels, 1, one, one, "here", columns=columns)
    partition = PARTITIONS["by_column"](column="speaker", values_per_node=10, own_test=True)
    kept = Validation(source="node", fraction=0.4)
    prepared = prepare(data, partition, SHIFTS["none"](), kept, Nodes(clusters=(2,)), 0)
    assert [len(labels) for _, labels in prepared.node_train] == [6, 6]
    assert [len(labels) for _, labels in prepared.cluster_test] == [10, 10]


def test_each_node_has_one_speaker_and_is_tested_on_it():
    data = DATASETS["shakespeare"]().load(OFFLINE)
    partition = PARTITIONS["by_column"](column="speaker", values_per_node=1, own_test=True)
    prepared = prepare(data, partition, SHIFTS["none"](), Validation(), Nodes(clusters=(2, 1)), 0)
    sizes = [len(labels) for _, labels in prepared.node_train]
    assert set(sizes) <= set(np.unique(data.columns["speaker"]["train"], return_counts=True)[1])
    assert len(prepared.cluster_test) == 3 and prepared.test_set.tolist() == [0, 1, 2]
    assert (prepared.num_classes, prepared.num_tokens, prepared.label_shape) == (81, 81, (80,))


@pytest.mark.parametrize(("lowest", "known"), [(0, 900), (-1, None)])
def test_number_of_tokens_defaults_to_the_largest_id_plus_one(lowest, known):
    ids, labels, one = np.full((8, 5), lowest), np.arange(8) % 2, np.ones(1, np.float32)
    data = Dataset("ids", ids, labels, np.full((2, 5), 899), labels[:2], 2, one, one, "here")
    prepared = prepare(data, PARTITIONS["random"](), SHIFTS["none"](), Validation(), Nodes(clusters=(2,)), 0)
    assert prepared.num_tokens == known


def test_non_numeric_target_is_refused(tmp_path):
    with pytest.raises(ScenarioError, match=r"column y of .*t.csv for a regression, got 'NULL'"):
        table(tmp_path, "a,y\n1,3.4\n2,\n3,NULL\n4,1\n", label="y", task="regression", domain=None)

"""Partitions by a column of the data, and from a file."""

import numpy as np
import pytest
from typer.testing import CliRunner

from ddlsim.assembly import build_learner, build_simulation
from ddlsim.cli import app
from ddlsim.data import Dataset
from ddlsim.data.fixed_partitions import ByColumn, FromFile
from ddlsim.foundation.errors import ScenarioError
from ddlsim.runs import load_data, prepare
from ddlsim.runs.recorder import Recorder
from ddlsim.scenario import from_python, load

SPEAKERS = np.array(["ann", "bob", "cid", "ann", "dot", "bob", "ann", "eve"])


def spoken(columns=True, test=("ann", "bob", "cid", "dot", "eve")):
    x, y = np.zeros((8, 3), np.float32)[:, None, :, None], np.arange(8) % 2
    tests = np.array(test)
    by_split = {"speaker": {"train": SPEAKERS, "test": tests}} if columns else None
    zero = np.zeros(1, np.float32)
    return Dataset("plays", x, y, x[: len(tests)], y[: len(tests)], 2, zero, zero + 1, "plays.npz", columns=by_split)


def dealt(partition, nodes=2, data=None, pool=None):
    pool = np.arange(8) if pool is None else pool
    return partition.deal(data or spoken(), pool, np.zeros(nodes, np.int64), np.random.default_rng(1))


def test_column_gives_each_node_all_samples_of_its_values():
    own = dealt(ByColumn(column="speaker"))
    assert sorted(np.concatenate(own)) == list(range(8))
    assert not set(SPEAKERS[own[0]]) & set(SPEAKERS[own[1]]) and [len(set(SPEAKERS[each])) for each in own] == [3, 2]


def test_values_per_node_drops_the_remaining_values():
    assert [len(set(SPEAKERS[own])) for own in dealt(ByColumn(column="speaker", values_per_node=2))] == [2, 2]


def test_values_with_few_samples_are_left_out():
    own = dealt(ByColumn(column="speaker", min_samples=2))
    assert {name for each in own for name in SPEAKERS[each]} == {"ann", "bob"}


def test_test_samples_of_a_node_have_its_values():
    partition, data = ByColumn(column="speaker", own_test=True), spoken()
    own = dealt(partition, data=data)
    tests = partition.deal_test(data, np.arange(5), own, np.zeros(2, np.int64), np.random.default_rng(2))
    for train, test in zip(own, tests, strict=True):
        assert set(data.columns["speaker"]["test"][test]) == set(SPEAKERS[train])


@pytest.mark.parametrize(
    ("partition", "data", "text"),
    [
        (ByColumn(column="author"), None, r"plays.npz has no column author of train samples, it has speaker"),
        (
            ByColumn(column="speaker"),
            spoken(columns=False),
            r"no column speaker of train samples, it has none.*speaker_train",
        ),
        (ByColumn(column="speaker", values_per_node=3), None, r"expected 6 values .* 3 per node, got 5"),
        (ByColumn(column="speaker", min_samples=3), None, r"expected 2 values .* at least 3 samples.* got 1"),
    ],
)
def test_unsuitable_column_is_reported(partition, data, text):
    with pytest.raises(ScenarioError, match=text):
        dealt(partition, data=data)


def test_samples_without_a_value_in_the_column_are_refused():
    data = spoken()
    data.columns["speaker"]["train"] = np.where(SPEAKERS == "ann", "", SPEAKERS)
    missing = np.count_nonzero(SPEAKERS == "ann")
    with pytest.raises(
        ScenarioError, match=rf"column: {missing} training samples have no value in column speaker\. Fill"
    ):
        dealt(ByColumn(column="speaker"), data=data)


def test_a_node_without_test_samples_of_its_values_is_reported():
    partition, data = ByColumn(column="speaker", own_test=True), spoken(test=("ann",))
    own = dealt(partition, data=data)
    with pytest.raises(ScenarioError, match=r"test samples of node [01]'s .* got none"):
        partition.deal_test(data, np.arange(1), own, np.zeros(2, np.int64), np.random.default_rng(2))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("p.json", "[[0, 2], [1, 7, 3]]"),
        ("p.json", '{"1": [1, 7, 3], "0": [0, 2]}'),
        ("p.json", '{"train": [[0, 2], [1, 7, 3]]}'),
        ("p.npz", {"0": [0, 2], "1": [1, 7, 3]}),
        ("p.npz", {"train_0": [0, 2], "train_1": [1, 7, 3]}),
    ],
)
def test_file_assigns_samples_to_nodes(tmp_path, name, content):
    path = tmp_path / name
    path.write_text(content) if isinstance(content, str) else np.savez(path, **content)
    partition = FromFile(path=str(path))
    assert [own.tolist() for own in dealt(partition)] == [[0, 2], [1, 7, 3]]
    without = dealt(partition, pool=np.array([0, 1, 3]))  # the others are held out
    assert [own.tolist() for own in without] == [[0], [1, 3]]


def test_file_lists_samples_by_node_id_for_any_clusters(tmp_path):
    (tmp_path / "p.json").write_text("[[0], [1], [2], [3]]")
    partition, node_cluster = FromFile(path=str(tmp_path / "p.json")), np.array([1, 0, 1, 0])
    own = partition.deal(spoken(), np.arange(8), node_cluster, np.random.default_rng(0))
    assert [each.tolist() for each in own] == [[0], [1], [2], [3]]


def test_partition_file_may_list_test_samples(tmp_path):
    (tmp_path / "p.json").write_text('{"train": [[0], [1]], "test": [[4], [0, 1]]}')
    partition = FromFile(path=str(tmp_path / "p.json"))
    tests = partition.deal_test(spoken(), np.arange(5), [], np.zeros(2, np.int64), np.random.default_rng(0))
    assert [own.tolist() for own in tests] == [[4], [0, 1]]


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("[[0]]", r"p.json: .* nodes 0..1, differs at 1\. Change the file or nodes.clusters"),
        ('{"0": [0], "1": [1], "7": [2]}', "differs at 7"),
        ("[[0], [8]]", r"node 1: expected indices \[M\] of 0 to 7, got 8"),
        ("[[0], [-1]]", "got -1"),
        ("[[0], [1, 1]]", "node 1 has 1 twice"),
        ("[[0], [0.5]]", r"node 1: expected indices \[M\] of 0 to 7, got float64"),
        ("[[0], [[1], [2, 3]]]", r"node 1: expected indices \[M\] of 0 to 7, got float64"),
        ("7", "expected a list of indices for each of the nodes"),
        ("[[0]", "cannot be read as JSON"),
        ('{"train": [[0], [1]], "Test": [[1], [0]]}', "p.json: expected train and test only, got Test"),
        ('{"train": [[0], [1]], "validation": [[2], [3]]}', "p.json: expected train and test only, got validation"),
    ],
)
def test_invalid_partition_file_is_reported(tmp_path, content, text):
    (tmp_path / "p.json").write_text(content)
    with pytest.raises(ScenarioError, match=text):
        dealt(FromFile(path=str(tmp_path / "p.json")))


def test_missing_partition_file_is_reported_before_data_is_read():
    with pytest.raises(ScenarioError, match=r"partition.path: no file nowhere.json \(looked in"):
        load("scenarios/smoke.yaml", ["partition={name: file, path: nowhere.json}"])


def scenario_of(partition, seed, **more):
    return from_python("smoke", {"partition": partition, "seed": seed, **more})


def test_partition_seed_fixes_the_split_while_initial_models_vary():
    fixed = {"name": "dirichlet", "alpha": 0.5, "seed": 7}
    first, second = (scenario_of(fixed, seed, **{"nodes.placement": "shuffled"}) for seed in (0, 1))
    splits = [prepare(load_data(each)) for each in (first, second)]
    assert splits[0].about["dealt"] == splits[1].about["dealt"]
    models = []
    for scenario, data in zip((first, second), splits, strict=True):
        learner = build_learner(scenario, data, "cpu")
        node = build_simulation(scenario, data, learner, Recorder()).members[0].node
        ((model,),) = node.init_models(whole=True)
        models.append(model.values())
    assert models[0].ne(models[1]).any()
    other = prepare(load_data(scenario_of({**fixed, "seed": None}, 1)))
    assert other.about["dealt"] != splits[0].about["dealt"]


@pytest.mark.parametrize("validation", ["none", "train", "node"])
def test_exported_split_is_the_same_split_when_loaded(validation, tmp_path):
    about = {"validation": {"source": validation, "fraction": 0.2}}
    drawn = scenario_of({"name": "dirichlet", "alpha": 0.5}, 3, **about)
    arguments = ["smoke", "-o", str(tmp_path / "split.json"), "--set", f"validation.source={validation}"]
    arguments += ["--set", "validation.fraction=0.2", "--set", "seed=3"]
    done = CliRunner().invoke(app, ["data", "split", *arguments, "--set", "partition={name: dirichlet, alpha: 0.5}"])
    assert done.exit_code == 0, done.output
    loaded = scenario_of({"name": "file", "path": str(tmp_path / "split.json")}, 3, **about)
    assert prepare(load_data(loaded)).about["dealt"] == prepare(load_data(drawn)).about["dealt"]

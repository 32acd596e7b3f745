"""The texts that users read, word for word."""

from dataclasses import fields

import pytest

from ddlsim.foundation.errors import ScenarioError, did_you_mean
from ddlsim.scenario import json_schema, load
from ddlsim.scenario.parts import TABLES, table
from ddlsim.scenario.synonyms import KEYS, NAMES

BAD = """\
rounds: 0
nodes: {clusters: [30, two]}
algorithm:
  name: facade
  headz: 2                # typo
  heads: "10"
  variant: cod
model: {name: mpl}
data: {name: cifar10}
lerning_rate: 0.1
training: {batch_size: 8.5, learning_rate: "1e-3"}
topology: {name: random_regular, degree: four}
"""

TOLD = """\
bad.yaml:1:9: rounds: expected a number of at least 1, got 0
     1 | rounds: 0
       |         ^
bad.yaml:2:24: nodes.clusters[1]: expected a whole number, got 'two'
     2 | nodes: {clusters: [30, two]}
       |                        ^
bad.yaml:5:3: algorithm.headz: unknown key 'headz'. Did you mean 'heads'? Allowed here: name, \
final_all_reduce, heads, warmup_rounds, variant, evaluation_head, common_batches, selection_batches, thorough_every, \
thorough_takes_time
     5 |   headz: 2                # typo
       |   ^
bad.yaml:6:10: algorithm.heads: expected a whole number, got '10'. Write it without quotes.
     6 |   heads: "10"
       |          ^
bad.yaml:7:12: algorithm.variant: expected one of paper, code, got 'cod'. Did you mean 'code'?
     7 |   variant: cod
       |            ^
"""


def test_all_errors_are_reported_at_once_with_their_places(here):
    (here / "bad.yaml").write_text(BAD)
    with pytest.raises(ScenarioError) as caught:
        load("bad.yaml")
    text = str(caught.value)
    assert text.startswith(TOLD)
    for place in (
        "8:15: model.name: unknown name 'mpl'. Did you mean 'mlp'? Known: gn_lenet,",
        "10:1: lerning_rate: unknown key 'lerning_rate'.",
        "11:24: training.batch_size: expected a whole number, got 8.5",
        "11:44: training.learning_rate: expected a number, got '1e-3'. Write it without quotes.",
        "12:42: topology.degree: expected a whole number, got 'four'",
    ):
        assert f"\nbad.yaml:{place}" in text


def test_error_in_an_option_names_the_option(problems):
    number, name = problems(sets=["algorithm.name=facad", "rounds=x"])
    assert number == "--set rounds=x: rounds: expected a whole number, got 'x'"
    assert name.startswith(
        "--set algorithm.name=facad: algorithm.name: unknown name 'facad'. Did you mean 'facade'? Known: facade, el,"
    )


@pytest.mark.parametrize("key", ["local_steps", "early_stopping"])  # the second is near `learning`
def test_key_of_another_section_is_reported_with_its_section(problems, key):
    (message,) = problems(more=f"{key}: 3\n")
    assert message.startswith(f"test.yaml:7:1: {key}: unknown key {key!r}. It belongs under 'training'.")


def test_all_repeated_keys_are_reported(problems):
    assert problems("rounds: 1\nrounds: 2\nnodes:\n  clusters: [1]\n  clusters: [2]\n") == [
        "test.yaml:2:1: rounds: key 'rounds' is written twice, first in line 1",
        "test.yaml:5:3: nodes.clusters: key 'clusters' is written twice, first in line 4",
    ]


def test_bad_yaml_has_a_place(problems):
    (message,) = problems("rounds: [1, 2\nnodes: 3\n")
    assert message.startswith("test.yaml:2:6: not valid YAML: while parsing a flow sequence")


@pytest.mark.parametrize("text", ["- a\n", "hello\n"])
def test_top_level_must_be_a_mapping(problems, text):
    assert problems(text) == ["test.yaml:1:1: expected a mapping (key: value) at the top level"]


def test_missing_keys_are_named_where_they_belong(problems):
    message = problems("rounds: 3\nnodes: {}\nalgorithm: {heads: 2}\nmodel: {name: mlp}\ndata: {name: npz}\n")
    assert "test.yaml:2:1: nodes.clusters: required key 'clusters' is missing" in message
    place = "test.yaml:3:1: algorithm.name"
    assert any(one.startswith(f"{place}: required key 'name' is missing. Known names: facade, el,") for one in message)
    assert "test.yaml:5:1: data.path: required key 'path' is missing" in message
    assert "test.yaml:1:1: training.learning_rate: required key 'learning_rate' is missing" in message


def test_part_of_another_type_shows_how_it_is_written(problems):
    assert problems(more="topology: 4\n") == [
        "test.yaml:7:11: topology: expected a name, such as random_regular, or a mapping, "
        "such as {name: random_regular}, got 4"
    ]


@pytest.mark.parametrize(
    ("changes", "hint"),
    [
        (["algorithm=push_sum"], " Did you mean 'sgp'? Known:"),
        (["training.eta=0.1"], " Did you mean 'training.learning_rate'? Allowed"),
        (["dropout=0.2"], " Did you mean 'participation' or 'churn'? Allowed"),
    ],
)
def test_suggestions_are_close_in_meaning(problems, changes, hint):
    (message,) = problems(sets=changes)
    assert hint in message
    assert did_you_mean("diloco", ["local", "dac"]) == ""


def test_suggested_words_are_names_and_keys():
    tables = {table(key).kind: table(key) for key in TABLES}
    assert all(name in tables[kind] for kind, words in NAMES.items() for name in words.values())
    keys = json_schema()["properties"]
    parts = {"algorithm": {field.name for field in fields(tables["algorithm"]["fedavg"])}}
    for path in (key.split(".") for meant in KEYS.values() for key in meant):
        allowed = {"name"} | parts.get(path[0], set()) | keys[path[0]].get("properties", {}).keys()
        assert len(path) == 1 or path[1] in allowed


def test_error_of_a_list_names_only_the_bad_entry(problems):
    assert problems(more="shift: {name: rotate, degrees: [0, a]}\n") == [
        "test.yaml:7:36: shift.degrees[1]: expected a number, got 'a'"
    ]


def test_error_names_both_allowed_types(problems):
    assert problems(more="topology: {name: torus, rows: many}\n") == [
        "test.yaml:7:31: topology.rows: expected a whole number or auto, got 'many'"
    ]


def test_unknown_key_inside_a_list_entry_is_reported(problems):
    message = problems(more="churn: {name: schedule, offline: [{node: 1, start_s: 2, end_s: 3, ned_s: 4}]}\n")
    assert message == [
        "test.yaml:7:67: churn.offline[0].ned_s: unknown key 'ned_s'. Did you mean 'end_s'? "
        "Allowed here: node, start_s, end_s"
    ]


def test_yes_and_nan_are_refused(problems):
    assert problems(more="topology: {dynamic: yes}\n") == [
        "test.yaml:7:21: topology.dynamic: expected true or false, got 'yes'"
    ]
    assert problems(sets=["training.learning_rate=.nan"]) == [
        "--set training.learning_rate=.nan: training.learning_rate: expected a number, got .nan"
    ]


@pytest.mark.parametrize("text", ["rounds", "=3", "a..b=1"])
def test_override_without_key_or_value_is_an_error(problems, text):
    assert problems(sets=[text]) == [f"--set {text}: expected KEY=VALUE, e.g. --set algorithm.heads=3"]


def test_name_leaving_the_run_folder_is_refused(problems):
    (message,) = problems(sets=["name=../../etc"])
    assert "letters, digits" in message


def test_missing_file_suggests_a_similar_name(here):
    (here / "scenarios").mkdir()
    (here / "scenarios" / "smoke_test.yaml").write_text("rounds: 1\n")
    with pytest.raises(ScenarioError, match=r"smoke_tset: no such file.*Did you mean 'smoke_test'\?"):
        load("smoke_tset")


def test_binary_file_is_refused(here):
    (here / "binary.yaml").write_bytes(b"rounds: \xff\xfe")
    with pytest.raises(ScenarioError, match=r"binary.yaml: is not UTF-8 text \(byte 8\)"):
        load("binary.yaml")


def test_an_empty_file_is_one_error(problems):
    assert problems("# nothing\n") == ["test.yaml:1:1: expected a mapping (key: value) at the top level, got nothing"]


@pytest.mark.full
def test_too_deep_nesting_is_an_error(problems):
    assert problems(f"rounds: {'[' * 3000}{']' * 3000}\n") == ["test.yaml:1:1: lists or mappings are nested too deeply"]


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("algorithm={name: el, name: facade}", "algorithm.name: key 'name' is written twice"),
        ("rounds=&a [*a]", "lists or mappings are nested too deeply"),
    ],
)
def test_error_in_an_option_names_the_whole_path(problems, option, message):
    assert problems(sets=[option]) == [f"--set {option}: {message}"]


@pytest.mark.parametrize(
    "key",
    [
        "network.links.latency_ms",
        "network.links.uplink_mbps",
        "network.server_mbps",
        "devices.step_time_s",
        "protocol.deadline_s",
        "training.learning_rate",
        "nodes.clusters",
        "evaluation.target_mse",
    ],
)
def test_infinity_is_refused(problems, key):
    (message,) = problems(more="devices: {name: constant}", sets=[f"{key}=.inf"])
    assert message.startswith(f"--set {key}=.inf: {key}: expected ") and message.endswith(", got .inf")


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("network.links.latency_ms=1e9", "network.links.latency_ms: expected a number below 1e+09, got 1000000000.0"),
        (
            "network.header_bytes=2000000000000",
            "network.header_bytes: expected a number below 1.09951e+12, got 2000000",
        ),
        ("devices.step_time_s=1e9", "devices.step_time_s: expected a number below 1e+09, got 1000000000.0"),
        (
            "devices={name: lognormal, median_step_time_s: 0.05, sigma: 100}",
            "devices.sigma: expected steps below 1e+09 s, got one of e^",
        ),
    ],
)
def test_times_beyond_the_clock_are_refused(problems, option, message):
    (found,) = problems(more="devices: {name: constant}", sets=[option])
    assert found.startswith(f"--set {option}: {message}")


def test_only_an_absence_may_end_at_infinity(write):
    offline = "churn={name: schedule, offline: [{node: 1, start_s: 2, end_s: .inf}]}"
    assert load(write(), [offline]).churn.absences(8, 0) == {1: [(2, float("inf"))]}


@pytest.mark.parametrize("text", ['description: "\\U00110000"\n', 'description: "\\UFFFFFFFF"\n'])
def test_invalid_escape_is_bad_yaml(problems, text):
    (message,) = problems(text)
    assert message.startswith("test.yaml:1:1: not valid YAML: an escape")


def test_invalid_escape_in_an_option_is_bad_yaml(problems):
    (message,) = problems(sets=['description="\\U00110000"'])
    assert message.startswith("--set description=") and "not valid YAML: an escape" in message


@pytest.mark.full
@pytest.mark.parametrize("text", ["rounds: {}\n", "{}: 1\n", "rounds: [{}]\n", "rounds: 0 # {}\n"])
def test_a_line_of_a_megabyte_is_not_echoed(here, text):
    (here / "test.yaml").write_text(text.format("x" * 1_000_000))
    with pytest.raises(ScenarioError) as caught:
        load("test.yaml")
    assert all(len(str(problem)) < 2500 for problem in caught.value.problems)


def test_an_option_of_a_megabyte_is_not_echoed(here):
    with pytest.raises(ScenarioError) as caught:
        load("smoke", ["rounds=" + "x" * 1_000_000])
    assert all(len(str(problem)) < 2500 for problem in caught.value.problems)

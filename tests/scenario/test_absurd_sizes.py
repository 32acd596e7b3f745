"""Impossible sizes are one clear error before the run."""

from itertools import pairwise

import pytest
from typer.testing import CliRunner

from ddlsim.cli import app
from ddlsim.scenario import load

HUGE = 10**26
RUNNER = CliRunner()


def alias_bomb(levels: int) -> str:
    """Return a mapping whose entries refer to the previous entry nine times each."""
    names = "abcdefghijklmnop"[:levels]
    lines = [f"{names[0]}: &{names[0]} [{', '.join(['x'] * 9)}]"]
    for below, name in pairwise(names):
        lines.append(f"{name}: &{name} [{', '.join([f'*{below}'] * 9)}]")
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("words", [["check"], ["run"]])
def test_an_alias_bomb_ends_at_once(write, words):
    done = RUNNER.invoke(app, [*words, write(more=alias_bomb(9))])
    assert done.exit_code == 2
    assert "test.yaml:1:1: aliases (*name) stand for more than 100,000 values; write the values out" in done.output


def test_an_alias_bomb_among_the_scenarios_does_not_stop_the_list(here):
    (here / "scenarios").mkdir()
    (here / "scenarios" / "bomb.yaml").write_text(alias_bomb(9))
    done = RUNNER.invoke(app, ["list", "scenarios"])
    assert done.exit_code == 0
    assert "cannot be read" in done.output


@pytest.mark.full
def test_an_alias_bomb_of_merge_keys_and_in_an_option(problems):
    lines = [f"{name}: &{name} {{<<: [{', '.join([f'*{below}'] * 9)}]}}" for below, name in pairwise("abcdefghi")]
    (message,) = problems("\n".join(["a: &a {x: 1}", *lines]) + "\n")
    assert message.startswith("test.yaml:1:1: aliases (*name) stand for more than 100,000 values")
    bomb = "&a [x, x]"
    for level in "bcdefghijklmnopqrst":
        bomb = f"&{level} [{bomb}, *{chr(ord(level) - 1)}]"
    (message,) = problems(sets=[f"paper={{x: {bomb}}}"])
    assert "aliases (*name) stand for more than 100,000 values" in message


def test_ordinary_anchors_still_work(write):
    text = """
        paper:
          cells: {a: &cell {mean: 1.0, std: 0.5}, b: *cell, c: {<<: *cell, mean: 2.0}}
          many: [&one [1, 2, 3], *one, *one, *one, *one, *one, *one, *one, *one, *one, *one, *one]
    """
    paper = load(write(more=text)).paper
    assert paper["cells"]["c"] == {"mean": 2.0, "std": 0.5}
    assert paper["many"] == [[1, 2, 3]] * 12


def test_too_deep_aliases_are_an_error(problems):
    chain = "b0: &b0 [1]\n" + "".join(f"b{i}: &b{i} [*b{i - 1}]\n" for i in range(1, 3000))
    (message,) = problems(chain)
    assert message.endswith(": lists or mappings are nested too deeply")


@pytest.mark.parametrize("depth", [110, 150, 300, 600])
def test_depth_accepted_by_the_parser_is_an_error(problems, depth):
    (message,) = problems(more=f"paper: {{x: {'[' * depth}{']' * depth}}}\n")
    assert message.endswith(": lists or mappings are nested too deeply")


@pytest.mark.parametrize("value", ["!!int foo", "!!float foo", "!!bool foo", "!!int ''", "!!int 3.5", "1" * 5000])
def test_scalars_incompatible_with_their_tag_are_errors(problems, value):
    (message,) = problems(more=f"seed: {value}\n")
    assert message.startswith("test.yaml:7:7: seed: cannot be read as ")
    assert len(message) < 200


@pytest.mark.parametrize("value", ["{<<: 3}", "{<<: [3]}"])
def test_a_merge_key_takes_mappings(problems, value):
    assert problems(more=f"paper: {value}\n") == ["test.yaml:7:9: paper: << takes a mapping, or a list of mappings"]


@pytest.mark.parametrize(
    "option",
    [
        "rounds",
        "evaluation.every",
        "evaluation.batch_size",
        "training.batch_size",
        "training.local_steps",
        "training.epochs",
        "training.early_stopping.patience",
        "algorithm.heads",
        "algorithm.warmup_rounds",
        "algorithm.selection_batches",
        "topology.degree",
        "partition.samples_per_node",
    ],
)
@pytest.mark.parametrize("value", [HUGE, 2**63, 2 * 10**9])
def test_counts_have_a_bound(problems, option, value):
    (message,) = problems(sets=[f"{option}={value}"])
    assert message.startswith(f"--set {option}={value}: {option}: expected a number of at most 1")


@pytest.mark.parametrize(
    "option",
    [
        "model={{name: mlp, hidden: [{}]}}",
        "model={{name: resnet18, latent: {}}}",
        "algorithm={{name: el, fanout: {}}}",
        "algorithm={{name: pens, stage1_rounds: {}}}",
        "partition={{name: shards, shards_per_node: {}}}",
        "shift={{name: label_shift, offsets: [0, {}]}}",
        "data={{name: imagenette, size: {}}}",
        "data={{name: synthetic_regression, features: {}}}",
        "topology={{name: torus, rows: {}}}",
        "algorithm={{name: mapl, projection_units: {}}}",
    ],
)
def test_counts_of_named_parts_have_a_bound(problems, option):
    assert any("expected a number of at most 1" in message for message in problems(sets=[option.format(HUGE)]))


@pytest.mark.parametrize(
    ("option", "bound"),
    [
        ("protocol.deadline_s=2e299", "9e+09"),
        ("network.links={name: uniform, uplink_mbps: 1e12, downlink_mbps: 1e12, latency_ms: 1}", "5e+08"),
    ],
)
def test_times_and_rates_have_a_bound(problems, option, bound):
    assert all(f"expected a number below {bound}" in message for message in problems(sets=[option]))


def test_a_size_on_the_wire_has_a_bound(problems):
    (message,) = problems(sets=["learning=none", f"model={{name: sizes, core: {HUGE}}}"])
    assert "model.core: expected a number below 1.09951e+12" in message


@pytest.mark.parametrize("clusters", [f"[{HUGE}]", "[1000000000]", "[6000000, 6000000]"])
def test_nodes_have_a_bound(problems, clusters):
    (message,) = problems(sets=[f"nodes.clusters={clusters}"])
    assert "nodes.clusters" in message and "expected a" in message and "at most 1" in message


@pytest.mark.parametrize("clusters", ["[0]", "[x]", "[-3]"])
def test_list_with_one_wrong_entry_is_not_reported_as_empty(problems, clusters):
    (message,) = problems(sets=[f"nodes.clusters={clusters}"])
    assert ": nodes.clusters[0]: expected a " in message


def test_a_million_nodes_are_not_too_many(write):
    settings = ["nodes.clusters=[1000000]", "topology={name: ring}", "learning=none"]  # no data has a million samples
    assert load(write(), settings).nodes.count == 10**6


def test_lack_of_memory_is_reported_with_a_remedy(write, monkeypatch):
    from ddlsim import runs

    def no_memory(*_, **__):
        raise MemoryError("Unable to allocate 8.00 PiB")

    monkeypatch.setattr(runs, "run_in_directory", no_memory)
    done = RUNNER.invoke(app, ["run", write()])
    assert done.exit_code == 1
    assert "not enough memory; fewer nodes, a smaller model or smaller batches need less" in done.output
    assert "8.00 PiB" in done.output

import pytest

from ddlsim.foundation.errors import ScenarioError
from ddlsim.runs.reproduce.matrix import read_matrix, runs_of
from ddlsim.scenario import ScenarioProblems, load


@pytest.fixture
def problems(write):
    def problems(*changes):
        with pytest.raises(ScenarioProblems) as caught:
            read_matrix(write(*changes))
        return [str(problem).partition("\n")[0] for problem in caught.value.problems]

    return problems


def test_cell_is_the_common_scenario_with_its_axes_and_settings(write):
    slow, fast, alone = read_matrix(write()).cells
    assert [slow.name, fast.name, alone.name] == ["slow/ring", "fast/complete", "alone"]
    assert (slow.scenario.training.learning_rate, slow.scenario.training.local_steps) == (0.0001, 2)
    assert (fast.scenario.training.learning_rate, fast.scenario.training.local_steps) == (0.003, 1)
    assert type(fast.scenario.topology).__name__ == "Complete" and type(slow.scenario.topology).__name__ == "Ring"
    assert {cell.scenario.rounds for cell in (slow, fast, alone)} == {3}
    assert alone.scenario.algorithm_name == "el" and slow.scenario.algorithm_name == "dpsgd"


def test_names_seeds_and_published_numbers(write):
    matrix = read_matrix(write())
    slow, fast, alone = matrix.cells
    assert (matrix.name, matrix.content.source, matrix.metric) == ("tiny", "Table 1", "mse")
    assert (slow.scenario.name, slow.seeds, slow.scenario.seed) == ("tiny-slow-ring", (1, 2), 1)
    assert (alone.seeds, alone.scenario.seed, alone.published) == ((7,), 7, None)
    assert slow.published.clusters == (8000.0, 9500.0)
    assert fast.published.std is None and fast.content.note == "one step"


def test_overrides_apply_to_every_cell(write):
    matrix = read_matrix(write(), ["rounds=1", "training.learning_rate=0.5"])
    assert {(c.scenario.rounds, c.scenario.training.learning_rate) for c in matrix.cells} == {(1, 0.5)}
    assert matrix.overrides == ("rounds=1", "training.learning_rate=0.5")
    with pytest.raises(ScenarioError, match="--set seed=5: a matrix has its own seeds; --seeds takes the first"):
        read_matrix("tiny.yaml", ["seed=5"])


@pytest.mark.parametrize(
    "old, new, problem",
    [
        ("source: Table 1", "sauce: Table 1", "tiny.yaml:2:1: sauce: unknown key 'sauce'. Did you mean 'source'?"),
        ("seeds: [1, 2]", "seeds: []", "tiny.yaml:4:8: seeds: expected a list of at least 1 entries, got []"),
        ("std: 100.0", "std: -1", "tiny.yaml:14:46: cells.slow/ring.published.std: expected a number of at least 0"),
        ("mean: 9000.0, ", "means: 9000.0, ", "tiny.yaml:14:27: cells.slow/ring.published.means: unknown key 'means'."),
        ("note: one step", "notes: one step", "tiny.yaml:18:5: cells.fast/complete.notes: unknown key 'notes'."),
        ("slow/ring:", "slow/rink:", "tiny.yaml:14:3: cells.slow/rink: no remaining axis has the value 'rink'."),
        ("slow/ring:", "slow/fast:", "tiny.yaml:14:3: cells.slow/fast: no remaining axis has the value 'fast'."),
        ("clusters: [8000.0, 9500.0]", "clusters: [1.0]", "tiny.yaml:14:63: cells.slow/ring.published.clusters"),
        ("{training: {learning_rate: 0.0001}}", "{training: {rate: 1}}", "tiny.yaml:8:23: training.rate: unknown key"),
        ("local_steps: 1", "local_steps: 0", "tiny.yaml:16:40: training.local_steps: expected a number of at least 1"),
        ("seeds: [1, 2]", "seeds: [1, 1]", "tiny.yaml:4:8: seeds: expected every seed once, got [1, 1]"),
        (
            "seeds: [1, 2]",
            "shapes: [{claim: a}]\nseeds: [1, 2]",
            "tiny.yaml:4:10: shapes[0]: expected either order or near",
        ),
        (
            "seeds: [1, 2]",
            "shapes: [{claim: a, order: [alone, slow/rink]}]\nseeds: [1, 2]",
            "tiny.yaml:4:10: shapes[0]: no cell is named 'slow/rink'. Did you mean 'slow/ring'?",
        ),
        (
            "seeds: [1, 2]",
            "shapes: [{claim: a, order: [alone, slow/ring], of: 2}]\nseeds: [1, 2]",
            "tiny.yaml:4:10: shapes[0]: of: 2: alone has the clusters 0..1",
        ),
        ("base.yaml", "none.yaml", "tiny.yaml:5:21: extends: no file none.yaml"),
    ],
)
def test_errors_have_their_place(problems, old, new, problem):
    found = problems((old, new))
    assert any(one.startswith(problem) for one in found), found


def test_errors_of_all_cells_are_reported_together(problems):
    found = problems(("local_steps: 1", "local_steps: 0"), ("{name: el}", "{name: ell}"))
    assert len(found) == 2 and "cells" not in found[0] and "unknown name 'ell'" in found[1]


def test_fault_of_the_base_is_reported_once(problems):
    assert len(problems(("rounds: 3", "rounds: 0"))) == 1


def test_matrix_and_scenario_are_distinguished(write):
    with pytest.raises(ScenarioError, match=r"holds a matrix of scenarios.*ddlsim reproduce tiny.yaml"):
        load(write())
    with pytest.raises(ScenarioError, match=r"base\.yaml: is not a matrix.*ddlsim run base\.yaml"):
        read_matrix("base.yaml")


def test_tasks_are_not_mixed_in_one_table(write):
    other = "{data: {name: fashion-mnist-mini}, partition: {name: random}}"
    with pytest.raises(ScenarioError, match="judged by one metric, these by accuracy and mse"):
        read_matrix(write(("{algorithm: {name: el}}", other)))


def test_overrides_apply_only_to_selected_cells(write):
    matrix = read_matrix(write(), ["algorithm.fanout=2"], ["al*"])  # a key that only EL has
    assert matrix.cells[2].scenario.algorithm.fanout == 2
    with pytest.raises(ScenarioError, match="unknown key 'fanout'"):
        read_matrix("tiny.yaml", ["algorithm.fanout=2"])


def test_axes_of_keys_serve_tables_too(write):
    keys = ("axes:\n", "axes:\n  training.local_steps: [4, 5]\n")
    cell = ("  alone:", "  5/fast: {published: {mean: 1.0}}\n  alone:")
    found = read_matrix(write(keys, cell)).cells[2]
    assert (found.name, found.scenario.training.local_steps, found.scenario.training.learning_rate) == (
        "5/fast",
        5,
        0.003,
    )
    assert found.settings["training"] == {"learning_rate": 0.003, "local_steps": 5}


def test_cells_of_one_directory_are_refused(write, tmp_path):
    with pytest.raises(ScenarioError, match=r"would share the directory .*: 'slow/ring seed 1' and 'slow.ring seed 1'"):
        runs_of(read_matrix(write(("  alone:", "  slow+ring:"), ("seeds: [7]", "seeds: [1]"))), tmp_path)

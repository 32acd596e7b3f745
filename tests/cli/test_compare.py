"""ddlsim compare on the command line: what its options show, and what is said to wrong ones."""

import pytest
from typer.testing import CliRunner

import ddlsim
from ddlsim.cli import app


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A folder with two algorithms, two seeds each."""
    folder = tmp_path_factory.mktemp("runs")
    changes = {"rounds": 2, "evaluation.every": 1, "nodes.clusters": [2, 1], "topology": {"name": "ring"}}
    small = {**changes, "training.local_steps": 1, "model": {"name": "mlp", "hidden": [4]}}
    for algorithm in ("local", "dpsgd"):
        for seed in (0, 1):
            place = folder / algorithm / f"seed-{seed}"
            ddlsim.run("smoke", set=small, algorithm={"name": algorithm}, seed=seed, out=place)
    return folder


def compare(*words):
    done = CliRunner().invoke(app, ["compare", *map(str, words)])
    return done.exit_code, done.stdout, done.stderr


def test_every_line_option_draws_a_file(runs, tmp_path):
    pytest.importorskip("matplotlib")
    for number, (words, bands) in enumerate(
        [
            ([], 2),
            (["--x", "bytes", "--y", "minority"], 2),
            (["--band", "ci", "--at", "0.3"], 0),  # two seeds have no confidence band
            (["--x", "rounds", "--y", "fair_accuracy"], 2),
            (["--figure", "costs", "--at", "0.01"], 0),
        ]
    ):
        code, _, err = compare(runs, "--plot", tmp_path / f"{number}.svg", *words)
        assert code == 0, err
        text = (tmp_path / f"{number}.svg").read_text()
        assert text.count('id="FillBetween') == bands


def test_rows_are_grouped_and_the_cost_of_a_value_is_shown(runs):
    code, out, _ = compare(runs, "--group-by", "algorithm.name", "--at", "0.0001", "--y", "worst_node")
    assert code == 0 and "to target: worst_node at or above 0.01 %, on the line between evaluations" in out
    assert [line.split()[0] for line in out.splitlines()[4:6]] == ["dpsgd", "local"]
    narrow = CliRunner().invoke(app, ["compare", str(runs)], env={"COLUMNS": "60"}).stdout.splitlines()
    assert max(map(len, narrow[2 : narrow.index(next(line for line in narrow if line.startswith("all rows")))])) <= 60


@pytest.mark.parametrize("format", ["text", "csv", "markdown", "latex", "json"])
def test_every_format_names_both_algorithms(runs, format):
    code, out, _ = compare(runs, "--format", format)
    assert code == 0 and "dpsgd" in out and "local" in out


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--group-by", "algorithm.nix"], "--group-by algorithm.nix: no run has this key."),
        (["--y", "nix", "--plot", "x.svg"], "--y nix: "),
        (["--y", "nix", "--at", "0.5"], "--y nix: "),
        (["--y", "nix"], "--y: has no effect on a table. Add --plot FILE."),
        (["--x", "bytes"], "--x: has no effect on a table."),
        (["--band", "ci"], "--band: has no effect on a table."),
        (["--figure", "costs"], "--figure: has no effect on a table."),
        (["--over", "seed", "-o", "x.html"], "--over: has no effect on a table."),
        (["--at", "70"], "compare: at 70: expected a share, 0 to 1, of accuracy. Write 0.7 for 70 %."),
    ],
)
def test_wrong_options_are_one_clear_error(runs, words, text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, _, err = compare(runs, *words)
    assert code == 2 and text in err and not (tmp_path / "x.svg").exists()


def test_comparison_writes_a_page_and_a_table(runs, tmp_path):
    page = tmp_path / "new" / "page.html"
    code, out, err = compare(runs, "--format", "csv", "-o", page, "--x", "bytes", "--at", "0.3")
    assert code == 0 and out.startswith("scenario,") and err == f"{page}: the comparison as a page\n"
    assert "4 runs · smoke" in page.read_text()


def test_unwritable_page_is_one_clear_error(runs, tmp_path):
    (tmp_path / "file").write_text("")
    code, _, err = compare(runs, "-o", tmp_path / "file" / "page.html")
    assert code == 2 and "-o: expected to write to" in err and "Name another path." in err


def test_report_of_several_runs_names_the_compare_command(runs, tmp_path):
    done = CliRunner().invoke(app, ["report", str(runs), "-o", str(tmp_path / "page.html")])
    assert done.exit_code == 2 and "`ddlsim compare RUNS -o FILE`" in done.stderr

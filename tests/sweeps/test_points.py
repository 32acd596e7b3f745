"""Sweeps: their runs, reuse of finished runs, and failed runs."""

import re
import shlex
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ddlsim import runs
from ddlsim.cli import app
from ddlsim.foundation.errors import ScenarioError
from ddlsim.runs.sweeps import pool
from ddlsim.runs.sweeps.axes import parse_grid, parse_seeds
from ddlsim.runs.sweeps.points import Base, points, read_sweep
from ddlsim.scenario import load
from ddlsim.scenario.load import read_tree

pytestmark = pytest.mark.usefixtures("forked_runs")

BASE = """\
rounds: 1
learning: none
topology: {name: ring}
nodes: {clusters: [2, 2]}
algorithm: {name: el}
model: {name: linear}
data: {name: fashion-mnist-mini}
training: {learning_rate: 0.1, local_steps: 1}
"""
SWEEP = """\
scenario: {extends: base.yaml}
seeds: [0, 1]
axes:
  topology.name: [ring, complete]
  length:
    short: {rounds: 1}
    long: {rounds: 2, training: {local_steps: 3}}
"""


@pytest.fixture
def ddlsim(tmp_path, monkeypatch):
    """Return a function that runs a command line in a folder with base.yaml and sweep.yaml."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "base.yaml").write_text(BASE)
    (tmp_path / "sweep.yaml").write_text(SWEEP)
    return lambda *words: CliRunner().invoke(app, [str(word) for word in words])


@pytest.fixture
def started(monkeypatch):
    """Run the pool's jobs in this process; return their arguments."""
    calls = []

    def run_jobs(jobs, at_once=1):
        for job in jobs:
            calls.append(job.words)
            done = CliRunner().invoke(app, list(job.words))
            yield pool.Ended(job.name, done.exit_code, done.stderr.strip())

    monkeypatch.setattr(pool, "run_jobs", run_jobs)
    return calls


@pytest.mark.parametrize(
    ("text", "seeds"), [("3", (3,)), ("0..2", (0, 1, 2)), ("0,5,2", (0, 5, 2)), ("0..1,7,1", (0, 1, 7))]
)
def test_seeds_are_numbers_and_ranges(text, seeds):
    assert parse_seeds(text) == seeds


@pytest.mark.parametrize("text", ["", "a", "2..0", "0..", "-1", "0..999999999"])
def test_invalid_seeds_are_refused(text):
    with pytest.raises(ScenarioError, match=r"expected 0\.\.4 or 0,2,7"):
        parse_seeds(text)


def test_values_of_a_grid_are_yaml():
    values = parse_grid("algorithm={name: facade, heads: 2},{name: el}")
    assert [value.label for value in values] == ["algorithm=facade-heads=2", "algorithm=el"]
    assert [value.option for value in parse_grid("seed=1,2")] == ["seed=1", "seed=2"]
    assert [value.option for value in parse_grid("topology.name=ring,'null'")] == [
        "topology.name=ring",
        'topology.name="null"',
    ]


NETS = """\
from torch import nn


class Net(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(784, width), nn.ReLU(), nn.Linear(width, 10))

    def forward(self, x):
        return self.layers(x)
"""


@pytest.mark.parametrize("above", ["./", "../../", "../../../"])
def test_slash_in_a_name_makes_no_directory(tmp_path, monkeypatch, above):
    here = tmp_path / "one" / "two" / "three"
    here.mkdir(parents=True)
    (here / "base.yaml").write_text(BASE)
    monkeypatch.chdir(here)
    (here / above / "parts.py").write_text(NETS)
    axes = [parse_grid("training.learning_rate=0.05,0.1"), parse_grid(f"model={{name: {above}parts.py:Net, width: 4}}")]
    found = points(Base("base", read_tree(here / "base.yaml"), (), Path("out")), axes, None)
    assert [point.refusal for point in found] == ["", ""]
    model = f"{above.replace('/', '-')}parts.py-Net-width=4"
    assert [point.directory.as_posix() for point in found] == [
        f"out/training.learning_rate={rate},model={model}/run" for rate in (0.05, 0.1)
    ]


def test_values_with_equal_directories_are_numbered():
    values = parse_grid("model={name: a/b.py:Net},{name: a-b.py:Net},{name: a-b.py:Net-1},{name: mlp, hidden: [4]}")
    assert [value.label for value in values] == [
        "model=a-b.py-Net-2",
        "model=a-b.py-Net-3",
        "model=a-b.py-Net-1",
        "model=mlp-hidden=4",
    ]
    long = "x" * 70
    assert [value.label[-3:] for value in parse_grid(f"description={long}1,{long}2")] == ["x-1", "x-2"]


def test_names_of_a_sweep_file_with_equal_directories_are_refused(ddlsim):
    Path("sweep.yaml").write_text(SWEEP.replace("short:", '"../length":').replace("long:", '"..-length":'))
    with pytest.raises(
        ScenarioError, match=r"share the directory .*ring,\.\.-length/seed-0: .*'topology.name=ring,\.\./length"
    ):
        read_sweep("sweep.yaml")
    Path("sweep.yaml").write_text(SWEEP.replace("  topology.name: [ring, complete]\n", "").replace("short:", '"..":'))
    assert [str(point.directory) for point in read_sweep("sweep.yaml", seeds=[0])] == [
        "runs/sweep-sweep/-/seed-0",
        "runs/sweep-sweep/long/seed-0",
    ]


@pytest.mark.parametrize(
    ("axes", "seeds"), [(["training.learning_rate=0.1,0.2", "training.learning_rate=0.3"], None), (["seed=1,2"], [0])]
)
def test_contradicting_axes_are_refused(ddlsim, axes, seeds):
    base = Base("base", read_tree(Path("base.yaml")), (), Path("out"))
    with pytest.raises(ScenarioError, match=r"runs of the sweep would be the same: '.*' and '.*'"):
        points(base, list(map(parse_grid, axes)), seeds)


def test_axis_of_whole_parts_keeps_the_keys_of_another_axis(ddlsim):
    base = Base("base", read_tree(Path("base.yaml")), (), Path("out"))
    found = points(base, list(map(parse_grid, ["algorithm.fanout=2,3", "algorithm={name: el}"])), None)
    assert [point.scenario.algorithm.fanout for point in found] == [2, 3]


def test_axis_of_parts_contradicting_another_axis_is_refused(ddlsim):
    kinds = "kind: {oracle: {algorithm: {name: el}}, local: {algorithm: {name: el, variant: local}}}"
    fans = "fan: {two: {algorithm: {fanout: 2}}, three: {algorithm: {fanout: 3}}}"
    head = "scenario: {extends: base.yaml}\naxes:\n"
    Path("sweep.yaml").write_text(f"{head}  {kinds}\n  {fans}\n")
    assert {point.scenario.algorithm.fanout for point in read_sweep("sweep.yaml")} == {2, 3}
    Path("sweep.yaml").write_text(f"{head}  {fans}\n  {kinds}\n")
    with pytest.raises(ScenarioError, match="would be the same: 'two,oracle' and 'three,oracle'"):
        read_sweep("sweep.yaml")


def test_part_changed_by_an_option_is_refused_in_an_axis(ddlsim):
    base = Base("base", read_tree(Path("base.yaml")), ("algorithm.fanout=2",), Path("out"))
    found = points(base, [parse_grid("algorithm={name: el, fanout: 3},{name: el, fanout: 2},{name: local}")], None)
    assert found[0].refusal.endswith("algorithm.fanout=2 overrides a part of it. Remove one of the two.")
    assert found[1].scenario.algorithm.fanout == 2
    assert "goes before" not in found[2].refusal


@pytest.mark.parametrize("text", ["rounds", "rounds=", "=1"])
def test_a_grid_without_key_or_values_is_refused(text):
    with pytest.raises(ScenarioError, match="expected KEY=VALUE,VALUE"):
        parse_grid(text)


def test_all_combinations_run_once_and_missing_runs_are_repeated(ddlsim, started, tmp_path):
    words = ("sweep", "base.yaml", "--grid", "topology.name=ring,complete", "--grid", "rounds=1,2", "--seeds", "0..1")
    first = ddlsim(*words)
    assert first.exit_code == 0, first.output
    assert len(started) == 8 and "[8/8]" in first.stderr
    found = {str(path.parent.relative_to(tmp_path / "runs")) for path in tmp_path.glob("runs/**/summary.json")}
    assert "sweep-base/topology.name=ring,rounds=2/seed-1" in found and len(found) == 8
    (tmp_path / "runs/sweep-base/topology.name=ring,rounds=2/seed-1/summary.json").unlink()
    started.clear()
    again = ddlsim(*words)
    assert again.exit_code == 0 and "7 of 8 runs exist already." in again.stderr
    assert [words[-2] for words in started] == ["runs/sweep-base/topology.name=ring,rounds=2/seed-1"]


def test_a_changed_scenario_is_run_again(ddlsim, started):
    assert ddlsim("sweep", "base.yaml", "--seeds", "0").exit_code == 0
    Path("base.yaml").write_text(BASE.replace("local_steps: 1", "local_steps: 2"))
    assert ddlsim("sweep", "base.yaml", "--seeds", "0").exit_code == 0
    assert len(started) == 2


def test_refused_combination_counts_as_failed_and_the_others_run(ddlsim, started):
    done = ddlsim("sweep", "base.yaml", "--grid", "topology.name=ring,nix", "--seeds", "0,1")
    assert done.exit_code == 5
    assert len(started) == 2
    assert "2 of 4 runs failed:" in done.stderr
    assert "  topology.name=nix seed 1: --set topology.name=nix: topology.name: unknown name 'nix'" in done.stderr
    assert "el" in done.stdout  # the table of existing runs


def test_failed_run_is_listed_with_its_cause_and_the_others_run(ddlsim, started, monkeypatch):
    real = runs.run_in_directory

    def run(scenario, **options):
        if scenario.seed == 1:
            raise RuntimeError("broken")
        return real(scenario, **options)

    monkeypatch.setattr(runs, "run_in_directory", run)
    done = ddlsim("sweep", "base.yaml", "--seeds", "0..2")
    assert done.exit_code == 5
    assert "1 of 3 runs failed:\n  seed 1: Failed: RuntimeError: broken" in done.stderr
    assert "[3/3] seed 2: " in done.stderr


def test_interrupted_sweep_reports_how_to_continue(ddlsim, monkeypatch):
    def run_jobs(jobs, at_once):
        raise KeyboardInterrupt
        yield

    monkeypatch.setattr(pool, "run_jobs", run_jobs)
    done = ddlsim("sweep", "base.yaml", "--seeds", "0..2")
    assert done.exit_code == 130 and "The same command runs the missing ones." in done.stderr


def test_a_sweep_needs_something_to_vary(ddlsim):
    done = ddlsim("sweep", "base.yaml")
    assert done.exit_code == 2 and "needs --grid KEY=A,B or --seeds 0..4, or a sweep file" in done.stderr


def test_two_runs_of_one_name_are_refused(ddlsim):
    done = ddlsim("sweep", "base.yaml", "--grid", "rounds=1,1")
    assert done.exit_code == 2 and "'rounds=1' and 'rounds=1'. Rename or remove them" in done.stderr


def test_emitted_commands_make_the_runs_of_the_sweep(ddlsim, started):
    words = ("sweep", "base.yaml", "--set", "rounds=3", "--grid", "algorithm.name=el,gossip", "--seeds", "4")
    lines = ddlsim(*words, "--emit", "commands").stdout.splitlines()
    assert len(lines) == 2 and started == []
    for line in lines:
        program, *arguments = shlex.split(line)
        assert program == "ddlsim" and ddlsim(*arguments, "-q").exit_code == 0
    done = ddlsim(*words)
    assert "2 of 2 runs exist already." in done.stderr and started == []
    assert ddlsim(*words, "--emit", "commands").stdout == ""


def test_an_array_script_runs_the_line_of_its_task(ddlsim, tmp_path):
    script = ddlsim("sweep", "base.yaml", "--seeds", "0..2", "--emit", "slurm").stdout
    for option in ("--array=1-3", "--signal=TERM@120", "--requeue"):
        assert f"#SBATCH {option}\n" in script
    (tmp_path / "bin").mkdir()
    for name, text in (("srun", 'exec "$@"'), ("ddlsim", 'echo "$@"')):
        (tmp_path / "bin" / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / "bin" / name).chmod(0o755)
    env = {"PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin", "SLURM_ARRAY_TASK_ID": "2"}
    done = subprocess.run(["bash"], input=script, env=env, capture_output=True, text=True, cwd="/")
    assert done.stdout == "run base.yaml --set seed=1 --resume --out runs/sweep-base/seed-1\n", done.stderr


def test_a_sweep_file_is_the_product_of_its_axes(ddlsim):
    found = read_sweep("sweep.yaml")
    assert len(found) == 8
    assert [point.name for point in found[:4]] == [
        "topology.name=ring,short seed 0",
        "topology.name=ring,long seed 0",
        "topology.name=complete,short seed 0",
        "topology.name=complete,long seed 0",
    ]
    assert (found[1].scenario.rounds, found[1].scenario.training.local_steps, found[1].scenario.seed) == (2, 3, 0)
    assert str(found[1].directory) == "runs/sweep-sweep/topology.name=ring,long/seed-0"


def test_sweep_file_may_list_its_combinations(ddlsim):
    Path("sweep.yaml").write_text(SWEEP + "cells: [ring/long, complete/short]\n")
    names = [point.name for point in read_sweep("sweep.yaml", seeds=[5])]
    assert names == ["topology.name=ring,long seed 5", "topology.name=complete,short seed 5"]


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        ("[ring/lnog]", r"sweep.yaml:8:9: cells[0]: no remaining axis has the value 'lnog'. Did you mean 'long'?"),
        ("[ring/complete]", "cells[0]: no remaining axis has the value 'complete'."),
        ("[]", "the sweep has no combination"),
    ],
)
def test_invalid_combination_is_reported_with_its_place(ddlsim, cells, message):
    Path("sweep.yaml").write_text(SWEEP + f"cells: {cells}\n")
    done = ddlsim("sweep", "sweep.yaml")
    assert done.exit_code == 2 and message in done.stderr


def test_a_sweep_file_is_run_by_written_scenarios(ddlsim, started):
    done = ddlsim("sweep", "sweep.yaml", "--seeds", "0", "--out", "here")
    assert done.exit_code == 0, done.output
    assert len(started) == 4
    assert started[0][:2] == ("run", "here/topology.name=ring,short/seed-0.yaml")
    assert load(started[0][1]).rounds == 1
    assert ddlsim("sweep", "sweep.yaml", "--seeds", "0", "--out", "here").exit_code == 0
    assert len(started) == 4


def test_check_and_run_know_a_sweep_file(ddlsim):
    assert ddlsim("check", "sweep.yaml").stdout == "sweep.yaml: ok. Sweep: 8 runs\n"
    done = ddlsim("run", "sweep.yaml")
    assert done.exit_code == 2 and "Run it with `ddlsim sweep sweep.yaml`" in done.stderr
    Path("sweep.yaml").write_text(SWEEP.replace("complete", "nix"))
    done = ddlsim("check", "sweep.yaml")
    assert done.exit_code == 2 and "4 of 8 runs cannot be run." in done.stderr


def test_a_published_table_is_not_swept(ddlsim):
    Path("sweep.yaml").write_text("source: Table 1\n" + SWEEP)
    done = ddlsim("sweep", "sweep.yaml", "--seeds", "0")
    assert done.exit_code == 2 and re.search("ddlsim reproduce", done.stderr)


@pytest.mark.full
def test_killed_run_of_a_sweep_is_reported_and_repeated(ddlsim, tmp_path, monkeypatch):
    start, killed = pool.start, []

    def start_and_kill_the_first_of_seed_1(job, cores):
        started = start(job, cores)
        if "seed=1" in job.words and not killed:
            killed.append(job)
            started.process.kill()
        return started

    monkeypatch.setattr(pool, "start", start_and_kill_the_first_of_seed_1)
    words = ("sweep", "base.yaml", "--seeds", "0..1", "--jobs", "2")
    done = ddlsim(*words)
    assert done.exit_code == 5 and "seed 1: killed by SIGKILL" in done.stderr
    assert (tmp_path / "runs/sweep-base/seed-0/summary.json").exists()
    again = ddlsim(*words)
    assert again.exit_code == 0 and "1 of 2 runs exist already." in again.stderr


def test_fault_of_the_common_settings_is_reported_once(tmp_path):
    (tmp_path / "bad.yaml").write_text(BASE + "\nrouds: 3\n")
    base = Base("bad", read_tree(tmp_path / "bad.yaml"), (), tmp_path / "out")
    axes = [parse_grid("training.learning_rate=0.05,-1")]
    with pytest.raises(ScenarioError) as caught:
        points(base, axes, [0, 1, 2])
    assert str(caught.value).count("rouds: unknown key") == 1 and "learning_rate" not in str(caught.value)

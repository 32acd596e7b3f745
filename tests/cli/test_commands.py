"""Output and exit codes of commands that start no run."""

import json
import signal
from pathlib import Path

import jsonschema
import numpy as np
import pytest
from ruamel.yaml import YAML
from typer.testing import CliRunner

from ddlsim import runs
from ddlsim.cli import app
from ddlsim.cli.report import figure_folders
from ddlsim.foundation.errors import DataMissing
from ddlsim.runs.checkpoint import Every
from ddlsim.runs.cluster.cluster import Executor
from ddlsim.runs.options import Options

SMOKE = str(Path(__file__).parents[1] / "helpers" / "smoke.yaml")


@pytest.fixture
def ddlsim(tmp_path, monkeypatch):
    """Runs a command line in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("DDLSIM_DATA", raising=False)
    return lambda *words: CliRunner().invoke(app, [str(word) for word in words])


@pytest.fixture
def replaced(monkeypatch):
    """Puts something else in the place of runs.run_in_directory; returns the calls it got."""

    def replace(outcome):
        calls = []

        def run(scenario, **options):
            calls.append((scenario, options))
            if isinstance(outcome, BaseException):
                raise outcome
            return Path("run"), outcome

        monkeypatch.setattr(runs, "run_in_directory", run)
        return calls

    return replace


def test_check_describes_a_scenario(ddlsim):
    result = ddlsim("check", SMOKE)
    assert result.exit_code == 0
    assert result.stdout.startswith(f"{SMOKE}: ok. smoke: facade on fashion-mnist-mini, ")
    assert result.stderr == ""


def test_check_reports_all_errors_of_all_files(ddlsim, tmp_path):
    (tmp_path / "bad.yaml").write_text("rounds: 0\nmodel: {name: mpl}\n")
    result = ddlsim("check", SMOKE, "bad.yaml", "nix.yaml")
    assert result.exit_code == 2
    assert "bad.yaml:1:9: rounds: expected" in result.stderr and "nix.yaml: no such file" in result.stderr
    assert "errors; nothing was run." in result.stderr
    assert ": ok." in result.stdout


def test_single_error_is_counted_as_one(ddlsim):
    result = ddlsim("run", SMOKE, "--set", "algorithm.tua=30")
    assert result.exit_code == 2
    assert result.stderr.startswith("--set algorithm.tua=30: algorithm.tua: unknown key 'tua'.")
    assert result.stderr.endswith("1 error; nothing was run.\n")


@pytest.mark.parametrize("words", [("rnu",), ("run",), ("run", SMOKE, "--sed", "1"), ("run", SMOKE, "--seed", "x")])
def test_wrong_usage_is_exit_code_2(ddlsim, words):
    assert ddlsim(*words).exit_code == 2


def test_run_command_passes_its_options_on(ddlsim, replaced):
    calls = replaced({"status": "done"})
    words = ("--seed", 7, "--out", "o", "--data-dir", "d", "--no-fallback", "--no-download", "--device", "cpu", "-q")
    more = ("--force", "--profile", "--json", "--checkpoint-every", "50r", "--resume")
    result = ddlsim("run", SMOKE, "--set", "algorithm.heads=3", *words, *more)
    assert result.exit_code == 0, result.output
    ((scenario, options),) = calls
    assert (scenario.seed, scenario.algorithm.heads, scenario.compute_device) == (7, 3, "cpu")
    assert [options.pop(name) for name in ("out", "fallback", "force", "resume_torn")] == [Path("o"), False, True, True]
    assert options["command"][0] == "ddlsim"
    found = Options(**options)
    assert (found.data_path, found.download, found.profile, found.mode) == (Path("d"), False, True, "none")
    assert (found.every, found.cluster) == (Every(rounds=50), Executor())


def test_json_is_one_object_on_stdout(ddlsim, replaced):
    replaced({"status": "done", "seed": 0})
    assert json.loads(ddlsim("run", SMOKE, "--json").stdout) == {"status": "done", "seed": 0}


@pytest.mark.parametrize(
    ("outcome", "code", "message"),
    [
        (DataMissing("no cifar10; get it there"), 3, "no cifar10; get it there"),
        (KeyboardInterrupt(), 130, "Interrupted."),
        (RuntimeError("broken\nmore"), 1, "Failed: RuntimeError: broken (`ddlsim -v ...` shows the traceback)"),
    ],
)
def test_errors_are_one_message_and_an_exit_code(ddlsim, replaced, outcome, code, message):
    replaced(outcome)
    result = ddlsim("run", SMOKE)
    assert result.exit_code == code
    assert result.stderr.strip() == message
    assert result.stdout == ""


@pytest.mark.parametrize(("status", "code"), [("done", 0), ("failed", 1), ("interrupted", 130)])
def test_exit_code_follows_the_status(ddlsim, replaced, status, code):
    replaced({"status": status})
    assert ddlsim("run", SMOKE, "--json").exit_code == code


def test_traceback_goes_to_the_log_of_the_run(ddlsim, replaced, tmp_path):
    (tmp_path / "out").mkdir()
    replaced(RuntimeError("broken"))
    result = ddlsim("run", SMOKE, "--out", "out")
    assert result.stderr.strip() == "The run failed: RuntimeError: broken (traceback in out/log.txt)"
    assert "Traceback" in (tmp_path / "out" / "log.txt").read_text()


@pytest.mark.parametrize("words", [("-v", "run", SMOKE), ("run", SMOKE, "-v")])
def test_traceback_is_shown_on_request(ddlsim, replaced, words):
    replaced(RuntimeError("broken"))
    assert "Traceback (most recent call last)" in ddlsim(*words).stderr


def test_missing_data_without_a_fallback_is_exit_code_3(ddlsim):
    result = ddlsim("run", SMOKE, "--set", "data.name=cifar10", "--no-fallback", "--no-download")
    assert result.exit_code == 3
    assert "cifar10" in result.stderr and not Path("runs").exists()


KINDS = ("algorithms", "datasets", "partitions", "shifts", "models", "topologies", "links", "devices", "churns")


@pytest.mark.parametrize("kind", KINDS)
def test_list_shows_every_name_with_its_keys(ddlsim, kind):
    rows = json.loads(ddlsim("list", kind, "--json").stdout)[kind]
    lines = ddlsim("list", kind).stdout.splitlines()
    assert [line.split()[0] for line in lines[1 : len(rows) + 1]] == [row["name"] for row in rows]
    for row in rows:
        assert row["about"] and all(key["about"] and key["type"] != "any" for key in row["keys"]), row


def test_show_prints_source_keys_and_an_example_that_is_a_scenario(ddlsim):
    text = ddlsim("show", "algorithm", "fedprox").stdout
    assert "Federated optimization in heterogeneous networks" in text and "File: " in text
    assert "mu number >= 0 and <= 1e+30, default 0.01. weight of the term" in " ".join(text.split())
    example = YAML(typ="safe").load(text.partition("Example:\n")[2])
    assert ddlsim("check", SMOKE, "--set", f"algorithm={json.dumps(example['algorithm'])}").exit_code == 0
    erdos = ddlsim("show", "topologies", "er").stdout
    assert "edge_probability  number > 0 and <= 1, required." in erdos and "edge_probability: ..." in erdos
    assert "network:\n    links:\n      name: wifi6\n" in ddlsim("show", "links", "wifi6").stdout


def test_wrong_kinds_and_options_point_to_the_right_command(ddlsim):
    assert "Show it with `ddlsim show algorithm fedavg`" in ddlsim("list", "fedavg").stderr
    assert "Did you mean 'fedavg'" in ddlsim("show", "algorithm", "fedavgg").stderr
    assert "Use `ddlsim sweep SCENARIO --seeds" in ddlsim("run", SMOKE, "--seeds", "0..2").stderr
    assert ddlsim("list", "churn").stdout == ddlsim("list", "churns").stdout


def test_list_of_metrics_and_scenarios(ddlsim):
    assert "fair_accuracy" in ddlsim("list", "metrics").stdout
    assert "facade_30_2" in ddlsim("list", "scenarios").stdout


@pytest.mark.full
def test_list_shows_the_origin_of_every_name(ddlsim):
    lines = ddlsim("list").stdout.splitlines()
    found = {line.split()[0]: line.rpartition(" [")[2] for line in lines if line.startswith("  ")}
    assert found["facade"] == found["gn_lenet"] == "built-in]" and found["rmsprop"] == "torch.optim]"
    assert found["facade_30_2"].endswith("scenarios]")
    assert lines[0] == "algorithms:"
    assert {"models", "scenarios"} <= json.loads(ddlsim("list", "--json").stdout).keys()


def test_schema_is_printed(ddlsim):
    jsonschema.Draft202012Validator.check_schema(json.loads(ddlsim("schema").stdout))


def test_network_replay_prints_when_flows_end(ddlsim, tmp_path):
    (tmp_path / "links.csv").write_text("node,uplink_mbps,downlink_mbps,latency_ms\n0,8,8,0\n1,8,8,0\n")
    (tmp_path / "flows.csv").write_text("start_s,src,dst,bytes\n0,0,1,1000000\n0,0,1,1000000\n")
    result = ddlsim("network", "replay", "flows.csv", "--links", "links.csv")
    assert result.stdout.splitlines()[1:] == ["0.0,0,1,1000000,2.0", "0.0,0,1,1000000,2.0"]
    flows = json.loads(ddlsim("network", "replay", "flows.csv", "--links", "links.csv", "--json").stdout)["flows"]
    assert [flow["finish_s"] for flow in flows] == [2.0, 2.0]
    with_headers = ddlsim("network", "replay", "flows.csv", "--links", "links.csv", "--fidelity", "tcp")
    # One connection sends both in turn, each in 691 segments of up to 1448 bytes, with headers of 66.
    ends_s = [(1_000_000 + 691 * 66) / 1e6, 2 * (1_000_000 + 691 * 66) / 1e6]
    assert [float(row.split(",")[-1]) for row in with_headers.stdout.splitlines()[1:]] == pytest.approx(ends_s)


def test_data_list_names_folders_and_states(ddlsim, tmp_path):
    result = ddlsim("data", "list", "--data-dir", tmp_path)
    assert f"{tmp_path} (--data-dir)" in result.stdout
    states = {line.split()[0]: line.split()[1] for line in result.stdout.splitlines()[1:]}
    assert (states["fashion-mnist-mini"], states["cifar10"]) == ("here", "missing")


def test_data_check_reads_the_data(ddlsim):
    result = ddlsim("data", "check", "fashion-mnist-mini")
    assert result.exit_code == 0
    assert "10000 train, 2000 test, 28 x 28 x 1, 10 classes, sha256 " in result.stdout
    assert ddlsim("data", "check", "cifar10").exit_code == 3
    assert ddlsim("data", "check", "cifar").exit_code == 2


def test_doctor_gives_a_cure_for_every_fault(ddlsim, monkeypatch):
    from ddlsim.foundation import native

    def broken():
        raise DataMissing("no compiled module")

    monkeypatch.setattr(native, "extension", broken)
    result = ddlsim("doctor", "--json")
    found = json.loads(result.stdout)
    assert (result.exit_code, found["ok"]) == (3, False)
    assert all(finding["cure"] for finding in found["findings"] if finding["state"] == "bad")
    assert any(finding["what"] == "compiled kernels" for finding in found["findings"] if finding["state"] == "bad")


@pytest.mark.parametrize("command", ["report", "compare"])
def test_report_of_another_directory_is_exit_code_2(ddlsim, command):
    assert ddlsim(command, "nix").exit_code == 2


@pytest.mark.full
def test_figures_from_the_command_line(ddlsim, tmp_path):
    pytest.importorskip("matplotlib")
    run = tmp_path / "cell" / "seed-1"
    assert ddlsim("run", SMOKE, "--out", str(run), "--set", "rounds=2").exit_code == 0
    assert ddlsim("compare", str(run), "--plot", str(tmp_path / "both.png")).exit_code == 0
    assert (tmp_path / "both.png").stat().st_size > 1000
    assert "quality.png" in ddlsim("report", str(run), "--plots", str(tmp_path / "figures")).stdout
    assert (tmp_path / "figures" / "seed-1" / "samples.png").is_file()


def test_figures_of_runs_with_one_name_have_separate_folders(tmp_path):
    places = ("a/seed-0", "b/seed-0", "b/seed-1")
    runs = [tmp_path / "x" / place for place in places]
    assert figure_folders(runs, Path("out")) == {
        run: Path("out") / place for run, place in zip(runs, places, strict=True)
    }
    assert figure_folders(runs[:1], Path("out")) == {runs[0]: Path("out/seed-0")}


def test_list_skips_unreadable_scenarios(ddlsim, tmp_path):
    (tmp_path / "scenarios" / "folder.yaml").mkdir(parents=True)
    (tmp_path / "scenarios" / "latin.yaml").write_bytes(b"description: caf\xe9\n")
    result = ddlsim("list", "scenarios")
    assert result.exit_code == 0, result.output
    assert "latin" in result.stdout and "smoke" in result.stdout
    assert result.stdout.count("cannot be read; `ddlsim check` reports the reason") == 2


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_run_keeps_its_records_and_names_their_directory(ddlsim, tmp_path, monkeypatch, signum):
    from ddlsim.engine.simulation import Simulation

    complete = Simulation._complete

    def interrupt(self, node):
        complete(self, node)
        if self._run.completed_by_all == 4:
            signal.raise_signal(signum)

    monkeypatch.setattr(Simulation, "_complete", interrupt)
    result = ddlsim("run", SMOKE, "--out", "here", "-q")
    assert result.exit_code == 130
    assert result.stderr == "Interrupted. The records so far are in here. `ddlsim resume here` continues it.\n"
    assert "NOT FINISHED: status interrupted, evaluated up to round 4" in result.stdout
    kept = {path.name for path in (tmp_path / "here").iterdir()}
    assert kept >= {"metrics.jsonl", "communication.jsonl", "links.jsonl", "contents.jsonl", "summary.json"}
    monkeypatch.undo()
    assert ddlsim("report", str(tmp_path / "here")).exit_code == 0


def test_check_with_data_reports_faults_of_the_data(tmp_path):
    file = tmp_path / "far.npz"
    labels = np.r_[np.zeros(99, int), 2**40]
    np.savez(file, x_train=np.zeros((100, 4), "f4"), y_train=labels, x_test=np.zeros((9, 4), "f4"), y_test=labels[:9])
    words = ["check", "smoke", "--set", f"data={{name: npz, path: {file}}}"]
    assert CliRunner().invoke(app, words).exit_code == 0
    done = CliRunner().invoke(app, [*words, "--data"])
    assert done.exit_code == 2 and "far.npz: expected labels from 0, one after the other" in done.output
    of_matrices = "training.optimizer={name: 'torch.optim:Muon'}"
    muon = CliRunner().invoke(app, ["check", "smoke", "--data", "--set", of_matrices])
    assert muon.exit_code == 2 and "training.optimizer: Muon cannot train the model of" in muon.output
    gone = CliRunner().invoke(app, [*words, "--data", "--set", "data.path=gone.npz"])
    assert gone.exit_code == 2 and "gone.npz" in gone.output

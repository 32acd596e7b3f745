"""A branch starts only with the code and files of its run."""

import subprocess

import pytest
from torn_runs import SMOKE, outcome, stopping_after

from ddlsim import runs
from ddlsim.foundation.errors import ScenarioError
from ddlsim.runs.checkpoint import ALL, Every
from ddlsim.scenario import load

MINE = """
from dataclasses import dataclass
from ddlsim.algorithms.decentralized.dpsgd import DPSGD

@dataclass(frozen=True, kw_only=True)
class Mine(DPSGD):
    '''D-PSGD.'''
"""
AWAY = """
from dataclasses import dataclass
from ddlsim.churn.schedule import Churn

@dataclass(frozen=True, kw_only=True)
class Away(Churn):
    '''Node 3 is away for a while.'''

    def absences(self, num_nodes, seed):
        return {3: [(0.3, 0.6)]}
"""
SMALL = ("model={name: mlp, hidden: [8]}", "rounds=4", "evaluation.every=1")
SLOWER = ["network.links.uplink_mbps=1"]


def run(out, *settings, every=None):
    runs.run(load(SMOKE, (*SMALL, *settings)), out=out, checkpoint_every=every or Every())


@pytest.mark.full
def test_branch_without_a_checkpoint_is_refused_with_changed_code(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(MINE)
    run(tmp_path / "run", f"algorithm={{name: {file}:Mine}}")
    file.write_text(f"{MINE}    mixes_twice = True\n")
    with pytest.raises(ScenarioError, match=r"environment: the code of algorithm \S+:Mine\. Its results"):
        runs.resume(tmp_path / "run", from_round=2, set=SLOWER, out=tmp_path / "branch")
    assert not (tmp_path / "branch").exists()
    assert runs.resume(tmp_path / "run", from_round=2, set=SLOWER, out=tmp_path / "branch", anyway=True)


@pytest.mark.full
def test_branch_of_older_code_is_not_reused(tmp_path):
    file, out = tmp_path / "mine.py", tmp_path / "branch"
    for number, text in enumerate((MINE, f"{MINE}    mixes_twice = True\n")):
        file.write_text(text)
        runs.run(load(SMOKE, (*SMALL, f"algorithm={{name: {file}:Mine}}")), out=tmp_path / "run")
        runs.resume(tmp_path / "run", from_round=2, set=SLOWER, out=out)
        assert (tmp_path / "branch.earlier-1").exists() == (number == 1)


def test_branch_is_refused_if_a_dropped_file_has_changed(tmp_path):
    trace = tmp_path / "online.csv"
    trace.write_text("node,start_s,end_s\n" + "".join(f"{node},0,99\n" for node in range(8)))
    run(tmp_path / "run", f"churn={{name: trace, path: {trace}}}")
    trace.write_text(trace.read_text().replace("3,0,99", "3,0.4,99"))
    with pytest.raises(ScenarioError, match=r"churn.path: .*online.csv has changed since the run"):
        runs.resume(tmp_path / "run", from_round=2, set=["churn=null"], out=tmp_path / "branch")


@pytest.mark.full
@pytest.mark.parametrize("every", [Every(), Every(rounds=1, keep=ALL)], ids=["no-checkpoint", "checkpoint"])
def test_branch_may_drop_a_user_defined_part(tmp_path, every):
    file = tmp_path / "away.py"
    file.write_text(AWAY)
    run(tmp_path / "run", f"churn={{name: {file}:Away}}", every=every)
    runs.resume(tmp_path / "run", from_round=2, set=["churn=null"], out=tmp_path / "branch", checkpoint_every=every)
    runs.resume(tmp_path / "run", from_round=2, set=["churn=null"], out=tmp_path / "at-once")
    assert outcome(tmp_path / "branch")["metrics.jsonl"] == outcome(tmp_path / "at-once")["metrics.jsonl"]


@pytest.mark.full
def test_commit_of_another_file_does_not_change_the_code(tmp_path, monkeypatch):
    def git(*words):
        subprocess.run(["git", "-C", tmp_path, "-c", "user.name=a", "-c", "user.email=a@b", *words], check=True)

    file = tmp_path / "mine.py"
    file.write_text(MINE)
    git("init", "-q")
    git("add", "mine.py")
    git("commit", "-qm", "one")
    with stopping_after(2, monkeypatch):
        run(tmp_path / "run", f"algorithm={{name: {file}:Mine}}", every=Every(rounds=1))
    git("commit", "-q", "--allow-empty", "-m", "two")
    assert runs.resume(tmp_path / "run")["status"] == "done"

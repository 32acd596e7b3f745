"""Looking and checking must not wait for torch."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


QUICK = """
import json, sys
import ddlsim
from ddlsim.algorithms import ALGORITHMS
from ddlsim.cli import app
from ddlsim.models import MODELS
from ddlsim.scenario import load

def check(done):
    assert not {"torch", "torchvision"} & set(sys.modules), done

for name in (*ddlsim.__all__, "data"):
    if name not in ("run", "resume", "sweep", "load"):
        getattr(ddlsim, name)
ddlsim.data.Arrays
check("names")
[table[name] for table in (ALGORITHMS, MODELS) for name in table]
check("tables")
load(sys.argv[1], ["algorithm={name: ./mine.py:Mine}"])
check("class in a file")
for words in json.loads(sys.argv[2]):
    print(words)
    app(words, standalone_mode=False)
    check(words)
"""
COMMANDS = [
    ["--help"],
    ["run", "--help"],
    ["--version"],
    ["check", "smoke"],
    ["list", "algorithms"],
    ["list", "models"],
    ["list", "metrics"],
    ["schema"],
]


def test_read_only_commands_need_no_torch(tmp_path):
    (tmp_path / "mine.py").write_text("from ddlsim.algorithms.decentralized.el import EpidemicLearning as Mine\n")
    command = [sys.executable, "-c", QUICK, str(ROOT / "scenarios" / "smoke.yaml"), json.dumps(COMMANDS)]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert all(str(words) in done.stdout for words in COMMANDS)


def test_module_behaves_like_the_command(tmp_path):
    command = [sys.executable, "-m", "ddlsim", "check", "nix.yaml"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("nix.yaml: no such file")


@pytest.mark.full
@pytest.mark.parametrize("imported", [False, True])
def test_final_search_for_cycles_runs_only_if_triton_is_imported(imported):
    code = (
        "import atexit, gc, sys, types; atexit.register(lambda: print('frozen', gc.get_freeze_count() > 0)); "
        f"sys.modules.update({{'triton': types.ModuleType('triton')}} if {imported} else {{}}); "
        "sys.argv = ['ddlsim', '--version']; from ddlsim.cli import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120, check=True
    )
    assert f"frozen {not imported}" in done.stdout


def test_runs_on_a_cpu_do_not_need_triton():
    code = "import sys; sys.modules['triton'] = None; import ddlsim.learning.learner"
    subprocess.run([sys.executable, "-c", code], check=True)

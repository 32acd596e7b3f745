"""docs/own_algorithm.md does what it says, as written."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import ddlsim

ROOT = Path(ddlsim.__file__).parents[1]
PAGE = Path(__file__).parents[2] / "docs" / "own_algorithm.md"


def test_the_page_runs_as_written(here):
    blocks = re.findall(r"```(bash|python)\n(.*?)```", PAGE.read_text(), re.S)
    assert [language for language, _ in blocks] == ["bash", "python", "bash"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    out = ""
    for language, text in blocks:
        if language == "python":
            (here / "my_gossip.py").write_text(text)
            continue
        for command in text.splitlines():
            words = [sys.executable, "-m", *shlex.split(command)]
            done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
            assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
            out = done.stdout
    assert "MyGossip" in out and "dpsgd" in out


def test_the_page_names_files_that_exist():
    for name in re.findall(r"`(ddlsim/[\w/]+\.py)`", PAGE.read_text()):
        assert (PAGE.parents[1] / name).exists(), name

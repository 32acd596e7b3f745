"""Every page of docs/tutorials runs as written in an empty folder.

A block whose first line is a comment with a file's name (`# mine.py`) is that file; other blocks in python and bash
run in order. `ddlsim`, `python` and `pytest` are the commands of the test environment.
"""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs" / "tutorials").glob("*.md"))
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.S | re.M)
SECTIONS = re.compile(r"^(?=## )", re.M)
FILE = re.compile(r"# (\w[\w./-]*\.\w+)\n")


@pytest.fixture
def shell(tmp_path) -> dict[str, str]:
    """Return the environment of commands: the installed programs and a separate home folder."""
    programs = tmp_path / "programs"
    programs.mkdir()
    for name, words in (("ddlsim", "-m ddlsim"), ("pytest", "-m pytest -p no:cacheprovider"), ("python", "")):
        (programs / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {words} "$@"\n')
        (programs / name).chmod(0o755)
    paths = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PYTHONPATH": paths, "PATH": path, "HOME": str(tmp_path)}


def runnable(text: str) -> str:
    """Return a page, without the sections on peft if it is not installed."""
    if importlib.util.find_spec("peft") is not None:
        return text
    return "".join(section for section in SECTIONS.split(text) if "from peft import" not in section)


def test_pages_were_run_with_all_their_sections():
    if importlib.util.find_spec("peft") is None:
        pytest.skip("peft is not installed: the section LoRA of own_model.md was left out")


@pytest.mark.full
@pytest.mark.parametrize("page", PAGES, ids=[page.stem for page in PAGES])
def test_the_page_runs_as_written(page, tmp_path, shell):
    folder = tmp_path / "here"
    folder.mkdir()
    ran = 0
    for language, text in BLOCK.findall(runnable(page.read_text())):
        file = FILE.match(text)
        if file:
            path = folder / file[1]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        elif language in ("bash", "python"):
            words = ["bash", "-euo", "pipefail", "-c", text] if language == "bash" else [sys.executable, "-c", text]
            done = subprocess.run(words, cwd=folder, env=shell, capture_output=True, text=True, check=False)
            assert done.returncode == 0, f"{text}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
            ran += 1
    assert ran > 0


@pytest.mark.parametrize("page", PAGES, ids=[page.stem for page in PAGES])
def test_the_page_names_files_that_exist(page):
    for name in re.findall(r"`((?:ddlsim|scenarios|docs)/[\w/.]+\.\w+)`", page.read_text()):
        assert (ROOT / name).exists(), name

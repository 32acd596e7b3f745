"""Every page of docs/tutorials runs as written in an empty folder.

A block whose first line is a comment with a file's name (`# mine.py`) is that file; other blocks in python and bash
run in order. `ddlsim`, `python` and `pytest` are the commands of the test environment.
"""

import importlib.util
import os
import re
import shlex
from pathlib import Path

import pytest
from forked_commands import Commands

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs" / "tutorials").glob("*.md"))
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.S | re.M)
SECTIONS = re.compile(r"^(?=## )", re.M)
FILE = re.compile(r"# (\w[\w./-]*\.\w+)\n")


@pytest.fixture(scope="module")
def commands(tmp_path_factory):
    """Return the runner of commands, with the sources on the path and an empty home."""
    paths = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    commands = Commands(PYTHONPATH=paths, HOME=str(tmp_path_factory.mktemp("home")))
    yield commands
    commands.close()


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
def test_the_page_runs_as_written(page, tmp_path, commands):
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
            lines = text.splitlines() if language == "bash" else [shlex.join(["python", "-c", text])]
            for line in lines:
                done = commands.run(line, folder)
                assert done.returncode == 0, f"{line}\n{done.stdout[-4000:]}"
            ran += 1
    assert ran > 0


@pytest.mark.parametrize("page", PAGES, ids=[page.stem for page in PAGES])
def test_the_page_names_files_that_exist(page):
    for name in re.findall(r"`((?:ddlsim|scenarios|docs)/[\w/.]+\.\w+)`", page.read_text()):
        assert (ROOT / name).exists(), name

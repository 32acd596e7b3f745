"""The commands of the README and of the first pages run as written, and named files exist."""

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from forked_commands import Commands

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
PAGES = [README, *((ROOT / "docs" / name).read_text() for name in ("start.md", "many_runs.md"))]
BLOCKS = [block for page in PAGES for block in re.findall(r"```bash\n(.*?)```", page, re.S)]
COMMANDS = [line.split("  #")[0].strip() for block in BLOCKS for line in block.splitlines() if line.strip()]
SIMULATE = [command for command in COMMANDS if command.startswith("ddlsim ") and "facade_30_2.yaml" not in command]
MAIN = [command for command in COMMANDS if command.startswith("ddlsim run scenarios/facade_30_2.yaml")]


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """Return a folder with only the scenarios of the repository."""
    place = tmp_path_factory.mktemp("readme")
    shutil.copytree(ROOT / "scenarios", place / "scenarios")
    return place


def run(command: str, place: Path) -> subprocess.CompletedProcess:
    arguments = [sys.executable, "-m", "ddlsim", *shlex.split(command)[1:]]
    return subprocess.run(arguments, cwd=place, capture_output=True, text=True, check=False)


@pytest.mark.full
def test_readme_commands_run_in_order(place):
    assert len(SIMULATE) >= 7
    commands = Commands()
    for command in SIMULATE:
        done = commands.run(command, place)
        assert done.returncode == 0, f"{command}\n{done.stdout}"
        assert done.stdout.strip()
    commands.close()


@pytest.mark.slow
def test_main_command_shows_the_fairness_gap(place):
    (command,) = MAIN
    for name in ("facade", "el"):
        done = run(f"{command.replace('facade', name)} --no-download --data-dir {place} --json", place)
        assert done.returncode == 0, done.stderr
    import json

    summaries = [json.loads(path.read_text()) for path in sorted(place.glob("runs/*_30_2/*/summary.json"))]
    minority = {summary["algorithm"]: summary["accuracy"]["clusters"][1] for summary in summaries}
    assert minority["facade"] > minority["el"] + 0.1


def test_readme_names_files_that_exist():
    for name in re.findall(r"`((?:ddlsim|benches|scenarios|csrc|docs)/[\w/.]+\.\w+)`", README):
        assert (ROOT / name).exists(), name


def test_ci_runs_the_readmes_commands():
    script = (ROOT / ".ci" / "run").read_text()
    for command in ("make test", "pytest benches --benchmark-disable"):
        assert command.replace("make", "make --no-print-directory") in script
        assert command in COMMANDS


def test_make_runs_the_readmes_commands():
    command = ["make", "-n", "run", "test", "VENV=nowhere", "PYTEST_FLAGS="]
    recipes = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for command in ("ddlsim run scenarios/facade_30_2.yaml", "pytest"):
        assert command in COMMANDS
        assert f"bin/{command}" in recipes
    for extra in ("vision", "test"):  # of the wheel that make has built
        assert f"pip install '.[{extra}]'" in COMMANDS
        assert f'pip install --quiet "$(echo nowhere/wheel/*.whl)[{extra}]"' in recipes


@pytest.mark.full
def test_replay_prints_the_output_in_the_docs(tmp_path):
    page = (ROOT / "docs" / "network_scale.md").read_text()
    (shown,) = re.findall(r"```\n(\$ cat flows.*?)```", page, re.S)
    said = {command: out for command, _, out in (part.partition("\n") for part in shown.split("$ ")[1:])}
    for file in ("flows.csv", "links.csv"):
        (tmp_path / file).write_text(said.pop(f"cat {file}"))
    ((command, out),) = said.items()
    assert run(command, tmp_path).stdout == out


def test_readme_quotes_the_stored_results():
    """The row of FACADE, 30:2, with its seeds, equals docs/results."""
    page = (ROOT / "docs" / "results" / "facade_table_cifar10.md").read_text()
    accuracy, fairness = (line.split("|") for line in page.splitlines() if line.startswith("| 30_2/facade |"))
    (quoted,) = (line.split("|") for line in README.splitlines() if line.startswith("| ddlsim, "))
    first = [cell.split("(")[0].split("±")[0].strip() for cell in (accuracy[3], fairness[2], fairness[4], fairness[5])]
    majority, minority = accuracy[7].split()
    assert [cell.strip() for cell in quoted[2:8]] == [first[0], majority, minority, *first[1:]]
    seeds = {1: "one seed", 2: "two seeds", 3: "three seeds", 4: "four seeds"}[int(accuracy[2].split("/")[0])]
    assert f"ddlsim, {seeds}," in quoted[1]

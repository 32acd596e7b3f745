"""ddlsim check, schema and new: scenario files, and templates of user-defined parts."""

import keyword
import re
import sys
from importlib.machinery import PathFinder
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from ddlsim.cli.exits import message_of
from ddlsim.cli.options import DataDir, Overrides, complete_scenarios
from ddlsim.foundation.errors import DataDamaged, DataMissing, ScenarioError
from ddlsim.foundation.strict_json import table_text

if TYPE_CHECKING:
    from ddlsim.scenario import Scenario

TEMPLATES = Path(__file__).parent / "templates"
ENDINGS = ("{name}.py", "{name}.yaml", "test_{name}.py")


def check(
    scenarios: Annotated[
        list[str],
        typer.Argument(help="Scenario files, or names.", metavar="SCENARIO...", autocompletion=complete_scenarios),
    ],
    overrides: Overrides = [],  # noqa: B006
    data: Annotated[
        bool, typer.Option("--data", help="Also read and deal the data, and build models and links.")
    ] = False,
    data_dir: DataDir = None,
) -> None:
    """Check scenarios (and matrices of them) without touching data, unless --data is given; every error at once.

    User-defined classes (./mine.py:Mine) are tried out as well: a few nodes, two rounds, no learning.
    """
    from ddlsim.scenario import by_name, digest, load
    from ddlsim.scenario.files import is_matrix, is_sweep
    from ddlsim.scenario.unused_keys import unused_key_notes

    failed = False
    for path in scenarios:
        try:
            if is_sweep(Path(path)):
                typer.echo(_sweep_line(path, overrides))
                continue
            if is_matrix(Path(path)) if Path(path).is_file() else path in by_name(matrices=True):
                typer.echo(_matrix_line(path, overrides))
                continue
            scenario = load(path, overrides)
            _try_out(path, scenario)
            if data:
                _deal(scenario, data_dir)
        except (ScenarioError, DataMissing, DataDamaged) as error:
            typer.echo(message_of(error), err=True)
            failed = True
        else:
            fallback = ", with a fallback" if scenario.fallback is not None else ""
            typer.echo(
                f"{path}: ok. {scenario.name}: {scenario.algorithm_name} on {scenario.data_name}, "
                f"{scenario.nodes.count} nodes, {scenario.rounds} rounds{fallback} [{digest(scenario)}]"
            )
            for note in unused_key_notes(scenario):
                typer.echo(f"{path}: {note}")
    if failed:
        raise typer.Exit(ScenarioError.exit_code)


def _try_out(path: str, scenario: "Scenario") -> None:
    """Raise ScenarioError for user-defined parts that break their contract, and for links that would stop the run."""
    from ddlsim.runs.check import dead_links, plugin_problems

    found = dead_links(scenario)
    if not found:
        found = plugin_problems(scenario, lambda text: typer.echo(f"{path}: {text}", err=True))
    if found:
        error = ScenarioError("\n".join(f"{path}: {text}" for text in found))
        error.problems = found  # type: ignore[attr-defined]  # which message_of counts
        raise error


def _deal(scenario: "Scenario", data_dir: Path | None) -> None:
    """Read and deal the data, and build models and links; raise the errors of a run before its first round."""
    from ddlsim.assembly import build_learner, build_simulation
    from ddlsim.devices.step_times import Estimated
    from ddlsim.runs import load_data, prepare
    from ddlsim.runs.recorder import Recorder

    loaded = load_data(scenario, data_dir, fallback=False, download=False)
    prepared = prepare(loaded)
    for note in prepared.about.get("notes", ()):
        typer.echo(f"NOTE: {note}.", err=True)
    scenario.model.check(prepared.image_shape)
    if scenario.devices.measures:  # a check measures nothing
        scenario = scenario.model_copy(update={"devices": Estimated()})
    learner = build_learner(scenario, prepared, "none" if scenario.learning == "none" else "cpu")
    try:
        build_simulation(scenario, prepared, learner, Recorder())
    finally:
        learner.close()


def _matrix_line(path: str, overrides: list[str]) -> str:
    from ddlsim.runs.reproduce.matrix import read_matrix

    matrix = read_matrix(path, overrides)
    runs = sum(len(cell.seeds) for cell in matrix.cells)
    return f"{path}: ok. Matrix {matrix.name}: {len(matrix.cells)} cells, {runs} runs"


def _sweep_line(path: str, overrides: list[str]) -> str:
    from ddlsim.runs.sweeps.points import read_sweep

    points = read_sweep(path, None, overrides)
    refused = [point for point in points if point.scenario is None]
    if refused:
        text = "\n".join(f"{path}: {point.name}: {point.refusal}" for point in refused)
        raise ScenarioError(f"{text}\n{len(refused)} of {len(points)} runs cannot be run.")
    return f"{path}: ok. Sweep: {len(points)} runs"


def schema() -> None:
    """Print the JSON Schema of scenario files, for editors."""
    from ddlsim.scenario import json_schema

    typer.echo(table_text(json_schema(), indent=1))


def new(
    kind: Annotated[Literal["algorithm", "model", "dataset", "task", "topology"], typer.Argument(help="Kind of part.")],
    name: Annotated[str, typer.Argument(help="Its name, such as my_gossip; the class is MyGossip then.")],
) -> None:
    """Write NAME.py, NAME.yaml and test_NAME.py into this folder: a part that works, as a template."""
    files = [Path(ending.format(name=name)) for ending in ENDINGS]
    there = [str(file) for file in files if file.exists()]
    if there:
        raise ScenarioError(f"{', '.join(there)}: exists already and is not overwritten. Choose another name.")
    taken = keyword.iskeyword(name) or name in sys.stdlib_module_names or PathFinder.find_spec(name)
    if not re.fullmatch(r"(?!test_)[a-z][a-z0-9_]*", name) or taken:
        raise ScenarioError(
            f"NAME: expected small letters, digits and _, not test_... or a word or module of Python, got {name!r}."
        )
    words = {"name": name, "Class": "".join(part.capitalize() for part in name.split("_"))}
    if re.search(rf"\b{words['Class']}\b", (TEMPLATES / f"{kind}.py.txt").read_text(encoding="utf-8")):
        raise ScenarioError(f"NAME: the class would be {words['Class']}, a name that {files[0]} uses. Choose another.")
    for file, ending in zip(files, ("py", "yaml", "test"), strict=True):
        text = (TEMPLATES / f"{kind}.{ending}.txt").read_text(encoding="utf-8")
        try:
            file.write_text(Template(text).substitute(words), encoding="utf-8")
        except OSError as error:
            raise ScenarioError(f"{file}: cannot be written: {error.strerror or error}.") from error
    typer.echo("\n".join(map(str, files)))
    typer.echo(f"Next: ddlsim check {files[1]} && pytest {files[2]} && ddlsim run {files[1]}", err=True)

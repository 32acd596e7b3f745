"""ddlsim data: data sets on this machine."""

from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ddlsim.cli.options import AsJson, DataDir, Overrides
from ddlsim.foundation.errors import DataDamaged, DataMissing, ScenarioError
from ddlsim.foundation.strict_json import table_text

if TYPE_CHECKING:
    from ddlsim.data import DataSearch

app = typer.Typer(no_args_is_help=True, help="List and check data sets on this machine.")


@app.command("list")
def list_data(data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """Show the folders of data and the data sets in them; downloads nothing."""
    from ddlsim.data import DATASETS, DataSearch

    search = DataSearch(data_dir, download=False)
    rows = [{"name": name, **find_dataset(name, search)} for name in DATASETS]
    if as_json:
        roots = {str(path): how for path, how in search.roots().items()}
        typer.echo(table_text({"schema_version": 1, "folders": roots, "datasets": rows}, indent=1))
        return
    typer.echo("Looked in: " + ", ".join(f"{path} ({how})" for path, how in search.roots().items()))
    width = max(len(row["name"]) for row in rows)
    for row in rows:
        typer.echo(f"{row['name']:{width}}  {row['state']:8}  {row['detail']}".rstrip())


@app.command("check")
def check_data(
    names: Annotated[list[str], typer.Argument(help="Data sets.", metavar="NAME...")],
    data_dir: DataDir = None,
    download: Annotated[bool, typer.Option("--download/--no-download", help="Download missing data.")] = False,
) -> None:
    """Read data sets whole and print their sizes and digests; exit code 3 if one is missing or damaged."""
    from ddlsim.data import DATASETS, DataSearch
    from ddlsim.scenario.parts import unknown_name

    worst = 0
    for name in names:
        if name not in DATASETS:
            raise ScenarioError(unknown_name(DATASETS, name))
        cls: Any = DATASETS[name]
        if found := _needs_scenario(cls):
            raise ScenarioError(f"{name}: {found['detail']}. `ddlsim check SCENARIO --data` checks it.")
        try:
            dataset = cls().load(DataSearch(data_dir, download))
        except (DataMissing, DataDamaged) as error:
            typer.echo(str(error), err=True)
            worst = error.exit_code
            continue
        shape = " x ".join(map(str, dataset.train_images.shape[1:]))
        sizes = f"{len(dataset.train_labels)} train, {len(dataset.test_labels)} test, {shape}"
        typer.echo(f"{name}: {sizes}, {dataset.num_classes} classes, sha256 {dataset.sha256}, from {dataset.origin}")
    if worst:
        raise typer.Exit(worst)


@app.command("split")
def split_data(
    scenario: Annotated[str, typer.Argument(help="A scenario file or its name.", metavar="SCENARIO")],
    out: Annotated[Path, typer.Option("-o", "--out", help="The file, .json.")],
    overrides: Overrides = [],  # noqa: B006  typer reads it only
    data_dir: DataDir = None,
) -> None:
    """Write the indices of every node's samples to a file that `partition: {name: file, path: FILE}` reads."""
    from ddlsim.data.dataset_spec import DatasetSpec
    from ddlsim.data.prepared import split_indices
    from ddlsim.runs import load_data
    from ddlsim.scenario import load

    wanted = load(scenario, overrides)
    dataset = load_data(wanted, data_dir, fallback=False).dataset
    if isinstance(dataset, DatasetSpec):
        raise ScenarioError("learning: none reads no data, so that there is no split. Set learning: real.")
    found = split_indices(dataset, wanted.partition, wanted.validation, wanted.nodes, wanted.seed)
    out.write_text(table_text(found), encoding="utf-8")
    typer.echo(f"{out}: {sum(map(len, found['train']))} samples of {len(found['train'])} nodes")


def find_dataset(name: str, search: "DataSearch") -> dict[str, str]:
    """Return the state of a data set, which is read."""
    from ddlsim.data import DATASETS

    cls: Any = DATASETS[name]
    if found := _needs_scenario(cls):
        return found
    try:
        dataset = cls().load(search)
    except DataMissing:
        return {"state": "missing", "detail": f"`ddlsim data check {name}` says how to get it"}
    except Exception as error:
        return {"state": "damaged", "detail": f"{type(error).__name__}: {error}".splitlines()[0]}
    return {"state": "here", "detail": str(dataset.origin)}


def _needs_scenario(cls: Any) -> dict[str, str] | None:
    """Return the state of a data set that only a scenario or Python code defines."""
    from ddlsim.scenario.parts import is_required

    if cls.generated:
        return {"state": "drawn", "detail": "made from a scenario's seed"}
    if cls.from_python:
        return {"state": "given", "detail": "from Python: ddlsim.data.Arrays(train=(x, y), test=(x, y))"}
    needed = " and ".join(f"data.{field.name}" for field in fields(cls) if field.init and is_required(field))
    return {"state": "by keys", "detail": f"a scenario sets {needed}"} if needed else None

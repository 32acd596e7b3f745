"""ddlsim reproduce: the runs of a published table."""

from pathlib import Path
from typing import Annotated

import typer

from ddlsim.cli.exits import INTERRUPTED, RUNS_FAILED, end_with_failures, say
from ddlsim.cli.options import DataDir, Download, Jobs, Overrides, Quiet, complete_matrices
from ddlsim.cli.sweep import Together


def reproduce(
    matrix: Annotated[
        str, typer.Argument(help="A file, or a name (`ddlsim list matrices`).", autocompletion=complete_matrices)
    ],
    cells: Annotated[
        list[str], typer.Option("--cells", metavar="PATTERN", help="Only cells like 'l2/*'; may be repeated.")
    ] = [],  # noqa: B006
    seeds: Annotated[int | None, typer.Option(min=1, help="Only this many seeds of each cell.")] = None,
    out: Annotated[Path | None, typer.Option(file_okay=False, help="Folder of runs; by default runs/<matrix>.")] = None,
    overrides: Overrides = [],  # noqa: B006
    data_dir: DataDir = None,
    download: Download = True,
    jobs: Jobs = 1,
    together: Together = None,
    table: Annotated[bool, typer.Option("--table", help="Run nothing, show the existing runs.")] = False,
    stored: Annotated[
        Path | None,
        typer.Option("--results", file_okay=False, help="Folder of stored results, whose seeds are not run again."),
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Run a published table again and show our numbers with it; complete runs are not run again.

    Every run has a separate process, so a failure ends no other run. Failures are listed at the end, with exit code 5.
    The table is also written to <out>/table.md.
    """
    from ddlsim.runs.reproduce.matrix import Outcome, read_matrix, runs_of
    from ddlsim.runs.reproduce.result import ResultStore, results, table_name
    from ddlsim.runs.reproduce.table import console_table, markdown_table

    checked = read_matrix(matrix, overrides, cells)
    folder = out or Path("runs") / table_name(checked)
    runs = runs_of(checked, folder, seeds, cells)
    outcome = Outcome(interrupted=False, failures=())
    if not table:
        from ddlsim.runs.reproduce.matrix import reproduce as run_all

        store = ResultStore(checked, stored) if stored else None
        outcome = run_all(
            runs,
            data_dir=data_dir,
            download=download,
            jobs=jobs,
            together=together,
            notify=(lambda _: None) if quiet else say,
            add=store.add if store else lambda *_: None,
            stored=store.read() if store else {},
        )
    found = results(checked, runs, stored)
    typer.echo(console_table(checked, found))
    if any(result.seeds for result in found):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "table.md").write_text(markdown_table(checked, found), encoding="utf-8")
    end_with_failures(outcome.failures, len(runs), INTERRUPTED if outcome.interrupted else RUNS_FAILED)
    if outcome.interrupted:
        raise typer.Exit(INTERRUPTED)

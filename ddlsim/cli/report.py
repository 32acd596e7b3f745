"""ddlsim report and export: one run in depth as text, figures or one HTML file, and its records for other tools."""

from collections.abc import Iterator, Sequence
from functools import partial
from os.path import commonpath
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from ddlsim.cli.compare import Runs
from ddlsim.cli.exits import end_with_damage
from ddlsim.foundation.errors import DdlsimError, RecordsDamaged, ScenarioError

if TYPE_CHECKING:
    from ddlsim.report.html.live import LiveServer
    from ddlsim.report.html.page import Page


OPTION = "--live"
ANY_PORT = -1
Live = Annotated[
    int | None,
    typer.Option(
        OPTION,
        metavar="[PORT]",
        min=ANY_PORT,
        max=65535,
        help="Serve the report during the run, to this machine alone; 8484, or a free port.",
    ),
]


class LiveCommand(TyperCommand):
    """A command whose option --live may have no port, and that explains options of `sweep`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        option = next((word for word in args if word.partition("=")[0] in ("--seeds", "--grid")), None)
        if option and self.name == "run":
            raise ScenarioError(f"{option}: `ddlsim run` makes one run. Use `ddlsim sweep SCENARIO {option} ...`.")
        return super().parse_args(ctx, with_port(args))


def with_port(args: Sequence[str]) -> list[str]:
    """Add a port to every --live that has none."""
    found: list[str] = []
    for word, following in zip(args, [*args[1:], ""], strict=False):
        found.append(f"{OPTION}={ANY_PORT}" if word == OPTION and not following.isdigit() else word)
    return found


def live_server(port: int) -> "LiveServer":
    """Start a server, and print its address on standard error.

    Raises:
        ScenarioError: if the port is taken.
    """
    from ddlsim.report.html.live import LiveServer

    server = LiveServer(partial(page_of, live=True), None if port == ANY_PORT else port)
    typer.echo(f"Live report: {server.address} (this machine alone)", err=True)
    return server


def page_of(directory: Path, trust: bool = False, live: bool = False) -> "Page":
    """Return the page of a run directory, with the defaults of its keys and the published numbers of its matrix cell.

    Args:
        directory: of the run.
        trust: whether code that the scenario names may be imported, for the defaults of its keys.
        live: whether the page is served during the run.
    """
    from ddlsim.foundation import own_code
    from ddlsim.report.html.live import live_page
    from ddlsim.report.html.page import run_page
    from ddlsim.report.reading import read

    records = read(directory)
    with own_code.foreign_code(trust):
        page = run_page(records, defaults_of(records.scenario))
    return live_page(page, records) if live else page


def report(
    runs: Runs,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Write one self-contained HTML file.")] = None,
    open_it: Annotated[
        bool, typer.Option("--open", help="Show that file, or RUN/report.html, in the browser.")
    ] = False,
    plots: Annotated[Path | None, typer.Option(help="Folder for figures, with a folder per run.")] = None,
    live: Live = None,
    trust: Annotated[
        bool, typer.Option("--trust", help="Import the run's code, for the defaults of its keys.")
    ] = False,
) -> None:
    """Show each run in depth: accuracy over rounds, fairness, bytes, heads, and published numbers with ours."""
    from ddlsim.report import run_report
    from ddlsim.report.html.page import write
    from ddlsim.report.reading import find_runs
    from ddlsim.report.text import printable

    found, damaged = find_runs(runs), list[DdlsimError]()
    if output is None and not open_it and live is None:
        typer.echo(printable(run_report.report(found, damaged.append)), nl=False)
    elif len(found) > 1:
        raise ScenarioError(f"A page shows one run, got {len(found)}. `ddlsim compare RUNS -o FILE` shows several.")
    if output or open_it:
        path = write(page_of(found[0], trust), output or found[0] / "report.html")
        typer.echo(path)
        if open_it:
            typer.launch(str(path.resolve()))
    if plots is not None:
        for run, folder in figure_folders(found, plots).items():
            try:
                typer.echo("\n".join(map(str, run_report.save_plots(run, folder))))
            except RecordsDamaged as error:
                damaged.append(error)
    if live is not None:
        server = live_server(live)
        server.show(found[0])
        try:
            Event().wait()  # until Ctrl-C; another process may write the run
        finally:
            server.close()
    end_with_damage(damaged)


def figure_folders(runs: Sequence[Path], folder: Path) -> dict[Path, Path]:
    """Return the folder of the figures of each run: its path below the common folder of all runs."""
    common = commonpath([run.resolve().parent for run in runs])
    return {run: folder / run.resolve().relative_to(common) for run in runs}


def defaults_of(resolved: dict[str, Any]) -> dict[str, Any]:
    """Return the defaults of a resolved scenario, by dotted key; for a named part, the defaults of the part with that
    name.
    """
    from ddlsim.scenario.model import DEFAULTS, Scenario

    return dict(_section_defaults(Scenario, "", resolved, DEFAULTS))


def _section_defaults(cls: Any, path: str, resolved: dict[str, Any], standard: dict) -> Iterator[tuple[str, Any]]:
    from ddlsim.scenario import parts

    for key, field in cls.model_fields.items():
        value, usual = resolved.get(key) or {}, standard.get(key)
        if key in parts.TABLES:
            yield f"{path}{key}", [] if key in parts.LISTED else None
            yield from _part_defaults(key, f"{path}{key}", value, usual)
        elif hasattr(field.annotation, "model_fields"):
            yield from _section_defaults(field.annotation, f"{path}{key}.", value, usual or {})
        elif not field.is_required():
            yield f"{path}{key}", parts.plain(field.get_default(call_default_factory=True))


def _part_defaults(key: str, path: str, value: Any, usual: dict | None) -> Iterator[tuple[str, Any]]:
    from ddlsim.scenario import parts

    if usual is not None:
        yield f"{path}.name", usual["name"]
    if not isinstance(value, dict):
        return
    try:
        cls = parts.table(key)[value["name"]]
    except (KeyError, ScenarioError):  # a class in a file, whose code is missing or not trusted
        return
    for field in parts.keys_of(cls):
        if not parts.is_required(field):
            yield f"{path}.{field.name}", parts.plain(parts.default_of(field))
    if usual is not None and usual["name"] == value["name"]:
        yield from ((f"{path}.{name}", default) for name, default in usual.items())


def export(
    run: Annotated[Path, typer.Argument(help="A run directory.", metavar="RUN")],
    node: Annotated[int | None, typer.Option(min=0, help="The node whose model is written to --out.")] = None,
    to: Annotated[
        str | None,
        typer.Option(
            metavar="TOOL[:PROJECT]", help="tensorboard, wandb, mlflow or trackio; csv or parquet with --out."
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option("-o", "--out", help="The model's file, or a folder for records.")] = None,
    trace: Annotated[Path | None, typer.Option(help="File for the timeline, which ui.perfetto.dev shows.")] = None,
) -> None:
    """Write a node's model to a file, the records of a run to another tool, or its timeline for Perfetto.

    A model is a file that `module.load_state_dict(safetensors.torch.load_file(FILE))` takes. Its metadata describe the
    preparation of inputs: layout, dtype, mean, std and classes.
    """
    if trace is not None:
        _write_trace(run, trace)
        if node is None and to is None:
            return
    if to is not None and node is None:
        from ddlsim.report.reading import read
        from ddlsim.report.trackers import export_run

        name, _, project = to.partition(":")
        files = export_run(read(run), name, out, project or None)
        typer.echo("\n".join(map(str, files)) or f"{run}: written to {name}")
        return
    if node is None or to is not None or out is None:
        raise ScenarioError(
            "export: expected --node NUMBER -o FILE for a model, --to TOOL for the records, or --trace FILE."
        )
    from ddlsim.runs.models import export_model

    count, inputs = export_model(run, node, out)
    typer.echo(f"{out}: {count} tensors of node {node}\n{out}: {inputs}")


def _write_trace(run: Path, file: Path) -> None:
    from ddlsim.report.figures import written_below
    from ddlsim.report.reading import read
    from ddlsim.report.sections.timeline import trace

    with written_below(file.parent, "--trace"):
        file.write_text(trace(read(run)), encoding="utf-8")
    typer.echo(f"{file}: open it in https://ui.perfetto.dev or chrome://tracing")

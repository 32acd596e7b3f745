"""ddlsim calibrate: the section `devices` from measured step times."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from ddlsim.cli.options import DataDir, Overrides, complete_scenarios
from ddlsim.foundation.environment import cpu_name

if TYPE_CHECKING:
    from ddlsim.data.prepared import PreparedData


def calibrate(
    scenario: Annotated[
        str, typer.Argument(help="Scenario file, or name.", metavar="SCENARIO", autocompletion=complete_scenarios)
    ],
    overrides: Overrides = [],  # noqa: B006
    threads: Annotated[list[int], typer.Option(min=1, help="Of PyTorch; of several, the first is written.")] = [1],  # noqa: B006
    seconds: Annotated[float, typer.Option(min=0.0, help="Duration of each measurement.")] = 3.0,
    measurements: Annotated[
        Path | None,
        typer.Option(help="Instead: CSV with device,step_time_s of other devices, dealt to the nodes in turn."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Write the section to this file instead of printing it.")] = None,
    data_dir: DataDir = None,
) -> None:
    """Measure how long a local step of a scenario's model and batch takes, and write the section `devices`.

    On this machine's CPU, in plain PyTorch; with --measurements from a file.
    """
    from itertools import cycle, islice

    from ddlsim.runs.calibrate import devices_section, measure, read_measurements
    from ddlsim.scenario import load

    wanted = load(scenario, overrides)
    if measurements is not None:
        times = read_measurements(measurements)
        assigned = list(islice(cycle(times), wanted.nodes.count))
        notes = [f"{device}: {found}" for device, found in times.items()]
        _write(devices_section(times, assigned), [f"from {measurements}", *notes], out)
        return
    import torch

    from ddlsim.runs import load_data, prepare

    loaded = load_data(wanted, data_dir)
    prepared, notes = prepare(loaded), [f"{loaded.scenario.name} on {cpu_name()}, PyTorch {torch.__version__}"]
    section = None
    for count in threads:
        times = measure(loaded.scenario, cast("PreparedData", prepared), count, seconds)
        notes += [f"{name}, {count} thread{'s' * (count > 1)}: {found}" for name, found in times.items()]
        assigned = loaded.scenario.model.assignment(wanted.nodes.count, wanted.seed)
        section = section or devices_section(times, assigned)
    _write(section, notes, out)


def _write(section: dict | None, notes: list[str], out: Path | None) -> None:
    import io

    from ruamel.yaml import YAML

    text = io.StringIO()
    YAML(typ="safe", pure=True).dump({"devices": section}, text)
    output = "".join(f"# {note}\n" for note in ["measured by ddlsim calibrate", *notes]) + text.getvalue()
    if out is None:
        typer.echo(output, nl=False)
        return
    out.write_text(output)
    typer.echo(f"wrote {out}", err=True)

"""ddlsim run and ddlsim resume."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ddlsim.cli.options import Fallback, Overrides, complete_scenarios, makes_run

if TYPE_CHECKING:
    from ddlsim.runs.api.run import Run


@makes_run
def run(
    scenario: Annotated[
        str, typer.Argument(help="A file, or a name (`ddlsim list scenarios`).", autocompletion=complete_scenarios)
    ],
    overrides: Overrides = [],  # noqa: B006
    seed: Annotated[int | None, typer.Option(min=0, help="Seed, instead of the scenario's.")] = None,
    out: Annotated[Path | None, typer.Option(help="Run directory; by default below runs/.")] = None,
    fallback: Fallback = True,
    learning: Annotated[Literal["real", "none"] | None, typer.Option(help="none: the network alone, no data.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Run again; one earlier run is kept as .earlier-N.")] = False,
    resume_torn: Annotated[
        bool, typer.Option("--resume", help="Continue a run in the directory that was stopped.")
    ] = False,
    **options: Any,
) -> "Run":
    """Run a scenario and leave a run directory."""
    from ddlsim.scenario import load

    keys = {"seed": seed, "compute_device": options.pop("device"), "learning": learning}
    changes = [f"{key}={value}" for key, value in keys.items() if value is not None]
    checked = load(scenario, [*overrides, *changes])

    from ddlsim.runs.api import start

    try:
        return start.run(checked, out=out, fallback=fallback, force=force, resume=resume_torn, **options)
    except Exception as error:
        if out is not None and not hasattr(error, "run_dir"):
            error.run_dir = out  # type: ignore[attr-defined]  # the log's place, see exits.py
        raise


@makes_run
def resume(
    run: Annotated[Path, typer.Argument(help="The directory of the run.", metavar="RUN")],
    from_round: Annotated[int | None, typer.Option(min=1, help="Branch the run after this round.")] = None,
    overrides: Overrides = [],  # noqa: B006
    out: Annotated[Path | None, typer.Option(help="Directory of the branch; by default next to the run's.")] = None,
    anyway: Annotated[bool, typer.Option("--anyway", help="Ignore changes of code, libraries and device.")] = False,
    **options: Any,
) -> "Run":
    """Continue a run that was killed, interrupted or has failed, from its last checkpoint; or branch a run.

    Its final records equal the records of an uninterrupted run. With --from-round, --set or --out the run, finished or
    not, stays unchanged. The branch is another run, with the same rounds up to --from-round and other values of keys
    after it, such as a slower network from round 400.
    """
    from ddlsim.runs.api import start

    return start.resume(run, anyway=anyway, from_round=from_round, set=overrides, out=out, **options)

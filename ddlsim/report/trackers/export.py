"""Export of a recorded run to a tracker or to files."""

from pathlib import Path

from ddlsim.foundation.errors import DdlsimError, ScenarioError
from ddlsim.report.records import Records
from ddlsim.report.summary import summary_of
from ddlsim.report.trackers import FILES, TRACKERS, make_tracker
from ddlsim.report.trackers.base import about_run, points
from ddlsim.report.trackers.files import write_tables


def export_run(records: Records, to: str, out: Path | None = None, project: str | None = None) -> list[Path]:
    """Write a run to a tool.

    Args:
        records: of the run.
        to: tensorboard, wandb, mlflow, trackio, csv or parquet.
        out: folder for files (csv, parquet); None for a folder of that name in the run directory.
        project: of a tracker.
    Returns:
        The files written, if it is files.
    Raises:
        ScenarioError: if the tool is unknown, or has no projects. DataMissing: if its package is not installed.
        DdlsimError: if the tool fails.
    """
    if to in FILES:
        if project is not None:
            raise ScenarioError(
                f"--to {to}:{project}: files are of no project. Name their folder with -o, or leave it out."
            )
        return write_tables(records, out or records.directory / to, to)
    if to not in TRACKERS:
        raise ScenarioError(f"--to {to}: expected {', '.join([*TRACKERS, *FILES])}.")
    tracker = make_tracker(to)
    try:
        tracker.begin(about_run(records.directory, records.scenario, project))
        for point in points(records):
            tracker.point(point)
        tracker.end(summary_of(records))
    except Exception as error:
        raise DdlsimError(f"--to {to}: {type(error).__name__}: {error}") from error
    return []

"""Trackio: its local database (TRACKIO_DIR); nothing is sent unless TRACKIO_SPACE_ID names a space."""

import inspect
import sys
from contextlib import redirect_stdout
from typing import Any

from ddlsim.report.trackers.base import About, Point, ended_with


class Trackio:
    """Tracker of Trackio; the round is the step. Trackio's output goes to standard error."""

    def begin(self, about: About) -> None:
        import trackio

        measured = {"auto_log_cpu": False, "auto_log_gpu": False}  # of this machine, not of the run
        known = inspect.signature(trackio.init).parameters
        with redirect_stdout(sys.stderr):
            self._run = trackio.init(
                project=about.project,
                name=about.name,
                group=about.group,
                config=dict(about.config),
                **{name: value for name, value in measured.items() if name in known},
            )

    def point(self, point: Point) -> None:
        self._run.log({"round": point.round, **point.values}, step=point.round)

    def end(self, summary: dict[str, Any]) -> None:
        with redirect_stdout(sys.stderr):
            self._run.log({f"end/{name}": value for name, value in ended_with(summary).items()})
            self._run.finish()

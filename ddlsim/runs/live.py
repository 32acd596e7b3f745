"""A callback that shows the report of a run as a page while it goes on."""

from typing import Any

from ddlsim.report.html.live import LiveServer
from ddlsim.runs.callbacks import Callback, Started


class LiveReport(Callback):
    """Shows the page of a run from its start to its end.

    Args:
        server: where; it is closed at the end of the run.
    """

    def __init__(self, server: LiveServer):
        self._server = server

    def on_start(self, started: Started) -> None:
        self._server.show(started.directory)

    def on_end(self, summary: dict[str, Any]) -> None:
        self._server.close()

"""The page of an unfinished run, served to browsers of this machine alone, and updated as records are written.

A page requests a newer one every few seconds. A page is made if the records have changed and a browser requests it,
and at most a twentieth of the time is spent on making pages, since the process of the run makes them.
"""

import hashlib
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from ddlsim.foundation.errors import DdlsimError, ScenarioError
from ddlsim.report.html.page import Page, Tile, printed
from ddlsim.report.records import Records
from ddlsim.report.summary_table import UNFINISHED
from ddlsim.report.text import seconds_text

HOST = "127.0.0.1"
DEFAULT_PORT = 8484
RESTS = 19
"""Pause after a page was made, as a multiple of its duration."""
LAST_LOOK_S = 5.0
"""Seconds for which the end of a run waits for browsers to fetch its last page."""

SAFE_HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}
STARTING = """<!doctype html><html lang="en"><head><meta charset="utf-8"><meta http-equiv="refresh" content="2">
<title>ddlsim</title></head><body><p>The run is starting.</p></body></html>
"""


def live_page(page: Page, records: Records) -> Page:
    """Return a page with the remaining time and without the warning that the run has not finished, if the run's process
    is alive; else the page itself.
    """
    process = records.manifest.get("process") or {}
    runs_here = process.get("host") == socket.gethostname() and Path(f"/proc/{process['pid']}").exists()
    if records.status != "running" or not runs_here:
        return page
    rounds, done = records.manifest["rounds"], _completed(records)
    left_s = _remaining_s(records, done)
    remark = "" if left_s is None else f"about {seconds_text(left_s)} left"
    tiles = [Tile("Round", f"{done} of {rounds}", remark) if tile.name == "Rounds" else tile for tile in page.tiles]
    footer = f"{page.footer} Bytes by cause and use of links are written at the end of the run."
    loud = [line for line in page.loud if not line.startswith(UNFINISHED)]
    return replace(page, tiles=tiles, loud=loud, footer=footer)


def _completed(records: Records) -> int:
    """Return the rounds that all nodes have completed, as far as they were written."""
    written = [0, *records.evaluations.round[-1:], *([] if records.contacts is None else records.contacts.round[-1:])]
    return int(max(written))


def _remaining_s(records: Records, done: int) -> float | None:
    """Return the wall time that is left if all rounds take as long as those since the start or the last resume."""
    earlier = (records.manifest.get("resumed_after_rounds") or [0])[-1]
    if done <= earlier:
        return None
    written = [path.stat().st_mtime for path in records.directory.glob("*.jsonl")]
    took_s = max(written) - (records.directory / "manifest.json").stat().st_mtime
    return took_s / (done - earlier) * (records.manifest["rounds"] - done)


class LivePage:
    """The newest page of a run.

    Args:
        make: makes the page from a directory's records.

    Attributes:
        directory: of the run; None if it is not known yet.
        ending: whether the run has ended, so that pages are made at once.
        asked_s: time of the last request of a browser.
    """

    def __init__(self, make: Callable[[Path], Page]):
        self._make = make
        self.directory: Path | None = None
        self._lock = threading.Lock()
        self._version = self._text = ""
        self._rests_until_s = 0.0
        self.ending = False
        self.asked_s = -1e9

    def newest(self) -> tuple[str, str]:
        """Version and text of the page; both empty while the run has written nothing that can be shown."""
        with self._lock:
            self.asked_s = time.monotonic()
            if self.directory is None:
                return "", ""
            with suppress(DdlsimError, OSError):  # its first files are not complete, or one is being replaced
                version = self._state(self.directory)
                if version != self._version and (self.ending or self.asked_s >= self._rests_until_s):
                    self._text = printed(self._make(self.directory), version)
                    self._version = version
                    self._rests_until_s = time.monotonic() + RESTS * (time.monotonic() - self.asked_s)
            return self._version, self._text

    def _state(self, directory: Path) -> str:
        """Return a text that changes as records are written."""
        files = [(path.name, path.stat()) for path in sorted(directory.glob("*.json*"))]
        states = [(name, found.st_size, found.st_mtime_ns) for name, found in files]
        return hashlib.sha256(repr(states).encode()).hexdigest()[:16]


class _Handler(BaseHTTPRequestHandler):
    """Answers two requests: / is the page, /page?after=VERSION is it too if it is newer than that version."""

    server: "LiveServer"
    protocol_version = "HTTP/1.1"
    server_version = "ddlsim"
    sys_version = ""

    def do_GET(self) -> None:
        asked = urlsplit(self.path)
        if not self._from_here():
            self._answer(403, "Only pages of this machine are answered.\n", "text/plain")
        elif asked.path == "/":
            _, text = self.server.page.newest()
            self._answer(200, text or STARTING)
        elif asked.path == "/page":
            version, text = self.server.page.newest()
            known = parse_qs(asked.query).get("after") == [version]
            self._answer(*((204, "") if known or not text else (200, text)))
        else:
            self._answer(404, "There is only one page: /\n", "text/plain")

    def _from_here(self) -> bool:
        """Whether the browser asked for this machine by name: a page from elsewhere cannot make it read this one."""
        host = (self.headers.get("Host") or "").rpartition(":")[0] or self.headers.get("Host")
        return host in (HOST, "localhost")

    def _answer(self, status: int, text: str, kind: str = "text/html") -> None:
        body = text.encode()
        self.send_response(status)
        length = {} if status == 204 else {"Content-Length": str(len(body))}
        for name, value in ({"Content-Type": f"{kind}; charset=utf-8"} | SAFE_HEADERS | length).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Do not log requests."""


class LiveServer(ThreadingHTTPServer):
    """Serves the page of a run, on a port that other machines cannot reach.

    Args:
        make: makes the page from a directory's records.
        port: None for `DEFAULT_PORT`, or a free one if that is in use.
    Raises:
        ScenarioError: if the port is not available.
    """

    daemon_threads = True

    def __init__(self, make: Callable[[Path], Page], port: int | None = None):
        self.page = LivePage(make)
        try:
            super().__init__((HOST, DEFAULT_PORT if port is None else port), _Handler)
        except (OSError, OverflowError) as error:
            if port is not None:
                reason = getattr(error, "strerror", None) or error
                raise ScenarioError(f"--live {port}: expected a free port of this machine, got: {reason}.") from error
            super().__init__((HOST, 0), _Handler)
        self._thread = threading.Thread(target=self.serve_forever, name="live page", daemon=True)
        self._thread.start()

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore browsers that disconnect during an answer."""

    @property
    def address(self) -> str:
        """For a browser."""
        return f"http://{HOST}:{self.server_address[1]}/"

    def show(self, directory: Path) -> None:
        """Serve the page of this run from now on."""
        self.page.directory = directory

    def close(self) -> None:
        """Stop the server, after browsers that show the page have received its last state."""
        if not self._thread.is_alive():
            return
        self.page.ending = True
        if time.monotonic() - self.page.asked_s < 2 * LAST_LOOK_S:
            time.sleep(LAST_LOOK_S)
        self.shutdown()
        self.server_close()
        self._thread.join()

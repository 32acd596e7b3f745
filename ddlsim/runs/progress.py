"""Progress of a run: a live bar by tqdm on a terminal and in a notebook, or plain lines on standard error.

A stream that cannot be written to any more (a closed pipe or terminal, a full disk) ends the progress, never the run.
"""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal, TextIO

from ddlsim.report.text import bytes_text, seconds_text
from ddlsim.tasks.base import ACCURACY, Metric

if TYPE_CHECKING:
    from tqdm import tqdm as Bar

Mode = Literal["auto", "log", "plain", "none"]

ESTIMATE_S = 3.0
"""Wall seconds of rounds from which the duration of the run is estimated."""
HEARTBEAT_S = 60.0
"""Plain lines are written at each evaluation and at least this often (wall seconds)."""


class Progress:
    """Messages and progress of a run; a context manager.

    Args:
        scenario_name: shown before the bar.
        rounds: number of rounds of the run.
        mode: auto: a bar on a terminal or in a notebook, messages alone elsewhere; log: a bar on a terminal, plain
            lines elsewhere; plain: lines; none: messages alone.
        stream: where lines go; None: standard error.
        clock: wall seconds; replaced in tests.
    """

    def __init__(
        self,
        scenario_name: str,
        rounds: int,
        mode: Mode = "auto",
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ):
        self._rounds = rounds
        self._stream: TextIO | None = sys.stderr if stream is None else stream  # None: standard error is closed
        self._clock = clock
        self._shows_lines = mode in ("log", "plain")
        self._first: tuple[int, float] | None = None
        self._begun_s = self._last_line_s = clock()
        self._estimated = False
        self._quality = ""
        self._bar: Bar | None = None
        terminal = self._stream is not None and self._stream.isatty()
        if (mode in ("auto", "log") and terminal) or (mode == "auto" and _in_notebook()):
            from tqdm.auto import tqdm

            with self._until_broken():
                self._bar = tqdm(
                    total=rounds, desc=scenario_name, unit="round", leave=False, file=self._stream, dynamic_ncols=True
                )

    def expect(self, rounds: int) -> None:
        """Begin the first round, with the number of rounds: that of a fallback scenario may differ."""
        self._rounds = rounds
        if self._bar is not None:
            self._bar.total = rounds
        self._begun_s = self._clock()

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def round(self, completed: int, time_s: float, bytes_sent: int) -> None:
        """Show a round that all nodes have completed.

        Args:
            completed: rounds completed, from 1.
            time_s: simulated seconds.
            bytes_sent: bytes on the wire so far, of all nodes.
        """
        self._show(completed, time_s, bytes_sent, self._clock() - self._last_line_s >= HEARTBEAT_S)

    def evaluation(
        self,
        completed: int,
        time_s: float,
        bytes_sent: int,
        over_all: float,
        clusters: Sequence[float],
        metric: Metric = ACCURACY,
    ) -> None:
        """Show an evaluation of all nodes; accuracies are fractions, 0 to 1, the other arguments as in `round`."""
        form = ".3f" if metric.share else ".4g"
        of_clusters = " ".join(f"{value:{form}}" for value in clusters)
        self._quality = f"{metric.column} {over_all:{form}} (clusters {of_clusters})"
        self._show(completed, time_s, bytes_sent, True)

    def message(self, text: str) -> None:
        """Print a line, in every mode."""
        with self._until_broken():
            if self._bar is not None:
                self._bar.write(text, file=self._stream)
            else:
                self._print(text)

    def close(self) -> None:
        """Remove the bar; further calls have no effect."""
        if self._bar is not None:
            with self._until_broken():
                self._bar.close()
            self._bar = None

    def _show(self, completed: int, time_s: float, bytes_sent: int, due: bool) -> None:
        now = self._clock()
        if self._first is None:
            self._first = (completed, now)
        status = [text for text in (f"sim {seconds_text(time_s)}", bytes_text(bytes_sent), self._quality) if text]
        with self._until_broken():
            if self._bar is not None:
                self._bar.set_postfix_str("  ".join(status), refresh=False)
                self._bar.update(completed - self._bar.n)
                return
            if self._shows_lines:
                self._estimate(completed, now)
            if due:
                self._last_line_s = now
                if self._shows_lines:
                    status += self._speed(completed, now)
                    self._print(f"round {completed}/{self._rounds}  {'  '.join(status)}")

    def _estimate(self, completed: int, now: float) -> None:
        """Print the expected duration once: after the first round if it is long, otherwise after some seconds."""
        left = self._rounds - completed
        if self._first == (completed, now) and now - self._begun_s >= ESTIMATE_S:
            speed = [f"{seconds_text(now - self._begun_s)} up to round {completed}"]
            expected = f"at most {seconds_text((now - self._begun_s) / completed * left)}"
        else:
            speed = self._speed(completed, now)
            if not speed or self._first is None or now - self._first[1] < ESTIMATE_S:
                return
            expected = f"about {speed[1].removeprefix('ETA ')}"
        if not self._estimated and left:
            self._print(f"{self._rounds:,} rounds, {speed[0]}: {expected} left")
        self._estimated = True

    @contextmanager
    def _until_broken(self) -> Iterator[None]:
        """End the output if the stream fails, by OSError (no reader or no room) or ValueError (it was closed)."""
        try:
            yield
        except (OSError, ValueError):
            if self._bar is not None:
                self._bar.disable = True
            self._stream, self._bar = None, None

    def _print(self, text: str) -> None:
        if self._stream is not None:
            print(text, file=self._stream, flush=True)

    def _speed(self, completed: int, now: float) -> list[str]:
        # Counted from the first call, since the time of reading data and compiling does not predict later rounds.
        since, start_s = self._first or (completed, now)
        done, took_s = completed - since, now - start_s
        if done <= 0 or took_s <= 0:
            return []
        rate = done / took_s
        speed = f"{rate:.1f} round/s" if rate >= 1 else f"{1 / rate:.1f} s/round"
        return [speed, f"ETA {seconds_text(max(0, self._rounds - completed) / rate)}"]


def _in_notebook() -> bool:
    """Whether a Jupyter kernel runs this process."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return getattr(shell, "kernel", None) is not None

"""Progress of a run on standard error: a live bar on a terminal, plain lines every so often elsewhere.

A stream that cannot be written to any more (the reader of a pipe or the terminal has gone, the disk is full) ends the
progress, never the run.
"""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Literal, TextIO

from ddlsim.report.text import bytes_text, seconds_text
from ddlsim.tasks.metric import ACCURACY, Metric

Mode = Literal["auto", "bar", "plain", "none"]

HEARTBEAT_S = 60.0
"""Without a terminal a line is written at each evaluation and at least this often (wall seconds)."""


class Progress:
    """What a run says while it computes; a context manager that closes itself.

    Args:
        scenario_name: shown before the bar.
        rounds: how many rounds the run has.
        mode: auto (a bar if the stream is a terminal, plain lines otherwise), bar (the same, or a bar in a notebook,
            but messages only elsewhere), plain, or none (messages only).
        stream: where it goes; None: standard error.
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
        self._mode = "none" if mode == "bar" else mode
        self._first: tuple[int, float] | None = None
        self._last_line_s = clock()
        self._quality = ""
        self._bar: _Bar | _NotebookBar | None = None
        with self._going_on():
            if mode in ("auto", "bar") and self._stream is not None and self._stream.isatty():
                self._bar = _Bar(scenario_name, rounds, self._stream)
            elif mode == "bar" and _in_notebook():
                with suppress(ImportError):
                    self._bar = _NotebookBar(scenario_name, rounds)

    def expect(self, rounds: int) -> None:
        """How many rounds there really are: a fallback may have others than the scenario."""
        self._rounds = rounds
        if self._bar is not None:
            with self._going_on():
                self._bar.expect(rounds)

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def round(self, completed: int, time_s: float, bytes_sent: int) -> None:
        """All nodes have completed a round.

        Args:
            completed: rounds completed, from 1.
            time_s: simulated seconds.
            bytes_sent: bytes on the wire so far, of all nodes.
        """
        now = self._clock()
        if self._first is None:
            self._first = (completed, now)
        if self._bar:
            with self._going_on():
                self._bar.update(completed, self._status(completed, time_s, bytes_sent))
        elif now - self._last_line_s >= HEARTBEAT_S:
            self._line(completed, time_s, bytes_sent)

    def evaluation(
        self,
        completed: int,
        time_s: float,
        bytes_sent: int,
        over_all: float,
        clusters: Sequence[float],
        metric: Metric = ACCURACY,
    ) -> None:
        """All nodes have been evaluated; accuracies are fractions, 0 to 1, the other arguments as in `round`."""
        form = ".3f" if metric.share else ".4g"
        of_clusters = " ".join(f"{value:{form}}" for value in clusters)
        self._quality = f"{metric.column} {over_all:{form}} (clusters {of_clusters})"
        if self._first is None:
            self._first = (completed, self._clock())
        if self._bar:
            with self._going_on():
                self._bar.update(completed, self._status(completed, time_s, bytes_sent))
        else:
            self._line(completed, time_s, bytes_sent)

    def message(self, text: str) -> None:
        """A line that stays, in every mode."""
        with self._going_on():
            if self._bar:
                self._bar.message(text)
            else:
                self._print(text)

    def close(self) -> None:
        """Take the bar away; more calls are harmless."""
        if self._bar:
            with self._going_on():
                self._bar.stop()
            self._bar = None

    @contextmanager
    def _going_on(self) -> Iterator[None]:
        """Silence from here on if the stream fails; OSError: no reader or no room; ValueError: it was closed."""
        try:
            yield
        except (OSError, ValueError):
            self._stream, self._bar = None, None

    def _print(self, text: str) -> None:
        if self._stream is not None:
            print(text, file=self._stream, flush=True)

    def _line(self, completed: int, time_s: float, bytes_sent: int) -> None:
        self._last_line_s = self._clock()
        if self._mode != "none":
            status = self._status(completed, time_s, bytes_sent)
            with self._going_on():
                self._print(f"round {completed}/{self._rounds}  {status}")

    def _status(self, completed: int, time_s: float, bytes_sent: int) -> str:
        parts = [f"sim {seconds_text(time_s)}", bytes_text(bytes_sent), self._quality, *self._speed(completed)]
        return "  ".join(part for part in parts if part)

    def _speed(self, completed: int) -> list[str]:
        # From the first call on: what came before it (reading data, compiling) says nothing about what is to come.
        since, start_s = self._first or (completed, 0.0)
        done, took_s = completed - since, self._clock() - start_s
        if done <= 0 or took_s <= 0:
            return []
        rate = done / took_s
        speed = f"{rate:.1f} round/s" if rate >= 1 else f"{1 / rate:.1f} s/round"
        return [speed, f"ETA {seconds_text(max(0, self._rounds - completed) / rate)}"]


def _in_notebook() -> bool:
    """Whether a Jupyter kernel runs this process."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return getattr(shell, "kernel", None) is not None


class _NotebookBar:
    """The live bar of a notebook, by tqdm; without ipywidgets it is text.

    Raises:
        ImportError: if tqdm is not installed.
    """

    def __init__(self, scenario_name: str, rounds: int):
        import warnings

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # tqdm tells that there are no ipywidgets
            from tqdm.auto import tqdm

        self._bar = tqdm(total=rounds, desc=scenario_name, unit="round", leave=False)

    def expect(self, rounds: int) -> None:
        self._bar.total = rounds

    def update(self, completed: int, status: str) -> None:
        self._bar.set_postfix_str(status, refresh=False)
        self._bar.update(completed - self._bar.n)

    def message(self, text: str) -> None:
        self._bar.write(text)

    def stop(self) -> None:
        self._bar.close()


class _Bar:
    """The live bar of a terminal."""

    def __init__(self, scenario_name: str, rounds: int, stream: TextIO):
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
        from rich.progress import Progress as RichProgress

        self._progress = RichProgress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            TextColumn("{task.fields[status]}", markup=False),
            console=Console(file=stream),
            refresh_per_second=4,
            transient=True,
        )
        self._task = self._progress.add_task(scenario_name, total=rounds, status="")
        self._progress.start()

    def expect(self, rounds: int) -> None:
        self._progress.update(self._task, total=rounds)

    def update(self, completed: int, status: str) -> None:
        self._progress.update(self._task, completed=completed, status=status)

    def message(self, text: str) -> None:
        self._progress.console.print(text, markup=False, highlight=False)

    def stop(self) -> None:
        self._progress.stop()

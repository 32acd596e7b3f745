"""Callbacks: Python code that is called while a run is under way, and may end it; the contract is Callback.

A callback that shows the report of a run as a page while it goes on.

Trackers that follow a run: a callback that hands them every evaluation, and never ends the run.

Progress of a run on standard error: a live bar on a terminal, plain lines every so often elsewhere.

A stream that cannot be written to any more (the reader of a pipe or the terminal has gone, the disk is full) ends the
progress, never the run.
"""

import copy
import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TextIO

import numpy as np

from ddlsim.foundation import own_code
from ddlsim.foundation.errors import DdlsimError, ScenarioError
from ddlsim.report.html.live import LiveServer
from ddlsim.report.text import bytes_text, seconds_text
from ddlsim.report.trackers import Point, Tracker, about_run, make_tracker, parse
from ddlsim.tasks import metrics
from ddlsim.tasks.base import ACCURACY, Metric


class StopRun(Exception):
    """Raised by a callback, it ends the run in good order.

    Args:
        reason: for summary.json and reports.
    """

    def __init__(self, reason: str = "a callback ended the run"):
        super().__init__(reason)


class CallbackFailed(DdlsimError):
    """A callback has raised; the run has ended, what it had computed is kept."""


@dataclass(frozen=True)
class Started:
    """What is known of a run before its first round.

    Args:
        directory: of the run.
        scenario: as it is resolved, with the keys of scenario.yaml.
        rounds: communication rounds of each node.
        node_cluster: the cluster of each node, int [N].
        after_round: rounds that a resumed run has behind it; 0: it begins.
    """

    directory: Path
    scenario: dict[str, Any]
    rounds: int
    node_cluster: np.ndarray
    after_round: int


@dataclass(frozen=True)
class Completed:
    """All nodes that take part have completed a round.

    Args:
        round: rounds completed, from 1.
        rounds: of the run.
        time_s: simulated seconds.
        bytes_sent: bytes that all nodes together have put on the wire.
    """

    round: int
    rounds: int
    time_s: float
    bytes_sent: int


@dataclass(frozen=True)
class Evaluation:
    """All nodes have been evaluated.

    Args:
        round: rounds completed; one more than the run has where the algorithm ends with an exchange.
        time_s: simulated seconds when the last node was there.
        bytes_sent: bytes that all nodes together had put on the wire.
        metric: what was measured, such as accuracy (0 to 1) or mse.
        values: of each node, float [N]; nan for nodes that have not joined yet.
        node_cluster: the cluster of each node, int [N].
        attacked: nodes that attack the others; they do not count in means.
    """

    round: int
    time_s: float
    bytes_sent: int
    metric: str
    values: np.ndarray
    node_cluster: np.ndarray
    attacked: tuple[int, ...] = ()

    @property
    def honest(self) -> np.ndarray:
        """The values of honest nodes, float [N]; nan for the others."""
        return metrics.without(self.values, self.attacked)

    @property
    def mean(self) -> float:
        """Mean over all honest nodes."""
        return float(metrics.over_nodes(self.honest))

    @property
    def clusters(self) -> np.ndarray:
        """Mean over the honest nodes of each cluster, float [K]."""
        return metrics.over_clusters(self.honest, self.node_cluster)


class Callback:
    """Base of callbacks, which `ddlsim.run` and `ddlsim.resume` take; every method does nothing by default.

    They are called in the order in which they are given, in the process and thread of the run, whose simulated time
    stands still meanwhile: nothing that they do changes a result. Raising `StopRun` in `on_start`, `on_round` or
    `on_evaluation` ends the run at once: its status is then `stopped`, and its summary says after which round and why.
    Any other exception ends it as failed; what was computed until then is kept. A resumed run does not call them for
    what it repeats.
    """

    def on_start(self, started: Started) -> None:
        """Before the first round: the directory is there, and all objects are made."""

    def on_round(self, completed: Completed) -> None:
        """After each round that all nodes which take part have completed; an evaluation of that round comes later."""

    def on_evaluation(self, evaluation: Evaluation) -> None:
        """After each evaluation of all nodes."""

    def on_end(self, summary: dict[str, Any]) -> None:
        """When the run has ended in whatever way and summary.json is written; its key `status` says how."""


class Callbacks:
    """The callbacks of a run, called one after the other.

    Args:
        given: what Python code has handed over.
    Raises:
        ScenarioError: if something is no Callback.
    """

    def __init__(self, given: Sequence[Callback] = ()):
        for each in given:
            if not isinstance(each, Callback):
                what = f"the class {each.__name__}" if isinstance(each, type) else f"a {type(each).__name__}"
                raise ScenarioError(f"callbacks: expected objects of classes that extend ddlsim.Callback, got {what}.")
        self._given = tuple(given)

    def tell(self, hook: str, about: Any) -> str | None:
        """Calls a method of every callback, also after one of them has asked for the end.

        Returns:
            Why the run is to end; None: it goes on.
        Raises:
            CallbackFailed: if one raises something else than StopRun.
        """
        reason = None
        for each in self._given:
            try:
                with _same_torch():
                    getattr(each, hook)(copy.deepcopy(about))  # its own, whatever it does with it
            except StopRun as stop:
                reason = reason or str(stop)
            except Exception as error:
                raise _failed(each, hook, error) from error
        return reason

    def end(self, summary: dict[str, Any]) -> CallbackFailed | None:
        """Calls `on_end` of every callback, also after one of them has raised; the first failure."""
        failure = None
        for each in self._given:
            try:
                with suppress(StopRun):  # it has ended
                    each.on_end(copy.deepcopy(summary))
            except Exception as error:
                failure = failure or _failed(each, "on_end", error)
        return failure


def _same_torch() -> AbstractContextManager[None]:
    """Refuse changes of torch's defaults, if torch is loaded."""
    if "torch" not in sys.modules:
        return nullcontext()
    from ddlsim.foundation.torch_state import same_defaults

    return same_defaults("it")


def _failed(callback: Callback, hook: str, error: Exception) -> CallbackFailed:
    """What is raised for an exception of a callback."""
    failure = CallbackFailed(f"the callback {type(callback).__name__} has raised in {hook}{_where(error)}.")
    failure.__cause__ = error
    return failure


def _where(error: Exception) -> str:
    """Where in the callback's file it was raised, and what."""
    trace, files = error.__traceback__, set()
    while trace is not None:
        files.add(trace.tb_frame.f_code.co_filename)
        trace = trace.tb_next
    frame = own_code.user_frame(error, files - {__file__})
    return f": {frame or f'{type(error).__name__}: {error}'}"


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


class Tracked(Callback):
    """Trackers of a run.

    They write what the nodes are judged by, under the names that an export of the finished run has for it; the export
    has other metrics (test_loss) as well. A tracker that fails is left out from then on, with one warning.

    Args:
        texts: such as "tensorboard" or "wandb:my-project".
        tell: takes the warning.
    Raises:
        ScenarioError: if there is no tracker of a name. DataMissing: if its package is not installed.
    """

    def __init__(self, texts: Sequence[str], tell: Callable[[str], None]):
        self._trackers: dict[str, tuple[Tracker, str | None]] = {}
        for text in texts:
            name, project = parse(text)
            self._trackers[text] = make_tracker(name), project
        self._tell = tell
        self._fair_lambda = metrics.FAIR_LAMBDA

    def on_start(self, started: Started) -> None:
        self._fair_lambda = started.scenario["evaluation"]["fair_lambda"]
        for text, (tracker, project) in list(self._trackers.items()):
            self._guarded(text, tracker.begin, about_run(started.directory, started.scenario, project))

    def on_evaluation(self, evaluation: Evaluation) -> None:
        point = _point(evaluation, self._fair_lambda)
        for text, (tracker, _) in list(self._trackers.items()):
            self._guarded(text, tracker.point, point)

    def on_end(self, summary: dict[str, Any]) -> None:
        for text, (tracker, _) in list(self._trackers.items()):
            self._guarded(text, tracker.end, summary)

    def _guarded(self, text: str, call: Callable[[Any], None], about: Any) -> None:
        try:
            call(about)
        except Exception as error:
            del self._trackers[text]
            why = " ".join(f"{type(error).__name__}: {error}".split())
            self._tell(
                f"WARNING: the tracker {text} has failed and is left out: {why:.300}. The run goes on; `ddlsim export "
                f"RUN --to {text}` writes it afterwards."
            )


def _point(evaluation: Evaluation, fair_lambda: float) -> Point:
    metric, clusters = evaluation.metric, evaluation.clusters
    known = evaluation.honest[~np.isnan(evaluation.honest)]
    found = {
        "time_s": evaluation.time_s,
        "bytes": float(evaluation.bytes_sent),
        metric: evaluation.mean,
        f"{metric}_std": float(np.std(known)),
        **{f"{metric}_{cluster}": float(value) for cluster, value in enumerate(clusters)},
    }
    if metric == "accuracy":
        judged = metrics.clusters_with_honest_nodes(evaluation.node_cluster, evaluation.attacked)
        found["fair_accuracy"] = float(metrics.fair_accuracy(clusters[judged], fair_lambda))
    return Point(evaluation.round, {name: value for name, value in found.items() if math.isfinite(value)})


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

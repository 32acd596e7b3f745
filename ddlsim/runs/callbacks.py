"""Callbacks: Python code that is called while a run is under way, and may end it; the contract is Callback."""

import copy
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ddlsim import metrics, own_code
from ddlsim.errors import DdlsimError, ScenarioError


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
    from ddlsim.torch_state import same_defaults

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
    told = own_code.told(error, files - {__file__})
    return f": {told or f'{type(error).__name__}: {error}'}"

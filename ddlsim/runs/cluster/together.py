"""One process that computes for several runs at once, `--together N`, and the runs' connections to it.

Each run simulates in a process of its own and sends its waves (learning/remote) through a socket. The computing process
continues once every run has sent its next wave or has ended, so the same runs always share the same waves, whatever
their speed. Of the kinds of waves that wait, the cheapest is computed first: the others meet at the next expensive one.

`python -m ddlsim.runs.cluster.together 5 7` computes for the runs at these inherited sockets.
"""

import os
import pickle
import sys
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from ddlsim.assembly import build_learner
from ddlsim.data.prepared import PreparedData
from ddlsim.foundation import own_code
from ddlsim.foundation.environment import cpu_name, num_cores
from ddlsim.foundation.errors import DdlsimError
from ddlsim.foundation.interrupts import ignore_signals
from ddlsim.learning.job_types import KINDS
from ddlsim.learning.remote.joined import JoinedRuns
from ddlsim.learning.remote.rows import Wave
from ddlsim.learning.remote.shard import Shard
from ddlsim.runs.cluster.cluster import Executor, Place
from ddlsim.runs.cluster.ray_workers import Assignment


class ComputingProcess:
    """The one worker (learning/remote/rows.py: Workers) of a run, which computes for other runs as well.

    A thread sends and receives, because an interrupt of the main thread would leave half a message.

    Args:
        executor: its address is the number of a socket that the process has inherited.
    """

    count = 1
    block_bytes = 2**28
    data_shipped = False

    def __init__(self, executor: Executor):
        self._connection = Connection(int(executor.address or 0))
        self._thread = ThreadPoolExecutor(1, "call")

    def start(self, assigned: Sequence[Assignment], prepared: PreparedData) -> None:
        """Send the run's scenario and data; see `start` of RayWorkers."""
        packed = self.packed((assigned[0].scenario, prepared, assigned[0].device))
        pid, threads = self.wait(self.call(0, "start", own_code.texts(), packed))
        self.about, self.devices = [{"pid": pid, "cpu": cpu_name()}], [assigned[0].device]
        self.places = [Place("", "", threads)]

    def call(self, worker: int, method: str, *arguments: Any) -> Future:
        return self._thread.submit(self._ask, self.packed((method, arguments)))

    def calls(self, worker: int, method: str, results: int, *arguments: Any) -> list[Future]:
        return [self.call(worker, method, *arguments)]  # with one worker no rows travel to several

    def wait(self, ref: Future) -> Any:
        while True:
            with suppress(TimeoutError):  # a signal that came just before a wait is handled at its end
                return ref.result(1.0)

    def packed(self, value: Any) -> bytes:
        return pickle.dumps(value)

    def close(self) -> None:
        self._thread.shutdown(cancel_futures=True)
        self._connection.close()

    def _ask(self, call: bytes) -> Any:
        try:
            self._connection.send_bytes(call)
            failed, found = pickle.loads(self._connection.recv_bytes())
        except (EOFError, OSError) as error:
            raise DdlsimError("the computing process has ended. Run fewer --together if it lacked memory.") from error
        if failed:
            raise found
        return found


class Run:
    """One of the runs in the computing process.

    Args:
        connection: to its process.

    Attributes:
        wave: received and not computed.
        joined: the runs that share its waves; None if it computes alone.
    """

    learner: Any
    shard: Shard

    def __init__(self, connection: Connection):
        self._connection = connection
        self._like: tuple = ()
        self.wave: Wave | None = None
        self.joined: JoinedRuns | None = None

    def reach_wave(self, others: "Sequence[Run]") -> bool:
        """Answer calls until a wave comes; return False if the process has ended."""
        while self.wave is None:
            try:
                method, arguments = pickle.loads(self._connection.recv_bytes())
            except (EOFError, OSError):
                self._connection.close()
                return False
            if method == "wave":
                with suppress(Exception):  # raised again below
                    self.wave = self.shard.receive(*arguments)
                    return True
            self.joined = None if method == "use_training" else self.joined  # its settings are other ones now
            call = partial(self._start, others) if method == "start" else getattr(self.shard, method)
            self.answer(partial(call, *arguments))
        return True

    def answer(self, call: Callable[[], Any]) -> None:
        """Answer the last call by the result of a function, or by its exception."""
        self.wave = None
        try:
            data = pickle.dumps((False, call()))
        except Exception as error:
            trace = "".join(traceback.format_exception(error))
            if not isinstance(error, DdlsimError):
                error = RuntimeError(f"{type(error).__name__}: {error}")
            if "OutOfMemoryError" in str(error):
                error = DdlsimError(f"the GPU has too little memory. Run fewer with --together. ({error})")
            error.add_note(trace)
            data = pickle.dumps((True, error))
        with suppress(OSError):  # its process has ended
            self._connection.send_bytes(data)

    def _start(self, others: "Sequence[Run]", code: dict[str, bytes], packed: bytes) -> tuple[int, int]:
        """Make the learner of a scenario and data; return the number of this process, and its threads."""
        for path, source in code.items():
            own_code.provide(Path(path), source)
        scenario, prepared, device = pickle.loads(packed)
        self.learner = build_learner(scenario, prepared, device)
        self.shard = Shard(self.learner)
        parts = scenario.algorithm.has_extra_parts and scenario.algorithm
        self._like = scenario.model, scenario.data, scenario.task, scenario.evaluation.batch_size, parts, device
        alike = [run.joined for run in others if run.joined is not None and run._like == self._like]
        joined = (joined for joined in alike if joined.add(self.learner))
        self.joined = next(joined, None) or JoinedRuns(self.learner)
        return os.getpid(), num_cores()


def compute(runs: Sequence[Run]) -> None:
    """Compute until all runs have ended."""
    while runs := [run for run in runs if run.reach_wave(runs)]:
        waves = [(run, run.wave) for run in runs if run.wave is not None]
        kind = next(spec.kind for spec in KINDS if any(wave.kind == spec.kind for _, wave in waves))
        together: dict[Any, list[tuple[Run, Wave]]] = {}
        for run, wave in waves:
            if wave.kind == kind:
                together.setdefault(run.joined or run, []).append((run, wave))
        for some in together.values():
            _compute_wave(some)


def _compute_wave(waves: Sequence[tuple[Run, Wave]]) -> None:
    """Compute waves of one kind together; if that fails, each separately, so that only one run fails."""
    joined = waves[0][0].joined
    if joined is not None:
        with suppress(Exception):
            found = joined.run([(run.learner, wave) for run, wave in waves])
            for (run, _), values in zip(waves, found, strict=True):
                run.answer(partial(lambda found: found, values))
            return
    for run, wave in waves:
        run.answer(partial(run.shard.compute, wave))


if __name__ == "__main__":
    ignore_signals()  # the runs end first
    compute([Run(Connection(int(number))) for number in sys.argv[1:]])

"""Commands in forks of one process that has imported PyTorch, since the import takes three seconds.

`python forked_commands.py` reads a JSON list per line: ["start", folder, words, output, errors, environment] prints the
number of a new process, and ["status", number, whether to wait] its exit status, or null while it runs.
"""

import json
import os
import runpy
import shlex
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from ddlsim.runs.sweeps import pool

PROGRAMS = {"ddlsim": ["-m", "ddlsim"], "pytest": ["-m", "pytest", "-p", "no:cacheprovider"], "python": []}


class Commands:
    """Run `ddlsim`, `pytest` and `python` as a shell would in a folder."""

    def __init__(self, **environment: str):
        self._process = subprocess.Popen(
            [sys.executable, __file__],
            env={**os.environ, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, command: str, folder: Path) -> subprocess.CompletedProcess:
        """Run one line of a shell; return its status and output."""
        program, *words = shlex.split(command, comments=True)
        return self.python([*PROGRAMS[program], *words], folder)

    def python(self, words: list[str], folder: Path) -> subprocess.CompletedProcess:
        """Run Python with these arguments."""
        output = folder.parent / f"{folder.name}.output"
        number = self.ask("start", str(folder), words, str(output), str(output), {})
        return subprocess.CompletedProcess(words, self.ask("status", number, True), output.read_text())

    def ask(self, *request: Any) -> Any:
        """Return the answer of the process that has imported PyTorch."""
        print(json.dumps(request), file=self._process.stdin, flush=True)
        return json.loads(self._process.stdout.readline())

    def close(self) -> None:
        self._process.stdin.close()
        self._process.wait()


class Forked:
    """A process of `ddlsim` that a test's sweep starts; has what runs/sweeps/pool.py needs of subprocess.Popen."""

    def __init__(self, words: Sequence[str], errors: str):
        folder, words = os.getcwd(), ["-m", "ddlsim", *words]
        self.pid = _commands().ask("start", folder, words, os.devnull, errors, dict(os.environ))
        self.returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None:
            self.returncode = _commands().ask("status", self.pid, False)
        return self.returncode

    def wait(self) -> int:
        while self.poll() is None:
            time.sleep(0.01)
        return self.returncode

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)


@cache
def _commands() -> Commands:
    return Commands()


def start(job: pool.Job, cores: set[int]) -> pool.Started:
    """Start a run of a sweep like runs/sweeps/pool.py, without the three seconds of its imports."""
    stderr = tempfile.NamedTemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115
    return pool.Started(job, Forked(job.words, stderr.name), stderr)


def execute(words: list[str]) -> None:
    """Execute `python WORDS` in this process."""
    sys.path.insert(0, "")
    if words[0] == "-m":
        sys.argv = words[1:]
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
    elif words[0] == "-c":
        sys.argv = ["-c"]
        exec(compile(words[1], "<string>", "exec"), {"__name__": "__main__"})
    else:
        sys.argv = words
        runpy.run_path(words[0], run_name="__main__")


def fork(folder: str, words: list[str], output: str, errors: str, environment: dict[str, str]) -> int:
    """Execute the words in a child process; return its number."""
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        os.chdir(folder)
        os.environ.update(environment)
        file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(file, 1)
        os.dup2(file if errors == output else os.open(errors, os.O_WRONLY | os.O_APPEND), 2)
        execute(words)
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def status(child: int, wait: bool) -> int | None:
    """Return the exit status of a child, negative if a signal killed it; None while it runs."""
    ended, status = os.waitpid(child, 0 if wait else os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if ended else None


def main() -> None:
    import torch  # noqa: F401

    import ddlsim.cli
    import ddlsim.learning.learner
    import ddlsim.runs  # noqa: F401

    sys.path.pop(0)  # this folder
    for line in sys.stdin:
        verb, *request = json.loads(line)
        print(json.dumps(fork(*request) if verb == "start" else status(*request)), flush=True)


if __name__ == "__main__":
    main()

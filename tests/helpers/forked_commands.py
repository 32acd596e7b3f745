"""Commands in forks of one process that has imported PyTorch, since the import takes three seconds.

`python forked_commands.py` reads a JSON list [folder, words, output file] per line and prints the exit status.
"""

import json
import os
import runpy
import shlex
import subprocess
import sys
import traceback
from pathlib import Path

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
        print(json.dumps([str(folder), words, str(output)]), file=self._process.stdin, flush=True)
        status = int(self._process.stdout.readline())
        return subprocess.CompletedProcess(words, status, output.read_text())

    def close(self) -> None:
        self._process.stdin.close()
        self._process.wait()


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


def fork(folder: str, words: list[str], output: str) -> int:
    """Execute the words in a child process; return its exit status."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    status = 1
    try:
        os.chdir(folder)
        file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(file, 1)
        os.dup2(file, 2)
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


def main() -> None:
    import torch  # noqa: F401

    import ddlsim.cli
    import ddlsim.learning.learner
    import ddlsim.runs  # noqa: F401

    sys.path.pop(0)  # this folder
    for line in sys.stdin:
        print(fork(*json.loads(line)), flush=True)


if __name__ == "__main__":
    main()

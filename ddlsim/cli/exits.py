"""What a user sees when something goes wrong, and the exit code that a script sees."""

import signal
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import typer
from typer.core import TyperGroup

from ddlsim.errors import DdlsimError

FAILED = 1
INTERRUPTED = 130


class Commands(TyperGroup):
    """Runs a command and turns what it raises into one message on stderr and an exit code."""

    def invoke(self, ctx):
        try:
            with _terminated_as_interrupted():
                return super().invoke(ctx)
        except DdlsimError as error:
            typer.echo(message_of(error), err=True)
            raise typer.Exit(error.exit_code) from error
        except KeyboardInterrupt:
            typer.echo("Interrupted.", err=True)
            raise typer.Exit(INTERRUPTED) from None
        except BrokenPipeError:  # the reader of our output has gone, e.g. `| head`
            sys.stderr.close()
            raise typer.Exit(0) from None
        except Exception as error:
            if _is_click(error):
                raise
            _tell_unexpected(error, bool(ctx.params.get("verbose")))
            raise typer.Exit(FAILED) from error


@contextmanager
def _terminated_as_interrupted() -> Iterator[None]:
    """SIGTERM, by which batch systems end a job that is out of time, keeps what has been computed as Ctrl-C does."""
    if threading.current_thread() is not threading.main_thread():  # who alone may set handlers
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def message_of(error: DdlsimError) -> str:
    """A user error's text; the problems of a scenario are counted at its end."""
    problems = getattr(error, "problems", None)
    if not problems:
        return str(error)
    count = f"{len(problems)} error" + ("s" if len(problems) > 1 else "")
    return f"{error}\n{count}; nothing was run."


def _is_click(error: Exception) -> bool:
    """Whether click means this one for itself: usage errors, exit, abort."""
    return any(cls.__module__.split(".")[0] in ("click", "typer") for cls in type(error).__mro__)


def _is_memory(error: Exception) -> bool:
    """Whether Python, numpy or torch, on the host or on a device, found no memory."""
    torch_says = isinstance(error, RuntimeError) and "can't allocate memory" in str(error)
    return isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError" or torch_says


def _tell_unexpected(error: Exception, verbose: bool) -> None:
    """One line on the screen; the traceback goes to the run's log.txt, and to stderr with -v."""
    text = "".join(traceback.format_exception(error))
    directory = getattr(error, "run_dir", None)
    if verbose:
        typer.echo(text, err=True)
    line = f"{type(error).__name__}: {error}".splitlines()[0]
    if _is_memory(error):
        line = f"not enough memory; fewer nodes, a smaller model or smaller batches need less ({line:.200})"
    if directory and Path(directory).is_dir():
        log = Path(directory) / "log.txt"
        with log.open("a", encoding="utf-8") as file:
            file.write(text)
        typer.echo(f"The run failed: {line} (traceback in {log})", err=True)
    elif verbose:
        typer.echo(f"Failed: {line}", err=True)
    else:
        typer.echo(f"Failed: {line} (`ddlsim -v ...` shows the traceback)", err=True)

"""Stopped runs, and the comparison of their results with uninterrupted runs."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ddlsim import runs
from ddlsim.runs.checkpoint import Every
from ddlsim.runs.progress import Progress
from ddlsim.scenario import load

SMOKE = Path(__file__).parent / "smoke.yaml"
RECORDS = ("metrics.jsonl", "communication.jsonl", "links.jsonl", "contents.jsonl", "contacts.jsonl", "samples.jsonl")
OF_THE_PROCESS = ("wall_s", "peak_rss_mib")
"""What a summary tells of the process rather than of the run."""


class Stopped(Exception):
    """Raised in place of the end of a process."""


def outcome(directory: Path) -> dict[str, object]:
    """Return all values that must be equal: the records' bytes, and the summary without wall time and memory."""
    found: dict[str, object] = {name: (directory / name).read_bytes() for name in RECORDS}
    for name in ("models*.safetensors*", "energy.jsonl"):
        found[name] = [(path.name, path.read_bytes()) for path in sorted(directory.glob(name))]
    summary = json.loads((directory / "summary.json").read_text())
    return found | {"summary": {key: value for key, value in summary.items() if key not in OF_THE_PROCESS}}


def run_whole(out: Path, settings: tuple[str, ...]) -> dict[str, object]:
    """Return the outcome of an uninterrupted run without checkpoints."""
    runs.run(load(SMOKE, settings), out=out, checkpoint_every=Every())
    return outcome(out)


def run_until(out: Path, settings: tuple[str, ...], ends: int, every: int, monkeypatch, **options) -> None:
    """Run for so many rounds with regular checkpoints, then stop."""
    with stopping_after(ends, monkeypatch):
        runs.run(load(SMOKE, settings), out=out, checkpoint_every=Every(rounds=every), **options)


def resume_until(out: Path, ends: int, every: int, monkeypatch, **options) -> None:
    """Resume a run for so many new rounds, then stop it again."""
    with stopping_after(ends, monkeypatch):
        runs.resume(out, checkpoint_every=Every(rounds=every), **options)


@contextmanager
def stopping_after(ends: int, monkeypatch) -> Iterator[None]:
    """Stop runs in this context at the end of that round; an AssertionError if a run has fewer."""
    seen = 0

    def stop(self, *_):
        nonlocal seen
        seen += 1
        if seen == ends:
            raise Stopped

    with monkeypatch.context() as patched:
        patched.setattr(Progress, "round", stop)
        with suppress(Stopped):
            yield
            raise AssertionError(f"the run had only {seen} ends of rounds")


def go(out: Path, settings: tuple[str, ...], every: Every) -> None:
    """Start the same command until it completes, like a batch system; in a separate process, which
    finds this module by its name whichever way pytest was started.
    """
    with open(os.devnull, "w") as null:
        os.dup2(null.fileno(), 2)
    runs.run(load(SMOKE, settings), out=out, checkpoint_every=every, resume_torn=True)

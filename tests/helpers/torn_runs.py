"""Runs that are stopped on their way, and what they must have in common with those that were not."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ddlsim import runs
from ddlsim.runs.checkpoint import Every
from ddlsim.runs.progress import Progress
from ddlsim.scenario import load

SMOKE = Path(__file__).parents[2] / "scenarios" / "smoke.yaml"
RECORDS = ("metrics.jsonl", "communication.jsonl", "links.jsonl", "contents.jsonl", "contacts.jsonl", "samples.jsonl")
OF_THE_PROCESS = ("wall_s", "peak_rss_mib")
"""What a summary tells of the process rather than of the run."""


class Stopped(Exception):
    """Stands for whatever ends a process."""


def outcome(directory: Path) -> dict[str, object]:
    """All that must be the same: the records' bytes, and the summary but for wall time and memory."""
    found: dict[str, object] = {name: (directory / name).read_bytes() for name in RECORDS}
    for name in ("models.safetensors", "energy.jsonl"):
        found[name] = (directory / name).read_bytes() if (directory / name).exists() else None
    summary = json.loads((directory / "summary.json").read_text())
    return found | {"summary": {key: value for key, value in summary.items() if key not in OF_THE_PROCESS}}


def run_whole(out: Path, settings: tuple[str, ...]) -> dict[str, object]:
    """The outcome of a run that nothing stops, and that makes no checkpoints."""
    runs.run(load(SMOKE, settings), out=out, checkpoint_every=Every())
    return outcome(out)


def run_until(out: Path, settings: tuple[str, ...], ends: int, every: int, monkeypatch, **options) -> None:
    """Runs until so many ends of rounds, with a checkpoint at every so many, then stops in the middle of things."""
    with stopping_after(ends, monkeypatch):
        runs.run(load(SMOKE, settings), out=out, checkpoint_every=Every(rounds=every), **options)


def resume_until(out: Path, ends: int, every: int, monkeypatch, **options) -> None:
    """Resumes a run until so many ends of rounds that are no repetition, then stops it again."""
    with stopping_after(ends, monkeypatch):
        runs.resume(out, checkpoint_every=Every(rounds=every), **options)


@contextmanager
def stopping_after(ends: int, monkeypatch) -> Iterator[None]:
    """What runs inside is stopped at that end of a round; an AssertionError if it has fewer."""
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
    """What a batch system does that starts the same command until it comes to its end; in a process of its own, which
    finds this module by its name whichever way pytest was started.
    """
    with open(os.devnull, "w") as null:
        os.dup2(null.fileno(), 2)
    runs.run(load(SMOKE, settings), out=out, checkpoint_every=every, resume_torn=True)

"""Time ddlsim and its alternatives in turns, in one process, and store the medians in the report's extra_info."""

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from statistics import median

import freed_memory
import numpy as np
import torch
from machine_limits import floor_s

Call = Callable[[], object]
TURNS_S, FRESH_TURNS_S, WARM_UP_S = 2.0, 1.0, 1.0
FEW_FAULTS = 100  # page faults of a turn with all memory in place


def seconds(call: Call, calls: int = 1) -> float:
    """Return the seconds of one call among so many: thread time with one torch thread, else wall time."""
    clock = time.thread_time if torch.get_num_threads() == 1 else time.perf_counter
    start = clock()
    for _ in range(calls):
        call()
    return (clock() - start) / calls


def compare(
    benchmark,
    ours: Call,
    theirs: Mapping[str, Call],
    fresh: Mapping[str, Call] | None = None,
    calls: int = 1,
    keep: bool = True,
    **work: int | str,
) -> None:
    """Time ours and theirs in turns while freed memory stays in the process, then `fresh` while it does not.

    extra_info holds medians: `ours_s`; `alternative`, `theirs_s`, `ratio` (ours / theirs) of the first of theirs;
    `others` likewise, by name; `floor_s` and `of_floor` (ours / floor).

    Args:
        fresh: alternatives that ask the system for memory at each call, as in a fresh process; see freed_memory.py.
        calls: number of calls per measurement; many if one takes microseconds.
        keep: False if freed memory stays only as in a run (blocks up to 32 MiB), for tensors of gigabytes.
        work: arguments of floor_s; empty for no floor.
    """
    if benchmark.disabled:
        benchmark(ours)
        return
    with freed_memory.kept() if keep else contextlib.nullcontext():
        own, theirs_s = _in_turns(benchmark, ours, theirs, calls)
    others_s = theirs_s | _fresh_s(ours, fresh or {})
    found = {name: {"s": theirs, "ratio": own / theirs} for name, theirs in others_s.items()}
    first, *rest = found
    benchmark.extra_info.update(
        ours_s=own,
        alternative=first,
        theirs_s=found[first]["s"],
        ratio=found[first]["ratio"],
        others={name: found[name] for name in rest},
        gated=torch.get_num_threads() == 1,  # with two, the wake-up of the second thread costs milliseconds
    )
    if work and (least := floor_s(torch.get_num_threads(), **work)) is not None:
        benchmark.extra_info.update(floor_s=least, of_floor=own / least)


def _in_turns(benchmark, ours: Call, theirs: Mapping[str, Call], calls: int) -> tuple[float, dict[str, float]]:
    """Return the median of ours and of each of theirs, after untimed turns that collect the kept memory."""
    turn_s = _warm_up([ours, *theirs.values()], calls)
    rounds = int(np.clip(TURNS_S / turn_s, 3, 25))
    ours_s, names = [], list(theirs)
    theirs_s: dict[str, list[float]] = {name: [] for name in theirs}

    def turn() -> None:  # each follows each other, because the previous one fills the caches
        first = len(ours_s) % len(theirs)
        for name in names[first:] + names[:first]:
            theirs_s[name].append(seconds(theirs[name], calls))

    benchmark.pedantic(lambda: ours_s.append(seconds(ours, calls)), setup=turn, rounds=rounds)
    return median(ours_s), {name: median(times) for name, times in theirs_s.items()}


def _warm_up(everyone: Sequence[Call], calls: int) -> float:
    """Run untimed turns, few if they are long; return the seconds of the last."""
    start = time.perf_counter()
    while True:
        faults = freed_memory.faults()
        turn_s = calls * sum(seconds(call, calls) for call in everyone)
        if freed_memory.faults() - faults < FEW_FAULTS or time.perf_counter() - start > WARM_UP_S:
            return turn_s


def _fresh_s(ours: Call, fresh: Mapping[str, Call]) -> dict[str, float]:
    """Return medians of calls on new memory; ours runs between them to fill the caches equally."""
    times: dict[str, list[float]] = {name: [] for name in fresh}
    start = time.perf_counter()
    while fresh and (len(times[next(iter(fresh))]) < 2 or time.perf_counter() - start < FRESH_TURNS_S):
        for name, call in fresh.items():
            ours()
            times[name].append(seconds(call))
    return {name: median(found) for name, found in times.items()}

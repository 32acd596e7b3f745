"""Run all checks and benches of a GPU in less than 500 s, each step in a separate process with a time limit.

python benches/on_gpu.py [OUT]             on a GPU, with the installed ddlsim; OUT is ./on_gpu by default
python benches/on_gpu.py OUT --small       small sizes on the CPU, which test the script
python benches/on_gpu.py OUT --only queue  some steps (repeatable); the queue continues stopped runs in OUT
python benches/gpu_tables.py OUT --write   the tables of docs/gpu.md

A line of JSON is printed as each step ends, and appended to OUT/steps.jsonl: step, seconds, exit code and figures. A
step that fails or runs past its limit does not stop the next ones: it gets an interrupt, GRACE_S later a kill, and the
figures that it has found until then count. OUT/STEP.log has its output. If the tests of Triton's convolutions fail, the
following steps use cuDNN's. The last step runs cells of published tables in the time that is left.
"""

import argparse
import json
import multiprocessing
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "benches" / "helpers"))

import gpu_checks as checks  # noqa: E402
import gpu_steps as steps  # noqa: E402

TOTAL_S, GRACE_S = 495.0, 8.0
SMALL_FACTOR = 6
"""By how much longer all limits are on a CPU."""
CONVOLUTIONS, QUEUE = "convolutions", "queue"


@dataclass(frozen=True)
class Step:
    """A step.

    Args:
        name: also of its log.
        limit_s: time limit, with the grace.
        work: takes the Setting and returns figures as it finds them, {name: value}.
    """

    name: str
    limit_s: float
    work: Callable[[checks.Setting], Iterable[dict] | None]


tests = checks.tests
STEPS = (
    Step("versions", 20, checks.versions),
    Step(
        CONVOLUTIONS,
        45,
        partial(
            tests,
            words=[f"tests/kernels/test_{name}.py" for name in ("grouped_conv", "norm_relu_pool", "devices")],
            small=["tests/kernels/test_devices.py", "-k", "plain"],
        ),
    ),
    Step(
        "tests of learning",
        40,
        partial(tests, words=["tests/learning"], small=["tests/learning/test_bank.py"], together=8),
    ),
    Step(
        "stacked waves of algorithms",
        25,
        partial(
            tests,
            words=[checks.CONTRACT, "-m", "not slow", "-k", f"stacked_waves and ({' or '.join(checks.ALGORITHMS)})"],
            small=[checks.CONTRACT, "-k", "stacked_waves and facade"],
            together=6,
        ),
    ),
    Step("round", 25, steps.kernels_of_a_round),
    Step("cell", 80, steps.whole_cell),
    Step("eight seeds", 65, steps.seeds_side_by_side),
    Step("seeds together", 30, steps.seeds_together),
    Step("mapl", 30, steps.mapl),
    Step("models", 35, steps.models_twice),
    Step("evaluation", 20, steps.evaluation_precision),
    Step("bench_gpu", 25, checks.bench_gpu),
    Step("memory", 15, steps.many_nodes_in_little_memory),
    Step("diloco", 25, steps.diloco),
    Step(QUEUE, 15, steps.queue),
)


def main(words: Sequence[str]) -> int:
    """Run the steps; return 0 if all of them ended with exit code 0."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("out", nargs="?", default="on_gpu", type=Path)
    parser.add_argument("--small", action="store_true", help="small sizes on the CPU")
    parser.add_argument("--only", action="append", choices=[step.name for step in STEPS])
    asked = parser.parse_args(words)
    if not asked.small and not torch.cuda.is_available():
        parser.error("no CUDA device here; --small tests the script on the CPU")
    asked.out.mkdir(parents=True, exist_ok=True)
    chosen = [step for step in STEPS if not asked.only or step.name in asked.only]
    os.chdir(ROOT)
    return run_all(chosen, checks.Setting(asked.out.absolute(), asked.small))


def run_all(chosen: Sequence[Step], setting: checks.Setting, total_s: float = TOTAL_S) -> int:
    """Run steps one after the other; return 0 if all of them ended with exit code 0.

    Args:
        chosen: steps; the queue gets the time that is left.
        setting: passed to them.
        total_s: of all steps.
    """
    processes = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload(["ddlsim", "gpu_steps", "torch"])  # imported once, before CUDA starts
    factor = SMALL_FACTOR if setting.small else 1
    end_s, worst = time.monotonic() + total_s * factor, 0
    environment: dict[str, str] = {}
    for step in chosen:
        limit_s = end_s - time.monotonic() if step.name == QUEUE else step.limit_s * factor
        line = run_step(processes, step, setting, limit_s, environment)
        if step.name == CONVOLUTIONS and line["exit_code"] != 0:
            environment = {"DDLSIM_TRITON": "0"}
            line["figures"]["the following steps use"] = "cuDNN"
        with (setting.out / "steps.jsonl").open("a") as file:
            print(json.dumps(line), file=file)
        print(json.dumps(line), flush=True)
        worst = max(worst, int(line["exit_code"] != 0))
    return worst


def run_step(
    processes: Any, step: Step, setting: checks.Setting, limit_s: float, environment: dict[str, str]
) -> dict[str, Any]:
    """Run one step in its own process; return its line.

    Args:
        processes: a context of multiprocessing.
        step: the step.
        setting: passed to it.
        limit_s: time limit.
        environment: additional variables of its environment.
    """
    found = setting.out / f"{step.name}.figures.jsonl"
    found.unlink(missing_ok=True)
    started = time.monotonic()
    process = processes.Process(target=_work, args=(step.work, setting, step.name, environment))
    process.start()
    process.join(max(0.0, limit_s - GRACE_S))
    stopped = process.is_alive()
    for last in (signal.SIGINT, signal.SIGKILL):  # the kill also ends what a step has left running
        with suppress(ProcessLookupError):
            os.killpg(process.pid, last)
        process.join(GRACE_S)
    figures: dict[str, Any] = {}
    for row in found.read_text().splitlines() if found.exists() else ():
        figures |= json.loads(row, parse_float=lambda text: float(f"{float(text):.6g}"))
    found.unlink(missing_ok=True)
    line = {"step": step.name, "seconds": round(time.monotonic() - started, 1), "exit_code": process.exitcode}
    return line | ({"stopped_after_s": round(limit_s)} if stopped else {}) | {"figures": figures}


def _work(work: Callable, setting: checks.Setting, name: str, environment: dict[str, str]) -> None:
    """Run a step in this process; leave its figures and its output in files."""
    os.setsid()  # a group of processes, which is ended as one
    os.environ.update(environment)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with (setting.out / f"{name}.log").open("w") as log:
        for stream in (1, 2):
            os.dup2(log.fileno(), stream)
    try:
        with (setting.out / f"{name}.figures.jsonl").open("w") as file:
            for figures in work(setting) or ():
                print(json.dumps(figures), file=file, flush=True)
    except BaseException as error:
        if not isinstance(error, SystemExit):
            traceback.print_exc()
        raise


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

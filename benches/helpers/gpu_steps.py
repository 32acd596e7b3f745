"""Steps of on_gpu.py that run scenarios.

Each step yields figures as it finds them: {name: value}, with _s for seconds and _bytes for bytes.
"""

import gc
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from gpu_checks import Setting, made_images

import ddlsim
from ddlsim.data import Arrays

TINY = {"name": "mlp", "hidden": [8]}
SMALL = {
    "data": {"name": "fashion-mnist-mini"},
    "model": TINY,
    "training.local_steps": 2,
    "nodes.clusters": [5, 1],
    "rounds": 2,
    "evaluation": {"every": 2, "samples": 50},
}
"""Changes of scenarios for a CPU."""


class Rounds(ddlsim.Callback):
    """Wall time, processor time and memory of the rounds of a run, and the kernels of some of them.

    Args:
        profiled: rounds whose kernels are recorded.
    """

    def __init__(self, profiled: range = range(0)):
        self._profiled = profiled
        self._profiler = torch.profiler.profile() if profiled else None
        self.wall_s: list[float] = []
        self.processor_s: list[float] = []
        self.held_bytes = self.peak_bytes = 0

    def on_round(self, completed: Any) -> None:
        self.wall_s.append(time.perf_counter())
        self.processor_s.append(time.process_time())
        if torch.cuda.is_initialized():
            self.held_bytes = torch.cuda.memory_allocated()
            self.peak_bytes = max(self.peak_bytes, torch.cuda.max_memory_allocated())
        if self._profiler and completed.round == self._profiled.start:
            self._profiler.start()
        if self._profiler and completed.round == self._profiled.stop:
            self._profiler.stop()

    def figures(self) -> dict[str, Any]:
        """Return medians over rounds, without the first one."""
        found: dict[str, Any] = {"rounds": len(self.wall_s)}
        if len(self.wall_s) > 1:
            found["round_s"] = statistics.median(np.diff(self.wall_s))
            found["processor_of_a_round_s"] = statistics.median(np.diff(self.processor_s))
        return found | ({"peak_bytes": self.peak_bytes} if self.peak_bytes else {})

    def kernels(self) -> dict[str, Any]:
        """Return the host's launches of a round, and the seconds of its longest kernels (on a CPU: operators)."""
        assert self._profiler is not None
        rows = self._profiler.key_averages()
        on_device = [row for row in rows if row.device_type == torch.autograd.DeviceType.CUDA]
        kernels = [row for row in on_device if not row.is_user_annotation]
        time_us = (lambda row: row.self_device_time_total) if kernels else (lambda row: row.self_cpu_time_total)
        kernels, count = kernels or list(rows), len(self._profiled)
        longest = sorted(kernels, key=time_us, reverse=True)[:10]
        launches = [row for row in rows if row.key.startswith(("cudaLaunch", "cuLaunch", "cudaGraphLaunch", "cudaMem"))]
        return {
            "launches of a round": sum(row.count for row in launches) / count,
            "kernels of a round": sum(row.count for row in kernels) / count,
            "kernels_of_a_round_s": sum(map(time_us, kernels)) / count / 1e6,
            "longest kernels": {f"`{row.key[:60]}`_s": time_us(row) / count / 1e6 for row in longest},
        }


def run(
    setting: Setting,
    name: str,
    scenario: str,
    changes: dict[str, Any],
    small: dict[str, Any] | None = None,
    rounds: Rounds | None = None,
    **options: Any,
) -> Iterator[dict]:
    """Run a scenario and yield its figures, also if it is interrupted.

    Args:
        setting: of the steps.
        name: of its directory.
        scenario: file or name.
        changes: of its keys.
        small: further changes on a CPU.
        rounds: measures it.
        options: of ddlsim.run.
    """
    rounds = rounds or Rounds()
    stop = None
    try:
        done = ddlsim.run(
            scenario,
            set=changes | ({**SMALL, **(small or {})} if setting.small else {}),
            device=setting.device,
            out=setting.out / "runs" / name,
            force=True,
            callbacks=[rounds],
            progress="none",
            checkpoint_every="0",
            profile=True,
            data_dir=None if setting.small else made_images(),
            download=False,
            fallback=False,
            **options,
        )
    except KeyboardInterrupt as error:
        done, stop = error.run, error  # type: ignore[attr-defined]
    summary = done.summary
    profile = summary["profile"]
    yield {
        **rounds.figures(),
        "wall_s": summary["wall_s"],
        "set_up_s": profile["setup"] + profile["data"],
        "host_s": {f"{part}_s": value for part, value in profile.items() if value and part not in HOST_LEFT_OUT},
        "device_s": {f"{kind}_s": value for kind, value in summary["device_seconds"].items()},
        "computed one by one": summary["fallback_counts"],
    }
    if stop is not None:
        raise stop


HOST_LEFT_OUT = ("setup", "data", "total", "simulated to wall")
FACADE = "scenarios/facade_30_2.yaml"


def kernels_of_a_round(setting: Setting) -> Iterator[dict]:
    """A round of FACADE's cell: host, device, and its longest kernels."""
    few = setting.small
    rounds = Rounds(range(1, 2) if few else range(30, 35))
    yield from run(setting, "round", FACADE, {"rounds": 40, "evaluation.every": 40}, rounds=rounds)
    yield rounds.kernels()


def whole_cell(setting: Setting) -> Iterator[dict]:
    """FACADE's cell with its 1,200 rounds and 31 evaluations, or as many rounds as the limit allows."""
    yield from run(setting, "cell", FACADE, {})


def mapl(setting: Setting) -> Iterator[dict]:
    """Some rounds of MAPL with its four architectures."""
    models = {"name": "mixed", "models": [{"name": "mlp", "hidden": [16, 8]}, {"name": "mlp", "hidden": [24, 8]}]}
    small = {"model": models, "algorithm": {"name": "mapl", "projection_units": 16}, "nodes.clusters": [2, 2]}
    small |= {"training.local_steps": None}
    small |= {"partition.samples_per_class": 20, "partition.spread": 5, "training.batch_size": 16}
    yield from run(setting, "mapl", "scenarios/mapl.yaml", {"rounds": 3, "evaluation.every": 3}, small)


def batch_norm_cnn(image_shape: tuple[int, int, int], num_classes: int) -> torch.nn.Module:
    """Two convolutions with BatchNorm, and a linear layer."""
    nn, (channels, height, width) = torch.nn, image_shape
    layers: list[nn.Module] = []
    for inputs, outputs in ((channels, 32), (32, 64)):
        layers += [nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(64 * (height // 4) * (width // 4), num_classes))


def models_twice(setting: Setting) -> Iterator[dict]:
    """Runs of other networks, each twice: times, and whether the records are the same to the byte."""
    few = {"rounds": 4, "evaluation.every": 4}
    gpt = {"name": "gpt", "layers": 1, "heads": 1, "width": 8}
    text = {"model": gpt, "data": {"name": "shakespeare", "text": "mini"}}
    cases: dict[str, tuple[str, dict, dict, dict]] = {
        "CNN with BatchNorm x 32": ("el_30_2", few, {}, {"model": batch_norm_cnn}),
        "ResNet-18 x 32": ("el_30_2", few | {"model": {"name": "resnet18"}}, {}, {}),
        "GPT x 8": ("diloco", few | {"nodes.clusters": [8]}, text, {}),
    }
    for name, (scenario, changes, small, options) in cases.items():
        bits = []
        for turn in ("first", "second"):
            out = f"{name} {turn}"
            (figures,) = run(setting, out, f"scenarios/{scenario}.yaml", changes, small, **options)
            bits.append((setting.out / "runs" / out / "metrics.jsonl").read_bytes())
        yield {name: figures | {"a repeat gives the same records": bits[0] == bits[1]}}


def evaluation_precision(setting: Setting) -> Iterator[dict]:
    """Evaluations in float32 and in bf16: their time, and the predictions that differ."""
    predicted: dict[str, list[np.ndarray]] = {}
    for precision in ("float32", "bf16"):
        kept = predicted[precision] = []
        changes = {"rounds": 40, "evaluation.every": 20, "evaluation.precision": precision}
        small = {"evaluation": {"every": 1, "samples": 50, "precision": precision}}
        (timed,) = run(setting, precision, FACADE, changes, small)
        yield {precision: timed}
        for _ in run(setting, f"{precision} kept", FACADE, changes, small, metrics={"kept": _keeping(kept)}):
            pass
    one, other = (np.concatenate(kept) for kept in predicted.values())
    yield {"predictions": len(one), "predictions changed by bf16": int((one != other).sum())}


def _keeping(kept: list[np.ndarray]) -> Callable[[np.ndarray, np.ndarray], float]:
    def keep(predictions: np.ndarray, targets: np.ndarray) -> float:
        if len(targets) > 1:  # one sample is the check before the run
            kept.append(predictions.argmax(1))
        return 0.0

    return keep


def many_nodes_in_little_memory(setting: Setting) -> Iterator[dict]:
    """1,000 nodes; then with a limit of memory below what their largest wave took."""
    rounds = Rounds()
    changes = {"rounds": 4, "evaluation.every": 4}
    for figures in run(setting, "thousand", "scenarios/thousand_nodes.yaml", changes, rounds=rounds):
        yield {"1,000 nodes": figures}
    if setting.small:
        return
    limit_bytes = rounds.held_bytes + (rounds.peak_bytes - rounds.held_bytes) // 2
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction(limit_bytes / torch.cuda.mem_get_info()[1])
    for figures in run(setting, "limited", "scenarios/thousand_nodes.yaml", changes):
        ended = {"limit_bytes": limit_bytes, "times out of memory": torch.cuda.memory_stats()["num_ooms"]}
        yield {"1,000 nodes in less memory": figures | ended}


def diloco(setting: Setting) -> Iterator[dict]:
    """DiLoCo with eight workers, each with a GPT of GPT-2's size and its AdamW, on random tokens."""
    tokens, workers = (50, 2) if setting.small else (50257, 8)
    size = {"layers": 1, "heads": 1, "width": 8} if setting.small else {"layers": 12, "heads": 12, "width": 768}
    ids = np.random.default_rng(0).integers(0, tokens, (64, 257))
    ids[0] = tokens - 1
    train, test = (ids[:, :-1], ids[:, 1:]), (ids[:2, :-1], ids[:2, 1:])
    data = Arrays(train=train, test=test, task="next_token", num_classes=tokens)
    changes = {
        "model": {"name": "gpt", "tie_word_embeddings": True, **size},
        "nodes.clusters": [workers],
        "rounds": 2,
        "training.local_steps": 2,
        "training.batch_size": 2,
        "evaluation": {"every": 2, "samples": 2},
        "records.models": "none",
    }
    for figures in run(setting, "diloco", "scenarios/diloco.yaml", changes, changes, data=data, task="next_token"):
        yield figures | {"peak_of_a_worker_bytes": figures.get("peak_bytes", 0) // workers}


# -- processes side by side --------------------------------------------------------------------------------------------


def seeds_side_by_side(setting: Setting) -> Iterator[dict]:
    """FACADE's cell with eight seeds in eight processes, without and with MPS."""
    yield {"in turns": _seeds(setting)}
    if shutil.which("nvidia-cuda-mps-control") is None:
        yield {"MPS": "not installed"}
        return
    with _mps() as environment:
        yield {"MPS": _seeds(setting, environment)}


def _seeds(setting: Setting, environment: dict[str, str] | None = None) -> dict[str, Any]:
    started = time.monotonic()
    processes = []
    for seed in range(1 if setting.small else 8):
        words = _words(setting, "run", {"learning": "none"})
        words += ["--seed", str(seed), "--out", f"{setting.out}/runs/seed{seed}", "--force", "--profile", "--json"]
        processes.append(subprocess.Popen(words, stdout=subprocess.PIPE, env={**os.environ, **(environment or {})}))
    summaries = [json.loads(process.communicate()[0]) for process in processes]
    own_s = [each["wall_s"] - each["profile"]["setup"] - each["profile"]["data"] for each in summaries]
    return {"rounds": summaries[0]["rounds"], "wall_s": time.monotonic() - started, "without_set_up_s": max(own_s)}


def seeds_together(setting: Setting) -> Iterator[dict]:
    """The same seeds with one process that joins their waves; on a CPU only the runs' commands."""
    words = [*_words(setting, "sweep", {}), "--seeds", "0..7", "--together", "8"]
    words += ["--out", f"{setting.out}/runs/together", *(["--emit", "commands"] if setting.small else [])]
    shutil.rmtree(setting.out / "runs" / "together", ignore_errors=True)
    started = time.monotonic()
    subprocess.run(words, check=True)
    yield {"wall_s": time.monotonic() - started}


def _words(setting: Setting, command: str, small: dict[str, Any]) -> list[str]:
    """Return a command with FACADE's cell and few rounds."""
    changes = {**SMALL, **small} if setting.small else {"rounds": 60, "evaluation.every": 60}
    changes |= {"compute_device": setting.device}
    sets = [word for key, value in changes.items() for word in ("--set", f"{key}={json.dumps(value)}")]
    made = None if setting.small else made_images()
    folder = ["--data-dir", str(made)] if made else []
    return [sys.executable, "-m", "ddlsim", command, FACADE, *sets, *folder, "--no-fallback", "--no-download", "-q"]


@contextmanager
def _mps() -> Iterator[dict[str, str]]:
    """Run NVIDIA's multi-process service for the processes with this environment."""
    folder = tempfile.mkdtemp()  # a short path, since it holds sockets
    environment = {"CUDA_MPS_PIPE_DIRECTORY": folder, "CUDA_MPS_LOG_DIRECTORY": folder}
    control, all_variables = "nvidia-cuda-mps-control", {**os.environ, **environment}
    subprocess.run([control, "-d"], env=all_variables, check=True)
    try:
        yield environment
    finally:
        subprocess.run([control], input="quit\n", text=True, env=all_variables, check=False)


def queue(setting: Setting) -> Iterator[dict]:
    """Cells of MAPL's heterogeneous table, its four methods side by side, until the time is over; on CIFAR-10 only.

    Interrupted runs leave checkpoints in OUT/runs: copy it back to go on another day.
    """
    words = [sys.executable, "-m", "ddlsim", "reproduce", "mapl_heterogeneous", "--no-download"]
    words += ["--results", f"{setting.out}/results", "--out", f"{setting.out}/runs/mapl_heterogeneous"]
    if setting.small:
        words += ["--cells", "local/disjoint/cifar10", "--table"]
    elif made_images():
        yield {"cells": "not run: CIFAR-10 is missing"}
        return
    else:
        methods = ("mapl", "fedproto", "fedclassavg", "local")
        words += [word for method in methods for word in ("--cells", f"{method}/disjoint/cifar10")] + ["--jobs", "4"]
    process = subprocess.Popen(words)
    try:
        code = process.wait()
        yield {"cells": "all done" if code == 0 else f"exit code {code}"}
        sys.exit(code)
    except KeyboardInterrupt:
        process.wait()  # it got the interrupt too, and leaves checkpoints
        yield {"cells": "interrupted, with checkpoints"}

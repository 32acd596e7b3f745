"""The directory of a run: where it lies, what is in it besides the records."""

import errno
import json
import os
import platform
import resource
import sys
import time
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ddlsim.errors import ScenarioError

if TYPE_CHECKING:
    from ddlsim.scenario import Scenario

NETWORK_ONLY = "learning: none: only the network ran; where learned values steer, every loss was taken as equal"
ALWAYS_PROFILED = ("training", "head losses", "evaluation", "merging", "similarity")
PACKAGES = ("torch", "torchvision", "numpy", "simpy", "networkx", "pydantic")


def default_path(scenario: "Scenario") -> Path:
    """runs/<scenario>/<algorithm>-s<seed>-<digest of the resolved scenario>."""
    from ddlsim.scenario import digest

    return Path("runs") / scenario.name / f"{scenario.algorithm_name}-s{scenario.seed}-{digest(scenario)}"


def complete_summary(directory: Path) -> dict[str, Any] | None:
    """The summary of a run that ended, or None."""
    try:
        summary = json.loads((directory / "summary.json").read_text())
    except (OSError, ValueError):
        return None
    return summary if summary.get("status") == "done" else None


def same_scenario(directory: Path, scenario: "Scenario") -> bool:
    """Whether the directory's run was of this very scenario."""
    from ddlsim.scenario import to_yaml

    try:
        return (directory / "scenario.yaml").read_text() == to_yaml(scenario)
    except OSError:
        return False


def prepare(directory: Path) -> Path:
    """Makes the directory; an earlier run in it is moved aside, never overwritten.

    Returns:
        Where it is; a path that names no folder of its own, such as `.`, in full.
    Raises:
        ScenarioError: if it holds something else than a run, or cannot be made.
    """
    try:
        return _prepare(directory.resolve() if directory.name in ("", "..") else directory)
    except OSError as error:
        reason = error.strerror or error
        raise ScenarioError(
            f"--out {directory}: expected a directory to be made and written to, got: {reason}. Name another path."
        ) from error


def _prepare(directory: Path) -> Path:
    held = sorted(path.name for path in directory.iterdir()) if directory.is_dir() else []
    if directory.exists() and not directory.is_dir():
        raise ScenarioError(f"--out {directory}: expected a directory, found a file. Name another path.")
    if held and "manifest.json" not in held:
        raise ScenarioError(
            f"--out {directory}: expected an empty directory or an earlier run, found {', '.join(held[:5])}. "
            "Name a new directory."
        )
    if held:
        number = 1
        while (aside := directory.with_name(f"{directory.name}.earlier-{number}")).exists():
            number += 1
        directory.rename(aside)
    directory.mkdir(parents=True, exist_ok=True)
    if not os.access(directory, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    return directory


def start_manifest(scenario: "Scenario", prepared, device: str, missing: str | None, command: list[str] | None) -> dict:
    """What a reader must know to trust and repeat the run."""
    labels = [NETWORK_ONLY] if scenario.learning == "none" else []
    return {
        "ddlsim": metadata.version("ddlsim") if _installed("ddlsim") else None,
        "python": platform.python_version(),
        **{name: metadata.version(name) for name in PACKAGES if _installed(name)},
        "device": _device_name(device),
        "threads": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "cpu": _cpu_name(),
        "command": command or sys.argv,
        "seed": scenario.seed,
        "scenario": scenario.name,
        "algorithm": scenario.algorithm_name,
        "nodes": scenario.nodes.count,
        "rounds": scenario.rounds,
        "node_cluster": np.asarray(prepared.node_cluster).tolist(),
        "data": {**prepared.about, "name": scenario.data_name, "fallback": missing is not None, "missing": missing},
        "learning": scenario.learning,
        "task": prepared.task,
        "labels": [*labels, *getattr(scenario.algorithm, "labels", ())],
        "status": "running",
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "wall_s": None,
        "sim_time_s": None,
        "peak_rss_mib": None,
    }


def finish_manifest(manifest: dict, status: str, started: float, sim_time_s: float) -> None:
    """Adds how it ended."""
    manifest["status"] = status
    manifest["wall_s"] = round(time.perf_counter() - started, 3)
    manifest["sim_time_s"] = sim_time_s
    manifest["peak_rss_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def wall_profile(
    jobs_s: Mapping[str, float], setup_s: float, data_s: float, recording_s: float, manifest: dict
) -> dict[str, float]:
    """Where wall time went, in seconds: data, real computing by kind of work, recording, and the event loop.

    Args:
        jobs_s: kind of work -> seconds; kinds that always stand in the table stand there with 0.
        setup_s: imports and the making of all objects.
        data_s: reading and preparing data.
        recording_s: writing of records.
        manifest: finished, with `wall_s` and `sim_time_s`.

    Returns:
        `event loop` is what is left: simulated time, the network, and the algorithms' own code.
    """
    total_s, sim_time_s = manifest["wall_s"], manifest["sim_time_s"]
    parts = {"setup": setup_s, "data": data_s, **dict.fromkeys(ALWAYS_PROFILED, 0.0), **jobs_s}
    parts["similarity"] += parts.pop("comparison", 0.0)  # of whole models, and of classifiers' rows
    parts["recording"] = recording_s
    parts["event loop"] = total_s - sum(parts.values())
    return {
        **{name: round(value, 3) for name, value in parts.items()},
        "total": total_s,
        "simulated to wall": round(sim_time_s / total_s, 3),
    }


def write_scenario(directory: Path, scenario: "Scenario") -> None:
    from ddlsim.scenario import to_yaml

    (directory / "scenario.yaml").write_text(to_yaml(scenario))


def write_samples(directory: Path, prepared) -> None:
    """Writes samples.jsonl: per node its cluster, training samples and, of classes, how many of each.

    Nothing where no data was read.
    """
    if not hasattr(prepared, "class_counts"):
        return
    counts = prepared.class_counts()
    with (directory / "samples.jsonl").open("w", encoding="utf-8") as file:
        for node, (cluster, (_, labels)) in enumerate(zip(prepared.node_cluster, prepared.node_train, strict=True)):
            row = {"node": node, "cluster": int(cluster), "train": len(labels)}
            if counts is not None:
                row["classes"] = counts[node].tolist()
            file.write(json.dumps(row, separators=(",", ":")) + "\n")


def write_manifest(directory: Path, manifest: dict) -> None:
    write_json(directory / "manifest.json", manifest)


def write_json(path: Path, value: dict) -> None:
    """Whole or not at all: a reader never sees half a file."""
    draft = path.with_suffix(".draft")
    draft.write_text(json.dumps(value, indent=2) + "\n")
    os.replace(draft, path)


def _installed(package: str) -> bool:
    try:
        metadata.version(package)
    except metadata.PackageNotFoundError:
        return False
    return True


def _device_name(device: str) -> str:
    if device != "cuda":
        return device
    import torch

    return torch.cuda.get_device_name()


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor()

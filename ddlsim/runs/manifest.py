"""The manifest of a run: what a reader must know to trust and repeat it."""

import json
import os
import resource
import socket
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ddlsim.executors.versions import PACKAGES, versions
from ddlsim.host import cpu_name, num_cores
from ddlsim.runs.directory import write_json
from ddlsim.runs.inputs import file_digests
from ddlsim.tasks import TASKS

if TYPE_CHECKING:
    from ddlsim.data.outline import Outline
    from ddlsim.data.prepared import PreparedData
    from ddlsim.scenario import Scenario

NETWORK_ONLY = "learning: none: only the network ran; where learned values steer, every loss was taken as equal"

MODEL_SEES = ("image_shape", "num_classes", "num_tokens", "label_shape")
"""What a model is built for, of PreparedData or Outline; with it a module can be made without the samples."""


def start_manifest(
    scenario: "Scenario",
    prepared: "PreparedData | Outline",
    device: str,
    missing: str | None,
    command: Sequence[str] | None,
) -> dict:
    """What a reader must know to trust and repeat the run."""
    from ddlsim.scenario import parts
    from ddlsim.scenario.own_parts import origins

    attacks = [
        {
            "name": parts.table("attacks").label_of(attack),
            **({"knows": attack.knows} if attack.forges else {}),
            "nodes": list(attack.members(np.asarray(prepared.node_cluster), scenario.seed)),
        }
        for attack in scenario.attacks
    ]
    labels = [NETWORK_ONLY] if scenario.learning == "none" else []
    if scenario.evaluation.precision != "float32" and not labels:
        labels.append(f"tested in {scenario.evaluation.precision}: evaluation.precision")
    labels += prepared.about.get("notes", [])
    return {
        **versions(),
        "device": _device_name(device),
        "threads": num_cores(),
        "cpu": cpu_name(),
        "command": list(command or sys.argv),
        "process": {"pid": os.getpid(), "host": socket.gethostname()},
        "seed": scenario.seed,
        "scenario": scenario.name,
        "algorithm": scenario.algorithm_name,
        "nodes": scenario.nodes.count,
        "rounds": scenario.rounds,
        "node_cluster": np.asarray(prepared.node_cluster).tolist(),
        **({"attacks": attacks} if attacks else {}),
        "data": {**prepared.about, "name": scenario.data_name, "fallback": missing is not None, "missing": missing},
        "model_sees": {key: _plain(getattr(prepared, key)) for key in MODEL_SEES},
        "files_read": file_digests(scenario),
        "plugins": origins(scenario),
        "learning": scenario.learning,
        "task": TASKS.label_of(scenario.learned),
        "has_classes": scenario.learned.has_classes,
        "metric": scenario.learned.judged_by.plain(),
        "also_measured": [metric.plain() for metric in scenario.learned.metrics[1:]],
        "labels": [*labels, *scenario.algorithm.labels],
        "as_published": list(scenario.algorithm.as_published),
        "status": "running",
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "wall_s": None,
        "sim_time_s": None,
        "peak_rss_mib": None,
    }


def _plain(value: Any) -> Any:
    """A number, a shape or None as JSON has it; a data set of one's own may count in numpy's types."""
    return None if value is None else np.asarray(value, dtype=np.int64).tolist()


def made_with(scenarios: "Sequence[Scenario]", device: str) -> dict[str, str | None]:
    """What must be the same for two processes to compute the same bits.

    Args:
        scenarios: what is run, one after the other.
        device: see `computes_on`.
    """
    from ddlsim.scenario.own_parts import origins

    return {**versions(), "plugins": _told(origins(*scenarios)), "device": _device_name(device), "cpu": cpu_name()}


def told_with(manifest: Mapping[str, Any]) -> dict[str, str | None]:
    """As `made_with`, as far as the manifest of a run tells it."""
    keys = ("ddlsim", "code", "python", *PACKAGES, "device", "cpu")
    return {key: manifest[key] for key in keys if key in manifest} | {"plugins": _told(manifest.get("plugins") or ())}


def _told(plugins: Iterable[dict[str, Any]]) -> str:
    """What tells the code of parts from outside from another."""
    return json.dumps([_without_text(origin) for origin in plugins], sort_keys=True)


def _without_text(origin: dict[str, Any]) -> dict[str, Any]:
    """What tells a part's code from another; its SHA-256 stands for its text, wherever that came from, and for what its
    repository says, which other files change as well.
    """
    untold = {"source", "path"} if origin.get("source") is not None else set()
    return {
        key: value for key, value in origin.items() if key not in untold | ({"git"} if origin.get("sha256") else set())
    }


def finish_manifest(manifest: dict, status: str, started: float, sim_time_s: float) -> None:
    """Adds how it ended."""
    manifest["status"] = status
    manifest["wall_s"] = round(time.perf_counter() - started, 3)
    manifest["sim_time_s"] = sim_time_s
    manifest["peak_rss_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def write_manifest(directory: Path, manifest: dict) -> None:
    """Writes manifest.json, whole or not at all."""
    write_json(directory / "manifest.json", manifest)


def _device_name(device: str) -> str:
    if device != "cuda":
        return device
    import torch

    return torch.cuda.get_device_name() if torch.cuda.is_available() else device  # where workers alone have one

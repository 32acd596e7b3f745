"""The manifest of a run: facts that are needed to trust, repeat and continue it.

Inputs are compared by content: a run continues, or counts as complete, only if its samples and the files that its
scenario names are unchanged.
"""

import hashlib
import json
import os
import resource
import socket
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from ddlsim.data.dataset_spec import DatasetSpec
from ddlsim.data.prepared import PreparedData
from ddlsim.foundation import own_code
from ddlsim.foundation.environment import cpu_name, num_cores
from ddlsim.foundation.errors import RecordsDamaged, ScenarioError
from ddlsim.runs.branch_history import scenario_digests
from ddlsim.runs.cluster.cluster import PACKAGES, versions
from ddlsim.runs.directory import read_json
from ddlsim.scenario import Scenario, parts
from ddlsim.scenario.model import to_plain
from ddlsim.scenario.parts import origins
from ddlsim.tasks import TASKS

_DEALT = ("data.path", "partition.path")
"""Files of samples: if nodes read samples, these are compared instead of bytes."""
_KEYS = ("path", "file", "changes", "uplinks", "downlinks", "pretrained")
"""Keys that name files, one or a list of them."""


def file_digests(*scenarios: Scenario) -> dict[str, str]:
    """Return the SHA-256 of each existing file that scenarios name, by "key path"."""
    named = (each for scenario in scenarios for each in _named_files("", to_plain(scenario)))
    return {f"{key} {path}": _digest(found) for key, path, found in named}


def other_inputs(
    manifest: Mapping[str, Any],
    scenario: Scenario,
    prepared: PreparedData | DatasetSpec,
    before: Sequence[Scenario] = (),
) -> str:
    """Describe the inputs that differ from a run's; empty if none does.

    Args:
        manifest: of the run; on a worker of a cluster, its data and the files of its model.
        scenario: of the run, or of a branch of it.
        prepared: the current data of nodes.
        before: earlier scenarios of a branched run.
    """
    then, now, found = manifest["data"], prepared.about, []
    files = manifest["files_read"]
    if then.get("sha256") != now.get("sha256"):
        found.append((f"data: {scenario.data_name}", then.get("sha256"), now.get("sha256")))
    elif then.get("dealt") != now.get("dealt"):
        found.append(("partition: samples of each node", then.get("dealt"), now.get("dealt")))
    for name, digest in file_digests(*before, scenario).items():
        by_bytes = "sha256" not in now or name.split(" ", 1)[0] not in _DEALT
        if by_bytes and files.get(name, digest) != digest:
            found.append((name.replace(" ", ": ", 1), files[name], digest))
    return "; ".join(f"{what} has changed since the run: its SHA-256 was {was}, is {now}" for what, was, now in found)


def same_files(directory: Path, *scenarios: Scenario) -> bool:
    """Whether the files that scenarios name have the bytes that the run in a directory has read."""
    then = read_json(directory / "manifest.json").get("files_read")
    now = file_digests(*scenarios).items()
    return then is not None and all(then.get(name, digest) == digest for name, digest in now)


def _named_files(key: str, value: Any) -> Iterator[tuple[str, str, Path]]:
    """Yield the dotted key, text and path of each existing file, or folder, that is named below a key."""
    if isinstance(value, Mapping):
        for name, below in value.items():
            yield from _named_files(f"{key}.{name}" if key else name, below)
    elif isinstance(value, list):
        for below in value:
            yield from _named_files(key, below)
    elif isinstance(value, str) and (last := key.rpartition(".")[2]) in _KEYS:
        path = Path(value).expanduser()
        if path.is_file() or (last == "pretrained" and path.is_dir()):
            yield key, value, path
    elif isinstance(value, str) and "training.augmentation" in key and own_code.is_place(value):
        code = own_code.file_of(value)
        if code is not None and code.is_file():
            yield key, value, code


def _digest(path: Path) -> str:
    if path.is_dir():
        files = sorted(each for each in path.rglob("*") if each.is_file())
        listed = "".join(f"{each.relative_to(path)} {_digest(each)}\n" for each in files)
        return hashlib.sha256(listed.encode()).hexdigest()
    about = path.stat()
    return _digest_of(path.resolve(), about.st_mtime_ns, about.st_size)


@lru_cache(maxsize=64)
def _digest_of(path: Path, changed: int, size: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


NETWORK_ONLY = "learning: none: only the network ran; where learned values steer, every loss was taken as equal"

MODEL_SEES = ("image_shape", "num_classes", "num_tokens", "label_shape")
"""Attributes of PreparedData or DatasetSpec from which a model is built, for readers without the samples."""


def start_manifest(
    scenario: Scenario,
    prepared: PreparedData | DatasetSpec,
    device: str,
    missing: str | None,
    command: Sequence[str] | None,
) -> dict:
    """Return the manifest of a run before its first round.

    Args:
        scenario: of the run.
        prepared: its data.
        device: see `computes_on`.
        missing: the reason for its fallback, or None.
        command: see Options.
    """
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
    """Convert a number, a shape or None for JSON; a user-defined data set may count in numpy's types."""
    return None if value is None else np.asarray(value, dtype=np.int64).tolist()


def made_with(scenarios: Sequence[Scenario], device: str) -> dict[str, Any]:
    """Return the versions and settings that must be equal for two processes to compute the same bits.

    Args:
        scenarios: of the run, in order.
        device: see `computes_on`.
    """
    code = [_code(origin) for origin in origins(*scenarios)]
    return {**versions(), "plugins": code, "device": _device_name(device), "cpu": cpu_name()}


def recorded_environment(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of `made_with` in the manifest of a run."""
    keys = ("ddlsim", "code", "python", *PACKAGES, "device", "cpu")
    code = [_code(origin) for origin in manifest["plugins"]]
    return {key: manifest[key] for key in keys if key in manifest} | {"plugins": code}


def _code(origin: dict[str, Any]) -> dict[str, Any]:
    """Return the identity of a part's code: its SHA-256 replaces its text, its path and the state of its repository."""
    ignored = ({"source", "path"} if origin.get("source") else set()) | ({"git"} if origin.get("sha256") else set())
    return {key: value for key, value in origin.items() if key not in ignored}


def finish_manifest(manifest: dict, status: str, started: float, sim_time_s: float) -> None:
    """Add the end of a run."""
    manifest["status"] = status
    manifest["wall_s"] = round(time.perf_counter() - started, 3)
    manifest["sim_time_s"] = sim_time_s
    manifest["peak_rss_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def _device_name(device: str) -> str:
    if device != "cuda":
        return device
    import torch

    return torch.cuda.get_device_name() if torch.cuda.is_available() else device  # where workers alone have one


def read_manifest(directory: Path) -> dict[str, Any]:
    """Read manifest.json.

    Raises:
        ScenarioError: if it is missing.
        RecordsDamaged: if it cannot be read.
    """
    path = directory / "manifest.json"
    if not path.is_file():
        raise ScenarioError(f"{directory}: expected the directory of a run, got one without a manifest.json.")
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(manifest["data"], dict):
            raise TypeError("its data is not a mapping")
        return manifest
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RecordsDamaged(f"{path}: cannot be read: {error}. Run it again with `ddlsim run ... --force`.") from error


def refuse_edited(directory: Path, manifest: Mapping[str, Any]) -> None:
    """Raise ScenarioError if a scenario file in the directory was changed."""
    then, now = manifest["scenario_files"], scenario_digests(directory)
    for name in sorted({*then, *now}):
        if then.get(name) != now.get(name):
            raise ScenarioError(
                f"{directory / name}: was changed since the run began. Restore it. For changes from some round on, "
                f"make a branch: `ddlsim resume {directory} --set KEY=VALUE --out NEW`."
            )


def require_python_parts(directory: Path, manifest: Mapping[str, Any]) -> None:
    """Raise ScenarioError if the run has parts from Python code that this process has not defined."""
    tables = {parts.table(key).kind: (key, parts.table(key)) for key in parts.TABLES}
    for origin in manifest["plugins"]:
        if "source" not in origin:
            continue
        key, table = tables[origin["kind"]]
        if origin["name"] not in table:
            where = f"{origin['path']}" if origin["path"] else f"its text is in {directory}/manifest.json, at plugins"
            raise ScenarioError(
                f"{directory}: the run was made from Python with {key} {origin['name']} ({where}), which no file and "
                f"no package names. Resume it from Python: ddlsim.resume({str(directory)!r}, {key}={origin['name']})."
            )


def refuse_other_environment(directory: Path, then: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Raise ScenarioError if this process computes other bits than the run, see `made_with`."""
    differ = [
        f"{name} was {then.get(name)}, is {now.get(name)}"
        for name in sorted({*then, *now} - {"plugins"})
        if then.get(name) != now.get(name)
    ]
    were, are = ({(each["kind"], each["name"]): each for each in found.get("plugins", ())} for found in (then, now))
    differ += [f"the code of {' '.join(key)}" for key in sorted({*were, *are}) if were.get(key) != are.get(key)]
    if differ:
        raise ScenarioError(
            f"{directory}: the run was made in another environment: {'; '.join(differ)}. Its results may change; "
            "--anyway continues it in any case."
        )
    unknown = [f"{kind} {name}" for (kind, name), code in are.items() if not code.get("sha256", True)]
    if unknown:
        raise ScenarioError(
            f"{directory}: cannot compare the code of {', '.join(unknown)} with the run's, because no source file "
            "defines it alone (a notebook, a lambda, a function inside another). If it is the same, pass --anyway (in "
            "Python: anyway=True)."
        )


def refuse_other_inputs(directory: Path, scenario: Scenario, prepared: PreparedData | DatasetSpec) -> None:
    """Raise ScenarioError if inputs have changed since the complete run in a directory."""
    other = other_inputs(read_manifest(directory), scenario, prepared)
    if other:
        raise ScenarioError(
            f"{directory} holds this run already, but with other inputs: {other}. Restore them, name another "
            "--out, or use --force, which runs it again and keeps the earlier run as .earlier-<number>."
        )


ALWAYS_PROFILED = ("training", "head losses", "evaluation", "merging", "similarity")


def wall_profile(
    jobs_s: Mapping[str, float], setup_s: float, data_s: float, recording_s: float, manifest: dict
) -> dict[str, float]:
    """Return wall time in seconds: data, computing by kind of work, recording, and the event loop.

    Args:
        jobs_s: kind of work -> seconds.
        setup_s: imports and creation of all objects.
        data_s: reading and preparing data.
        recording_s: writing of records.
        manifest: finished, with `wall_s` and `sim_time_s`.

    Returns:
        `event loop` is the rest: simulated time, the network, and the code of algorithms.
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

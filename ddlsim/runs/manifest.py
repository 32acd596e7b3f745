"""The manifest of a run: what a reader must know to trust and repeat it.

What a run reads beside its scenario: the samples that its nodes are dealt, and the files that the scenario names.

A scenario names files by their paths, but what they hold counts: a run goes on, and one that is there already comes
back, only where they hold what they held then.

An earlier run that another process goes on from: what it was, and whether this process computes as it did.

Where wall time went, for `--profile`.
"""

import hashlib
import json
import os
import resource
import socket
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ddlsim.foundation import own_code
from ddlsim.foundation.errors import RecordsDamaged, ScenarioError
from ddlsim.foundation.host import cpu_name, num_cores
from ddlsim.runs.branch_history import scenario_digests
from ddlsim.runs.cluster.cluster import PACKAGES, versions
from ddlsim.runs.directory import write_json
from ddlsim.runs.loading import load_data, prepare
from ddlsim.scenario import parts
from ddlsim.tasks import TASKS

if TYPE_CHECKING:
    from ddlsim.data import DatasetSpec, PreparedData
    from ddlsim.runs.branch_history import Stage
    from ddlsim.scenario import Scenario


_DEALT = ("data.path", "partition.path")
"""Files of which the samples that nodes get are compared, and no bytes, where samples are read."""
_KEYS = ("path", "file", "changes", "uplinks", "downlinks", "pretrained")
"""Keys under which files are named, one or a list of them."""
_FOLDERS = ("pretrained",)
"""Those of them under which a folder may be named, all of whose files count."""


def file_digests(*scenarios: "Scenario") -> dict[str, str]:
    """The files that scenarios name, of those that are there: "key path" -> SHA-256."""
    from ddlsim.scenario.model import to_plain

    named = (each for scenario in scenarios for each in _named("", to_plain(scenario)))
    return {f"{key} {path}": _digest(found) for key, path, found in named}


def other_inputs(
    manifest: Mapping[str, Any],
    scenario: "Scenario",
    prepared: "PreparedData | DatasetSpec",
    before: "Sequence[Scenario]" = (),
) -> str:
    """What would be read now that is not what a run was made on, in words; empty: nothing.

    Args:
        manifest: of the run; what an older one does not tell is not compared.
        scenario: of the run, or of a branch of it.
        prepared: what nodes get now.
        before: what a branched run follows before that.
    """
    then, now, found = manifest["data"], prepared.about, []
    files = manifest.get("files_read") or {}
    if then.get("sha256") != now.get("sha256"):
        found.append((f"data: {scenario.data_name}", then.get("sha256"), now.get("sha256")))
    elif then.get("dealt") and then["dealt"] != now.get("dealt"):
        found.append(("partition: what nodes get of the data", then["dealt"], now.get("dealt")))
    for name, digest in file_digests(*before, scenario).items():
        by_bytes = "sha256" not in now or name.split(" ", 1)[0] not in _DEALT
        if by_bytes and files.get(name, digest) != digest:
            found.append((name.replace(" ", ": ", 1), files[name], digest))
    return "; ".join(
        f"{what} is not what the run was made on: its SHA-256 was {was}, is {now}" for what, was, now in found
    )


def same_files(directory: Path, *scenarios: "Scenario") -> bool:
    """Whether the files that scenarios name are, byte by byte, those that the run in a directory has read."""
    try:
        then = json.loads((directory / "manifest.json").read_text(encoding="utf-8")).get("files_read") or {}
        return all(then.get(name, digest) == digest for name, digest in file_digests(*scenarios).items())
    except (OSError, ValueError, AttributeError):
        return False


def _named(key: str, value: Any) -> Iterator[tuple[str, str, Path]]:
    """Dotted key, text and path of each file, or folder, that is named below a key and is there."""
    if isinstance(value, Mapping):
        for name, below in value.items():
            yield from _named(f"{key}.{name}" if key else name, below)
    elif isinstance(value, list):
        for below in value:
            yield from _named(key, below)
    elif isinstance(value, str) and (last := key.rpartition(".")[2]) in _KEYS:
        path = Path(value).expanduser()
        if path.is_file() or (last in _FOLDERS and path.is_dir()):
            yield key, value, path
    elif isinstance(value, str) and "training.augmentation" in key and own_code.is_place(value):
        code = own_code.file_of(value)
        if code is not None and code.is_file():
            yield key, value, code


def _digest(path: Path) -> str:
    if path.is_dir():
        files = sorted(each for each in path.rglob("*") if each.is_file())
        return hashlib.sha256(
            "".join(f"{each.relative_to(path)} {_digest(each)}\n" for each in files).encode()
        ).hexdigest()
    about = path.stat()
    return _digest_of(path.resolve(), about.st_mtime_ns, about.st_size)


@lru_cache(maxsize=64)
def _digest_of(path: Path, changed: int, size: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


NETWORK_ONLY = "learning: none: only the network ran; where learned values steer, every loss was taken as equal"

MODEL_SEES = ("image_shape", "num_classes", "num_tokens", "label_shape")
"""What a model is built for, of PreparedData or DatasetSpec; with it a module can be made without the samples."""


def start_manifest(
    scenario: "Scenario",
    prepared: "PreparedData | DatasetSpec",
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

    return {
        **versions(),
        "plugins": _plugins_text(origins(*scenarios)),
        "device": _device_name(device),
        "cpu": cpu_name(),
    }


def recorded_environment(manifest: Mapping[str, Any]) -> dict[str, str | None]:
    """As `made_with`, as far as the manifest of a run tells it."""
    keys = ("ddlsim", "code", "python", *PACKAGES, "device", "cpu")
    return {key: manifest[key] for key in keys if key in manifest} | {
        "plugins": _plugins_text(manifest.get("plugins") or ())
    }


def _plugins_text(plugins: Iterable[dict[str, Any]]) -> str:
    """What tells the code of parts from outside from another."""
    return json.dumps([_without_text(origin) for origin in plugins], sort_keys=True)


def _without_text(origin: dict[str, Any]) -> dict[str, Any]:
    """What tells a part's code from another; its SHA-256 stands for its text, wherever that came from, and for what its
    repository says, which other files change as well.
    """
    omitted = {"source", "path"} if origin.get("source") is not None else set()
    return {
        key: value for key, value in origin.items() if key not in omitted | ({"git"} if origin.get("sha256") else set())
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


def read_manifest(directory: Path) -> dict[str, Any]:
    """What manifest.json says.

    Raises:
        ScenarioError: if there is none.
        RecordsDamaged: if it cannot be read.
    """
    path = directory / "manifest.json"
    if not path.is_file():
        raise ScenarioError(f"{directory}: expected the directory of a run, found no manifest.json in it.")
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(manifest["data"], dict):
            raise TypeError("its data is no mapping")
        return manifest
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RecordsDamaged(f"{path}: cannot be read: {error}. Run it again with `ddlsim run ... --force`.") from error


def refuse_edited(directory: Path, manifest: Mapping[str, Any]) -> None:
    """Raises ScenarioError if a scenario in the directory is not the one that the run has followed."""
    then, now = manifest.get("scenario_files"), scenario_digests(directory)
    edited = [] if then is None else sorted(name for name in {*then, *now} if then.get(name) != now.get(name))
    if edited:
        raise ScenarioError(
            f"{directory / edited[0]}: was changed since the run began. Put it back as it was; what is to be other "
            f"from some round on makes a branch: `ddlsim resume {directory} --set KEY=VALUE --out NEW`."
        )


def need_given_parts(directory: Path, manifest: Mapping[str, Any]) -> None:
    """Raises ScenarioError if the run has parts that Python code had given it, and now has not."""
    tables = {parts.table(key).kind: (key, parts.table(key)) for key in parts.TABLES}
    for origin in manifest.get("plugins") or ():
        if "source" not in origin:
            continue
        key, table = tables[origin["kind"]]
        if origin["name"] not in table:
            where = f"{origin['path']}" if origin["path"] else f"its text is in {directory}/manifest.json, at plugins"
            raise ScenarioError(
                f"{directory}: the run was made from Python with {key} {origin['name']} ({where}), which no file and "
                f"no package names. Resume it from Python: ddlsim.resume({str(directory)!r}, {key}={origin['name']})."
            )


def refuse_others(directory: Path, then: Mapping[str, str | None], now: Mapping[str, str | None]) -> None:
    """Raises ScenarioError if what computes now is not what computed then, see manifest.py: made_with."""
    names = sorted(key for key in {*then, *now} if then.get(key) != now.get(key))
    if names:
        differ = "; ".join(_differ(name, then.get(name), now.get(name)) for name in names)
        raise ScenarioError(
            f"{directory}: the run was made with something else: {differ}. Its end may not be the one that it would "
            "have had; --anyway goes on all the same."
        )
    unknown = [each for each in json.loads(now.get("plugins") or "[]") if not each.get("sha256", True)]
    if unknown:
        parts = ", ".join(f"{each['kind']} {each['name']}" for each in unknown)
        raise ScenarioError(
            f"{directory}: cannot compare the code of {parts} with the run's, because no source file defines it alone "
            "(a notebook, a lambda, a function inside another). If it is the same, pass --anyway (in Python: "
            "anyway=True)."
        )


def _differ(name: str, then: str | None, now: str | None) -> str:
    """What was something else then, in words; of parts from outside, what tells the code of each from another."""
    found = []
    if name == "plugins":
        were, are = ({(each["kind"], each["name"]): each for each in json.loads(text or "[]")} for text in (then, now))
        for key in sorted({*were, *are}):
            was, has = were.get(key, {}), are.get(key, {})
            fields = sorted(field for field in {*was, *has} if was.get(field) != has.get(field))
            differences = ", ".join(f"{field} was {was.get(field)}, is {has.get(field)}" for field in fields)
            found += [f"the code of {' '.join(key)} ({differences})"] if fields else []
    return "; ".join(found) or f"{name} was {then}, is {now}"


def load_same_data(
    scenario: "Scenario",
    manifest: Mapping[str, Any],
    data_dir: Path | None,
    download: bool,
    stages: "Sequence[Stage]" = (),
) -> "PreparedData | DatasetSpec":
    """The run's data; never its fallback's, which the scenario of a run on it names as its own.

    Args:
        stages: what a branched run follows before `scenario`.
    Raises:
        ScenarioError: if it is other data than the run's, or dealt in another way, or a file that the scenario names
            has changed.
        DataMissing: if it is not there.
    """
    prepared = prepare(load_data(scenario, data_dir, fallback=False, download=download))
    other = other_inputs(manifest, scenario, prepared, [stage.scenario for stage in stages])
    if other:
        raise ScenarioError(f"{other}. Put back what the run was made on; --data-dir names the folder of its data.")
    return prepared


def refuse_other_inputs(directory: Path, scenario: "Scenario", prepared: "PreparedData | DatasetSpec") -> None:
    """Raises ScenarioError if the run of a scenario that is there already has read something else than is there now."""
    other = other_inputs(read_manifest(directory), scenario, prepared)
    if other:
        raise ScenarioError(
            f"{directory} holds this run already, but of other inputs: {other}. Put back what it was made on, name "
            "another --out, or use --force, which runs it again and keeps what is there beside it."
        )


ALWAYS_PROFILED = ("training", "head losses", "evaluation", "merging", "similarity")


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


def wave_counts(waves: Mapping[str, Sequence[int]]) -> dict[str, dict[str, int]]:
    """How often each kind of work ran, and on how many jobs in all.

    Args:
        waves: kind of work -> jobs of each wave.
    """
    return {kind: {"waves": len(sizes), "jobs": sum(sizes)} for kind, sizes in waves.items()}

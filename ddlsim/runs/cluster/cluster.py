"""Executors, the connection to a Ray cluster, and the versions that determine the bits of results.

Usage statistics are off. A cluster that is started here ends with the run, and listens only on the loopback interface,
without dashboard.
"""

import hashlib
import os
import platform
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, get_args

from ddlsim.foundation.environment import needed, num_cores
from ddlsim.foundation.errors import DdlsimError, ScenarioError
from ddlsim.foundation.native import PACKAGE_DIR, extension

Shards = Literal["contiguous", "clusters", "graph"]
"""Assignment of nodes to workers, see ray_workers.py: deal."""


@dataclass(frozen=True, kw_only=True)
class Executor:
    """The executor of a run; it changes no result.

    Args:
        name: local, ray, or together (one process computes for several runs, see together.py).
        address: of a Ray cluster, host:port or auto (the environment's); None: a cluster of this machine, which
            ends with the run. Of the process of `together`: the number of an inherited socket.
        workers: worker processes; None: one per host, or one per GPU if workers have GPUs.
        cpus_per_worker: threads of each; None: an equal share of the cores of its host.
        gpus_per_worker: 1: each computes on a GPU; 0: on its cores.
        shards: assignment of nodes to workers.
        object_store_gb: memory for data between workers, of a cluster that is started here; None: Ray's default.
    """

    name: str = "local"
    address: str | None = None
    workers: int | None = None
    cpus_per_worker: int | None = None
    gpus_per_worker: int = 0
    shards: Shards = "contiguous"
    object_store_gb: float | None = None

    @property
    def is_local(self) -> bool:
        """Whether this process computes."""
        return self.name == "local"

    @property
    def device(self) -> str | None:
        """The device of Ray's workers; None without them."""
        return None if self.name != "ray" else "cuda" if self.gpus_per_worker else "cpu"


def executor_of(text: str = "local", **chosen: Any) -> Executor:
    """Return the executor for `--executor TEXT` and further options.

    Args:
        text: local, ray, ray:auto or ray:host:port.
        chosen: see Executor; None: the default.
    Raises:
        ScenarioError: if an option is invalid.
    """
    name, _, address = str(text).partition(":")
    is_socket = name == "together" and address.isdecimal()  # from `sweep --together`
    fits = {"local": not address, "ray": True, "together": is_socket}
    if not fits.get(name) or (":" in str(text) and not address):
        raise ScenarioError(f"--executor {text!s:.60}: expected local, ray, ray:auto or ray:HOST:PORT.")
    if address and address != "auto" and not is_socket:
        host, _, port = address.rpartition(":")
        if not host or not port.isdecimal():
            raise ScenarioError(f"--executor {text:.60}: expected ray:HOST:PORT, such as ray:10.0.0.1:6379.")
    options = {key: value for key, value in chosen.items() if value is not None}
    if name != "ray" and options:
        option = next(iter(options)).replace("_", "-")
        raise ScenarioError(f"--{option}: is an option of Ray's workers. Add --executor ray, or leave it out.")
    shards = options.get("shards", "contiguous")
    if shards not in get_args(Shards):
        raise ScenarioError(f"--shards {shards!s:.40}: expected {', '.join(get_args(Shards))}.")
    if options.get("gpus_per_worker", 0) not in (0, 1):
        gpus = options["gpus_per_worker"]
        raise ScenarioError(f"--gpus-per-worker {gpus!s:.40}: expected 0 or 1. A GPU more needs a worker more.")
    for key in ("workers", "cpus_per_worker"):
        value = options.get(key, 1)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise ScenarioError(f"--{key.replace('_', '-')} {value!s:.40}: expected a whole number from 1 on.")
    if not options.get("object_store_gb", 1) >= 0.1:
        raise ScenarioError(f"--object-store-gb {options['object_store_gb']}: expected at least 0.1.")
    return Executor(name=name, address=address or None, **options)


ANSWER_S = 10.0
"""Limit for a connection to the head of a cluster; Ray itself tries for minutes and ends the process."""
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
"""Environment variables for threads of libraries: 1 in workers, unless they are set here."""


@dataclass(frozen=True)
class Place:
    """The place of a worker.

    Args:
        host: Ray's id of the host.
        address: of the host.
        threads: of the worker.
    """

    host: str
    address: str
    threads: int


def import_ray() -> ModuleType:
    """Import Ray, without usage statistics.

    Raises:
        DataMissing: if it is not installed.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_IGNORE_UNHANDLED_ERRORS", "1")  # a lost worker is reported once, by ddlsim
    return needed("ray", "ray", "--executor ray")


@contextmanager
def disconnecting(executor: Executor) -> Iterator[None]:
    """Disconnect from the cluster at the end of the block, unless the process was connected before it.

    A cluster that was started in the block ends.
    """
    ray = sys.modules.get("ray")
    was_connected = ray is not None and ray.is_initialized()
    try:
        yield
    finally:
        ray = sys.modules.get("ray")
        if not executor.is_local and not was_connected and ray is not None:
            with suppress(Exception):  # of a cluster that broke
                ray.shutdown()


def connect(executor: Executor, cpus: int | None = None) -> None:
    """Connect this process to the executor's cluster, unless it is connected already.

    Args:
        executor: the requested executor.
        cpus: of a cluster that is started here; None: the cores of this process, or one for each worker.
    Raises:
        DataMissing: without Ray. DdlsimError: if the cluster cannot be reached or started.
    """
    ray = import_ray()
    if ray.is_initialized():
        return
    from ray._private import ray_constants

    ray_constants.ENABLE_RAY_CLUSTER = executor.address is not None  # else 127.0.0.1, as where firewalls ask
    _check_answers(executor.address)
    quiet = {"log_to_driver": False, "logging_level": "ERROR", "include_dashboard": False}
    try:
        if executor.address is not None:
            del quiet["include_dashboard"]
            ray.init(address=executor.address, namespace="ddlsim", **quiet)
        else:
            workers = (executor.workers or 1) * (executor.cpus_per_worker or 1)
            ray.init(
                address="local",
                num_cpus=cpus or max(num_cores(), workers),
                object_store_memory=executor.object_store_gb and int(executor.object_store_gb * 1e9),
                namespace="ddlsim",
                **quiet,
            )
    except Exception as error:  # Ray has no common error for clusters that it cannot reach or start
        where = "started" if executor.address is None else f"reached at {executor.address}"
        text = " ".join(str(error).split())
        raise DdlsimError(f"--executor: no cluster could be {where}: {type(error).__name__}: {text:.300}") from error


def _check_answers(address: str | None) -> None:
    """Raise DdlsimError unless a server accepts a connection at an address within ANSWER_S."""
    address = os.environ.get("RAY_ADDRESS") if address == "auto" else address
    host, _, port = (address or "").rpartition(":")
    if not host or not port.isdecimal():  # one is started here, or Ray looks for one of this machine
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), ANSWER_S).close()
    except (OSError, OverflowError) as error:
        raise DdlsimError(
            f"--executor: no Ray cluster answers at {address}: {error}. Check the address, and any firewall."
        ) from error


def hosts() -> list[Mapping[str, Any]]:
    """Return the hosts of the cluster that have cores, in a fixed order."""
    alive = [host for host in import_ray().nodes() if host["Alive"] and host["Resources"].get("CPU", 0) >= 1]
    return sorted(alive, key=lambda host: (host["NodeManagerAddress"], host["NodeID"]))


def plan(executor: Executor, at: Sequence[Mapping[str, Any]], fewer: bool = False) -> list[Place]:
    """Return the places of workers, spread evenly over hosts.

    Args:
        executor: the requested executor.
        at: hosts, see `hosts`.
        fewer: accept fewer workers, if there is no room for all.
    Raises:
        DdlsimError: if there is no room for one worker. ScenarioError: if there is no room for all.
    """
    rooms = [_room(executor, host["Resources"]) for host in at]
    whole = [
        int(host["Resources"].get("GPU", 0)) // executor.gpus_per_worker for host in at if executor.gpus_per_worker
    ]
    wanted = executor.workers or (sum(whole) if executor.gpus_per_worker else len(at))
    if not sum(rooms):
        each = [f"{executor.cpus_per_worker or 1} cores"]
        each += [f"{executor.gpus_per_worker} GPUs"] if executor.gpus_per_worker else []
        raise DdlsimError(f"--executor: none of the {len(at)} hosts has room for a worker with {' and '.join(each)}.")
    if wanted > sum(rooms) and not fewer:
        raise ScenarioError(f"--workers {wanted}: the cluster has room for {sum(rooms)}. Ask for fewer, or add hosts.")
    counts = [0] * len(at)
    for _ in range(min(wanted, sum(rooms))):
        fullest = min((place for place in range(len(at)) if counts[place] < rooms[place]), key=counts.__getitem__)
        counts[fullest] += 1
    return [
        Place(
            host["NodeID"], host["NodeManagerAddress"], executor.cpus_per_worker or int(host["Resources"]["CPU"]) // n
        )
        for host, n in zip(at, counts, strict=True)
        for _ in range(n)
    ]


def _room(executor: Executor, resources: Mapping[str, float]) -> int:
    """Return the number of workers that a host can take."""
    room = int(resources.get("CPU", 0)) // (executor.cpus_per_worker or 1)
    if executor.gpus_per_worker:
        room = min(room, int(resources.get("GPU", 0)) // executor.gpus_per_worker)
    return room


def threads_environment() -> dict[str, str]:
    """Return the environment of workers: one thread for each library, unless it is set in this process."""
    return {name: os.environ.get(name, "1") for name in THREADS}


PACKAGES = ("torch", "torchvision", "numpy", "simpy", "networkx", "pydantic")


def versions() -> dict[str, str | None]:
    """Return the versions of this package, of its code, of Python and of libraries."""
    return {
        "ddlsim": version_of("ddlsim"),
        "code": _code(),
        "python": platform.python_version(),
        **{name: found for name in PACKAGES if (found := version_of(name)) is not None},
    }


@cache
def _code() -> str:
    """Return the digest of this package's code at the first call, without the plug-ins of installed scenarios."""
    code, scenarios = hashlib.sha256(), PACKAGE_DIR / "_scenarios"
    files = sorted(path for path in PACKAGE_DIR.rglob("*.py") if scenarios not in path.parents)
    native = Path(str(extension().__file__))
    for path in (*files, native, *sorted(native.parent.glob("_cuda*"))):
        code.update(path.name.encode())
        code.update(path.read_bytes())
    return code.hexdigest()[:16]


def version_of(package: str) -> str | None:
    """Return the version of an installed package."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None

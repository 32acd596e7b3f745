"""What a user chooses of an executor; nothing of it changes a result."""

from dataclasses import dataclass
from typing import Any, Literal, get_args

from ddlsim.errors import ScenarioError

Shards = Literal["contiguous", "clusters", "graph"]
"""How nodes are dealt to workers, see placement.py."""

EXECUTORS = ("local", "ray")


@dataclass(frozen=True, kw_only=True)
class Executor:
    """Where jobs are computed.

    Args:
        name: local or ray.
        address: of a Ray cluster, host:port or auto (that of the environment); None: one is started on this machine,
            reachable from nowhere else, and ended with the run.
        workers: processes that compute; None: one per host, or one per GPU where workers have GPUs.
        cpus_per_worker: threads of each; None: the cores of its host, shared evenly.
        gpus_per_worker: whole GPUs of each; 0: it computes on its cores.
        shards: how nodes are dealt to workers.
        object_store_gb: memory for what travels between workers, of a cluster that is started here; None: a fifth of
            this machine's.
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
        """Whether this process computes by itself."""
        return self.name == "local"

    @property
    def device(self) -> str | None:
        """What workers compute on; None: as without workers."""
        return None if self.is_local else "cuda" if self.gpus_per_worker else "cpu"


LOCAL = Executor()


def executor_of(text: str = "local", **chosen: Any) -> Executor:
    """What `--executor TEXT` and the options beside it mean; those that are None are left out.

    Args:
        text: local, ray, ray:auto or ray:host:port.
        chosen: see Executor.
    Raises:
        ScenarioError: if it is nothing of the kind.
    """
    name, _, address = str(text).partition(":")
    if name not in EXECUTORS or (address and name != "ray") or (":" in str(text) and not address):
        raise ScenarioError(f"--executor {text!s:.60}: expected local, ray, ray:auto or ray:HOST:PORT.")
    if address and address != "auto":
        host, _, port = address.rpartition(":")
        if not host or not port.isdecimal():
            raise ScenarioError(f"--executor {text:.60}: expected ray:HOST:PORT, such as ray:10.0.0.1:6379.")
    given = {key: value for key, value in chosen.items() if value is not None}
    if name == "local" and given:
        option = next(iter(given)).replace("_", "-")
        raise ScenarioError(f"--{option}: says how Ray's workers are made. Add --executor ray, or leave it out.")
    shards = given.get("shards", "contiguous")
    if shards not in get_args(Shards):
        raise ScenarioError(f"--shards {shards!s:.40}: expected {', '.join(get_args(Shards))}.")
    for key, least in (("workers", 1), ("cpus_per_worker", 1), ("gpus_per_worker", 0)):
        value = given.get(key, least)
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise ScenarioError(f"--{key.replace('_', '-')} {value!s:.40}: expected a whole number from {least} on.")
    if not given.get("object_store_gb", 1) >= 0.1:
        raise ScenarioError(f"--object-store-gb {given['object_store_gb']}: expected at least 0.1.")
    return Executor(name=name, address=address or None, **given)

"""ddlsim doctor: checks of the environment, with a cure for each fault."""

import importlib
import os
import platform
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from importlib import metadata
from pathlib import Path

import typer

from ddlsim.cli.options import AsJson, ExecutorName
from ddlsim.foundation import native
from ddlsim.foundation.environment import num_cores
from ddlsim.foundation.strict_json import table_text

PACKAGES = ("torch", "numpy", "simpy", "networkx", "pydantic", "ruamel.yaml", "typer", "safetensors", "tqdm")


@dataclass(frozen=True)
class Finding:
    """Result of one check.

    Args:
        what: subject of the check.
        state: ok, note (worth knowing) or bad (a run needs it).
        detail: what was found.
        cure: what to do; empty if nothing.
    """

    what: str
    state: str
    detail: str
    cure: str = ""


def doctor(executor: ExecutorName = "local", as_json: AsJson = False) -> None:
    """Check the environment; each fault with its cure. Exit code 3 if a run could not start."""
    checks = [
        ("versions", _versions, "reinstall ddlsim"),
        ("import torch", _torch, "pip install torch"),
        ("import torchvision", _torchvision, "pip install 'ddlsim[vision]'"),
        ("compiled kernels", _kernels, "pip install . in the repository's root"),
        ("CUDA", _cuda, "see the message"),
        ("writing here", _writing, "change to another folder, or use --out"),
        *([("Ray", lambda: _cluster(executor), "see docs/cluster.md")] if executor != "local" else []),
    ]
    found = [finding for check in checks for finding in _safely(*check)]
    bad = [finding for finding in found if finding.state == "bad"]
    if as_json:
        findings = [asdict(one) for one in found]
        typer.echo(table_text({"schema_version": 1, "ok": not bad, "findings": findings}, indent=1))
    else:
        width = max(len(finding.what) for finding in found)
        for finding in found:
            typer.echo(f"{finding.state:4}  {finding.what:{width}}  {finding.detail}")
            if finding.cure:
                typer.echo(f"{'':4}  {'':{width}}  -> {finding.cure}")
        typer.echo("Everything a run needs is available." if not bad else f"{len(bad)} to fix before a run.")
    if bad:
        raise typer.Exit(3)


def _safely(what: str, check: Callable[[], Iterator[Finding]], cure: str) -> Iterator[Finding]:
    """Yield the findings of a check; an exception is a bad one."""
    try:
        yield from check()
    except Exception as error:
        yield Finding(what, "bad", _first_line(error), cure)


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0]


def _versions() -> Iterator[Finding]:
    from ddlsim import __version__

    yield Finding("python", "ok", f"{platform.python_version()} on {platform.machine()}")
    yield Finding("ddlsim", "ok", f"{__version__} in {Path(__file__).resolve().parents[1]}")
    for package in PACKAGES:
        yield Finding(package, "ok", metadata.version(package))
    limit = os.environ.get("OMP_NUM_THREADS")
    yield Finding("threads", "ok", f"{num_cores()} usable cores" + (f", OMP_NUM_THREADS={limit}" if limit else ""))


def _torch() -> Iterator[Finding]:
    import torch

    yield Finding("import torch", "ok", f"{torch.__version__}, {torch.get_num_threads()} threads")


def _torchvision() -> Iterator[Finding]:
    try:
        importlib.import_module("torchvision")
    except Exception as error:  # not installed, or built for another device than torch
        cure = "downloads, pictures and its networks need it: pip install --force-reinstall torch torchvision"
        yield Finding("import torchvision", "note", _first_line(error), cure)
    else:
        yield Finding("import torchvision", "ok", "fits torch")


def _kernels() -> Iterator[Finding]:

    module = native.extension()
    isas = ", ".join(map(str, module.isas()))
    yield Finding("compiled kernels", "ok", f"instruction set {module.isa()} (of {isas}), {module.__file__}")
    if os.environ.get("DDLSIM_NATIVE_TRAINING") == "0":
        cure = "unset it: small models then train and are evaluated natively, several times as fast"
        yield Finding("native training", "note", "off, since DDLSIM_NATIVE_TRAINING=0: PyTorch trains", cure)


def _cuda() -> Iterator[Finding]:
    import torch

    from ddlsim.kernels.grouped_conv import why_no_kernels

    if not torch.cuda.is_available():
        why = "torch is installed without CUDA" if torch.version.cuda is None else "no device, or its driver is too old"
        yield Finding("CUDA", "note", f"torch sees no device; runs use the CPU ({why})")
        return
    names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    yield Finding("CUDA", "ok", f"{', '.join(names)} (CUDA {torch.version.cuda})")
    if not (why := native.why_no_cuda()):
        yield Finding("CUDA kernels", "ok", "built")
    else:
        cure = "reinstall ddlsim here with DDLSIM_CUDA=ON CUDAARCHS=native and an nvcc that fits the driver"
        yield Finding("CUDA kernels", "note", f"not used: {why}; plain torch computes on the GPU, slower", cure)
    if why := why_no_kernels(torch.device("cuda", 0)):
        yield Finding("convolutions", "note", f"cuDNN's, where small models train slower on the GPU: {why}")
    else:
        yield Finding("convolutions", "ok", "many models' in one launch, on tensor cores")


def _writing() -> Iterator[Finding]:
    with tempfile.TemporaryFile(dir="."):
        yield Finding("writing here", "ok", str(Path.cwd()))


def _cluster(executor: str) -> Iterator[Finding]:
    """Show the hosts of a Ray cluster; start a worker on every host to compare versions."""
    from ddlsim.runs.cluster.cluster import connect, disconnecting, executor_of, hosts, import_ray
    from ddlsim.runs.cluster.ray_workers import RayWorkers

    chosen = executor_of(executor)
    yield Finding("ray", "ok", import_ray().__version__)
    with disconnecting(chosen):
        connect(chosen)
        found = hosts()
        for host in found:
            cores, gpus = (host["Resources"].get(kind, 0) for kind in ("CPU", "GPU"))
            yield Finding("Ray host", "ok", f"{host['NodeManagerAddress']}: {cores:.0f} cores, {gpus:.0f} GPUs")
        RayWorkers(replace(chosen, workers=len(found), cpus_per_worker=1)).close()
        yield Finding("Ray workers", "ok", f"one on each of {len(found)} hosts, with the same versions as here")

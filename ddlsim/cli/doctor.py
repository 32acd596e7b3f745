"""ddlsim doctor: is everything here that a run needs, and if not, what to do."""

import importlib
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import typer

from ddlsim.cli.options import AsJson, DataDir, ExecutorName
from ddlsim.foundation.errors import DdlsimError
from ddlsim.foundation.host import num_cores
from ddlsim.foundation.strict_json import table_text

PACKAGES = ("torch", "numpy", "simpy", "networkx", "pydantic", "ruamel.yaml", "typer", "rich", "safetensors")


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at.

    Args:
        what: what was looked at.
        state: ok, note (worth knowing) or bad (a run needs it).
        detail: what was found.
        cure: what to do about it; empty if nothing.
    """

    what: str
    state: str
    detail: str
    cure: str = ""


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command()(doctor)


def doctor(data_dir: DataDir = None, executor: ExecutorName = "local", as_json: AsJson = False) -> None:
    """Check the environment; each fault with its cure. Exit code 3 if a run could not start."""
    found = list(findings(data_dir))
    if executor != "local":
        found += _safely("Ray", lambda: _cluster(executor))
    bad = [finding for finding in found if finding.state == "bad"]
    if as_json:
        typer.echo(
            table_text({"schema_version": 1, "ok": not bad, "findings": [asdict(one) for one in found]}, indent=1)
        )
    else:
        width = max(len(finding.what) for finding in found)
        for finding in found:
            typer.echo(f"{finding.state:4}  {finding.what:{width}}  {finding.detail}")
            if finding.cure:
                typer.echo(f"{'':4}  {'':{width}}  -> {finding.cure}")
        typer.echo("Everything a run needs is here." if not bad else f"{len(bad)} to put right before a run.")
    if bad:
        raise typer.Exit(3)


def findings(data_dir: Path | None) -> Iterator[Finding]:
    """Everything that is looked at, in order; a check that breaks is itself a finding."""
    for what, look in (
        ("versions", _versions),
        ("torch", _torch),
        ("torchvision", _torchvision),
        ("compiled kernels", _kernels),
        ("CUDA", _cuda),
        ("threads", _threads),
        ("data", lambda: _data(data_dir)),
        ("writing here", _writing),
    ):
        yield from _safely(what, look)


def _safely(what: str, look: Callable[[], Iterator[Finding]]) -> Iterator[Finding]:
    try:
        yield from look()
    except Exception as error:
        yield Finding(what, "bad", f"{type(error).__name__}: {error}".splitlines()[0], "see the message")


def _cluster(executor: str) -> Iterator[Finding]:
    """What a Ray cluster has; a worker on every host is started to compare versions."""
    from dataclasses import replace

    from ddlsim.runs.cluster.cluster import connect, disconnecting, executor_of, hosts, import_ray
    from ddlsim.runs.cluster.ray_workers import RayWorkers

    chosen = executor_of(executor)
    try:
        ray = import_ray()
        yield Finding("ray", "ok", ray.__version__)
        with disconnecting(chosen):
            connect(chosen)
            found = hosts()
            for host in found:
                has = host["Resources"]
                store = has.get("object_store_memory", 0) / 1e9
                what = f"{has.get('CPU', 0):.0f} cores, {has.get('GPU', 0):.0f} GPUs, object store {store:.1f} GB"
                yield Finding("Ray host", "ok", f"{host['NodeManagerAddress']}: {what}")
            if not found:
                yield Finding("Ray host", "bad", "no host has cores", "start one: ray start --address=...")
                return
            RayWorkers(replace(chosen, workers=len(found), cpus_per_worker=1)).close()
            yield Finding("Ray workers", "ok", f"one on each of {len(found)} hosts, with the same versions as here")
    except DdlsimError as error:
        yield Finding("Ray", "bad", str(error), "see docs/cluster.md")


def _versions() -> Iterator[Finding]:
    import platform
    from importlib import metadata

    from ddlsim import __version__

    wanted = sys.version_info >= (3, 11)
    cure = "" if wanted else "use Python 3.11 or later"
    yield Finding("python", "ok" if wanted else "bad", f"{platform.python_version()} on {platform.machine()}", cure)
    yield Finding("ddlsim", "ok", f"{__version__} in {Path(__file__).resolve().parents[1]}")
    for package in PACKAGES:
        try:
            yield Finding(package, "ok", metadata.version(package))
        except metadata.PackageNotFoundError:
            yield Finding(package, "bad", "not installed", f"pip install {package}")


def _torch() -> Iterator[Finding]:
    try:
        import torch
    except Exception as error:
        yield Finding("import torch", "bad", f"{type(error).__name__}: {error}".splitlines()[0], "pip install torch")
        return
    yield Finding("import torch", "ok", f"{torch.__version__}, {torch.get_num_threads()} threads")


def _torchvision() -> Iterator[Finding]:
    try:
        importlib.import_module("torchvision")
    except ModuleNotFoundError as error:
        cure = "downloads, pictures and its networks need it: pip install 'ddlsim[vision]'"
        yield Finding("import torchvision", "note", f"not installed ({error})", cure)
        return
    except Exception as error:
        text = f"{type(error).__name__}: {error}".splitlines()[0]
        cure = "pip install --force-reinstall torch torchvision"
        if "nms" in text:  # the sign of builds for different devices: pip counts 2.x+cpu and 2.x as one version
            cure = "torch and torchvision are builds for different devices; install both from one index: " + cure
        yield Finding("import torchvision", "note", text, f"downloads, pictures and its networks need it. {cure}")
        return
    yield Finding("import torchvision", "ok", "fits torch")


def _kernels() -> Iterator[Finding]:
    from ddlsim.foundation.errors import DdlsimError

    try:
        from ddlsim.foundation import native

        module = native.extension()
    except DdlsimError as error:
        yield Finding("compiled kernels", "bad", str(error), "pip install . in the repository's root")
        return
    detail = f"instruction set {module.isa()}"
    if hasattr(module, "isas"):
        detail += f" (of {', '.join(map(str, module.isas()))})"
    yield Finding("compiled kernels", "ok", f"{detail}, {module.__file__}")
    if os.environ.get("DDLSIM_NATIVE_TRAINING") == "0":
        cure = "unset it: small models then train and are evaluated natively, several times as fast"
        yield Finding("native training", "note", "off, since DDLSIM_NATIVE_TRAINING=0: PyTorch trains", cure)


def _cuda() -> Iterator[Finding]:
    import torch

    if not torch.cuda.is_available():
        yield Finding("CUDA", "note", f"torch sees no device; runs use the CPU ({_why_torch_sees_none()})")
        return
    names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    yield Finding("CUDA", "ok", f"{', '.join(names)} (CUDA {torch.version.cuda})")
    yield _cuda_kernels()
    from ddlsim.kernels.grouped_conv import why_no_kernels

    if why := why_no_kernels(torch.device("cuda", 0)):
        yield Finding("convolutions", "note", f"cuDNN's, where small models train slower on the GPU: {why}")
    else:
        yield Finding("convolutions", "ok", "many models' in one launch, on tensor cores")


def _cuda_kernels() -> Finding:
    from ddlsim.foundation import native

    why = native.why_no_cuda()
    if not why:
        return Finding("CUDA kernels", "ok", "built")
    cure = "reinstall ddlsim where nvcc is found (DDLSIM_CUDA=ON says why it is not)"
    if "compute capability" in why:
        cure = "reinstall ddlsim with the environment variable CUDAARCHS=native on this machine"
    elif "driver" in why:
        cure = "install a newer driver, or reinstall ddlsim with an nvcc of the driver's version"
    return Finding("CUDA kernels", "note", f"not used: {why}; plain torch computes on the GPU, slower", cure)


def _why_torch_sees_none() -> str:
    """What stands between torch and a GPU: a build without CUDA, no driver, one that is too old, or no device."""
    import torch

    if torch.version.cuda is None:
        return "torch is installed without CUDA"
    try:
        torch.cuda.init()
    except Exception as error:
        return str(error).split(". ")[0].splitlines()[0]
    return "there is no device"


def _threads() -> Iterator[Finding]:
    limit = os.environ.get("OMP_NUM_THREADS")
    note = f", OMP_NUM_THREADS={limit}" if limit else ""
    yield Finding("threads", "ok", f"{num_cores()} usable cores{note}")


def _data(data_dir: Path | None) -> Iterator[Finding]:
    from ddlsim.cli.data import find_dataset
    from ddlsim.data import DATASETS, DataSearch

    search = DataSearch(data_dir, download=False)
    states = {name: find_dataset(name, search)["state"] for name in DATASETS}
    here = [name for name, state in states.items() if state == "here"]
    missing = [name for name, state in states.items() if state == "missing"]
    yield Finding("data here", "ok" if here else "bad", ", ".join(here) or "none", "" if here else "reinstall ddlsim")
    for name, state in states.items():
        if state == "damaged":
            yield Finding(f"data {name}", "bad", "damaged", f"`ddlsim data check {name}` says what is wrong")
    if missing:
        cure = "a run downloads what torchvision can; `ddlsim data list` says where data is looked for"
        yield Finding("data missing", "note", ", ".join(missing), cure)


def _writing() -> Iterator[Finding]:
    import tempfile

    try:
        with tempfile.TemporaryFile(dir="."):
            pass
    except OSError as error:
        cure = "go to another folder, or give --out"
        yield Finding("writing here", "bad", f"{Path.cwd()}: {error.strerror}", cure)
        return
    yield Finding("writing here", "ok", str(Path.cwd()))

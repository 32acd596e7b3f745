"""The first steps of on_gpu.py: the machine, its data, and tests."""

import importlib.util
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from importlib import metadata
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
import torch

from ddlsim.data import DataSearch
from ddlsim.foundation import native
from ddlsim.kernels.grouped_conv import why_no_kernels

CONTRACT = "tests/algorithms/test_contract_of_settings.py"
ALGORITHMS = ("dac", "facade", "fedbuff", "fedsim", "mapl", "scaffold")
CPU = "CPU in place of a GPU, small sizes"


@dataclass(frozen=True)
class Setting:
    """Where steps run.

    Args:
        out: folder of logs, runs and results.
        small: whether on the CPU, with small sizes.
    """

    out: Path
    small: bool

    @property
    def device(self) -> str:
        return "cpu" if self.small else "cuda"


def versions(setting: Setting) -> Iterator[dict]:
    """Yield device and versions; fail without a device."""
    processor = next(
        (line.partition(":")[2].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")),
        platform.machine(),
    )
    names = ("ddlsim", "torch", "triton", "numpy")
    yield {
        "date": date.today().isoformat(),
        "commit": _output("git", "describe", "--always", "--dirty"),
        "processor": processor,
        "cores": len(os.sched_getaffinity(0)),
        "versions": {name: metadata.version(name) for name in names if importlib.util.find_spec(name)},
    }
    if setting.small:
        yield {"device": CPU}
        return
    device = torch.device("cuda")
    yield {
        "device": torch.cuda.get_device_name(device),
        "driver": _output("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"),
        "CUDA kernels": native.why_no_cuda() or "in use",
        "Triton's kernels": why_no_kernels(device) or "in use",
        "images": "made" if made_images() else "CIFAR-10",
    }


def _lines(path: str) -> list[str]:
    return Path(path).read_text().splitlines() if Path(path).exists() else []


def _output(*words: str) -> str:
    try:
        return subprocess.run(words, capture_output=True, text=True, timeout=10, check=False).stdout.strip()
    except OSError:
        return ""


def made_images() -> Path | None:
    """Return None if CIFAR-10 is here, else a folder with noise and a pattern per class in its format."""
    if any(DataSearch(None, download=False).candidates(["cifar10.npz", "cifar-10-batches-py"])):
        return None
    folder = Path(tempfile.gettempdir()) / "ddlsim-made-images"
    if not (folder / "cifar10.npz").exists():
        rng = np.random.default_rng(0)
        patterns = rng.integers(0, 64, (10, 32, 32, 3), np.uint8)
        arrays = {}
        for split, count in (("train", 50_000), ("test", 10_000)):
            arrays[f"y_{split}"] = labels = rng.integers(0, 10, (count, 1))
            arrays[f"x_{split}"] = rng.integers(0, 192, (count, 32, 32, 3), np.uint8) + patterns[labels[:, 0]]
        folder.mkdir(exist_ok=True)
        np.savez(folder / "unfinished.npz", **arrays)
        (folder / "unfinished.npz").rename(folder / "cifar10.npz")
    return folder


def tests(setting: Setting, words: Sequence[str], small: Sequence[str], together: int = 0) -> Iterator[dict]:
    """Run tests and yield their numbers; exit with pytest's code.

    Args:
        setting: of the steps.
        words: arguments of pytest.
        small: arguments of pytest on a CPU.
        together: processes.
    """
    report = setting.out / f"{os.getpid()}.xml"
    chosen = small if setting.small else words
    processes = str(0 if setting.small else together)
    code = pytest.main([*chosen, "-n", processes, "-p", "no:cacheprovider", "-q", f"--junitxml={report}"])
    suite = ElementTree.parse(report).getroot()[0]
    report.unlink()
    failed = [case.get("name") for case in suite if case.find("failure") is not None or case.find("error") is not None]
    skipped = int(suite.get("skipped", 0))
    yield {"passed": len(suite) - len(failed) - skipped, "failed": len(failed), "skipped": skipped}
    if failed:
        yield {"failed tests": failed[:10]}
    sys.exit(code)


def bench_gpu(setting: Setting) -> Iterator[dict]:
    """Run bench_gpu.py (on a CPU: one small bench) and yield its ratios; exit with pytest's code."""
    bench = ["benches/bench_kernel_calls.py", "-k", "cosine"] if setting.small else ["benches/bench_gpu.py"]
    report = setting.out / "bench_gpu.json"
    code = pytest.main([*bench, "-m", "not slow", "-q", "-p", "no:cacheprovider", f"--benchmark-json={report}"])
    for each in json.loads(report.read_text())["benchmarks"]:
        yield {each["name"]: each["extra_info"]}
    sys.exit(code)

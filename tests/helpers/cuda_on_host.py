"""The CUDA kernels without a CUDA device: compiled as C++, every thread of a block a fiber (cuda/cuda_runtime.h).

It tests their arithmetic, indices, barriers and shuffles, and the Python that launches them, on tensors in
host memory. It cannot test unsynchronized memory access or speed on a device.
"""

import contextlib
import ctypes
import re
import shutil
import subprocess
from pathlib import Path

import torch

from ddlsim.foundation import native
from ddlsim.kernels import matrices, merging, model_rows, on_device
from ddlsim.kernels import merging as simplex

HERE = Path(__file__).parent / "cuda"
CSRC = Path(__file__).parents[2] / "csrc" / "cuda"
LAUNCH = re.compile(r"(\w+(?:<\w+>)?)<<<(.+?)>>>\(")
SHARED_BY_LAUNCH = re.compile(r"extern __shared__ .*?(unsigned char) shared\[\];")


def compiler() -> str | None:
    """The C++ compiler, if there is one."""
    return next((found for name in ("c++", "g++", "clang++") if (found := shutil.which(name))), None)


def as_host_code(cuda: str) -> str:
    """Translate the two constructs that are not C++: launches, and shared memory sized at launch."""
    cuda = LAUNCH.sub(r"on_host::launch_of([=](auto... a) { \1(a...); }, \2)(", cuda)
    return SHARED_BY_LAUNCH.sub(r"\1* const shared = on_host::device.shared.data();", cuda)


class HostCuda:
    """Stands in for the module ddlsim._cuda; addresses are host memory.

    Args:
        folder: of the compiled files.
    """

    def __init__(self, folder: Path):
        sources = [str(HERE / "door.cpp")]
        for source in CSRC.glob("*.cu"):
            sources.append(str(folder / f"{source.stem}.cpp"))
            Path(sources[-1]).write_text(as_host_code(source.read_text()))
        library = folder / "cuda_on_host.so"
        flags = ["-std=gnu++20", "-O1", "-ffp-contract=off", "-fPIC", "-shared", f"-I{HERE}", f"-I{CSRC}"]
        subprocess.run([compiler(), *flags, *sources, "-o", str(library)], check=True)
        self._library = ctypes.CDLL(str(library))
        self._library.columns_of_a_chunk.restype = ctypes.c_int64

    def run_threads(self, falling: bool) -> None:
        """Set the order in which the threads of a block run."""
        self._library.run_threads_falling(int(falling))

    def why_unusable(self) -> str:
        self._library.why.restype = ctypes.c_char_p
        return self._library.why().decode()

    def pretend(self, driver: int = 13000, devices: int = 1, counting: int = 0, loading: int = 0) -> None:
        """Set the reported driver version, devices, and the errors of counting them and of loading a
        kernel (numbers of cudaError_t in cuda_runtime.h).
        """
        self._library.pretend(driver, devices, counting, loading)

    def chunk_columns(self) -> int:
        return self._library.columns_of_a_chunk()

    def merge_fits(self, num_used: int) -> bool:
        return bool(self._library.fits(ctypes.c_int64(num_used)))

    def merge_rows(self, *arguments: int) -> None:
        self._call("merge", arguments)

    def all_pairs(self, *arguments: int) -> None:
        self._call("all_pairs", arguments)

    def listed_pairs(self, *arguments: int) -> None:
        self._call("listed_pairs", arguments)

    def project_simplex(self, *arguments: int) -> None:
        self._call("project", arguments)

    def _call(self, name: str, arguments: tuple[int, ...]) -> None:
        function = getattr(self._library, name)
        function.restype = ctypes.c_char_p
        *passed, _stream = map(int, arguments)
        if error := function(*map(ctypes.c_int64, passed)):
            raise RuntimeError(error.decode())


@contextlib.contextmanager
def tensors_on(device: HostCuda, monkeypatch):
    """Treat every matrix as a matrix on the device within the context."""

    def rows_of(*arguments, **options):
        return matrices.rows_of(*arguments, **options)._replace(device=torch.device("cpu"))

    with monkeypatch.context() as patch:
        for module in (merging, model_rows, simplex):
            patch.setattr(module, "rows_of", rows_of)
        patch.setattr(native, "cuda", lambda: device)
        patch.setattr(on_device, "_launching", lambda _device: contextlib.nullcontext(0))
        yield

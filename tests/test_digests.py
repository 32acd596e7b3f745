"""The records of small runs of every feature do not change by a byte.

helpers/digest_runs.py lists the runs, golden/digests.json holds their digests, one line per run. Child processes
compute them with one thread and with instruction sets up to AVX2, so that AVX-512 changes nothing.

Checked on one Intel processor with AVX-512: all digests are equal if CPUID reports an AMD processor without AVX-512
(glibc still sees the real one). With ddlsim's kernels at x86-64-v4, 85 of 96 runs differ. Not checked: other machines.
"""

import fcntl
import json
import os
import platform
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import digest_runs
import pytest

from ddlsim.foundation import native

TABLE = Path(__file__).parent / "golden" / "digests.json"
GROUPS = 2
LIBRARIES = ("torch", "numpy", "networkx", "simpy", "opacus")
UP_TO_AVX2 = {
    "ATEN_CPU_CAPABILITY": "avx2",
    "MKL_CBWR": "COMPATIBLE",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "OPENBLAS_CORETYPE": "Haswell",
    "NPY_DISABLE_CPU_FEATURES": "X86_V4 AVX512_ICL AVX512_SPR",
    "OMP_NUM_THREADS": "1",
}
"""Environment of the child processes; the helper limits ddlsim's own kernels."""

Digests = dict[str, dict[str, str]]
"""Name of a run -> record file -> digest."""


@pytest.mark.skipif(
    "x86-64-v3" not in native.extension().isas(), reason="the table needs an x86-64 processor with AVX2"
)
@pytest.mark.parametrize("group", range(GROUPS))
def test_records_of_small_runs_keep_their_digests(group):
    found = compute(group)
    if os.environ.get("DDLSIM_RENEW_GOLDEN"):
        renew(found)
        return
    table = json.loads(TABLE.read_text())
    changes = [f"  {line}" for line in changes_of(table["runs"], found)]
    if changes and table["libraries"] != versions():
        pytest.skip(f"The table was made with {table['libraries']}, not {versions()}. Renew it before your change.")
    cure = "If the change is meant: DDLSIM_RENEW_GOLDEN=1 pytest tests/test_digests.py"
    assert not changes, "\n".join(["Runs whose records have changed:", *changes, cure])


def compute(group: int) -> Digests:
    """Compute one group of the table in a child process."""
    command = [sys.executable, digest_runs.__file__, str(group), str(GROUPS)]
    done = subprocess.run(command, env=os.environ | UP_TO_AVX2, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


def changes_of(table: Digests, found: Digests) -> list[str]:
    """Return each run that differs from the table, and its files; a resumed run must equal the uninterrupted one."""
    lines = [f"{name}: no longer run" for name in table if name not in digest_runs.NAMES]
    for name, digests in found.items():
        expected = table.get(digest_runs.RESUMED.get(name, name), {})
        files = sorted(file for file in expected.keys() | digests if expected.get(file) != digests.get(file))
        lines += [f"{name}: {', '.join(files)}"] if files else []
    return lines


def renew(found: Digests) -> None:
    """Write digests into the table, while another group may do so too."""
    folder = os.open(TABLE.parent, os.O_RDONLY)
    fcntl.flock(folder, fcntl.LOCK_EX)
    runs = (json.loads(TABLE.read_text())["runs"] if TABLE.exists() else {}) | found
    stored = [name for name in digest_runs.NAMES if name in runs and name not in digest_runs.RESUMED]
    lines = [f"  {json.dumps(name)}: {json.dumps(runs[name])}" for name in stored]
    draft = TABLE.with_suffix(".draft")
    draft.write_text(f'{{"libraries": {json.dumps(versions())}, "runs": {{\n' + ",\n".join(lines) + "\n}}\n")
    draft.replace(TABLE)
    os.close(folder)


def versions() -> dict[str, str]:
    """Return the versions of the libraries that compute, and of the C library."""
    return {name: metadata.version(name) for name in LIBRARIES} | {"libc": " ".join(platform.libc_ver())}

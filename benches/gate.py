"""The regression gate: the benches' ratios against those stored in baseline.json.

A bench stores ratio = ours / theirs of two times taken in turns. The gate fails when the speed-up, theirs / ours, is
20 % below the stored one. Only steady ratios are gated: several runs on a quiet machine gave them
within 10 % of each other (`spread`, largest / smallest), and they do not depend on the scheduling of two threads.

    python benches/gate.py out.json     compares a report of `pytest benches --benchmark-json=out.json`
    python benches/gate.py --run        runs the gated benches and compares; failures are timed again, at most twice
    python benches/gate.py --store      on a quiet machine: all benches three times, then baseline.json and the table of
                                        README.md are written; or from reports: --store a.json b.json c.json

Exit status: 0 passed, or the stored ratios are of another machine; 1 a ratio fell; 2 a bench failed or is missing.
"""

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median

HERE = Path(__file__).resolve().parent
BASELINE = HERE / "baseline.json"
TOLERANCE = 0.2
STEADY = 1.1
REPEATS = 2


def ratios(report: Mapping) -> dict[str, dict]:
    """Return name of a bench -> its extra_info, for benches with a ratio."""
    found = {bench["fullname"]: bench["extra_info"] for bench in report["benchmarks"]}
    return {name: info for name, info in found.items() if "ratio" in info}


def machine_of(report: Mapping) -> dict:
    """Return the machine properties that determine ratios: processor, usable cores, and the kernels' instruction set.

    The name alone is not the processor: a virtual machine calls every generation "AMD EPYC", and one that computes 512
    bits at a time has half the ratios of one that takes two steps for them. CPUID's family tells them apart.
    """
    info = report["machine_info"]
    return {
        "processor": info["cpu"].get("brand_raw", info["processor"]),
        "family": info["cpu"].get("family"),
        "cores": info["cpu"].get("count"),
        "instruction_set": info.get("instruction_set"),
    }


def machine_here() -> dict:
    """Return the properties of this machine, without running a bench."""
    from pytest_benchmark.plugin import pytest_benchmark_generate_machine_info

    from ddlsim.foundation import native

    return machine_of(
        {"machine_info": {**pytest_benchmark_generate_machine_info(), "instruction_set": native.extension().isa()}}
    )


def is_of(machine: Mapping, baseline: Mapping) -> bool:
    """Return whether the stored ratios are of this machine; print the reason if not."""
    if machine == baseline["machine"]:
        return True
    print(
        f"gate: the stored ratios are of {baseline['machine']}, this is {machine}: nothing is held against them. "
        "`python benches/gate.py --store` on this machine stores its own."
    )
    return False


def baseline_of(reports: Sequence[Mapping]) -> dict:
    """Return the content of baseline.json: median ratio per bench over the reports, and whether it is gated."""
    seen: dict[str, list[dict]] = {}
    for report in reports:
        for name, info in ratios(report).items():
            seen.setdefault(name, []).append(info)
    entries = {}
    for name, infos in sorted(seen.items()):
        values = [info["ratio"] for info in infos]
        spread = max(values) / min(values)
        steady = len(values) > 1 and len(values) == len(reports) and spread <= STEADY
        entries[name] = {
            "alternative": infos[-1]["alternative"],
            "ratio": round(median(values), 4),
            "spread": round(spread, 3),
            "gated": steady and infos[-1].get("gated", True),
        }
    last = reports[-1]
    return {
        "machine": machine_of(last),
        "versions": last["machine_info"].get("versions", {}),
        "date": last["datetime"][:10],
        "runs": len(reports),
        "ratios": entries,
    }


def compare(baseline: Mapping, reports: Sequence[Mapping]) -> tuple[list[str], dict[str, str], list[str]]:
    """Compare gated ratios with the stored ones; the best of several reports counts, because noise only adds time.

    Returns:
        One line per gated bench; name -> line of failed benches; names that no report compares with the alternative
        of the stored ratio.
    """
    now: dict[tuple[str, str], float] = {}
    for report in reports:
        for name, info in ratios(report).items():
            bench = name, info["alternative"]
            now[bench] = min(info["ratio"], now.get(bench, float("inf")))
    lines, fell, missing = [], {}, []
    for name, stored in baseline["ratios"].items():
        if not stored["gated"]:
            continue
        bench = name, stored["alternative"]
        if bench not in now:
            missing.append(name)
            continue
        kept = stored["ratio"] / now[bench]
        line = f"{name}: {now[bench]:.3f} of {stored['alternative']}, stored {stored['ratio']:.3f}: speed {kept:.0%}"
        lines.append(line)
        if kept < 1 - TOLERANCE:
            fell[name] = line
    return lines, fell, missing


def run_benches(selection: Iterable[str], directory: Path) -> dict:
    """Run benches in a new process and return pytest-benchmark's report.

    Raises:
        SystemExit: with status 2, if a bench failed.
    """
    out = Path(tempfile.mkstemp(suffix=".json", dir=directory)[1])
    command = [sys.executable, "-m", "pytest", "-q", "--benchmark-disable-gc", f"--benchmark-json={out}", *selection]
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}  # numpy on one thread, like ddlsim
    if subprocess.run(command, cwd=HERE.parent, env=environment, check=False).returncode:
        print("gate: a bench failed", file=sys.stderr)
        raise SystemExit(2)
    return json.loads(out.read_text())


def run_gated(baseline: Mapping, directory: Path) -> list[dict]:
    """Return reports of the gated benches: of all, then of failed ones, so that one disturbance fails no bench."""
    reports = [run_benches([name for name, stored in baseline["ratios"].items() if stored["gated"]], directory)]
    for _ in range(REPEATS):
        _, fell, _ = compare(baseline, reports)
        if not fell:
            break
        reports.append(run_benches(fell, directory))
    return reports


def verdict(baseline: Mapping, reports: Sequence[Mapping]) -> int:
    """Print the comparison and return the exit status."""
    lines, fell, missing = compare(baseline, reports)
    print(*lines, sep="\n")
    if not is_of(machine_of(reports[0]), baseline):
        return 0
    for name in missing:
        alternative = baseline["ratios"][name]["alternative"]
        print(
            f"gate: {name} is stored but not in the report, or not against {alternative}; run all benches, or store "
            "anew",
            file=sys.stderr,
        )
    for line in fell.values():
        print(f"gate: FELL {line}", file=sys.stderr)
    print(f"gate: {len(lines)} ratios, {len(fell)} fell, {len(missing)} missing")
    return 2 if missing else 1 if fell else 0


def store(reports: Sequence[Mapping], baseline: Path, readme: Path) -> None:
    """Write baseline.json, and the last report's table into the README."""
    made = baseline_of(reports)
    baseline.write_text(json.dumps(made, indent=1) + "\n")
    spec = importlib.util.spec_from_file_location("bench_table", HERE / "table.py")
    table = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(table)
    table.write(reports[-1], readme)
    gated = sum(entry["gated"] for entry in made["ratios"].values())
    print(f"gate: stored {len(made['ratios'])} ratios, {gated} of them gated, in {baseline}")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("reports", nargs="*", type=Path, help="reports of pytest-benchmark")
    parser.add_argument("--run", action="store_true", help="run the gated benches instead of reading a report")
    parser.add_argument("--store", action="store_true", help="store the ratios instead of comparing them")
    parser.add_argument("--runs", type=int, default=3, help="how often --store runs all benches (default 3)")
    parser.add_argument("--baseline", type=Path, default=BASELINE, help=argparse.SUPPRESS)
    parser.add_argument("--readme", type=Path, default=HERE / "README.md", help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if bool(given.reports) == given.run and not (given.store and not given.run):
        parser.error("give reports, or --run, or --store")
    reports = [json.loads(path.read_text()) for path in given.reports]
    with tempfile.TemporaryDirectory() as directory:
        if given.store:
            reports = reports or [run_benches(["benches"], Path(directory)) for _ in range(given.runs)]
            store(reports, given.baseline, given.readme)
            return 0
        if not given.baseline.exists():
            print(f"gate: {given.baseline} is missing; `python benches/gate.py --store` makes it", file=sys.stderr)
            return 2
        baseline = json.loads(given.baseline.read_text())
        if not any(stored["gated"] for stored in baseline["ratios"].values()):
            print(f"gate: {given.baseline} gates nothing", file=sys.stderr)
            return 2
        if given.run and not is_of(machine_here(), baseline):
            return 0
        return verdict(baseline, reports or run_gated(baseline, Path(directory)))


if __name__ == "__main__":
    sys.exit(main())

"""A markdown table of ratios from pytest-benchmark's JSON: python benches/table.py out.json"""

import json
import sys
from pathlib import Path


def time_text(seconds: float) -> str:
    """Three significant digits with a fitting unit."""
    for factor, unit in ((1, "s"), (1e3, "ms"), (1e6, "us")):
        if seconds * factor >= 1:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def table(report: dict) -> str:
    """One row per bench that carries a ratio."""
    machine = report["machine_info"]
    lines = [
        f"{machine['cpu'].get('brand_raw', machine['processor'])}, {machine['cpu'].get('count')} cores, Python "
        f"{machine['python_version']}, {report['datetime'][:10]}",
        "",
        "| bench | ours | alternative | its time | ratio |",
        "|---|---|---|---|---|",
    ]
    for bench in report["benchmarks"]:
        found = bench["extra_info"]
        if "ratio" in found:
            ours, theirs = time_text(found["ours_s"]), time_text(found["theirs_s"])
            name = f"{Path(bench['fullname'].split('::')[0]).name}: {bench['name']}"
            lines.append(f"| {name} | {ours} | {found['alternative']} | {theirs} | {found['ratio']:.2f} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table(json.loads(Path(sys.argv[1]).read_text())))

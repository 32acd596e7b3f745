"""The ratios of pytest-benchmark's JSON as a markdown table.

python benches/table.py out.json              prints it; of several reports (say one with the slow sizes), one table
python benches/table.py out.json --write      writes it into benches/README.md, between the two marks
"""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

README = Path(__file__).resolve().parent / "README.md"
BEGIN, END = "<!-- table -->", "<!-- end of table -->"


def time_text(seconds: float) -> str:
    """Return three significant digits with a suitable unit."""
    for factor, unit in ((1, "s"), (1e3, "ms"), (1e6, "us")):
        if seconds * factor >= 1:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def machine_text(report: Mapping) -> str:
    """Return processor, cores, instruction set of the kernels, versions and date."""
    machine = report["machine_info"]
    words = [machine["cpu"].get("brand_raw", machine["processor"]), f"{machine['cpu'].get('count')} cores"]
    if "instruction_set" in machine:
        words.append(f"kernels on {machine['instruction_set']}")
    words.append(f"Python {machine['python_version']}")
    words += [f"{name} {version}" for name, version in machine.get("versions", {}).items()]
    if "load" in machine:
        words.append(f"load before the run {machine['load']}")
    return ", ".join([*words, report["datetime"][:10]])


def rows(bench: Mapping) -> Iterator[list[str]]:
    """Return one row per alternative, the first with ddlsim's time and the floor."""
    found = bench["extra_info"]
    name = f"`{Path(bench['fullname'].split('::')[0]).stem}`: {bench['name']}"
    if "ratio" in found:
        floor = [time_text(found["floor_s"]), f"{found['of_floor']:.2f}"] if "floor_s" in found else ["", ""]
        theirs, ratio = time_text(found["theirs_s"]), f"{found['ratio']:.2f}"
        yield [name, time_text(found["ours_s"]), found["alternative"], theirs, ratio, *floor]
        for other, its in found.get("others", {}).items():
            yield ["", "", other, time_text(its["s"]), f"{its['ratio']:.2f}", "", ""]
    elif "messages_per_s" in found:
        rate = f"{found['messages_per_s']:,} messages/s"
        yield [name, time_text(bench["stats"]["median"]), rate, "", "", "", ""]


def table(report: Mapping) -> str:
    """Return a table of all benches of a report; see rows()."""
    lines = [
        machine_text(report),
        "",
        "| bench | ours | alternative | its time | ours / its | floor | ours / floor |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [f"| {' | '.join(row)} |" for bench in report["benchmarks"] for row in rows(bench)]
    return "\n".join(lines)


def write(report: Mapping, readme: Path = README) -> None:
    """Replace the text between the marks."""
    before, rest = readme.read_text().split(BEGIN)
    readme.write_text(f"{before}{BEGIN}\n{table(report)}\n{END}{rest.split(END)[1]}")


def joined(reports: Sequence[Mapping]) -> dict:
    """Return the benches of several reports, with the header of the first."""
    return {**reports[0], "benchmarks": [bench for report in reports for bench in report["benchmarks"]]}


if __name__ == "__main__":
    paths = [argument for argument in sys.argv[1:] if argument != "--write"]
    found = joined([json.loads(Path(path).read_text()) for path in paths])
    if "--write" in sys.argv:
        write(found)
    else:
        print(table(found))

"""The tables of docs/gpu.md from the lines of on_gpu.py.

python benches/gpu_tables.py OUT             prints them
python benches/gpu_tables.py OUT --write     writes them into docs/gpu.md, between the two marks
"""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from table import time_text

from ddlsim.report.text import markdown

PAGE = Path(__file__).resolve().parents[1] / "docs" / "gpu.md"
BEGIN, END = "<!-- on_gpu.sh -->", "<!-- end of on_gpu.sh -->"


def read(out: Path) -> list[dict[str, Any]]:
    """Return the last line of each step, in the order of their first ones."""
    lines = [json.loads(line) for line in (out / "steps.jsonl").read_text().splitlines()]
    return list({line["step"]: line for line in lines}.values())


def tables(lines: Sequence[Mapping]) -> str:
    """Return device and versions, a table of steps, one of figures, and one of ratios to alternatives."""
    machine = dict(next((line["figures"] for line in lines if line["step"] == "versions"), {}))
    others = [line for line in lines if line["step"] != "versions"]
    text = "; ".join(f"{name} {value_text(name, value)}" for name, value in flat(machine) if value != "")
    steps = [[line["step"], f"{line['seconds']:.1f}", ended(line)] for line in others]
    found = [(line["step"], name, value) for line in others for name, value in flat(line["figures"])]
    figures = [
        [step, label(name), value_text(name, value)] for step, name, value in found if not isinstance(value, Mapping)
    ]
    ratios = [
        [name, time_text(its["ours_s"]), its["alternative"], time_text(its["theirs_s"]), f"{its['ratio']:.2f}"]
        for _, name, its in found
        if isinstance(its, Mapping)
    ]
    parts = [text + ".", markdown(["step", "seconds", "ended"], steps, left=1)]
    parts.append(markdown(["step", "figure", "value"], figures, left=2))
    if ratios:
        parts.append(markdown(["bench", "ours", "alternative", "its time", "ours / its"], ratios, left=1))
    return "\n\n".join(parts)


def ended(line: Mapping) -> str:
    """Return how a step ended."""
    if "stopped_after_s" in line:
        return f"stopped after {line['stopped_after_s']} s"
    return "done" if line["exit_code"] == 0 else f"failed (exit code {line['exit_code']})"


def flat(figures: Mapping, before: str = "") -> Iterator[tuple[str, Any]]:
    """Yield names and values; names of nested figures follow the outer ones, and a bench's result is one value."""
    for name, value in figures.items():
        if isinstance(value, Mapping) and "ratio" not in value:
            yield from flat(value, f"{before}{name.removesuffix('_s')}: ")
        else:
            yield before + name, value


def label(name: str) -> str:
    """Return a figure's name in words."""
    words = name.removesuffix("_s").removesuffix("_bytes")
    return words if "`" in words else words.replace("_", " ")  # the names of kernels stay as they are


def value_text(name: str, value: Any) -> str:
    """Return a value with the unit that its name ends with."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if name.endswith("_bytes"):
        return f"{value / 1e9:.2f} GB"
    if name.endswith("_s"):
        return time_text(value) if value else "0 s"
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return f"{value:,.10g}" if isinstance(value, int | float) else str(value)


def write(text: str, page: Path = PAGE) -> None:
    """Replace the text between the marks."""
    before, rest = page.read_text().split(BEGIN)
    page.write_text(f"{before}{BEGIN}\n{text}\n{END}{rest.split(END)[1]}")


def main(words: Sequence[str]) -> None:
    out = Path(next(word for word in words if word != "--write"))
    lines = read(out)
    found = tables(lines)
    if "--write" not in words:
        print(found)
        return
    if any("CPU" in line["figures"].get("device", "") for line in lines):
        sys.exit(f"{out}: figures of a CPU are none of {PAGE.name}. Run benches/on_gpu.sh on a GPU.")
    write(found)


if __name__ == "__main__":
    main(sys.argv[1:])

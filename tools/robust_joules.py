"""Compute joules of the cells of the matrix of attacks and rules, with new runs where needed.

    python tools/robust_joules.py [until HH:MM]

Energy is a function of a run's steps, seconds and bytes. Rules and attacks on models change none of them if learned
values do not choose peers: cells of one algorithm with the same bytes and simulated seconds cost the same
joules, and one of them is run. Each run must repeat the stored accuracy, bytes and seconds.
"""

import json
import sys
import tempfile
import time
from typing import Any

from robust_matrix import ROOT, SCENARIO, changes, figures

CELLS = ROOT / "docs" / "results" / "robust" / "cells.jsonl"
JOULES = ROOT / "docs" / "results" / "robust" / "joules.jsonl"
ENERGY = {"device": "jetson_nano_10w", "idle_w": 1.25, "link": "wifi_2012"}


def key(row: dict[str, Any]) -> list[Any]:
    """Return the key of rows with equal costs."""
    return [row["cell"]["algorithm"], row["gigabytes"], row["simulated_s"]]


def main() -> None:
    """Run missing cells, cells without attackers first."""
    import torch

    import ddlsim
    from ddlsim.foundation.strict_json import table_text

    torch.set_num_threads(1)
    until = sys.argv[1] if len(sys.argv) > 1 else "99:99"
    known = [json.loads(line)["key"] for line in JOULES.read_text().splitlines()] if JOULES.exists() else []
    for row in map(json.loads, CELLS.read_text().splitlines()):
        if key(row) in known:
            continue
        if time.strftime("%H:%M") >= until:
            return
        with tempfile.TemporaryDirectory() as folder:
            settings = {**changes(row["cell"]), "energy": ENERGY}
            summary = ddlsim.run(SCENARIO, set=settings, out=f"{folder}/run", progress=None).summary
        again = figures(summary)
        differs = [name for name in again if again[name] != row[name]]
        if differs:
            raise SystemExit(f"{row['cell']}: {', '.join(differs)} differ from those that were kept: {again}")
        energy = {name: value for name, value in summary["energy"].items() if name.endswith("joules")}
        known.append(key(row))
        with JOULES.open("a") as file:
            file.write(table_text({"key": key(row), "cell": row["cell"], **energy}) + "\n")


if __name__ == "__main__":
    main()

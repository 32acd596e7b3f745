"""Print the tables of docs/results/diloco_learning_claims.md, and draw its figure, from the runs of two matrices.

Usage, after `ddlsim reproduce diloco_learning` and `ddlsim reproduce diloco_learning_seconds`:
python tools/diloco_learning_tables.py runs/diloco_learning runs/diloco_learning_seconds
"""

import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import ddlsim
from ddlsim.report.text import markdown

PICTURE = Path(__file__).parents[1] / "docs" / "pictures" / "diloco_learning.png"
BANDWIDTHS = {"100m": "100 Mbit/s", "1g": "1 Gbit/s", "10g": "10 Gbit/s"}
EVALUATED = (120, 300, 600)  # steps of a worker
TARGET = 11.5


def load(folder: Path, cell: str) -> Any:
    """Return the finished run of a cell, or None."""
    directory = folder / cell.replace("/", "+") / "seed-0"
    return ddlsim.load(directory) if (directory / "summary.json").exists() else None


def curve(run: Any) -> dict[int, float]:
    """Return the perplexity by steps of a worker."""
    rounds, steps = run.rounds(), run.scenario["training"]["local_steps"]
    return {
        int(number) * steps: float(value) for number, value in zip(rounds["round"], rounds["perplexity"], strict=True)
    }


def steps_to_target(found: dict[int, float]) -> float | None:
    """Return the steps to the target, on the line between two evaluations."""
    points = list(found.items())
    for (before, above), (after, below) in pairwise(points):
        if above > TARGET >= below:
            return before + (after - before) * (above - TARGET) / (above - below)
    return None


def rows(name: str, run: Any, network_runs: dict[str, Any]) -> tuple[list[str], list[str]]:
    """Return the rows of a cell in the tables of all steps and of the steps to the target."""
    summary, found = run.summary, curve(run)
    target, steps = steps_to_target(found), summary["rounds"] * run.scenario["training"]["local_steps"]
    megabytes = summary["bytes"]["total"] / 1e6 / summary["nodes"]
    seconds = [None if other is None else other.summary["sim_time_s"] for other in network_runs.values()]
    whole = [f"{found[at]:.2f}" if at in found else "-" for at in EVALUATED]
    whole += [f"{megabytes:,.1f}", *("-" if value is None else f"{value:.1f}" for value in seconds)]
    if target is None:
        return [name, *whole], [name, *["-"] * 5]
    share = target / steps
    to_target = [f"{target:.0f}", f"{megabytes * share:,.1f}"]
    to_target += ["-" if value is None else f"{value * share:.1f}" for value in seconds]
    return [name, *whole], [name, *to_target]


def draw(runs: dict[str, Any]) -> None:
    """Draw perplexity over steps, bytes and seconds."""
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(1, 3, figsize=(11, 3.8), sharey=True, layout="constrained")
    for number, (name, run) in enumerate(runs.items()):
        rounds, values = run.rounds(), list(curve(run).values())
        style = {
            "marker": "os^vD<>Px*"[number % 10],
            "color": f"C{number - 1}" if number else "black",
            "markersize": 4,
            "label": name,
        }
        megabytes = [float(sent) / 1e6 / run.summary["nodes"] for sent in rounds["bytes"]]
        for panel, x in zip(panels, (list(curve(run)), megabytes, rounds["time_s"]), strict=True):
            panel.plot(x, values, **style)
    panels[0].set(xlabel="steps of a worker (160 tokens)", ylabel="perplexity")
    panels[1].set(xscale="log", xlabel="MB sent per worker")
    panels[2].set(xscale="log", xlabel="seconds at 100 Mbit/s")
    panels[2].legend(fontsize=6)
    panels[0].set(ylim=(9.5, 15))
    figure.savefig(PICTURE, dpi=110)


def main() -> None:
    learned, network = Path(sys.argv[1]), Path(sys.argv[2])
    names = sorted(path.name.replace("+", "/") for path in learned.iterdir() if path.is_dir())
    runs = {name: run for name in names if (run := load(learned, name)) is not None}
    found = [rows(name, run, {key: load(network, f"{name}/{key}") for key in BANDWIDTHS}) for name, run in runs.items()]
    whole, to_target = zip(*found, strict=True)
    seconds = [f"s at {text}" for text in BANDWIDTHS.values()]
    print(markdown(["cell", *(f"{steps} steps" for steps in EVALUATED), "MB", *seconds], whole, left=1))
    print(markdown(["cell", f"steps to {TARGET}", "MB", *seconds], to_target, left=1))
    draw({name: run for name, run in runs.items() if name.count("/") == 1})


if __name__ == "__main__":
    main()

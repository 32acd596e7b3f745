"""Write docs/results/robust.md from the figures stored by tools/robust_matrix.py and tools/robust_joules.py.

python tools/robust_page.py
"""

import json
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
CELLS = ROOT / "docs" / "results" / "robust" / "cells.jsonl"
CONCEPTS = ROOT / "docs" / "results" / "robust" / "concepts.jsonl"
JOULES = ROOT / "docs" / "results" / "robust" / "joules.jsonl"
PAGE = ROOT / "docs" / "results" / "robust.md"

HEAD = """# Attacks, robust rules, and the minority

Written by `tools/robust_page.py` from `docs/results/robust/cells.jsonl`, measured by `tools/robust_matrix.py`.

**Size.** Small enough to repeat: `scenarios/robust.yaml`, 20 nodes in clusters of 16 and 4, whose images are
rotated against each other, on the embedded Fashion-MNIST sample; an MLP of 64 hidden units, 40 rounds of 10 steps, 6
neighbors, no final all-reduce. Rules take 30 % of the rows as attackers' (2 of 7). {runs} runs of {seconds:.0f} CPU
seconds in total, {seeds} seeds without attackers and one with. Accuracies are of honest nodes at the last
evaluation, in percent. Between the two seeds a cell without attackers differs by {majority:.1f} points at most for the
majority, {minority:.1f} for the minority. FACADE's two clusters end on one head with the plain average (seed 0, looked
at), so in these cells it is Epidemic Learning with a second, unused head; a section below has separate heads.

**Before two corrections.** The figures of `alie` were measured when an attacker with `knowledge: all` knew the models
that nodes had sent last, some from the previous round; it now sees the current round. The figures of
`clipped_gossip` used the radius of the paper's analysis, with substitutes for the attackers; it is now the second
largest distance. Neither has been measured again.

Joules (`tools/robust_joules.py`) are for 20 small boards with Wi-Fi: 10 W while computing, 1.25 W while waiting,
and the published slopes of a radio per byte (presets `jetson_nano_10w`, `wifi_2012`; sources: `ddlsim list energy`).
"""


def main() -> None:
    """Write the page."""
    rows = [json.loads(line) for line in CELLS.read_text().splitlines()]
    priced = [json.loads(line) for line in JOULES.read_text().splitlines()]
    apart = [json.loads(line) for line in CONCEPTS.read_text().splitlines()]
    PAGE.write_text(page(rows, apart, {tuple(one["key"]): one["joules"] for one in priced}))


def page(
    rows: Sequence[dict[str, Any]], concepts: Sequence[dict[str, Any]], joules: Mapping[tuple[Any, ...], float]
) -> str:
    """Return the page; `concepts` are cells of a minority with other labels, `joules` by algorithm, GB and seconds."""
    rows = [
        {**row, "joules": joules.get((row["cell"]["algorithm"], row["gigabytes"], row["simulated_s"]))} for row in rows
    ]
    calm = [row for row in rows if row["cell"]["attack"] is None]
    seeds = len({row["cell"]["seed"] for row in calm})
    majority, minority = (_between_seeds(calm, cluster) for cluster in (0, 1))
    total = sum(row["cpu_s"] for row in rows)
    parts = [HEAD.format(runs=len(rows), seconds=total, seeds=seeds, majority=majority, minority=minority)]
    parts += ["## Robust rules without attackers", "", *_answer(calm), ""]
    parts += [*_table(calm, _both_clusters), "", "Accuracy of the majority / of the minority.", ""]
    parts += [*_table(calm, lambda found: _percent(found, "fair_accuracy")), "", "Fair accuracy.", ""]
    parts += ["## Separate heads of FACADE", "", *_concepts(concepts), ""]
    kinds = sorted({(row["cell"]["attack"], row["cell"]["share"]) for row in rows if row["cell"]["attack"]})
    for attack, share in kinds:
        found = [row for row in rows if (row["cell"]["attack"], row["cell"]["share"]) == (attack, share)]
        parts += [f"## {attack}, {share:.0%} of the nodes", "", _attacked(share, found[0]["cell"]["seed"]), ""]
        parts += [*_table(found, _both_clusters), "", "Accuracy of honest nodes of the majority / of the minority.", ""]
        parts += ["Cost of the attack in points of accuracy over all honest nodes, under the same rule:", ""]
        parts += [*_table(found, lambda some: _loss(some, calm)), ""]
    parts += ["## Traffic, time and energy", "", *_costs(rows), ""]
    parts += ["## All cells", "", *_cells(rows), ""]
    return "\n".join(parts)


def _attacked(share: float, seed: int) -> str:
    """Return the number of attacking nodes per cluster."""
    import numpy as np

    from ddlsim.attacks.forgeries import SignFlip

    nodes = SignFlip(nodes=share).members(np.array([0] * 16 + [1] * 4), seed)
    minority = sum(node >= 16 for node in nodes)
    return f"Attacked: {len(nodes) - minority} of the majority's 16 nodes, {minority} of the minority's 4."


def _between_seeds(calm: Sequence[dict[str, Any]], cluster: int) -> float:
    """Return the largest difference between two seeds of a cell, in points."""
    values: dict[tuple[str, str], list[float]] = {}
    for row in calm:
        values.setdefault((row["cell"]["algorithm"], row["cell"]["rule"]), []).append(100 * row["clusters"][cluster])
    return max(max(found) - min(found) for found in values.values())


def _names(rows: Sequence[dict[str, Any]], key: str) -> list[str]:
    return list(dict.fromkeys(row["cell"][key] for row in rows))


def _of(rows: Sequence[dict[str, Any]], **keys: Any) -> list[dict[str, Any]]:
    return [row for row in rows if all(row["cell"][key] == value for key, value in keys.items())]


def _table(rows: Sequence[dict[str, Any]], text: Any) -> list[str]:
    algorithms = _names(rows, "algorithm")
    lines = ["| rule | " + " | ".join(algorithms) + " |", "|---|" + "---|" * len(algorithms)]
    for rule in _names(rows, "rule"):
        cells = [_of(rows, rule=rule, algorithm=algorithm) for algorithm in algorithms]
        lines.append(f"| {rule} | " + " | ".join(text(found) if found else "not run" for found in cells) + " |")
    return lines


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _percent(found: Sequence[dict[str, Any]], key: str) -> str:
    return f"{100 * _mean([row[key] for row in found]):.1f}"


def _both_clusters(found: Sequence[dict[str, Any]]) -> str:
    majority, minority = (100 * _mean([row["clusters"][cluster] for row in found]) for cluster in (0, 1))
    return f"{majority:.1f} / {minority:.1f}"


def _loss(found: Sequence[dict[str, Any]], calm: Sequence[dict[str, Any]]) -> str:
    cell = found[0]["cell"]
    before = _of(calm, rule=cell["rule"], algorithm=cell["algorithm"], seed=cell["seed"])
    return f"{100 * (before[0]['accuracy'] - found[0]['accuracy']):+.1f}" if before else "-"


def _answer(calm: Sequence[dict[str, Any]]) -> list[str]:
    """Summarize the runs without attackers by counting."""
    rules = [rule for rule in _names(calm, "rule") if rule != "mean"]
    algorithms = _names(calm, "algorithm")
    lines = ["| rule | minority, change in points | majority, change in points |", "|---|---|---|"]
    worse = total = 0
    for rule in rules:
        texts = []
        for cluster in (1, 0):
            changes = []
            for algorithm in algorithms:
                found, plain = _of(calm, rule=rule, algorithm=algorithm), _of(calm, rule="mean", algorithm=algorithm)
                if found and plain:
                    change = _mean([row["clusters"][cluster] for row in found])
                    changes.append((algorithm, 100 * (change - _mean([row["clusters"][cluster] for row in plain]))))
            if cluster == 1:
                worse += sum(change < -2 for _, change in changes)
                total += len(changes)
            texts.append(", ".join(f"{algorithm} {change:+.1f}" for algorithm, change in changes))
        lines.append(f"| {rule} | " + " | ".join(texts) + " |")
    text = f"Against the plain average the minority loses more than 2 points in {worse} of {total} pairs of rule and "
    return [text + "algorithm.", "", *lines]


def _concepts(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Summarize the runs in which the minority has other labels."""
    seeds, facade = len(_names(rows, "seed")), _of(rows, algorithm="facade")
    text = "The same nodes and rules without attackers, but the minority has its labels shifted, not its images, by "
    text += f"one (`shift: label_shift`; {len(rows)} runs, {seeds} seeds, `docs/results/robust/concepts.jsonl`). In "
    text += f"{sum(row['heads_apart'] for row in facade)} of {len(facade)} runs of FACADE majority and minority end on "
    text += "separate heads. A rule then acts on each head among its trainers, and on the core among all nodes."
    lines = [*textwrap.wrap(text, 120), "", *_table(rows, _both_clusters), ""]
    lines += ["Accuracy of the majority / of the minority.", "", *_answer(rows)]
    return lines


def _costs(rows: Sequence[dict[str, Any]]) -> list[str]:
    lines = ["| algorithm | GB | simulated s | kJ |", "|---|---|---|---|"]
    for algorithm in _names(rows, "algorithm"):
        found = _of(rows, algorithm=algorithm)
        texts = [_range(found, "gigabytes", 1, 3), _range(found, "simulated_s", 1, 1), _range(found, "joules", 1e3, 2)]
        lines.append(f"| {algorithm} | {' | '.join(texts)} |")
    priced = sum(row["joules"] is not None for row in rows)
    text = "Over all cells. Neither a rule nor an attack on models changes the sent bytes: a rule ignores received "
    text += "models. With DAC learned values choose the peers, and so the bytes, seconds and joules; "
    text += f"{priced} of {len(rows)} cells are priced, each by its run or by one with the same bytes and seconds."
    return [*lines, "", *textwrap.wrap(text, 120)]


def _range(found: Sequence[dict[str, Any]], key: str, unit: float, digits: int) -> str:
    """Return the least and largest known value, or one if they print the same."""
    known = [row[key] / unit for row in found if row[key] is not None]
    if not known:
        return "-"
    least, most = (f"{pick(known):.{digits}f}" for pick in (min, max))
    return least if least == most else f"{least} to {most}"


def _cells(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Return one line per algorithm, rule and attack, averaged over seeds."""
    lines = [
        "| attack | rule | algorithm | majority / minority | GB | simulated s | kJ |",
        "|---|---|---|---|---|---|---|",
    ]
    seen: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in rows:
        cell = row["cell"]
        attack = f"{cell['attack']}, {cell['share']:.0%}" if cell["attack"] else "none"
        seen.setdefault((attack, cell["rule"], cell["algorithm"]), []).append(row)
    for names, found in seen.items():
        known = [row["joules"] / 1e3 for row in found if row["joules"] is not None]
        costs = f"{_mean([row['gigabytes'] for row in found]):.3f} | {_mean([row['simulated_s'] for row in found]):.1f}"
        joules = f"{_mean(known):.2f}" if len(known) == len(found) else "not priced"
        lines.append(f"| {' | '.join(names)} | {_both_clusters(found)} | {costs} | {joules} |")
    return lines


if __name__ == "__main__":
    main()

"""Writes docs/results/robust.md from the figures that tools/robust_matrix.py has kept.

python tools/robust_page.py
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
CELLS = ROOT / "docs" / "results" / "robust" / "cells.jsonl"
PAGE = ROOT / "docs" / "results" / "robust.md"

HEAD = """# Attacks, robust rules, and the minority

Written by `tools/robust_page.py` from `docs/results/robust/cells.jsonl`, which `tools/robust_matrix.py` has measured.

**Size.** Small, to be run anew by anyone: `scenarios/robust.yaml`, 20 nodes in clusters of 16 and 4, whose images are
rotated against each other, on the embedded Fashion-MNIST sample; an MLP of 64 hidden units, 40 rounds of 10 steps, 6
neighbors, no final all-reduce. Rules take 30 % of the rows as attackers' (2 of 7). {runs} runs of {seconds:.0f} CPU
seconds together, {seeds} seeds without attackers and one with. Accuracies are those of honest nodes at the last
evaluation, in percent. Between the two seeds a cell without attackers differs by {majority:.1f} points at most for the
majority, {minority:.1f} for the minority. Joules are not measured here. FACADE's two clusters end on one head with the
plain average (seed 0, looked at), so at this size it is Epidemic Learning with a second, idle head; what it does for
minorities when its heads part is in docs/results/facade_table_cifar10.md.
"""


def main() -> None:
    """Writes the page."""
    rows = [json.loads(line) for line in CELLS.read_text().splitlines()]
    PAGE.write_text(page(rows))


def page(rows: Sequence[dict[str, Any]]) -> str:
    """The page's text."""
    calm = [row for row in rows if row["cell"]["attack"] is None]
    seeds = len({row["cell"]["seed"] for row in calm})
    majority, minority = (_between_seeds(calm, cluster) for cluster in (0, 1))
    total = sum(row["cpu_s"] for row in rows)
    parts = [HEAD.format(runs=len(rows), seconds=total, seeds=seeds, majority=majority, minority=minority)]
    parts += ["## Do robust rules silence minorities? (no attacker)", "", *_answer(calm), ""]
    parts += [*_table(calm, _both_clusters), "", "Accuracy of the majority / of the minority.", ""]
    parts += [*_table(calm, lambda found: _percent(found, "fair_accuracy")), "", "Fair accuracy.", ""]
    kinds = sorted({(row["cell"]["attack"], row["cell"]["share"]) for row in rows if row["cell"]["attack"]})
    for attack, share in kinds:
        found = [row for row in rows if (row["cell"]["attack"], row["cell"]["share"]) == (attack, share)]
        parts += [f"## {attack}, {share:.0%} of the nodes", "", _attacked(share, found[0]["cell"]["seed"]), ""]
        parts += [*_table(found, _both_clusters), "", "Accuracy of honest nodes of the majority / of the minority.", ""]
        parts += ["Points of accuracy, over all honest nodes, that the attack costs under the same rule:", ""]
        parts += [*_table(found, lambda some: _loss(some, calm)), ""]
    parts += ["## Traffic and time", "", *_costs(calm), ""]
    return "\n".join(parts)


def _attacked(share: float, seed: int) -> str:
    """How many nodes of each cluster attack."""
    import numpy as np

    from ddlsim.attacks.own_rows import SignFlip

    nodes = SignFlip(nodes=share).members(np.array([0] * 16 + [1] * 4), seed)
    minority = sum(node >= 16 for node in nodes)
    return f"Attacked: {len(nodes) - minority} of the majority's 16 nodes, {minority} of the minority's 4."


def _between_seeds(calm: Sequence[dict[str, Any]], cluster: int) -> float:
    """The largest difference between two seeds of a cell, in points."""
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
    """What the runs without attackers say, counted and not judged by eye."""
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


def _costs(calm: Sequence[dict[str, Any]]) -> list[str]:
    lines = ["| algorithm | GB | simulated s |", "|---|---|---|"]
    for algorithm in _names(calm, "algorithm"):
        found = _of(calm, algorithm=algorithm)
        texts = []
        for key, digits in (("gigabytes", 3), ("simulated_s", 1)):
            least, most = (pick(row[key] for row in found) for pick in (min, max))
            texts.append(f"{least:.{digits}f}" + (f" to {most:.{digits}f}" if most - least > 10**-digits else ""))
        lines.append(f"| {algorithm} | {texts[0]} | {texts[1]} |")
    text = "Over all rules and seeds without attackers. A rule leaves out models that have come all the same."
    return [*lines, "", text]


if __name__ == "__main__":
    main()

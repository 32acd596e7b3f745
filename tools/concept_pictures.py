"""Draw the pictures of docs/concepts.md into docs/pictures: `python tools/concept_pictures.py CHURN FACADE EL`.

The arguments are run directories: any run with churn, and two runs of the same clusters under two algorithms, e.g.

    ddlsim run scenarios/churn_skype.yaml --learning none --set rounds=40 --out churn
    ddlsim run scenarios/facade_30_2.yaml --out facade
    ddlsim run scenarios/el_30_2.yaml --out el
    python tools/concept_pictures.py churn facade el

The network's solver computes the flows' rates; the picture of the two clocks is a drawing.
"""

import json
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from ddlsim.foundation.native import extension

PICTURES = Path(__file__).resolve().parent.parent / "docs" / "pictures"
BLUE, ORANGE, GREEN, GRAY = "#3465a4", "#d9822b", "#4c9a52", "#9aa0a6"
SECOND_NS = 10**9


def main(churn: Path, facade: Path, el: Path) -> None:
    PICTURES.mkdir(exist_ok=True)
    plt.rcParams.update({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False})
    _save(two_clocks(), "two_clocks")
    _save(flows(), "flows")
    _save(sessions(churn), "churn")
    _save(fairness(facade, el), "fairness")


def two_clocks() -> plt.Figure:
    """Draw two rounds of three devices in simulated time, and the waves of their jobs."""
    figure, (simulated, wall) = plt.subplots(2, figsize=(7, 3.4), height_ratios=(3, 1), layout="constrained")
    for node, train_s in enumerate((1.0, 1.6, 2.6)):
        start = 0.0
        for _ in range(2):
            simulated.broken_barh([(start, train_s)], (node - 0.3, 0.6), color=BLUE)
            simulated.broken_barh([(start + train_s, 0.4)], (node - 0.3, 0.6), color=ORANGE)
            start = 2.6 + 0.4
    simulated.set(yticks=range(3), yticklabels=("fast device", "device", "slow device"), xlim=(0, 6.2))
    simulated.set(xlabel="simulated seconds", title="simulated: training (blue), messages (orange), waiting")
    for start in (0.3, 3.3):
        wall.broken_barh([(start, 1.2)], (-0.3, 0.6), color=BLUE)
        wall.text(start + 0.6, 0, "training, 3 nodes", ha="center", va="center", color="white", fontsize=8)
        wall.broken_barh([(start + 1.2, 0.2)], (-0.3, 0.6), color=GREEN)
    wall.set(yticks=[], xlim=(0, 6.2), xticks=[], ylim=(-0.6, 0.6), xlabel="wall time")
    wall.set_title("computed: jobs of a kind together, when a value is needed; merges (green)")
    return figure


def flows() -> plt.Figure:
    """Draw the solver's rates of three messages from one uplink of 20 Mbit/s, one of them to a downlink of 4 Mbit/s."""
    names = ("to b, begins at 0 s", "to c, begins at 1 s, downlink of 4 Mbit/s", "to d, begins at 2 s")
    figure, axes = plt.subplots(figsize=(7, 2.8), layout="constrained")
    times, bottom = None, 0.0
    rates = _rates_mbps([(0, 1, 6_000_000), (1, 2, 1_500_000), (2, 3, 3_000_000)])
    for name, color, one in zip(names, (BLUE, ORANGE, GREEN), rates, strict=True):
        times = [step / 100 for step in range(len(one))]
        top = [low + rate for low, rate in zip(bottom or [0.0] * len(one), one, strict=True)]
        axes.fill_between(times, bottom or [0.0] * len(one), top, step="post", color=color, label=name, linewidth=0)
        bottom = top
    axes.set(xlabel="simulated seconds", ylabel="uplink of a, Mbit/s", ylim=(0, 24), xlim=(0, times[-1]))
    axes.legend(frameon=False, ncols=3, loc="upper left", fontsize=8)
    return figure


def _rates_mbps(messages: list[tuple[int, int, int]]) -> list[list[float]]:
    """Return the rate of each message (start in s, receiver, bytes), every hundredth of a second."""
    network = extension().FlowNetwork()
    mbps = 125_000
    network.add_nodes([20 * mbps, *[100 * mbps] * 3], [100 * mbps, 100 * mbps, 4 * mbps, 100 * mbps], [0] * 4)
    slots: list[int] = []
    rates: list[list[float]] = [[] for _ in messages]
    for step in range(450):
        now = step * SECOND_NS // 100
        network.run(now)
        for start_s, receiver, size in messages:
            if start_s * 100 == step:
                slots.append(network.send(now, 0, receiver, size))
        active, units, _ = network.rates()
        current = dict(zip(active.tolist(), (units / 2**16 / mbps).tolist(), strict=True))
        for message, one in enumerate(rates):
            one.append(current.get(slots[message], 0.0) if message < len(slots) else 0.0)
    return rates


def sessions(run: Path) -> plt.Figure:
    """Draw the online times of each node of a run."""
    figure, axes = plt.subplots(figsize=(7, 3), layout="constrained")
    changes, end_s = defaultdict(list), 0.0
    for row in _rows(run):
        end_s = max(end_s, row["time_s"])
        if row["name"] == "online":
            changes[row["node"]].append((row["time_s"], row["value"]))
    for node in range(sum(_scenario(run)["nodes"]["clusters"])):
        since = None if changes[node] and changes[node][0] == (0.0, 0) else 0.0
        for time_s, online in [*changes[node], (end_s, 0)]:
            if since is not None and not online:
                axes.broken_barh([(since, time_s - since)], (node - 0.35, 0.7), color=BLUE)
            since = time_s if online else None
    axes.set(xlabel="simulated seconds", ylabel="node", xlim=(0, end_s))
    return figure


def fairness(facade: Path, el: Path) -> plt.Figure:
    """Draw the accuracy of majority and minority under two algorithms."""
    figure, axes = plt.subplots(figsize=(7, 3), layout="constrained")
    for run, color, name in ((facade, BLUE, "FACADE"), (el, ORANGE, "Epidemic Learning")):
        clusters = _scenario(run)["nodes"]["clusters"]
        first_of_minority = clusters[0]
        values: dict[tuple[int, bool], list[float]] = defaultdict(list)
        for row in _rows(run):
            if row["name"] == "accuracy" and row["node"] is not None:
                values[row["round"], row["node"] >= first_of_minority].append(row["value"])
        for minority, style in ((False, "-"), (True, "--")):
            rounds = sorted(number for number, which in values if which == minority)
            means = [100 * sum(values[number, minority]) / len(values[number, minority]) for number in rounds]
            size = clusters[1] if minority else clusters[0]
            axes.plot(rounds, means, style, marker=".", color=color, label=f"{name}, {size} nodes")
    axes.set(xlabel="round", ylabel="accuracy of the cluster, %")
    axes.legend(frameon=False)
    return figure


def _rows(run: Path) -> Iterator[dict[str, Any]]:
    with open(run / "metrics.jsonl", encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def _scenario(run: Path) -> dict[str, Any]:
    from ruamel.yaml import YAML

    return YAML(typ="safe").load((run / "scenario.yaml").read_text(encoding="utf-8"))


def _save(figure: plt.Figure, name: str) -> None:
    figure.savefig(PICTURES / f"{name}.png", dpi=110)
    plt.close(figure)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:4]))

"""Writes docs/trust.md and its figures from the measurements in docs/results/trust: `python tools/trust_page.py`.

Nothing is measured here: stored times of real TCP and of real runs stand beside what ddlsim says now.
"""

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import matplotlib
import numpy as np

matplotlib.use("Agg")
import matplotlib.pyplot as plt

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "validation"))

import compare_runs  # noqa: E402
from compare_flows import PLAIN_QUEUE, VARIANTS, Measured, read_all, summary  # noqa: E402

from ddlsim.network.tcp import Tcp  # noqa: E402

DOCS = ROOT / "docs"
PAGE, TEXT = DOCS / "trust.md", Path(__file__).with_name("trust_page.md")
ROUNDS = ("el_8", "facade_8", "el_32")
SEEDS = range(5)
BLUE, ORANGE, GREEN, GRAY = "#3465a4", "#d9822b", "#4c9a52", "#9aa0a6"

SETTINGS = {
    "fair": ("fair", 100, "cubic", "persistent"),
    "fair, a connection per message": ("fair", 100, "cubic", "per_message"),
    "plain, 100 packets": ("pfifo", 100, "cubic", "persistent"),
    "plain, 1000 packets": ("pfifo", 1000, "cubic", "persistent"),
    "plain, 100 packets, bbr": ("pfifo", 100, "bbr", "persistent"),
}
TITLES = {"fair": "fair queues", "plain, 100 packets": "plain queues"}


def main() -> None:
    found = {name: read_all(*setting) for name, setting in SETTINGS.items()}
    (DOCS / "pictures").mkdir(exist_ok=True)
    plt.rcParams.update({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False})
    draw_rounds(found).savefig(DOCS / "pictures" / "trust_rounds.png", dpi=130)
    draw_flows(found).savefig(DOCS / "pictures" / "trust_flows.png", dpi=130)
    parts = {
        "KERNEL": found["fair"][0].about["kernel"],
        "CASES": cases_table(found),
        "OPTIONS": options_table(found),
        "PLAIN": plain_table(found),
        "RUNS": runs_table(),
    }
    text = TEXT.read_text()
    for name, part in parts.items():
        text = text.replace(f"@{name}@", part)
    PAGE.write_text(text)


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = ["| " + " | ".join(map(str, row)) + " |" for row in (head, ["---", *["---:"] * (len(head) - 1)], *rows)]
    return "\n".join(lines)


def percent(value: float) -> str:
    return f"{100 * value:.1f}"


def errors(values: np.ndarray) -> str:
    median, p95, _ = summary(values)
    return f"{percent(median)} / {percent(p95)}"


def of_setting(setting: str) -> Tcp:
    return Tcp(connections=SETTINGS[setting][3])


def cases_table(found: dict[str, list[Measured]]) -> str:
    """Every case in every setting: errors of flow and tcp, per flow and per round."""
    rows = []
    for setting, measured in found.items():
        tcp = of_setting(setting)
        for case in measured:
            sizes = f"{len(case.flows)} x {len(case.taken_s)}"
            of_flows = [errors(case.flow_errors(settings)) for settings in (None, tcp)]
            of_rounds = [errors(case.round_errors(settings)) for settings in (None, tcp)]
            rows.append([f"{setting}: {case.name}", sizes, *of_flows, *of_rounds])
    head = ["queues: case", "flows x repetitions", "flows, `flow`", "flows, `tcp`", "rounds, `flow`", "rounds, `tcp`"]
    return table(head, rows)


def options_table(found: dict[str, list[Measured]]) -> str:
    """What each option brings behind fair queues."""
    by_name = {case.name: case for case in found["fair"]}
    columns = ("single_20ms", "uplink", "incast", *ROUNDS, "el_8_rtts")
    rows = [[name, *(errors(by_name[case].round_errors(tcp)) for case in columns)] for name, tcp in VARIANTS.items()]
    return table(["", *columns], rows)


def plain_table(found: dict[str, list[Measured]]) -> str:
    """Rounds behind plain queues: with what is right behind fair ones, and with the settings for plain ones."""
    rows = []
    for setting in ("plain, 100 packets", "plain, 1000 packets", "plain, 100 packets, bbr"):
        for case in found[setting]:
            if case.name not in (*ROUNDS, "el_8_rtts"):
                continue
            measured = [case.round_errors(tcp, SEEDS) for tcp in (None, Tcp(), PLAIN_QUEUE)]
            biases = [f"{errors(each)} ({100 * summary(each)[2]:+.0f})" for each in measured]
            rows.append([f"{setting}: {case.name}", *biases])
    return table(["queues: case", "`flow`", "`tcp`", "`tcp`, settings for plain queues"], rows)


def runs_table() -> str:
    """Real runs: models, seconds per round, seconds to the target."""
    rows = []
    for run in compare_runs.read_runs():
        measured_s, target = run.complete_s, run.target_round
        fair = run.about["queue"] == "fair"
        networks = {**compare_runs.NETWORKS, **({} if fair else {"tcp": compare_runs.PLAIN_QUEUE})}
        simulated = {name: run.simulated_s(network) for name, network in networks.items()}
        per_round = [f"{each[-1] / len(measured_s):.3f}" for each in (measured_s, *simulated.values())]
        to_target = [f"{measured_s[target - 1]:.2f}"]
        for each in simulated.values():
            to_target.append(f"{each[target - 1]:.2f} ({100 * (each[target - 1] / measured_s[target - 1] - 1):+.1f} %)")
        about = run.about
        rows.append(
            [
                f"{about['name']}, {'fair' if fair else 'plain'} queues",
                f"{about['largest_difference']:.1e}",
                f"{100 * about['accuracy'][str(len(measured_s))]:.2f} / {100 * about['simulated_accuracy']:.2f}",
                " / ".join(per_round),
                " / ".join(to_target),
            ]
        )
    head = [
        "run",
        "largest difference of a parameter",
        "accuracy, real / simulated (%)",
        "seconds per round, real / `flow` / `tcp`",
        f"seconds to {100 * compare_runs.TARGET:.0f} %, real / `flow` / `tcp`",
    ]
    return table(head, rows)


def draw_rounds(found: dict[str, list[Measured]]) -> plt.Figure:
    """Distributions of the relative errors of rounds."""
    figure, axes = plt.subplots(1, 2, figsize=(7.5, 2.8), sharex=True, sharey=True, layout="constrained")
    for axis, setting in zip(axes, ("fair", "plain, 100 packets"), strict=True):
        cases = [case for case in found[setting] if case.name in ROUNDS]
        lines = {"flow": (None, GRAY), "tcp": (Tcp(), BLUE), "tcp, for plain queues": (PLAIN_QUEUE, ORANGE)}
        for name, (tcp, color) in list(lines.items())[: 2 if setting == "fair" else 3]:
            _steps(axis, 100 * np.concatenate([case.round_errors(tcp, SEEDS) for case in cases]), name, color)
        axis.axvline(0, color="black", linewidth=0.5)
        axis.set(title=f"rounds, {TITLES[setting]}", xlabel="relative error (%)")
        axis.legend(frameon=False, loc="upper left")
    axes[0].set(ylabel="share of rounds", xlim=(-45, 25))
    return figure


def draw_flows(found: dict[str, list[Measured]]) -> plt.Figure:
    """How unequal flows are that start together: their times over the mean of their round."""
    figure, axes = plt.subplots(1, 2, figsize=(7.5, 2.8), sharex=True, sharey=True, layout="constrained")
    for axis, setting in zip(axes, ("fair", "plain, 100 packets"), strict=True):
        cases = [case for case in found[setting] if case.name in ("el_8", "facade_8")]
        _steps(
            axis, np.concatenate([_spread(case, each) for case in cases for each in case.taken_s]), "measured", GREEN
        )
        lines = [("tcp", Tcp(), BLUE), ("tcp, for plain queues", PLAIN_QUEUE, ORANGE)]
        for name, tcp, color in lines[: 1 if setting == "fair" else 2]:
            simulated = [_spread(case, case.simulated_s(tcp, seed)) for case in cases for seed in SEEDS]
            _steps(axis, np.concatenate(simulated), name, color)
        axis.set(title=f"flows of a round, {TITLES[setting]}", xlabel="time / mean of the round")
        axis.legend(frameon=False, loc="upper left")
    axes[0].set(ylabel="share of flows", xlim=(0.3, 1.7))
    return figure


def _spread(case: Measured, taken_s: np.ndarray) -> np.ndarray:
    rounds = case.rounds
    means = np.array([np.nanmean(taken_s[rounds == number]) for number in range(rounds.max() + 1)])
    return taken_s / means[rounds]


def _steps(axis: plt.Axes, values: np.ndarray, name: str, color: str) -> None:
    ordered = np.sort(values)
    axis.step(ordered, np.arange(1, len(ordered) + 1) / len(ordered), label=name, color=color)


if __name__ == "__main__":
    main()

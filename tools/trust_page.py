"""Write the tables of docs/results/trust/cases.md and the figures of docs/trust.md: `python tools/trust_page.py`.

The tables compare stored times of real TCP and of real runs with current simulations.
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
from compare_flows import FITTED_TO, FQ_CODEL, HELD_OUT, PLAIN_QUEUE, VARIANTS, Measured, read_all, summary  # noqa: E402

from ddlsim.scenario.network_sections import Tcp  # noqa: E402

DOCS = ROOT / "docs"
CASES = DOCS / "results" / "trust" / "cases.md"
CASES_HEAD = """# Errors of simulated time, all cases

Made by `python tools/trust_page.py`. [Accuracy of simulated time](../../trust.md) explains the cases. Errors are
(simulated - measured) / measured as *median / 95th percentile of their size*, in percent. The third column is the
difference of a flow's repetitions from their median.

Cases: `single_*`, one flow at a time, 1 kB to 10 MB (`large`: 50 MB; `single_rtts`: eight of 359 kB at one-way
latencies of 2 to 80 ms); `uplink`, 2 and 4 flows out of one; `incast`, 3 and 7 into one; `random`, 80 flows of about
200 kB (lognormal) among 8 hosts within 10 s; `hetero`, the same over lognormal links; `churn`, a host cut off during
a transfer; `el_8`, `el_32`, `facade_8`, rounds of ddlsim's algorithms (359 kB to four neighbors each); `el_16`,
`el_8_other`, `facade_8_other`, the same on other graphs, to test fits; `el_8_rtts`, access latencies of 1 to 40 ms. A
round ends when all messages of one start have arrived.

"""
FITTED_HEAD = """## Fitted settings

Errors of rounds with settings fitted to three cases, with the signed median in brackets: fq_codel with
`utilization: 0.88`, plain queues with `shares: random, utilization: 0.82`."""
OPTIONS_HEAD = """## TCP options

Errors of rounds with fair queues, adding one option at a time."""
RUNS_HEAD = """## Real runs

Eight processes and the simulation; each line is one run."""
ROUNDS = ("el_8", "facade_8", "el_32")
SEEDS = range(5)
BLUE, ORANGE, GREEN, GRAY = "#3465a4", "#d9822b", "#4c9a52", "#9aa0a6"

SETTINGS = {
    "fair": ("fair", 1000, "cubic", "persistent"),
    "fair, 100 packets": ("fair", 100, "cubic", "persistent"),
    "fq_codel": ("relay_fq_codel", 10240, "cubic", "persistent"),
    "fair, a connection per message": ("fair", 100, "cubic", "per_message"),
    "plain, 100 packets": ("pfifo", 100, "cubic", "persistent"),
    "plain, 1000 packets": ("pfifo", 1000, "cubic", "persistent"),
    "plain, 100 packets, bbr": ("pfifo", 100, "bbr", "persistent"),
}
TITLES = {"fair": "fair queues", "fq_codel": "fq_codel", "plain, 100 packets": "plain queues"}
QUEUES = {"fair": "fair queues", "relay_fq_codel": "fq_codel", "pfifo": "plain queues"}
FITTED = {"fair": None, "fq_codel": FQ_CODEL, "plain, 100 packets": PLAIN_QUEUE}


def main() -> None:
    found = {name: read_all(*setting) for name, setting in SETTINGS.items()}
    (DOCS / "pictures").mkdir(exist_ok=True)
    plt.rcParams.update({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False})
    draw_rounds(found).savefig(DOCS / "pictures" / "trust_rounds.png", dpi=130)
    draw_flows(found).savefig(DOCS / "pictures" / "trust_flows.png", dpi=130)
    plain = ("plain, 100 packets", "plain, 1000 packets", "plain, 100 packets, bbr")
    fitted = (fitted_table(found, ("fq_codel",), FQ_CODEL), fitted_table(found, plain, PLAIN_QUEUE))
    parts = [CASES_HEAD + cases_table(found), FITTED_HEAD, *fitted]
    parts += [OPTIONS_HEAD, options_table(found), RUNS_HEAD, runs_table()]
    CASES.write_text("\n\n".join(parts) + "\n")


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
    """Return a table of all cases and settings: errors of flow and tcp, per flow and per round."""
    rows = []
    for setting, measured in found.items():
        tcp = of_setting(setting)
        for case in measured:
            sizes = f"{len(case.flows)} x {len(case.taken_s)}"
            of_flows = [errors(case.flow_errors(settings)) for settings in (None, tcp)]
            of_rounds = [errors(case.round_errors(settings)) for settings in (None, tcp)]
            rows.append([f"{setting}: {case.name}", sizes, spread_of_repetitions(case), *of_flows, *of_rounds])
    head = [
        "queues: case",
        "flows x repetitions",
        "repetitions differ by",
        "flows, `flow`",
        "flows, `tcp`",
        "rounds, `flow`",
        "rounds, `tcp`",
    ]
    return table(head, rows)


def spread_of_repetitions(case: Measured) -> str:
    """Return median and 95th percentile of a flow's distance from the median of its repetitions, in percent."""
    if len(case.taken_s) == 1:
        return "-"
    taken_s = case.taken_s[:, ~np.isnan(case.taken_s).any(axis=0)]
    return errors((taken_s / np.median(taken_s, axis=0) - 1).ravel())


def options_table(found: dict[str, list[Measured]]) -> str:
    """Return a table of the effect of each option with fair queues."""
    by_name = {case.name: case for case in (*found["fair, 100 packets"], *found["fair"])}
    columns = ("single_20ms", "uplink", "incast", *ROUNDS, "el_8_rtts")
    rows = [[name, *(errors(by_name[case].round_errors(tcp)) for case in columns)] for name, tcp in VARIANTS.items()]
    return table(["", *columns], rows)


def fitted_table(found: dict[str, list[Measured]], settings: Sequence[str], fitted: Tcp) -> str:
    """Return a table of rounds with fitted queues (on the first setting), with and without the fit."""
    rows = []
    for setting in settings:
        by_name = {case.name: case for case in found[setting]}
        for name in (*FITTED_TO, *HELD_OUT, "el_8_rtts"):
            if name not in by_name:
                continue
            case = by_name[name]
            measured = [case.round_errors(tcp, SEEDS) for tcp in (None, Tcp(), fitted)]
            biases = [f"{errors(each)} ({100 * summary(each)[2]:+.0f})" for each in measured]
            rows.append(
                [
                    f"{setting}: {name}",
                    "fitted to" if name in FITTED_TO and setting == settings[0] else "held out",
                    *biases,
                ]
            )
    return table(["queues: case", "", "`flow`", "`tcp`", "`tcp`, fitted settings"], rows)


def runs_table() -> str:
    """Return a table of real runs: models, seconds per round, seconds to the target."""
    rows = []
    for run in compare_runs.read_runs():
        about, measured_s, target = run.about, run.complete_s, run.target_round
        simulated = [run.simulated_s(network) for network in ({}, run.tcp)]
        per_round = [f"{each[-1] / len(measured_s):.3f}" for each in (measured_s, *simulated)]
        to_target = [f"{measured_s[target - 1]:.2f}"]
        for each in simulated:
            to_target.append(f"{each[target - 1]:.2f} ({100 * (each[target - 1] / measured_s[target - 1] - 1):+.1f} %)")
        rows.append(
            [
                f"{about['name']}, {QUEUES[about['queue']]}",
                f"{about['largest_difference']:.1e}",
                f"{100 * about['accuracy'][str(len(measured_s))]:.2f} / {100 * about['simulated_accuracy']:.2f}",
                " / ".join(per_round),
                f"{100 * run.target:.0f} %",
                " / ".join(to_target),
            ]
        )
    head = [
        "run",
        "largest difference of a parameter",
        "accuracy, real / simulated (%)",
        "seconds per round, real / `flow` / `tcp`",
        "target",
        "seconds to it, real / `flow` / `tcp`",
    ]
    return table(head, rows)


def draw_rounds(found: dict[str, list[Measured]]) -> plt.Figure:
    """Draw the distributions of the relative errors of rounds."""
    figure, axes = plt.subplots(1, 3, figsize=(9.5, 2.8), sharex=True, sharey=True, layout="constrained")
    for axis, (setting, fitted) in zip(axes, FITTED.items(), strict=True):
        cases = [case for case in found[setting] if case.name in (*ROUNDS, *HELD_OUT)]
        lines = {"flow": (None, GRAY), "tcp": (Tcp(), BLUE), "tcp, fitted": (fitted, ORANGE)}
        for name, (tcp, color) in list(lines.items())[: 2 if fitted is None else 3]:
            _steps(axis, 100 * np.concatenate([case.round_errors(tcp, SEEDS) for case in cases]), name, color)
        axis.axvline(0, color="black", linewidth=0.5)
        axis.set(title=f"rounds, {TITLES[setting]}", xlabel="relative error (%)")
        axis.legend(frameon=False, loc="upper left")
    axes[0].set(ylabel="share of rounds", xlim=(-45, 25))
    return figure


def draw_flows(found: dict[str, list[Measured]]) -> plt.Figure:
    """Draw times of simultaneous flows over the mean of their round."""
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

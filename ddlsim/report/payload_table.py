"""Bytes by content of messages, over rounds, from contents.jsonl (see network/messages/message.py)."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ddlsim.report.figures import COLORS, DASHES, new_figure
from ddlsim.report.json_lines import json_lines

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ddlsim.report.records import Records


def read_contents(directory: Path) -> tuple[np.ndarray, dict[str, np.ndarray]] | None:
    """Return the contents of a run's messages.

    Returns:
        Rounds [R], ascending, and per content the bytes of all messages of a round, int [R], contents with most bytes
        first; None if nothing was sent or the run has not ended.
    """
    path = directory / "contents.jsonl"
    rows = list(json_lines(path, {"round": int, "content": str, "bytes": int})) if path.is_file() else []
    if not rows:
        return None
    rounds = np.unique([row["round"] for row in rows])
    found: dict[str, np.ndarray] = {}
    for row in rows:
        found.setdefault(row["content"], np.zeros(len(rounds), np.int64))[rounds == row["round"]] += row["bytes"]
    return rounds, dict(sorted(found.items(), key=lambda item: (-item[1].sum(), item[0])))


def contents_figure(records: "Records", rounds: np.ndarray, num_bytes: Mapping[str, np.ndarray]) -> "Figure":
    """Bytes of all nodes in each round by what messages held, on a logarithmic scale; a gap: none of it was sent."""
    figure, axes = new_figure(records)
    for index, (name, values) in enumerate(num_bytes.items()):
        shown = np.where(values > 0, values / 1e6, np.nan)
        style = {"color": COLORS[index % len(COLORS)], "linestyle": DASHES[index % len(DASHES)]}
        axes.plot(rounds, shown, label=name, marker="." if len(rounds) <= 30 else None, **style)
    axes.set(xlabel="round", ylabel="MB sent by all nodes in a round", yscale="log")
    axes.grid(alpha=0.3)
    axes.legend()
    return figure

"""Traffic of the nodes' links, from links.jsonl: causes of bytes, utilization, queueing (see network/link_use.py)."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ddlsim.report.json_lines import damage_of, json_lines
from ddlsim.report.text import bytes_text, percent_text, seconds_text

KINDS = ("push", "request", "response", "ack")
CAUSES = ("aborted", "lost", "unused")


@dataclass(frozen=True)
class Links:
    """Columns of links.jsonl, float [nodes], nan where unknown; one entry if only totals were written.

    Args:
        values: name -> column.
        num_nodes: nodes of the run.
    """

    values: dict[str, np.ndarray]
    num_nodes: int

    @property
    def by_node(self) -> bool:
        """Whether each node's links are known."""
        return len(self.values["sent_bytes"]) in (self.num_nodes, self.num_nodes + 1)  # a server is none of the nodes

    def bytes_of(self, *names: str) -> dict[str, int]:
        """Sums over nodes by name, as push, aborted, ..."""
        return {name: int(self.values[f"{name}_bytes"].sum()) for name in names}

    def utilization(self, link: str) -> dict[str, float | None]:
        """Mean, median and largest share of use of `uplink` or `downlink` over nodes, 0 to 1."""
        values = self.values[f"{link}_utilization"]
        values = values[~np.isnan(values)]
        if not len(values):
            return dict.fromkeys(("mean", "median", "max"))
        spread = {"median": float(np.median(values)), "max": float(values.max())}
        return {"mean": float(values.mean()), **(spread if self.by_node else dict.fromkeys(spread))}

    def queueing_s(self) -> dict[str, float | None]:
        """Mean over messages and longest time that messages queued."""
        messages, waited_s = self.values["messages_received"], self.values["queueing_s"]
        if not messages.sum():
            return {"mean": None, "max": None}
        mean_s = np.nan_to_num(waited_s) @ messages / messages.sum()
        return {"mean": float(mean_s), "max": float(np.nanmax(self.values["max_queueing_s"]))}

    def summary(self) -> dict:
        """For summary.json."""
        return {
            "uplink_utilization": self.utilization("uplink"),
            "downlink_utilization": self.utilization("downlink"),
            "queueing_s": self.queueing_s(),
        }


def read_links(path: Path) -> Links | None:
    """Return the file's columns; None if the file is missing."""
    if not path.is_file():
        return None
    rows = list(json_lines(path))
    if not rows:
        return None
    names = [name for name in rows[0] if name not in ("node", "nodes")]
    with damage_of(path):
        table = np.array([[row[name] for name in names] for row in rows], dtype=float)
        return Links(dict(zip(names, table.T, strict=True)), sum(row.get("nodes", 1) for row in rows))


def lines(links: Links) -> list[tuple[str, str]]:
    """Bytes by kind and cause, use of links, queueing: what, and its value."""
    kinds, causes = links.bytes_of(*KINDS), links.bytes_of(*CAUSES, "in_flight")
    found = [(f"{name} bytes", bytes_text(value)) for name, value in kinds.items() if value]
    about = {
        "aborted": "wasted, sender or receiver left",
        "lost": "wasted, lost by the network",
        "unused": "wasted, arrived but unused",
        "in_flight": "in flight at the end",
    }
    found += [(about[name], bytes_text(value)) for name, value in causes.items() if value]
    for link in ("uplink", "downlink"):
        use = links.utilization(link)
        if use["mean"] is not None:
            spread = f", median {percent_text(use['median'])}, max {percent_text(use['max'])}" if links.by_node else ""
            found.append((f"{link} utilization %", f"mean {percent_text(use['mean'])}{spread}"))
    queued_s = links.queueing_s()
    if queued_s["mean"] is not None:
        found.append(
            ("queueing per message", f"mean {_short_text(queued_s['mean'])}, max {_short_text(queued_s['max'])}")
        )
    return found


def _short_text(seconds: float) -> str:
    """Below a second as milliseconds."""
    return f"{1000 * seconds:.1f}ms" if seconds < 0.9995 else seconds_text(seconds)

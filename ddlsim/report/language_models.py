"""Use of devices and uplinks in runs whose devices count tokens (devices: language_model), from their records."""

from collections import defaultdict
from collections.abc import Iterable

import numpy as np

from ddlsim.foundation.units import BITS_PER_BYTE
from ddlsim.report.record_files import TIME_USES, read_time_use, read_timeline
from ddlsim.report.records import Records


def language_model_use(records: Records) -> dict[str, float | None] | None:
    """Return figures over all nodes without a server, or None without records of every node.

    Steps are seconds of computing over seconds per step, so a forward pass counts as its share of a step.
    """
    about, rows, links = records.manifest.get("step_times") or {}, read_time_use(records.directory), records.links
    if "tokens" not in about or rows is None or rows[0]["node"] is None or links is None or not links.by_node:
        return None
    count = records.num_nodes
    tokens, parameters, step_s = (np.array(about[name]) for name in ("tokens", "parameters", "node_step_s"))
    used_s = np.array([[row[f"{name}_s"] for name in TIME_USES] for row in rows[:count]], dtype=float)
    computing_s, offline_s = used_s[:, TIME_USES.index("computing")], used_s[:, TIME_USES.index("offline")]
    duration_s, online_s = float(used_s[0].sum()), float((used_s.sum(1) - offline_s).sum())
    steps, sent_bytes = computing_s / step_s, links.values["sent_bytes"][:count]
    trained = float(steps @ parameters)
    return {
        "compute_utilization": float(computing_s.sum()) / online_s if online_s else None,
        "tokens": float(steps @ tokens),
        "tokens_per_s": float(steps @ tokens) / duration_s if duration_s else None,
        "bits_per_parameter_and_step": BITS_PER_BYTE * float(sent_bytes.sum()) / trained if trained else None,
        "uplink_mean_bytes_per_s": float(sent_bytes.mean()) / duration_s if duration_s else None,
        "uplink_peak_bytes_per_s": _peak_bytes_per_s(records),
    }


def _peak_bytes_per_s(records: Records) -> float | None:
    """Return the highest mean rate of an uplink over one of its busy periods in the timeline, or None."""
    found = read_timeline(records.directory)
    if found is None:
        return None
    (_, end_s), rows = found
    sent = defaultdict(list)
    for row in rows:
        if row["what"] == "message" and row["node"] < records.num_nodes:
            sent[row["node"]].append((row["start_s"], row["end_s"], row["bytes"]))
    periods = [period for messages in sent.values() for period in _busy_periods(messages)]
    # A message that the window's end cuts has not sent all of its bytes; at the end of the run it may have.
    whole = [period for period in periods if period[1] < end_s] or periods
    return max((sent / (last_s - first_s) for first_s, last_s, sent in whole if last_s > first_s), default=None)


def _busy_periods(messages: Iterable[tuple[float, float, int]]) -> list[tuple[float, float, int]]:
    """Join messages that overlap in time: start, end and bytes of each period."""
    found: list[tuple[float, float, int]] = []
    for start_s, end_s, num_bytes in sorted(messages):
        if found and start_s < found[-1][1]:
            first_s, last_s, before = found.pop()
            start_s, end_s, num_bytes = first_s, max(last_s, end_s), before + num_bytes
        found.append((start_s, end_s, num_bytes))
    return found

"""The summary of a run as the lines of one small table, warnings first."""

from collections.abc import Iterator

from ddlsim.foundation.units import BITS_PER_BYTE
from ddlsim.report import text as formats
from ddlsim.tasks.base import Metric

Line = tuple[str, str]
"""Name and value."""
UNFINISHED = "NOT FINISHED"
"""Start of the warning about a run that has not ended."""
PURPOSES = {"compute_j": "computing", "idle_j": "idle", "upload_j": "sending", "download_j": "receiving"}
"""Columns of energy.jsonl -> words."""


def fallback_line(name: str) -> str:
    """Return the line on numbers from fallback data of this name."""
    return f"FALLBACK DATA: ran on {name}, not on the scenario's data; not comparable with numbers on that data"


def loud_lines(summary: dict) -> Iterator[str]:
    """Yield the warnings that precede the numbers of every report: fallback data, labels, an unfinished run."""
    if summary["data"]["fallback"]:
        yield fallback_line(summary["data"]["name"])
    yield from (f"NOTE: {label}" for label in summary["labels"])
    if summary["status"] != "done":
        reached = summary["evaluated_round"]
        until = "never evaluated" if reached is None else f"evaluated up to round {reached}"
        stopped = summary.get("stopped")
        why = f", ended after round {stopped['round']} by a callback: {stopped['reason']}" if stopped else ""
        yield f"{UNFINISHED}: status {summary['status']}{why}, {until}"


def rows(summary: dict) -> Iterator[Line]:
    """Yield the lines of a run's summary table."""
    network_only = summary["timetable"] is not None
    yield "scenario", f"{summary['scenario']}, {summary['algorithm']}, seed {summary['seed']}, {summary['device']}"
    yield "data", _data_line(summary)
    if summary.get("as_published"):
        yield "as published", ", ".join(summary["as_published"])
    yield "nodes", _nodes_line(summary)
    yield from _timetable_lines(summary) if network_only else _quality_lines(summary)
    yield from _attack_lines(summary)
    yield "bytes sent", _bytes_line(summary["bytes"])
    if "final_exchange" in summary:
        yield "final exchange", f"{exchange_text(summary)}; in no curve and no cost of the target"
    yield from ((name, value + _mark("joules", summary)) for name, value in _energy_lines(summary))
    yield from _privacy_lines(summary.get("privacy"))
    yield from _secure_lines(summary.get("secure_aggregation"))
    if summary.get("step_times"):
        yield "device", step_times_text(summary["step_times"])
    yield from _language_model_lines(summary.get("language_model"))
    yield "simulated time", formats.seconds_text(summary["sim_time_s"]) + _mark("sim_time_s", summary)
    yield from _time_lines(summary.get("time_use"))
    yield "wall time", formats.seconds_text(summary["wall_s"])
    if summary.get("checks"):
        yield "self-checks", str(summary["checks"])
    if not network_only:
        yield from _target_lines(summary["target"], Metric(**summary["judged_by"]))
    if summary["cut_off"]:
        yield "offline at the end, cut off", f"{summary['cut_off']} nodes"
    if summary["settlement"]:
        yield "heads", settlement_text(summary["settlement"])
    yield from _profile_lines(summary)


def _profile_lines(summary: dict) -> Iterator[Line]:
    """Yield where wall time and jobs went; none without --profile."""
    for part, value in summary.get("profile", {}).items():
        yield f"wall s, {part}" if part != "simulated to wall" else part, formats.number_text(value, 2)
    for kind, seconds in summary.get("device_seconds", {}).items():
        yield f"device s, {kind}", formats.number_text(seconds, 2)
    for kind, ran in summary.get("waves", {}).items():
        a_round, size = ran["waves"] / max(1, summary["rounds"]), ran["jobs"] / ran["waves"]
        yield f"waves of {kind}", f"{a_round:.2f} a round, {size:.1f} jobs each"
    for backend, kinds in summary.get("paths", {}).items():
        yield f"computed {backend}", ", ".join(f"{count} {kind}" for kind, count in kinds.items())
    for backend, reasons in summary.get("fallback_counts", {}).items():
        yield from ((f"not {backend}", f"{count} times: {reason}") for reason, count in reasons.items())


def _mark(figure: str, summary: dict) -> str:
    return " (estimated)" if figure in summary.get("estimated", ()) else ""


def step_times_text(step_times: dict) -> str:
    """Return the device, the shortest and longest step, and the source of these times."""
    shortest, longest = (formats.prefixed(seconds, formats.SHORT_SECONDS) for seconds in step_times["step_s"])
    text = f"{step_times['device']}, {shortest}{'' if shortest == longest else f' to {longest}'} per step"
    if step_times["source"] == "given":
        return text
    flops = step_times["flops"].values()
    fewest, most = formats.prefixed(min(flops), formats.FLOPS), formats.prefixed(max(flops), formats.FLOPS)
    operations = fewest if fewest == most else f"{fewest} to {most}"
    how = f"{operations}, {step_times['source']}" + ("" if step_times["counted"] else " from the model's size")
    by_default = step_times["source"] == "estimated" and "tokens" not in step_times
    cure = "; run `ddlsim calibrate` for your device" if by_default else ""
    return f"{text} ({how}){cure}"


def _language_model_lines(use: dict | None) -> Iterator[Line]:
    """Yield the lines on devices and uplinks of runs that count tokens."""
    if use is None:
        return
    rates = [use[f"uplink_{name}_bytes_per_s"] for name in ("mean", "peak")]
    mean, peak = (formats.prefixed(rate and BITS_PER_BYTE * rate, formats.RATES) for rate in rates)
    yield "compute utilization", f"{formats.percent_text(use['compute_utilization'])} %"
    yield "tokens", f"{use['tokens_per_s'] or 0:,.0f} per second, {use['tokens']:,.0f} in all"
    yield "bits per parameter and step", formats.number_text(use["bits_per_parameter_and_step"])
    yield "bandwidth per uplink", f"mean {mean}, peak {peak}"


def has_clusters(summary: dict) -> bool:
    """Whether there are several clusters that can be compared."""
    return len(summary["cluster_sizes"]) > 1


def exchange_text(summary: dict) -> str:
    """Return the cost of the exchange after the last round, and its change of the metric."""
    judged_by, found = Metric(**summary["judged_by"]), summary["final_exchange"]
    gain = found["gain"]
    if gain is None:
        return formats.bytes_text(found["bytes"])
    changed = f"{100 * gain:+.1f} points" if judged_by.share else f"{gain:+.{judged_by.digits}f} {judged_by.words}"
    return f"{formats.bytes_text(found['bytes'])}, {changed}"


def _nodes_line(summary: dict) -> str:
    sizes = ":".join(map(str, summary["cluster_sizes"]))
    return f"{summary['nodes']} in clusters {sizes}" if has_clusters(summary) else str(summary["nodes"])


def _data_line(summary: dict) -> str:
    name = summary["data"]["name"]
    if summary["data"]["fallback"]:
        return f"{name} (fallback)"
    return name if summary["timetable"] is None else f"{name} (only its shape)"


def _quality_lines(summary: dict) -> Iterator[Line]:
    metric, judged_by = summary["metric"], Metric(**summary["judged_by"])
    name = judged_by.head
    reached = summary["evaluated_round"]
    until = "not evaluated" if reached is None else f"last evaluation after {reached}"
    until = "last evaluation after the final exchange" if "final_exchange" in summary else until
    yield "rounds", f"{summary['rounds']} ({until})"
    yield f"{name}, all nodes", judged_by.text(summary[metric]["all"])
    for cluster, value in enumerate(summary[metric]["clusters"] or [] if has_clusters(summary) else []):
        size = summary["cluster_sizes"][cluster]
        yield f"{name}, cluster {cluster} ({size})", judged_by.text(value)
    peeked = summary.get(f"{metric}_lowest_test_loss")
    if peeked:
        yield "  with the head of lowest test loss", _with_clusters(peeked, judged_by, has_clusters(summary))
    for other in (Metric(**each) for each in summary["also_measured"]):
        yield f"{other.head}, all nodes", other.text(summary[other.name]["all"])
    if has_clusters(summary) and "demographic_parity" not in summary:
        task = summary["task"].replace("_", " ")
        yield "fairness over classes", f"not defined (task: {task}, no single class per sample)"
    elif has_clusters(summary):
        yield "fair accuracy %", formats.percent_text(summary["fair_accuracy"])
        yield "demographic parity", formats.number_text(summary["demographic_parity"])
        yield "equalized odds", formats.number_text(summary["equalized_odds"])


def _with_clusters(values: dict, judged_by: Metric, several: bool) -> str:
    """Return the mean over nodes, and the means of clusters if there are several."""
    everyone = judged_by.text(values["all"])
    return f"{everyone} (clusters {' '.join(map(judged_by.text, values['clusters'] or []))})" if several else everyone


def _attack_lines(summary: dict) -> Iterator[Line]:
    """Yield the figures of honest and of attacked nodes; none if no node attacks."""
    if "honest" not in summary:
        return
    metric, judged_by = summary["metric"], Metric(**summary["judged_by"])
    yield "attacks", "; ".join(f"{_attack_name(one)}: {len(one['nodes'])} nodes" for one in summary["attacks"])
    for name in ("honest", "attacked"):
        part = summary[name]
        which = f"{name} nodes ({len(part['nodes'])})"
        if summary["timetable"] is not None:
            yield which, ", ".join(map(str, part["nodes"]))
            continue
        yield f"{judged_by.head}, {which}", _with_clusters(part[metric], judged_by, has_clusters(summary))
        if "fair_accuracy" in part and has_clusters(summary):
            yield f"fair accuracy %, {which}", formats.percent_text(part["fair_accuracy"])
        if "backdoor_success" in part:
            yield f"backdoor success %, {which}", formats.percent_text(part["backdoor_success"]["all"])


def _attack_name(attack: dict) -> str:
    """Return an attack's name with its knowledge, which is part of the attack."""
    return f"{attack['name']} (knows {attack['knows']})" if "knows" in attack else attack["name"]


def _timetable_lines(summary: dict) -> Iterator[Line]:
    """Yield the lines of a network-only run in place of accuracy: completion times of its last round."""
    last = summary["timetable"][-1]
    sent = summary["bytes"]["total"]
    through = ", ".join(f"{name} {formats.seconds_text(last[f'{name}_s'])}" for name in ("first", "median", "last"))
    yield "rounds", str(summary["rounds"])
    yield "nodes that completed the last round", f"{through} ({last['nodes']:.0f} nodes)"
    yield "bytes per node", formats.bytes_text(None if sent is None else sent / summary["nodes"])


def _time_lines(time_use: dict | None) -> Iterator[Line]:
    if time_use is None or time_use["shares"]["computing"] is None:
        return
    shares = [f"{name} {formats.percent_text(share)} %" for name, share in time_use["shares"].items() if share >= 5e-5]
    held, longest = time_use["waited_for"], ""
    if held:
        seconds = formats.seconds_text(held["seconds"])
        longest = f"; waited longest for node {held['node']}: {seconds}, {held['waits']} of {time_use['waits']} waits"
    yield "where the time went", ", ".join(shares) + longest


def _bytes_line(traffic: dict) -> str:
    if traffic["payload"] is None:
        return formats.bytes_text(traffic["total"])
    names = ["payload", "header", "wasted", *(["in_flight"] if traffic.get("in_flight") else [])]
    parts = ", ".join(f"{name.replace('_', ' ')} {formats.bytes_text(traffic[name])}" for name in names)
    return f"{formats.bytes_text(traffic['total'])} ({parts})"


def _target_lines(target: dict, judged_by: Metric) -> Iterator[Line]:
    if target[judged_by.name] is None:
        return
    name = f"target {judged_by.text(target[judged_by.name])}{' %' if judged_by.share else ''}"
    if target["reached"]:
        between = target["interpolated"]
        yield f"{name}, first evaluation", f"round {target['round']}, {costs_text(target)}"
        yield "  interpolated", f"round {between['round']:.1f}, {costs_text(between)}"
    else:
        yield name, "not reached"


def _energy_lines(summary: dict) -> Iterator[Line]:
    found = summary.get("energy")
    if found is None or found["joules"] is None:
        return
    parts = [f"{title} {formats.joules_text(found[name])}" for name, title in PURPOSES.items() if found.get(name)]
    yield "energy", formats.joules_text(found["joules"]) + (f" ({', '.join(parts)})" if parts else "")
    if found.get("node_mean") is not None:
        most = "" if found["node_max"] is None else f", at most {formats.joules_text(found['node_max'])}"
        yield "energy per node", f"mean {formats.joules_text(found['node_mean'])}{most}"
    if found["gco2"] is not None:
        yield "emissions", f"{formats.grams_text(found['gco2'])} CO2e"


def _privacy_lines(privacy: dict | None) -> Iterator[Line]:
    if privacy is None:
        return
    unit = {"message": "a node's data, against all others", "dp_sgd": "a sample"}[privacy["kind"]]
    spent = privacy["epsilon"]
    if spent["max"] is None:
        lost = not privacy["noise_multiplier"] or spent.get("unprotected")
        yield "privacy", "no guarantee" if lost else "not evaluated"
        return
    without = f"; {spent['unprotected']} nodes sent without noise: no guarantee" if spent.get("unprotected") else ""
    most, mean = formats.number_text(spent["max"], 2), formats.number_text(spent["mean"], 2)
    yield "privacy", f"epsilon at most {most} (mean {mean}) at delta {privacy['delta']:g}, of {unit}{without}"


def _secure_lines(secure: dict | None) -> Iterator[Line]:
    if secure is not None:
        failed = f", {secure['failed']:,} below the threshold" if secure["failed"] else ""
        yield "secure aggregation", f"{secure['sums']:,} sums{failed}, {secure['dropouts']:,} inputs dropped out"


def costs_text(costs: dict) -> str:
    """Return bytes and time, and joules and emissions if they were counted."""
    texts = [formats.bytes_text(costs["bytes"]), formats.seconds_text(costs["sim_time_s"])]
    if "joules" in costs:
        texts.append(formats.joules_text(costs["joules"]))
    if "epsilon" in costs:
        texts.append(f"epsilon {formats.number_text(costs['epsilon'], 2)}")
    if "gco2" in costs:
        texts.append(f"{formats.grams_text(costs['gco2'])} CO2e")
    return ", ".join(texts)


def settlement_text(settlement: dict) -> str:
    """Return one line on the heads of the clusters, and the round since which they are settled."""
    since = f"settled at round {settlement['settled_round']}" if settlement["settled"] else "still changing"
    if len(settlement["heads"]) == 1:
        return f"head {settlement['heads'][0]} of {100 * settlement['agreement']:.0f} % of the nodes; {since}"
    chosen = ", ".join(f"cluster {cluster} -> {head}" for cluster, head in enumerate(settlement["heads"]))
    apart = "clusters apart" if settlement["apart"] else "clusters share a head"
    return f"{chosen}; {apart}; {100 * settlement['agreement']:.0f} % agree with their cluster; {since}"


MOST_SHORT = 8
"""Rows of the short summary, which docs/start.md explains."""


def short_rows(summary: dict) -> list[Line]:
    """Return the rows for a first look: run, quality of all nodes and clusters, costs, target and self-checks."""
    head = f"{Metric(**summary['judged_by']).head}, "
    costs = ("bytes sent", "compute utilization", "simulated time", "target")
    starts = ("scenario", head, "nodes that completed the last round", *costs, "self-checks")
    found = [(name, value) for name, value in rows(summary) if name.startswith(starts)]
    clusters = [row for row in found if row[0].startswith(f"{head}cluster")]
    surplus = clusters[len(clusters) - max(0, len(found) - MOST_SHORT) :]
    return [row for row in found if row not in surplus][:MOST_SHORT]


def table(summary: dict, short: bool = False) -> str:
    """A run's summary for the console, from `summarize`: warnings, and aligned names and values."""
    loud = [f"!! {line}" for line in loud_lines(summary)]
    shown = short_rows(summary) if short else list(rows(summary))
    return formats.printable("\n".join([*loud, formats.columns([], shown, left=2)]))

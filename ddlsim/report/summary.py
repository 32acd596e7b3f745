"""Summary of one run in one dictionary (summary.json), from records alone."""

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from ddlsim.devices.energy import grams
from ddlsim.foundation.errors import DdlsimError
from ddlsim.report.language_models import language_model_use
from ddlsim.report.reading import find_runs, read
from ddlsim.report.record_files import CAUSES, KINDS, damage_of, emitted, read_time_use, time_summary
from ddlsim.report.records import Evaluations, Records
from ddlsim.report.text import sampled_text
from ddlsim.tasks import metrics

SCHEMA_VERSION = 1
COPIED = (
    *("stopped", "scenario", "algorithm", "rounds", "seed", "device", "step_times"),
    *("wall_s", "checks", "peak_rss_mib"),
)
"""Entries of the manifest that are in the summary as they are; None if missing."""
PROFILED = ("profile", "device_seconds", "waves", "paths", "fallback_counts")  # reported by --profile
FAIRNESS = ("fair_accuracy", "demographic_parity", "equalized_odds")


def summarize(run_dir: str | Path) -> dict:
    """Return the results of a run at its last complete evaluation, as plain numbers, strings, lists and dictionaries.

    Accuracies are fractions, 0 to 1. Other tasks have their own metric instead of `accuracy` (`mse`, `perplexity`,
    ...): `metric` names it, `judged_by` describes it; without classes fairness is not defined. A value that the run has
    not (yet) recorded is None. For a run under attack, `honest` and `attacked` have the figures of these nodes
    separately. The target is judged on the metric over all honest nodes: `round`, `bytes` and `sim_time_s` belong to
    the first evaluation that reaches it (an exchange after the last round does not count), `interpolated` to the point
    at which the straight line from the evaluation before reaches it.

    Raises:
        ScenarioError: if the directory is not a run.
    """
    return summary_of(read(run_dir))


def summary_of(records: Records) -> dict:
    """`summarize` of records that have been read already; computed on the first call with them."""
    known = vars(records)  # like a cached property, which Records cannot have: its module does not import this one
    if "summary" not in known:
        known["summary"] = _summary(records)
    return known["summary"]


def _summary(records: Records) -> dict:
    manifest, evaluations = records.manifest, records.evaluations
    data = manifest.get("data") or {}
    return _plain(
        {
            "schema_version": SCHEMA_VERSION,
            "status": records.status,
            **{name: manifest.get(name) for name in COPIED},
            "nodes": records.num_nodes,
            "cluster_sizes": np.bincount(records.node_cluster),
            "evaluated_round": evaluations.round[-1] if len(evaluations) else None,
            "as_published": manifest.get("as_published") or [],
            "estimated": _estimated(records),
            "data": {"name": data.get("name"), "fallback": bool(data.get("fallback", False))},
            "task": records.manifest.get("task", "classification"),
            "metric": records.metric,
            "judged_by": records.judged_by.plain(),
            "also_measured": [metric.plain() for metric in records.also_measured],
            **_quality(records),
            **_honest_and_attacked(records),
            "timetable": _timetable(records),
            "bytes": _bytes(records),
            "links": None if records.links is None else records.links.summary(),
            "time_use": time_summary(read_time_use(records.directory), records.num_nodes),
            **{name: part(records) for name, part in OPTIONAL.items() if records.scenario.get(name)},
            **({} if (use := language_model_use(records)) is None else {"language_model": use}),
            "sim_time_s": max((rows.time_s.max() for rows in records.rows.values()), default=None),
            "target": _target(records),
            **_final_exchange(records),
            "settlement": _settlement(records),
            "cut_off": len(records.rows.get("cut_off", ())),
            "diverged": _diverged(records),
            "labels": [*(manifest.get("labels") or []), *_warnings(records)],
            **{name: manifest[name] for name in PROFILED if name in manifest},
        }
    )


def read_all(paths: Iterable[str | Path], on_damaged: Callable[[DdlsimError], None] | None = None) -> Iterator[Records]:
    """Every run named by paths (see `find_runs`) that can be read and summarized.

    Args:
        paths: run directories, or folders with runs below them.
        on_damaged: takes the error of a run that cannot be read, which is then left out; by default it is raised.
    """
    for path in find_runs(paths):
        with left_out_if_damaged(path, on_damaged):
            records = read(path)
            summary_of(records)
            yield records


@contextmanager
def left_out_if_damaged(path: Path, on_damaged: Callable[[DdlsimError], None] | None) -> Iterator[None]:
    """Pass the error of damaged records to `on_damaged`; None: raise it."""
    try:
        with damage_of(path):
            yield
    except DdlsimError as error:
        if on_damaged is None:
            raise
        on_damaged(error)


def _honest_and_attacked(records: Records) -> dict:
    """Return separate figures of honest and of attacked nodes; empty if all are honest."""
    attacked = records.attacked
    if not attacked.any():
        return {}
    return {
        name: {"nodes": np.flatnonzero(nodes), **_quality(records, nodes), **_backdoor(records, nodes)}
        for name, nodes in (("honest", ~attacked), ("attacked", attacked))
    } | {"attacks": records.manifest["attacks"]}


def _backdoor(records: Records, nodes: np.ndarray) -> dict:
    """Return the success rate of the backdoor at these nodes; empty without a backdoor."""
    found = _last(records, "backdoor_success", nodes)
    return {} if found is None else {"backdoor_success": _over(found, records)}


def _last(records: Records, name: str, nodes: np.ndarray | None) -> np.ndarray | None:
    """Return a metric's values at the last evaluation, nan for all but these nodes (None: of all); None without any."""
    values = records.evaluations.values.get(name)
    if values is None or not len(values):
        return None
    return values[-1] if nodes is None else np.where(nodes, values[-1][: len(nodes)], np.nan)


def _quality(records: Records, nodes: np.ndarray | None = None) -> dict:
    """Figures of the last evaluation, of some nodes (bool [N]); None: of all."""
    names = [metric.name for metric in (records.judged_by, *records.also_measured)]
    quality = {name: _over(_last(records, name, nodes), records) for name in names}
    if records.has_classes:
        quality |= _fairness(records, nodes)
    peeked = f"{records.metric}_lowest_test_loss"
    if peeked in records.evaluations.values:
        quality[peeked] = _over(_last(records, peeked, nodes), records)
    return quality


def _over(values: np.ndarray | None, records: Records) -> dict:
    """Return mean and population standard deviation of one value per node, over all nodes and over each cluster."""
    if values is None:
        return {"all": None, "std": None, "clusters": None, "clusters_std": None}
    clusters = metrics.over_clusters(values, records.node_cluster)
    known = values[~np.isnan(values)]
    with np.errstate(invalid="ignore"):  # a diverged run
        std = float(known.std()) if len(known) else None
        squares = (values - clusters[records.node_cluster]) ** 2
    of_clusters = np.sqrt(metrics.over_clusters(squares, records.node_cluster))
    return {"all": metrics.over_nodes(values), "std": std, "clusters": clusters, "clusters_std": of_clusters}


def _fairness(records: Records, nodes: np.ndarray | None = None) -> dict:
    """Return the fairness between the clusters that have any of these nodes (bool [N]; None: all nodes)."""
    evaluations, clusters = records.evaluations, records.node_cluster
    if not len(evaluations) or not records.has_clusters or (nodes is not None and not nodes.any()):
        return dict.fromkeys(FAIRNESS)
    accuracy, fair = _last(records, "accuracy", nodes), None
    if accuracy is not None:
        of_clusters = metrics.over_clusters(accuracy, clusters)
        if nodes is not None:
            of_clusters = of_clusters[np.unique(clusters[nodes])]
        fair = metrics.fair_accuracy(of_clusters, records.fair_lambda)
    confusion = records.confusion
    if confusion is not None and nodes is not None:
        confusion, clusters = confusion[nodes], np.unique(clusters[nodes], return_inverse=True)[1]
    rules = (metrics.demographic_parity, metrics.equalized_odds)
    parity, odds = (None if confusion is None else rule(confusion, clusters) for rule in rules)
    return {"fair_accuracy": fair, "demographic_parity": parity, "equalized_odds": odds}


def _timetable(records: Records) -> list[dict] | None:
    """Return the times at which the first, the median and the last node completed each round, if no node learns."""
    columns = records.timetable
    if columns is None:
        return None
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _bytes(records: Records) -> dict:
    traffic = records.communication
    if traffic is None:  # a run that has not ended: only the nodes' counters are known
        sent = records.evaluations.bytes_sent
        return {"total": sent[-1] if len(sent) else None, **dict.fromkeys(("payload", "header", "wasted", "in_flight"))}
    parts = {name: int(getattr(traffic, name).sum()) for name in ("payload", "header", "wasted", "in_flight")}
    links = records.links
    causes = {} if links is None else {"of_use": links.bytes_of(*KINDS), "wasted_for": links.bytes_of(*CAUSES)}
    return {"total": sum(parts.values()), **parts, **causes}


def _energy(records: Records) -> dict:
    """Joules of the whole run by purpose; of a run that has not ended those at the last evaluation."""
    grid = records.gco2_per_kwh
    if records.energy is not None:
        return records.energy.summary(records.node_cluster, grid)
    spent = records.evaluations.joules
    joules = float(spent[-1]) if spent is not None and len(spent) else None
    return {"joules": joules, "gco2": emitted(joules, grid)}


def _privacy(records: Records) -> dict:
    """Return the privacy guarantee, and the nodes' largest and mean epsilon at the last evaluation.

    `unprotected` are nodes without epsilon, since they sent without noise.
    """
    rule = {name: records.scenario["privacy"].get(name) for name in ("kind", "noise_multiplier", "delta", "accountant")}
    if not len(records.evaluations):
        return {**rule, "epsilon": {"mean": None, "max": None, "unprotected": 0}}
    nothing = np.full((1, records.num_nodes), np.nan)
    spent = records.evaluations.values.get("epsilon", nothing)[-1][: records.num_nodes]
    unprotected = int(np.isnan(spent).sum())
    some = unprotected < records.num_nodes
    mean, most = (metrics.over_nodes(spent), float(np.nanmax(spent))) if some else (None, None)
    return {**rule, "epsilon": {"mean": mean, "max": most, "unprotected": unprotected}}


def _secure(records: Records) -> dict:
    """Return the number of secure sums, of sums that failed, and of lost inputs."""
    settings = records.scenario["secure_aggregation"]
    rows, names = records.rows, ("secure_sum", "secure_dropouts")
    inputs, dropouts = (rows[name].value if name in rows else np.zeros(0) for name in names)
    rule = {name: settings.get(name) for name in ("protocol", "threshold", "value_bits")}
    sums = int((inputs > 0).sum())
    return {**rule, "sums": sums, "failed": len(inputs) - sums, "dropouts": int(dropouts.sum())}


OPTIONAL = {"energy": _energy, "privacy": _privacy, "secure_aggregation": _secure}
"""Sections of a scenario -> their part of the summary."""


def costs_of(records: Records, evaluations: Evaluations | None = None) -> dict[str, np.ndarray]:
    """Return rounds, bytes, simulated time, and joules, emissions and epsilon if counted, at each evaluation, [E].

    Args:
        records: of the run.
        evaluations: some of it; None for its curve.
    """
    evaluations = records.curve if evaluations is None else evaluations
    costs = {"round": evaluations.round, "bytes": evaluations.bytes_sent, "sim_time_s": evaluations.time_s}
    if evaluations.joules is not None:
        costs["joules"] = evaluations.joules
        if records.gco2_per_kwh is not None:
            costs["gco2"] = np.asarray(grams(evaluations.joules, records.gco2_per_kwh))
    if evaluations.epsilon is not None:
        costs["epsilon"] = evaluations.epsilon
    return costs


def _target(records: Records) -> dict:
    target, metric, evaluations, costs = records.target, records.metric, records.curve, costs_of(records)
    if target is None or not len(evaluations):
        nothing = dict.fromkeys(costs)
        return {metric: target, "reached": None, **nothing, "interpolated": nothing}
    curve = metrics.over_nodes(evaluations.quality)
    falling = records.judged_by.falling
    first = metrics.first_reaching(curve, target, falling)
    between = {name: metrics.interpolated_cost_to_target(curve, cost, target, falling) for name, cost in costs.items()}
    return {
        metric: target,
        "reached": first is not None,
        **{name: None if first is None else cost[first] for name, cost in costs.items()},
        "interpolated": between,
    }


def _estimated(records: Records) -> list[str]:
    """Return the estimated figures: seconds by a model's operations, joules by the power of such devices."""
    seconds = (records.manifest.get("step_times") or {}).get("source") == "estimated"
    return [*(["sim_time_s"] if seconds else []), *(["joules", "gco2"] if records.scenario.get("energy") else [])]


def _final_exchange(records: Records) -> dict:
    """Bytes of the exchange after the last round, and its change of the metric; empty without such an exchange."""
    every, before = records.evaluations, records.curve
    if len(before) == len(every):
        return {}
    gained = np.diff(metrics.over_nodes(every.quality[-2:]))[0]
    return {"final_exchange": {"bytes": every.bytes_sent[-1] - before.bytes_sent[-1], "gain": gained}}


def _settlement(records: Records) -> dict | None:
    """The heads of clusters, and the first evaluation from which on no node has changed its own in any round."""
    evaluated, chosen = records.heads(), records.head_choices()
    if evaluated is None or chosen is None:
        return None
    rounds, heads = chosen
    found = metrics.settlement(heads, records.node_cluster)
    since = None if found.settled_after is None else rounds[found.settled_after]
    later = evaluated[0][evaluated[0] >= since] if since is not None else np.zeros(0)
    return {
        "settled": since is not None,
        "settled_round": later[0] if len(later) else None,
        "heads": found.heads,
        "agreement": found.agreement,
        "apart": found.apart,
    }


def _diverged(records: Records) -> dict | None:
    """Nodes whose loss was not finite at an evaluation, and the completed rounds at the first such one; or None."""
    found = records.diverged
    return {"nodes": list(found), "round": min(found.values())} if found else None


def _warnings(records: Records) -> list[str]:
    """Return the warnings about the numbers that follow from the records."""
    found, part = records.lost_rows(), sampled(records)
    if part is not None:
        found.append(f"SAMPLED: {sampled_text([part])}")
    if empty := len(records.rows.get("empty", ())):
        rounds = records.scenario["rounds"]
        found.append(f"EMPTY: {empty} of {rounds} rounds had no node: all that were in them had left")
    if diverged := _diverged(records):
        nodes = diverged["nodes"]
        which = ", ".join(map(str, nodes[:10])) + (", ..." if len(nodes) > 10 else "")
        found.append(
            f"DIVERGED: the loss of {len(nodes)} of {records.num_nodes} nodes (node {which}) is not a finite number, "
            f"first at the evaluation after round {diverged['round']}"
        )
    return found


def sampled(records: Records) -> tuple[int, int, float | None] | None:
    """Return the samples that nodes were tested on, those of a test set, and the half width of the 95 % confidence
    interval of a node's last accuracy (None if it is not defined); None if all samples were used (evaluation.samples).
    """
    tested = (records.manifest.get("data") or {}).get("tested") or ()
    taken = [pair for pair in tested if pair[0] < pair[1]]
    if not taken:
        return None
    few, total = min(taken)
    accuracy = records.evaluations.values.get("accuracy")
    if accuracy is None or not len(accuracy) or few < 2:
        return few, total, None
    return few, total, float(np.nanmax([metrics.sampling_error(accuracy[-1], *pair) for pair in taken]))


def _plain(value: Any) -> Any:
    """Return the value in JSON's types; nan becomes None."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, np.ndarray | np.generic):
        return _plain(value.tolist())
    return None if isinstance(value, float) and math.isnan(value) else value


def honest_part(summary: dict) -> dict:
    """Return the figures of honest nodes: a part of the summary for a run under attack, else the whole."""
    return summary.get("honest") or summary


def quality(summary: dict) -> dict[str, float | None]:
    """Return a summary's accuracies and fairness by flat names: accuracy_all, accuracy_0, ..., fair_accuracy, ...; for
    other tasks mse_all, mse_0, ... or the judging metric. For a run under attack these are the values of honest nodes.
    """
    metric, of = summary["metric"], honest_part(summary)
    clusters = {f"{metric}_{c}": value for c, value in enumerate(of[metric]["clusters"] or [])}
    if len(summary["cluster_sizes"]) < 2:
        return {f"{metric}_all": of[metric]["all"]}
    fairness = {name: of[name] for name in FAIRNESS if name in of}
    return {f"{metric}_all": of[metric]["all"], **clusters, **fairness}

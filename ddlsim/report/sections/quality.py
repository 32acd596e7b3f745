"""Sections on quality: of each cluster over rounds, time and bytes, fairness, and of every node."""

from collections.abc import Iterator

import numpy as np

from ddlsim.report.published import published
from ddlsim.report.records import Records
from ddlsim.report.section import Axis, Frame, Lines, Mark, Section, Series, Table, Unit
from ddlsim.report.sections import tables
from ddlsim.report.sections.about import axes, blocks_of, cluster_name, cluster_series
from ddlsim.report.summary import honest_part
from ddlsim.report.summary import quality as flat_quality
from ddlsim.report.text import number_text, percent_text
from ddlsim.tasks import metrics
from ddlsim.tasks.base import CONSENSUS, KNOWN, TRAIN_LOSS

GROUP = "Learning"
FRAMES: dict[str, tuple[str, Unit]] = {
    "test_loss": ("test loss", "number"),
    TRAIN_LOSS: ("training loss", "number"),
    CONSENSUS: ("distance to the average model", "number"),
    "bytes_sent": ("bytes sent", "bytes"),
    "joules": ("energy", "joules"),
    "epsilon": ("epsilon", "number"),
}


def quality_sections(records: Records, summary: dict) -> Iterator[Section]:
    """Yield the sections, as far as the run was evaluated."""
    if len(records.evaluations):
        yield over_rounds(records)
        for part in (training_loss, fairness, consensus):
            yield from part(records)
        yield nodes(records)
    if summary["timetable"]:
        yield timetable(summary["timetable"])
    yield from published_numbers(records, summary)


def over_rounds(records: Records) -> Section:
    """Each cluster's mean with the range of its nodes, and the mean over all nodes."""
    evaluations, metric, judged_by = records.curve, records.metric, records.judged_by
    sizes = np.bincount(records.node_cluster)
    series = []
    for cluster, curve in enumerate(metrics.over_clusters(evaluations.quality, records.node_cluster).T):
        of_cluster = evaluations.quality[:, records.node_cluster == cluster]
        low, high = _extent(of_cluster) if of_cluster.shape[1] > 1 else (None, None)
        series.append(Series(cluster_name(cluster, sizes), curve, cluster, low, high, dash=cluster))
    if len(sizes) > 1:
        series.append(Series(records.judged_nodes, metrics.over_nodes(evaluations.quality), -1, thin=True))
    target = records.target
    marks = [] if target is None else [Mark("target", target)]
    fallback = (records.manifest.get("data") or {}).get("fallback")
    numbers = {} if fallback else published(records.scenario)
    for name, value in numbers.items():
        place = name.removeprefix(f"{metric}_")
        if name.startswith(f"{metric}_") and (place == "all" or place.isdigit()):
            which = "all nodes" if place == "all" else f"cluster {place}"
            marks.append(Mark(f"published, {which}", value, -1 if place == "all" else int(place)))
    what = judged_by.words[:1].upper() + judged_by.words[1:]
    bands = "; bands reach from the lowest to the highest node" if any(sizes > 1) else ""
    whose = records.judged_nodes
    if records.has_clusters:
        bands, whose = bands and f"{bands} of a cluster", f"a cluster's {whose.removeprefix('all ')}"
    log = judged_by.falling and bool((evaluations.quality[np.isfinite(evaluations.quality)] > 0).all())
    figure = Lines(axes(records), judged_by.words, series, judged_by.unit, marks, log=log)
    title = f"{what} of each cluster" if records.has_clusters else what
    about = f"Mean over {whose} on their own test data{bands}."
    return Section("quality", title, GROUP, about, tables.curve(records, target), figure)


def training_loss(records: Records) -> Iterator[Section]:
    """Each cluster's mean training loss in every round."""
    rows = records.rows.get(TRAIN_LOSS)
    if rows is None:
        return
    rounds, index = np.unique(rows.round, return_inverse=True)
    values, time_s = np.full((len(rounds), records.num_nodes), np.nan), np.zeros(len(rounds))
    values[index, rows.node] = rows.value
    np.maximum.at(time_s, index, rows.time_s)
    values[:, records.attacked] = np.nan
    clusters = metrics.over_clusters(values, records.node_cluster).T
    series = cluster_series(records, list(clusters))
    figure = Lines([Axis("round", rounds), Axis("simulated time", time_s, "seconds")], "loss", series)
    about = f"Mean over {records.judged_nodes} of a cluster and over the local steps of each round."
    yield Section("training-loss", "Training loss", GROUP, about, figure=figure)


def consensus(records: Records) -> Iterator[Section]:
    """The mean squared distance of the nodes' models to their average."""
    values = records.curve.values.get(CONSENSUS)
    if values is None:
        return
    series = [Series(records.judged_nodes, metrics.over_nodes(values), 0)]
    about = "Mean squared distance of the tested models to their average; of models in parts, that of their cores."
    figure = Lines(axes(records), "squared distance", series, from_zero=True)
    yield Section("consensus", "Consensus distance", GROUP, about, figure=figure)


def fairness(records: Records) -> Iterator[Section]:
    """Fair accuracy over rounds, and the gap between the best and the worst cluster."""
    evaluations = records.curve
    if records.metric != "accuracy" or records.node_cluster.max() == 0:
        return
    fair_lambda = records.fair_lambda
    per_cluster = metrics.over_clusters(evaluations.quality, records.node_cluster)[:, records.judged_clusters]
    series = [
        Series("fair accuracy", metrics.fair_accuracy(per_cluster, fair_lambda), 0),
        Series("gap, best to worst cluster", np.ptp(per_cluster, axis=1), 1, dash=1),
    ]
    shares = f"{fair_lambda:.3g} × mean accuracy of the clusters + {1 - fair_lambda:.3g} × (1 − gap)"
    about = f"Fair accuracy = {shares}; higher is better. The gap lies between the best and the worst cluster."
    if records.fairness is not None:
        names = (("demographic parity", 2, 2), ("equalized odds", 3, 3))
        for (name, color, dash), values in zip(names, records.fairness, strict=True):
            series.append(Series(f"{name} (0 is fair)", values, color, dash=dash))
        about += " Demographic parity and equalized odds are differences between clusters, from confusion matrices."
    yield Section("fairness", "Fairness", GROUP, about, figure=Lines(axes(records), "", series, "percent"))


def nodes(records: Records) -> Section:
    """Every node at every evaluation as a heat map."""
    evaluations, blocks = records.curve, blocks_of(records.node_cluster)
    frames = []
    judged = [records.judged_by, *records.also_measured]
    shown = {metric.name: (metric.words, metric.unit) for metric in judged} | FRAMES
    for name, (label, unit) in shown.items():
        values = evaluations.values.get(name)
        if values is not None:
            of_nodes = np.where(np.isfinite(values), values, np.nan)[:, : records.num_nodes]
            frames.append(Frame(label, blocks.means(of_nodes).T, unit))
    figure = blocks.heat(frames, [str(completed) for completed in evaluations.round], "round", frame_title="show")
    attacked = ", ".join(map(str, np.flatnonzero(records.attacked)))
    about = "One row per node, one column per evaluation; lines divide clusters."
    about += f" Attacked: {attacked}." if attacked else ""
    return Section("nodes", "Every node over rounds", GROUP, about, figure=figure, notes=blocks.notes)


def timetable(rounds: list[dict]) -> Section:
    """Times at which the first, the median and the last node of a network-only run had completed each round."""
    series = [
        Series(f"{name} node", np.array([row[f"{name}_s"] for row in rounds], dtype=float), color)
        for color, name in enumerate(("first", "median", "last"))
    ]
    axis = Axis("round", np.array([row["round"] for row in rounds]))
    figure = Lines([axis], "simulated time", series, "seconds")
    about = "Simulated time at which nodes completed rounds."
    return Section("timetable", "Completion of rounds", GROUP, about, tables.timetable(rounds), figure)


def published_numbers(records: Records, summary: dict) -> Iterator[Section]:
    """Published and measured numbers in one table; none if the scenario has no published ones."""
    ours = _other_metrics(summary) | flat_quality(summary)
    rows = []
    for name, value in published(records.scenario).items():
        measured = ours.get(name)
        metric = KNOWN.get(name.rpartition("_")[0])
        share = metric.share if metric else "accuracy" in name
        as_text, points, digits = (percent_text, 100, 2) if share else (number_text, 1, 4)
        difference = "-" if measured is None else f"{points * (measured - value):+z.{digits}f}"
        rows.append([name + (" %" if points == 100 else ""), as_text(value), as_text(measured), difference])
    if not rows:
        return
    paper = records.scenario["paper"]
    source = paper.get("source", "published")
    notes = [f"published: {paper['note']}"] if paper.get("note") else []
    if summary["data"]["fallback"]:
        notes.append(f"!! ours is on fallback data ({summary['data']['name']}): the columns are not comparable")
    title = f"Published numbers ({source}) and ours"
    table = Table(["", "published", "ours", "difference"], rows, title=title)
    yield Section("published", "Published numbers and ours", GROUP, f"Published: {source}.", table, notes=notes)


def _other_metrics(summary: dict) -> dict[str, float | None]:
    """Return the metrics other than the judging one, under the names of published numbers."""
    of, found = honest_part(summary), {}
    for name in KNOWN:
        if name != summary["metric"] and isinstance(of.get(name), dict):
            found[f"{name}_all"] = of[name]["all"]
            found |= {f"{name}_{cluster}": value for cluster, value in enumerate(of[name].get("clusters") or [])}
    return found


def _extent(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Least and largest known value of each row, [E, N] -> [E], [E]; nan where none is known."""
    known = np.isfinite(values)
    low, high = np.where(known, values, np.inf).min(1), np.where(known, values, -np.inf).max(1)
    return np.where(known.any(1), low, np.nan), np.where(known.any(1), high, np.nan)

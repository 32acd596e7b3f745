"""What the nodes spent in joules: by cluster and purpose, and over the evaluations."""

import numpy as np

from ddlsim.energy.joules import PARTS
from ddlsim.report.energy_table import TITLES, table_rows
from ddlsim.report.records import Records
from ddlsim.report.section import Axis, Bars, Lines, Section, Series, Table
from ddlsim.report.sections.layout import cluster_name

GROUP = "Energy"


def energy_sections(records: Records) -> list[Section]:
    """The sections, as far as energy was counted."""
    found = [over_time(records), by_purpose(records)]
    return [section for section in found if section is not None]


def over_time(records: Records) -> Section | None:
    """Joules per node of each cluster over rounds and simulated time."""
    evaluations = records.curve
    recorded = evaluations.values.get("joules")
    if recorded is None or not len(evaluations):
        return None
    clusters, sizes = records.node_cluster, np.bincount(records.node_cluster)
    series = [
        Series(cluster_name(cluster, sizes), recorded[:, : len(clusters)][:, clusters == cluster].mean(1), cluster)
        for cluster in range(len(sizes))
    ]
    axes = [Axis("round", evaluations.round), Axis("simulated time", evaluations.time_s, "seconds")]
    about = "Joules spent since the start, mean over a cluster's nodes; see docs/energy.md for what is counted."
    return Section("energy-rounds", "Energy per node", GROUP, about, figure=Lines(axes, "energy", series, "joules"))


def by_purpose(records: Records) -> Section | None:
    """What joules were spent on, per cluster and of a server."""
    energy, clusters = records.energy, records.node_cluster
    if energy is None:
        return None
    about = "Of the whole run, aborted trainings and wasted bytes included."
    if not energy.by_node:
        values = np.array([[energy.values[name].sum() for name in PARTS]])
        figure = Bars(["all nodes"], list(TITLES.values()), values, "joules")
        return Section("energy", "Energy by purpose", GROUP, about, figure=figure)
    rows = table_rows(energy, clusters)
    groups = [np.flatnonzero(clusters == cluster) for cluster in range(int(clusters.max()) + 1)]
    if len(energy.joules) > len(clusters):
        groups.append(np.array([len(clusters)]))
    values = np.array([[energy.values[name][nodes].mean() for name in PARTS] for nodes in groups])
    header = ["per node", "computing", "idle", *(f"{title} J" for title in TITLES.values()), "all J"]
    table = Table(header, rows, title="Energy per node, mean over a cluster")
    figure = Bars([row[0] for row in rows], list(TITLES.values()), values, "joules")
    return Section("energy", "Energy by purpose", GROUP, f"Mean over the nodes of a cluster. {about}", table, figure)

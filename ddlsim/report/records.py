"""Records of a run as numpy arrays: measurements with their times and nodes, and traffic."""

import shlex
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from ddlsim.devices.energy import KINDS as ENERGY_PRESETS
from ddlsim.report.record_files import Contacts, Energy, Links, torn_line
from ddlsim.tasks import metrics
from ddlsim.tasks.base import CONSENSUS, TRAIN_LOSS, VALIDATION, VALIDATION_LOSS, Metric, loss_rows, metric_of


@dataclass(frozen=True)
class Rows:
    """All rows of one metric in the order of recording; `node` is -1 if a row belongs to no node."""

    time_s: np.ndarray  # float [R], simulated
    node: np.ndarray  # int [R]
    round: np.ndarray  # int [R], rounds completed
    value: np.ndarray  # float [R]

    def __len__(self) -> int:
        return len(self.value)


@dataclass(frozen=True)
class Communication:
    """Traffic per ordered pair of nodes that exchanged any, all arrays [pairs]; or its sums alone, as one entry.

    `payload` and `header` are bytes of messages that were used, `wasted` bytes of other messages, `in_flight` bytes of
    messages that had not arrived when the run ended.
    """

    src: np.ndarray
    dst: np.ndarray
    messages: np.ndarray
    payload: np.ndarray
    header: np.ndarray
    wasted: np.ndarray
    in_flight: np.ndarray
    num_pairs: int  # pairs with traffic

    @property
    def by_pair(self) -> bool:
        """Whether traffic is known per pair of nodes."""
        return self.num_pairs == len(self.src) and -1 not in self.src[:1]

    @property
    def on_the_wire(self) -> np.ndarray:
        """All bytes, [pairs]."""
        return self.payload + self.header + self.wasted + self.in_flight


@dataclass(frozen=True)
class Evaluations:
    """The evaluations of a run, E of them, of N nodes; nan if a node was not evaluated.

    An evaluation's time is the time of its last node; its bytes are the sum of the nodes' counts.
    """

    round: np.ndarray  # int [E], rounds completed
    time_s: np.ndarray  # float [E], simulated
    values: dict[str, np.ndarray]  # metric -> float [E, N]
    metric: str = "accuracy"  # metric by which the nodes are judged
    attacked: tuple[int, ...] = ()  # nodes that attack the others

    def __len__(self) -> int:
        return len(self.round)

    @property
    def quality(self) -> np.ndarray:
        """The judging metric per evaluation and honest node, [E, N], nan for the others; accuracies 0 to 1."""
        return self.honest(self.metric)

    def honest(self, name: str) -> np.ndarray:
        """Values of a metric of honest nodes, [E, N], nan for the others."""
        return metrics.without(self.values[name], self.attacked)

    @property
    def bytes_sent(self) -> np.ndarray:
        """Bytes that all nodes together had sent at the completion of the round, [E]; nan if not recorded."""
        recorded = self.values.get("bytes_sent")
        if recorded is None:
            return np.full(len(self), np.nan)
        # The counters only grow: a node that was not evaluated keeps its last count.
        return np.maximum.accumulate(np.nan_to_num(recorded), axis=0).sum(1)

    @property
    def epsilon(self) -> np.ndarray | None:
        """The largest epsilon of the nodes at each evaluation, [E]; nan where no node has one; None: there never was a
        guarantee.
        """
        recorded = self.values.get("epsilon")
        return None if recorded is None else np.fmax.reduce(recorded, axis=1)

    @property
    def joules(self) -> np.ndarray | None:
        """Joules that all nodes together had spent at each evaluation, [E]; None if not counted."""
        recorded = self.values.get("joules")
        return None if recorded is None else np.maximum.accumulate(np.nan_to_num(recorded), axis=0).sum(1)


@dataclass(frozen=True)
class Records:
    """One run: its directory, manifest, resolved scenario, metric rows and traffic."""

    directory: Path
    manifest: dict
    scenario: dict
    rows: dict[str, Rows]
    communication: Communication | None  # None if not written (yet)
    links: Links | None  # None if not written (yet)
    contacts: Contacts | None  # None if not written (yet)
    confusions: list = field(repr=False)  # (round, node, int [C, C]): the two newest of every node
    parities: dict[int, tuple[float, float]] = field(default_factory=dict)  # round -> see `fairness`
    learns_graph: bool = False  # whether nodes recorded rows `collaboration`
    energy: Energy | None = None  # None if not counted or not written (yet)

    @property
    def node_cluster(self) -> np.ndarray:
        """The cluster of each node, int [N]."""
        return np.asarray(self.manifest["node_cluster"], dtype=int)

    @property
    def has_clusters(self) -> bool:
        """Whether there are several clusters that can be compared."""
        return int(self.node_cluster.max()) > 0

    def cluster_label(self, cluster: int) -> str:
        """Return a cluster's name in figures and tables; with one cluster, a name for all nodes."""
        return f"cluster {cluster}" if self.has_clusters else "all nodes"

    @property
    def attacked(self) -> np.ndarray:
        """Mask of the attacking nodes, bool [N]."""
        found = np.zeros(len(self.node_cluster), dtype=bool)
        for attack in self.manifest.get("attacks") or ():
            found[attack["nodes"]] = True
        return found

    @property
    def judged_clusters(self) -> np.ndarray:
        """The clusters that have an honest node, over which fairness is defined, int [at most K]."""
        return metrics.clusters_with_honest_nodes(self.node_cluster, np.flatnonzero(self.attacked).tolist())

    @property
    def judged_nodes(self) -> str:
        """The nodes of curves, targets and comparisons, in words."""
        return "honest nodes" if self.attacked.any() else "all nodes"

    @property
    def num_nodes(self) -> int:
        """Number of nodes, N, without a server."""
        return len(self.node_cluster)

    @property
    def group_of(self) -> dict[str, np.ndarray]:
        """The groups of nodes in the traffic by name, as node ids: clusters, then a server if there is one."""
        assert self.communication is not None
        clusters = range(self.node_cluster.max() + 1)
        groups = {self.cluster_label(cluster): np.flatnonzero(self.node_cluster == cluster) for cluster in clusters}
        traffic = self.communication
        if traffic.by_pair and len(traffic.src) and max(traffic.src.max(), traffic.dst.max()) >= self.num_nodes:
            groups["server"] = np.array([self.num_nodes])
        if self.attacked.any():
            bad = np.flatnonzero(self.attacked)
            groups = {**{name: nodes[~np.isin(nodes, bad)] for name, nodes in groups.items()}, "attacked": bad}
            groups = {name: nodes for name, nodes in groups.items() if len(nodes)}
        return groups

    @property
    def traffic_matrix(self) -> np.ndarray:
        """Bytes put on the wire from row to column, float [N, N], or [N + 1, N + 1] with a server."""
        assert self.communication is not None
        matrix = np.zeros((self.num_nodes + ("server" in self.group_of),) * 2)
        np.add.at(matrix, (self.communication.src, self.communication.dst), self.communication.on_the_wire)
        return matrix

    @property
    def timetable(self) -> dict[str, np.ndarray] | None:
        """Columns round, first_s, median_s, last_s and nodes of a network-only run; None of other runs."""
        if "round_last_s" not in self.rows:
            return None
        columns = {name: self.rows[f"round_{name}"].value for name in ("first_s", "median_s", "last_s", "nodes")}
        return {"round": self.rows["round_last_s"].round, **columns}

    @property
    def title(self) -> str:
        """Scenario, algorithm, seed, and the name of fallback data, for figures."""
        data = self.manifest.get("data") or {}
        fallback = f", FALLBACK DATA {data.get('name')}" if data.get("fallback") else ""
        about = (self.manifest.get(name) for name in ("scenario", "algorithm", "seed"))
        return "{}, {}, seed {}".format(*about) + fallback

    @property
    def command(self) -> str:
        """The command that began the run, quoted for a shell; empty if it was not recorded."""
        return shlex.join(map(str, self.manifest.get("command") or []))

    @property
    def status(self) -> str:
        """running, done, failed, interrupted or stopped."""
        return self.manifest.get("status", "unknown")

    @property
    def diverged(self) -> dict[int, int]:
        """Nodes whose loss was not a finite number, with the completed rounds at the first evaluation that found so."""
        found: dict[int, int] = {}
        names = loss_rows(self.judged_by, "test_loss" in self.rows)
        for rows in (self.rows[name] for name in names if name in self.rows):
            bad = ~np.isfinite(rows.value) & (rows.node >= 0)
            for node, completed in zip(rows.node[bad].tolist(), rows.round[bad].tolist(), strict=True):
                found[node] = min(completed, found.get(node, completed))
        return dict(sorted(found.items()))

    def lost_rows(self) -> list[str]:
        """A sentence on every file of a finished run that is not as long as it was then, or ends in a torn line."""
        if self.status == "running":
            return []
        written = self.manifest.get("files") or {}
        found = []
        for path in sorted(self.directory.glob("*.jsonl")):
            size, then = path.stat().st_size, written.get(path.name)
            torn = torn_line(path)
            if torn:
                found.append(f"{path.name}:{torn}: the last line is cut off; rows are lost")
            elif then is not None and size != then:
                what = "lost" if size < then else "added"
                found.append(f"{path.name} has {size} bytes, but {then} when the run ended; rows were {what} since")
        return found + [f"{name} is missing" for name in sorted(written) if not (self.directory / name).is_file()]

    @cached_property
    def judged_by(self) -> Metric:
        """The metric by which the nodes are judged."""
        return metric_of(self.manifest)

    @property
    def gco2_per_kwh(self) -> float | None:
        """Grams of CO2 equivalents per kWh of the grid; None if the scenario sets none."""
        energy = self.scenario.get("energy") or {}
        preset = ENERGY_PRESETS["grid"].get(energy.get("grid") or "")
        value = energy.get("gco2_per_kwh")
        return value if value is not None or preset is None else preset.values["gco2_per_kwh"]

    @property
    def metric(self) -> str:
        """Name of the judging metric: accuracy, mse, ..."""
        return self.judged_by.name

    @property
    def target(self) -> float | None:
        """The value of that metric whose cost is reported."""
        evaluation = self.scenario.get("evaluation") or {}
        value = evaluation.get(f"target_{self.metric}")
        return evaluation.get("target") if value is None else value

    @property
    def fair_lambda(self) -> float:
        """The weight of accuracy in fair accuracy, 0 to 1."""
        return (self.scenario.get("evaluation") or {}).get("fair_lambda", metrics.FAIR_LAMBDA)

    @cached_property
    def evaluations(self) -> Evaluations:
        """All complete evaluations, one per evaluated round; one that a crash cut short is left out. Those of a run
        that is done, or that a callback has stopped, are whole, though nodes that never joined are in none."""
        measured = self.rows.get(self.metric)
        nothing = np.zeros(0, dtype=int)
        none = Evaluations(nothing, nothing.astype(float), {}, self.metric)
        if measured is None:
            return none
        rounds, count = np.unique(measured.round, return_counts=True)
        if self.status not in ("done", "stopped") and count[-1] < self.num_nodes:
            rounds = rounds[:-1]
        if not len(rounds):
            return none
        measured_names = [metric.name for metric in (self.judged_by, *self.also_measured)]
        names = [*measured_names, *(f"{VALIDATION}{name}" for name in measured_names), VALIDATION_LOSS, "test_loss"]
        names += [TRAIN_LOSS, CONSENSUS, "bytes_sent", f"{self.metric}_lowest_test_loss"]
        names += ["joules", "epsilon", "backdoor_success"]
        values = {name: self._on_grid(self.rows[name], rounds) for name in names if name in self.rows}
        time_s = np.array([measured.time_s[measured.round == completed].max() for completed in rounds], dtype=float)
        return Evaluations(rounds, time_s, values, self.metric, tuple(np.flatnonzero(self.attacked).tolist()))

    @cached_property
    def curve(self) -> Evaluations:
        """The evaluations of rounds, without the one after a final exchange unless it is the only one."""
        found, rounds = self.evaluations, self.scenario.get("rounds")
        in_rounds = np.ones(len(found), dtype=bool) if rounds is None else found.round <= rounds
        if in_rounds.all() or not in_rounds.any():
            return found
        values = {name: of_nodes[in_rounds] for name, of_nodes in found.values.items()}
        return replace(found, round=found.round[in_rounds], time_s=found.time_s[in_rounds], values=values)

    @property
    def also_measured(self) -> list[Metric]:
        """The other metrics of evaluations."""
        return [metric_of({"metric": each}) for each in self.manifest.get("also_measured") or ()]

    @property
    def has_classes(self) -> bool:
        """Whether each sample has one class; fairness over classes is defined for several clusters."""
        return self.manifest.get("has_classes", self.metric == "accuracy")

    @cached_property
    def confusion(self) -> np.ndarray | None:
        """Counts of the last complete evaluation, int [N, C, C] (zeros where not evaluated), or None."""
        if not self.confusions or not len(self.evaluations):
            return None
        matrices = np.zeros((self.num_nodes, *self.confusions[0][2].shape), dtype=int)
        for completed, node, matrix in self.confusions:
            if completed == self.evaluations.round[-1]:
                matrices[node] = matrix
        return matrices

    @property
    def fairness(self) -> tuple[np.ndarray, np.ndarray] | None:
        """Demographic parity and equalized odds at each evaluation of `curve`, float [E] each, nan if a node has not
        written its confusion matrix; None if no evaluation has them.
        """
        found = np.array([self.parities.get(int(number), (np.nan, np.nan)) for number in self.curve.round])
        return (found[:, 0], found[:, 1]) if np.isfinite(found).any() else None

    def heads(self) -> tuple[np.ndarray, np.ndarray] | None:
        """Evaluations, as completed rounds [E], and the head each node had chosen by then, int [E, N]; or None.

        Evaluations before every node has chosen its first head are left out, and so is the one after a final exchange
        (before which no head is chosen again) unless it is the only one.
        """
        found = self.head_choices()
        if found is None:
            return None
        (rounds, chosen), evaluated = found, self.evaluations.round
        known = evaluated >= rounds[0]
        followed = known & (evaluated <= rounds[-1])
        taken = evaluated[followed if followed.any() else known]
        return (taken, chosen[np.searchsorted(rounds, taken, side="right") - 1]) if len(taken) else None

    def head_rounds(self) -> tuple[np.ndarray, np.ndarray] | None:
        """Rounds [R] in which heads were chosen and the head of each node in them, int [R, N], -1 for none; or None."""
        rows = self.rows.get("head")
        if rows is None:
            return None
        rounds, index = np.unique(rows.round, return_inverse=True)
        heads = np.full((len(rounds), self.num_nodes), -1)
        heads[index, rows.node] = rows.value
        return rounds, heads

    def head_choices(self) -> tuple[np.ndarray, np.ndarray] | None:
        """Rounds [R] in which heads were chosen, and the head that each node had by then, int [R, N]; or None.

        Rounds before every node had chosen one are left out.
        """
        found = self.head_rounds()
        if found is None:
            return None
        rounds, heads = found
        last = np.maximum.accumulate(np.where(heads >= 0, np.arange(len(rounds))[:, None], -1), axis=0)
        known = (last >= 0).all(axis=1)
        held = np.take_along_axis(heads, np.maximum(last, 0), axis=0)
        return (rounds[known], held[known]) if known.any() else None

    def _on_grid(self, rows: Rows, rounds: np.ndarray) -> np.ndarray:
        grid = np.full((len(rounds), max(self.num_nodes, rows.node.max() + 1)), np.nan)  # a server has bytes alone
        here = np.isin(rows.round, rounds) & (rows.node >= 0)
        grid[np.searchsorted(rounds, rows.round[here]), rows.node[here]] = rows.value[here]
        return grid

"""The handle of a run, with its results as numbers, tables, figures and trained models."""

import html
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ddlsim.foundation import own_code
from ddlsim.report import columns as frames
from ddlsim.report.comparing.curves import Axis, Drawn
from ddlsim.report.html.page import html_table
from ddlsim.report.reading import read
from ddlsim.report.records import Records
from ddlsim.report.section import Table
from ddlsim.report.summary import summary_of
from ddlsim.report.summary_table import loud_lines, rows, table
from ddlsim.runs import model_of
from ddlsim.runs.models import read_model, scenario_of_models

NOTEBOOK = "<style>.ddlsim .words {{ text-align: left }}</style><div class='ddlsim'>{}</div>"
"""What a notebook shows of tables, which are formatted into it."""

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from torch import nn


class Run:
    """A run directory, also of an unfinished run; each property is read on first use.

    Tables are pandas.DataFrames where pandas is installed (the extra `pandas`), otherwise dictionaries of numpy arrays
    of equal length.

    Args:
        dir: the run directory.
        trust: whether `model` may import code that the scenario names and that is not part of ddlsim.
    """

    def __init__(self, dir: str | Path, trust: bool = False):
        self.dir, self._trust = Path(dir), trust

    @cached_property
    def records(self) -> Records:
        """All records as numpy arrays, see ddlsim/report/records.py; of an unfinished run, its records so far."""
        return read(self.dir)

    @cached_property
    def summary(self) -> dict[str, Any]:
        """Results of the last evaluation, as in summary.json; accuracies are fractions, 0 to 1."""
        return summary_of(self.records)

    @property
    def status(self) -> str:
        """done, stopped (by a callback), interrupted, failed or running."""
        return self.records.status

    @property
    def scenario(self) -> dict[str, Any]:
        """The resolved scenario with all defaults, with the keys of a scenario file."""
        return self.records.scenario

    @property
    def manifest(self) -> dict[str, Any]:
        """Versions, device, data, user-defined code and further facts that are needed to repeat the run."""
        return self.records.manifest

    def evaluations(self) -> Any:
        """Return a table with a row per evaluation, node and metric.

        Its columns: round (rounds completed), time_s (simulated seconds when the last node was evaluated), bytes (sent
        by all nodes, each when it completed the round), node, cluster, metric (accuracy, 0 to 1;
        test_loss; of a regression mse; bytes_sent, of the node; ...), value. Nodes that had not joined yet have no
        row.
        """
        return frames.frame(frames.evaluations(self.records))

    def rounds(self) -> Any:
        """Return a table with a row per evaluated round.

        Its columns: round, time_s, bytes, as in `evaluations`; per metric its mean over nodes (accuracy), the
        population standard deviation over nodes (accuracy_std) and the mean of each cluster (accuracy_0, accuracy_1,
        ...); and fair_accuracy. Of a network-only run a row per round: round, time_s, and first_s, median_s and last_s,
        when the first, the median and the last of `nodes` nodes completed it.
        """
        return frames.frame(frames.rounds(self.records))

    def rows(self, name: str | None = None) -> Any:
        """Return a table of every recorded number, of the algorithm or the simulator (head, pulled_from, online, ...).

        Its columns: round (completed rounds), time_s (simulated seconds), node (-1: none), name, value.

        Args:
            name: only rows of this name.
        """
        return frames.frame(frames.rows(self.records, name))

    def messages(self) -> Any:
        """Return a table of traffic, with a row per ordered pair of nodes with any.

        Its columns: src, dst, messages (their number), payload_bytes, header_bytes (of used messages), wasted_bytes
        (of others), in_flight_bytes (in flight at the end of the run). With `records.detail: total` one
        row, whose src and dst are -1. No rows before the run has ended.
        """
        return frames.frame(frames.messages(self.records))

    def energy(self) -> Any:
        """Return a table of the energy of nodes, with a row per node, a server last.

        Its columns: node; steps, computing_s, idle_s, sent_bytes, received_bytes (activities); compute_j, idle_j,
        upload_j, download_j (the joules of each), joules (their sum), and gco2 (grams of CO2 equivalents) where the
        scenario names a grid; see docs/energy.md. No rows without the section `energy`, and before the run has ended.
        """
        return frames.frame(frames.energy(self.records))

    def links(self) -> Any:
        """Return a table of the traffic on access links, with a row per node, a server last.

        Its columns: node; bytes by kind and cause (push_bytes, aborted_bytes, ...), uplink_utilization and
        downlink_utilization (0 to 1), queueing_s (mean per message) and others, see docs/messages.md. No rows before
        the run has ended.
        """
        return frames.frame(frames.links(self.records))

    def model(self, node: int) -> "nn.Module":
        """Build the trained module of a node, in evaluation mode, on the CPU.

        Raises:
            ScenarioError: if the run kept no models, or none of this node; or if the module needs code that is not part
                of ddlsim, and the run was loaded without `trust=True`.
        """
        with own_code.foreign_code(self._trust):
            return model_of(self.dir, node)

    def state_dict(self, node: int) -> dict[str, Any]:
        """Return the values of a node's trained module, name -> torch.Tensor.

        Raises:
            ScenarioError: if the run kept no models, or none of this node.
        """
        return read_model(self.dir, node)

    def preprocess(self, samples: Any) -> Any:
        """Prepare samples for the run's models, without the shifts of clusters; return a torch.Tensor.

        Args:
            samples: one or several, as `ddlsim.data.Arrays` takes them; also columns of a table by name.
        """
        from ddlsim.runs.preprocessing import inputs_of, preprocess

        return preprocess(inputs_of(self.dir), samples)

    def evaluate(self, dataset: Any, node: int = 0) -> dict[str, float]:
        """Evaluate a node's trained model on other samples (accuracy, 0 to 1; test_loss; ...).

        Args:
            dataset: samples and labels (x, y), or a torch Dataset, as `ddlsim.data.Arrays` takes a split.
            node: its number.
        """
        from ddlsim.runs.preprocessing import evaluate, inputs_of

        model = self.model(node)
        with own_code.foreign_code(self._trust):
            return evaluate(inputs_of(self.dir), scenario_of_models(self.dir), model, dataset)

    def plot(self, x: Axis = "rounds", y: str | None = None) -> "Figure":
        """Return a figure with one line and a mark at every evaluation; `figure.savefig(path)` saves it.

        Args:
            x: rounds, time (simulated) or bytes (of all nodes together).
            y: a metric: accuracy, mse, minority, worst_cluster, fair_accuracy, cluster_0, ...; None: accuracy or
                mse.
        Raises:
            DataMissing: if matplotlib is not installed. ScenarioError: if the run has no such values.
        """
        from ddlsim.report.comparing.figures import lines_figure

        return lines_figure([self.records], Drawn(x, y))

    def __repr__(self) -> str:
        return f"Run({str(self.dir)!r})"

    def __str__(self) -> str:
        return table(self.summary)

    def _repr_html_(self) -> str:
        """Return the summary for a notebook, warnings first."""
        loud = "".join(f"<b>{html.escape(line)}</b><br>" for line in loud_lines(self.summary))
        lines = [*rows(self.summary), ("directory", str(self.dir))]
        return NOTEBOOK.format(loud + html_table(Table((), lines, left=2)))

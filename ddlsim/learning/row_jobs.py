"""Jobs that compute parameters from parameters, without samples: merges, rules, functions, columns, messages, attacks.

Their shapes are checked; errors name the architectures and their nodes.
"""

import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from ddlsim.aggregation.base import Aggregation
from ddlsim.attacks.base import Attack
from ddlsim.foundation.errors import DdlsimError
from ddlsim.learning import job_types
from ddlsim.learning.bank import Params, Row, Rows
from ddlsim.learning.fragments import Fragment
from ddlsim.learning.job_spec import JobSpec
from ddlsim.learning.jobs import Job, Jobs
from ddlsim.learning.layout import Entry, Part
from ddlsim.learning.optimizing.state import replaced


class ShapeChecks:
    """Checks of shapes in one run.

    Args:
        assigned: per node the name of its architecture; None: all have the only one.
    """

    def __init__(self, assigned: Sequence[str] | None):
        self._assigned = assigned

    def check(self, task: str, parts: Sequence[Part]) -> None:
        """Check that parts have the same shapes.

        Raises:
            DdlsimError: if they differ; `task` is "merge", "combine" or "compare".
        """
        first = parts[0]
        for part in parts[1:]:
            if part is not first and part.signature != first.signature:
                raise DdlsimError(
                    f"cannot {task} the {part.name} of {self._whose(part)} ({part.size} values) and the "
                    f"{first.name} of {self._whose(first)} ({first.size} values): their shapes differ. Give every node "
                    "the same model, or merge only what the models have in common and compare them by inverse_loss."
                )

    def classifier(self, head: Part) -> Entry:
        """The weights of a head's last linear layer, which may have no bias.

        Raises:
            DdlsimError: if the head does not end in a linear layer.
        """
        last = [entry for entry in head.entries if entry.trainable][-2:]
        dimensions = [len(entry.shape) for entry in last]
        if dimensions[-1:] == [2]:
            return last[-1]
        if dimensions != [2, 1]:
            raise DdlsimError(
                f"model: the {head.name} of {self._whose(head)} does not end in a linear layer that is "
                "trained, whose rows this algorithm compares. Choose a model whose head does (mlp, resnet18, ...)."
            )
        return last[0]

    def _whose(self, part: Part) -> str:
        """An architecture's name, with the nodes that have it where nodes differ."""
        if not self._assigned:
            return part.architecture
        nodes = [str(node) for node, name in enumerate(self._assigned) if name == part.architecture]
        listed = ", ".join(nodes[:8]) + (", ..." if len(nodes) > 8 else "")
        return f"{part.architecture} (node{'s' * (len(nodes) != 1)} {listed})"


class RowOperations:
    """Enqueues jobs that compute parameters from parameters, and returns handles to their results.

    Args:
        rows: hold the values.
        jobs: the queue of pending jobs.
        fitting: checks of shapes.
    """

    def __init__(self, rows: Rows, jobs: Jobs, fitting: ShapeChecks):
        self.rows = rows
        self.jobs = jobs
        self._shapes = fitting
        self._slices: dict[tuple, Part] = {}
        self._same_job: weakref.WeakValueDictionary[tuple, Params] = weakref.WeakValueDictionary()

    def merge(self, sources: Sequence[Params], weights: Sequence[float], node: int | None = None) -> Params:
        """Return the weighted sum of parameters of one kind, in the order of the list; `node` is the merging node.

        Merging the same parameters with the same weights again returns the same handle, so nodes with the same final
        model (an all-reduce) are recognized.

        Raises:
            DdlsimError: if the shapes differ.
        """
        self._shapes.check("merge", [params.part for params in sources])
        rows, weights = [params.row for params in sources], tuple(map(float, weights))
        numbers = tuple([row.number for row in rows])
        key = job_types.MergeSpec, numbers, weights
        computed = self._same_job.get(key)
        if computed is None:  # without `_shared`, because most jobs are merges
            computed = self._same_job[key] = self.rows.new(rows[0].part)
            target = computed.row
            spec = job_types.MergeSpec(node=node, sources=tuple(rows), weights=weights, target=weakref.ref(target))
            self._enqueue(spec, rows, [target])
        return computed

    def aggregate(
        self,
        rule: Aggregation,
        sources: Sequence[Params],
        weights: Sequence[float],
        own: int | None,
        start: Params | None,
        node: int | None = None,
    ) -> Params:
        """Parameters of one kind combined by a robust rule; as with `merge`, the same again gives the same handle.

        Raises:
            DdlsimError: if the shapes differ.
        """
        self._shapes.check("merge", [params.part for params in sources])
        weights = tuple(map(float, weights))
        return self._computed(
            job_types.AggregateSpec, sources, weights=weights, rule=rule, own=own, start=start, node=node
        )

    def apply(self, function: Callable[..., Any], sources: Sequence[Params], node: int | None = None) -> Params:
        """Return a function of parameters of one kind; as with `merge`, the same again gives the same handle.

        Raises:
            DdlsimError: if the shapes differ.
        """
        self._shapes.check("combine", [params.part for params in sources])
        return self._computed(job_types.ApplySpec, sources, function=function, node=node)

    def trained_values(self, params: Params) -> Params:
        """The trained values alone, without buffers (BatchNorm statistics)."""
        return self.columns(params, params.part.trainable_columns)

    def with_trained_values(self, params: Params, values: Params) -> Params:
        """`params` with other trained values and its own buffers."""
        return self._copy(values, params.part.trainable_columns, params.part, params)

    def take(self, params: Params, fragment: Fragment) -> Params:
        """Return the values of a fragment, tensor by tensor."""
        key = (params.part, fragment)
        if key not in self._slices:
            entries, name = params.part.entries, f"{params.part.name}[{fragment.name}]"
            found = [replace(entries[i], start=at, stop=at + entries[i].size) for i, at in fragment.tensors_in(entries)]
            drawn = (Entry("values", (fragment.size,), 0, fragment.size, True),)
            self._slices[key] = Part(params.part.architecture, name, tuple(found) if fragment.ranges else drawn)
        return self._copy(params, fragment.columns, self._slices[key])

    def put(self, params: Params, fragment: Fragment, values: Params) -> Params:
        """Return parameters with other values of a fragment."""
        return self._copy(values, fragment.columns, params.part, params)

    def classifier(self, head: Params) -> Params:
        """The weights [C, D] of a head's last linear layer, without its bias.

        Raises:
            DdlsimError: if the head does not end in a linear layer.
        """
        weights = self._shapes.classifier(head.part)
        return self.columns(head, ((weights.start, weights.stop),))

    def compress(self, codec: Any, params: Params, copy: Params | None, seed: int) -> Params:
        """Return the parameters that receivers of a message decode."""
        return self._filled(job_types.CompressSpec, params.part, codec=codec, source=params, copy=copy, seed=seed)

    def attack(self, attack: Attack, own: Params, **view: Any) -> Params:
        """Return the parameters that an attacked node sends instead of `own`; `view` are fields of job_types.AttackSpec
        (job_types.py).
        """
        return self._filled(job_types.AttackSpec, own.part, attack=attack, own=own, **view)

    def _computed(self, kind: type[JobSpec], sources: Sequence[Params], **others: Any) -> Params:
        """Return the row of a job on sources, which is the same row for the same job; `others` are fields of its
        kind.
        """
        serials = tuple([params.row.number for params in sources])
        constant = [each.serial if isinstance(each, Params) else each for key, each in others.items() if key != "node"]
        return self._shared(kind, (serials, *constant), sources[0].part, sources=tuple(sources), **others)

    def _shared(self, kind: type[JobSpec], inputs: tuple, part: Part, **fields: Any) -> Params:
        """Return the row of a job, of a part, which is the same row for a job with the same inputs."""
        key = (kind, *inputs)
        try:
            computed = self._same_job.get(key)
        except TypeError:  # a function with arguments that have no hash, or drawn columns
            key, computed = (object(),), None
        if computed is None:
            computed = self._same_job[key] = self._filled(kind, part, **fields)
        return computed

    def _filled(self, kind: type[JobSpec], part: Part, **fields: Any) -> Params:
        """Return a new row of a part, which a job with these fields fills."""
        target = self.rows.new(part)
        self._submit(kind, target=target, **fields)
        return target

    def columns(self, params: Params, columns: tuple[tuple[int, int], ...]) -> Params:
        """Return a row of these columns, range [start, stop) after range."""
        key = (params.part, columns)
        if key not in self._slices:
            size = sum(stop - start for start, stop in columns)
            name = f"{params.part.name}[{','.join(f'{start}:{stop}' for start, stop in columns)}]"
            self._slices[key] = Part(params.part.architecture, name, (Entry("values", (size,), 0, size, True),))
        return self._copy(params, columns, self._slices[key])

    def _copy(self, source: Params, columns: Any, part: Part, into: Params | None = None) -> Params:
        """Return a row of a part, see CopySpec; as with `merge`, the same again gives the same handle."""
        inputs = source.serial, columns, part.name, into and into.serial
        return self._shared(job_types.CopySpec, inputs, part, source=source, columns=columns, into=into)

    def _submit(self, kind: type[JobSpec], **fields: Any) -> Job:
        """Enqueue a job.

        Args:
            kind: of the job.
            fields: of its specification, with handles in place of the numbers of rows.
        """
        reads: list[Row] = []
        writes: list[Row] = []
        for names, rows, row_of in ((kind.reads_in, reads, _row), (kind.writes_in, writes, _weak)):
            for name in names:
                if fields.get(name):
                    fields[name] = replaced(fields[name], partial(row_of, rows))
        return self._enqueue(kind(**fields), reads, writes)

    def _enqueue(self, spec: JobSpec, reads: Sequence[Row], writes: Sequence[Row]) -> Job:
        node = reads[0].node if spec.node is None else spec.node
        for row in writes:
            row.node = node
        return self.jobs.submit(Job(spec, reads, writes))


def _row(rows: list[Row], handle: Params) -> Row:
    """Return a handle's row, which is added to the rows."""
    rows.append(handle.row)
    return handle.row


def _weak(rows: list[Row], handle: Params) -> weakref.ref[Row]:
    """Return a weak reference to a handle's row, which is added to the rows."""
    rows.append(handle.row)
    return weakref.ref(handle.row)

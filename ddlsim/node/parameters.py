"""Arithmetic on parameters at no simulated time, and deferred values.

Training starts are the parameters at the start of a node's trainings, for aggregation rules and attacks that compare
updates. A deferred value is computed when it is needed.
"""

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from operator import index
from typing import TYPE_CHECKING, Any, overload
from weakref import WeakKeyDictionary

from ddlsim.aggregation.base import metropolis_hastings
from ddlsim.foundation.errors import DdlsimError, listing
from ddlsim.learning.fragments import Fragment, Order, equal_fragments, fragments_of, layers_of
from ddlsim.node.arguments import node_ids
from ddlsim.node.info import NodeInfo
from ddlsim.node.ports import Model, Params, Ports
from ddlsim.topologies.base import Receivers, mixing_weights

if TYPE_CHECKING:
    import torch


class Deferred:
    """Value that is computed at the first call of this object.

    Until then the work waits, and similar work of other nodes runs with it in one wave.

    Args:
        compute: function that computes the value.
        wire_bytes: its bytes in a message; None: the bytes of one number.
    """

    def __init__(self, compute: Callable[[], Any], wire_bytes: int | None = None):
        self.wire_bytes = wire_bytes
        self._compute: Callable[[], Any] | None = compute
        self._value: Any = None

    def __call__(self) -> Any:
        if self._compute is not None:
            self._value, self._compute = self._compute(), None
        return self._value

    def then(self, change: Callable[[Any], Any]) -> "Deferred":
        """Return a deferred function of this value."""
        return Deferred(lambda: change(self()))


class TrainingStarts:
    """Parameters trained by the node -> parameters at the start of that training, while the former are in use."""

    def __init__(self) -> None:
        self._of: WeakKeyDictionary[Params, Params] = WeakKeyDictionary()

    def of(self, params: "Params") -> "Params | None":
        """Return the parameters at the start of the training; None if the node has not trained these parameters."""
        return self._of.get(params)

    def trained(self, model: "Model", start: "Model") -> None:
        """Register the result and the start of a training, part by part."""
        for result, before in zip(model, start, strict=True):
            if result is not before or result not in self._of:  # frozen parts keep the start of their last training
                # A separate handle: otherwise all trainings of a node that merges nothing would stay alive.
                self._of[result] = copy(before)

    def derived(self, source: "Params", result: "Params", derive: "Callable[[Params], Params]") -> None:
        """Register parameters derived from others; `derive` derives their start."""
        if source in self._of:
            self._of[result] = derive(self._of[source])


class ParameterOps(NodeInfo):
    """Arithmetic on parameters at no simulated time.

    Args:
        node_id, ports: as of NodeInfo.
        times_lost: number of times that the participant has lost its state.
    """

    def __init__(self, node_id: int, ports: Ports, times_lost: int = 0):
        super().__init__(node_id, ports)
        self._transport, self._aggregation = ports.transport, ports.aggregation
        self._attack = None if ports.attackers is None else ports.attackers.of(node_id)
        self._times_lost = times_lost
        compares_updates = (self._attack is not None and self._attack.compares_updates) or (
            ports.aggregation is not None and ports.aggregation.needs_start
        )
        self._starts = TrainingStarts() if compares_updates else None

    def compare(self, metric: str, own: "Model", peers: "Sequence[Model]", **references: Any) -> Deferred:
        """Return similarities of the node's model to others', at no simulated time: they cost less than a single
        training step.

        Args:
            metric: cosine_weights, cosine_gradients or inverse_l2.
            own: this node's model.
            peers: the others' models.
            references: parameters to subtract first (start, own_last, peers_last, alpha): see Learner.compare.

        Returns:
            Deferred list of floats, one per peer.

        Raises:
            DdlsimError: the sizes differ.
        """
        compute = self._compute
        job = compute.compare(metric, own, peers, **references)
        return Deferred(lambda: compute.value(job))

    def init_models(self, count: int = 1, *, whole: bool = False, own: bool | None = None) -> "list[Model]":
        """Return new models of this node's architecture.

        Args:
            count: number of models.
            whole: (model,) instead of (core, head, ...).
            own: whether every node starts from different values, or all of one architecture from the same; None: by the
                scenario's `init`.

        A node that has lost its state draws new values; a shared start does not change.
        """
        if not self._compute.draws_numbers:
            return self._compute.init_models(0, count, whole, self.id)
        own = self._run.own_starts if own is None else own
        is_redrawn = own and self._times_lost
        seed = self.stream_seed(f"init after loss {self._times_lost}" if is_redrawn else "init", own=own)
        models = self._compute.init_models(seed, count, whole, self.id)
        self._transport.starts_with(self.id, models)
        return models

    def started_from(self, params: "Params") -> "Params | None":
        """Return the parameters at the start of the node's training that ended with these parameters; None if the node
        has not trained them, or if the start is not kept (neither the aggregation nor an attack compares updates).
        """
        return None if self._starts is None else self._starts.of(params)

    def merge(self, sources: "Sequence[Params]", weights: Sequence[float]) -> "Params":
        """Return the weighted sum of parameters, in the given order; no aggregation rule replaces this sum.

        Args:
            sources: at least one, all of one size.
            weights: one per source; they are not normalized.

        Raises:
            DdlsimError: the sizes differ, or there are not as many weights.
        """
        if len(sources) != len(weights) or not sources:
            text = f"expected as many weights as parameters, at least one, got {len(weights)} weights of {len(sources)}"
            raise DdlsimError(f"node.merge: {text}.")
        return self._compute.merge(sources, weights, self.id)

    @overload
    def apply(self, function: "Callable[..., torch.Tensor]", *params: "Params") -> "Params": ...
    @overload
    def apply(self, function: "Callable[..., torch.Tensor]", *params: "Model") -> "Model": ...
    def apply(self, function: "Callable[..., torch.Tensor]", *params: Any) -> Any:
        """Return a function of parameters, such as `node.apply(torch.sign, delta)`, computed when it is needed.

        Args:
            function: pure function of one float32 vector [P] per argument that returns a vector [P]. It sees one node's
                values, buffers included (see `trained_values`); on a GPU `torch.func.vmap` calls it for several nodes
                at once if possible. A function of a module, a method of the algorithm, or a `functools.partial` of
                either can be sent to other processes. With `learning: none` it is not called.
            params: at least one, all of one size; or models, to which the function is applied part by part.

        Raises:
            DdlsimError: the sizes differ. A function that returns something else raises it when it is computed.
        """
        models = [len(each) for each in params if isinstance(each, tuple)]
        if not callable(function) or not params or models not in ([], models[:1] * len(params)):
            raise DdlsimError(
                "node.apply: expected a function and parameters, or a function and models with equal parts, got "
                f"{function!r} and {len(params)} arguments. Write node.apply(torch.sign, delta), for example."
            )
        if models:
            return tuple(self._compute.apply(function, parts, self.id) for parts in zip(*params, strict=True))
        return self._compute.apply(function, params, self.id)

    def aggregate(self, models: "Mapping[int, Params]", weights: Mapping[int, float]) -> "Params":
        """Combine parameters of several nodes: their weighted average, or the result of the scenario's `aggregation`.

        Args:
            models: by node id, this node's own among them unless it has none (a server).
            weights: weights of the same nodes, summing to 1; a rule leaves out models of weight 0, except this node's
                own.

        Returns:
            The weighted sum in the order of node ids, or the rule's result.

        Raises:
            DdlsimError: the sizes differ.
        """
        nodes, rule = sorted(models), self._aggregation
        if nodes and not 0 <= nodes[0] <= nodes[-1] < self._num_members:
            node_ids(nodes, self._num_members, "aggregate")
        if rule is None:
            return self.merge([models[node] for node in nodes], [weights[node] for node in nodes])
        nodes = [node for node in nodes if weights[node] > 0 or node == self.id] or nodes
        if len(nodes) == 1:
            return models[nodes[0]]
        own = nodes.index(self.id) if self.id in models else None
        start = self.started_from(models[self.id]) if rule.needs_start and own is not None else None
        return self._compute.aggregate(
            rule, [models[node] for node in nodes], [weights[node] for node in nodes], own, start, self.id
        )

    def average(self, own: "Params", received: "Mapping[int, Params]") -> "Params":
        """Return the plain mean of the node's own parameters and the received ones, or the result of the scenario's
        `aggregation`.
        """
        if not received:
            return own
        everything = {**received, self.id: own}
        return self.aggregate(everything, dict.fromkeys(everything, 1 / len(everything)))

    def add_deltas(self, base: "Params | None", deltas: "Mapping[int, Params]", weight: float) -> "Params":
        """Return `base` plus `weight` times the sum of the received changes; a rule replaces their mean.

        Args:
            base: parameters to change; None: zeros.
            deltas: changes by node id, at least one.
            weight: weight of each change.
        """
        nodes, known = sorted(node_ids(deltas, self._num_members, "add_deltas")), [] if base is None else [base]
        if self._aggregation is None:
            return self.merge([*known, *(deltas[node] for node in nodes)], [1.0] * len(known) + [weight] * len(nodes))
        mean = self.aggregate(deltas, dict.fromkeys(deltas, 1 / len(deltas)))
        return self.merge([*known, mean], [1.0] * len(known) + [weight * len(nodes)])

    def mix(self, own: "Params", received: "Mapping[int, Params]", round_num: int) -> "Params":
        """Mix by this node's row of the round's mixing matrix, or by the scenario's `aggregation` of the same models.

        The weights are Metropolis-Hastings (aggregation/base.py), or the weights of a directed or weighted graph
        (topologies/base.py), which must be doubly stochastic.

        Weights of neighbors whose message did not arrive are added to the weight of the node's own parameters.

        Raises:
            DdlsimError: the weights are not doubly stochastic.
        """
        graph = self._run.neighbors(round_num)
        if not isinstance(graph, Receivers):
            weights = metropolis_hastings(self.id, graph, received)
        elif graph.balanced:
            weights = mixing_weights(self.id, graph, received)
        else:
            raise DdlsimError(
                "node.mix: expected mixing weights that sum to 1 over each node's senders, and over its receivers; the "
                f"topology's graph of round {round_num} has no such weights. Choose sgp, or another topology."
            )
        everything = {**received, self.id: own}
        return self.aggregate(everything, weights)

    def trained_values(self, params: "Params") -> "Params":
        """Return parameters without their buffers (BatchNorm statistics), to be sent or merged."""
        return self._derive(params, self._compute.trained_values)

    def with_trained_values(self, params: "Params", values: "Params") -> "Params":
        """Return parameters with other trained values; their buffers and the start of their training are kept."""
        return self._derive(params, lambda each: self._compute.with_trained_values(each, values), _same_start)

    def fragments(self, params: "Params", count: int | None = None, order: Order = "strided") -> tuple[Fragment, ...]:
        """Return fragments that together are all of some parameters, see learning/fragments.py.

        Args:
            params: parameters, such as the node's whole model.
            count: number of fragments; None: one for each layer.
            order: strided: the layers in order are dealt to the fragments one after the other; sequential: in blocks.

        Raises:
            DdlsimError: more fragments than layers. A model of which only sizes are known (`name: sizes`) has no layers
                and is cut into consecutive fragments of equal size.
        """
        part = params.part
        layers = layers_of(part.entries)
        most = len(layers) if layers else params.size
        wanted = len(layers) if count is None else index(count)
        if not 1 <= wanted <= most or order not in ("strided", "sequential"):
            what = f"the layers {listing(list(layers))}" if layers else f"{most} values in unknown layers"
            raise DdlsimError(
                f"node.fragments: expected 1 to {most} fragments, strided or sequential, since the {part.name} has "
                f"{what}, got {count}, {order}. Choose fewer fragments."
            )
        return fragments_of(layers, wanted, order) if layers else equal_fragments(params.size, wanted)

    def random_fragment(self, params: "Params", share: float, number: int) -> Fragment:
        """Return a random share of the columns of parameters, the same on all nodes.

        Args:
            params: parameters, such as the node's whole model.
            share: their share, above 0, up to 1; at least one column.
            number: number of the draw, such as the round or the step.
        """
        if not 0 < share <= 1:
            raise DdlsimError(f"node.random_fragment: share: expected a number above 0, up to 1, got {share}.")
        size = max(1, round(share * params.size))
        return Fragment(f"{share:g}", size, drawn=(self.seed, index(number), params.size))

    def take(self, params: "Params", fragment: Fragment) -> "Params":
        """Return the values of a fragment, to be sent, merged or changed by themselves."""
        self._check_fragment("take", params, fragment, fragment.size)
        return self._derive(params, lambda each: self._compute.take(each, fragment))

    def put(self, params: "Params", fragment: Fragment, values: "Params") -> "Params":
        """Return parameters with other values of a fragment; the start of their training is kept."""
        self._check_fragment("put", params, fragment, values.size)
        return self._derive(params, lambda each: self._compute.put(each, fragment, values), _same_start)

    def _check_fragment(self, method: str, params: "Params", fragment: Fragment, size: int) -> None:
        fits = params.size == fragment.drawn[2] if fragment.drawn else params.size >= fragment.ranges[-1][1]
        if not fits or size != fragment.size:
            text = f"expected a fragment of these parameters, and {fragment.size} values for it"
            raise DdlsimError(f"node.{method}: {text}, got {size} values and {params.size} parameters.")

    def classifier(self, head: "Params") -> "Params":
        """Return the weights [classes, features] of a head's last linear layer, without bias."""
        return self._derive(head, self._compute.classifier)

    def class_cosines(self, own: "Params", others: "Mapping[int, Params]") -> dict[int, float]:
        """Return for each other node the mean over classes of the cosine between its classifier's rows and the node's
        own.
        """
        if not others:
            return {}
        job = self._compute.class_cosine(own, list(others.values()))
        return dict(zip(others, self._compute.value(job), strict=True))

    def _derive(
        self,
        params: "Params",
        derive: "Callable[[Params], Params]",
        of_start: "Callable[[Params], Params] | None" = None,
    ) -> "Params":
        """Return parameters derived from others; the start of their training is derived alike, or by `of_start`."""
        result = derive(params)
        if self._starts is not None:
            self._starts.derived(params, result, of_start or derive)
        return result


def _same_start(start: "Params") -> "Params":
    return start

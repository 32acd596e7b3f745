"""What a node does to its models at no cost worth counting: fresh ones, merges, parts of them. See node.py."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ddlsim.mixing import metropolis_hastings_row

if TYPE_CHECKING:
    from ddlsim.engine.simulation import Simulation
    from ddlsim.learning.bank import Params
    from ddlsim.learning.kinds import Model


class Models:
    """The half of a Node that deals with parameters."""

    id: int
    _sim: "Simulation"
    _times_lost: int

    def init_models(self, count: int = 1, *, whole: bool = False, own: bool = True) -> "list[Model]":
        """Fresh models of this node's architecture: (core, head, ...) each, or (model,) when whole.

        own = another start on every node; otherwise all that have the same architecture start alike.

        A node that has lost its state draws its own start anew; the start that all share stays the same.
        """
        if self._sim.network_only:
            return self._sim.learner.init_models(0, count, whole, self.id)
        anew = own and self._times_lost
        seed = self.stream_seed(f"init after loss {self._times_lost}" if anew else "init", own=own)
        return self._sim.learner.init_models(seed, count, whole, self.id)

    def merge(self, sources: "Sequence[Params]", weights: Sequence[float]) -> "Params":
        """The weighted sum of parameters, in the given order."""
        return self._sim.learner.merge(sources, weights)

    def trained_values(self, params: "Params") -> "Params":
        """Parameters without their buffers (BatchNorm statistics), to be sent or merged."""
        return self._sim.learner.trained_values(params)

    def with_trained_values(self, params: "Params", values: "Params") -> "Params":
        """Parameters with other trained values; their buffers stay."""
        return self._sim.learner.with_trained_values(params, values)

    def classifier(self, head: "Params") -> "Params":
        """The weights [classes, features] of a head's last linear layer, without bias, to be sent or compared."""
        return self._sim.learner.classifier(head)

    def class_cosines(self, own: "Params", others: "Mapping[int, Params]") -> dict[int, float]:
        """Per other node the mean over classes of the cosine between its classifier's rows and one's own."""
        if not others:
            return {}
        job = self._sim.learner.class_cosine(own, list(others.values()))
        return dict(zip(others, self._sim.learner.value(job), strict=True))

    def average(self, own: "Params", received: "Mapping[int, Params]") -> "Params":
        """The plain mean of the node's own parameters and those received, summed in the order of node ids."""
        if not received:
            return own
        all_of_them = sorted({**received, self.id: own}.items())
        return self.merge([params for _, params in all_of_them], [1 / len(all_of_them)] * len(all_of_them))

    def mix(self, own: "Params", received: "Mapping[int, Params]", round_num: int) -> "Params":
        """The mean by this node's row of the round's Metropolis-Hastings mixing matrix, see mixing.py.

        The weights of neighbors whose message did not come fall to the node itself.
        """
        weights = metropolis_hastings_row(self.id, self.neighbours(round_num), received)
        everything = {**received, self.id: own}
        return self.merge([everything[peer] for peer in weights], list(weights.values()))

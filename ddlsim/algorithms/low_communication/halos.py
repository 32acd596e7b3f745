"""HALoS: asynchronous local SGD with a server in each site, and a global server that the site servers step.

Source: Kim, Li, Gandham, Baldonado, Gangidi, Balaji, Wang, Akella, "HALoS: Hierarchical asynchronous local SGD over
slow networks for geo-distributed large language model training", ICML 2025 (arXiv 2506.04531), Algorithm 1, and its
code (github.com/utnslab/halos). Sites are the scenario's clusters (nodes.clusters), which this algorithm knows. Nodes
send their changes to the server of their site and continue from its answer, as in async_diloco.py: its model x takes
the delayed Nesterov step along each change. After every K changes it sends x - x' to the global server, where x' is its
model at the last sending or merge. The global server takes such a step too, and returns its model phi. When phi
arrives, the site's server sets

    x := (1 - w) x + w phi,   x' := x,

and counts K changes again. No server waits. The paper's learning rates are a / N. Its code sends only once before phi
arrives; here a server sends again after K more changes, so that a lost message does not stop a site.

The server of a site runs on the site's first node, which trains too; the global server is the server of the run.
Buffers (BatchNorm statistics) are averaged with x. If the first node of a site is offline, the site's other nodes
continue from their own models. A node that joins, or returns without its state, fetches phi; if it is the first of its
site, the site's server starts again from phi.
"""

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from annotated_types import Ge, Gt, Le, Lt

from ddlsim.algorithms.low_communication import async_diloco
from ddlsim.algorithms.low_communication.async_diloco import AsyncDiLoCo
from ddlsim.algorithms.rounds import ModelState
from ddlsim.node.node import Message, Node, Params, Steps, Verb


@dataclass
class State(async_diloco.State):
    """A node's memory, or the global server's.

    Args:
        site: on the first node of a site, the state of the site's server.
        sent: x', its model at the last sending or merge.
        gathered: its changes since then.
    """

    site: async_diloco.State | None = None
    sent: Params | None = None
    gathered: int = 0


@dataclass(frozen=True, kw_only=True)
class HALoS(AsyncDiLoCo):
    """HALoS: nodes update the server of their site, and sites a global server, all asynchronously and with momentum.

    Args:
        outer_momentum: b of the global server.
        buffer_size: N of the global server; null: the number of sites.
        local_rate: a of the servers of sites.
        local_momentum: b of the servers of sites.
        local_buffer_size: N of the servers of sites; null: the number of the site's nodes.
        accumulate: K, changes that a site's server gathers before it sends; null: the number of the site's nodes.
        merge_weight: w, weight of the global model in the site's model.
    """

    state_type: ClassVar[type[ModelState]] = State

    outer_momentum: Annotated[float, Ge(0), Lt(1)] = 0.5
    local_rate: Annotated[float, Gt(0)] = 0.7
    local_momentum: Annotated[float, Ge(0), Lt(1)] = 0.9
    local_buffer_size: Annotated[int, Ge(1)] | None = None
    accumulate: Annotated[int, Ge(1)] | None = None
    merge_weight: Annotated[float, Gt(0), Le(1)] = 0.25

    def round(self, node: Node, state: Any, round_num: int) -> Steps:
        if state.site is None and node.id == members(node)[0]:
            state.site, state.sent = async_diloco.State(state.model), state.model
        yield from super().round(node, state, round_num)

    def submit(self, node: Node, state: Any, payload: Any, round_num: int) -> Generator[Verb, Any, Any]:
        if state.site is not None:
            return self.of_site(node, state, payload)
        answers = yield node.exchange(members(node)[:1], round_num, **payload)
        return answers[0].payload if answers else {}

    def answer(self, node: Node, state: State, offer: Message) -> Mapping[str, Any]:
        """Answer a node as the server of its site, or as the global one; merge the global model on the former."""
        if node.is_server:
            size = self.buffer_size or len(node.clusters)
            found = self.respond(node, state, offer.payload, self.outer_rate, self.outer_momentum, size)
            if "change" not in offer.payload:
                return found
            node.offer([offer.src], offer.round_num, model=state.model)
        elif state.site is not None:
            if offer.src != node.num_nodes:
                return self.of_site(node, state, offer.payload)
            models, w = [state.site.model, offer.payload["model"]], self.merge_weight
            state.site.model = state.sent = node.merge(models, [1 - w, w])
            state.gathered = 0
        return {}

    def of_site(self, node: Node, state: Any, payload: Mapping[str, Any]) -> Mapping[str, Any]:
        """Take the step of the site's server, send to the global server after K of them, and return the answer."""
        count = len(members(node))
        size = self.local_buffer_size or count
        found = self.respond(node, state.site, payload, self.local_rate, self.local_momentum, size)
        state.gathered += 1
        if state.gathered == (self.accumulate or count):
            change = node.merge([state.site.model, state.sent], [1.0, -1.0])
            node.offer([node.num_nodes], node.round_num, change=change)
            state.sent, state.gathered = state.site.model, 0
        return found


def members(node: Node) -> Sequence[int]:
    """Return the nodes of a node's site, its server's first."""
    return node.clusters[node.true_cluster]

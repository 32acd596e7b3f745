"""SCAFFOLD: a server and its nodes correct local steps by estimates of all nodes' gradients.

Source: Karimireddy, Kale, Mohri, Reddi, Stich, Suresh, "SCAFFOLD: stochastic controlled averaging for federated
learning", ICML 2020, Algorithm 1 with option II, all nodes in every round. Node i keeps a control variate c_i, the
server their mean c; both start at 0. From the server's model x a node takes K steps y := y - a (g_i(y) - c_i + c), then

    c_i+ = c_i - c + (x - y) / (K a),

and sends y - x and c_i+ - c_i. The server sets x := x + eta_g mean(y - x) and c := c + |S| / N mean(c_i+ - c_i), where
S are the nodes, among N, that the server received, and sends both back. K a is the sum of the learning rates of the
round's updates, so schedules are correct. Each message holds a control variate in addition to the model: twice the
bytes but for buffers.

Differences from the paper, or choices that it leaves open:

- A round ends with the new x, which is tested; in the first round all nodes have the same x and c = 0, so none fetches
  it. A node that gets no answer joins the server's current round as in fedavg.py, and fetches x and c.
- A node sends y, from which the server subtracts its current x: so no change counts twice or is missing, whether a
  message or its answer was lost.
- Nodes that are offline keep their c_i, like nodes that the paper does not sample in a round; c includes them.
- With `sends: variates` a node sends c_i+, from which the server subtracts the last c_i that it received from that
  node: so c remains the mean of the last received values, whatever messages and answers were lost, and also if a node
  has lost its state. With `changes` a lost difference is missing in c permanently, and nodes miss the minimum.
- Buffers (BatchNorm statistics) are averaged with the model, whatever eta_g; they have no control variates.
- With momentum or Adam, x - y over the rates is not a gradient, and the variates describe updates; the paper uses SGD.
- Clipping acts before the correction, weight decay after it.

Without a server the correction is gradient tracking: `gtsgd` with several local steps is K-GT (Liu, Lin, Koloskova,
Stich, "Decentralized gradient tracking with local steps", 2023), in which gossip replaces the server's means. On the
complete graph, where its mixing weights are 1 / N, it computes the models of SCAFFOLD with eta_g = 1, as a test shows.
"""

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

from annotated_types import Gt, Le

from ddlsim.algorithms.rounds import ServerRounds
from ddlsim.node.node import Message, Model, Node, Params, Verb


@dataclass
class State:
    """A node's memory, or the server's.

    Args:
        model: the node's current model; the server's x.
        control: c_i; None: 0.
        common: c; None: 0.
        last_controls: on the server, the last received c_i by node.
    """

    model: Params
    control: Params | None = None
    common: Params | None = None
    last_controls: dict[int, Params] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Scaffold(ServerRounds):
    """Federated averaging with control variates against the drift of local steps.

    Args:
        global_rate: eta_g, above 0: step of the server towards the nodes' mean.
        sends: content of a node's message: its whole control variate (`variates`) or, as in the paper, its change
            (`changes`), which secure aggregation can sum but message losses corrupt.
    """

    one_start: ClassVar[bool] = True
    global_rate: Annotated[float, Gt(0), Le(1000)] = 1.0
    sends: Literal["variates", "changes"] = "variates"

    @property
    def needs_only_sums(self) -> bool:
        return self.sends == "changes"

    def start(self, node: Node) -> State:
        ((model,),) = node.init_models(whole=True)
        return State(model)

    def local_update(self, node: Node, state: State) -> Generator[Verb, Any, dict[str, Any]]:
        rate_sum, first = sum(node.learning_rates()), state.model
        control, common = state.control, state.common
        terms = [(params, sign) for params, sign in ((common, 1.0), (control, -1.0)) if params is not None]
        correction = node.merge(*zip(*terms, strict=True)) if terms else None
        (state.model,) = yield node.train((first,), control=correction)
        scale = 1 / rate_sum if rate_sum else 0.0
        gradient = node.trained_values(node.merge([first, state.model], [scale, -scale]))
        # the change of c_i is (x - y) / (K a) - c; at a rate of 0, which gives no gradient, c_i is unchanged
        change = gradient if common is None or not rate_sum else node.merge([gradient, common], [1.0, -1.0])
        state.control = change if control is None else node.merge([control, change], [1.0, 1.0])
        return {"model": state.model, "control": change if self.sends == "changes" else state.control}

    def server_update(self, node: Node, state: State, inbox: Sequence[Message]) -> None:
        moves = {m.src: node.merge([m.payload["model"], state.model], [1.0, -1.0]) for m in inbox}
        state.model = self._updated_model(node, state.model, moves)
        changes = self._changes(node, state, {m.src: m.payload["control"] for m in inbox})
        state.common = node.add_deltas(state.common, changes, 1 / node.num_nodes)

    def server_result(self, state: State) -> dict[str, Any]:
        return {"model": state.model} | ({} if state.common is None else {"control": state.common})

    def apply_result(self, state: State, result: Mapping[str, Any]) -> None:
        state.model, state.common = result["model"], result.get("control")

    def tested_model(self, state: State) -> Model:
        return (state.model,)

    def _updated_model(self, node: Node, model: Params, moves: dict[int, Params]) -> Params:
        """Return the server's x after the nodes' changes; eta_g scales only changes of trained values."""
        updated = node.add_deltas(model, moves, self.global_rate / len(moves))
        if self.global_rate == 1:
            return updated
        averaged = node.add_deltas(model, moves, 1 / len(moves))
        return node.with_trained_values(averaged, node.trained_values(updated))

    def _changes(self, node: Node, state: State, sent: dict[int, Params]) -> dict[int, Params]:
        """Return the changes of the received c_i."""
        if self.sends == "changes":
            return sent
        before, state.last_controls = state.last_controls, state.last_controls | sent
        return {
            peer: node.merge([own, before[peer]], [1.0, -1.0]) if peer in before else own for peer, own in sent.items()
        }

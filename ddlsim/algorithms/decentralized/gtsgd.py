"""GT-SGD: gradient tracking; a node descends along an estimate of the gradient of all nodes' mean loss.

Sources: Nedic, Olshevsky, Shi, "Achieving geometric convergence for distributed optimization over time-varying graphs",
SIAM Journal on Optimization 2017 (DIGing); with stochastic gradients Pu, Nedic, "Distributed stochastic gradient
tracking methods", Mathematical Programming 2021, and Xin, Khan, Kar, "An improved convergence analysis for
decentralized online stochastic non-convex optimization", IEEE Transactions on Signal Processing 2021 (GT-DSGD); with K
local steps Liu, Lin, Koloskova, Stich, "Decentralized gradient tracking with local steps", 2023, Algorithm 1 (K-GT).

With one local step, learning rate a, mixing matrix W and y_0 = g_0, in the order adapt-then-combine of Pu and Nedic:

    x_{t+1} = W (x_t - a y_t),    y_{t+1} = W y_t + g(x_{t+1}) - g(x_t).

A node remembers c_t = y_t - g(x_t), which is y without the gradient still to be computed. So a round is

    K times x := x - a (g(x) + c_t);   z = (x_t - x) / (a K);   x_{t+1} = W x;   c_{t+1} = c_t - z + W z,

which is K-GT (server step 1), and for K = 1 the two lines above, z being y_t. Both c and z are kept and sent multiplied
by the training.learning_rate at the start of the run, the same on all nodes also after a branch: without a schedule z
is then the average change per local step. With one, a is the mean rate of the node's own steps of the round, which may
differ from its neighbors'; at a rate of 0, or of less than 1e-7 of that rate, its z is 0. W has Metropolis-Hastings
weights on the round's graph. A message holds x and z, twice the bytes of a model. Differences from the papers:

- c starts at 0, as y_0 = g_0 implies; K-GT starts from the difference to the mean gradient of all nodes.
- Buffers (BatchNorm statistics) are mixed with the model, not tracked.
- DIGing subtracts a y_t after mixing; here, as in Pu and Nedic, the round ends with the exchange.

The method depends on the sum of all c being 0: nodes then agree on a point of zero mean gradient, for any K and any
difference of their data. Weights of neighbors that are offline, or whose message is lost or too late, are added to the
node's weight. If two nodes both miss each other the sum stays 0; an offline node still counts, with its last gradient.
If only one misses the other, if a node loses its state, in `mode: async` and with network.compression, the sum drifts,
and with it the final point of the nodes: D-PSGD can then be the better choice. With momentum or Adam the updates are
tracked in place of gradients; keep their state (training.optimizer_state: kept), since each step is corrected
separately.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

from ddlsim.algorithms.base import Graphs
from ddlsim.algorithms.rounds import ModelState, SharedModel, merge_known
from ddlsim.node.node import Model, Node, Params, Steps

ALL_BUT_ZERO = 1e-7
"""Share of the scenario's rate below which a step changes float32 values only by rounding."""


@dataclass
class State(ModelState):
    """A node's memory: its model x, and c, the tracked gradient without the node's gradient (None: 0), times the run's
    first learning rate.
    """

    correction: Params | None = None


@dataclass(frozen=True, kw_only=True)
class GTSGD(SharedModel):
    """Gradient tracking (DIGing, GT-SGD; K-GT with more than one local step)."""

    state_type: ClassVar[type[ModelState]] = State
    splits_local_steps: ClassVar[bool] = True
    graphs: ClassVar[Graphs] = "balanced"
    needs_only_sums: ClassVar[bool] = True

    def round(self, node: Node, state: State, round_num: int) -> Steps:
        unit, steps = node.learning_rate, node.local_steps  # a branch may change them while the node trains
        rates = node.learning_rates(steps)
        mean = math.fsum(rates) / len(rates)
        factor = 1.0 if math.isclose(mean, unit, rel_tol=1e-12) else mean / unit
        start, correction = state.model, state.correction

        def correct(model: Model) -> Model:
            if correction is None:
                return model
            corrected = node.merge([model[0], correction], [1.0, -factor])
            return (node.with_trained_values(model[0], node.trained_values(corrected)),)

        (model,) = yield node.train((start,), steps, after_step=correct)
        state.model = model  # a node that leaves from here on has done its local steps, without an exchange
        share = 1 / (factor * steps) if factor > ALL_BUT_ZERO else 0.0
        step = node.merge([start, model], [share, -share])
        node.send(node.peers(round_num), round_num, model=model, step=step)
        inbox = yield node.receive(round_num)
        state.model = node.mix(model, {m.src: m.payload["model"] for m in inbox}, round_num)
        mixed = node.mix(step, {m.src: m.payload["step"] for m in inbox}, round_num)
        state.correction = merge_known(node, [correction, mixed, step], [1.0, 1.0, -1.0])

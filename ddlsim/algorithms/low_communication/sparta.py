"""SPARTA: in every step nodes average a small random share of their parameters.

Source: Beton, Matthew, Howes, Cheema, Baioumy, "Improving the efficiency of distributed training using sparse parameter
averaging", ICLR 2025 workshop MCDC (OpenReview stFPf3gzq1), and its implementation in EXO Gym. All nodes draw the same
share p of the values in every local step, and replace them by their mean. The indices follow from a common seed and are
not sent. With `delay` d the mean is used d steps later, as a change: x[S] := x[S] + mean_j x_j[S] - x_i[S], with the
x_i and x_j that were sent. With `outer_step_per_round` all nodes also take DiLoCo's outer step (diloco.py) after
training.local_steps steps. Offline nodes are described in replicas.py.
"""

from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

from annotated_types import Ge, Gt, Le

from ddlsim.algorithms.low_communication import diloco
from ddlsim.algorithms.low_communication.diloco import OuterNesterov
from ddlsim.algorithms.rounds import ModelState
from ddlsim.node.node import Node, Steps


@dataclass
class State(diloco.State):
    """A node's memory; on_way: step of use, values and all-reduce of the shares on their way."""

    on_way: list[tuple[int, Any, Any, Any]] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Sparta(OuterNesterov):
    """SPARTA: a random share of the parameters is averaged in every step.

    Args:
        share: p, share of the parameters in a step.
        delay: d, local steps between sending and using a mean.
        outer_step_per_round: whether a round ends with DiLoCo's all-reduce and outer step.
    """

    state_type: ClassVar[type[ModelState]] = State
    exchanges: ClassVar[Literal["models", "vectors", "nothing"]] = "vectors"

    share: Annotated[float, Gt(0), Le(1)] = 0.005
    delay: Annotated[int, Ge(0)] = 0
    outer_step_per_round: bool = False

    def round(self, node: Node, state: State, round_num: int) -> Steps:
        self.offer(node, state, round_num)
        steps, start = node.local_steps, state.model
        for step in range(round_num * steps, (round_num + 1) * steps):
            (state.model,) = yield node.train((state.model,), 1, of=steps)
            share = node.random_fragment(state.model, self.share, step)
            values = node.take(state.model, share)
            state.on_way.append((step + self.delay, share, values, node.begin(self.mean(node, values, round_num))))
            while state.on_way and state.on_way[0][0] <= step:
                _, share, values, handle = state.on_way.pop(0)
                mean = yield node.wait(handle)
                if mean is not None:
                    changed = node.merge([node.take(state.model, share), mean, values], [1.0, 1.0, -1.0])
                    state.model = node.put(state.model, share, changed)
        if self.outer_step_per_round:
            change = node.merge([state.model, start], [1.0, -1.0])
            mean = yield self.mean(node, change, round_num)
            state.model = start
            self.outer_step(node, state, mean)

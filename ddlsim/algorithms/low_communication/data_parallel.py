"""Data-parallel training: an all-reduce after every step, the baseline of methods that communicate less.

Source: Li et al., "PyTorch distributed: experiences on accelerating data parallel training", VLDB 2020. Every node
computes the gradient g_i of its own batch, and all take the same step along the mean gradient. Here each node takes its
step, and the models are averaged: the same update, to rounding, if the step is linear in the gradient, as SGD's is,
with momentum too if training.optimizer_state is kept. AdamW is not linear. With `adamw_rate` the nodes average plain
SGD steps instead, from which the mean gradient g = (x - mean_i (x - a g_i)) / a follows, and

    m := b1 m + (1 - b1) g,   v := b2 v + (1 - b2) g^2,   x := x - r (m' / (sqrt(v') + 1e-8) + w x),

with m' and v' corrected for their start at 0 (Loshchilov and Hutter, ICLR 2019). A large a (training.learning_rate: 1)
keeps the rounding of g small; a schedule changes r. A round has training.local_steps steps. Gradients are not sent in
buckets while later layers are computed. Offline nodes are described in replicas.py.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, ClassVar

from annotated_types import Ge, Gt, Lt

from ddlsim.algorithms.low_communication.replicas import Replicas
from ddlsim.algorithms.rounds import ModelState
from ddlsim.node.node import Node, Params, Steps

if TYPE_CHECKING:
    import torch


@dataclass
class State(ModelState):
    """A node's memory: the model, and m and v of AdamW (None: 0) after this number of steps."""

    first: Params | None = None
    second: Params | None = None
    steps: int = 0


@dataclass(frozen=True, kw_only=True)
class DataParallel(Replicas):
    """Data-parallel training: all nodes take every step together, along the mean of their gradients.

    Args:
        adamw_rate: r, learning rate of AdamW on the mean gradient, with training.optimizer sgd; null: each node steps
            by training.optimizer, and models are averaged.
        beta1: weight of the previous m in the next one.
        beta2: weight of the previous v in the next one.
        weight_decay: w, relative to adamw_rate.
    """

    state_type: ClassVar[type[ModelState]] = State
    shared: ClassVar[tuple[str, ...]] = ("model", "first", "second", "steps")

    adamw_rate: Annotated[float, Gt(0)] | None = None
    beta1: Annotated[float, Ge(0), Lt(1)] = 0.9
    beta2: Annotated[float, Ge(0), Lt(1)] = 0.99
    weight_decay: Annotated[float, Ge(0)] = 0.0

    @property
    def needs_plain_sgd(self) -> bool:
        return self.adamw_rate is not None

    def unused_keys(self, rounds: int) -> Iterator[tuple[str, str]]:
        if self.adamw_rate is None:
            yield from ((key, "adamw_rate is null") for key in ("beta1", "beta2", "weight_decay"))

    def round(self, node: Node, state: State, round_num: int) -> Steps:
        self.offer(node, state, round_num)
        for rate in node.learning_rates():
            (trained,) = yield node.train((state.model,), 1, of=node.local_steps)
            mean = yield self.mean(node, trained, round_num)
            state.model = mean if self.adamw_rate is None else self._adamw(node, state, mean, rate)

    def _adamw(self, node: Node, state: State, mean: Params, rate: float) -> Params:
        """Return the model after a step; `mean` is the mean of models after a plain step with this rate."""
        values = node.trained_values(state.model)
        gradient = node.merge([values, node.trained_values(mean)], [1 / rate, -1 / rate])
        if state.first is None or state.second is None:
            state.first = state.second = node.merge([gradient], [0.0])
        state.first = node.merge([state.first, gradient], [self.beta1, 1 - self.beta1])
        state.second = node.apply(self.second_moment, state.second, gradient)
        state.steps += 1
        step = partial(self.stepped, rate=(self.adamw_rate or 0) * rate / node.learning_rate, steps=state.steps)
        return node.with_trained_values(mean, node.apply(step, values, state.first, state.second))

    def second_moment(self, v: "torch.Tensor", gradient: "torch.Tensor") -> "torch.Tensor":
        """Return the next v."""
        return self.beta2 * v + (1 - self.beta2) * gradient**2

    def stepped(
        self, x: "torch.Tensor", m: "torch.Tensor", v: "torch.Tensor", rate: float, steps: int
    ) -> "torch.Tensor":
        """Return the next x."""
        m, v = m / (1 - self.beta1**steps), v / (1 - self.beta2**steps)
        return x - rate * (m / (v.sqrt() + 1e-8) + self.weight_decay * x)

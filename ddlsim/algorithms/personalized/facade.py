"""FACADE: one shared core, several heads; a node trains and shares the head that fits its data best.

Source: Biswas, Kermarrec, Sharma, Trinca, de Vos, "Fair Decentralized Learning", SaTML 2025, Algorithm 2, and the
authors' published code, which made the paper's tables. The paper starts every node from the same k models (`init:
shared`), the code from different ones on every node. `variant` chooses between their other differences:

- the head is picked, in the paper, by its loss on the mini-batch about to be trained on (here: on one more, drawn the
  same way); in the code, on as many fresh mini-batches as there are local steps, different ones for every head.
  `common_batches` and `selection_batches` override the variant;
- the code picks on up to 100 mini-batches after each evaluation, and trains that head in the next round: it evaluates
  after the rounds 1, 41, 81, ... That interval belongs to the algorithm and is `thorough_every` here, so the run's
  evaluation interval changes nothing. `thorough_takes_time` says whether the device is charged for these choices; the
  paper reports no times.

With different batches for every head the noise of the batches hides small differences: on CIFAR-10 at 30:2 the minority
used only one head after some 100 to 700 rounds, and the majority still trained that head in two of five rounds after
1,200; compared on the same batches all nodes used only their cluster's head within 50 (docs/results/facade_cifar10.md).

Among heads of equal loss (equal heads on common batches) the choice is random, since otherwise all nodes would train
only the first one; neither published text specifies this.

Both cut the cycle train - send - receive - aggregate at the same place here (the code's: aggregation last); the paper's
listing starts with the aggregation, which is the same sequence of operations.

At evaluation a node uses the head with the lowest loss on its own training data. The published tables use the head with
the lowest loss on the test set; `evaluation_head: lowest_test_loss` does the same, and every report says so.

In `mode: async` each node leaves the warm-up separately. Until the last one has left it, heads picked by nodes after
the warm-up are merged into the common head of nodes in it, and the common head into the head that its sender has
picked.

Peers that are offline, and messages that are lost or too late, are left out of the means; a head that no sender of a
received message trained is unchanged.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from annotated_types import Ge, Le

from ddlsim.algorithms.base import GraphKind, Graphs
from ddlsim.algorithms.rounds import WithFinalAllReduce
from ddlsim.foundation.units import CountOrZero, StepCount
from ddlsim.node.candidates import SELECTION_BATCHES, Choice, EvaluationCandidates
from ddlsim.node.node import Message, Node, Params, Steps

THOROUGH_EVERY = 40
"""Rounds between two evaluations of the published CIFAR-10 runs (Imagenette: 80, Flickr-Mammals: 300)."""


@dataclass
class State:
    """A node's memory: its core, all its heads, and the head it trained last."""

    core: Params
    heads: list[Params]
    head_index: int = 0


@dataclass(frozen=True, kw_only=True)
class Facade(WithFinalAllReduce):
    """Fair learning for clusters: a shared core, a head per cluster, nodes pick their head by loss.

    Args:
        heads: number of heads, k.
        warmup_rounds: rounds in which all heads are identical and everything is shared.
        variant: `paper` or `code`, where they differ (see the module's docstring).
        evaluation_head: data whose loss picks the head that is evaluated; `lowest_test_loss` uses the test set, as
            published.
        common_batches: whether all heads are compared on the same mini-batches; null: the variant's value.
        selection_batches: number of mini-batches that pick the head to train; null: the variant's value.
        thorough_every: rounds from one choice on 100 mini-batches to the next, the first in the second round; 0: none;
            null: 40 with variant code, if selection_batches is null too, else 0.
        thorough_takes_time: whether such a choice takes its device's time, as all other choices do.
    """

    why: ClassVar[Mapping[str, str]] = {
        "variant": "the paper's Algorithm 2, which compares all heads on the same samples",
        "evaluation_head": "a node chooses with its own data; lowest_test_loss sees the test set",
        "heads": "the smallest number that can part clusters",
    }

    expects_graph: ClassVar[GraphKind] = "dynamic"
    graphs: ClassVar[Graphs] = "directed"
    may_change: ClassVar[frozenset[str]] = frozenset(
        {"warmup_rounds", "common_batches", "selection_batches", "thorough_every", "thorough_takes_time"}
    )
    needs_core: ClassVar[bool] = True
    heads: Annotated[int, Ge(1), Le(1000)] = 2
    warmup_rounds: CountOrZero = 0
    variant: Literal["paper", "code"] = "paper"
    evaluation_head: Choice = "train_loss"
    common_batches: bool | None = None
    selection_batches: StepCount | None = None
    thorough_every: CountOrZero | None = None
    thorough_takes_time: bool = True

    def __post_init__(self) -> None:
        if self.thorough_every is None:
            published = self.variant == "code" and self.selection_batches is None
            object.__setattr__(self, "thorough_every", THOROUGH_EVERY if published else 0)

    def unused_keys(self, rounds: int) -> Iterator[tuple[str, str]]:
        if self.heads == 1:
            for key in ("common_batches", "warmup_rounds"):
                yield key, "there is one head, and nothing to pick"
        if not self.thorough_every:
            yield "thorough_takes_time", "thorough_every is 0"

    @property
    def as_published(self) -> tuple[str, ...]:
        found = ["variant code"] if self.variant == "code" else []
        found += ["evaluation_head lowest_test_loss"] if self.evaluation_head == "lowest_test_loss" else []
        return (*found, *super().as_published)

    @property
    def labels(self) -> tuple[str, ...]:
        """Remarks on these options for every report."""
        if self.evaluation_head == "lowest_test_loss":
            return ("evaluation_head lowest_test_loss: the evaluated head was picked on the test set, as published",)
        return ()

    @property
    def needs_validation(self) -> tuple[str, ...]:
        return ("evaluation_head",) if self.evaluation_head == "validation_loss" else ()

    def start(self, node: Node) -> State:
        models = node.init_models(self.heads)
        core, first_head = models[0]
        heads = [first_head] * self.heads if self.warmup_rounds else [head for _, head in models]
        return State(core, heads)

    def round(self, node: Node, state: State, round_num: int) -> Steps:
        warming_up = round_num < self.warmup_rounds
        thorough = self._is_thorough(round_num)
        losses = yield node.losses(
            [(state.core, head) for head in state.heads],
            SELECTION_BATCHES if thorough else self._batches(node),
            common=self.variant == "paper" if self.common_batches is None else self.common_batches,
            takes_time=self.thorough_takes_time or not thorough,
        )
        chosen = state.head_index = _lowest(losses, node)
        state.core, state.heads[chosen] = yield node.train((state.core, state.heads[chosen]))
        if warming_up:
            state.heads = [state.heads[chosen]] * self.heads
        head = {chosen: state.heads[chosen]}
        node.send(node.peers(round_num), round_num, core=state.core, heads=head, head_index=chosen)
        inbox = yield node.receive(round_num)
        self._aggregate(node, state, inbox, warming_up)
        node.record("head", chosen, round_num)

    def final_contents(self, state: State) -> dict[str, Any]:
        """Return the core, and the head that the node trained last."""
        chosen = state.head_index
        return {"core": state.core, "heads": {chosen: state.heads[chosen]}, "head_index": chosen}

    def merge_final(self, node: Node, state: State, inbox: Sequence[Message]) -> None:
        """Merge by the rules of a round after the warm-up."""
        self._aggregate(node, state, inbox, warming_up=False)

    def serving(self, node: Node, state: State) -> EvaluationCandidates:
        return EvaluationCandidates([(state.core, head) for head in state.heads], self.evaluation_head)

    def _is_thorough(self, round_num: int) -> bool:
        """Whether the round's head is picked on 100 mini-batches: in rounds 1, 1 + thorough_every, ..., from 0."""
        every = self.thorough_every or 0
        return every > 0 and round_num > 0 and round_num % every == 1 % every

    def _batches(self, node: Node) -> int:
        """Number of mini-batches that pick the head in all other rounds."""
        if self.selection_batches is not None:
            return self.selection_batches
        return 1 if self.variant == "paper" else node.local_steps

    def _aggregate(self, node: Node, state: State, inbox: Sequence[Message], warming_up: bool) -> None:
        """Average by equations 3 and 4: cores over all nodes; head c over nodes that trained head c, and always the
        node's own head c.
        """
        state.core = node.average(state.core, {m.src: m.payload["core"] for m in inbox})
        if warming_up:
            received = {m.src: m.payload["heads"][m.payload["head_index"]] for m in inbox}
            state.heads = [node.average(state.heads[0], received)] * self.heads
            return
        for index, head in enumerate(state.heads):
            same = {m.src: m.payload["heads"][index] for m in inbox if m.payload["head_index"] == index}
            state.heads[index] = node.average(head, same)


def _lowest(losses: Sequence[float], node: Node) -> int:
    """Return the head of lowest loss; among equal losses, any. NaN (a model that diverged) is the worst."""
    known = [loss if loss < math.inf else math.inf for loss in losses]
    lowest = min(known)
    best = [head for head, loss in enumerate(known) if loss == lowest]
    return best[0] if len(best) == 1 else int(node.rng("equal heads").choice(best))

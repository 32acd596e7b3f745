"""FedClassAvg: heads averaged by a server, contrast among two views of images, and a pull towards the mean head.

Source: Jang, Ha, Jung, Yoon, "FedClassAvg: Local representation learning for personalized federated learning on
heterogeneous neural networks", ICPP 2022, as MAPL's code runs it (Mukherjee, 2023): supervised contrastive loss on the
features of both views, cross-entropy on the first, and proximal / 2 times the mean squared distance of the head's
tensors from those of the round's start. Plain mean of the heads; tested with the head trained last.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from annotated_types import Ge, Gt

from ddlsim.engine.evaluation import Serving
from ddlsim.learning.objective import LocalStep, Objective

if TYPE_CHECKING:
    import torch

    from ddlsim.engine.node import Node
    from ddlsim.engine.simulation import Steps
    from ddlsim.learning.kinds import Model


@dataclass
class State:
    """A node's memory: the model it goes on with, and the one that it trained last; the server has none."""

    model: "Model | None"
    trained: "Model | None"


@dataclass(frozen=True, kw_only=True)
class FedClassAvg:
    """Heads averaged by a server, representations learned by contrast.

    Args:
        variant: of the contrastive loss, see learning/losses.py.
        temperature: of the contrastive loss; published with MAPL: 100.
        contrastive: its weight.
        proximal: weight of the distance from the head at the round's start.
    """

    has_server: ClassVar[bool] = True
    variant: Literal["code", "thesis"] = "code"
    temperature: Annotated[float, Gt(0)] = 100.0
    contrastive: Annotated[float, Ge(0)] = 1.0
    proximal: Annotated[float, Ge(0)] = 0.1

    def start(self, node: "Node") -> State:
        if node.is_server:
            return State(None, None)
        (model,) = node.init_models()
        return State(model, model)

    def round(self, node: "Node", state: State, round_num: int) -> "Steps":
        if node.is_server:
            inbox = yield node.receive(round_num)
            if inbox:
                mean = node.merge([m.payload["head"] for m in inbox], [1 / len(inbox)] * len(inbox))
                node.send([m.src for m in inbox], round_num, head=mean)
            return
        objective = Objective(self.local_loss, views=2, keeps_start=True)
        core, head = state.trained = yield node.train(state.model, objective=objective)
        node.send(node.peers(round_num), round_num, head=head)
        inbox = yield node.receive(round_num)
        for message in inbox:
            head = message.payload["head"]
        state.model = core, head

    def serving(self, node: "Node", state: State) -> Serving | None:
        return None if node.is_server else Serving([state.trained])

    def local_loss(self, step: LocalStep) -> "torch.Tensor":
        """Contrast on features, cross-entropy of the first view, distance of the head from where it started."""
        from torch.nn import functional as F

        from ddlsim.learning import losses

        features = step.module.core(step.images)
        first = slice(step.batch_size)
        loss = F.cross_entropy(step.module.head(features[first]), step.labels[first])
        loss = loss + self.contrastive * losses.supervised_contrastive(
            features, step.labels, self.temperature, self.variant
        )
        names, now = zip(*step.module.head.named_parameters(prefix="head"), strict=True)
        return loss + self.proximal / 2 * losses.proximity(now, [step.start[name] for name in names])

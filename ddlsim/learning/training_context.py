"""Context of a training: its place in the run, and terms that the algorithm adds to the loss and its gradient."""

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ddlsim.learning.bank import Params


class TrainingContext(NamedTuple):
    """Place of a training in the run, and the algorithm's additions to its gradients.

    Args:
        round_num: the round, from 0.
        rounds: of the run.
        steps: mini-batches that this node trains on in the whole run, all its trainings together.
        proximal: mu of a proximal term, in addition to that of the scenario.
        control: row added to every gradient, over the trained values of a whole model; None if nothing is added.
    """

    round_num: int = 0
    rounds: int = 1
    steps: int = 1
    proximal: float = 0.0
    control: "Params | None" = None

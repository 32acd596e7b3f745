"""Attacks on the network: sending too much, and sending nothing or late."""

from dataclasses import dataclass
from typing import Annotated

from annotated_types import Ge, Gt, Le, Lt

from ddlsim.attacks.base import Attack
from ddlsim.units import END_OF_TIME_S


@dataclass(frozen=True, kw_only=True)
class Flooding(Attack):
    """Sends junk beside every message, which fills links and is of no use; its bytes count as wasted.

    Args:
        factor: bytes of junk per byte of a message.
    """

    factor: Annotated[float, Gt(0), Le(1e6)] = 10.0

    @property
    def needs_messages(self) -> bool:
        return True


@dataclass(frozen=True, kw_only=True)
class Withholding(Attack):
    """Keeps messages back, or sends them late. Attacked nodes hold nothing back from each other.

    What is held back counts as lost on its way: its receiver stops waiting at once, or with protocol.deadline_s then.

    Args:
        probability: chance that a message to an honest node is never sent.
        delay_s: simulated seconds that the node takes longer for every training, after which it sends.
    """

    def futile(self, attacked: int, num_nodes: int) -> str:
        """See Attack."""
        return "" if self.probability or self.delay_s else "probability and delay_s are 0"

    probability: Annotated[float, Ge(0), Le(1)] = 1.0
    delay_s: Annotated[float, Ge(0), Lt(END_OF_TIME_S)] = 0.0

    @property
    def needs_messages(self) -> bool:
        return not self.delay_s

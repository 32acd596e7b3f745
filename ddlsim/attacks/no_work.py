"""Attacks of nodes that do not train: free riders, and sybils, which are one node under several identities.

Sources: Lin, Du, Liu, "Free-riders in federated learning: attacks and defenses", 2019; Douceur, "The Sybil attack",
IPTPS 2002, and Fung, Yoon, Beschastnikh, "The limitations of federated learning in sybil settings", RAID 2020. They
take the time that training would take, so nothing gives them away by it.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from ddlsim.attacks.base import Attack, Seen
from ddlsim.attacks.own_rows import noise_like

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, kw_only=True)
class FreeRider(Attack):
    """Does not train, and sends what it has all the same.

    Where an algorithm needs what training finds out beside the model (class means), it trains.

    Args:
        send: stale: what it has got from others, as it is; random: numbers of the same spread.
    """

    forges: ClassVar[bool] = True
    trains: ClassVar[bool] = False
    send: Literal["stale", "random"] = "stale"

    def forge(self, seen: Seen) -> "torch.Tensor":
        return seen.own if self.send == "stale" else noise_like(seen, 1.0)


@dataclass(frozen=True, kw_only=True)
class Sybil(Attack):
    """Identities of one node: all send what the first of them (the lowest id) has sent last, after its other attacks.

    Only the first one trains.
    """

    forges: ClassVar[bool] = True
    trains: ClassVar[bool] = False

    def futile(self, attacked: int, num_nodes: int) -> str:
        """See Attack."""
        return "one node is one identity" if attacked == 1 else ""

    def forge(self, seen: Seen) -> "torch.Tensor":
        return seen.known[0]

"""A model that is only a size, for network-only runs (`learning: none`)."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

from annotated_types import Ge, Lt

from ddlsim.models.base import ModelSettings


@dataclass(frozen=True, kw_only=True)
class Sizes(ModelSettings):
    """No model, only how large it is; for `learning: none`.

    Args:
        core: number of float32 values of the core, 4 bytes each on the wire.
        head: number of float32 values of the head.
    """

    core: Annotated[int, Ge(0), Lt(2**40)] = 79_584
    head: Annotated[int, Ge(0), Lt(2**40)] = 10_250

    only_size: ClassVar[bool] = True

    @property
    def has_core(self) -> bool:
        """Whether anything comes before the head."""
        return self.core > 0

    def part_sizes(self) -> dict[str, int]:
        """Number of float32 values per part."""
        return {"core": self.core, "head": self.head}

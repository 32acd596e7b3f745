"""What a report shows beside the records: found by the commands that know scenarios and matrices."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Context:
    """Facts from outside of a run's directory.

    Args:
        defaults: dotted key of the scenario -> its default, of those keys that have one.
        explained: whether `defaults` is known at all.
    """

    defaults: Mapping[str, Any] = field(default_factory=dict)
    explained: bool = False

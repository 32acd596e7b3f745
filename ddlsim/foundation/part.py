"""What every named part of a scenario is: a frozen dataclass whose fields are its YAML keys."""

from collections.abc import Iterator, Mapping
from typing import ClassVar

Problem = tuple[tuple[str | int, ...], str]
"""Path of a key inside the part, and what is wrong with it."""


class Part:
    """Base of the contracts of algorithms, models, data sets, partitions, shifts, topologies, links, devices, churn."""

    needs_classes: ClassVar[bool] = False
    """Whether it works on class labels; regressions are refused then."""

    why: ClassVar[Mapping[str, str]] = {}
    """Key -> why its default is what it is, where it can change a published number (docs/defaults.md)."""

    def problems(self, num_nodes: int, seed: int) -> Iterator[Problem]:
        """What does not fit this many nodes, found without data. Raising ScenarioError, which may begin with the dotted
        path of the key to blame, tells a single problem. Default: nothing.
        """
        return iter(())

    def idle(self, rounds: int) -> Iterator[tuple[str, str]]:
        """Keys that do nothing beside the values of its others, in a run of so many rounds, and why; told where they
        are given. Default: none.
        """
        return iter(())

"""Whether parameters fit each other, with errors that name the architectures and the nodes that have them."""

from collections.abc import Sequence

from ddlsim.errors import DdlsimError
from ddlsim.learning.job_types import Model
from ddlsim.learning.layout import Entry, Part


class Fitting:
    """The checks of one run.

    Args:
        assigned: per node the name of its architecture; None: all have the only one.
    """

    def __init__(self, assigned: Sequence[str] | None):
        self._assigned = assigned

    def check_merge(self, parts: Sequence[Part]) -> None:
        """Whether parts can be merged.

        Raises:
            DdlsimError: if their shapes differ.
        """
        first = parts[0]
        for part in parts[1:]:
            if part.signature != first.signature:
                raise DdlsimError(
                    f"cannot merge the {part.name} of {self._whose(part)} ({part.size} values) into "
                    f"the {first.name} of {self._whose(first)} ({first.size} values): their shapes differ. Merge only "
                    "what the models have in common, or give every node the same model."
                )

    def check_comparison(self, own: Model, peers: Sequence[Model]) -> None:
        """Whether models can be compared.

        Raises:
            DdlsimError: if their shapes differ.
        """
        for peer in peers:
            for mine, other in zip(own, peer, strict=True):
                if mine.part.signature != other.part.signature:
                    raise DdlsimError(
                        f"cannot compare the {other.part.name} of {self._whose(other.part)} with the {mine.part.name} "
                        f"of {self._whose(mine.part)}: their shapes differ. Give every node the same model, or choose "
                        "the similarity inverse_loss and a merge of what the models have in common."
                    )

    def classifier(self, head: Part) -> Entry:
        """The weights of a head's last linear layer, which may have no bias.

        Raises:
            DdlsimError: if the head does not end in a linear layer.
        """
        last = [entry for entry in head.entries if entry.trainable][-2:]
        dimensions = [len(entry.shape) for entry in last]
        if dimensions[-1:] == [2]:
            return last[-1]
        if dimensions != [2, 1]:
            raise DdlsimError(
                f"model: the {head.name} of {self._whose(head)} does not end in a linear layer that is "
                "trained, whose rows this algorithm compares. Choose a model whose head does (mlp, resnet18, ...)."
            )
        return last[0]

    def _whose(self, part: Part) -> str:
        """An architecture's name, with the nodes that have it where nodes differ."""
        if not self._assigned:
            return part.architecture
        nodes = [str(node) for node, name in enumerate(self._assigned) if name == part.architecture]
        listed = ", ".join(nodes[:8]) + (", ..." if len(nodes) > 8 else "")
        return f"{part.architecture} (node{'s' * (len(nodes) != 1)} {listed})"

"""The training samples of all nodes on a device, from which one gather makes a batch for every node of a wave."""

from collections import defaultdict
from collections.abc import Callable, Sequence

import numpy as np
import torch

from ddlsim.kernels.matrices import uploaded
from ddlsim.learning.datasets import ByteInputs, Inputs, MappedInputs, Samples

Gathered = tuple[torch.Tensor, torch.Tensor]
"""Images and labels."""


class SamplePool:
    """The training samples of all nodes in one tensor, so that one gather makes a batch for every node of a wave.

    Nodes whose samples differ in shape or type (data of several domains), or are in a file, have separate pools.

    Args:
        samples: per node images [n, C, H, W] and labels [n], on one device; replaced by views.

    Attributes:
        pool_of: per node the number of its pool.
        kind_of: per node shape and type of an image, and of a label.
    """

    def __init__(self, samples: list[Samples]):
        alike: dict[tuple, list[int]] = defaultdict(list)
        self.kind_of: list[tuple] = []
        for node, (images, labels) in enumerate(samples):
            own = node if isinstance(images, MappedInputs) else isinstance(images, ByteInputs) and id(images.stored)
            self.kind_of.append((images.shape[1:], images.dtype, labels.shape[1:], labels.dtype))
            alike[*self.kind_of[-1], own].append(node)
        self.pool_of = [0] * len(samples)
        self._first = np.zeros(len(samples), dtype=np.int64)
        self._pools: list[Samples] = []
        for nodes in alike.values():
            images, labels = (
                _joined([samples[node][0] for node in nodes]),
                torch.cat([samples[node][1] for node in nodes]),
            )
            stop = 0
            for node in nodes:
                start, stop = stop, stop + len(samples[node][1])
                samples[node] = _part(images, start, stop), labels[start:stop]
                self.pool_of[node], self._first[node] = len(self._pools), start
            self._pools.append((images, labels))

    def rows(self, asked: Sequence[tuple[Sequence[int], np.ndarray]]) -> list[torch.Tensor]:
        """Return the rows of the pool that hold samples of its nodes, uploaded in one copy.

        Args:
            asked: n nodes, and indices of their samples, [m, n, b].

        Returns:
            Per item [m, n, b]; on the host if the samples are in a file.
        """
        found = [indices + self._first[list(nodes), None] for nodes, indices in asked]
        if not found:
            return []
        images, labels = self._pools[self.pool_of[asked[0][0][0]]]
        device = torch.device("cpu") if isinstance(images, MappedInputs) else labels.device
        flat = uploaded(np.concatenate([rows.ravel() for rows in found]), device)
        parts = flat.split([rows.size for rows in found])
        return [part.view(rows.shape) for part, rows in zip(parts, found, strict=True)]

    def gather(self, node: int, rows: torch.Tensor) -> Gathered:
        """Gather images [..., C, H, W] and labels [...] from rows [...] of the pool that holds a node's samples."""
        flat = rows.reshape(-1)
        images, labels = self._pools[self.pool_of[node]]
        places = uploaded(flat, labels.device) if isinstance(images, MappedInputs) else flat
        found = images.index_select(0, flat), labels.index_select(0, places)
        return found[0].unflatten(0, rows.shape), found[1].unflatten(0, rows.shape)

    def look(self, nodes: Sequence[int], indices: Sequence[np.ndarray]) -> Callable[[slice], Gathered]:
        """Return a function of a range of n samples of each of some nodes, which gathers images [N, n, ...] and labels.

        Args:
            nodes: N of them, whose samples have one shape and type.
            indices: per node as many samples.
        """
        of_pool: dict[int, list[int]] = defaultdict(list)
        for place, node in enumerate(nodes):
            of_pool[self.pool_of[node]].append(place)
        pools = list(of_pool.values())
        asked = [([nodes[i] for i in own], np.stack([indices[i] for i in own])) for own in pools]
        rows = self.rows(asked)
        order = np.argsort(np.concatenate(pools))

        def samples(part: slice) -> Gathered:
            found = [self.gather(nodes[own[0]], places[:, part]) for own, places in zip(pools, rows, strict=True)]
            if len(found) == 1:
                return found[0]
            images, labels = (torch.cat(each) for each in zip(*found, strict=True))
            places = uploaded(order, labels.device)
            return images[places], labels[places]

        return samples


def _joined(pieces: Sequence[Inputs]) -> Inputs:
    """The samples of nodes of one pool, node after node."""
    if isinstance(pieces[0], MappedInputs):
        return pieces[0]
    of_bytes = [piece for piece in pieces if isinstance(piece, ByteInputs)]
    tensors = [piece for piece in pieces if isinstance(piece, torch.Tensor)]
    return ByteInputs.joined(of_bytes) if of_bytes else torch.cat(tensors)


def _part(images: Inputs, start: int, stop: int) -> Inputs:
    if isinstance(images, MappedInputs):
        return images
    return images.part(start, stop) if isinstance(images, ByteInputs) else images[start:stop]

"""Python's cyclic garbage collector, tuned to the size of a simulation.

A run of a hundred thousand nodes holds millions of objects until it ends. Searching them as often as usual (every 700
new objects) would cost as much as the run itself. Parameters and messages do not depend on the
search: they are freed with their last reference.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

YOUNG_OBJECTS = 20_000
OBJECTS_PER_NODE = 200
"""Approximate number of objects that a training node creates in a round and frees when its jobs have run."""
MOST_OBJECTS = 2_000_000
MOST_OBJECTS_PER_NODE = 20
"""Objects per node of runs with more than 10,000 nodes."""
MANY_NODES = 1000
"""Number of nodes below which searching costs less than freezing existing objects."""


def free_earlier_runs(num_nodes: int) -> None:
    """Free the objects of this process's earlier runs, before a simulation of this size is built: later the search
    would take longer, and during the run `relaxed_gc` searches no older objects.
    """
    if num_nodes >= MANY_NODES:
        gc.collect()


@contextmanager
def relaxed_gc(num_nodes: int) -> Iterator[None]:
    """Search new objects less often; with many nodes, do not search existing objects again.

    A disabled collector remains disabled.

    Args:
        num_nodes: number of nodes of the simulation that runs inside.
    """
    before = gc.get_threshold()
    freeze = num_nodes >= MANY_NODES
    if freeze:
        gc.freeze()
    many = max(min(OBJECTS_PER_NODE * num_nodes, MOST_OBJECTS), MOST_OBJECTS_PER_NODE * num_nodes)
    young = max(before[0], YOUNG_OBJECTS, many)
    gc.set_threshold(young if before[0] else 0, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
        if freeze:
            gc.unfreeze()

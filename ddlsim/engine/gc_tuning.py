"""Python's cyclic garbage collector, tuned to the size of a simulation.

A run of a hundred thousand nodes holds millions of objects that live as long as it does. A search through them at the
usual pace (every 700 new objects) would cost as much as the run itself. Parameters and messages do not depend on the
search: they are freed with their last reference.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

YOUNG_OBJECTS = 20_000
OBJECTS_PER_NODE = 200
"""About what a node that trains makes in a round and lets go of when its jobs have run."""
MOST_OBJECTS = 2_000_000
MOST_OBJECTS_PER_NODE = 20
"""Of more nodes than 10,000."""
MANY_NODES = 1000
"""Below, searching costs less than freezing what is there already."""


def free_earlier_runs(num_nodes: int) -> None:
    """Frees what earlier runs of this process have left behind, before objects of this size are made: afterwards the
    search would take longer, and while they are in use `relaxed_gc` has nothing searched that is older.
    """
    if num_nodes >= MANY_NODES:
        gc.collect()


@contextmanager
def relaxed_gc(num_nodes: int) -> Iterator[None]:
    """Searches new objects only after so many; with many nodes, does not search again through what is there already.

    A collector that is switched off stays so.

    Args:
        num_nodes: size of the simulation that runs inside.
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

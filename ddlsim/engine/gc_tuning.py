"""Python's cyclic garbage collector, told how large a simulation is.

A run of a hundred thousand nodes holds millions of objects that live as long as it does. Searched through at the usual
pace (every 700 new objects) they cost as much as the run itself. Parameters and messages do not depend on the search:
they go with their last reference.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

OBJECTS_PER_NODE = 20
MANY_NODES = 1000
"""Below, the search costs less than what it takes to leave the present objects alone."""


@contextmanager
def searching_rarely(num_nodes: int) -> Iterator[None]:
    """With many nodes: leaves alone what is there already, and searches what is new after some objects per node."""
    if num_nodes < MANY_NODES:
        yield
        return
    before = gc.get_threshold()
    gc.collect()  # what earlier runs of this process have left behind would stay for ever otherwise
    gc.freeze()
    gc.set_threshold(max(before[0], OBJECTS_PER_NODE * num_nodes), *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()

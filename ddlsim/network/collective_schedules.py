"""Schedules of collective operations: the flows between the members of a group, step by step.

A schedule is a list of steps, and a step a list of flows (sender, receiver, bytes). Members are numbered 0 .. n-1. A
flow starts when all flows of earlier steps from and to its two ends have arrived. On links of equal bandwidth B and
latency L, a content of M bytes takes (tests check each line):

=================  ==================================  ==================================================
all_reduce         ring                                2 (n-1) (M / n / B + L)
                   direct                              2 ((n-1) M / n / B + L)
                   halving_doubling, n = 2^k           2 (n-1) M / n / B + 2 k L
                   halving_doubling, other n           2 (p-1) M / p / B + 2 k L + 2 (M / B + L), p = 2^k < n
                   tree                                2 ceil(log2 n) (M / B + L)
                   server                              2 ((n-1) M / B + L)
reduce_scatter     ring                                (n-1) (M / n / B + L)
                   direct                              (n-1) M / n / B + L
all_gather         ring, M from each member            (n-1) (M / B + L)
                   direct                              (n-1) M / B + L
broadcast          tree                                ceil(log2 n) (M / B + L)
                   ring                                (n-1) M / n / B + L + (n-1) (M / n / B + L)
                   direct                              (n-1) M / B + L
=================  ==================================  ==================================================

Sources: ring: Patarasuk, Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations" (JPDC 2009).
Trees, halving and doubling, scatter before a broadcast: Thakur, Rabenseifner, Gropp, "Optimization of collective
communication operations in MPICH" (IJHPCA 2005). `direct` is the butterfly of Ryabinin et al., "Moshpit SGD" (NeurIPS
2021): each member reduces one part. `hierarchical` reduces to the first member of each site, then in a ring of the
first members, and broadcasts in the sites.
"""

from collections.abc import Callable, Sequence
from itertools import chain, zip_longest

Flow = tuple[int, int, int]
"""Sender, receiver, bytes."""

Schedule = list[list[Flow]]

Sites = Sequence[Sequence[int]]
"""Members of each site."""


def parts(num_bytes: int, count: int) -> list[int]:
    """Divide bytes into `count` parts that differ by at most one."""
    return [num_bytes * (i + 1) // count - num_bytes * i // count for i in range(count)]


def ring_reduce_scatter(sizes: Sequence[int]) -> Schedule:
    """Pass the sums of parts of these sizes around the ring; member i ends with part i."""
    n = len(sizes)
    return [[(i, (i + 1) % n, sizes[(i - step - 1) % n]) for i in range(n)] for step in range(n - 1)]


def ring_all_gather(sizes: Sequence[int]) -> Schedule:
    """Pass parts of these sizes around the ring; member i starts with part i, and all members end with all parts."""
    n = len(sizes)
    return [[(i, (i + 1) % n, sizes[(i - step) % n]) for i in range(n)] for step in range(n - 1)]


def direct_reduce_scatter(sizes: Sequence[int]) -> Schedule:
    """Send part j to member j."""
    members = range(len(sizes))
    return [[(i, j, sizes[j]) for i in members for j in members if i != j]]


def direct_all_gather(sizes: Sequence[int]) -> Schedule:
    """Send part i from member i to all others."""
    members = range(len(sizes))
    return [[(i, j, sizes[i]) for i in members for j in members if i != j]]


def tree_broadcast(n: int, num_bytes: int) -> Schedule:
    """Send from member 0 along a binomial tree: in each step, every member with the content sends it to another."""
    reach = [1 << k for k in range((n - 1).bit_length())]
    return [[(i, i + far, num_bytes) for i in range(far) if i + far < n] for far in reach]


def to_first(n: int, num_bytes: int) -> Schedule:
    """Send from all other members to member 0."""
    return [[(i, 0, num_bytes) for i in range(1, n)]]


def reverse(schedule: Schedule) -> Schedule:
    """Return the schedule backwards: a broadcast becomes a reduction."""
    return [[(dst, src, num_bytes) for src, dst, num_bytes in step] for step in reversed(schedule)]


def and_back(schedule: Schedule) -> Schedule:
    """Return a reduction and then, backwards, the broadcast of its result."""
    return schedule + reverse(schedule)


def halving_doubling(n: int, num_bytes: int) -> Schedule:
    """Reduce by recursive halving, gather by recursive doubling; members above the largest power of two first send to
    a member below it, and receive the result last.
    """
    p = 1 << (n.bit_length() - 1)
    sizes = parts(num_bytes, p)
    halving = []
    for far in (p >> k for k in range(1, p.bit_length())):
        blocks = [sum(sizes[start : start + far]) for start in range(0, p, far)]
        halving.append([(i, i ^ far, blocks[(i ^ far) // far]) for i in range(p)])
    outside = [[(i, i - p, num_bytes) for i in range(p, n)]] if n > p else []
    return and_back(outside + halving)


def hierarchical(num_bytes: int, sites: Sites) -> Schedule:
    """Reduce in each site by a tree, between the first members by a ring, then broadcast in each site by a tree."""
    down = _at_once([_among(site, tree_broadcast(len(site), num_bytes)) for site in sites])
    between = _among([site[0] for site in sites], all_reduce["ring"](len(sites), num_bytes, ()))
    return reverse(down) + between + down


def _among(members: Sequence[int], schedule: Schedule) -> Schedule:
    """Return the schedule with these members instead of 0, 1, ..."""
    return [[(members[src], members[dst], num_bytes) for src, dst, num_bytes in step] for step in schedule]


def _at_once(schedules: Sequence[Schedule]) -> Schedule:
    """Return one schedule that runs all of them at the same time."""
    return [list(chain.from_iterable(steps)) for steps in zip_longest(*schedules, fillvalue=())]


MakeSchedule = Callable[[int, int, Sites], Schedule]
"""Members, bytes of a content, sites -> schedule."""


def _ring(n: int, num_bytes: int, _: Sites) -> Schedule:
    sizes = parts(num_bytes, n)
    return ring_reduce_scatter(sizes) + ring_all_gather(sizes)


def _direct(n: int, num_bytes: int, _: Sites) -> Schedule:
    sizes = parts(num_bytes, n)
    return direct_reduce_scatter(sizes) + direct_all_gather(sizes)


def _ring_broadcast(n: int, num_bytes: int, _: Sites) -> Schedule:
    sizes = parts(num_bytes, n)
    return [[(0, i, sizes[i]) for i in range(1, n)], *ring_all_gather(sizes)]


all_reduce: dict[str, MakeSchedule] = {
    "ring": _ring,
    "direct": _direct,
    "tree": lambda n, num_bytes, _: and_back(reverse(tree_broadcast(n, num_bytes))),
    "halving_doubling": lambda n, num_bytes, _: halving_doubling(n, num_bytes),
    "server": lambda n, num_bytes, _: and_back(to_first(n, num_bytes)),
    "hierarchical": lambda _, num_bytes, sites: hierarchical(num_bytes, sites),
}

SCHEDULES: dict[str, dict[str, MakeSchedule]] = {
    "all_reduce": all_reduce,
    "reduce_scatter": {
        "ring": lambda n, num_bytes, _: ring_reduce_scatter(parts(num_bytes, n)),
        "direct": lambda n, num_bytes, _: direct_reduce_scatter(parts(num_bytes, n)),
    },
    "all_gather": {
        "ring": lambda n, num_bytes, _: ring_all_gather([num_bytes] * n),
        "direct": lambda n, num_bytes, _: direct_all_gather([num_bytes] * n),
    },
    "broadcast": {
        "tree": lambda n, num_bytes, _: tree_broadcast(n, num_bytes),
        "ring": _ring_broadcast,
        "direct": lambda n, num_bytes, _: reverse(to_first(n, num_bytes)),
    },
}
"""Verb -> algorithm -> its schedule."""

"""Named random streams: equal for equal names, independent otherwise."""

import numpy as np

from ddlsim.devices.step_times import LogNormal
from ddlsim.foundation.rng import dealt, stream, stream_seed


def test_same_name_gives_the_same_numbers():
    assert (stream(1, "batches", 3).random(5) == stream(1, "batches", 3).random(5)).all()


def test_seed_purpose_and_index_each_change_the_numbers():
    names = [(0, "batches", 1), (1, "batches", 1), (0, "peers", 1), (0, "batches", 2), (0, "batches", 1, 2)]
    assert len({float(stream(*name).random()) for name in names}) == len(names)


def test_drawing_from_one_stream_shifts_no_other():
    expected = stream(0, "batches", 2).random()
    stream(0, "batches", 1).random(1000)
    assert stream(0, "batches", 2).random() == expected


def test_adding_a_node_changes_no_other_device():
    few, many = LogNormal().draw(4, seed=0), LogNormal().draw(9, seed=0)
    assert (few == many[:4]).all()
    assert len(np.unique(many)) == 9


def test_integer_seeds_fit_libraries():
    seeds = {stream_seed(0, "init", node) for node in range(100)}
    assert len(seeds) == 100 and all(0 <= seed < 2**63 for seed in seeds)


def test_numbers_repeat_only_after_all_are_dealt():
    found = dealt(stream(0, "dealt"), 3, 8)
    assert sorted(found[:3]) == sorted(found[3:6]) == [0, 1, 2]
    assert len(found) == 8 and len(set(found[6:])) == 2

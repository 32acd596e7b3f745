"""Rows of a bank, read and written together, and the growth of its blocks."""

import numpy as np
import pytest
import torch
from counted_operators import CountedOperators

from ddlsim.aggregation import AGGREGATIONS
from ddlsim.kernels import row_blocks
from ddlsim.kernels.row_blocks import RowBlocks
from ddlsim.learning.backends.row_arithmetic import RowArithmetic
from ddlsim.learning.bank import ROWS_KEPT, Rows, stacked_rows, store_rows
from ddlsim.learning.job_types import AggregateSpec, ClassCosineSpec, ConsensusSpec, MergeSpec, SimilaritySpec
from ddlsim.learning.layout import Entry, Part

PART = Part("net", "core", (Entry("weight", (3,), 0, 3, True),))


@pytest.fixture
def filled():
    """Make handles to rows of 1, 1, 1; 2, 2, 2; ..."""
    rows = Rows(torch.device("cpu"))
    return lambda count: [rows.store(PART, torch.full((3,), float(number))) for number in range(1, count + 1)]


def test_rows_are_stacked_in_the_requested_order(filled):
    held = filled(40)
    found = stacked_rows([held[place].row for place in (30, 2, 2)])
    assert found.tolist() == [[31.0] * 3, [3.0] * 3, [3.0] * 3]
    found += 1
    assert held[2].values().tolist() == [3.0] * 3


def test_unreferenced_row_is_not_stored(filled):
    held = filled(4)
    store_rows([held[3].row, None, held[0].row], torch.tensor([[7.0] * 3, [8.0] * 3, [9.0] * 3]))
    assert [params.values()[0].item() for params in held] == [9.0, 2.0, 3.0, 7.0]
    store_rows([None, None], torch.zeros(2, 3))
    assert [params.values()[0].item() for params in held] == [9.0, 2.0, 3.0, 7.0]


def test_the_number_of_rows_does_not_change_the_number_of_operators(filled):
    counts = set()
    for number in (2, 200):
        held = filled(number)
        rows = [params.row for params in held]
        with CountedOperators() as operators:
            store_rows(rows, 2 * stacked_rows(rows))
        counts.add(operators.found.total())
        assert held[-1].values().tolist() == [2.0 * number] * 3
    assert len(counts) == 1


def test_a_repeated_wave_keeps_its_places(filled):
    (params,) = filled(1)
    place = params.row.slot
    assert params.row.allocate() == place and params.row.bank._num_allocated - len(params.row.bank._free) == 1


ROW_BYTES = 64
LARGE = 2**20


@pytest.fixture
def small_blocks(monkeypatch):
    """Let blocks grow by copying up to two rows of a cache line only."""
    monkeypatch.setattr(RowBlocks, "INITIAL_ROWS", 1)
    monkeypatch.setattr(RowBlocks, "COPIED_BYTES", 2 * ROW_BYTES)


@pytest.fixture
def many_blocks(small_blocks, monkeypatch):
    """Add blocks of two rows, as on a GPU, and merge five columns at a time."""
    monkeypatch.setattr(row_blocks, "HOST_BYTES", 0)
    monkeypatch.setattr(RowBlocks, "PIECE_VALUES", 60)


def test_added_blocks_move_no_row(filled, many_blocks):
    held = filled(2)
    blocks = held[0].row.bank.blocks
    address = blocks[0].data_ptr()
    held += [held[0].row.bank.allocate() for _ in range(5)]
    assert [len(block) for block in blocks] == [2, 2, 2, 2] and blocks[0].data_ptr() == address
    assert [held[number].values().tolist() for number in (0, 1)] == [[1.0] * 3, [2.0] * 3]


def test_host_matrix_moves_once_to_where_the_memory_of_the_machine_fits(small_blocks, monkeypatch):
    monkeypatch.setattr(row_blocks, "HOST_BYTES", 4 * LARGE * 100)
    rows = RowBlocks(LARGE - 16, torch.device("cpu"))
    addresses = set()
    for place in range(101):
        assert rows.allocate() == place
        addresses.add(rows.blocks[0].data_ptr())
    assert len(addresses) == 2 and [len(block) for block in rows.blocks] == [100, 100]


def test_blocks_are_added_if_the_host_cannot_reserve_its_memory(small_blocks, monkeypatch):
    monkeypatch.setattr(row_blocks, "HOST_BYTES", 2**60)
    rows = RowBlocks(3, torch.device("cpu"))
    assert [rows.allocate() for _ in range(5)] == list(range(5))
    assert [len(block) for block in rows.blocks] == [2, 2, 2]


def test_freed_places_are_used_again(many_blocks):
    rows = RowBlocks(3, torch.device("cpu"))
    for _ in range(7):
        rows.allocate()
    rows.free(1)
    rows.free(6)
    assert rows._num_allocated - len(rows._free) == 5 and [rows.allocate() for _ in range(3)] == [6, 1, 7]


def computed_from_random_rows():
    """Return values of every job that makes a native call on several rows, and the number of blocks."""
    part = Part("net", "head", (Entry("weight", (2, 6), 0, 12, True), Entry("mean", (2,), 12, 14, False)))
    values = torch.randn(9, 14, generator=torch.Generator().manual_seed(0))
    rows, backend = Rows(torch.device("cpu")), RowArithmetic()
    held = [rows.store(part, row) for row in values]
    numbers = tuple(params.serial for params in held)
    new = {name: rows.new(part) for name in ("one", "two", "bridge", "krum", "nearest_neighbor_mixing")}

    def run(spec):
        return backend.run(spec.kind, [spec.bound(rows)])

    merges = [
        MergeSpec(sources=numbers, weights=tuple(np.linspace(0.05, 0.2, 9)), target=new["one"].serial),
        MergeSpec(sources=(7, 1, 7), weights=(0.1, 0.3, 0.6), target=new["two"].serial),
    ]
    backend.run(MergeSpec.kind, [spec.bound(rows) for spec in merges])
    for name in ("bridge", "krum", "nearest_neighbor_mixing"):
        rule, target = AGGREGATIONS[name](), new[name].serial
        keys = {"weights": (1 / 9,) * 9, "own": 4, "start": None}
        run(AggregateSpec(rule=rule, sources=numbers, target=target, **keys))
    peers = tuple((number,) for number in (8, 2, 5))
    one = {"own": (0,), "peers": peers, "start": (3,), "own_last": (1,), "peers_last": ((1,), (3,), (7,)), "alpha": 0.3}
    answers = [run(SimilaritySpec(metric=metric, **one)) for metric in ("cosine_gradients", "inverse_l2")]
    answers.append(run(ClassCosineSpec(own=0, others=(8, 3), num_classes=2)))
    answers.append(run(ConsensusSpec(sources=numbers)))
    bank = held[0].row.bank
    return {name: params.values().tolist() for name, params in new.items()}, answers, len(bank.blocks)


def test_results_across_blocks_are_equal_in_all_bits(request):
    *expected, alone = computed_from_random_rows()
    request.getfixturevalue("many_blocks")
    *found, count = computed_from_random_rows()
    assert found == expected and (alone, count) == (1, 7)


def test_numbers_of_freed_rows_are_forgotten():
    rows = Rows(torch.device("cpu"))
    first = rows.new(PART)
    for _ in range(3 * ROWS_KEPT):
        last = rows.new(PART)
    assert rows.held() == [first.row, last.row] and rows[0] is first.row
    assert rows.get(1) is None and len(rows._rows) <= 2 * ROWS_KEPT

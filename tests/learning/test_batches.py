"""The samples of a local step."""

import numpy as np
import pytest

from ddlsim.learning.training_inputs import Batches, batches_in_order, draw_batches


def test_pass_contains_every_sample_once():
    batches = draw_batches(np.random.default_rng(0), 10, 4, 5)
    assert batches.sizes == [4, 4, 2, 4, 4]
    assert sorted(np.concatenate(batches[:3])) == list(range(10))
    assert len(set(np.concatenate(batches[3:]))) == 8
    np.testing.assert_array_equal(batches.rows, np.concatenate(batches))


def test_a_smaller_last_batch_is_left_out_on_request():
    batches = draw_batches(np.random.default_rng(0), 10, 4, 3, drop_last=True)
    assert batches.sizes == [4, 4, 4]
    assert draw_batches(np.random.default_rng(0), 3, 4, 2, drop_last=True).sizes == [3, 3]


def test_ordered_batches_equal_a_loader_without_shuffle():
    assert [batch.tolist() for batch in batches_in_order(7, 3, 3)] == [[0, 1, 2], [3, 4, 5], [6]]
    assert [batch.tolist() for batch in batches_in_order(7, 3, 2)] == [[0, 1, 2], [3, 4, 5]]
    assert len(batches_in_order(7, 3, 0)) == 0


def test_passes_are_the_permutations_of_the_stream():
    stream = np.random.default_rng(7)
    expected = np.concatenate([stream.permutation(6), stream.permutation(6)[:2]])
    np.testing.assert_array_equal(draw_batches(np.random.default_rng(7), 6, 2, 4).rows, expected)


def test_no_batches_draw_nothing():
    stream = np.random.default_rng(0)
    assert len(draw_batches(stream, 5, 2, 0)) == 0
    assert stream.random() == np.random.default_rng(0).random()


def test_batches_keep_only_their_rows_of_a_pass():
    batches = draw_batches(np.random.default_rng(0), 10_000, 4, 2)
    assert batches.rows.base is None and len(batches.rows) == 8


@pytest.mark.parametrize("sizes", [(3,), (2, 0, 4), ()])
def test_batches_are_read_as_a_sequence_of_arrays(sizes):
    arrays = [np.arange(size) + 10 * place for place, size in enumerate(sizes)]
    batches = Batches.of(arrays)
    assert [list(batch) for batch in batches] == [list(array) for array in arrays]
    assert [list(batches[place]) for place in range(-len(sizes), 0)] == [list(array) for array in arrays]
    assert [list(batch) for batch in batches[-2:]] == [list(array) for array in arrays[-2:]]
    assert batches.sizes == list(sizes)
    with pytest.raises(IndexError):
        batches[len(sizes)]

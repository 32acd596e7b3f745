"""Errors of the compiled module on invalid arguments, without the checks of ddlsim.kernels."""

import numpy as np
import pytest

from ddlsim.foundation import native

FIRST = np.arange(3)
NOTHING = np.zeros(0, np.int64)


def test_a_mixing_matrix_of_another_dimension_is_refused():
    with pytest.raises(ValueError, match="mixing must be 2-D, got 1-D"):
        native.extension().sparse_mixing(np.ones(3, np.float32))


def test_reference_rows_of_another_number_are_refused():
    params = np.ones((3, 4), np.float32)
    address = params.ctypes.data
    with pytest.raises(ValueError, match="one row for each of rows: expected 3, got 2"):
        native.extension().all_pairs(address, 4, FIRST, address, 4, FIRST[:2], 0, 4, False, 1)


def test_invalid_entries_of_a_merge_are_refused():
    with pytest.raises(ValueError, match="got 3 for 3, 0 for 1"):
        native.extension().merge_rows(0, 4, 0, 4, FIRST, NOTHING, np.ones(1, np.float32), FIRST, 0, 4, 0, False, 1)


@pytest.fixture
def plan():
    linear = native.extension().LinearSpec(inputs=4, outputs=2, weight=0, bias=8, relu=False, dropouts=[])
    return native.extension().Plan((1, 2, 2), [], [linear], 10, 0, [])


def train(plan, rows, batches, label=1):
    flat, images, labels = np.zeros(10, np.float32), np.zeros((3, 4), np.float32), np.full(3, label)
    optimizer = native.extension().Optimizer(
        adam=False,
        decoupled=False,
        rates=[0.1] * len(batches),
        momentum=0.0,
        weight_decay=0.0,
        weights_decay_alone=False,
        betas=(0.9, 0.999),
        epsilon=1e-8,
        proximal=0.0,
        clip_norm=0.0,
        clip_value=0.0,
        control=0,
        label_smoothing=0.0,
        moments=(0, 0),
        trained=(True, True),
        steps=(0, 0),
    )
    addresses = flat.ctypes.data, images.ctypes.data, labels.ctypes.data
    plan.train(*addresses, 3, np.array(rows), batches, optimizer, [])


@pytest.mark.parametrize(
    ("rows", "batches", "text"),
    [
        ([0, 1], [2, 0], "batches must have at least 1 row each, got 0"),
        ([0, 1], [1], "batches must add up to the number of rows, 2, got 1"),
    ],
)
def test_batches_of_a_wrong_size_are_refused(plan, rows, batches, text):
    with pytest.raises(ValueError, match=text):
        train(plan, rows, batches)


def test_missing_sample_or_label_is_refused(plan):
    with pytest.raises(IndexError, match="rows must name samples that exist: got 3 of 3"):
        train(plan, [0, 3], [2])
    with pytest.raises(IndexError, match=r"labels must lie in 0\.\.1, the outputs of the network: got 2"):
        train(plan, [0, 1], [2], label=2)

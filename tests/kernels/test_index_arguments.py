"""Numbers of rows, pairs of models, weights and columns are taken in every whole type, or refused by name."""

import re

import numpy as np
import pytest
import torch

from ddlsim.kernels import class_cosine, cosine, dots, inverse_l2, merge, merge_rows, sqdist

ROLL = np.roll(np.eye(5, dtype=np.float32), 1, axis=0)  # every row becomes its neighbor


NO_NUMBERS = {
    "fractions": (lambda n: n + 0.5, TypeError, "whole numbers"),
    "whole floats": (lambda n: n.astype(float), TypeError, "whole numbers"),
    "booleans": (lambda n: n > 0, TypeError, r"whole numbers of at most 64 bits, not bool: pass np\.\w+"),
    "text": (lambda n: n.astype(str).tolist(), TypeError, "whole numbers"),
    "objects": (lambda n: n.astype(object), TypeError, "whole numbers"),
    "beyond 64 bits": (lambda n: [*n[:-1].tolist(), np.full_like(n[-1], 2, object) ** 70], TypeError, "whole numbers"),
    "masked": (lambda n: np.ma.masked_array(n, n > 0), TypeError, "masked array"),
    "one dimension more": (lambda n: n[None], ValueError, r"must be \[(n|E, 2)\]"),
}


@pytest.mark.parametrize("kind", NO_NUMBERS)
def test_what_is_no_list_of_rows_is_refused_by_name(params, kind):
    make, error, message = NO_NUMBERS[kind]
    merged = {"indptr": [0, 1, 2], "sources": [1, 2], "weights": [1.0, 1.0], "targets": [0, 3]}
    rows = [0, 1, 2, 3, 4]
    compared = {"pairs": [[0, 1], [2, 3]], "rows": rows, "reference_rows": rows}
    for name in ("pairs", "rows", "reference_rows", "indptr", "sources", "targets"):
        bad = make(np.array((merged | compared)[name]))
        with pytest.raises(error, match=message) as caught:
            merge_rows(params, **merged | {name: bad}) if name in merged else cosine(params, **{name: bad})
        assert re.match(rf"{name}\b", str(caught.value))


@pytest.mark.parametrize("weights", [["a"], None, [1j], [[1.0]], np.ma.masked_array([1.0], [True])])
def test_what_are_no_weights_is_refused(params, weights):
    with pytest.raises((TypeError, ValueError), match=r"^weights "):
        merge_rows(params, [0, 1], [1], weights, [0])


@pytest.mark.parametrize(
    "kind",
    [
        np.int32,
        np.uint8,
        np.uint64,
        ">i8",
        lambda p: torch.tensor(p, dtype=torch.int32),
        tuple,
        lambda p: np.asfortranarray(p),
        lambda p: np.array(p)[::-1][::-1],
    ],
)
def test_pairs_of_any_whole_type(params, kind):
    pairs = [[3, 0], [4, 4], [0, 3], [3, 0]]
    given = np.array(pairs, dtype=kind) if isinstance(kind, type | str) and kind is not tuple else kind(pairs)
    expected = cosine(params)[[3, 4, 0, 3], [0, 4, 3, 0]]
    np.testing.assert_allclose(cosine(params, pairs=given), expected, atol=1e-7)


@pytest.mark.parametrize("pairs", [np.array([[2**64 - 1, 0]], np.uint64), [[-1, 0]], [[0, 5]]])
def test_pairs_outside_the_matrix_are_refused(params, pairs):
    for door in (cosine, inverse_l2, dots, sqdist):
        with pytest.raises(IndexError, match=r"pairs must lie in 0\.\.4"):
            door(params, pairs=pairs)


@pytest.mark.parametrize(
    "columns",
    [(1.5, 7), (float("nan"), 7), 3, (1,), (1, 2, 3), range(2, 7), (2, None), "ab", (np.float32(1), 7), {2: 3}],
)
def test_what_is_no_column_range_is_refused(params, columns):
    for call in (cosine, lambda p, columns: merge(p, ROLL, columns=columns)):
        with pytest.raises(TypeError, match=r"columns must be \(start, stop\) in whole numbers, a slice or None, not"):
            call(params, columns=columns)


@pytest.mark.parametrize("columns", [(-3, 7), (7, 2), (0, 41), slice(0, 40, 2), slice(40, 0, -1)])
def test_columns_outside_the_matrix_are_refused(params, columns):
    with pytest.raises(ValueError, match="columns"):
        cosine(params, columns=columns)


@pytest.mark.parametrize(
    "columns",
    [[2, 7], np.array([2, 7]), torch.tensor([2, 7]), (np.int32(2), np.uint8(7)), slice(2, 7), slice(-38, -33)],
)
def test_columns_of_any_whole_type(params, columns):
    assert np.array_equal(cosine(params, columns=columns), cosine(params, columns=(2, 7)))


def test_a_number_of_classes_is_whole(params):
    with pytest.raises(TypeError, match="integer"):
        class_cosine(params, 2.5)
    with pytest.raises(ValueError, match="40 columns do not divide into -2 classes"):
        class_cosine(params, -2)

"""Kernels accept contiguous float32 rows and integer row numbers, and refuse all other arguments by name."""

import numpy as np
import pytest
import reference_kernels as reference
import torch
from scipy import sparse

from ddlsim.kernels import (
    aligned_rows,
    class_cosine,
    cosine,
    dots,
    inverse_l2,
    merge,
    merge_rows,
    project_simplex,
    sqdist,
)

ROLL = np.roll(np.eye(5, dtype=np.float32), 1, axis=0)  # every row becomes its neighbor


def unaligned(params):
    records = np.zeros(len(params), dtype=[("tag", "<i2"), ("row", "<f4", params.shape[1:])])
    records["row"] = params
    return records["row"]


UNREADABLE = {
    "big endian": (lambda p: p.astype(">f4"), TypeError),
    "unaligned rows": (unaligned, ValueError),
    "masked": (lambda p: np.ma.masked_array(p, p > 0), TypeError),
    "float16": (lambda p: p.astype(np.float16), TypeError),
    "bfloat16": (lambda p: torch.from_numpy(p).bfloat16(), TypeError),
    "whole numbers": (lambda p: p.astype(np.int64), TypeError),
    "complex": (lambda p: p * 1j, TypeError),
    "list": (lambda p: p.tolist(), TypeError),
    "meta": (lambda p: torch.from_numpy(p).to("meta"), ValueError),
    "coordinates": (lambda p: torch.from_numpy(p).to_sparse(), ValueError),
    "negated view": (lambda p: torch._neg_view(torch.from_numpy(p)), ValueError),
    "gradients": (lambda p: torch.from_numpy(p).requires_grad_(), ValueError),
    "transposed": (np.asfortranarray, ValueError),
    "backward columns": (lambda p: p[:, ::-1], ValueError),
    "backward rows": (lambda p: p[::-1], ValueError),
    "expanded rows": (lambda p: torch.from_numpy(p)[:1].expand(5, 40), ValueError),
    "rows that overlap": (lambda p: torch.zeros(100).as_strided((5, 40), (5, 1)), ValueError),
    "three dimensions": (lambda p: p[None], ValueError),
}


@pytest.mark.parametrize("kind", UNREADABLE)
def test_unsupported_matrices_are_refused_by_every_kernel(params, kind):
    make, error = UNREADABLE[kind]
    matrix = make(params)
    kernels = {
        "params": [cosine, inverse_l2, dots, sqdist, lambda p: merge(p, ROLL), lambda p: class_cosine(p, 2)],
        "reference": [lambda r: cosine(params, r), lambda r: inverse_l2(params, r)],
        "matrix": [lambda m: merge_rows(m, [0, 1], [1], [1.0], [0])],
        "rows": [project_simplex],
        "out": [lambda out: merge(params, ROLL, out=out), lambda out: project_simplex(params, out=out)],
    }
    for name, calls in kernels.items():
        for call in calls:
            with pytest.raises(error, match=rf"^{name}: expected .*, got "):
                call(matrix)


READABLE = {
    "every other row": lambda p: np.repeat(p, 2, axis=0)[::2],
    "a column range": lambda p: np.pad(p, ((0, 0), (3, 5)))[:, 3:-5],
    "read-only": lambda p: (p.setflags(write=False), p)[1],
    "tensor": lambda p: torch.from_numpy(p.copy()),
    "parameter": lambda p: torch.nn.Parameter(torch.from_numpy(p.copy()), requires_grad=False),
}


@pytest.mark.parametrize("kind", READABLE)
def test_contiguous_rows_are_read_at_any_distance(isa, params, kind):
    matrix, exact = READABLE[kind](params.copy()), torch.from_numpy(params.copy())
    np.testing.assert_allclose(cosine(matrix), reference.cosine(exact), atol=3e-7)
    np.testing.assert_allclose(inverse_l2(matrix), reference.inverse_l2(exact), rtol=1e-6)
    np.testing.assert_allclose(cosine(params, matrix, rows=[4] * 5), reference.cosine(exact[[4] * 5], exact), atol=2e-6)
    np.testing.assert_array_equal(merge(matrix, ROLL), ROLL @ params)
    np.testing.assert_allclose(project_simplex(matrix), reference.project_simplex(exact), atol=3e-7)


@pytest.mark.parametrize("kind", ["inference", "no gradients"])
def test_modes_of_torch_do_not_change_results(params, kind):
    with torch.inference_mode() if kind == "inference" else torch.no_grad():
        matrix = torch.nn.Parameter(torch.from_numpy(params.copy()))
        assert np.array_equal(merge(matrix, ROLL), ROLL @ params)
        assert np.array_equal(cosine(matrix), cosine(params))
        assert np.array_equal(project_simplex(matrix), project_simplex(params))
        merge(matrix, ROLL, out=matrix)
    assert np.array_equal(matrix.detach(), ROLL @ params)


@pytest.mark.parametrize(
    "write",
    [
        lambda m: merge(np.ones((5, 40), np.float32), ROLL, out=m),
        lambda m: merge(m, ROLL, out=m),
        lambda m: merge_rows(m, [0, 1], [1], [1.0], [0]),
        lambda m: project_simplex(m, out=m),
    ],
)
def test_read_only_arrays_are_not_written(params, write):
    before = params.copy()
    params.flags.writeable = False
    with pytest.raises(ValueError, match=r"^(out|matrix): expected a matrix .* writable if it is written"):
        write(params)
    assert np.array_equal(params, before)


def test_output_that_partly_overlaps_its_input_is_refused(params):
    twice = np.concatenate([params, params])
    for out in (twice[1:6], twice.reshape(-1)[7:207].reshape(5, 40)):
        for call in (lambda out: merge(twice[:5], ROLL, out=out), lambda out: project_simplex(twice[:5], out=out)):
            with pytest.raises(ValueError, match=r"out: expected .* separate memory"):
                call(out)
    assert np.array_equal(twice, np.concatenate([params, params]))
    doubles = np.zeros((6, 4))
    with pytest.raises(ValueError, match=r"out: expected .* separate memory"):
        project_simplex(doubles[:3], out=doubles[2:5])  # whose last row is only reached counting eight bytes


def test_columns_may_be_merged_in_place(params):
    viewed, whole = params.copy(), params.copy()
    merge(viewed, ROLL, columns=(7, 19), out=viewed[:, 7:19])
    merge(whole, ROLL, columns=(7, 19), out=whole)
    assert np.array_equal(viewed, whole)
    assert np.array_equal(whole[:, 7:19], (ROLL @ params)[:, 7:19])
    with pytest.raises(ValueError, match="overlap"):
        merge(viewed, ROLL, columns=(7, 19), out=viewed[:, 8:20])


def test_empty_matrices_have_empty_results(params):
    for call in (lambda m: merge(m, np.zeros((0, 0))), project_simplex):
        assert call(params[:0]).shape == (0, 40)
        assert call(torch.from_numpy(params[:0])).shape == (0, 40)
    assert merge(params, np.zeros((0, 5))).shape == (0, 40)
    assert merge(params[:, :0], ROLL).shape == (5, 0)
    assert merge(params, ROLL, columns=(3, 3)).shape == (5, 0)
    assert cosine(params[:0]).shape == inverse_l2(params[:0]).shape == (0, 0)
    assert cosine(params, rows=[]).shape == (0, 0)
    assert not cosine(params[:, :0]).any()  # zero vectors
    assert inverse_l2(params[:, :0])[0, 1] == 1e6
    assert cosine(params[:, :0], pairs=[[0, 1]]).tolist() == [0]


@pytest.mark.parametrize(
    ("shape", "error", "message"),
    [
        ((-1, 5), ValueError, "expected at least 0, got -1 and 5"),
        ((2.5, 3), TypeError, "integer"),
        ((2**40, 2**30), MemoryError, "no memory for"),
    ],
)
def test_impossible_shapes_are_refused(shape, error, message):
    with pytest.raises(error, match=message):
        aligned_rows(*shape)


WRONG_NUMBERS = {
    "fractions": (lambda n: n + 0.5, TypeError, "whole numbers"),
    "booleans": (lambda n: n > 0, TypeError, "whole numbers of at most 64 bits, got bool"),
    "text": (lambda n: n.astype(str).tolist(), TypeError, "whole numbers"),
    "beyond 64 bits": (lambda n: [*n[:-1].tolist(), np.full_like(n[-1], 2, object) ** 70], TypeError, "whole numbers"),
    "one dimension more": (lambda n: n[None], ValueError, r"expected \[(n|E, 2)\]"),
}


@pytest.mark.parametrize("kind", WRONG_NUMBERS)
def test_invalid_row_numbers_are_refused_by_name(params, kind):
    make, error, message = WRONG_NUMBERS[kind]
    merged = {"indptr": [0, 1, 2], "sources": [1, 2], "weights": [1.0, 1.0], "targets": [0, 3]}
    rows = [0, 1, 2, 3, 4]
    compared = {"pairs": [[0, 1], [2, 3]], "rows": rows, "reference_rows": rows}
    for name in ("pairs", "rows", "reference_rows", "indptr", "sources", "targets"):
        wrong = make(np.array((merged | compared)[name]))
        with pytest.raises(error, match=f"^{name}: .*{message}"):
            merge_rows(params, **merged | {name: wrong}) if name in merged else cosine(params, **{name: wrong})


@pytest.mark.parametrize("weights", [["a"], None, [1j], [[1.0]]])
def test_invalid_weights_are_refused(params, weights):
    with pytest.raises((TypeError, ValueError), match=r"^weights: "):
        merge_rows(params, [0, 1], [1], weights, [0])


@pytest.mark.parametrize("dtype", [np.int32, np.uint8, np.uint64, ">i8"])
def test_pairs_may_have_any_integer_type(params, dtype):
    pairs = np.array([[3, 0], [4, 4], [0, 3], [3, 0]], dtype)
    expected = cosine(params)[[3, 4, 0, 3], [0, 4, 3, 0]]
    for found in (pairs, np.asfortranarray(pairs), pairs.tolist()):
        np.testing.assert_allclose(cosine(params, pairs=found), expected, atol=1e-7)


@pytest.mark.parametrize("pairs", [np.array([[2**64 - 1, 0]], np.uint64), [[-1, 0]], [[0, 5]]])
def test_pairs_outside_the_matrix_are_refused(params, pairs):
    for kernel in (cosine, inverse_l2, dots, sqdist):
        with pytest.raises(IndexError, match=r"pairs must lie in 0\.\.4"):
            kernel(params, pairs=pairs)


@pytest.mark.parametrize("columns", [(1.5, 7), 3, (1,), "ab", (-3, 7), (7, 2), (0, 41)])
def test_invalid_column_ranges_are_refused(params, columns):
    for call in (cosine, lambda p, columns: merge(p, ROLL, columns=columns)):
        with pytest.raises((TypeError, ValueError)):
            call(params, columns=columns)


def test_number_of_classes_divides_the_columns(params):
    with pytest.raises(TypeError, match="integer"):
        class_cosine(params, 2.5)
    with pytest.raises(ValueError, match="expected a multiple of -2 classes, got 40"):
        class_cosine(params, -2)


def some_mixing():
    """Return a sparse matrix with an entry in every row."""
    return (sparse.random(5, 5, 0.4, format="csr", random_state=1) + sparse.eye(5, format="csr")).astype(np.float32)


def test_every_sparse_layout_of_scipy_is_merged(params):
    expected = merge(params, some_mixing().toarray())
    for layout in ("csr", "csc", "coo", "bsr", "dia", "lil", "dok"):
        assert np.array_equal(merge(params, some_mixing().asformat(layout)), expected), layout
        assert np.array_equal(merge(params, sparse.csr_array(some_mixing()).asformat(layout)), expected), layout


def test_unsorted_and_repeated_entries_are_summed_in_their_order(params):
    weights, sources, indptr = np.float32([0.5, 0.5, 0.25, 0.25, 0.5]), [3, 1, 4, 0, 4], [0, 2, 5]
    expected = np.stack([(params[3] + params[1]) / 2, 0.75 * params[4] + 0.25 * params[0]])
    found = merge(params, sparse.csr_matrix((weights, sources, indptr), shape=(2, 5)))
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_dense_mixing_may_have_any_layout_and_real_type(params):
    dense = some_mixing().toarray()
    expected = merge(params, dense)
    kinds = [
        np.asfortranarray(dense),
        dense.astype(">f4"),
        dense.tolist(),
        torch.from_numpy(dense).t().contiguous().t(),
    ]
    assert all(np.array_equal(merge(params, kind), expected) for kind in kinds)
    eye = np.eye(5)
    for kind in (eye > 0, eye.astype(int), eye.astype(np.float16)):
        assert np.array_equal(merge(params, kind), params)


def test_rows_need_not_be_stochastic(isa, params):
    np.testing.assert_allclose(merge(params, -3 * ROLL), -3 * (ROLL @ params), rtol=1e-6)


@pytest.mark.parametrize(
    ("mixing", "error", "message"),
    [
        (np.eye(5) * 1j, TypeError, "expected real numbers, got complex128"),
        (sparse.eye(5, format="csr") * 1j, TypeError, "expected real numbers, got complex128"),
        (torch.eye(5).requires_grad_(), RuntimeError, "requires grad"),
        (None, TypeError, "expected real numbers, got object"),
        ("eye", TypeError, "expected real numbers, got <U3"),
        (np.eye(4), ValueError, r"mixing: expected \[targets, 5\], got \[4, 4\]"),
        (np.ones(5), ValueError, r"mixing: expected \[targets, 5\], got \[5\]"),
        (sparse.coo_array(np.ones(5)), ValueError, r"mixing: expected \[targets, 5\], got \[5\]"),
    ],
)
def test_invalid_mixing_matrices_are_refused(params, mixing, error, message):
    with pytest.raises(error, match=message):
        merge(params, mixing)


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [("indices", 99, IndexError), ("indices", -1, IndexError), ("indptr", 99, ValueError), ("indptr", -1, ValueError)],
)
def test_damaged_sparse_matrices_are_refused(params, name, value, error):
    mixing = some_mixing()
    getattr(mixing, name)[1] = value
    with pytest.raises(error):
        merge(params, mixing)

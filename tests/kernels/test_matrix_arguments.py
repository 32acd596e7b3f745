"""Parameter matrices of every kind are read and written right, or refused with what to do instead."""

import numpy as np
import pytest
import torch

from ddlsim.kernels import (
    aligned_rows,
    class_cosine,
    cosine,
    dots,
    inverse_l2,
    merge,
    merge_rows,
    project_simplex,
    reference,
    sqdist,
    update_cosine,
)

ROLL = np.roll(np.eye(5, dtype=np.float32), 1, axis=0)  # every row becomes its neighbor


def packed(params, rows_of_floats):
    """The same numbers in records that are no multiple of four bytes long."""
    if rows_of_floats:
        records = np.zeros(len(params), dtype=[("tag", "<i2"), ("row", "<f4", params.shape[1:])])
        records["row"] = params
        return records["row"]
    records = np.zeros(params.shape, dtype=[("value", "<f4"), ("tag", "<i2")])
    records["value"] = params
    return records["value"]


def swapped(array):
    return array.astype(array.dtype.newbyteorder())


UNREADABLE = {
    "big endian": (swapped, TypeError, r"byte order, not [<>][if]\d: pass \w+\.astype\('float32'\)"),
    "odd row strides": (lambda p: packed(p, True), ValueError, "not aligned to its 4 bytes"),
    "odd column strides": (lambda p: packed(p, False), ValueError, "not aligned to its 4 bytes"),
    "masked": (lambda p: np.ma.masked_array(p, p > 0), TypeError, r"masked array.*\.filled"),
    "float16": (lambda p: p.astype(np.float16), TypeError, "must be float32.*, not float16"),
    "bfloat16": (lambda p: torch.from_numpy(p).bfloat16(), TypeError, "must be float32.*, not bfloat16"),
    "whole numbers": (lambda p: p.astype(np.int64), TypeError, "must be float32.*, not int64"),
    "complex": (lambda p: p * 1j, TypeError, "must be float32.*, not complex64"),
    "list": (lambda p: p.tolist(), TypeError, "a torch tensor or a numpy array, not list"),
    "meta": (lambda p: torch.from_numpy(p).to("meta"), TypeError, "on the CPU or on CUDA, not meta"),
    "coordinates": (lambda p: torch.from_numpy(p).to_sparse(), TypeError, "a dense tensor.*not torch.sparse_coo"),
    "negated view": (lambda p: torch._neg_view(torch.from_numpy(p)), TypeError, r"pass \w+\.resolve_neg"),
    "gradients": (lambda p: torch.from_numpy(p).requires_grad_(), ValueError, r"pass \w+\.detach"),
    "transposed": (np.asfortranarray, ValueError, "contiguous columns"),
    "backward columns": (lambda p: p[:, ::-1], ValueError, "contiguous columns"),
    "expanded columns": (lambda p: torch.from_numpy(p)[:, :1].expand(5, 40), ValueError, "contiguous columns"),
    "three dimensions": (lambda p: p[None], ValueError, r"a matrix \[rows, columns\]"),
}


@pytest.mark.parametrize("kind", UNREADABLE)
def test_a_matrix_that_kernels_cannot_read_is_refused_by_every_door(params, kind):
    make, error, message = UNREADABLE[kind]
    matrix = make(params)
    doors = {
        "params": [
            cosine,
            inverse_l2,
            dots,
            sqdist,
            lambda p: merge(p, ROLL),
            lambda p: class_cosine(p, 2),
            lambda p: update_cosine(p, p, p, 0.5),
        ],
        "reference": [lambda r: cosine(params, r), lambda r: inverse_l2(params, r)],
        "matrix": [lambda m: merge_rows(m, [0, 1], [1], [1.0], [0])],
        "rows": [project_simplex],
        "out": [lambda out: merge(params, ROLL, out=out), lambda out: project_simplex(params, out=out)],
    }
    for name, calls in doors.items():
        for call in calls:
            with pytest.raises(error, match=message) as caught:
                call(matrix)
            assert name in str(caught.value)


def test_a_transform_without_memory_is_refused(params):
    with pytest.raises(TypeError, match="no memory that a kernel could read"):
        torch.func.vmap(cosine)(torch.from_numpy(params).expand(2, 5, 40))


READABLE = {
    "backward rows": lambda p: np.ascontiguousarray(p[::-1])[::-1],
    "every other row": lambda p: np.repeat(p, 2, axis=0)[::2],
    "a column range": lambda p: np.pad(p, ((0, 0), (3, 5)))[:, 3:-5],
    "read-only": lambda p: (p.setflags(write=False), p)[1],
    "matrix": np.matrix,
    "tensor": lambda p: torch.from_numpy(p.copy()),
    "parameter": lambda p: torch.nn.Parameter(torch.from_numpy(p.copy()), requires_grad=False),
}


@pytest.mark.parametrize("kind", READABLE)
@pytest.mark.filterwarnings("ignore:the matrix subclass")
def test_every_other_layout_is_read_right(isa, params, kind):
    matrix, exact = READABLE[kind](params.copy()), torch.from_numpy(params.copy())
    np.testing.assert_allclose(cosine(matrix), reference.cosine(exact), atol=3e-7)
    np.testing.assert_allclose(inverse_l2(matrix), reference.inverse_l2(exact), rtol=1e-6)
    np.testing.assert_allclose(cosine(params, matrix, rows=[4] * 5), reference.cosine(exact[[4] * 5], exact), atol=2e-6)
    np.testing.assert_array_equal(merge(matrix, ROLL), ROLL @ params)
    np.testing.assert_allclose(project_simplex(matrix), reference.project_simplex(exact), atol=3e-7)


def test_one_row_for_all_may_be_expanded(params):
    same = torch.from_numpy(params)[0].expand(4, -1)
    np.testing.assert_allclose(cosine(same), np.ones((4, 4)), atol=1e-6)
    np.testing.assert_array_equal(merge(same, np.full((2, 4), 0.25)), params[[0, 0]])
    np.testing.assert_array_equal(cosine(params, np.broadcast_to(params[0], (5, 40))), cosine(params, params[0]))
    assert project_simplex(np.broadcast_to(np.float32([0.5, 2.5]), (3, 2))).tolist() == [[0, 1]] * 3


@pytest.mark.parametrize("kind", ["inference", "no gradients"])
def test_modes_of_torch_change_nothing(params, kind):
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
def test_read_only_arrays_and_rows_that_share_elements_are_not_written(params, write):
    before = params.copy()
    params.flags.writeable = False
    with pytest.raises(ValueError, match=r"(out|matrix) is read-only: pass a copy"):
        write(params)
    assert np.array_equal(params, before)
    for shared in (torch.zeros(40).expand(5, 40), torch.zeros(100).as_strided((5, 40), (5, 1))):
        with pytest.raises(ValueError, match=r"(out|matrix) has rows that share elements"):
            write(shared)
        assert not shared.any()


def test_an_output_that_partly_overlaps_its_input_is_refused(params):
    twice = np.concatenate([params, params])
    for out in (twice[1:6], twice[4::-1], twice[::-1][2:7], twice.reshape(-1)[7:207].reshape(5, 40)):
        for call in (lambda out: merge(twice[:5], ROLL, out=out), lambda out: project_simplex(twice[:5], out=out)):
            with pytest.raises(ValueError, match="out must not overlap"):
                call(out)
    assert np.array_equal(twice, np.concatenate([params, params]))
    doubles = np.zeros((6, 4))
    with pytest.raises(ValueError, match="out must not overlap"):
        project_simplex(doubles[:3], out=doubles[2:5])  # whose last row is only reached counting eight bytes


def test_column_ranges_of_one_matrix_do_not_overlap(params):
    whole = params.copy()
    merge(whole[:, :20], ROLL, out=whole[:, 20:])
    assert np.array_equal(whole, np.concatenate([params[:, :20], ROLL @ params[:, :20]], axis=1))
    whole = params.copy()
    assert np.array_equal(project_simplex(whole[:, 7:19], out=whole[:, 19:31]), project_simplex(params[:, 7:19]))


def test_columns_may_be_merged_into_their_own_view(params):
    viewed, whole = params.copy(), params.copy()
    merge(viewed, ROLL, columns=(7, 19), out=viewed[:, 7:19])
    merge(whole, ROLL, columns=(7, 19), out=whole)
    assert np.array_equal(viewed, whole)
    assert np.array_equal(whole[:, 7:19], (ROLL @ params)[:, 7:19])
    with pytest.raises(ValueError, match="overlap"):
        merge(viewed, ROLL, columns=(7, 19), out=viewed[:, 8:20])


def test_backward_rows_are_merged_in_place(params):
    matrix = params.copy()[::-1]
    merge(matrix, ROLL, out=matrix)
    assert np.array_equal(matrix, ROLL @ params[::-1])


def test_rows_of_nothing(params):
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
        ((-1, 5), ValueError, "at least 0, not -1 and 5"),
        ((3, -2), ValueError, "at least 0, not 3 and -2"),
        ((2.5, 3), TypeError, "integer"),
        (("3", 4), TypeError, "integer"),
        ((2**40, 2**30), MemoryError, "no memory for"),
        ((2**30, 2**30), MemoryError, "no memory for"),
    ],
)
def test_rows_that_cannot_be_are_not_made(shape, error, message):
    with pytest.raises(error, match=message):
        aligned_rows(*shape)

"""What comes through the kernels' door: every kind of array is read right, or refused with what to do instead."""

import re

import numpy as np
import pytest
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
    reference,
    sqdist,
    update_cosine,
)

ROLL = np.roll(np.eye(5, dtype=np.float32), 1, axis=0)  # every row becomes its neighbor


@pytest.fixture
def params(rng):
    return rng.standard_normal((5, 40), dtype=np.float32)


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
    make, error, told = UNREADABLE[kind]
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
            with pytest.raises(error, match=told) as caught:
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


# -- what is written ---------------------------------------------------------------------------------------------------


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


# -- mixing matrices ---------------------------------------------------------------------------------------------------


def some_mixing():
    """Sparse, with an entry in every row."""
    return (sparse.random(5, 5, 0.4, format="csr", random_state=1) + sparse.eye(5, format="csr")).astype(np.float32)


@pytest.mark.parametrize("layout", ["csr", "csc", "coo", "bsr", "dia", "lil", "dok"])
def test_every_sparse_layout_of_scipy_is_taken(params, layout):
    expected = merge(params, some_mixing().toarray())
    assert np.array_equal(merge(params, some_mixing().asformat(layout)), expected)
    assert np.array_equal(merge(params, sparse.csr_array(some_mixing()).asformat(layout)), expected)


@pytest.mark.parametrize("layout", ["sparse_csr", "sparse_csc", "sparse", "sparse_bsr", "sparse_bsc"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.filterwarnings("ignore:Sparse")
def test_every_sparse_layout_of_torch_is_taken(params, layout, dtype):
    dense = torch.from_numpy(some_mixing().toarray()).to(dtype)
    blocks = ((5, 5),) if "bs" in layout else ()
    assert np.array_equal(merge(params, getattr(dense, f"to_{layout}")(*blocks)), merge(params, dense.float()))


@pytest.mark.parametrize("index", [torch.int32, torch.int64])
@pytest.mark.filterwarnings("ignore:Sparse")
def test_unsorted_and_repeated_entries_are_summed_in_their_order(params, index):
    indptr, sources = torch.tensor([0, 2, 5], dtype=index), torch.tensor([3, 1, 4, 0, 4], dtype=index)
    weights = torch.tensor([0.5, 0.5, 0.25, 0.25, 0.5])
    expected = np.stack([(params[3] + params[1]) / 2, 0.75 * params[4] + 0.25 * params[0]])
    ours = merge(params, torch.sparse_csr_tensor(indptr, sources, weights, size=(2, 5)))
    theirs = merge(params, sparse.csr_matrix((weights.numpy(), sources.numpy(), indptr.numpy()), shape=(2, 5)))
    np.testing.assert_allclose(ours, expected, atol=1e-6)
    assert np.array_equal(ours, theirs)


@pytest.mark.filterwarnings("ignore:the matrix subclass")
def test_dense_mixing_of_any_kind(params):
    dense = some_mixing().toarray()
    expected = merge(params, dense)
    kinds = [
        np.asfortranarray(dense),
        swapped(dense),
        dense.tolist(),
        np.matrix(dense),
        np.repeat(dense, 2, 1)[:, ::2],
        torch.from_numpy(dense).t().contiguous().t(),
        torch._neg_view(-torch.from_numpy(dense)),
    ]
    assert all(np.array_equal(merge(params, kind), expected) for kind in kinds)
    eye = np.eye(5)
    for kind in (eye > 0, eye.astype(int), eye.astype(np.float16), torch.eye(5, dtype=torch.bfloat16)):
        assert np.array_equal(merge(params, kind), params)


def test_rows_need_not_be_stochastic(isa, params):
    np.testing.assert_allclose(merge(params, -3 * ROLL), -3 * (ROLL @ params), rtol=1e-6)


@pytest.mark.filterwarnings("ignore:Sparse")
@pytest.mark.parametrize(
    ("mixing", "error", "told"),
    [
        (np.eye(5) * 1j, TypeError, "mixing must be real numbers, not complex128"),
        (sparse.eye(5, format="csr") * 1j, TypeError, "mixing must be real numbers, not complex128"),
        (torch.eye(5) * 1j, TypeError, "mixing must be real numbers in memory, not torch.complex64"),
        (torch.eye(5, device="meta"), TypeError, "in memory, not torch.float32 on meta"),
        (np.ma.masked_array(np.eye(5), np.eye(5) > 0), TypeError, "mixing is a masked array"),
        (torch.eye(5).requires_grad_(), ValueError, r"pass mixing.detach\(\)"),
        (torch.eye(5).to_sparse().requires_grad_(), ValueError, r"pass mixing.detach\(\)"),
        (None, TypeError, "mixing must be real numbers, not object"),
        ("eye", TypeError, "mixing must be real numbers, not <U3"),
        (np.eye(4), ValueError, r"mixing must be \[targets, 5\], not \[4, 4\]"),
        (np.ones(5), ValueError, r"mixing must be \[targets, 5\], not \[5\]"),
        (sparse.coo_array(np.ones(5)), ValueError, r"mixing must be \[targets, 5\], not \[5\]"),
        (torch.ones(2, 5, 5).to_sparse(), ValueError, r"mixing must be \[targets, 5\], not \[2, 5, 5\]"),
    ],
)
def test_what_is_no_mixing_matrix_is_refused(params, mixing, error, told):
    with pytest.raises(error, match=told):
        merge(params, mixing)


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [("indices", 99, IndexError), ("indices", -1, IndexError), ("indptr", 99, ValueError), ("indptr", -1, ValueError)],
)
def test_a_damaged_sparse_matrix_is_refused(params, name, value, error):
    mixing = some_mixing()
    getattr(mixing, name)[1] = value
    with pytest.raises(error):
        merge(params, mixing)


# -- numbers of rows, pairs, columns -----------------------------------------------------------------------------------

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
@pytest.mark.parametrize("name", ["pairs", "rows", "reference_rows", "indptr", "sources", "targets"])
def test_what_is_no_list_of_rows_is_refused_by_name(params, kind, name):
    make, error, told = NO_NUMBERS[kind]
    good = {
        "pairs": [[0, 1], [2, 3]],
        "rows": [0, 1, 2, 3, 4],
        "reference_rows": [0, 1, 2, 3, 4],
        "indptr": [0, 1, 2],
        "sources": [1, 2],
        "weights": [1.0, 1.0],
        "targets": [0, 3],
    }
    bad = make(np.array(good[name]))
    with pytest.raises(error, match=told) as caught:
        if name in ("indptr", "sources", "targets"):
            merge_rows(params, **{key: good[key] for key in ("indptr", "sources", "weights", "targets")} | {name: bad})
        else:
            cosine(params, **{name: bad})
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


# -- numbers at the ends of float32 ------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [1e-10, 1e10, 1e17])
def test_large_and_small_models_have_the_similarities_of_ordinary_ones(isa, params, scale):
    scaled = params * np.float32(scale)
    np.testing.assert_allclose(cosine(scaled), reference.cosine(torch.from_numpy(scaled)), atol=1e-6)
    np.testing.assert_allclose(sqdist(scaled), reference.sqdist(torch.from_numpy(scaled)), rtol=1e-5)
    np.testing.assert_allclose(inverse_l2(scaled), reference.inverse_l2(torch.from_numpy(scaled)), rtol=1e-6)


def test_numbers_whose_squares_float32_does_not_hold_are_infinity_or_zero_and_touch_no_other_model(isa, params):
    expected = cosine(params)
    params[1], params[3] = 1e20 * params[1], 1e-30 * params[3]
    found, distances, rest = cosine(params), sqdist(params), [0, 2, 4]
    assert np.array_equal(found[np.ix_(rest, rest)], expected[np.ix_(rest, rest)])
    assert all(np.isnan(found[1, i]) or found[1, i] == 0 for i in range(5))
    assert np.isinf(distances[1, rest]).all()
    assert (abs(found[3, rest]) < 1e-8).all()
    np.testing.assert_allclose(distances[3, rest], np.sum(params[rest].astype(float) ** 2, axis=1), rtol=1e-6)


@pytest.mark.parametrize(
    ("shape", "error", "told"),
    [
        ((-1, 5), ValueError, "at least 0, not -1 and 5"),
        ((3, -2), ValueError, "at least 0, not 3 and -2"),
        ((2.5, 3), TypeError, "integer"),
        (("3", 4), TypeError, "integer"),
        ((2**40, 2**30), MemoryError, "no memory for"),
        ((2**30, 2**30), MemoryError, "no memory for"),
    ],
)
def test_rows_that_cannot_be_are_not_made(shape, error, told):
    with pytest.raises(error, match=told):
        aligned_rows(*shape)

"""The kernels on random shapes, layouts and instruction sets, against exact or float64 arithmetic."""

from fractions import Fraction

import numpy as np
import pytest
import reference_kernels as reference
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from ddlsim.foundation import native
from ddlsim.kernels import class_cosine, cosine, inverse_l2, merge, merge_rows, project_simplex

ISAS = native.extension().isas()
often = settings(max_examples=120, deadline=None, derandomize=True)


@pytest.fixture(autouse=True)
def restored():
    isa, threads = native.extension().isa(), torch.get_num_threads()
    yield
    native.extension().set_isa(isa)
    torch.set_num_threads(threads)


def matrix_of(rng, num_rows, num_columns, layout):
    """Return normal numbers, float32 [num_rows, num_columns], in separate memory or in wider rows."""
    values = rng.standard_normal((num_rows, num_columns), dtype=np.float32)
    if layout == "strided":
        wide = np.full((2 * num_rows, num_columns + 7), np.nan, np.float32)
        wide[::2, 3 : 3 + num_columns] = values
        return wide[::2, 3 : 3 + num_columns]
    return torch.from_numpy(values) if layout == "torch" else values


def copy_of(matrix):
    """Return a copy of the current numbers as a numpy array."""
    return np.array(matrix.numpy() if isinstance(matrix, torch.Tensor) else matrix)


layouts = st.sampled_from(["plain", "torch", "strided"])
worlds = st.fixed_dictionaries(
    {
        "seed": st.integers(0, 2**32),
        "n": st.integers(1, 40),
        "p": st.sampled_from([1, 2, 15, 33, 100, 513, 2500]),
        "layout": layouts,
        "isa": st.sampled_from(ISAS),
        "threads": st.integers(1, 3),
    }
)


def some_columns(rng, num_columns):
    start, stop = sorted(rng.integers(0, num_columns + 1, 2).tolist())
    return None if rng.random() < 0.3 else (start, stop)


# -- merges ------------------------------------------------------------------------------------------------------------


def random_csr(rng, num_targets, num_sources, empty_rows):
    """Return an unsorted matrix with repeated entries, and empty rows if they are allowed."""
    counts = rng.integers(0 if empty_rows else 1, 9, num_targets)
    weights, sources = rng.random(counts.sum(), dtype=np.float32), rng.integers(0, num_sources, counts.sum())
    return sparse.csr_matrix((weights, sources, np.append(0, np.cumsum(counts))), shape=(num_targets, num_sources))


@often
@given(worlds, st.sampled_from(["new", "whole", "part", "itself", "own view"]))
def test_merges(world, where):
    rng, n, p = np.random.default_rng(world["seed"]), world["n"], world["p"]
    native.extension().set_isa(world["isa"])
    params, columns = matrix_of(rng, n, p, world["layout"]), some_columns(rng, p)
    start, stop = columns or (0, p)
    num_targets = n if where in ("itself", "own view") else int(rng.integers(1, 40))
    mixing = random_csr(rng, num_targets, n, empty_rows=num_targets == n)
    before = copy_of(params)
    expected = np.zeros((num_targets, stop - start))
    for row in range(num_targets):
        entries = slice(mixing.indptr[row], mixing.indptr[row + 1])
        kept = entries.start == entries.stop
        expected[row] = (
            before[row, start:stop]
            if kept
            else (mixing.data[entries].astype(float) @ before[mixing.indices[entries], start:stop].astype(float))
        )

    torch.set_num_threads(1)
    alone = [
        merge(before, mixing[row], columns)[0]
        if mixing.indptr[row] < mixing.indptr[row + 1]
        else before[row, start:stop]
        for row in range(num_targets)
    ]
    torch.set_num_threads(world["threads"])
    whole, part = (np.full((num_targets, width), 7, np.float32) for width in (p, stop - start))
    outs = {"new": None, "whole": whole, "part": part, "itself": params, "own view": params[:, start:stop]}
    out = outs[where]
    found = merge(params, mixing, columns, out)
    assert out is None or found is out
    found = copy_of(found)
    if found.shape[1] == p and where in ("whole", "itself"):
        others = np.delete(found, np.s_[start:stop], axis=1)
        assert np.array_equal(others, np.delete(before, np.s_[start:stop], axis=1)) or (others == 7).all()
        found = found[:, start:stop]
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert np.array_equal(found, np.array(alone).reshape(found.shape))  # equal to the bit, for any other merged rows
    if where not in ("itself", "own view"):
        assert np.array_equal(copy_of(params), before)


@often
@given(worlds)
def test_scattered_rows(world):
    rng, n, p = np.random.default_rng(world["seed"]), world["n"], world["p"]
    native.extension().set_isa(world["isa"])
    matrix, columns = matrix_of(rng, n, p, world["layout"]), some_columns(rng, p)
    start, stop = columns or (0, p)
    targets = rng.permutation(n)[: rng.integers(1, n + 1)]
    mixing = random_csr(rng, len(targets), n, empty_rows=True)
    before = copy_of(matrix)
    torch.set_num_threads(world["threads"])
    merge_rows(matrix, mixing.indptr, mixing.indices, mixing.data, targets, columns)
    expected = before.astype(float)
    for row, target in enumerate(targets):
        entries = slice(mixing.indptr[row], mixing.indptr[row + 1])
        if entries.start < entries.stop:
            weights = mixing.data[entries].astype(float)
            expected[target, start:stop] = weights @ before[mixing.indices[entries], start:stop].astype(float)
    np.testing.assert_allclose(copy_of(matrix), expected, atol=1e-5)
    untouched = np.setdiff1d(np.arange(n), targets)
    assert np.array_equal(copy_of(matrix)[untouched], before[untouched])


@pytest.mark.parametrize("in_place", [False, True])
def test_large_merges_bypassing_the_caches_have_the_bits_of_one_thread(isa, rng, in_place):
    params = rng.standard_normal((36, 500_000 if in_place else 60_000), dtype=np.float32)
    mixing = sparse.eye(36, format="csr", dtype=np.float32) + sparse.random(36, 36, 0.1, "csr", np.float32, rng)
    results = []
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        matrix = torch.from_numpy(params.copy()) if in_place else torch.from_numpy(params)
        results.append(merge(matrix, mixing, out=matrix if in_place else None))
    assert all(torch.equal(results[0], other) for other in results[1:])
    columns = (12_345, 12_400)
    assert torch.equal(results[0][:, slice(*columns)], merge(torch.from_numpy(params), mixing, columns))


# -- similarities ------------------------------------------------------------------------------------------------------


@often
@given(worlds, st.sampled_from(["none", "common", "per model", "among the rows"]))
def test_similarities(world, subtract):
    rng, n, p = np.random.default_rng(world["seed"]), world["n"], world["p"]
    native.extension().set_isa(world["isa"])
    params, columns = matrix_of(rng, n, p, world["layout"]), some_columns(rng, p)
    part, exact = slice(*(columns or (0, p))), torch.from_numpy(copy_of(params))
    numbers = rng.integers(0, n, rng.integers(1, 12)) if rng.random() < 0.5 else None
    chosen = exact if numbers is None else exact[numbers]
    options: dict = {"columns": columns, "rows": numbers}
    base = None
    if subtract == "common":
        options["reference"] = base = torch.from_numpy(rng.standard_normal(p, dtype=np.float32))
    elif subtract == "per model":
        options["reference"] = matrix_of(rng, len(chosen), p, "strided")
        base = torch.from_numpy(copy_of(options["reference"]))
    elif subtract == "among the rows":
        options["reference_rows"] = rng.integers(0, n, len(chosen))
        base = exact[options["reference_rows"]]
    pairs = rng.integers(0, len(chosen), (int(rng.integers(0, 30)), 2))
    vectors = (chosen if base is None else chosen - base)[:, part]  # float32 differences, as in the kernel
    cosines, closeness = reference.cosine(vectors), reference.inverse_l2(vectors)

    torch.set_num_threads(world["threads"])
    np.testing.assert_allclose(cosine(params, **options), cosines, atol=2e-6)
    np.testing.assert_allclose(inverse_l2(params, **options), closeness, rtol=2e-6)
    left, right = pairs.T
    np.testing.assert_allclose(cosine(params, pairs=pairs, **options), cosines[left, right], atol=2e-6)
    listed = np.where(left == right, 1e6, closeness[left, right])
    same = reference.sqdist(vectors)[left, right] == 0
    np.testing.assert_allclose(inverse_l2(params, pairs=pairs, **options), np.where(same, 1e6, listed), rtol=2e-6)


@often
@given(worlds)
def test_class_similarities_equal_the_reference(world):
    rng, n = np.random.default_rng(world["seed"]), world["n"]
    native.extension().set_isa(world["isa"])
    torch.set_num_threads(world["threads"])
    classes, width = int(rng.integers(1, 12)), int(rng.integers(1, 70))
    p, columns = 11 + classes * width, (5, 5 + classes * width)
    params = matrix_of(rng, n, p, world["layout"])
    exact, part = torch.from_numpy(copy_of(params)), slice(*columns)
    pairs = rng.integers(0, n, (20, 2))
    left, right = pairs.T
    expected = reference.class_cosine(exact[:, part].contiguous(), classes)
    np.testing.assert_allclose(class_cosine(params, classes, columns), expected, atol=3e-6)
    np.testing.assert_allclose(class_cosine(params, classes, columns, pairs), expected[left, right], atol=3e-6)


@pytest.mark.parametrize("where", ["all", "listed", "columns", "since the start", "scattered"])
def test_distances_of_nearly_equal_models_are_right_to_1e_5(isa, rng, where):
    base = rng.standard_normal(20_000, dtype=np.float32)
    params = base + np.float32(1e-4) * rng.standard_normal((12, 20_000), dtype=np.float32)
    exact, pairs, numbers = torch.from_numpy(params), rng.integers(0, 12, (40, 2)), np.array([7, 2, 2, 11])
    expected = reference.sqdist(exact).sqrt()
    found = {
        "all": lambda: inverse_l2(params),
        "listed": lambda: inverse_l2(params, pairs=pairs),
        "columns": lambda: inverse_l2(params, columns=(1234, 15_001)),
        "since the start": lambda: inverse_l2(params, params[0].copy()),
        "scattered": lambda: inverse_l2(params, rows=numbers),
    }[where]().astype(float)
    if where == "listed":
        found, expected = found[pairs[:, 0] != pairs[:, 1]], expected[pairs[:, 0], pairs[:, 1]]
        expected = expected[pairs[:, 0] != pairs[:, 1]]
    elif where == "columns":
        expected = reference.sqdist(exact[:, 1234:15_001]).sqrt()
    elif where == "since the start":
        expected = reference.sqdist(exact - exact[0]).sqrt()
    elif where == "scattered":
        expected = expected[numbers][:, numbers]
    apart = expected.numpy() > 0
    np.testing.assert_allclose(1 / found[apart] - 1e-6, expected.numpy()[apart], rtol=1e-5)


# -- projections -------------------------------------------------------------------------------------------------------


def exactly_projected(row):
    """Return the projection of one row in rational numbers, by sorting."""
    values = [Fraction(float(value)) for value in row]
    total, threshold = Fraction(0), Fraction(0)
    for count, value in enumerate(sorted(values, reverse=True), 1):
        total += value
        if value > (total - 1) / count:
            threshold = (total - 1) / count
    return np.array([float(max(Fraction(0), value - threshold)) for value in values])


@often
@given(
    st.integers(0, 2**32),
    st.sampled_from(ISAS),
    st.sampled_from([np.float32, np.float64]),
    st.integers(1, 3),
    st.sampled_from([1, 2, 3, 4, 7, 8, 9, 31, 128, 129, 200]),
    st.sampled_from([1e-30, 1e-3, 0.3, 1, 50, 1e30]),
    st.sampled_from([0, 1, -1e3, 1e6, 1e10]),
    st.sampled_from(["plain", "ties", "feasible", "nearly feasible"]),
)
def test_projections_are_the_exact_ones(seed, isa, dtype, threads, num_columns, scale, offset, kind):
    rng = np.random.default_rng(seed)
    native.extension().set_isa(isa)
    torch.set_num_threads(threads)
    rows = offset + scale * rng.standard_normal((5, num_columns))
    if kind == "ties":
        rows = rng.choice(rows[0, : max(1, num_columns // 4)], rows.shape)
    elif kind != "plain":
        rows = rng.dirichlet(np.ones(num_columns), 5) * (1 if kind == "feasible" else 1 + 1e-3)
    rows = rows.astype(dtype)
    found = project_simplex(rows)
    expected = np.array([exactly_projected(row) for row in rows])
    np.testing.assert_allclose(found, expected, atol=8 * np.finfo(dtype).eps, rtol=0)
    assert (found >= 0).all()
    assert np.array_equal(project_simplex(rows[3]), found[3])
    assert np.array_equal(project_simplex(rows, out=rows), found)

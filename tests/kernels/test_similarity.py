"""Similarities against float64 torch, on every instruction set of this machine."""

import itertools

import numpy as np
import pytest
import reference_kernels as reference
import torch
from random_models import random_params

from ddlsim.foundation import native
from ddlsim.kernels import class_cosine, cosine, dots, inverse_l2, sqdist


def random_pairs(rng, num_models, count):
    return rng.integers(0, num_models, (count, 2))


@pytest.mark.parametrize(("n", "p"), [(1, 5), (2, 16), (7, 513), (33, 8200), (100, 700), (230, 90)])
def test_cosine_of_all_pairs(isa, rng, n, p):
    params = random_params(rng, n, p)
    torch.testing.assert_close(cosine(params).double(), reference.cosine(params), atol=2e-7, rtol=0)


@pytest.mark.parametrize("per_model", [False, True])
def test_cosine_of_updates_subtracts_the_reference(isa, rng, per_model):
    params = random_params(rng, 20, 1111)
    start = params[: 20 if per_model else 1] + 1e-3 * random_params(rng, 20, 1111)[: 20 if per_model else 1]
    start = start if per_model else start[0]
    expected = reference.cosine(params, start)
    torch.testing.assert_close(cosine(params, start).double(), expected, atol=2e-6, rtol=0)


@pytest.mark.parametrize("delta", [1e-1, 1e-3, 1e-4, 1e-5])
def test_close_models_keep_their_distance(isa, rng, delta):
    base = random_params(rng, 1, 20_000)
    params = base + delta * random_params(rng, 12, 20_000)
    expected = reference.sqdist(params).sqrt()
    found = torch.from_numpy(sqdist(params)).sqrt()
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=0)
    torch.testing.assert_close(inverse_l2(params).double(), reference.inverse_l2(params), rtol=1e-6, atol=0)


@pytest.mark.parametrize("product", [dots, sqdist])
@pytest.mark.parametrize("per_model", [None, False, True])
def test_a_pair_has_the_same_bits_alone_and_in_any_list(isa, rng, product, per_model):
    params = random_params(rng, 120, 9001)
    reference = None if per_model is None else random_params(rng, 120, 9001) if per_model else params[7].clone()
    pairs = random_pairs(rng, 120, 300)
    listed = product(params, reference, pairs=pairs)
    shuffled = rng.permutation(len(pairs))
    assert np.array_equal(product(params, reference, pairs=pairs[shuffled]), listed[shuffled])
    assert np.array_equal(product(params, reference, pairs=pairs[:, ::-1]), listed)
    assert all(product(params, reference, pairs=pairs[i : i + 1])[0] == listed[i] for i in range(0, len(pairs), 50))


@pytest.mark.parametrize("product", [dots, sqdist])
def test_a_pair_in_a_list_agrees_with_the_same_pair_among_all(isa, rng, product):
    for num_columns, peers in itertools.product([1, 15, 16, 31, 48, 127, 128, 129, 300, 8192, 9001], range(14)):
        params = random_params(rng, 40, num_columns)
        pairs = np.stack([np.full(peers, 7), rng.integers(0, 40, peers)], axis=1)
        expected = product(params)[pairs[:, 0], pairs[:, 1]]
        np.testing.assert_allclose(product(params, pairs=pairs), expected, rtol=1e-6, atol=1e-6 * num_columns)


@pytest.mark.parametrize("shape", [(250, 2000), (30, 40_000)])
def test_thread_count_does_not_change_a_bit(isa, rng, shape):
    params = random_params(rng, *shape)
    pairs, start = random_pairs(rng, shape[0], 500), random_params(rng, *shape)
    before = torch.get_num_threads()
    results = []
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        lists = dots(params, pairs=pairs), sqdist(params, params[0], pairs=pairs)
        results.append((dots(params), sqdist(params), dots(params, params[3]), dots(params, start), *lists))
    torch.set_num_threads(before)
    for other in results[1:]:
        assert all(np.array_equal(a, b) for a, b in zip(results[0], other, strict=True))


def test_listed_pairs_of_cosine_and_inverse_l2(isa, rng):
    params = random_params(rng, 15, 777)
    pairs = np.array([[3, 4], [4, 3], [0, 14], [7, 7]])
    expected = cosine(params)[pairs[:, 0], pairs[:, 1]]
    torch.testing.assert_close(cosine(params, pairs=pairs), expected, atol=1e-7, rtol=0)
    close = inverse_l2(params, pairs=torch.from_numpy(pairs)).numpy()
    np.testing.assert_allclose(close[:3], inverse_l2(params)[pairs[:3, 0], pairs[:3, 1]], rtol=1e-6)
    assert close[3] == np.float32(1e6)


def test_models_may_be_scattered_rows_with_their_references_among_them(isa, rng):
    matrix = random_params(rng, 30, 1000)
    rows, before = [28, 3, 11], [0, 3, 19]
    expected = cosine(matrix[rows].clone(), matrix[before].clone())
    assert torch.equal(cosine(matrix, rows=rows, reference_rows=before), expected)
    expected = inverse_l2(matrix[rows].clone())
    assert torch.equal(inverse_l2(matrix, rows=rows), expected)


def test_columns_choose_a_part_of_the_model(isa, rng):
    params = random_params(rng, 9, 1000)
    part = params[:, 137:850].clone()
    torch.testing.assert_close(cosine(params, columns=(137, 850)), cosine(part), atol=1e-7, rtol=0)
    start = random_params(rng, 1, 1000)[0]
    expected = reference.cosine(part, start[137:850])
    torch.testing.assert_close(cosine(params, start, columns=(137, 850)).double(), expected, atol=3e-7, rtol=0)


def test_class_cosine_is_the_mean_over_the_classifier_rows(isa, rng):
    params = random_params(rng, 11, 5 * 64 + 30)
    expected = reference.class_cosine(params[:, 20:340].contiguous(), 5)
    torch.testing.assert_close(class_cosine(params, 5, (20, 340)).double(), expected, atol=3e-7, rtol=0)
    pairs = np.array([[1, 2], [10, 0]])
    listed = class_cosine(params, 5, (20, 340), pairs=pairs).double()
    torch.testing.assert_close(listed, expected[pairs[:, 0], pairs[:, 1]], atol=3e-7, rtol=0)


def test_a_zero_vector_has_cosine_zero():
    params = torch.tensor([[0.0, 0.0], [3.0, 4.0]])
    assert cosine(params).tolist() == [[0, 0], [0, 1]]
    assert cosine(params, pairs=[[0, 1], [1, 1]]).tolist() == [0, 1]


def test_one_node_is_like_itself_and_has_no_neighbor():
    params = torch.ones(1, 20)
    assert cosine(params).tolist() == [[1]]
    assert inverse_l2(params).tolist() == [[0]]


def test_identical_models_have_inverse_distance_one_million():
    assert inverse_l2(torch.ones(2, 20))[0, 1] == 1e6


def test_no_pairs_give_no_similarities():
    assert cosine(torch.ones(3, 4), pairs=[]).shape == (0,)
    assert inverse_l2(torch.ones(3, 4), pairs=[]).shape == (0,)


def test_nan_stays_with_its_model(isa):
    params = torch.ones(3, 20)
    params[1, 3] = float("nan")
    assert cosine(params).isnan().tolist() == [[False, True, False], [True] * 3, [False, True, False]]
    off_diagonal = inverse_l2(params)
    assert off_diagonal[0, 1].isnan()
    assert not off_diagonal[0, 2].isnan()


def test_numpy_in_numpy_out(rng):
    params = rng.standard_normal((5, 50), dtype=np.float32)
    found = cosine(params)
    assert isinstance(found, np.ndarray)
    assert np.array_equal(found, cosine(torch.from_numpy(params)).numpy())


def on_every_instruction_set(compute):
    extension = native.extension()
    before = extension.isa()
    results = {}
    for name in extension.isas():
        extension.set_isa(name)
        results[name] = compute()
    extension.set_isa(before)
    return results


@pytest.mark.parametrize("num_columns", [1, 17, 3001, 9000])
def test_every_instruction_set_agrees(rng, num_columns):
    params, pairs = random_params(rng, 20, num_columns), random_pairs(rng, 20, 70)
    for product in (dots, sqdist):
        for arguments in ({}, {"pairs": pairs}, {"reference": params[3].clone()}):
            results = on_every_instruction_set(lambda p=product, a=arguments: p(params, **a))
            for result in results.values():
                np.testing.assert_allclose(result, results[native.extension().isa()], rtol=1e-5, atol=1e-4)
            fused = [result for name, result in results.items() if name != "x86-64-v2"]
            assert all(np.array_equal(result, fused[0]) for result in fused)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"pairs": [[0, 3]]}, IndexError, r"pairs must lie in 0\.\.2, found 0\.\.3"),
        ({"pairs": [[0, -1]]}, IndexError, r"pairs must lie in 0\.\.2, found -1\.\.0"),
        ({"pairs": [0, 1]}, ValueError, r"pairs: expected \[E, 2\], got \[2\]"),
        ({"rows": [5]}, IndexError, r"rows must lie in 0\.\.2, found 5\.\.5"),
        ({"reference": torch.zeros(7)}, ValueError, r"reference: expected \[8\] or \[3, 8\], got \[3, 7\]"),
        ({"reference": torch.zeros(2, 8)}, ValueError, "reference: expected"),
        ({"reference_rows": [0]}, ValueError, "reference: expected"),
        ({"reference_rows": [0, 1, 3]}, IndexError, r"reference_rows must lie in 0\.\.2, found 0\.\.3"),
        ({"columns": (4, 9)}, ValueError, "columns"),
    ],
)
def test_wrong_arguments_are_refused(arguments, error, message):
    with pytest.raises(error, match=message):
        cosine(torch.zeros(3, 8), **arguments)

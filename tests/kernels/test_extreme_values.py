"""Similarities of models with values at the ends of float32's range; other models are unaffected."""

import numpy as np
import pytest
import reference_kernels as reference
import torch

from ddlsim.kernels import cosine, inverse_l2, sqdist


@pytest.mark.parametrize("scale", [1e-10, 1e10, 1e17])
def test_large_and_small_models_have_the_usual_similarities(isa, params, scale):
    scaled = params * np.float32(scale)
    np.testing.assert_allclose(cosine(scaled), reference.cosine(torch.from_numpy(scaled)), atol=1e-6)
    np.testing.assert_allclose(sqdist(scaled), reference.sqdist(torch.from_numpy(scaled)), rtol=1e-5)
    np.testing.assert_allclose(inverse_l2(scaled), reference.inverse_l2(torch.from_numpy(scaled)), rtol=1e-6)


def test_squares_beyond_float32_are_infinity_or_zero_and_change_no_other_model(isa, params):
    expected = cosine(params)
    params[1], params[3] = 1e20 * params[1], 1e-30 * params[3]
    found, distances, rest = cosine(params), sqdist(params), [0, 2, 4]
    assert np.array_equal(found[np.ix_(rest, rest)], expected[np.ix_(rest, rest)])
    assert all(np.isnan(found[1, i]) or found[1, i] == 0 for i in range(5))
    assert np.isinf(distances[1, rest]).all()
    assert (abs(found[3, rest]) < 1e-8).all()
    np.testing.assert_allclose(distances[3, rest], np.sum(params[rest].astype(float) ** 2, axis=1), rtol=1e-6)

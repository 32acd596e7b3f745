import numpy as np
import pytest

from ddlsim.foundation import native


@pytest.mark.parametrize("seed", range(3))
def test_the_start_of_a_permutation_has_numpys_bits(seed):
    ours, numpys = np.random.default_rng(seed), np.random.default_rng(seed)
    for size in (0, 1, 2, 3, 4, 5, 63, 64, 65, 1563, 70_000):
        count = -(-size // 2)
        found = native.extension().start_of_permutation(ours.bit_generator.capsule, size, count)
        np.testing.assert_array_equal(found, numpys.permutation(size)[:count])
    assert ours.random() == numpys.random()


def test_a_permutation_has_no_more_values_than_its_size():
    capsule = np.random.default_rng(0).bit_generator.capsule
    with pytest.raises(ValueError, match="expected 0 <= count <= n"):
        native.extension().start_of_permutation(capsule, 3, 4)
    with pytest.raises(ValueError, match="PyCapsule"):
        native.extension().start_of_permutation(3, 3, 3)

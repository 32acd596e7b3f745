"""Encoded bytes and decoded values of each codec, by hand."""

import pytest
import torch

from ddlsim.network.messages.compression import COMPRESSIONS, Float16, Int8, RandomK, TopK, num_sent

CODECS = [COMPRESSIONS[name]() for name in COMPRESSIONS if name != "none"]


def through(codec, values, sizes, copies=None, seeds=None) -> torch.Tensor:
    copies = None if copies is None else copies.clone()
    seeds = list(range(len(values))) if seeds is None else seeds
    return codec.decode(codec.encode(values, copies, sizes, seeds), copies, sizes, seeds)


def test_float16_rounds_to_eleven_bits_and_saturates():
    values = torch.tensor([[1.0, 1 + 2**-12, 2049.0, -70000.0, float("inf"), float("nan")]])
    decoded = through(Float16(), values, [6])
    assert decoded[0, :5].tolist() == [1.0, 1.0, 2048.0, -65504.0, 65504.0]
    assert decoded[0, 5].isnan()


def test_int8_has_a_scale_per_tensor():
    values = torch.tensor([[127.0, -3.4, 0.6, 1.27, -0.636]])
    integers, scales = Int8().encode(values, None, [3, 2], [0])
    assert integers.tolist() == [[127, -3, 1, 127, -64]]
    assert scales.tolist() == [[1.0, pytest.approx(0.01)]]
    assert Int8().decode((integers, scales), None, [3, 2], [0])[0].tolist() == pytest.approx([127, -3, 1, 1.27, -0.64])


def test_int8_is_off_by_half_a_step_at_most():
    values = torch.randn(3, 1000, generator=torch.Generator().manual_seed(0))
    decoded = through(Int8(), values, [400, 600])
    for columns in (slice(0, 400), slice(400, 1000)):
        step = values[:, columns].abs().amax(1, keepdim=True) / 127
        assert ((decoded - values)[:, columns].abs() <= step * 0.5001).all()


def test_int8_of_zeros_is_zeros_and_of_infinity_nan():
    values = torch.tensor([[0.0, 0.0, 1.0, float("inf"), 2.0]])
    decoded = through(Int8(), values, [2, 2, 1])
    assert decoded[0, :2].tolist() == [0, 0]
    assert decoded[0, 2:4].isnan().all()
    assert decoded[0, 4] == 2


def test_top_k_sends_the_values_differing_most_from_the_copy():
    values = torch.tensor([[1.0, 2.0, 3.0, 4.0], [0.0, 0.0, 9.0, 0.0]])
    copies = torch.tensor([[1.5, 0.0, 3.125, 6.5], [1.0, 2.0, 3.0, 4.0]])
    assert through(TopK(fraction=0.5), values, [4], copies).tolist() == [[1.5, 2, 3.125, 4], [1, 2, 9, 0]]


def test_top_k_feeds_back_unsent_values():
    values, copy = torch.tensor([[5.0, 4.0, 3.0, 2.0]]), torch.zeros(1, 4)
    seen = []
    for _ in range(4):
        copy = through(TopK(fraction=0.25), values, [4], copy)
        seen.append(copy[0].tolist())
    assert seen == [[5, 0, 0, 0], [5, 4, 0, 0], [5, 4, 3, 0], [5, 4, 3, 2]]


def test_random_k_replaces_its_number_of_values_at_seeded_places():
    values, copies = torch.arange(1.0, 101).expand(3, 100), torch.zeros(3, 100)
    decoded = through(RandomK(fraction=0.2), values, [100], copies, seeds=[7, 8, 7])
    assert (decoded != 0).sum(1).tolist() == [20, 20, 20]
    assert ((decoded == 0) | (decoded == values)).all()
    assert torch.equal(decoded[0], decoded[2])
    assert not torch.equal(decoded[0], decoded[1])


def test_random_k_reaches_every_place():
    values, copy = torch.ones(1, 50), torch.zeros(1, 50)
    for seed in range(60):
        copy = through(RandomK(fraction=0.1), values, [50], copy, seeds=[seed])
    assert copy.sum() > 48  # a place is missed 60 times with probability 0.9 ** 60 = 0.002


@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: type(codec).__name__)
def test_num_bytes_is_the_size_of_the_encoding(codec):
    sizes = [30, 1, 69]
    values = torch.randn(2, 100, generator=torch.Generator().manual_seed(0))
    encoded = codec.encode(values, torch.zeros(2, 100), sizes, [0, 1])
    on_the_wire = sum(tensor[0].nbytes for tensor in encoded) + (8 if isinstance(codec, RandomK) else 0)
    expected = {"Float16": 200, "Int8": 112, "TopK": 80, "RandomK": 48}
    assert codec.num_bytes(sizes) == on_the_wire == expected[type(codec).__name__]


@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: type(codec).__name__)
def test_a_row_does_not_depend_on_its_neighbors(codec):
    values = torch.randn(5, 40, generator=torch.Generator().manual_seed(0))
    copies = torch.randn(5, 40, generator=torch.Generator().manual_seed(1))
    together = through(codec, values, [10, 30], copies, seeds=[3, 4, 5, 6, 7])
    alone = through(codec, values[2:3], [10, 30], copies[2:3], seeds=[5])
    assert torch.equal(together[2:3], alone)


def test_at_least_one_value_is_sent_and_at_most_all():
    assert [num_sent(fraction, 10) for fraction in (0.01, 0.24, 0.3, 1.0)] == [1, 2, 3, 10]
    assert num_sent(0.5, 1) == 1

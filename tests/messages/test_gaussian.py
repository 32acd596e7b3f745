"""The Gaussian mechanism on messages: clipping, noise and releases."""

from types import SimpleNamespace

import pytest
import torch

from ddlsim.network.messages.gaussian import GaussianMechanism, PrivateSender


def handle(serial, part="model"):
    return SimpleNamespace(serial=serial, part=part)


class Computing:
    """Records requests and returns handles with new numbers."""

    def __init__(self):
        self.asked, self.released = [], []

    def compress(self, mechanism, params, copy, seed):
        self.asked.append((mechanism.keeps_copies, params.serial, copy and copy.serial, seed))
        return handle(100 + len(self.asked), params.part)


@pytest.fixture
def sender():
    """Return a sender whose seeds are 1, 2, ..."""

    def make(updates=True):
        computing, seeds = Computing(), iter(range(1, 100))
        return PrivateSender(
            0.5, 1.0, updates, computing.compress, lambda: next(seeds), lambda: computing.released.append(1)
        ), computing

    return make


def test_updates_longer_than_the_clip_are_scaled_down():
    mechanism = GaussianMechanism(clip=5.0, noise_multiplier=0.0, keeps_copies=True)
    copies = torch.tensor([[1.0, 1.0], [1.0, 1.0]])
    values = torch.tensor([[4.0, 5.0], [7.0, 9.0]])  # 5 and 10 away
    (encoded,) = mechanism.encode(values, copies, [2], [1, 2])
    assert torch.allclose(encoded, torch.tensor([[3.0, 4.0], [3.0, 4.0]]))
    assert torch.allclose(mechanism.decode((encoded,), copies, [2], [1, 2]), torch.tensor([[4.0, 5.0], [4.0, 5.0]]))


def test_noise_has_the_requested_standard_deviation_and_follows_its_seed():
    mechanism = GaussianMechanism(clip=2.0, noise_multiplier=1.5, keeps_copies=False)
    values = torch.zeros(2, 20000)
    first, again, other = (mechanism.encode(values, None, [20000], seeds)[0] for seeds in ((1, 2), (1, 2), (1, 3)))
    assert torch.equal(first, again) and torch.equal(first[0], other[0]) and not torch.equal(first[1], other[1])
    assert abs(float(first.std()) - 3.0) < 0.05


def test_drawn_model_is_subtracted_first_then_the_preceding_release(sender):
    private, computing = sender()
    private.starts_with([(handle(1),)])
    private.protect({"model": handle(7)})
    private.protect({"model": handle(8)})
    assert computing.asked == [(True, 7, 1, 1), (True, 8, 101, 2)] and len(computing.released) == 2


def test_repeated_message_is_released_once(sender):
    private, computing = sender()
    private.starts_with([(handle(1),)])
    model = handle(7)
    sent = [private.protect({"model": model})["model"].serial for _ in range(3)]
    assert sent == [101] * 3 and len(computing.released) == 1 and len(computing.asked) == 1


def test_parameters_without_an_initial_model_are_clipped_whole(sender):
    private, computing = sender()
    private.protect({"tracker": handle(7, "values")})
    assert computing.asked == [(False, 7, None, 1)]


def test_models_are_clipped_whole_with_clips_model(sender):
    private, computing = sender(updates=False)
    private.starts_with([(handle(1),)])
    private.protect({"model": handle(7)})
    private.protect({"model": handle(8)})
    assert [asked[:3] for asked in computing.asked] == [(False, 7, None), (False, 8, None)]


def test_places_in_a_payload_are_separate_streams_and_numbers_are_unchanged(sender):
    private, computing = sender()
    found = private.protect({"core": handle(1, "core"), "heads": [handle(2, "head"), handle(3, "head")], "age": 4})
    assert (found["age"], len(computing.released)) == (4, 3)


def test_node_with_lost_state_subtracts_its_new_initial_model(sender):
    private, computing = sender()
    private.starts_with([(handle(1),)])
    private.protect({"model": handle(7)})
    private.forget()
    private.starts_with([(handle(2),)])
    private.protect({"model": handle(9)})
    assert computing.asked[-1][:3] == (True, 9, 2) and len(computing.released) == 2

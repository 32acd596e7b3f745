from dataclasses import dataclass

import numpy as np
import pytest
import torch

from ddlsim.data.dataset import Dataset
from ddlsim.data.partitions import Random
from ddlsim.data.shifts import Color, LabelShift, LabelSwap, NoShift, Rotate, Setting, Shift, rotate_nearest
from ddlsim.data.views import samples_of, views_of
from ddlsim.foundation.errors import ScenarioError

LABELS = np.array([0, 1, 2, 3])
CORNERS = np.array([[1, 2], [3, 4]], np.float32).reshape(1, 1, 2, 2)


def setting(num_clusters=2, num_classes=4, channels=1, black=-1.0):
    return Setting(num_clusters, num_classes, np.full(channels, black, np.float32))


def turned(degrees, num_clusters=2, cluster=1, images=CORNERS, **keys):
    rotate = Rotate(degrees=degrees, **keys)
    return rotate.apply(images, LABELS, cluster, setting(num_clusters, channels=images.shape[1]))[0]


def test_no_shift_returns_its_input():
    images, labels = NoShift().apply(CORNERS, LABELS, 1, setting())
    assert images is CORNERS and labels is LABELS


def test_90_degrees_turn_counter_clockwise():
    assert turned((0, 90)).reshape(2, 2).tolist() == [[2, 4], [1, 3]]


def test_two_clusters_are_0_and_180_by_default():
    assert turned("auto", cluster=0).reshape(2, 2).tolist() == [[1, 2], [3, 4]]
    assert turned("auto", cluster=1).reshape(2, 2).tolist() == [[4, 3], [2, 1]]


def test_four_clusters_are_quarter_turns_by_default():
    assert Rotate().angles(4) == (0, 90, 180, 270)
    assert Rotate().angles(3) == (0, 90, 180)


def test_angles_count_modulo_a_full_turn():
    assert np.array_equal(turned((0, 450)), turned((0, 90)))
    assert np.array_equal(turned((0, -90)), turned((0, 270)))


def test_five_clusters_need_their_angles_listed():
    with pytest.raises(ScenarioError, match="one entry for each of the 5 clusters"):
        Rotate().angles(5)


def test_one_angle_for_each_cluster():
    with pytest.raises(ScenarioError, match="each of the 3 clusters"):
        turned((0, 90), num_clusters=3)


def test_only_square_images_are_turned_by_90_degrees():
    with pytest.raises(ScenarioError, match="square"):
        turned((0, 90), images=np.zeros((1, 1, 2, 3), np.float32))


def test_rotation_keeps_labels_and_its_input():
    before = CORNERS.copy()
    assert Rotate().apply(CORNERS, LABELS, 1, setting())[1] is LABELS
    assert np.array_equal(CORNERS, before)


def test_corners_are_the_mean_color_after_normalizing_and_black_before():
    images = np.full((1, 1, 8, 8), 0.25, np.float32)
    assert turned((0, 45), images=images)[0, 0, 0, 0] == 0
    assert turned((0, 45), images=images, order="before_normalizing")[0, 0, 0, 0] == -1


@pytest.mark.parametrize("size", [28, 32, 33])
@pytest.mark.parametrize("degrees", [10, 45, 61.5, 135, 350])
def test_rotation_by_any_angle_equals_torchvision(size, degrees):
    import torch
    from torchvision.transforms import RandomRotation

    images = np.random.default_rng(0).normal(size=(2, 3, size, size)).astype(np.float32)
    expected = RandomRotation([degrees, degrees])(torch.from_numpy(images)).numpy()
    assert np.array_equal(rotate_nearest(images, degrees, np.zeros(3, np.float32)), expected)


@pytest.mark.parametrize("quarter", [1, 2, 3])
def test_quarter_turns_equal_torchvision(quarter):
    import torch
    from torchvision.transforms import RandomRotation

    images = np.random.default_rng(0).normal(size=(2, 3, 32, 32)).astype(np.float32)
    expected = RandomRotation([90 * quarter, 90 * quarter])(torch.from_numpy(images)).numpy()
    assert np.array_equal(turned((0, 90 * quarter), images=images), expected)


def test_label_swap_exchanges_the_pairs_of_its_cluster_only():
    swap = LabelSwap(pairs=((), ((0, 1), (2, 3))))
    assert swap.apply(CORNERS, LABELS, 0, setting())[1].tolist() == [0, 1, 2, 3]
    assert swap.apply(CORNERS, LABELS, 1, setting())[1].tolist() == [1, 0, 3, 2]


def test_label_swap_of_a_missing_label_is_refused():
    with pytest.raises(ScenarioError, match=r"0\.\.3"):
        LabelSwap(pairs=((), ((0, 9),))).apply(CORNERS, LABELS, 1, setting())


def test_label_shift_moves_labels_around_the_end():
    assert LabelShift().apply(CORNERS, LABELS, 1, setting())[1].tolist() == [1, 2, 3, 0]
    assert LabelShift(offsets=(0, -1)).apply(CORNERS, LABELS, 1, setting())[1].tolist() == [3, 0, 1, 2]


def test_color_reorders_channels():
    red_green_blue = np.arange(3, dtype=np.float32).reshape(1, 3, 1, 1)
    color = Color(channels=("rgb", "bgr"))
    assert color.apply(red_green_blue, LABELS, 0, setting(channels=3))[0] is red_green_blue
    assert color.apply(red_green_blue, LABELS, 1, setting(channels=3))[0].ravel().tolist() == [2, 1, 0]


def test_color_needs_three_channels():
    with pytest.raises(ScenarioError, match="3 channels"):
        Color().apply(CORNERS, LABELS, 0, setting())


def test_rows_of_features_are_not_turned():
    with pytest.raises(ScenarioError, match=r"rotate expects images, got samples float32 \[1, 1, 4\]"):
        Rotate(degrees=(0, 180)).apply(CORNERS.reshape(1, 1, 1, 4), LABELS[:1], 1, setting())


def seen_by_both(apply, x, y):
    """Return the samples of two clusters, shifted by a function."""

    @dataclass(frozen=True, kw_only=True)
    class Own(Shift):
        def apply(self, images, labels, cluster, setting):
            return apply(images, labels, cluster)

    mean, std = np.zeros(1, np.float32), np.ones(1, np.float32)
    dataset = Dataset("own", x, y, x, y, 2, mean, std, "here")
    views = views_of(dataset, Random(), Own(), 2)
    base = samples_of(dataset, "train", np.arange(len(y)))
    return [view.of(base) for view in views]


def in_place(images, labels, cluster):
    images *= -1
    labels[:] = 1 - labels
    return images, labels


def by_torch(images, labels, cluster):
    torch.from_numpy(images).neg_()
    return images, 1 - labels


@pytest.mark.parametrize("apply", [in_place, by_torch])
def test_shift_writing_into_its_input_changes_no_other_data(apply):
    x, y = np.arange(8, dtype=np.float32).reshape(4, 2), np.array([0, 1, 0, 1])
    for images, labels in seen_by_both(apply, x, y):
        assert np.array_equal(images, -x) and labels.tolist() == [1, 0, 1, 0]
    assert y.tolist() == [0, 1, 0, 1] and x[3, 1] == 7


def test_shift_returns_its_input_or_new_arrays():
    x, y = np.arange(8, dtype=np.float32).reshape(4, 2), np.array([0, 1, 0, 1])
    (first, one), (second, other) = seen_by_both(lambda x, y, c: (x[:] if c else x * -1, 1 - y if c else y), x, y)
    assert one.tolist() == [0, 1, 0, 1] and other.tolist() == [1, 0, 1, 0]
    assert np.array_equal(first, -x) and np.array_equal(second, x)
    assert all(array.flags.writeable for array in (first, one, second, other))


@pytest.mark.parametrize(
    ("apply", "text"),
    [
        (lambda x, y, c: x, "expected two arrays, images and labels, got a? ?ndarray"),
        (lambda x, y, c: (x.tolist(), y), "expected two arrays"),
        (lambda x, y, c: (x[:3], y), r"expected images \[4, 2\] .*, got \[3, 2\]"),
        (lambda x, y, c: (x > 2, y), r"expected images .*, got \[4, 2\] of bool"),
        (lambda x, y, c: (np.where(x > 5, np.nan, x), y), "expected images .* with finite values"),
        (lambda x, y, c: (x, y[:3]), r"expected labels \[4\] .*, got \[3\] of int64"),
        (lambda x, y, c: (x, y + c), r"labels must be 0..1, got 1..2 \(task: classification\)"),
        (lambda x, y, c: (x, y / 2), "labels must be whole numbers"),
    ],
)
def test_invalid_results_of_a_shift_are_refused(apply, text):
    x, y = np.arange(8, dtype=np.float32).reshape(4, 2), np.array([0, 1, 0, 1])
    with pytest.raises(ScenarioError, match=rf"shift: .*Own: {text}"):
        seen_by_both(apply, x, y)


def test_whole_numbers_are_labels_of_a_regression():
    @dataclass(frozen=True, kw_only=True)
    class Sign(Shift):
        def apply(self, images, labels, cluster, setting):
            return images, np.sign(labels).astype(int)

    x, y = np.zeros((3, 2), np.float32), np.array([-2.5, 0.0, 3.5], np.float32)
    dataset = Dataset("own", x, y, x, y, 1, np.zeros(1), np.ones(1), "here", task="regression")
    (view,) = views_of(dataset, Random(), Sign(), 1)
    assert view.of(samples_of(dataset, "train", np.arange(3)))[1].tolist() == [-1, 0, 1]

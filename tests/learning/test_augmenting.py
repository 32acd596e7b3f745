"""Batched augmentations against torchvision's, image by image, and their random numbers."""

import pytest
import torch
from torchvision.transforms.v2 import functional as V

from ddlsim.learning import augmenting
from ddlsim.learning.augmenting import Augmenter


@pytest.fixture
def images():
    return torch.rand(6, 3, 32, 32, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    ("ours", "theirs", "low", "high"),
    [
        (augmenting.brightness, V.adjust_brightness, 0.6, 1.4),
        (augmenting.contrast, V.adjust_contrast, 0.6, 1.4),
        (augmenting.saturation, V.adjust_saturation, 0.6, 1.4),
        (augmenting.hue, V.adjust_hue, -0.1, 0.1),
    ],
)
def test_color_operations_equal_torchvision(images, ours, theirs, low, high):
    images[0] = 0.5  # without color
    factors = torch.linspace(low, high, 6)
    expected = torch.stack([theirs(image, factor.item()) for image, factor in zip(images, factors, strict=True)])
    torch.testing.assert_close(ours(images, factors), expected, rtol=1e-4, atol=1e-5)


def test_grey_equals_torchvision(images):
    torch.testing.assert_close(augmenting.gray(images), V.rgb_to_grayscale(images, 3), rtol=1e-4, atol=1e-5)


def test_resized_crops_equal_torchvision(images):
    crops = torch.tensor(
        [[0, 0, 32, 32], [5, 7, 20, 14], [31, 31, 1, 1], [2, 0, 9, 32], [0, 11, 32, 13], [8, 8, 16, 16]]
    )
    expected = torch.stack(
        [V.resized_crop(image, *crop.tolist(), size=[32, 32]) for image, crop in zip(images, crops, strict=True)]
    )
    torch.testing.assert_close(augmenting.resized_crops(images, *crops.T), expected, rtol=1e-4, atol=1e-5)


def make(kind, seed=0, channels=3):
    return Augmenter(kind, torch.full((channels,), 0.4), torch.full((channels,), 0.5), seed)


def test_drawn_crops_lie_inside_and_have_the_requested_area(images):
    top, left, height, width = make("color")._draw_crops(images.repeat(200, 1, 1, 1).shape)
    assert (top >= 0).all() and (left >= 0).all() and (top + height <= 32).all() and (left + width <= 32).all()
    share = height * width / 1024
    assert share.min() > 0.18 and share.max() <= 1.0 and 0.5 < share.float().mean() < 0.65


def test_crop_flip_moves_by_at_most_four_pixels():
    image = torch.zeros(1, 1, 9, 9)
    image[0, 0, 4, 4] = 1.0
    augment = make("crop_flip", channels=1)
    found = {tuple(torch.nonzero(augment((image - 0.4) / 0.5)[0, 0] > 0.5)[0].tolist()) for _ in range(400)}
    assert found == {(row, column) for row in range(9) for column in range(9)}


@pytest.mark.parametrize("kind", ["crop_flip", "color"])
@pytest.mark.parametrize("channels", [1, 3])
def test_views_differ_and_repeat_with_the_seed(images, kind, channels):
    first, again, other = (make(kind, seed, channels)(images[:, :channels], 2) for seed in (3, 3, 4))
    assert first.shape == (12, channels, 32, 32)
    assert torch.equal(first, again) and not torch.equal(first, other) and not torch.equal(first[:6], first[6:])


def test_two_views_without_augmentation_are_the_images_twice(images):
    assert torch.equal(make("none")(images, 2), torch.cat([images, images]))


@pytest.mark.parametrize("kind", ["crop_flip", "color"])
@pytest.mark.parametrize("channels", [1, 3])
def test_batches_are_augmented_together_as_alone(images, kind, channels):
    steps = images[:, :channels].unflatten(0, (2, 3)).expand(2, -1, -1, -1, -1, -1)  # two batches of three, twice
    alone, together = ([make(kind, seed, channels) for seed in (1, 2)] for _ in range(2))
    found = augmenting.augment_together(together, steps)
    for step, batches in enumerate(steps):
        expected = torch.stack([augment(batch) for augment, batch in zip(alone, batches, strict=True)])
        torch.testing.assert_close(found[step], expected)

"""Random augmentation of training images, drawn per image and independent of other nodes.

torchvision's transforms draw from torch's global generator and treat a batch as one image. In the built-in
augmentations every training has its own generator, and each operation equals torchvision.transforms.v2's on tensors,
computed for a batch of images with a parameter each (the tests compare them one by one).

- crop_flip: 4 pixels of black around (the value 0 before mean and std; for floats that the user has normalized, their
    mean), a crop of the old size, a flip from left to right by chance 1/2.
- color: a crop of 0.2 to 1 of the area (and 3/4 to 4/3 of the aspect) resized to the old size, a flip, by chance 0.8 a
  jitter of brightness, contrast, saturation (0.4 each) and hue (0.1) in random order, by chance 0.2 no color (SimCLR's
  recipe without blur, as in MAPL's code). Images without three channels have no color to change.

User-defined transforms draw from the global generators (torch, random, numpy). Every step of a training seeds these
from the training's own stream, one thread at a time, and restores them afterwards. Samples pass through a transform one
by one; a transform that draws nothing takes the whole batch.
"""

import math
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F

from ddlsim.foundation.augmentation import callables
from ddlsim.foundation.errors import ScenarioError, cause_of
from ddlsim.foundation.torch_state import forked_generators
from ddlsim.kernels.matrices import uploaded


@contextmanager
def drawing(seed: int, device: torch.device) -> Iterator[None]:
    """Let code draw from the global generators, whose states are restored afterwards."""
    with forked_generators(seed, [device] if device.type == "cuda" else []):
        of_random, of_numpy = random.getstate(), np.random.get_state()
        random.seed(seed)
        np.random.seed(seed % 2**32)
        try:
            yield
        finally:
            random.setstate(of_random)
            np.random.set_state(of_numpy)


_CPU = torch.device("cpu")


class Transforms:
    """The transforms of a scenario, tried on two samples.

    Args:
        augmentation: scenario key training.augmentation, not a built-in one.
        shape: of one sample.
    Raises:
        ScenarioError: if a transform fails, returns no sample of this shape, or draws from its own generator.
        DataMissing: if it is not available in this process.
    """

    def __init__(self, augmentation: Any, shape: Sequence[int]):
        self._steps: list[tuple[Callable[[Any], Any], bool]] = []
        samples = torch.rand(2, *shape, generator=torch.Generator().manual_seed(0))
        for each in callables(augmentation):
            name = getattr(each, "__name__", type(each).__name__)
            first, drawn = self._try_transform(name, each, samples)
            again, _ = self._try_transform(name, each, samples)
            if not torch.equal(first, again):
                text = f"{name} draws from a separate generator, so runs could not be repeated"
                raise ScenarioError(f"training.augmentation: {text}. Draw from a global generator.")
            self._steps.append((each, not drawn and self._takes_batches(each, samples, first)))

    def __call__(self, samples: torch.Tensor) -> torch.Tensor:
        """Samples [n, ...] after all transforms, drawn from the global generators."""
        for each, batched in self._steps:
            samples = each(samples) if batched else torch.stack([each(sample) for sample in samples])
        return samples

    def _try_transform(self, name: str, each: Callable[[Any], Any], samples: torch.Tensor) -> tuple[torch.Tensor, bool]:
        """Return the transform's result for samples from seed 0, and whether it draws."""
        with drawing(0, _CPU):
            before = _states()
            try:
                found = [each(sample.clone()) for sample in samples]
            except Exception as error:  # any error of a transform
                text = f"{name} cannot take a float tensor {list(samples.shape[1:])} of values 0 to 1"
                raise ScenarioError(f"training.augmentation: {text}: {cause_of(error)}") from error
            drawn = _states() != before
        for one in found:
            if not isinstance(one, torch.Tensor) or one.shape != samples.shape[1:] or one.dtype != samples.dtype:
                got = f"{one.dtype} {list(one.shape)}" if isinstance(one, torch.Tensor) else f"a {type(one).__name__}"
                text = f"{name} must return float32 {list(samples.shape[1:])}, like its input, got {got}"
                raise ScenarioError(f"training.augmentation: {text}.")
        return torch.stack(found), drawn

    @staticmethod
    def _takes_batches(each: Callable[[Any], Any], samples: torch.Tensor, expected: torch.Tensor) -> bool:
        try:
            return torch.equal(each(samples.clone()), expected)
        except Exception:  # it takes single samples alone
            return False


class TransformAugmenter:
    """Augments the batches of one training, as augmenting.py: Augmenter does.

    Args:
        transforms: of the scenario.
        mean: per channel, float32 [C]: images come normalized and leave so; transforms see the scale 0..1.
        std: likewise.
        seed: of its stream.
    """

    def __init__(self, transforms: Transforms, mean: torch.Tensor, std: torch.Tensor, seed: int):
        self._transforms, self._mean, self._std = transforms, mean[:, None, None], std[:, None, None]
        self._random = torch.Generator().manual_seed(seed)

    def __call__(self, samples: torch.Tensor, views: int = 1) -> torch.Tensor:
        """Augmented copies [views * n, ...], view after view, of samples [n, ...]."""
        samples = samples.repeat(views, *[1] * (samples.dim() - 1))
        images = samples.dim() == 4  # others are not normalized
        if images:
            samples = samples * self._std + self._mean
        with drawing(self._draw(), samples.device):
            found = self._transforms(samples).as_subclass(torch.Tensor)
        return (found - self._mean) / self._std if images else found

    def skip(self, shape: Sequence[int]) -> None:
        """Draw the random numbers of a batch of shape [n, ...] without using them."""
        self._draw()

    def _draw(self) -> int:
        return int(torch.randint(2**62, (), generator=self._random))


def _states() -> tuple[Any, ...]:
    of_numpy = np.random.get_state(legacy=False)
    return torch.get_rng_state().numpy().tobytes(), random.getstate(), repr(of_numpy["state"]), of_numpy["gauss"]


PADDING = 4
AREA, ASPECT, ATTEMPTS = (0.2, 1.0), (3 / 4, 4 / 3), 10
JITTER, HUE, JITTER_CHANCE, GREY_CHANCE = 0.4, 0.1, 0.8, 0.2
LUMA = (0.2989, 0.587, 0.114)

Drawn = tuple[torch.Tensor, ...]
"""Random parameters of a batch, on the CPU, each [n, ...]."""


class Augmenter:
    """Augments the batches of one training.

    Args:
        kind: none, crop_flip or color.
        mean: per channel, float32 [C]: images come normalized and leave so; the operations see the scale 0..1.
        std: likewise.
        seed: of its generator.
    """

    def __init__(self, kind: str, mean: torch.Tensor, std: torch.Tensor, seed: int):
        self._kind = kind
        self._mean, self._std = mean[:, None, None], std[:, None, None]
        self._random = torch.Generator().manual_seed(seed)

    def __call__(self, images: torch.Tensor, views: int = 1) -> torch.Tensor:
        """Augmented copies [views * n, C, H, W], view after view, of normalized images [n, C, H, W]."""
        images = images.repeat(views, 1, 1, 1)
        return images if self._kind == "none" else self._changed(images, self._draw(images.shape))

    def skip(self, shape: Sequence[int]) -> None:
        """Draw the random numbers of a batch of shape [n, C, H, W] without using them."""
        if self._kind != "none":
            self._draw(shape)

    def _draw(self, shape: Sequence[int]) -> Drawn:
        """Draw the random numbers for a batch of images of shape [n, C, H, W], in the order of `crop_flip` or
        `color`.
        """
        count, channels = shape[:2]
        if self._kind == "crop_flip":
            top, left = (torch.randint(2 * PADDING + 1, (count,), generator=self._random) for _ in range(2))
            return top, left, self._chance(count, 0.5)
        crops, flipped = self._draw_crops(shape), self._chance(count, 0.5)
        orders = torch.rand(count, 4, generator=self._random).argsort(dim=1)
        factors = 1 + JITTER * (2 * torch.rand(3, count, generator=self._random) - 1)
        shifts = HUE * (2 * torch.rand(count, generator=self._random) - 1)
        orders[~self._chance(count, JITTER_CHANCE)] = -1
        colorless = self._chance(count, GREY_CHANCE) if channels == 3 else torch.zeros(count, dtype=torch.bool)
        return *crops, flipped, orders, *factors, shifts, colorless

    def _changed(self, images: torch.Tensor, drawn: Drawn) -> torch.Tensor:
        images = images * self._std + self._mean
        images = crop_flip(images, *drawn) if self._kind == "crop_flip" else color(images, *drawn)
        return (images - self._mean) / self._std

    def _draw_crops(self, shape: Sequence[int]) -> Drawn:
        """Top, left, height and width of each crop, int64 [n]; the whole image where no attempt fitted."""
        count, _, height, width = shape
        area = height * width * self._uniform(count, *AREA)
        aspect = self._uniform(count, math.log(ASPECT[0]), math.log(ASPECT[1])).exp()
        widths, heights = (area * aspect).sqrt().round().long(), (area / aspect).sqrt().round().long()
        fits = (widths > 0) & (widths <= width) & (heights > 0) & (heights <= height)
        first = fits.int().argmax(dim=1, keepdim=True)
        any_fits = fits.any(dim=1)
        crop_h = torch.where(any_fits, heights.gather(1, first).squeeze(1), height)
        crop_w = torch.where(any_fits, widths.gather(1, first).squeeze(1), width)
        top = (torch.rand(count, generator=self._random) * (height - crop_h + 1)).long()
        left = (torch.rand(count, generator=self._random) * (width - crop_w + 1)).long()
        return top, left, crop_h, crop_w

    def _chance(self, count: int, chance: float) -> torch.Tensor:
        return torch.rand(count, generator=self._random) < chance

    def _uniform(self, count: int, low: float, high: float) -> torch.Tensor:
        return low + (high - low) * torch.rand(count, ATTEMPTS, generator=self._random)


def augment_together(augmenters: "Sequence[Augmenter | TransformAugmenter]", images: torch.Tensor) -> torch.Tensor:
    """Augment a batch per step and augmenter (all of one kind), images [steps, N, b, C, H, W], computed as one batch if
    they can.
    """
    if not isinstance(augmenters[0], Augmenter):
        augmented = [augment(own) for step in images for augment, own in zip(augmenters, step, strict=True)]
        return torch.stack(augmented).view_as(images)
    shape, own = images.shape[2:], [each for each in augmenters if isinstance(each, Augmenter)]
    drawn = [augmenter._draw(shape) for _ in images for augmenter in own]
    joined = tuple(torch.cat(values) for values in zip(*drawn, strict=True))
    return augmenters[0]._changed(images.flatten(0, 2), joined).view_as(images)


def crop_flip(images: torch.Tensor, top: torch.Tensor, left: torch.Tensor, flipped: torch.Tensor) -> torch.Tensor:
    """Crop padded images [n, C, H, W] at crops int64 [n], and flip those where bool [n] is true."""
    count, _, height, width = images.shape
    padded = F.pad(images, [PADDING] * 4)
    rows, columns = top[:, None] + torch.arange(height), left[:, None] + torch.arange(width)
    index, device = torch.arange(count)[:, None, None], images.device
    places = [uploaded(each, device) for each in (index, rows[:, :, None], columns[:, None])]
    cropped = padded.permute(0, 2, 3, 1)[*places]
    return flip(cropped.permute(0, 3, 1, 2), flipped)


def color(images: torch.Tensor, *drawn: torch.Tensor) -> torch.Tensor:
    """Images [n, 3, H, W] cropped, flipped and recolored.

    Args:
        drawn: per image top, left, height and width of its crop; whether it is flipped; the order of its four
            operations [n, 4], -1 where it has none; their four parameters; whether it loses its color.
    """
    *crops, flipped, orders, _, _, _, _, colorless = drawn
    images = flip(resized_crops(images, *crops), flipped)
    parameters = [uploaded(values, images.device) for values in drawn[-5:-1]]
    for position in range(4):
        for number, operation in enumerate((brightness, contrast, saturation, hue)):
            chosen = uploaded((orders[:, position] == number).nonzero().squeeze(1), images.device)
            if len(chosen):
                images[chosen] = operation(images[chosen], parameters[number][chosen])
    if images.shape[1] == 3:
        images = torch.where(uploaded(colorless, images.device)[:, None, None, None], gray(images), images)
    return images


def flip(images: torch.Tensor, flipped: torch.Tensor) -> torch.Tensor:
    """Flip images [n, C, H, W] from left to right where bool [n] is true."""
    return torch.where(uploaded(flipped, images.device)[:, None, None, None], images.flip(3), images)


def resized_crops(
    images: torch.Tensor, top: torch.Tensor, left: torch.Tensor, height: torch.Tensor, width: torch.Tensor
) -> torch.Tensor:
    """A crop of each image, resized to the image's size (bilinear, never shrinking); crops are int64 [n]."""
    top, left, height, width = (uploaded(each, images.device) for each in (top, left, height, width))
    rows, columns = _interpolation(top, height, images.shape[2]), _interpolation(left, width, images.shape[3])
    return rows[:, None] @ images @ columns[:, None].transpose(2, 3)


def _interpolation(start: torch.Tensor, length: torch.Tensor, size: int) -> torch.Tensor:
    """Per image the matrix [size, size] that stretches `length` pixels from `start` to `size` pixels."""
    at = ((torch.arange(size, device=start.device) + 0.5) * (length[:, None] / size) - 0.5).clamp(min=0)
    low = at.floor().long().minimum(length[:, None] - 1)
    high = (low + 1).minimum(length[:, None] - 1)
    share = (at - low).clamp(max=1)
    matrix = torch.zeros(len(start), size, size, device=start.device)
    matrix.scatter_add_(2, (start[:, None] + low)[:, :, None], (1 - share)[:, :, None])
    matrix.scatter_add_(2, (start[:, None] + high)[:, :, None], share[:, :, None])
    return matrix


def gray(images: torch.Tensor) -> torch.Tensor:
    """Luma in all three channels; images without three channels are unchanged."""
    if images.shape[1] != 3:
        return images
    weights = torch.tensor(LUMA, device=images.device)[:, None, None]
    return (images * weights).sum(dim=1, keepdim=True).expand_as(images)


def _blend(images: torch.Tensor, other: torch.Tensor, factors: torch.Tensor) -> torch.Tensor:
    share = factors[:, None, None, None]
    return (share * images + (1 - share) * other).clamp(0, 1)


def brightness(images: torch.Tensor, factors: torch.Tensor) -> torch.Tensor:
    """Each image times its factor."""
    return _blend(images, torch.zeros_like(images), factors)


def contrast(images: torch.Tensor, factors: torch.Tensor) -> torch.Tensor:
    """Each image's distance from its mean gray times its factor."""
    return _blend(images, gray(images).mean(dim=(1, 2, 3), keepdim=True), factors)


def saturation(images: torch.Tensor, factors: torch.Tensor) -> torch.Tensor:
    """Each image's distance from its gray copy times its factor."""
    return images if images.shape[1] != 3 else _blend(images, gray(images), factors)


def hue(images: torch.Tensor, shifts: torch.Tensor) -> torch.Tensor:
    """Turn each image's hue by its part of the circle; images without three channels are unchanged."""
    if images.shape[1] != 3:
        return images
    value, strongest = images.max(dim=1)
    spread = value - images.min(dim=1).values
    divisor = torch.where(spread == 0, 1.0, spread)
    red, green, blue = ((value[:, None] - images) / divisor[:, None]).unbind(dim=1)
    sector = torch.where(strongest == 0, blue - green, torch.where(strongest == 1, 2 + red - blue, 4 + green - red))
    turned = (torch.where(spread == 0, 0.0, sector) / 6 + shifts[:, None, None]) % 1
    channels = []
    for offset in (5, 3, 1):  # value - value * saturation * max(0, min(k, 4 - k, 1)) with k = (offset + 6 h) mod 6
        k = (offset + 6 * turned) % 6
        channels.append(value - spread * torch.minimum(k, 4 - k).clamp(0, 1))
    return torch.stack(channels, dim=1).clamp(0, 1)

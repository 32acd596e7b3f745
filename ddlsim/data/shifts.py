"""Shifts of a cluster's samples: the same rule for its nodes' training data and for its copy of the test set.

Sources: `rotate` as in the FACADE paper's code (angles per number of clusters, torchvision's RandomRotation on
normalized images) and in Listo Zec et al., "Decentralized adaptive clustering of deep nets", 2022 (10 and 350 degrees).

Clusters and nodes share arrays, so that user-defined shifts receive copies. Their results are checked.
"""

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from annotated_types import Ge, Le

from ddlsim.data.dataset import Pair
from ddlsim.data.images import are_pictures
from ddlsim.data.pixels import MappedSamples, Uint8Images
from ddlsim.foundation.errors import ScenarioError, kind_of
from ddlsim.foundation.registry import Part
from ddlsim.foundation.units import MAX_COUNT, CountOrZero
from ddlsim.tasks import Task, label_of

Samples = tuple[np.ndarray | Uint8Images | MappedSamples, np.ndarray]
"""Images float32 [n, C, H, W], as arrays or their replacements, and labels int64 [n]."""

Uint8Pair = tuple[Uint8Images, np.ndarray] | None
"""Images that stay bytes and their labels; None if the shift works on normalized values."""

CHANNEL_ORDERS = ("rgb", "brg", "gbr", "bgr", "rbg", "grb")
AUTO_DEGREES = {1: (0.0,), 2: (0.0, 180.0), 3: (0.0, 90.0, 180.0), 4: (0.0, 90.0, 180.0, 270.0)}
MANY_CLASSES = 10_000
"""More labels than any data set has: how many there are is not known before the data is read."""

Label = CountOrZero
Offset = Annotated[int, Ge(-MAX_COUNT), Le(MAX_COUNT)]


@dataclass(frozen=True)
class Setting:
    """Information for a shift in addition to the samples.

    Args:
        num_clusters: number of clusters.
        num_classes: number of labels.
        black: the value of black after normalization, float32 [C]; None if a cluster's samples differ in it.
    """

    num_clusters: int
    num_classes: int
    black: np.ndarray | None


class Shift(Part, ABC):
    """Interface of every entry of SHIFTS."""

    keeps_channels: ClassVar[bool] = True
    """Whether every cluster's images have their channels in the order of the data set's mean and std."""

    changes_images: ClassVar[bool] = False
    """Whether samples must be images."""

    @abstractmethod
    def apply(self, images: np.ndarray, labels: np.ndarray, cluster: int, setting: Setting) -> Pair:
        """Return a cluster's view of the samples, without changing the input; unchanged arrays are returned themselves.

        Args:
            images: normalized, float32 [n, C, H, W].
            labels: int64 [n].
            cluster: number of the cluster, from 0.
            setting: further information, see Setting.
        Raises:
            ScenarioError: if the shift does not fit the clusters or the images.
        """

    def apply_to_bytes(self, images: Uint8Images, labels: np.ndarray, cluster: int, setting: Setting) -> Uint8Pair:
        """Apply the shift to images that stay bytes: their normalized values must be the same to the last bit.

        None, the default: the shift works on normalized values, so the images are kept as these, in four times the
        memory.
        """
        return None

    def check(self, num_clusters: int, image_shape: tuple[int, ...]) -> None:
        """Check, on no samples at all, that the shift fits the clusters and the samples.

        Args:
            num_clusters: number of clusters.
            image_shape: of one sample, (C, H, W).
        Raises:
            ScenarioError: if not.
        """
        setting = Setting(num_clusters, MANY_CLASSES, np.zeros(image_shape[0], np.float32))
        for cluster in range(num_clusters):
            self.apply(np.zeros((0, *image_shape), np.float32), np.zeros(0, np.int64), cluster, setting)


class _OfLabels(Shift):
    """Base of shifts that leave images unchanged."""

    def apply_to_bytes(self, images: Uint8Images, labels: np.ndarray, cluster: int, setting: Setting) -> Uint8Pair:
        unseen = np.broadcast_to(np.float32(0), images.shape)
        return images, self.apply(unseen, labels, cluster, setting)[1]


class _OfClasses(_OfLabels):
    needs_classes: ClassVar = True


@dataclass(frozen=True, kw_only=True)
class NoShift(_OfLabels):
    """No shift: images are unchanged in all clusters."""

    def apply(self, images: np.ndarray, labels: np.ndarray, cluster: int, setting: Setting) -> Pair:
        return images, labels


@dataclass(frozen=True, kw_only=True)
class Rotate(Shift):
    """Each cluster's images are turned counter-clockwise by the cluster's angle.

    Multiples of 90 degrees are exact; other angles take the nearest pixel and fill the corners.

    Args:
        degrees: angle of each cluster; auto: 0/180 for two clusters, 0/90/180(/270) for three or four.
        order: after_normalizing: corners become 0, the mean color; before_normalizing: corners become black.
    """

    changes_images: ClassVar[bool] = True
    degrees: tuple[float, ...] | Literal["auto"] = "auto"
    order: Literal["after_normalizing", "before_normalizing"] = "after_normalizing"

    def apply(self, images: np.ndarray, labels: np.ndarray, cluster: int, setting: Setting) -> Pair:
        _require_images("rotate", images)
        degrees = self._angle(images.shape, cluster, setting)
        if degrees % 90 == 0:
            return _quarter_turns(images, degrees), labels
        return rotate_nearest(images, degrees, self._fill(images.shape[1], setting)), labels

    def apply_to_bytes(self, images: Uint8Images, labels: np.ndarray, cluster: int, setting: Setting) -> Uint8Pair:
        degrees = self._angle(images.shape, cluster, setting)
        if degrees % 90 == 0:
            return images.rearranged(lambda values: _quarter_turns(values, degrees)), labels
        fill = self._fill(images.shape[1], setting)
        rows, columns, inside = nearest_pixels(images.shape[2], images.shape[3], degrees)
        turned = images.rearranged(lambda values: values[:, :, rows, columns])
        seen = [dataclasses.replace(each, outside=~inside, fill=fill) for each in turned.decodings]
        return dataclasses.replace(turned, decodings=seen), labels

    def _angle(self, shape: tuple[int, ...], cluster: int, setting: Setting) -> float:
        """Degrees 0..360 by which a cluster's images [n, C, H, W] are turned."""
        degrees = self.angles(setting.num_clusters)[cluster] % 360
        height, width = shape[2:]
        if degrees in (90, 270) and height != width:
            raise ScenarioError(f"shift.degrees: expected square images to turn by 90, got {height} x {width}.")
        return degrees

    def _fill(self, channels: int, setting: Setting) -> np.ndarray:
        """Return the value of the corners, float32 [C]."""
        if self.order == "after_normalizing":
            return np.zeros(channels, np.float32)
        if setting.black is None:
            text = "expected after_normalizing or partition: {name: domains} for sets of several normalizations"
            raise ScenarioError(f"shift.order: {text}, got before_normalizing.")
        return setting.black.astype(np.float32)

    def angles(self, num_clusters: int) -> tuple[float, ...]:
        """Degrees of every cluster.

        Raises:
            ScenarioError: if there is not one for each.
        """
        degrees = AUTO_DEGREES.get(num_clusters, ()) if self.degrees == "auto" else self.degrees
        _one_per_cluster("shift.degrees", degrees, num_clusters)
        return degrees


@dataclass(frozen=True, kw_only=True)
class LabelSwap(_OfClasses):
    """Concept shift: each cluster exchanges the labels in its pairs.

    Args:
        pairs: per cluster the list of pairs of labels to exchange, e.g. [[], [[0, 1], [2, 3]]].
    """

    pairs: tuple[tuple[tuple[Label, Label], ...], ...]

    def apply(self, images: np.ndarray, labels: np.ndarray, cluster: int, setting: Setting) -> Pair:
        _one_per_cluster("shift.pairs", self.pairs, setting.num_clusters)
        table = np.arange(setting.num_classes)
        for one, other in self.pairs[cluster]:
            if max(one, other) >= setting.num_classes:
                raise ScenarioError(f"shift.pairs: labels are 0..{setting.num_classes - 1}, got [{one}, {other}].")
            table[[one, other]] = table[[other, one]]
        return images, table[labels]


@dataclass(frozen=True, kw_only=True)
class LabelShift(_OfClasses):
    """Concept shift: each cluster's labels are moved by its offset, around the end.

    Args:
        offsets: per cluster the number added to every label; auto: 0 for the first cluster, 1 for the second, ...
    """

    offsets: tuple[Offset, ...] | Literal["auto"] = "auto"

    def apply(self, images: np.ndarray, labels: np.ndarray, cluster: int, setting: Setting) -> Pair:
        offsets = range(setting.num_clusters) if self.offsets == "auto" else self.offsets
        _one_per_cluster("shift.offsets", offsets, setting.num_clusters)
        return images, (labels + offsets[cluster]) % setting.num_classes


@dataclass(frozen=True, kw_only=True)
class Color(Shift):
    """Each cluster sees the three color channels in its own order (after normalizing).

    Args:
        channels: per cluster the order, letters of rgb, e.g. [rgb, bgr]; auto: rgb, brg, gbr, bgr, rbg, grb.
    """

    changes_images: ClassVar[bool] = True
    keeps_channels: ClassVar[bool] = False
    channels: tuple[Literal["rgb", "brg", "gbr", "bgr", "rbg", "grb"], ...] | Literal["auto"] = "auto"

    def apply(self, images: np.ndarray, labels: np.ndarray, cluster: int, setting: Setting) -> Pair:
        _require_images("color", images)
        order = self._order(images.shape, cluster, setting)
        return (images if order == [0, 1, 2] else images[:, order]), labels

    def apply_to_bytes(self, images: Uint8Images, labels: np.ndarray, cluster: int, setting: Setting) -> Uint8Pair:
        order = self._order(images.shape, cluster, setting)
        moved = images.rearranged(lambda values: values[:, order])
        seen = [dataclasses.replace(each, mean=each.mean[order], std=each.std[order]) for each in moved.decodings]
        return dataclasses.replace(moved, decodings=seen), labels

    def _order(self, shape: tuple[int, ...], cluster: int, setting: Setting) -> list[int]:
        """Return the order in which a cluster sees the channels of images [n, C, H, W]."""
        if shape[1] != 3:
            raise ScenarioError(f"shift: color needs images of 3 channels, these have {shape[1]}.")
        orders = CHANNEL_ORDERS[: setting.num_clusters] if self.channels == "auto" else self.channels
        _one_per_cluster("shift.channels", orders, setting.num_clusters)
        return ["rgb".index(letter) for letter in orders[cluster]]


def rotate_nearest(images: np.ndarray, degrees: float, fill: np.ndarray) -> np.ndarray:
    """Turn images counter-clockwise around their center, with the nearest pixel and the same size.

    Equals torchvision.transforms.RandomRotation([degrees, degrees]) for tensors pixel for pixel; therefore the
    coordinates are scaled to -1..1 in float32 as there, so that ties between two pixels are resolved alike.

    Args:
        images: float32 [n, C, H, W].
        degrees: angle.
        fill: value of pixels from outside the image, float32 [C].
    """
    rows, columns, inside = nearest_pixels(images.shape[2], images.shape[3], degrees)
    return np.where(inside, images[:, :, rows, columns], fill.astype(np.float32)[None, :, None, None])


def nearest_pixels(height: int, width: int, degrees: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the source of each pixel [H, W] of a turned image: row, column, and whether it lies inside the image."""
    angle = np.deg2rad(degrees)
    cos, sin = np.float32(np.cos(angle)), np.float32(np.sin(angle))
    half_w, half_h = np.float32(0.5 * width), np.float32(0.5 * height)
    x = np.linspace(-0.5 * width + 0.5, 0.5 * width - 0.5, width, dtype=np.float32)[None, :]
    y = np.linspace(-0.5 * height + 0.5, 0.5 * height - 0.5, height, dtype=np.float32)[:, None]
    from_x = x * (cos / half_w) + y * (-sin / half_w)
    from_y = x * (sin / half_h) + y * (cos / half_h)
    columns = np.rint(((from_x + 1) * np.float32(width) - 1) / 2).astype(np.int64)
    rows = np.rint(((from_y + 1) * np.float32(height) - 1) / 2).astype(np.int64)
    inside = (columns >= 0) & (columns < width) & (rows >= 0) & (rows < height)
    return rows.clip(0, height - 1), columns.clip(0, width - 1), inside


def _quarter_turns(images: np.ndarray, degrees: float) -> np.ndarray:
    return np.rot90(images, int(degrees) // 90, axes=(2, 3)) if degrees else images


def _require_images(name: str, samples: np.ndarray) -> None:
    if not are_pictures(samples.shape[1:], samples.dtype.name):
        shape = f"{samples.dtype} {list(samples.shape[1:])}"
        raise ScenarioError(f"shift: {name} expects images, got samples {shape}. Use none, label_shift or label_swap.")


def _one_per_cluster(key: str, values: Sequence, num_clusters: int) -> None:
    if len(values) != num_clusters:
        raise ScenarioError(f"{key}: expected one entry for each of the {num_clusters} clusters, got {len(values)}.")


def as_learned(labels: np.ndarray) -> np.ndarray:
    """Labels in the one type that learning takes: int64, of a regression float32."""
    return np.ascontiguousarray(labels, np.float32 if np.issubdtype(labels.dtype, np.floating) else np.int64)


def check_result(
    shift: Shift,
    found: Any,
    originals: Pair,
    setting: Setting,
    task: Task,
    checked: Collection[str] = ("images", "labels"),
) -> None:
    """Raise ScenarioError unless a user-defined shift returns as many images, and labels of the task.

    Args:
        shift: the shift.
        found: result of its `apply`.
        originals: images and labels before it.
        setting: as passed to `apply`.
        task: the task against which labels are checked.
        checked: results to check, of real samples.
    """
    place = f"shift: {type(shift).__qualname__}"
    if not isinstance(found, tuple | list) or [type(each) for each in found] != [np.ndarray, np.ndarray]:
        raise ScenarioError(f"{place}: expected two arrays, images and labels, got {kind_of(found)}. Return both.")
    for name, each, original in zip(("images", "labels"), found, originals, strict=True):
        if name not in checked:
            continue
        axes = 1 if name == "images" else None
        alike = each.shape[:axes] == original.shape[:axes] and each.dtype.kind in "biuf" and np.isfinite(each).all()
        if not alike or (name == "images" and (each.dtype.kind == "f") != (original.dtype.kind == "f")):
            expected = f"expected {name} {list(original.shape)} like the data's, with finite values"
            raise ScenarioError(f"{place}: {expected}, got {list(each.shape)} of {each.dtype}.")
    if "labels" in checked and len(found[1]):
        labels = as_learned(found[1])
        floating = np.issubdtype(task.label_dtype, np.floating)
        wrong = task.wrong_labels(labels.astype(task.label_dtype) if floating else labels, setting.num_classes)
        if wrong:
            raise ScenarioError(f"{place}: labels {wrong} (task: {label_of(task)}).")

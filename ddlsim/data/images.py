"""Folders of image files: Imagenette, and any folder with one sub-folder per class.

Images are resized as the FACADE paper's code does: the short side to `size` pixels (bilinear, anti-aliased), then the
square in the middle. No augmentation. A user's pictures are turned by their EXIF orientation first; Imagenette's are
not, as in that code. Names that start with a dot, and __MACOSX, which desktops create, are skipped. Needs Pillow, which
comes with torchvision (the extra `vision`).

Samples are checked before they are treated as pictures: cropped, flipped, turned, recolored.
"""

import hashlib
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from annotated_types import Ge, Gt, Le, Lt

from ddlsim.data.arrays import read_keras_npz
from ddlsim.data.dataset import SPLIT_SEED, Dataset, DataSettings, Pair
from ddlsim.data.from_arrays import dataset_from_arrays
from ddlsim.data.pixels import squared, to_rgb8, upright
from ddlsim.data.search import DataSearch, damaged
from ddlsim.foundation.augmentation import BUILT_IN
from ddlsim.foundation.environment import needed
from ddlsim.foundation.errors import DataDamaged, ScenarioError, listing
from ddlsim.foundation.rng import stream

SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".bmp", ".webp", ".ppm", ".pgm", ".tif", ".tiff", ".gif"})
IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
_READING = 3
"""Version of the way in which pictures are read; files of another version in the cache are re-created."""
_PICTURES = 1024
"""Number of pictures that are decoded before they are written to the cache."""

Sample = tuple[Path, int]
"""An image file and its class."""


@dataclass(frozen=True, kw_only=True)
class Imagenette(DataSettings):
    """Ten classes of ImageNet (fast.ai), 160-pixel version resized to 3 x 64 x 64: 9,469 + 3,925 images.

    Args:
        size: height and width after resizing the short side and cutting the middle out, pixels.
    """

    size: Annotated[int, Ge(1), Le(10_000)] = 64
    num_classes, num_samples = 10, (9_469, 3_925)

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Channels, height, width."""
        return 3, self.size, self.size

    def load(self, search: DataSearch) -> Dataset:
        """The data set.

        Raises:
            DataMissing: if it is neither found nor downloaded.
            DataDamaged: if the files cannot be read.
        """
        layout = (
            "the folder imagenette2-160/ of the 160-pixel archive (train/ and val/, one folder per class), or "
            "imagenette.npz in Keras's layout with images of data.size pixels."
        )
        found = search.obtain("imagenette", ["imagenette.npz", "imagenette2-160/"], layout, _download_imagenette)
        if found.suffix == ".npz":
            splits = read_keras_npz(found)
            shape = splits["train"][0].shape[1:]
            if shape != (self.size, self.size, 3):
                raise damaged(found, f"expected images {self.size} x {self.size} x 3, got {list(shape)}")
        else:
            classes = _class_names(found / "train")
            lists = {"train": _list(found / "train", classes), "test": _list(found / "val", classes)}
            splits = _read_splits(lists, self.size, False)
        return Dataset.of_splits("imagenette", str(found), splits, 10, IMAGENET_MEAN, IMAGENET_STD)


def _download_imagenette(root: str) -> None:
    from torchvision.datasets import Imagenette as Fetched

    Fetched(root, split="train", size="160px", download=True)


@dataclass(frozen=True, kw_only=True)
class ImageFolder(DataSettings):
    """User-supplied pictures: path/train/<class>/... and path/test/<class>/..., or path/<class>/... to be split here.

    Classes are the sub-folders' names in sorted order; files may be anywhere below them. `val` is read if `test` does
    not exist. The split is the same for every seed.

    Args:
        path: the folder, relative to the working directory or to one of the data folders.
        size: height and width after resizing the short side and cutting the middle out, pixels.
        test_fraction: part of every class that is the test set, if the folder is not split already.
        split_by: image; or folder: files in one folder below the class (one photographer, say) stay together.
        mean: per channel or one for all, on the scale 0..1.
        std: likewise, above 0.
        mapped: convert the images once into files in the cache and read them by the batch, for data sets larger than
            memory.
    """

    path: str
    size: Annotated[int, Ge(1), Le(10_000)] = 64
    test_fraction: Annotated[float, Gt(0), Lt(1)] = 0.2
    split_by: Literal["image", "folder"] = "image"
    mean: tuple[float, ...] = (0.5,)
    std: tuple[Annotated[float, Gt(0)], ...] = (0.5,)
    mapped: bool = False

    def load(self, search: DataSearch) -> Dataset:
        """Return the data set.

        Raises:
            DataMissing: if the folder does not exist.
            DataDamaged: if it holds no images, one cannot be read, or only test images have a class.
        """
        root = search.find(self.path, "image-folder", "a folder with one sub-folder of images per class.")
        if (root / "train").is_dir():
            test = root / ("test" if (root / "test").is_dir() else "val")
            classes = _class_names(root / "train")
            more = sorted(set(_class_names(test)) - set(classes)) if test.is_dir() else []
            if more:
                raise DataDamaged(f"{test}: expected only classes of {root / 'train'}, got {listing(more)} as well.")
            files = {"train": _list(root / "train", classes), "test": _list(test, classes)}
        else:
            classes = _class_names(root)
            files = self._split(root, _list(root, classes), len(classes))
        cache = list(search.roots())[-1]
        splits = _convert(files, self.size, cache) if self.mapped else _read_splits(files, self.size)
        keys: dict[str, Any] = {"num_classes": len(classes), "mean": self.mean, "std": self.std}
        found = dataset_from_arrays("image-folder", str(root), splits, **keys)
        return replace(found, class_names=tuple(classes))

    def _split(self, root: Path, samples: list[Sample], num_classes: int) -> dict[str, list[Sample]]:
        """Per class, a random `test_fraction` of its images (or folders), at least one, goes to the test set."""
        train: list[Sample] = []
        test: list[Sample] = []
        for label in range(num_classes):
            own = [sample for sample in samples if sample[1] == label]
            units = [path if self.split_by == "image" else _below_class(root, path) for path, _ in own]
            distinct = sorted(set(units))
            if len(distinct) < 2:
                raise DataDamaged(f"{own[0][0]}: expected another {self.split_by} of this class, to split them.")
            count = max(1, round(self.test_fraction * len(distinct)))
            order = stream(SPLIT_SEED, "image-folder", label).permutation(len(distinct))
            chosen = {distinct[index] for index in order[: min(count, len(distinct) - 1)]}
            for sample, unit in zip(own, units, strict=True):
                (test if unit in chosen else train).append(sample)
        return {"train": train, "test": test}


def _below_class(root: Path, path: Path) -> Path:
    """Return the folder right below the class that contains a file at any depth; the class's own folder if none
    does.
    """
    parts = path.relative_to(root).parts
    return root.joinpath(*parts[:2]) if len(parts) > 2 else path.parent


def _is_hidden(name: str) -> bool:
    """Whether a desktop creates files or folders of this name (.DS_Store, ._x.png, .ipynb_checkpoints)."""
    return name.startswith(".") or name == "__MACOSX"


def _class_names(folder: Path) -> list[str]:
    entries = folder.iterdir() if folder.is_dir() else ()
    names = sorted(entry.name for entry in entries if entry.is_dir() and not _is_hidden(entry.name))
    if not names:
        raise DataDamaged(f"{folder}: expected one sub-folder of images per class, found none.")
    return names


def _list(folder: Path, classes: Sequence[str]) -> list[Sample]:
    """The images of every class below a folder, sorted by path."""
    samples = []
    for label, name in enumerate(classes):
        found = (path for path in (folder / name).rglob("*") if path.suffix.lower() in SUFFIXES)
        files = sorted(path for path in found if not any(map(_is_hidden, path.relative_to(folder).parts)))
        if not files:
            raise DataDamaged(f"{folder / name}: no image in it (looked for {', '.join(sorted(SUFFIXES))}).")
        samples += [(path, label) for path in files]
    return samples


def _read_splits(files: Mapping[str, list[Sample]], size: int, turned: bool = True) -> dict[str, Pair]:
    """Return the images and labels of each split."""
    splits = {}
    for split, samples in files.items():
        images = np.empty((len(samples), size, size, 3), np.uint8)
        _read_into(images, samples, size, turned)
        splits[split] = images, _labels_of(samples)
    return splits


def _convert(files: Mapping[str, list[Sample]], size: int, cache: Path) -> dict[str, Pair]:
    """Return the same as `_read_splits`, with images in files of the cache, which the first call writes."""
    digest = hashlib.sha256(f"{size} {_READING}".encode())
    for path, label in (sample for samples in files.values() for sample in samples):
        state = path.stat()
        digest.update(f"{path} {label} {state.st_size} {state.st_mtime_ns}\n".encode())
    folder = cache / "image-folder" / digest.hexdigest()[:16]
    folder.mkdir(parents=True, exist_ok=True)
    splits = {}
    for split, samples in files.items():
        place = folder / f"{split}.npy"
        if not place.is_file():
            draft = folder / f"{split}.{os.getpid()}.draft"
            images = np.lib.format.open_memmap(draft, "w+", np.uint8, (len(samples), size, size, 3))
            _read_into(images, samples, size)
            images.flush()
            os.replace(draft, place)
        splits[split] = np.load(place, mmap_mode="r"), _labels_of(samples)
    return splits


def _read_into(images: np.ndarray, samples: list[Sample], size: int, turned: bool = True) -> None:
    with ThreadPoolExecutor(os.cpu_count()) as pool:  # decoding runs outside Python's lock
        for first in range(0, len(samples), _PICTURES):
            some = samples[first : first + _PICTURES]
            for index, image in enumerate(pool.map(lambda sample: _read_image(sample[0], size, turned), some)):
                images[first + index] = image


def _labels_of(samples: list[Sample]) -> np.ndarray:
    return np.array([label for _, label in samples], np.int64)


def _read_image(path: Path, size: int, turned: bool) -> np.ndarray:
    """One picture, uint8 [size, size, 3], upright where `turned`."""
    pillow = needed("PIL.Image", "vision", "data: reading pictures")
    try:
        with pillow.open(path) as opened:
            image = to_rgb8(upright(opened) if turned else opened, str(path))
    except (OSError, ValueError, SyntaxError) as error:  # Pillow's own UnidentifiedImageError is an OSError
        raise damaged(path, str(error)) from error
    return squared(image, size)


_TOLERANCE = 1e-3
"""Largest amount by which values may lie outside 0..1, as resizing produces."""


def are_pictures(shape: Sequence[int], dtype: str) -> bool:
    """Whether samples are images; one row of one channel, (1, 1, F), is a row of features, as tables have them.

    Args:
        shape: of one sample as models see it.
        dtype: numpy's name of its type.
    """
    return len(shape) == 3 and tuple(shape[:2]) != (1, 1) and np.issubdtype(dtype, np.floating)


def check_augmentation(dataset: Dataset, kind: Any) -> None:
    """Whether training samples can be augmented.

    Args:
        dataset: as loaded.
        kind: scenario key training.augmentation.

    Raises:
        ScenarioError: if they are not images, come from domains with a normalization each, or are not on the scale that
            colors are changed on.
    """
    if kind == "none":
        return
    if kind not in BUILT_IN and np.issubdtype(dataset.sample_dtype, np.floating) and np.ndim(dataset.mean) == 1:
        return
    if not are_pictures(dataset.sample_shape, dataset.sample_dtype):
        shape = " x ".join(map(str, dataset.sample_shape))
        raise ScenarioError(f"training.augmentation: only none fits samples that are not images ({shape}).")
    if np.ndim(dataset.mean) != 1:
        raise ScenarioError("training.augmentation: only none fits data of several domains.")
    if kind == "color" and dataset.train_images.dtype != np.uint8:
        low, high = float(dataset.train_images.min()), float(dataset.train_images.max())
        if low < -_TOLERANCE or high > 1 + _TOLERANCE:
            text = f"expected uint8 images or values of 0 to 1 for color, got values of {low:.4g} to {high:.4g}"
            raise ScenarioError(f"training.augmentation: {text}. Give mean and std, or choose crop_flip.")

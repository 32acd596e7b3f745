"""A shift at work: it is given arrays that cannot be written to, and what one from outside returns is looked at.

Clusters, and nodes, share the arrays: what a shift wrote into them would be what all others see.
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from ddlsim import own_code
from ddlsim.data.images_as_bytes import ByteImages
from ddlsim.data.shifts import Setting, Shift
from ddlsim.errors import ScenarioError, kind_of
from ddlsim.tasks import Task, label_of


def shifted(
    shift: Shift,
    images: np.ndarray,
    labels: np.ndarray,
    cluster: int,
    setting: Setting,
    task: Task | None,
    images_are_real: bool = True,
) -> tuple[np.ndarray, np.ndarray]:
    """What `apply` of a shift makes of samples; its labels in the type that learning takes.

    Args:
        shift, images, labels, cluster, setting: see Shift.apply.
        task: what labels are looked at for; None: they are made up.
        images_are_real: whether what becomes of the images is looked at; false: they are made up.
    Raises:
        ScenarioError: it writes into its input, or returns what are no such samples.
    """
    locked = _locked(images, shift), _locked(labels, shift)
    with _untouched(shift, "apply"):
        found = shift.apply(*locked, cluster, setting)
    if own_code.is_from_outside(shift):
        _refuse(shift, "apply", _wrong_pair(found, np.ndarray))
        _refuse(shift, "apply", _wrong_images(found[0], images) if images_are_real else "")
        _refuse(shift, "apply", _wrong_labels(found[1], labels, setting, task))
    seen = _unlocked(found[0], locked[0], images)
    of_images = np.float32 if np.issubdtype(seen.dtype, np.floating) else seen.dtype
    return np.ascontiguousarray(seen, of_images), of_type(_unlocked(found[1], locked[1], labels))


def shifted_bytes(
    shift: Shift, images: ByteImages, labels: np.ndarray, cluster: int, setting: Setting, task: Task
) -> tuple[ByteImages, np.ndarray] | None:
    """As `shifted`, of images that stay bytes; None: the shift works on normalized values."""
    locked = _locked(labels, shift)
    with _untouched(shift, "apply_to_bytes"):
        found = shift.apply_to_bytes(images, locked, cluster, setting)
    if found is None:
        return None
    if own_code.is_from_outside(shift):
        wrong = _wrong_pair(found, ByteImages)
        if not wrong and len(found[0]) != len(images):
            wrong = f"images {list(found[0].shape)} of {len(images)} samples, expected one for each"
        _refuse(shift, "apply_to_bytes", wrong or _wrong_labels(found[1], labels, setting, task))
    return found[0], of_type(_unlocked(found[1], locked, labels))


def of_type(labels: np.ndarray) -> np.ndarray:
    """Labels in the one type that learning takes: int64, of a regression float32."""
    return np.ascontiguousarray(labels, np.float32 if np.issubdtype(labels.dtype, np.floating) else np.int64)


def _locked(array: np.ndarray, shift: Shift) -> np.ndarray:
    """The same values, not to be written to; a copy where torch, which does not ask, may write all the same."""
    found = array.copy() if own_code.is_from_outside(shift) else array.view()
    found.flags.writeable = False
    return found


def _unlocked(found: np.ndarray, locked: np.ndarray, given: np.ndarray) -> np.ndarray:
    """An array that a shift has returned, the given one itself where it was handed through."""
    if found is locked and found.base is not None:
        return given
    if not found.flags.writeable and given.flags.writeable:  # torch warns of arrays that cannot be written to
        try:
            found.flags.writeable = True
        except ValueError:  # it is a view of the copy that the shift was given
            return found.copy()
    return found


@contextmanager
def _untouched(shift: Shift, method: str) -> Iterator[None]:
    """Tells a shift that writes into what it is given."""
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "The given NumPy array is not writable", UserWarning)
            yield
    except ValueError as error:
        if "read-only" not in str(error):
            raise
        told = own_code.told(error, {own_code.source_file(type(shift)) or ""})
        place = f"{told.split(': ')[0]}: " if told else ""
        raise ScenarioError(
            f"{place}shift: {method} of {type(shift).__qualname__} writes into its input, which other clusters see "
            f"too ({error}). Leave images and labels as they are, and return new arrays, such as 1 - labels."
        ) from error


def _refuse(shift: Shift, method: str, wrong: str) -> None:
    if wrong:
        raise ScenarioError(f"shift: {method} of {type(shift).__qualname__} returns {wrong}.")


def _wrong_pair(found: Any, kind: type) -> str:
    if not isinstance(found, tuple | list) or len(found) != 2:
        return f"{kind_of(found)}, expected a pair (images, labels)"
    for name, each, expected in (("images", found[0], kind), ("labels", found[1], np.ndarray)):
        if not isinstance(each, expected):
            return f"{kind_of(each)} as {name}, expected a {_NAMES[expected]}"
    return ""


_NAMES: dict[type, str] = {np.ndarray: "numpy array", ByteImages: "ddlsim.data.images_as_bytes.ByteImages"}


def _wrong_images(found: np.ndarray, given: np.ndarray) -> str:
    floating = np.issubdtype(given.dtype, np.floating)
    if found.ndim == 0 or len(found) != len(given):
        return f"images {list(found.shape)} of {len(given)} samples, expected one for each"
    if not np.issubdtype(found.dtype, np.floating if floating else np.integer):
        return f"images of {found.dtype}, expected {given.dtype}"
    wrong = int(np.count_nonzero(~np.isfinite(found))) if floating else 0
    return f"images of which {wrong} values are not finite" if wrong else ""


def _wrong_labels(found: np.ndarray, given: np.ndarray, setting: Setting, task: Task | None) -> str:
    if task is None:
        return ""
    if found.shape != given.shape or found.dtype.kind not in "biuf":
        return f"labels {found.dtype} {list(found.shape)}, expected {given.dtype} {list(given.shape)}"
    wrong = int(np.count_nonzero(~np.isfinite(found)))
    if wrong:
        return f"labels of which {wrong} are not finite"
    seen = of_type(found)
    if np.issubdtype(task.label_dtype, np.floating):
        seen = seen.astype(task.label_dtype)
    text = task.wrong_labels(seen, setting.num_classes) if len(found) else ""
    return f"labels that {text} (task: {label_of(task)})" if text else ""

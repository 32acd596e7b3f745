"""Pictures as RGB with 8 bits per channel: upright, and scaled where Pillow would cut off what is above 255."""

from typing import TYPE_CHECKING

import numpy as np

from ddlsim.errors import DataDamaged

if TYPE_CHECKING:
    from PIL.Image import Image


ORIENTATION = 0x0112
"""The tag of EXIF."""
SIXTEEN_BITS = ("PNG", "PPM")
"""Formats without more bits, of which Pillow makes whole numbers of 32 bits all the same."""


def upright(picture: "Image") -> "Image":
    """Turn a picture by the orientation that its camera has noted (EXIF)."""
    from PIL import ImageOps

    return picture if picture.getexif().get(ORIENTATION, 1) == 1 else ImageOps.exif_transpose(picture)


def as_rgb(picture: "Image", where: str) -> "Image":
    """A picture with 8 bits per channel; 16 bits of gray are scaled, 65535 to 255.

    Args:
        picture: of any mode.
        where: it comes from, for messages.
    Raises:
        DataDamaged: if its values are of 32 bits and not those of 8 bits, so that nothing says what white is.
    """
    if picture.mode.startswith("I;16") or (picture.mode == "I" and picture.format in SIXTEEN_BITS):
        from PIL import Image

        values = np.asarray(picture).astype(np.float32) / 257
        return Image.fromarray(np.rint(values).astype(np.uint8)).convert("RGB")
    if picture.mode in ("I", "F"):
        low, high = picture.getextrema()
        if picture.mode == "F" or low < 0 or high > 255:
            raise DataDamaged(
                f"{where}: expected a picture of 8 or 16 bits per channel, got one of 32 bits (mode {picture.mode}) "
                f"with values of {low:g} to {high:g}. Save it with values of 0 to 255, as 8 bits."
            )
    return picture.convert("RGB")

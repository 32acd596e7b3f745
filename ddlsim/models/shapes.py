"""The check that images fit a model, without torch."""

from ddlsim.errors import ScenarioError

ImageShape = tuple[int, ...]
"""Channels, height, width; of samples that are no images whatever shape they have."""


def smallest_side(image_shape: ImageShape) -> int:
    """Height or width, whichever is less; 0 of samples that are no images."""
    return min(image_shape[1:]) if len(image_shape) == 3 else 0


def require(fits: bool, model: str, image_shape: ImageShape, wanted: str) -> None:
    """Raises if images do not fit.

    Args:
        fits: whether they do.
        model: the model's name in YAML.
        image_shape: (C, H, W) of the data.
        wanted: which shapes fit, e.g. "3 x 32 x 32".
    Raises:
        ScenarioError: naming the shape that came and those that fit.
    """
    if not fits:
        came = " x ".join(map(str, image_shape)) or "single numbers"
        raise ScenarioError(
            f"model: {model} takes images of {wanted} (channels x height x width), the data has {came}. "
            "Choose another model, or data of that shape."
        )

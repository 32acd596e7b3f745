"""What every section of a scenario is: a frozen pydantic model, strict and closed to other keys."""

from collections.abc import Mapping
from typing import ClassVar

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """Base of the sections."""

    model_config = ConfigDict(
        strict=True, extra="forbid", frozen=True, arbitrary_types_allowed=True, allow_inf_nan=False
    )

    why: ClassVar[Mapping[str, str]] = {}
    """Key -> why its default is what it is, of defaults that can change a published number (docs/defaults.md)."""

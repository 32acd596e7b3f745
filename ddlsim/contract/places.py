"""Where something of a user's stands, and what a value is, for the texts of trials."""

from typing import Any

from ddlsim import own_code


def method(part: Any, name: str) -> str:
    """ "mine.py:12: round of Mine"."""
    place = own_code.where(getattr(type(part), name))
    return f"{f'{place}: ' if place else ''}{name} of {type(part).__qualname__}"


def kind_of(value: Any) -> str:
    """What a value is, in words."""
    return "nothing (None)" if value is None else f"a {type(value).__name__}"

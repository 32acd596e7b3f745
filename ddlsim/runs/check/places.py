"""Where something of a user's stands, for the texts of trials."""

from typing import Any

from ddlsim.foundation import own_code


def method(part: Any, name: str) -> str:
    """ "mine.py:12: round of Mine"."""
    place = own_code.where(getattr(type(part), name))
    return f"{f'{place}: ' if place else ''}{name} of {type(part).__qualname__}"

"""Names that applications give, as parts of the paths of nodes."""

from __future__ import annotations

import re
from typing import Final

from bkclient.errors import ArgumentError

__all__ = ["check_name"]

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@+-]{0,199}")


def check_name(what: str, name: object) -> str:
    """``name`` if it can be one; :class:`~bkclient.errors.ArgumentError` otherwise."""
    if not isinstance(name, str) or _NAME.fullmatch(name) is None:
        raise ArgumentError(
            f"{what} must be 1 to 200 of the characters A-Z a-z 0-9 . _ : @ + -, and begin with a letter or digit, got {name!r}"
        )
    return name

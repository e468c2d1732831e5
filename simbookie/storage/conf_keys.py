"""Reading values of a bookie's configuration file by BookKeeper's keys, in BookKeeper's units."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

__all__ = ["MILLISECOND", "SECOND", "parsed", "values_of"]

SECOND: Final = 1
MILLISECOND: Final = 0.001


def values_of(
    group: str, keys: Mapping[str, tuple[str, float]], conf: Mapping[str, str], kinds: Mapping[str, type]
) -> dict[str, object]:
    """By field the values that ``conf`` has for ``keys``: field -> key, and what one unit of the key is in the field's.

    Keys that are not there are left out. :class:`ValueError`, which begins with ``group``, for what cannot be read.
    """
    return {
        name: parsed(group, key, conf[key].strip(), kinds[name], unit)
        for name, (key, unit) in keys.items()
        if key in conf
    }


def parsed(group: str, key: str, text: str, kind: type, unit: float = 1) -> object:
    """One value; :class:`ValueError` if ``text`` is none."""
    if kind is bool:
        if text.lower() not in ("true", "false"):
            raise ValueError(f"{group}: {key} must be true or false, got {text!r}")
        return text.lower() == "true"
    takes_decimals = kind is float and unit == 1
    try:
        number = float(text) if takes_decimals else int(text)
    except ValueError:
        raise ValueError(f"{group}: {key} must be a {'' if takes_decimals else 'whole '}number, got {text!r}") from None
    if not math.isfinite(number):
        raise ValueError(f"{group}: {key} must be a finite number, got {text!r}")
    return kind(number * unit)

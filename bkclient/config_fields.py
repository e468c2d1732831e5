"""How a setting is declared: its default, its bounds, and the key under which BookKeeper users know it.

BookKeeper's own configuration mixes seconds and milliseconds; its keys name the unit only sometimes. Here every duration
is in seconds and every name that has a unit ends in it. A :class:`Setting` remembers the factor between the two, so that
a properties file written for the Java client can be read as it is.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from bkclient.errors import ArgumentError

__all__ = ["Setting", "choice", "names", "nearest", "number", "off", "on", "secret", "setting_of", "text", "whole"]

_METADATA_KEY = "bkclient.setting"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What is known about one field of a configuration.

    ``key`` is BookKeeper's name for it, None where this client has a setting of its own; a value under that key is
    multiplied by ``factor`` to get ours. ``low`` and ``high`` are inclusive bounds. ``none_below``: values under the
    BookKeeper key below this mean "off", which is None here.
    """

    kind: type
    key: str | None = None
    factor: float = 1
    low: float | None = None
    high: float | None = None
    none_below: float | None = None
    optional: bool = False
    choices: tuple[Any, ...] = ()

    def check(self, name: str, value: Any) -> None:
        """Raise :class:`~bkclient.errors.ArgumentError` unless ``value`` can be the setting ``name``."""
        if value is None and self.optional:
            return
        if self.choices:
            if isinstance(value, bool) or value not in self.choices:
                allowed = " or ".join(repr(choice) for choice in self.choices)
                raise ArgumentError(f"{name} must be {allowed}, not {value!r}")
        elif self.kind in (int, float):
            self._check_number(name, value)
        elif self.kind is tuple:
            if not isinstance(value, tuple) or not all(isinstance(item, str) and item for item in value):
                raise ArgumentError(f"{name} must be a tuple of names, not {value!r}")
        elif not isinstance(value, self.kind):
            raise ArgumentError(f"{name} must be a {self.kind.__name__}, not {value!r}")

    def _check_number(self, name: str, value: Any) -> None:
        allowed = (int, float) if self.kind is float else (int,)
        noun = "a number" if self.kind is float else "a whole number"
        if isinstance(value, bool) or not isinstance(value, allowed) or value != value:  # noqa: PLR0124 - NaN
            raise ArgumentError(f"{name} must be {noun}, not {value!r}")
        if self.low is not None and value < self.low:
            raise ArgumentError(f"{name} must be at least {self.low}, not {value!r}")
        if self.high is not None and value > self.high:
            raise ArgumentError(f"{name} must be at most {self.high}, not {value!r}")


def _field(default: Any, **setting: Any) -> Any:
    return dataclasses.field(default=default, metadata={_METADATA_KEY: Setting(**setting)})


def number(default: float | None, **setting: Any) -> Any:
    """A field that holds a number."""
    return _field(default, kind=float, **setting)


def whole(default: int, **setting: Any) -> Any:
    """A field that holds a whole number."""
    return _field(default, kind=int, **setting)


def on(**setting: Any) -> Any:
    """A switch that is on by default."""
    return _field(default=True, kind=bool, **setting)


def off(**setting: Any) -> Any:
    """A switch that is off by default."""
    return _field(default=False, kind=bool, **setting)


def text(default: str | None, **setting: Any) -> Any:
    """A field that holds a word."""
    return _field(default, kind=str, optional=default is None, **setting)


def names(default: tuple[str, ...], **setting: Any) -> Any:
    """A field that holds several words."""
    return _field(default, kind=tuple, **setting)


def choice(default: Any, choices: tuple[Any, ...], **setting: Any) -> Any:
    """A field that holds one of ``choices``."""
    return _field(default, kind=type(default), choices=choices, **setting)


def secret(default: bytes, **setting: Any) -> Any:
    """A field that holds bytes nobody should see."""
    metadata = {_METADATA_KEY: Setting(kind=bytes, **setting)}
    return dataclasses.field(default=default, repr=False, metadata=metadata)


def setting_of(field: dataclasses.Field[Any]) -> Setting:
    """What is known about ``field``."""
    setting: Setting = field.metadata[_METADATA_KEY]
    return setting


def nearest(name: str, known: Iterable[str]) -> str:
    """``; did you mean ...?`` for a name that looks like one of ``known``, else nothing."""
    by_folded = {candidate.replace("_", "").lower(): candidate for candidate in known}
    close = difflib.get_close_matches(name.replace("_", "").lower(), by_folded, n=2)
    return f"; did you mean {' or '.join(by_folded[folded] for folded in close)}?" if close else ""

"""How a setting is declared: its default, its bounds, and the key under which BookKeeper users know it.

BookKeeper's own configuration mixes seconds and milliseconds; its keys name the unit only sometimes. Here every duration
is in seconds and every name that has a unit ends in it. A :class:`Setting` remembers what lies between the two, so that
a properties file written for the Java client can be read as it is.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from bkclient.errors import ArgumentError

__all__ = [
    "Setting",
    "check_settings",
    "choice",
    "names",
    "number",
    "off",
    "on",
    "secret",
    "setting_of",
    "text",
    "whole",
]

_METADATA_KEY = "bkclient.setting"
_SWITCH: Final = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """The declaration of one setting.

    ``low`` and ``high`` are inclusive bounds, ``choices`` the values to choose from.

    ``key`` is BookKeeper's key for the setting, None if BookKeeper has none. A number under the key is multiplied by
    ``factor`` to get ours; if it is below ``off_below``, it means ``off`` (BookKeeper uses -1 or 0 to switch many things
    off). ``words`` are texts under the key that have a meaning of their own.
    """

    kind: type
    low: float | None = None
    high: float | None = None
    optional: bool = False
    choices: tuple[Any, ...] = ()
    key: str | None = None
    factor: float = 1
    off_below: float | None = None
    off: Any = None
    words: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def check(self, name: str, value: Any) -> None:
        """Raise :class:`~bkclient.errors.ArgumentError` unless ``value`` can be the setting ``name``."""
        if value is None and self.optional:
            return
        if self.choices:
            if isinstance(value, bool) or value not in self.choices:
                allowed = " or ".join(repr(choice) for choice in self.choices)
                raise ArgumentError(f"{name} must be {allowed}, got {value!r}")
        elif self.kind in (int, float):
            self._check_number(name, value)
        elif self.kind is tuple:
            if not isinstance(value, tuple) or not all(isinstance(item, str) and item for item in value):
                raise ArgumentError(f"{name} must be a tuple of names, got {value!r}")
        elif self.kind is bytes:
            if not isinstance(value, bytes):
                raise ArgumentError(f"{name} must be bytes, got {type(value).__name__}")  # its value may be a secret
        elif not isinstance(value, self.kind):
            raise ArgumentError(f"{name} must be a {self.kind.__name__}, got {value!r}")

    def _check_number(self, name: str, value: Any) -> None:
        allowed = (int, float) if self.kind is float else (int,)
        noun = "a number" if self.kind is float else "a whole number"
        if isinstance(value, bool) or not isinstance(value, allowed) or not math.isfinite(value):
            raise ArgumentError(f"{name} must be {noun}, got {value!r}")
        if self.low is not None and value < self.low:
            raise ArgumentError(f"{name} must be >= {self.low}, got {value!r}")
        if self.high is not None and value > self.high:
            raise ArgumentError(f"{name} must be <= {self.high}, got {value!r}")

    def from_plain(self, value: Any) -> Any:
        """A value from TOML or JSON: a list becomes a tuple, a name the member of an enum; all else stays as it is."""
        if self.kind is tuple and isinstance(value, list):
            return tuple(value)
        if issubclass(self.kind, Enum) and isinstance(value, str) and value in self.kind.__members__:
            return self.kind[value]
        return value

    def from_property(self, value: Any) -> Any:
        """The setting for ``value`` under BookKeeper's key; :class:`ValueError` if it has no meaning there."""
        word = str(value).strip()
        if word.lower() in self.words:
            return self.words[word.lower()]
        if self.choices and word in self.choices:
            return word
        if self.kind is bool:
            wanted = " or ".join(filter(None, self.words)) or "true or false"
            return _SWITCH[word.lower()] if word.lower() in _SWITCH else _no(value, wanted)
        if self.choices:
            return _no(value, " or ".join(self.words))
        if self.kind in (int, float):
            return self._number_from(value, word)
        if self.kind is tuple:
            return tuple(item.strip() for item in word.split(";") if item.strip())
        if self.kind is bytes:
            return value if isinstance(value, bytes) else str(value).encode()
        return word or (None if self.optional else word)

    def _number_from(self, value: Any, word: str) -> Any:
        try:
            number = float(word)
        except ValueError:
            return _no(value, "a number")
        if self.off_below is not None and number < self.off_below:
            return self.off
        scaled = round(number * self.factor, 9)
        return int(scaled) if self.kind is int and scaled.is_integer() else scaled


def check_settings(config: Any, ordered: Iterable[tuple[str, str]] = (), *, prefix: str = "") -> None:
    """Raise :class:`~bkclient.errors.ArgumentError` unless every field has a value that its declaration allows.

    Of each pair in ``ordered`` the first must not exceed the second; None is above and below everything. Messages show
    the names with ``prefix``.
    """
    for field in dataclasses.fields(config):
        setting_of(field).check(prefix + field.name, getattr(config, field.name))
    for low, high in ordered:
        lower, upper = getattr(config, low), getattr(config, high)
        if lower is not None and upper is not None and lower > upper:
            raise ArgumentError(f"{prefix}{low} must be <= {prefix}{high}, got {lower!r} and {upper!r}")


def _no(value: Any, wanted: str) -> Any:
    raise ValueError(f"must be {wanted}, got {value!r}")


def _field(default: Any, **setting: Any) -> Any:
    return dataclasses.field(default=default, metadata={_METADATA_KEY: Setting(**setting)})


def number(default: float | None, **setting: Any) -> Any:
    """A field that holds a number."""
    return _field(default, kind=float, **{"optional": default is None} | setting)


def whole(default: int | None, **setting: Any) -> Any:
    """A field that holds a whole number."""
    return _field(default, kind=int, **{"optional": default is None} | setting)


def on(**setting: Any) -> Any:
    """A switch that is on by default."""
    return _field(default=True, kind=bool, **setting)


def off(**setting: Any) -> Any:
    """A switch that is off by default."""
    return _field(default=False, kind=bool, **setting)


def text(default: str | None, **setting: Any) -> Any:
    """A field that holds text."""
    return _field(default, kind=str, optional=default is None, **setting)


def names(default: tuple[str, ...], **setting: Any) -> Any:
    """A field that holds a tuple of names."""
    return _field(default, kind=tuple, **setting)


def choice(default: Any, choices: tuple[Any, ...], **setting: Any) -> Any:
    """A field that holds one of ``choices``."""
    return _field(default, kind=type(default), choices=choices, **setting)


def secret(default: bytes, **setting: Any) -> Any:
    """A field that holds secret bytes, which ``repr`` leaves out."""
    metadata = {_METADATA_KEY: Setting(kind=bytes, **setting)}
    return dataclasses.field(default=default, repr=False, metadata=metadata)


def setting_of(field: dataclasses.Field[Any]) -> Setting:
    """The declaration of ``field``."""
    setting: Setting = field.metadata[_METADATA_KEY]
    return setting

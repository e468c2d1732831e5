"""How a setting is declared: its default, its bounds, and the key under which BookKeeper users know it.

BookKeeper's own configuration mixes seconds and milliseconds; its keys name the unit only sometimes. Here every duration
is in seconds and every name that has a unit ends in it. A :class:`Setting` remembers what lies between the two, so that
a properties file written for the Java client can be read as it is.
"""

from __future__ import annotations

import dataclasses
import difflib
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
    "nearest",
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
    """What is known about one field of a configuration.

    ``low`` and ``high`` are inclusive bounds, ``choices`` all there is to choose from.

    The rest is about BookKeeper's ``key`` for it, None where this client has a setting of its own. A number under the
    key is multiplied by ``factor`` to get ours; if it is below ``off_below``, it means ``off`` (BookKeeper says -1 or 0 for
    many things that do not happen). ``words`` are texts under the key that have a meaning of their own.
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
                raise ArgumentError(f"{name} must be {allowed}, not {value!r}")
        elif self.kind in (int, float):
            self._check_number(name, value)
        elif self.kind is tuple:
            if not isinstance(value, tuple) or not all(isinstance(item, str) and item for item in value):
                raise ArgumentError(f"{name} must be a tuple of names, not {value!r}")
        elif not isinstance(value, self.kind):
            shown = "something else" if self.kind is bytes else repr(value)
            raise ArgumentError(f"{name} must be a {self.kind.__name__}, not {shown}")

    def _check_number(self, name: str, value: Any) -> None:
        allowed = (int, float) if self.kind is float else (int,)
        noun = "a number" if self.kind is float else "a whole number"
        if isinstance(value, bool) or not isinstance(value, allowed) or not math.isfinite(value):
            raise ArgumentError(f"{name} must be {noun}, not {value!r}")
        if self.low is not None and value < self.low:
            raise ArgumentError(f"{name} must be at least {self.low}, not {value!r}")
        if self.high is not None and value > self.high:
            raise ArgumentError(f"{name} must be at most {self.high}, not {value!r}")

    def from_plain(self, value: Any) -> Any:
        """What TOML or JSON can say for it: a list for a tuple, the name of an enum's member; all else as it is."""
        if self.kind is tuple and isinstance(value, list):
            return tuple(value)
        if issubclass(self.kind, Enum) and isinstance(value, str) and value in self.kind.__members__:
            return self.kind[value]
        return value

    def from_property(self, value: Any) -> Any:
        """What ``value``, text as a rule, says under BookKeeper's key; :class:`ValueError` if nothing."""
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


def check_settings(config: Any, ordered: Iterable[tuple[str, str]] = ()) -> None:
    """Raise :class:`~bkclient.errors.ArgumentError` unless every field may have its value; of ``ordered``, the lower first.

    None is above and below everything.
    """
    for field in dataclasses.fields(config):
        setting_of(field).check(field.name, getattr(config, field.name))
    for low, high in ordered:
        lower, upper = getattr(config, low), getattr(config, high)
        if lower is not None and upper is not None and lower > upper:
            raise ArgumentError(f"{low} is above {high}")


def _no(value: Any, wanted: str) -> Any:
    raise ValueError(f"{wanted} is wanted, not {value!r}")


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
    close = difflib.get_close_matches(str(name).replace("_", "").lower(), by_folded, n=2)
    return f"; did you mean {' or '.join(by_folded[folded] for folded in close)}?" if close else ""

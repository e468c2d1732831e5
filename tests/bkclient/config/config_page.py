"""How docs/using/configuration.md describes a declared setting: everything but its meaning, which people write."""

from __future__ import annotations

import dataclasses
from enum import Enum
from typing import Any, Final

from bkclient.config.fields import Setting, setting_of

__all__ = ["describe"]

_UNITS: Final = {
    "_per_s": "per second",
    "_s": "seconds",
    "_bytes": "bytes",
    "_entries": "entries",
    "_requests": "requests",
}
_TYPES: Final = {
    int: "whole number",
    float: "number",
    bool: "switch",
    str: "text",
    bytes: "bytes",
    tuple: "list of names",
}


def describe(group: str, field: dataclasses.Field[Any]) -> tuple[str, str, str, str, str, str]:
    """Name, type, unit, default, bounds and BookKeeper's key, as cells of the table."""
    setting = setting_of(field)
    unit = next((unit for end, unit in _UNITS.items() if field.name.endswith(end)), "")
    kind = "choice" if setting.choices else _TYPES[setting.kind]
    key = "" if setting.key is None else f"`{setting.key}`"
    return f"`{group}.{field.name}`", kind, unit, _value(field.default), _bounds(setting), key


def _value(value: Any) -> str:
    if value is None:
        return "none"
    if value in {(), b""} and not isinstance(value, int | float):
        return "empty"
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, int | float):
        return f"{value:g}" if isinstance(value, float) else f"{value:,}".replace(",", " ")
    return f"`{value}`"


def _bounds(setting: Setting) -> str:
    if setting.choices:
        return ", ".join(_value(choice) for choice in setting.choices)
    text = "" if setting.low is None else f"at least {_value(setting.low)}"
    if setting.low is not None and setting.high is not None:
        text = f"{_value(setting.low)} to {_value(setting.high)}"
    return " or ".join(part for part in (text, "none" if setting.optional else "") if part)

"""Frozen dataclasses as words of a line, and back.

A field without a default is a word of its own, in the order of the fields; a field with one is ``name=value`` and is left out
where it has its default. A flag, a field with the default False, is its bare name. In names ``_`` is written ``-``, and a
duration, a number whose field's name ends with ``_s``, is written without that ending and with the unit: ``pause=0.5s``.

    Append(ledger="a", count=10, pause_s=0.5, nowait=True)    a 10 pause=0.5s nowait

Values are whole numbers, numbers, names, members of enumerations (``power-loss`` for ``POWER_LOSS``), ``none``, sizes of quorums
(``3/3/2``), and lists of whole numbers or names joined by commas. There are no quotes: a name has no space in it.
"""

from __future__ import annotations

import re
import types
import typing
from collections.abc import Iterable, Sequence
from dataclasses import MISSING, Field, dataclass, fields, replace
from enum import Enum
from functools import cache
from typing import Any, Final, TypeVar

from bkclient.errors import BookKeeperError
from scenarios.plan.errors import PlanError

__all__ = [
    "NAME",
    "Sizes",
    "check_name",
    "flag_word",
    "key_of",
    "parse_fields",
    "parse_value",
    "print_fields",
    "print_value",
]

T = TypeVar("T")

#: Names of plans, clients, hosts, ledgers, handles and faults; with ``@`` the bookie at a position of a ledger's ensemble.
NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*(@\d{1,2})?\Z")
_WHOLE: Final = re.compile(r"-?\d{1,18}\Z")
_NONE: Final = "none"


@dataclass(frozen=True, slots=True)
class Sizes:
    """Ensemble, write quorum and ack quorum of a ledger."""

    ensemble: int
    write_quorum: int
    ack_quorum: int

    def __post_init__(self) -> None:
        if not 1 <= self.ack_quorum <= self.write_quorum <= self.ensemble:
            raise PlanError(f"expected sizes E/Qw/Qa with E >= Qw >= Qa >= 1, found {self}")

    def __str__(self) -> str:
        return f"{self.ensemble}/{self.write_quorum}/{self.ack_quorum}"


def check_name(name: str, what: str, *, is_host: bool = False) -> None:
    """:class:`PlanError` unless ``name`` can be written as one word; only a host may be a position of an ensemble."""
    if not NAME.match(name) or ("@" in name and not is_host):
        raise PlanError(f"expected a name for {what}, found {name!r}")


def member_of(host: str) -> tuple[str, int] | None:
    """Ledger and position that ``LEDGER@POSITION`` stands for; None for the name of a host."""
    ledger, at, position = host.partition("@")
    return (ledger, int(position)) if at else None


# Values ------------------------------------------------------------------------------------------------------------


def flag_word(member: Enum) -> str:
    """A member of an enumeration as a word."""
    return member.name.lower().replace("_", "-")


def print_value(value: object, *, is_duration: bool = False) -> str:
    """A value as a word."""
    match value:
        case None:
            return _NONE
        case bool():
            return "yes" if value else "no"
        case Enum():
            return flag_word(value)
        case int() | float():
            return repr(value).removesuffix(".0") + ("s" if is_duration else "")
        case tuple():
            return ",".join(print_value(item) for item in value)
        case _:
            return str(value)


def parse_value(kind: Any, word: str, *, is_duration: bool = False) -> Any:
    """The value of type ``kind`` that a word stands for; :class:`PlanError` says what was expected, and what was found."""
    kinds = _alternatives(kind)
    if type(None) in kinds:
        if word == _NONE:
            return None
        kinds = [other for other in kinds if other is not type(None)]
    (kind,) = kinds
    origin = typing.get_origin(kind)
    if origin is tuple:
        return tuple(parse_value(typing.get_args(kind)[0], part) for part in word.split(","))
    if kind is bool:
        return _member({"yes": True, "no": False}, word)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return _member({flag_word(member): member for member in kind}, word)
    return _PARSERS[kind](word, is_duration)


def _alternatives(kind: Any) -> list[Any]:
    is_union = typing.get_origin(kind) in (typing.Union, types.UnionType)
    return list(typing.get_args(kind)) if is_union else [kind]


def _member(known: dict[str, Any], word: str) -> Any:
    if word not in known:
        raise PlanError(f"expected {' or '.join(known)}, found {word!r}")
    return known[word]


def _whole_number(word: str, _: bool) -> int:  # noqa: FBT001  one shape for all parsers
    if not _WHOLE.match(word):
        raise PlanError(f"expected a whole number, found {word!r}")
    return int(word)


def _float(word: str, is_duration: bool) -> float:  # noqa: FBT001
    what = "a duration such as 0.5s" if is_duration else "a number"
    digits = word.removesuffix("s") if is_duration else word
    if digits == word and is_duration:
        raise PlanError(f"expected {what}, found {word!r}")
    if not re.match(r"\d+(\.\d+)?(e[+-]?\d+)?\Z", digits):
        raise PlanError(f"expected {what}, found {word!r}")
    value = float(digits)
    if value == float("inf"):
        raise PlanError(f"expected {what}, found {word!r}")
    return value


def _name(word: str, _: bool) -> str:  # noqa: FBT001
    if not NAME.match(word):
        raise PlanError(f"expected a name, found {word!r}")
    return word


def _sizes(word: str, _: bool) -> Sizes:  # noqa: FBT001
    found = re.match(r"(\d{1,3})/(\d{1,3})/(\d{1,3})\Z", word)
    if found is None:
        raise PlanError(f"expected sizes E/Qw/Qa, found {word!r}")
    return Sizes(*map(int, found.groups()))


_PARSERS: Final[dict[Any, Any]] = {int: _whole_number, float: _float, str: _name, Sizes: _sizes}


# Fields ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Slot:
    """How one field is written."""

    name: str
    key: str
    kind: Any
    is_duration: bool
    default: Any

    @property
    def is_required(self) -> bool:
        return self.default is MISSING

    @property
    def is_flag(self) -> bool:
        return self.default is False


def key_of(name: str, kind: Any) -> tuple[str, bool]:
    """The name of a field as it is written, and whether it is a duration."""
    is_duration = name.endswith("_s") and float in _alternatives(kind)
    return name.removesuffix("_s" if is_duration else "").replace("_", "-"), is_duration


@cache
def _slots(cls: type, leave_out: frozenset[str]) -> tuple[_Slot, ...]:
    hints = typing.get_type_hints(cls)
    slots = []
    for field in fields(cls):
        if field.name in leave_out:
            continue
        kind = hints[field.name]
        key, is_duration = key_of(field.name, kind)
        slots.append(_Slot(field.name, key, kind, is_duration, _default(field)))
    return tuple(slots)


def _default(field: Field[Any]) -> Any:
    return field.default_factory() if field.default_factory is not MISSING else field.default


def _with_base(cls: type, leave_out: Iterable[str], base: object) -> list[_Slot]:
    """How the fields are written where ``base`` has their defaults."""
    slots = _slots(cls, frozenset(leave_out))
    return list(slots) if base is None else [replace(slot, default=getattr(base, slot.name)) for slot in slots]


def print_fields(value: object, *, full: bool = False, leave_out: Iterable[str] = (), base: object = None) -> list[str]:
    """The words of a value's fields; ``full`` names those too that have their defaults, which are those of ``base`` if given."""
    words = []
    for slot in _with_base(type(value), leave_out, base):
        found = getattr(value, slot.name)
        is_said = found != slot.default or (full and found not in ("", ()))
        if slot.is_required:
            words.append(print_value(found, is_duration=slot.is_duration))
        elif slot.is_flag:
            words += [slot.key] if found else [f"{slot.key}=no"] if full else []
        elif is_said:
            words.append(f"{slot.key}={print_value(found, is_duration=slot.is_duration)}")
    return words


def parse_fields(
    cls: type[T], words: Sequence[str], *, leave_out: Iterable[str] = (), base: T | None = None, **given: Any
) -> T:
    """The value that words stand for; ``given`` are fields that are not among them.

    :class:`PlanError` for a missing or an unknown word, for one that does not fit its field, and for what ``cls`` refuses.
    """
    slots = _with_base(cls, leave_out, base)
    required = [slot for slot in slots if slot.is_required]
    for index, slot in enumerate(required):
        found = repr(words[index]) if index < len(words) else "the end of the line"
        if index >= len(words) or "=" in words[index]:
            raise PlanError(f"expected {slot.key}, found {found}")
    values = {slot.name: _parsed(slot, word) for slot, word in zip(required, words, strict=False)}
    by_key = {slot.key: slot for slot in slots if not slot.is_required}
    for word in words[len(required) :]:
        key, has_value, text = word.partition("=")
        known = by_key.pop(key, None)
        if known is None:
            wanted = " or ".join(by_key) or "the end of the line"
            raise PlanError(f"expected {wanted}, found {word!r}")
        if not has_value and known.kind is not bool:
            raise PlanError(f"expected {key}=..., found {word!r}")
        values[known.name] = _parsed(known, text) if has_value else True
    try:
        return cls(**values, **given) if base is None else replace(base, **values, **given)  # type: ignore[type-var]
    except PlanError:
        raise
    except (ValueError, BookKeeperError) as error:
        raise PlanError(f"expected values that fit, found: {error}") from error


def _parsed(slot: _Slot, word: str) -> Any:
    try:
        return parse_value(slot.kind, word, is_duration=slot.is_duration)
    except PlanError as error:
        raise PlanError(f"{slot.key}: {error}") from error

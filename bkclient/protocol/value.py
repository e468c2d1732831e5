"""What makes a machine a value: it copies, compares, pickles, and tells its state as something that can be hashed.

A :class:`Value` is its slots: plain data, other values, and containers of both, as a tree. Nothing in it refers to the outside,
and no two parts share anything that changes; so a copy and the original, given the same inputs, do the same, and neither
notices the other. What a machine needs of the outside (its ports, the writer a force belongs to) it is bound to from
outside, in slots named by ``OUTSIDE``; these are no part of the value. A copy is unbound until its maker binds it.

Tuples hold constants only. Dicts compare with their order, which may matter for what is done next. Errors compare by what
they say; a pickled one loses its cause.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Mapping
from enum import Enum
from typing import Any, ClassVar, Final, Self, TypeVar

from bkclient._frozen import NO_ITEMS, FrozenDict
from bkclient.errors import BookKeeperError

__all__ = ["NOTHING", "Value", "ends_once", "freeze", "moved", "own"]

E = TypeVar("E", bound=Enum)
K = TypeVar("K")
V = TypeVar("V")

#: In the places of dicts that stay empty in most machines, each of which would take 64 bytes. To be replaced by :func:`own`
#: before anything is put in; it refuses to be changed.
NOTHING: Final[dict[Any, Any]] = NO_ITEMS


def own(values: dict[K, V]) -> dict[K, V]:
    """``values`` as a dict that may be changed: a new one in the place of :data:`NOTHING`."""
    return values if type(values) is dict else {}


def moved(table: Mapping[E, tuple[E, ...]], state: E, to: E) -> E:
    """``to``, which ``table`` must name among the states that follow ``state``."""
    assert to in table[state], f"{state} is not followed by {to}"
    return to


def ends_once(waiting: E) -> Mapping[E, tuple[E, ...]]:
    """The table of what waits and then ends, in any other state there is."""
    ends = tuple(state for state in type(waiting) if state is not waiting)
    return {waiting: ends} | dict.fromkeys(ends, ())


class Value:
    """See the module. Subclasses name everything they consist of in ``__slots__``."""

    __slots__ = ()
    #: Slots that are bound from outside.
    OUTSIDE: ClassVar[frozenset[str]] = frozenset()
    _STATE: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        slots = [name for base in reversed(cls.__mro__) for name in vars(base).get("__slots__", ())]
        cls._STATE = tuple(name for name in slots if name not in cls.OUTSIDE)

    def copy(self) -> Self:
        """An equal value that shares nothing that changes with this one, and is bound to nothing."""
        twin = object.__new__(type(self))
        for name in self._STATE:
            value = getattr(self, name)
            setattr(twin, name, value if type(value) in _CONSTANTS else _copied(value))
        return twin

    def snapshot(self) -> Hashable:
        """The state as it is now; equal for values that cannot be told apart by anything they may still be asked."""
        values = [getattr(self, name) for name in self._STATE]
        return (type(self), *[value if type(value) in _CONSTANTS else freeze(value) for value in values])

    def __copy__(self) -> Self:
        return self.copy()

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self.copy()

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return self.snapshot() == other.snapshot()

    __hash__ = None  # type: ignore[assignment]  # it changes; its snapshot has a hash

    def __getstate__(self) -> tuple[Any, ...]:
        return tuple(getattr(self, name) for name in self._STATE)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        for name, value in zip(self._STATE, state, strict=True):
            setattr(self, name, value)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={getattr(self, name)!r}' for name in self._STATE)})"


def _copied(value: Any) -> Any:
    """A copy of a part; what cannot change is its own copy."""
    copy = _COPIES.get(type(value))
    if copy is not None:
        return copy(value)
    if isinstance(value, Value):
        return value.copy()
    assert _is_constant(value), f"{value!r} has no place in a value"
    return value


def freeze(value: Any) -> Hashable:
    """``value`` by content, as something that can be hashed."""
    frozen = _FROZEN.get(type(value))
    if frozen is not None:
        return frozen(value)
    if isinstance(value, Value):
        return value.snapshot()
    if isinstance(value, BookKeeperError):
        return (type(value), value.message, value.ledger_id, value.entry_id, value.bookie_id, value.advice)
    assert _is_constant(value), f"{value!r} has no place in a value"
    return value  # type: ignore[no-any-return]  # a constant


def _is_constant(value: object) -> bool:
    """Whether it is compared by content, or an error, of which none is changed. Functions, ports and the like are neither."""
    has_content = type(value) in _CONSTANTS or type(value).__hash__ not in (None, object.__hash__)
    return has_content or isinstance(value, BookKeeperError)


#: What is met most often; there are others.
_CONSTANTS: Final = frozenset({int, str, bytes, bool, float, type(None), tuple})

_COPIES: Final[dict[type, Callable[[Any], Any]]] = {
    dict: lambda values: {k: v if type(v) in _CONSTANTS else _copied(v) for k, v in values.items()},
    list: lambda values: [_copied(value) for value in values],
    deque: lambda values: deque(map(_copied, values)),
    set: set,
    FrozenDict: lambda values: values,
}
_FROZEN: Final[dict[type, Callable[[Any], Hashable]]] = {
    dict: lambda values: tuple([(k, v if type(v) in _CONSTANTS else freeze(v)) for k, v in values.items()]),
    FrozenDict: lambda values: tuple(values.items()),  # as a dict with the same content
    list: lambda values: tuple([freeze(value) for value in values]),
    deque: lambda values: tuple([freeze(value) for value in values]),
    set: frozenset,
}

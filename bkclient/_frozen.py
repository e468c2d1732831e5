"""Mappings that do not change, for values that are shared, compared, hashed and sent to other processes."""

from __future__ import annotations

from typing import Any, Final, NoReturn, TypeVar

__all__ = ["NO_ITEMS", "FrozenDict"]

K = TypeVar("K")
V = TypeVar("V")


class FrozenDict(dict[K, V]):
    """A dict that cannot be changed, so it can be hashed as long as its values can.

    It is a dict, not a read-only view of one: it pickles, copies and converts to JSON like any other, and equals a dict with
    the same items.
    """

    __slots__ = ()

    def __hash__(self) -> int:  # type: ignore[override]  # dict declares that it has no hash
        return hash(frozenset(self.items()))

    def __repr__(self) -> str:
        return f"FrozenDict({super().__repr__()})"

    def __copy__(self) -> FrozenDict[K, V]:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> FrozenDict[K, V]:
        return self

    def __reduce__(self) -> tuple[type[FrozenDict[K, V]], tuple[dict[K, V]]]:
        return type(self), (dict(self),)

    def _refuse(self, *_args: Any, **_kwargs: Any) -> NoReturn:
        raise TypeError(f"{type(self).__name__} cannot be changed; make a new one")

    __setitem__ = __delitem__ = __ior__ = _refuse
    update = setdefault = pop = popitem = clear = _refuse


NO_ITEMS: Final[FrozenDict[Any, Any]] = FrozenDict()
"""An empty one, for all who need none of their own."""

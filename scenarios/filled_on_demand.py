"""A dictionary that finds what it lacks."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

__all__ = ["FilledOnDemand"]

K = TypeVar("K")
V = TypeVar("V")


class FilledOnDemand(dict[K, V]):
    """What ``find`` finds for a key, found when somebody asks for it first.

    A key that is there takes one look, with no call of Python's, so that what happens for each of millions of events may use it.
    """

    __slots__ = ("_find",)

    def __init__(self, find: Callable[[K], V]) -> None:
        super().__init__()
        self._find = find

    def __missing__(self, key: K) -> V:
        found = self[key] = self._find(key)
        return found

"""What an observer of a bookie was told, for tests to look up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["Notebook"]


class Notebook:
    """A bookie observer that writes everything down, in order."""

    def __init__(self) -> None:
        self.events: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Callable[..., None]:
        if name.startswith("_"):
            raise AttributeError(name)
        return lambda *arguments: self.events.append((name, *arguments))

    def of(self, *names: str) -> list[tuple[Any, ...]]:
        return [event for event in self.events if event[0] in names]

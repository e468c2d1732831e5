"""Where a client says what it is doing and for how long, to be shown as spans of a trace.

As with :mod:`~bkclient.observability.stats` there is one small interface, and None in its place where it is not wanted.
Spans are for operations of which an application makes a few: creating, opening, recovering, deleting, closing. Appends have
spans only if the tracer asks for them, because they cost more than an append does.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol

__all__ = ["Span", "Tracer"]


class Span(Protocol):
    """One operation under way."""

    def set_ledger(self, ledger_id: int) -> None:
        """The operation turned out to be about this ledger."""
        ...


class Tracer(Protocol):
    """Shows the operations of one client. Must neither raise nor wait."""

    @property
    def wants_appends(self) -> bool:
        """Whether appends have spans too; asked once for each writer."""
        ...

    def operation(self, name: str, ledger_id: int | None = None) -> AbstractContextManager[Span]:
        """An operation while the block lasts, by its name among the statistics; an error that leaves the block is the outcome."""
        ...

    def append(self, ledger_id: int, entry_id: int) -> Callable[[BaseException | None], None]:
        """An append begins; call what is returned with its outcome, once, None for success."""
        ...

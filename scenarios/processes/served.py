"""A bookie of a run, ours or Apache's: a process that serves, and can be killed, stopped and started again on its data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

__all__ = ["BookieMaker", "BookieWishes", "OnEvent", "ServedBookie"]

Message = list[Any]
OnEvent = Callable[[Message, Callable[[], None]], None]
"""Takes an event that a bookie tells of, and what lets the bookie go on if it waits."""


@dataclass(frozen=True, slots=True)
class BookieWishes:
    """What a bookie of a run is told.

    ``folder`` is its own, ``digest`` that of all ledgers or empty, ``started_ns`` the clock's zero; ``watched`` has the kinds of
    events to tell of, and whether the bookie waits at them.
    """

    name: str
    metadata: str
    folder: Path
    session_timeout_s: float
    digest: str
    started_ns: int
    watched: dict[str, bool]


class ServedBookie(Protocol):
    """A bookie process with data of its own. What takes time ends within a limit of its own, or raises ``RuntimeError``."""

    @property
    def parts(self) -> Sequence[Path]:
        """The histories of its lives, in order; none if it does not record."""
        ...

    @property
    def port(self) -> int:
        """Where it serves; known once it is started."""
        ...

    @property
    def is_alive(self) -> bool:
        """Whether its process runs, even if it is paused."""
        ...

    @property
    def is_paused(self) -> bool:
        """Whether its process stands still."""
        ...

    @property
    def problem(self) -> str:
        """Why it ended, if it ended by itself; else empty."""
        ...

    def start(self) -> None:
        """Start its process, on what data it has."""

    async def serves(self) -> None:
        """Wait until it serves and is registered, or was killed; ``RuntimeError`` if it ends by itself or takes too long."""

    def kill(self) -> None:
        """SIGKILL. Idempotent."""

    def pause(self) -> None:
        """SIGSTOP."""

    def resume(self) -> None:
        """SIGCONT."""


class BookieMaker(Protocol):
    """Makes the bookies of a run."""

    @property
    def kind(self) -> str:
        """What they are, for the history's header."""
        ...

    @property
    def records(self) -> bool:
        """Whether they record what happens inside."""
        ...

    def __call__(self, wishes: BookieWishes, on_event: OnEvent) -> ServedBookie:
        """A bookie that is not started yet."""

"""Bookies of ``bk-sim`` as processes of a run, which record."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from scenarios.processes.child import Child
from scenarios.processes.served import BookieWishes, OnEvent

__all__ = ["OurBookie", "OurBookies"]

_MODULE: Final = "scenarios.processes.bookie"
_START_TIMEOUT_S: Final = 60.0


class OurBookies:
    """Makes them."""

    kind: Final = "bk-sim"
    records: Final = True

    def __call__(self, wishes: BookieWishes, on_event: OnEvent) -> OurBookie:
        """See :class:`~scenarios.processes.served.BookieMaker`."""
        return OurBookie(wishes, on_event)


class OurBookie:
    """Implements :class:`~scenarios.processes.served.ServedBookie`."""

    def __init__(self, wishes: BookieWishes, on_event: OnEvent) -> None:
        self._parts: list[Path] = []
        self.port = 0
        self._wishes = wishes
        self._on_event = on_event
        self._child: Child | None = None
        self._life = _Life()
        wishes.folder.mkdir(parents=True, exist_ok=True)

    @property
    def parts(self) -> Sequence[Path]:
        """See there, as for all that follows."""
        return self._parts

    @property
    def is_alive(self) -> bool:
        """See there."""
        return self._child is not None and self._child.is_alive

    @property
    def is_paused(self) -> bool:
        """See there."""
        return self._child is not None and self._child.is_paused

    @property
    def problem(self) -> str:
        """See there."""
        return "" if self._life.is_killed else self._life.problem

    def start(self) -> None:
        """See there."""
        wishes = self._wishes
        lives = [str(path) for path in self._parts]
        self._parts.append(wishes.folder / f"life-{len(lives) + 1}.bkh")
        life = self._life = _Life()
        task = {
            "name": wishes.name,
            "metadata": wishes.metadata,
            "port": self.port,
            "data": str(wishes.folder / "data"),
            "file": str(self._parts[-1]),
            "lives": lives,
            "session_timeout_s": wishes.session_timeout_s,
            "digest": wishes.digest,
            "started_ns": wishes.started_ns,
            "watched": wishes.watched,
        }
        self._child = Child(
            _MODULE, task, wishes.folder / "log.txt", partial(self._take, life), partial(self._ended, life)
        )

    async def serves(self) -> None:
        """See there."""
        life = self._life
        try:
            async with asyncio.timeout(_START_TIMEOUT_S):
                await life.settled.wait()
        except TimeoutError:
            raise RuntimeError(f"{self._wishes.name} did not serve within {_START_TIMEOUT_S:g} s") from None
        if self.problem:
            raise RuntimeError(self.problem)

    def kill(self) -> None:
        """See there."""
        if self._child is not None:
            self._life.is_killed = True
            self._child.kill()

    def pause(self) -> None:
        """See there."""
        if self._child is not None:
            self._child.pause()

    def resume(self) -> None:
        """See there."""
        if self._child is not None:
            self._child.resume()

    def _take(self, life: _Life, message: list[Any]) -> None:
        child = self._child
        match message:
            case ["ready", port]:
                self.port = port
                life.settled.set()
            case ["failed", problem]:
                life.problem = f"{self._wishes.name} ended: {problem}"
            case ["event", *_] if child is not None:
                self._on_event(message, partial(child.send, "go-on"))

    def _ended(self, life: _Life) -> None:
        life.problem = life.problem or f"{self._wishes.name} ended by itself; the end of its log:\n{self._last_words()}"
        life.settled.set()

    def _last_words(self) -> str:
        return "" if self._child is None else self._child.last_words()


class _Life:
    """From the start of a process to its end. ``settled`` is set when it serves or has ended, whichever comes first."""

    def __init__(self) -> None:
        self.settled = asyncio.Event()
        self.problem = ""
        self.is_killed = False

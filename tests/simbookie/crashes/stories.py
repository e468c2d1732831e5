"""What tests of crashes share: a bookie that is killed where a test wants it, and what is left of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from simbookie.crashes.after import State, state_after_start
from simbookie.crashes.kinds import STORE_KINDS
from simbookie.crashes.runs import play_life
from simbookie.crashes.settings import RunSettings
from simbookie.crashes.subject import Subject, run_to_crash_point
from simbookie.storage.base import CrashMode
from simbookie.storage.quirks import REPAIRED, Quirk

__all__ = ["BOTH_CRASHES", "EVERY_STORE", "FULL", "INDEX_FILES", "OTHER_LOGS", "SHARED_LOGS", "Story", "adds"]

#: The three with one log for all ledgers, and those with other entry logs.
_KINDS = ("interleaved", "sorted", "db")
_OTHER_LOGS = tuple(kind for kind in STORE_KINDS if kind not in _KINDS)
EVERY_STORE = pytest.mark.parametrize("kind", list(STORE_KINDS))
SHARED_LOGS = pytest.mark.parametrize("kind", _KINDS)
OTHER_LOGS = pytest.mark.parametrize("kind", _OTHER_LOGS)
#: Stores whose steps are those of index files and memtables.
INDEX_FILES = pytest.mark.parametrize("kind", ["interleaved", "sorted"])
BOTH_CRASHES = pytest.mark.parametrize("mode", list(CrashMode), ids=lambda mode: mode.name.lower())


def adds(slot: int, count: int, size: int = 900, *, wait: float = 0.003) -> list[tuple[Any, ...]]:
    """So many entries, each acknowledged before the next."""
    return [operation for _ in range(count) for operation in (("add", slot, size, "ordinary"), ("wait", wait))]


#: Enough to fill a log or two, and to have a checkpoint or two.
FULL = [*adds(0, 4), *adds(1, 4)]


class Story:
    """A bookie over its lives."""

    def __init__(
        self, kind: str, mode: CrashMode = CrashMode.PROCESS, *, quirks: frozenset[Quirk] = REPAIRED, **settings: Any
    ) -> None:
        self.mode = mode
        defaults = RunSettings(kind, 1, quirks, syncs_cover_names=False)
        self.subject = Subject(replace(defaults, **settings))

    def live(self, *operations: tuple[Any, ...], at: int = 0, in_order: bool = False) -> str | None:
        """A life that ends before the step number ``at``, or in the end; returns the step at which it ended early."""
        return play_life(self.subject, list(operations), crash_at=at, mode=self.mode, ends_in_order=in_order)

    def die(self, until: str, *operations: tuple[Any, ...]) -> None:
        """A life that comes to a step when it serves, and ends before it."""
        assert self.live(("arm", until), *operations) == until

    @property
    def violated(self) -> list[str]:
        """The invariants that were seen violated."""
        return sorted({violation.invariant for violation in self.subject.violations})

    @property
    def state(self) -> State:
        """What a start finds, on a copy of the disk."""
        found: list[State | None] = []

        async def look() -> None:
            found.append(await state_after_start(self.subject, self.subject.disk.copy()))

        assert run_to_crash_point(look) is None
        assert found[0] is not None, "the bookie does not start"
        return found[0]

    def entries(self, ledger_id: int) -> list[int]:
        """The entries that a start finds of a ledger."""
        state = self.state.get(ledger_id)
        return [entry_id for entry_id, _ in state[3]] if state is not None else []

    def is_fenced(self, ledger_id: int) -> bool:
        """Whether a start finds the ledger fenced."""
        state = self.state.get(ledger_id)
        return state is not None and state[1]

    def end(self) -> None:
        """One more life, and another, after which nothing may be violated."""
        self.live(("add", 0, 8, "ordinary"), ("wait", 0.05))
        self.live()
        assert self.subject.violations == []

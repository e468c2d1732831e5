"""What tests of crashes share: a bookie that is killed where a test wants it, and what is left of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest

from simbookie.crashes.after import State, state_after_start
from simbookie.crashes.kinds import STORE_KINDS
from simbookie.crashes.making import ledger_folders
from simbookie.crashes.runs import play_life
from simbookie.crashes.settings import RunSettings
from simbookie.crashes.subject import Subject, run_to_crash_point
from simbookie.storage.base import CrashMode
from simbookie.storage.quirks import REPAIRED, Quirk

__all__ = [
    "BOTH_CRASHES",
    "COLLECT",
    "EVERY_STORE",
    "FULL",
    "INDEX_FILES",
    "LITTER",
    "OTHER_LOGS",
    "ROW_STEPS",
    "SHARED_LOGS",
    "Story",
    "adds",
    "has_step",
    "where",
]

#: The three with one log for all ledgers, and those with other entry logs.
_KINDS = ("interleaved", "sorted", "db")
_OTHER_LOGS = tuple(kind for kind in STORE_KINDS if kind not in _KINDS)
EVERY_STORE = pytest.mark.parametrize("kind", list(STORE_KINDS))
SHARED_LOGS = pytest.mark.parametrize("kind", _KINDS)
OTHER_LOGS = pytest.mark.parametrize("kind", _OTHER_LOGS)
#: Stores without a database.
INDEX_FILES = pytest.mark.parametrize("kind", [kind for kind in STORE_KINDS if not kind.startswith("db")])
BOTH_CRASHES = pytest.mark.parametrize("mode", list(CrashMode), ids=lambda mode: mode.name.lower())


def adds(slot: int, count: int, size: int = 900, *, wait: float = 0.003) -> list[tuple[Any, ...]]:
    """So many entries, each acknowledged before the next."""
    return [operation for _ in range(count) for operation in (("add", slot, size, "ordinary"), ("wait", wait))]


#: Enough to fill a log or two, and to have a checkpoint or two.
FULL = [*adds(0, 4), *adds(1, 4), ("wait", 0.06)]
#: A garbage collector that has something to compact: of each log two ledgers of four are left.
LITTER = [*(each for _ in range(3) for slot in range(4) for each in adds(slot, 1, 400)), *adds(0, 4), ("wait", 0.05)]
LITTER += [("delete", slot, 0.0) for slot in (1, 2)]
COLLECT = [("collect", True), ("wait", 0.6)]

#: Steps that not every store has, by what their names begin with, and which kinds have them.
_STEPS_OF_FEW: dict[str, Callable[[str], bool]] = {
    "index.": lambda kind: not kind.startswith("db"),
    "flush.index": lambda kind: not kind.startswith("db"),
    "memtable.roll": lambda kind: kind == "sorted",
    "memtable.": lambda kind: kind.startswith("sorted"),
    "database.": lambda kind: kind.startswith("db"),
    "flush.entries": lambda kind: kind.startswith("db"),
    "flush.swap": lambda kind: kind.startswith("db"),
    "flush.locations": lambda kind: kind.startswith("db"),
    "flush.ledgers": lambda kind: kind.startswith("db"),
    "flush.cleanup": lambda kind: kind.startswith("db"),
    "log.map": lambda kind: kind == "db-direct",
    # with a log for each ledger, all of a log is alive or nothing is
    "compaction.": lambda kind: "per-ledger" not in kind,
    "transaction.": lambda kind: "per-ledger" not in kind,
    "move.index": lambda kind: not kind.startswith("db") and "per-ledger" not in kind,
    "move.": lambda kind: "per-ledger" not in kind,
}


def has_step(kind: str, step: str) -> bool:
    """Whether a store comes to a step."""
    return next((of_kind(kind) for prefix, of_kind in _STEPS_OF_FEW.items() if step.startswith(prefix)), True)


#: The steps of rows.
ROW_STEPS: set[str] = set()


def where(*steps: str) -> pytest.MarkDecorator:
    """Each of these steps, of every store that has it, as ``kind`` and ``step``."""
    ROW_STEPS.update(steps)
    return pytest.mark.parametrize(
        ("kind", "step"), [(kind, step) for kind in STORE_KINDS for step in steps if has_step(kind, step)]
    )


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

    def steps_of(self, *operations: tuple[Any, ...]) -> set[str]:
        """The steps of a life that ends in order."""
        seen: set[str] = set()
        told = self.subject.watch.step

        def tell(name: str) -> None:
            seen.add(name)
            told(name)

        with patch.object(self.subject.watch, "step", tell):
            self.live(*operations, in_order=True)
        return seen

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

    @property
    def files(self) -> set[tuple[str, str]]:
        """Folders and names of the files beside indexes."""
        folders = ledger_folders(self.subject.settings, self.subject.disk)
        return {(folder.path, name) for folder in folders for name in folder.names()}

    def keeps(self, ledger_id: int) -> bool:
        """Whether something of the ledger was acknowledged, and a start finds all of that."""
        acknowledged = {entry_id for each, entry_id in self.subject.promises.entries if each == ledger_id}
        return bool(acknowledged) and acknowledged <= set(self.entries(ledger_id))

    def is_fenced(self, ledger_id: int) -> bool:
        """Whether a start finds the ledger fenced."""
        state = self.state.get(ledger_id)
        return state is not None and state[1]

    def end(self) -> None:
        """One more life, and another, after which nothing may be violated."""
        self.live(("add", 0, 8, "ordinary"), ("wait", 0.05))
        self.live()
        assert self.subject.violations == []

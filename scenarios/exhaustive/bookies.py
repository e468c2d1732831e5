"""Bookies as an automaton: states are numbered by value, and the answer to each request is computed once."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from bkclient.errors import Code
from scenarios.exhaustive.automata import Ask
from scenarios.machines.bookies import MachineBookie, StoredEntry
from scenarios.machines.broken import BrokenClause

__all__ = ["BookieAutomaton"]


@dataclass(frozen=True, slots=True)
class _BookieState:
    """A bookie, the highest LAC that it ever told to anybody who asked, and the entries that it denied without a fence.

    With ``may_crash`` it may be down when the next request arrives: whether it crashed then or before nobody can tell.
    """

    bookie: MachineBookie
    told: int
    denied: frozenset[int]
    may_crash: bool

    def key(self) -> Hashable:
        """By content; of the LACs in headers, that of the highest entry alone is ever told."""
        entries, highest = self.bookie.entries, max(self.bookie.entries, default=-1)
        stored = [
            (number, one.payload, one.last_add_confirmed if number == highest else None, one.length)
            for number, one in sorted(entries.items())
        ]
        return self.bookie.is_up, self.may_crash, self.bookie.is_fenced, tuple(stored), self.told, self.denied


class BookieAutomaton:
    """Any bookie: all are alike. State 0 is a new one, and state 1 a new one that may crash."""

    def __init__(self, wanted: frozenset[str] | None = None) -> None:
        self._notes_denials = wanted is None or "E5" in wanted
        self._states: list[_BookieState] = []
        self._numbers: dict[Hashable, int] = {}
        self.table: dict[tuple[int, Ask, bool], tuple[int, int, StoredEntry | None]] = {}
        for may_crash in (False, True):
            self._number(_BookieState(MachineBookie(), -1, frozenset(), may_crash))

    @property
    def states(self) -> int:
        """How many states were seen."""
        return len(self._states)

    def step(self, state: int, ask: Ask, *, of_writer: bool) -> tuple[int, int, StoredEntry | None]:
        """The next state, and code and entry of the answer. Raises BrokenClause for E5."""
        found = self.table.get((state, ask, of_writer))
        if found is None:
            found = self.table[state, ask, of_writer] = self._step(self._states[state], ask, of_writer)
        return found

    def _step(self, before: _BookieState, ask: Ask, of_writer: bool) -> tuple[int, int, StoredEntry | None]:  # noqa: FBT001
        bookie = before.bookie.copy()
        code, entry = bookie.handle(ask, of_writer=of_writer)
        told, denied = before.told, before.denied
        if ask.add is not None and code == Code.OK:
            told = max(told, ask.add.last_add_confirmed)
            if of_writer and ask.entry_id in denied:
                raise BrokenClause("E5", f"{ask.bookie_id} stored entry {ask.entry_id} after denying it")
        if bookie.is_fenced or not self._notes_denials:
            denied = frozenset()
        elif ask.kind == "read" and code == Code.NO_SUCH_ENTRY:
            denied |= {ask.entry_id}
        if entry is not None:
            entry = (
                StoredEntry(b"", entry.last_add_confirmed, entry.length - len(entry.payload))  # what is before it
                if ask.kind == "fence"
                else entry._replace(last_add_confirmed=-1)
            )
        return self._number(_BookieState(bookie, told, denied, before.may_crash)), code, entry

    def crashed(self, state: int) -> int | None:
        """The state after a crash, or None for a bookie that does not crash any more."""
        before = self._states[state]
        if not before.may_crash:
            return None
        bookie = before.bookie.copy()
        bookie.is_up = False
        return self._number(_BookieState(bookie, before.told, before.denied, may_crash=False))

    def bookie(self, state: int) -> MachineBookie:
        """A bookie in this state. Not to be changed."""
        return self._states[state].bookie

    def told(self, state: int) -> int:
        """The highest LAC that a bookie in this state ever told, or would have."""
        return self._states[state].told

    def _number(self, state: _BookieState) -> int:
        key = state.key()
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self._states)
            self._states.append(state)
        return number

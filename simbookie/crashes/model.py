"""What clients of a bookie may rely on: every answer it gave, over all of its lives."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from simbookie.storage.base import CrashMode

__all__ = ["KEY", "Promises"]

KEY: Final = b"key of every ledger"

EntryKey = tuple[int, int]


@dataclass
class Promises:
    """Acknowledgements of one bookie. What is *soft* was acknowledged before it was synced, as asked for or as configured."""

    #: Acknowledged, with their bodies.
    entries: dict[EntryKey, bytes] = field(default_factory=dict, repr=False)
    #: Acknowledged by an ordinary add, and by none of a recovery.
    ordinary: dict[EntryKey, None] = field(default_factory=dict)
    #: Sent by a recovery, whatever came of it.
    recovered: dict[EntryKey, None] = field(default_factory=dict)
    #: Everything that was ever sent.
    sent: dict[EntryKey, bytes] = field(default_factory=dict, repr=False)
    fences: dict[int, None] = field(default_factory=dict)
    #: Explicit LACs that may be found: the one acknowledged last, and those that came later.
    lacs: dict[int, list[int]] = field(default_factory=dict)
    soft: dict[EntryKey, None] = field(default_factory=dict)
    #: Sent again, and not answered yet, or with an error. A journal has no checksums: if a kill tears the record of such a copy,
    #: a replay takes it for the entry, whatever was acknowledged before.
    resent: Counter[EntryKey] = field(default_factory=Counter)
    #: Entries that were being sent again when the bookie was killed: they are there, perhaps with another body.
    torn: dict[EntryKey, None] = field(default_factory=dict)
    next_ids: Counter[int] = field(default_factory=Counter)
    #: Ledgers that the metadata store has, and those of them that are closed there.
    ledgers: dict[int, None] = field(default_factory=dict)
    closed: dict[int, None] = field(default_factory=dict)

    def added(self, key: EntryKey, body: bytes, *, is_recovery: bool, is_soft: bool) -> None:
        """An add was acknowledged."""
        self.entries[key] = body
        if not is_recovery and key not in self.recovered:
            self.ordinary[key] = None
        if is_soft:
            self.soft[key] = None

    def is_kept(self, key: EntryKey, found: object) -> bool:
        """Whether what a read has found is what was acknowledged."""
        return found == self.entries[key] or (key in self.torn and isinstance(found, bytes))

    def forced(self, keys: list[EntryKey]) -> None:
        """A force was acknowledged that began when these were."""
        for key in keys:
            self.soft.pop(key, None)

    def lac_sent(self, ledger_id: int) -> int:
        """The next explicit LAC of a ledger."""
        lacs = self.lacs.setdefault(ledger_id, [-1])
        lacs.append(lacs[-1] + 1)
        return lacs[-1]

    def lac_acknowledged(self, ledger_id: int, lac: int) -> None:
        """Earlier ones are not to be found any more."""
        if ledger_id in self.lacs:
            self.lacs[ledger_id] = [later for later in self.lacs[ledger_id] if later >= lac]

    def delete(self, ledger_id: int) -> None:
        """The metadata of a ledger are gone: nothing is promised of it any more."""
        self.ledgers.pop(ledger_id, None)
        self.fences.pop(ledger_id, None)
        self.lacs.pop(ledger_id, None)
        self.closed.pop(ledger_id, None)
        for table in (self.entries, self.ordinary, self.soft):
            for key in [key for key in table if key[0] == ledger_id]:
                del table[key]

    def crashed(self, mode: CrashMode, *, is_soft: bool, journals_entries: bool) -> None:
        """What was acknowledged before it was synced may be gone with the power; with ``is_soft`` fences and LACs are, too.

        Without ``journals_entries`` soft entries may be gone with the process.
        """
        self.torn.update(dict.fromkeys(key for key in +self.resent))
        self.resent.clear()
        if mode is not CrashMode.POWER_LOSS and journals_entries:
            return
        self._lose(self.soft)
        self.soft.clear()
        if is_soft and mode is CrashMode.POWER_LOSS:
            self.fences.clear()
            self.lacs = {ledger_id: list(range(-1, lacs[-1] + 1)) for ledger_id, lacs in self.lacs.items()}

    def lost_disk(self) -> dict[int, None]:
        """The disk is gone: nothing is promised any more. Entries are to be had from other bookies; returns the fences."""
        self._lose(self.entries)
        self.lacs.clear()
        fences, self.fences = self.fences, {}
        return fences

    def _lose(self, keys: Iterable[EntryKey]) -> None:
        for key in list(keys):
            for table in (self.entries, self.ordinary, self.soft):
                table.pop(key, None)

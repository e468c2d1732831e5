"""What a ledger store works out about a ledger when it is first asked, and keeps up while entries come."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable
from struct import Struct
from typing import Final

from simbookie.storage.base import StorageIOError
from simbookie.storage.quirks import REPAIRED, Quirk
from simbookie.storage.runs import EntryRuns

__all__ = ["PACKET_BYTES_MIN", "KnownLacs", "KnownRuns", "lac_of", "lac_of_packet"]

_LAC_OF_ENTRY: Final = Struct(">16xq")
_LAC_OF_PACKET: Final = Struct(">8xq")

#: What a packet has at least: ledger id and LAC.
PACKET_BYTES_MIN: Final = 16


def lac_of(entry: bytes) -> int:
    """The LAC that an entry carries."""
    lac: int = _LAC_OF_ENTRY.unpack_from(entry)[0]
    return lac


def lac_of_packet(packet: bytes) -> int:
    """The LAC that the packet of an explicit LAC states."""
    lac: int = _LAC_OF_PACKET.unpack_from(packet)[0]
    return lac


class KnownLacs:
    """The LAC of each ledger that was asked for: that of its last entry, or explicit, at that time, or a higher one since.

    With the quirk ``EXPLICIT_LAC_UNLOADED`` an explicit one does not count before it was kept, or asked for, since the start.
    """

    def __init__(self, quirks: frozenset[Quirk] = REPAIRED) -> None:
        self._lacs: dict[int, int] = {}
        #: Ledgers whose explicit LACs were; None where it makes no difference.
        self._loaded: set[int] | None = set() if Quirk.EXPLICIT_LAC_UNLOADED in quirks else None

    def get(self, ledger_id: int, last_entry: Callable[[int], bytes | None], explicit: bytes | None) -> int:
        """The LAC of a ledger, whose ``last_entry`` is asked for the first time; ``explicit`` is the packet that was kept."""
        lac = self._lacs.get(ledger_id)
        if lac is None:
            lac = self._lacs[ledger_id] = max(self._explicit(ledger_id, explicit), _lac_of_last(last_entry, ledger_id))
        return lac

    def _explicit(self, ledger_id: int, packet: bytes | None) -> int:
        if packet is None or (self._loaded is not None and ledger_id not in self._loaded):
            return -1
        return lac_of_packet(packet)

    def rose(self, ledger_id: int, lac: int) -> None:
        """Something came that states ``lac``."""
        if lac > self._lacs.get(ledger_id, lac):
            self._lacs[ledger_id] = lac

    def load(self, ledger_id: int, packet: bytes | None) -> bytes | None:
        """The packet of an explicit LAC, which was kept, or is asked for; it counts from now on."""
        if self._loaded is not None and packet is not None and ledger_id not in self._loaded:
            self._loaded.add(ledger_id)
            self.rose(ledger_id, lac_of_packet(packet))
        return packet

    def drop(self, ledger_id: int) -> None:
        """Forget a ledger."""
        self._lacs.pop(ledger_id, None)
        if self._loaded is not None:
            self._loaded.discard(ledger_id)


def _lac_of_last(last_entry: Callable[[int], bytes | None], ledger_id: int) -> int:
    try:
        entry = last_entry(ledger_id)
    except StorageIOError:
        return -1
    return lac_of(entry) if entry is not None else -1


class KnownRuns:
    """Runs of consecutive entry ids of the ledgers that were asked about."""

    def __init__(self) -> None:
        self._runs: dict[int, tuple[EntryRuns, int]] = {}

    def came(self, ledger_id: int, entry_id: int) -> None:
        """An entry was added, for the first time or again."""
        known = self._runs.get(ledger_id)
        if known is None:
            return
        runs, last = known
        if entry_id <= last:
            del self._runs[ledger_id]  # rare, and worked out again when somebody asks
            return
        if entry_id != last + 1:
            runs.skip_to(entry_id, last)
        self._runs[ledger_id] = (runs, entry_id)

    def drop(self, ledger_id: int) -> None:
        """Forget a ledger."""
        self._runs.pop(ledger_id, None)

    def count(self, ledger_id: int, entry_ids: Callable[[], Iterable[int]]) -> int:
        """At least as many as there are runs; ``entry_ids`` is asked for the ids, ascending, if need be."""
        return len(self._known(ledger_id, entry_ids)[0]) + 1

    def runs(self, ledger_id: int, entry_ids: Callable[[], Iterable[int]]) -> tuple[array[int], array[int]]:
        """The first and the last ids of the runs."""
        runs, last = self._known(ledger_id, entry_ids)
        return runs.runs(last)

    def _known(self, ledger_id: int, entry_ids: Callable[[], Iterable[int]]) -> tuple[EntryRuns, int]:
        known = self._runs.get(ledger_id)
        if known is None:
            runs, last = EntryRuns(), -1
            for entry_id in entry_ids():
                if entry_id != last + 1:
                    runs.skip_to(entry_id, last)
                last = entry_id
            known = self._runs[ledger_id] = (runs, last)
        return known

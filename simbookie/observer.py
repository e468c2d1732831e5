"""What a bookie tells about itself while it happens, for recorders of histories.

The bookie calls its observer synchronously, in the order of its own state changes, each call before any answer that depends
on the change. Without an observer nothing is built and no call is made. An observer must not raise and must not call the
bookie back.
"""

from __future__ import annotations

from typing import Protocol

from simbookie.storage.base import CrashMode, CrashReport

__all__ = ["BookieObserver", "tell_of_crash"]


class BookieObserver(Protocol):
    """Listens to one bookie. ``source`` is what the caller of :meth:`simbookie.bookie.Bookie.submit` gave as source."""

    def entry_stored(self, ledger_id: int, entry_id: int, body: bytes, recovery: bool, source: str) -> None:  # noqa: FBT001
        """The entry is readable here, though not yet durable."""
        ...

    def entry_synced(self, ledger_id: int, entry_id: int) -> None:
        """The entry survives a power loss. Never called where the journal does not sync entries."""
        ...

    def lac_advanced(self, ledger_id: int, lac: int) -> None:
        """The highest last-add-confirmed known here rose to ``lac``."""
        ...

    def fence_set(self, ledger_id: int, source: str, durable: bool) -> None:  # noqa: FBT001
        """The ledger refuses ordinary adds from now on; called again with ``durable`` once that survives a crash."""
        ...

    def limbo_changed(self, ledger_id: int, in_limbo: bool) -> None:  # noqa: FBT001
        """The bookie stopped, or resumed, vouching for what it does not have of the ledger.

        Not durable at once: what a crash has forgotten is told after :meth:`restarted`.
        """
        ...

    def ledger_deleted(self, ledger_id: int) -> None:
        """Everything of the ledger was removed, as garbage collection does."""
        ...

    def entry_lost(self, ledger_id: int, entry_id: int, detail: str) -> None:
        """The last copy of the entry on this bookie is gone; precedes :meth:`crashed` where a crash is the reason."""
        ...

    def fence_forgotten(self, ledger_id: int, detail: str) -> None:
        """A fence that was durable is gone, as on bookies that break their word; precedes :meth:`crashed`."""
        ...

    def crashed(self, clean: bool, detail: str) -> None:  # noqa: FBT001
        """The bookie stopped serving; ``clean`` if it shut down in order."""
        ...

    def restarted(self, incarnation: int, detail: str) -> None:
        """The bookie serves again; ``incarnation`` counts its starts, the first (which is not reported) being 1."""
        ...


def tell_of_crash(observer: BookieObserver, mode: CrashMode, report: CrashReport) -> None:
    """Tell what a crash destroyed, then of the crash."""
    for ledger_id, entry_id in report.entries_lost:
        observer.entry_lost(ledger_id, entry_id, "not durable at the crash")
    for ledger_id in report.fences_forgotten:
        observer.fence_forgotten(ledger_id, "neither replayed nor kept by a checkpoint")
    observer.crashed(False, f"{mode.name.lower()}: {report}")  # noqa: FBT003

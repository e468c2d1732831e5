"""What a recovery tells its observer.

Most of what a client does can be seen from outside, at its transport and its metadata store. What a recovery concluded
from the answers it got cannot; this is the one place where it says so. Nothing is built without an observer.
"""

from __future__ import annotations

from typing import Protocol

from bkclient.ledger import BookieId, Versioned
from bkclient.protocol.recovery import EntryVerdict

__all__ = ["RecoveryObserver"]


class RecoveryObserver(Protocol):
    """Listens to the recoveries of one client."""

    def recovery_started(self, metadata: Versioned) -> None:
        """The ledger is marked; ``metadata`` is what the recovery works on, its last fragment is the one to fence."""
        ...

    def entry_decided(
        self, ledger_id: int, entry_id: int, verdict: EntryVerdict, bookies: tuple[BookieId, ...]
    ) -> None:
        """The answers of ``bookies`` settled whether the entry is part of the ledger."""
        ...

"""A recorder whose events can be looked at, and a ledger to record something about."""

from __future__ import annotations

from typing import Any

from bkclient import DigestType, LedgerMetadata
from bkclient.ledger import Fragment
from bkclient.wire.entry import EntryCodec
from scenarios.history import Event, HistoryWriter
from scenarios.recording.recorders import Recorder

__all__ = ["CODEC", "LEDGER", "METADATA", "Notes"]

LEDGER = 7
METADATA = LedgerMetadata(LEDGER, 3, 2, 2, (Fragment(0, ("b0", "b1", "b2")),), digest_type=DigestType.HMAC)
CODEC = EntryCodec(LEDGER, DigestType.HMAC, b"")


class Notes:
    """A recorder whose events can be looked at."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        history = HistoryWriter({}, lambda: 0)
        history.listeners.append(self.events.append)
        self.recorder = Recorder(history)
        self.recorder.learn(METADATA)

    def told(self) -> list[tuple[str, str, int, dict[str, Any]]]:
        """Everything so far, and forget it."""
        told = [(str(e.kind), e.actor, e.ledger, dict(e.fields)) for e in self.events]
        self.events.clear()
        return told

"""Which ledgers of a log may go."""

from __future__ import annotations

from typing import Final

from bkclient.log.format.message_id import MessageId
from bkclient.log.machine.manifest import LogManifest

__all__ = ["LAST", "trim_through"]

LAST: Final = 2**63 - 1


def trim_through(manifest: LogManifest, now_ms: int, before: MessageId | None = None) -> int:
    """The id of the last ledger that may go, -1 if none may; only ledgers that have ended are asked about.

    By retention a ledger goes when its last message is older than ``retention_s`` and the ledgers after it hold
    ``retention_bytes`` bytes: each of the two keeps what it keeps, and None, of either, keeps everything unless the other one is
    set. With ``before`` all ledgers before that message go instead.
    """
    settings = manifest.settings
    if before is None and settings.retention_s is None and settings.retention_bytes is None:
        return -1
    through = -1
    kept_bytes = sum(ledger.length for ledger in manifest.ledgers)
    for ledger in manifest.ledgers:
        if ledger.end is None:
            break
        kept_bytes -= ledger.length
        if before is not None:
            may_go = ledger.ledger_id < before.ledger_id
        else:
            is_old = settings.retention_s is None or ledger.end.last_ms < now_ms - settings.retention_s * 1000
            is_large = settings.retention_bytes is None or kept_bytes >= settings.retention_bytes
            may_go = is_old and is_large
        if not may_go:
            break
        through = ledger.ledger_id
    return through

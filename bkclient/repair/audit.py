"""Auditing: which ledgers name bookies that are gone.

The metadata of all ledgers is read, and every ledger that names, in any fragment, a bookie that is registered neither as
writable nor as read-only is marked for the workers, with the bookies that it misses. The list of bookies is read before the
ledgers and again after them, so that a bookie that came back, or came for the first time, meanwhile is not missing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from bkclient.errors import BookKeeperError, MetadataSerializationError, NoSuchLedger
from bkclient.ledger import BookieId, LedgerMetadata
from bkclient.metadata.base import MetadataStore
from bkclient.repair.concurrency import for_each
from bkclient.repair.underreplication.marks import UnderReplication

__all__ = ["AuditReport", "audit_bookies"]

_READS_AT_A_TIME: Final = 64


@dataclass(slots=True)
class AuditReport:
    """What an audit found: how many ledgers there are, who is missing and by which of them, and what could not be read."""

    ledgers: int = 0
    missing: dict[BookieId, list[int]] = field(default_factory=dict)
    marked: list[int] = field(default_factory=list)
    unreadable: dict[int, BookKeeperError] = field(default_factory=dict)
    #: False if auto-recovery was switched off meanwhile; what was not marked by then has to be found again.
    is_complete: bool = True


async def audit_bookies(
    store: MetadataStore, marks: UnderReplication, on_marked: Callable[[int, tuple[BookieId, ...]], None]
) -> AuditReport:
    """Mark the ledgers of all bookies that are gone, unless auto-recovery is switched off by then.

    ``on_marked`` is told of marks that are new or name more bookies than before.

    Ledgers whose metadata cannot be read are told and passed over.
    """
    report = AuditReport()
    suspects: dict[int, tuple[BookieId, ...]] = {}
    before = await _registered(store)

    async def examine(ledger_id: int) -> None:
        try:
            metadata = (await store.read_ledger(ledger_id)).metadata
        except NoSuchLedger:
            return
        except MetadataSerializationError as error:
            report.unreadable[ledger_id] = error
            return
        report.ledgers += 1
        gone = tuple(bookie_id for bookie_id in _members(metadata) if bookie_id not in before)
        if gone:
            suspects[ledger_id] = gone

    await for_each(store.list_ledgers(), _READS_AT_A_TIME, examine)
    after = await _registered(store) if suspects else before
    for ledger_id, gone in sorted(suspects.items()):
        missing = tuple(bookie_id for bookie_id in gone if bookie_id not in after)
        if not missing:
            continue
        if not await marks.is_enabled():
            report.is_complete = False
            break
        for bookie_id in missing:
            report.missing.setdefault(bookie_id, []).append(ledger_id)
        report.marked.append(ledger_id)
        if await marks.mark(ledger_id, missing):
            on_marked(ledger_id, missing)
    return report


async def _registered(store: MetadataStore) -> dict[BookieId, None]:
    sets = await store.bookies()
    return dict.fromkeys((*sets.writable, *sets.read_only))


def _members(metadata: LedgerMetadata) -> list[BookieId]:
    return sorted({bookie_id for fragment in metadata.fragments for bookie_id in fragment.ensemble})

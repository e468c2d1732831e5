"""Counting copies by what bookies say they store.

Bookies list the entries they have of a ledger without reading them, so this is cheap and shallow: it finds what was lost,
not what rotted. Only closed ledgers can be judged, because only their entries are all known. A bookie that does not answer
counts as storing nothing and is named, so that one can tell loss from silence. Lists exist in protocol version 3 only.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Final

import anyio
import anyio.lowlevel

from bkclient._client.core import ClientCore
from bkclient._client.exchange import ask
from bkclient.errors import BookKeeperError, ClientClosed, Code, error_for
from bkclient.ledger import BookieId, LedgerMetadata
from bkclient.protocol.quorum import QuorumSizes
from bkclient.repair.fragments import LedgerFragment, fragments_of
from bkclient.wire.availability import EntryAvailability, decode_availability
from bkclient.wire.errors import MalformedMessage
from bkclient.wire.messages import EntryListRequest, EntryListResponse, Request, Response

__all__ = ["ReplicaReport", "Shortage", "check_replicas", "entries_on"]

EXAMPLES_MAX: Final = 16
_ENTRIES_PER_TURN: Final = 10_000
"""Entries judged before other tasks get their turn."""


@dataclass(slots=True)
class Shortage:
    """How many entries have too few copies, and the first of them."""

    count: int = 0
    entry_ids: list[int] = field(default_factory=list)

    def note(self, entry_id: int) -> None:
        """One more."""
        self.count += 1
        if len(self.entry_ids) < EXAMPLES_MAX:
            self.entry_ids.append(entry_id)


@dataclass(slots=True)
class ReplicaReport:
    """The copies of a closed ledger's entries. Each entry counts in the worst class it belongs to.

    ``silent`` are bookies that did not tell what they have; ``short_bookies`` those that lack some entry they should store.
    """

    ledger_id: int
    entries: int = 0
    without_replica: Shortage = field(default_factory=Shortage)
    below_ack_quorum: Shortage = field(default_factory=Shortage)
    below_write_quorum: Shortage = field(default_factory=Shortage)
    silent: dict[BookieId, BookKeeperError] = field(default_factory=dict)
    short_bookies: dict[BookieId, int] = field(default_factory=dict)

    @property
    def is_sound(self) -> bool:
        """Whether every entry has all its copies."""
        return not (self.without_replica.count or self.below_ack_quorum.count or self.below_write_quorum.count)


async def entries_on(core: ClientCore, ledger_id: int, bookie_id: BookieId) -> EntryAvailability:
    """The entries of a ledger that a bookie says it stores, whatever the metadata says.

    :class:`~bkclient.errors.NoSuchLedgerOnBookie` if it has never heard of the ledger, and the other errors of bookies;
    :class:`~bkclient.errors.UnexpectedCondition` for a list that cannot be read.
    """
    code, availability = await ask(core, bookie_id, EntryListRequest(ledger_id), _availability_in, "a list of entries")
    if availability is None:
        raise error_for(code, "the bookie did not list its entries", ledger_id=ledger_id, bookie_id=bookie_id)
    try:
        return decode_availability(availability)
    except MalformedMessage as error:
        raise error_for(
            Code.UNEXPECTED_CONDITION, f"malformed list of entries: {error}", ledger_id=ledger_id, bookie_id=bookie_id
        ) from error


def _availability_in(_request: Request, response: Response | None) -> bytes:
    assert isinstance(response, EntryListResponse), "a list of entries is what was asked for"
    return response.availability or b""


async def check_replicas(core: ClientCore, metadata: LedgerMetadata) -> ReplicaReport:
    """Compare what bookies list with what they should store; nothing is counted for a ledger that is empty or not closed."""
    report = ReplicaReport(metadata.ledger_id)
    if not metadata.is_closed:
        return report
    lists: dict[BookieId, EntryAvailability] = {}
    for fragment in fragments_of(metadata, -1):
        if fragment.is_empty:
            continue
        asked = [bookie_id for bookie_id in dict.fromkeys(fragment.ensemble) if bookie_id not in lists]
        answers = await asyncio.gather(*[_listed(core, metadata.ledger_id, bookie_id, report) for bookie_id in asked])
        lists.update(zip(asked, answers, strict=True))
        await _count(QuorumSizes.of(metadata), fragment, lists, report)
    return report


async def _listed(core: ClientCore, ledger_id: int, bookie_id: BookieId, report: ReplicaReport) -> EntryAvailability:
    try:
        return await entries_on(core, ledger_id, bookie_id)
    except ClientClosed:
        raise
    except BookKeeperError as error:
        if error.code is not Code.NO_SUCH_LEDGER_ON_BOOKIE:
            report.silent[bookie_id] = error
        return EntryAvailability(())


async def _count(
    sizes: QuorumSizes, fragment: LedgerFragment, lists: dict[BookieId, EntryAvailability], report: ReplicaReport
) -> None:
    for entry_id in range(fragment.first_entry_id, fragment.last_entry_id + 1):
        copies = 0
        for position in sizes.write_set(entry_id):
            bookie_id = fragment.ensemble[position]
            if entry_id in lists[bookie_id]:
                copies += 1
            else:
                report.short_bookies[bookie_id] = report.short_bookies.get(bookie_id, 0) + 1
        report.entries += 1
        if copies == 0:
            report.without_replica.note(entry_id)
        elif copies < sizes.ack_quorum_size:
            report.below_ack_quorum.note(entry_id)
        elif copies < sizes.write_quorum_size:
            report.below_write_quorum.note(entry_id)
        if report.entries % _ENTRIES_PER_TURN == 0:
            await anyio.lowlevel.checkpoint()

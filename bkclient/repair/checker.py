"""Finding the fragments of a ledger that lack copies.

An ordinary check asks every position for the first and the last entry it should store, and for a sample of those between. A
thorough one asks for every copy of every entry and compares the copies of each. Either verifies the digest of whatever it
reads: a copy that readers would refuse is none. Nothing is changed at any bookie; a writer does not notice.

The check judges the ledger as it was when it was opened. An open ledger goes on meanwhile, and its newest entries may be on
their way to some of their bookies, so what is found in its last fragment has to be found again, later, before anything is
done about it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from random import Random

from bkclient._client.core import ClientCore
from bkclient.entry import Entry
from bkclient.errors import ClientClosed, Code
from bkclient.protocol.quorum import QuorumSizes
from bkclient.repair.findings import FragmentFindings, FragmentReport, LedgerReport, is_never_written
from bkclient.repair.fragments import LedgerFragment
from bkclient.repair.ledger import OpenedLedger
from bkclient.repair.ranges import sampled
from bkclient.repair.reads import CopyReads, ReadBatch

__all__ = ["LedgerChecker"]


class LedgerChecker:
    """Checks ledgers; several at a time share ``max_reads``.

    ``percentage`` of the entries between the first and the last are read, drawn by ``rng``. A bookie is unavailable if
    ``core.watcher`` does not know it as registered; it is not asked.
    """

    def __init__(self, core: ClientCore, *, max_reads: int, percentage: float, rng: Random) -> None:
        self._core = core
        self._reads = CopyReads(core, max_reads)
        self._percentage = percentage
        self._rng = rng

    async def check(self, ledger: OpenedLedger, *, thorough: bool = False) -> LedgerReport:
        """What is wrong with the ledger. Raises :class:`~bkclient.errors.ClientClosed` alone; failed reads are findings."""
        reports = []
        copies = 0
        for fragment in ledger.fragments:
            known = await self._with_a_last_entry(ledger, fragment)
            if known is None:
                continue
            report = await self._check_fragment(ledger, known, thorough=thorough)
            copies += report.copies_checked
            if not report.is_sound:
                reports.append(report)
        if self._core.is_closed:
            raise ClientClosed(ledger_id=ledger.ledger_id)
        return LedgerReport(ledger.ledger_id, ledger.value.version, tuple(reports), copies)

    async def _with_a_last_entry(self, ledger: OpenedLedger, fragment: LedgerFragment) -> LedgerFragment | None:
        """The fragment with the last entry to check; None if it was never written to."""
        first = fragment.first_entry_id
        if fragment.is_final or fragment.last_entry_id > first:
            return fragment
        # Whether the first entry of an open fragment exists is not known from the last add confirmed. In a closed ledger it
        # is known, and an entry that everybody denies is lost there, not unwritten.
        codes: list[int] = []
        batch = ReadBatch(self._reads, ledger.codec)
        for position in QuorumSizes.of(ledger.metadata).write_set(first):
            bookie_id = fragment.ensemble[position]
            if self._core.watcher.is_available(bookie_id):
                await batch.read(first, bookie_id, lambda code, _: codes.append(code))
            else:
                codes.append(Code.BOOKIE_NOT_AVAILABLE)
        await batch.drained()
        return None if is_never_written(codes) else replace(fragment, last_entry_id=first)

    async def _check_fragment(
        self, ledger: OpenedLedger, fragment: LedgerFragment, *, thorough: bool
    ) -> FragmentReport:
        findings = FragmentFindings(fragment)
        is_asked = []
        for position, bookie_id in enumerate(fragment.ensemble):
            is_asked.append(self._core.watcher.is_available(bookie_id))
            if not is_asked[position]:
                findings.note_unavailable(position)
        sizes = QuorumSizes.of(ledger.metadata)
        batch = ReadBatch(self._reads, ledger.codec)
        copies = _all_copies(sizes, fragment, is_asked, findings) if thorough else self._some(sizes, fragment, is_asked)
        for position, entry_id in copies:
            await batch.read(entry_id, fragment.ensemble[position], partial(_note, findings, position, entry_id))
        await batch.drained()
        return findings.report()

    def _some(self, sizes: QuorumSizes, fragment: LedgerFragment, is_asked: list[bool]) -> Iterator[tuple[int, int]]:
        for position in range(sizes.ensemble_size):
            if is_asked[position]:
                first, last = fragment.first_entry_id, fragment.last_entry_id
                for entry_id in sampled(sizes, position, first, last, self._percentage, self._rng):
                    yield position, entry_id


def _all_copies(
    sizes: QuorumSizes, fragment: LedgerFragment, is_asked: list[bool], findings: FragmentFindings
) -> Iterator[tuple[int, int]]:
    """Entry by entry, so that few entries wait for the rest of their copies to be compared."""
    for entry_id in range(fragment.first_entry_id, fragment.last_entry_id + 1):
        positions = [position for position in sizes.write_set(entry_id) if is_asked[position]]
        findings.compare(entry_id, len(positions))
        for position in positions:
            yield position, entry_id


def _note(findings: FragmentFindings, position: int, entry_id: int, code: int, entry: Entry | None) -> None:
    findings.note(position, entry_id, code, entry)

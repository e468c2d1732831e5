"""Whether the ledgers of a log are what its manifest says, and have all their copies."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

from bkclient.errors import NoSuchLedger
from bkclient.ledger import LedgerMetadata
from bkclient.log.machine.manifest import LogLedger, LogManifest
from bkclient.log.store import ManifestStore
from bkclient.repair import LedgerReport, RepairAdmin

__all__ = ["LogLedgerReport", "check_ledgers"]


@dataclass(frozen=True, slots=True)
class LogLedgerReport:
    """What a check found about one ledger of a log.

    ``log`` is its name, or that of the partition. ``problems`` are sentences about the ledger as a whole: it is missing, was not
    closed, or ends elsewhere than the manifest says. ``copies`` is what was found about its copies, None where there is no ledger
    to look at.
    """

    log: str
    ledger_id: int
    is_open: bool
    problems: tuple[str, ...] = ()
    copies: LedgerReport | None = None

    @property
    def is_sound(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems and (self.copies is None or self.copies.is_sound)


async def check_ledgers(store: ManifestStore, admin: RepairAdmin, *, thorough: bool) -> AsyncIterator[LogLedgerReport]:
    """A report on each ledger of the log, in order; those that leave the log meanwhile are passed over."""
    manifest = await store.manifest()
    for ledger in manifest.ledgers:
        try:
            metadata = await store.client.ledger_metadata(ledger.ledger_id)
            copies = await admin.check_ledger(ledger.ledger_id, thorough=thorough)
        except NoSuchLedger:
            if (await store.manifest()).has(ledger.ledger_id):
                problem = "it is in the list of the log, and the metadata store does not know it"
                yield LogLedgerReport(store.name, ledger.ledger_id, ledger.end is None, (problem,))
            continue
        problems = tuple(_problems(ledger, metadata, store.name, manifest))
        is_open = ledger.end is None and not metadata.is_closed
        yield LogLedgerReport(store.name, ledger.ledger_id, is_open, problems, copies)
    compacted = await _check_compacted(store, manifest, admin, thorough=thorough)
    if compacted is not None:
        yield compacted


async def _check_compacted(
    store: ManifestStore, manifest: LogManifest, admin: RepairAdmin, *, thorough: bool
) -> LogLedgerReport | None:
    """The ledger that the last compaction made."""
    if manifest.compacted is None:
        return None
    ledger_id = manifest.compacted.ledger_id
    try:
        metadata = await store.client.ledger_metadata(ledger_id)
        copies = await admin.check_ledger(ledger_id, thorough=thorough)
    except NoSuchLedger:
        if (await store.manifest()).compacted != manifest.compacted:
            return None
        problem = "it is the compacted ledger of the log, and the metadata store does not know it"
        return LogLedgerReport(store.name, ledger_id, is_open=False, problems=(problem,))
    problems = () if metadata.is_closed else ("it is the compacted ledger of the log, and is not closed",)
    return LogLedgerReport(store.name, ledger_id, not metadata.is_closed, problems, copies)


def _problems(ledger: LogLedger, metadata: LedgerMetadata, name: str, manifest: LogManifest) -> list[str]:
    found = []
    end = ledger.end
    if end is not None and not metadata.is_closed:
        found.append("the log says that it has ended, and it is not closed")
    elif end is not None and metadata.last_entry_id != end.last_entry_id:
        found.append(f"it ends with entry {metadata.last_entry_id}, and the log says {end.last_entry_id}")
    if metadata.custom_metadata.get("log-id") != manifest.log_id.encode():
        found.append(f"it was not made for the log {name!r}")
    return found

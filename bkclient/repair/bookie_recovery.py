"""Repairing everything that named bookies store, now: the manual recovery of bookies (section 9.4 of the rules).

An open ledger whose last fragment lies on such a bookie is closed first, by an ordinary recovery: its writer has not
replaced the bookie himself and could change the ensemble at any moment. He learns it as fenced or closed. Writers
whose older fragments alone are repaired do not notice.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from dataclasses import dataclass, field

from bkclient._client.core import ClientCore
from bkclient._client.open import read_metadata
from bkclient.errors import BookKeeperError, ClientClosed, LedgerRecoveryFailed, NoSuchLedger, NotEnoughBookies
from bkclient.ledger import BookieId, LedgerMetadata, LedgerState, Versioned
from bkclient.metadata.tree import tree_of
from bkclient.repair.concurrency import for_each
from bkclient.repair.events import EventKind, OnRepairEvent, RepairEvent
from bkclient.repair.ledger import OpenedLedger, open_as_administrator, view_of
from bkclient.repair.replicator import FragmentReplicator

__all__ = ["BookieRecovery", "BookieRecoveryFailed", "BookieRecoveryReport"]

_NAMED_IN_ERRORS = 5


@dataclass(slots=True)
class BookieRecoveryReport:
    """What a recovery of bookies did. In a dry run nothing is copied, and ``affected`` is what would be."""

    ledgers_examined: int = 0
    #: The ledgers that name the bookies, in the order in which they were found.
    affected: list[int] = field(default_factory=list)
    closed: list[int] = field(default_factory=list)
    fragments_replaced: int = 0
    entries_copied: int = 0
    bytes_copied: int = 0
    skipped: dict[int, str] = field(default_factory=dict)
    failures: dict[int, BookKeeperError] = field(default_factory=dict)
    #: The bookies that no examined ledger names, and that are neither registered nor known by a cookie: misspelt, perhaps.
    unknown: list[BookieId] = field(default_factory=list)


class BookieRecoveryFailed(LedgerRecoveryFailed):
    """Some ledgers could not be repaired; ``report`` has them all, and what was done for the others."""

    def __init__(self, message: str, report: BookieRecoveryReport) -> None:
        super().__init__(message)
        self.report = report


class BookieRecovery:
    """One run over the ledgers of a cluster. See :meth:`bkclient.repair.admin.RepairAdmin.recover_bookie` for the options."""

    def __init__(
        self,
        core: ClientCore,
        replicator: FragmentReplicator,
        sources: Collection[BookieId],
        *,
        dry_run: bool,
        skip_open_ledgers: bool,
        skip_unrecoverable: bool,
        on_progress: OnRepairEvent,
    ) -> None:
        self.report = BookieRecoveryReport()
        self._core = core
        self._replicator = replicator
        self._sources = frozenset(sources)
        self._named: set[BookieId] = set()
        self._dry_run = dry_run
        self._skip_open_ledgers = skip_open_ledgers
        self._skip_unrecoverable = skip_unrecoverable
        self._tell = on_progress

    async def run(self, ledger_ids: AsyncIterator[int], concurrency: int) -> BookieRecoveryReport:
        """Repair all of them; :class:`BookieRecoveryFailed` at the end if some could not be."""
        await for_each(ledger_ids, concurrency, self._examine)
        report = self.report
        report.unknown = await self._unknown()
        if report.failures:
            named = "; ".join(str(error) for error in list(report.failures.values())[:_NAMED_IN_ERRORS])
            raise BookieRecoveryFailed(
                f"{len(report.failures)} of {len(report.affected)} ledgers could not be repaired: {named}", report
            ) from next(iter(report.failures.values()))
        return report

    async def _examine(self, ledger_id: int) -> None:
        try:
            value = await read_metadata(self._core, ledger_id)
            self.report.ledgers_examined += 1
            if not self._names_sources(value.metadata):
                self._tell(RepairEvent(EventKind.EXAMINED, ledger_id))
                return
            self.report.affected.append(ledger_id)
            if value.metadata.state is LedgerState.OPEN and self._skip_open_ledgers:
                self._skip(ledger_id, "it is open")
            elif self._dry_run:
                self._plan(value)
            else:
                await self._repair(value)
        except ClientClosed:
            raise
        except NoSuchLedger:
            self._tell(RepairEvent(EventKind.EXAMINED, ledger_id, detail="deleted meanwhile"))
        except BookKeeperError as error:
            self._fail(ledger_id, error)

    def _names_sources(self, metadata: LedgerMetadata) -> bool:
        named = {name for part in metadata.fragments for name in part.ensemble if name in self._sources}
        self._named |= named
        return bool(named)

    async def _unknown(self) -> list[BookieId]:
        """The bookies of which the cluster holds no trace."""
        traceless = self._sources - self._named
        if traceless:
            registered = await self._core.metadata.bookies()
            cookies = await tree_of(self._core.metadata).children("cookies")
            traceless -= {*registered.writable, *registered.read_only, *cookies}
        return sorted(traceless)

    def _must_be_closed(self, metadata: LedgerMetadata) -> bool:
        return not metadata.is_closed and not self._sources.isdisjoint(metadata.last_fragment.ensemble)

    def _plan(self, value: Versioned) -> None:
        if self._must_be_closed(value.metadata):
            self._tell(RepairEvent(EventKind.PLANNED, value.metadata.ledger_id, detail="close it"))
        for fragment in view_of(self._core, value).fragments:
            leaving = [fragment.ensemble[position] for position in fragment.positions_of(self._sources)]
            if leaving:
                detail = f"replace {', '.join(leaving)}"
                self._tell(RepairEvent(EventKind.PLANNED, fragment.ledger_id, detail, fragment.first_entry_id))

    async def _repair(self, value: Versioned) -> None:
        ledger_id = value.metadata.ledger_id
        ledger = view_of(self._core, value)
        if self._must_be_closed(value.metadata):
            try:
                ledger = await open_as_administrator(self._core, ledger_id, recover=True)
            except (ClientClosed, NoSuchLedger):
                raise
            except BookKeeperError as error:
                if not self._skip_unrecoverable:
                    raise
                self._skip(ledger_id, str(error))
                return
            self.report.closed.append(ledger_id)
            self._tell(RepairEvent(EventKind.CLOSED, ledger_id))
        failure: BookKeeperError | None = None
        for first_entry_id in [fragment.first_entry_id for fragment in ledger.fragments]:
            try:
                ledger = await self._repair_fragment(ledger, first_entry_id)
            except (ClientClosed, NoSuchLedger):
                raise
            except BookKeeperError as error:
                failure = failure or error  # the other fragments are repaired nevertheless
        if failure is not None:
            raise failure

    async def _repair_fragment(self, ledger: OpenedLedger, first_entry_id: int) -> OpenedLedger:
        """The ledger with the metadata that the repair left."""
        fragment = next(found for found in ledger.fragments if found.first_entry_id == first_entry_id)
        positions = fragment.positions_of(self._sources)
        if not positions or not fragment.is_final:
            return ledger

        def on_copied(size: int) -> None:
            self.report.entries_copied += 1
            self.report.bytes_copied += size
            self._tell(RepairEvent(EventKind.COPIED, ledger.ledger_id, first_entry_id=first_entry_id, size=size))

        done = await self._replicator.replicate(
            ledger, fragment, positions, excluded=self._sources, on_copied=on_copied
        )
        self.report.fragments_replaced += 1
        new = ", ".join(f"{fragment.ensemble[p]} by {bookie_id}" for p, bookie_id in sorted(done.replacements.items()))
        self._tell(RepairEvent(EventKind.REPLACED, ledger.ledger_id, new, first_entry_id))
        if done.unreplaced:
            left = ", ".join(fragment.ensemble[position] for position in done.unreplaced)
            raise NotEnoughBookies(
                f"no writable bookie can take the place of {left} in the fragment at entry {first_entry_id}",
                ledger_id=ledger.ledger_id,
            )
        return view_of(self._core, done.value)

    def _skip(self, ledger_id: int, reason: str) -> None:
        self.report.skipped[ledger_id] = reason
        self._tell(RepairEvent(EventKind.SKIPPED, ledger_id, detail=reason))

    def _fail(self, ledger_id: int, error: BookKeeperError) -> None:
        self.report.failures[ledger_id] = error
        self._tell(RepairEvent(EventKind.FAILED, ledger_id, detail=str(error)))

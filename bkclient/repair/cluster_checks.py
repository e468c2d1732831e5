"""The periodic checks of all ledgers, by an auditor: copies, placement, and what bookies list.

Each is one pass over the ledgers, a bounded number of them at a time, that marks what workers should look at and counts the
rest. A ledger that cannot be judged now is counted and passed over: one damaged ledger must not keep the others from being
checked.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from bkclient._client.core import ClientCore
from bkclient.errors import BookKeeperError, ClientClosed, MetadataStoreError, NoSuchLedger
from bkclient.ledger import LedgerMetadata
from bkclient.placement.base import Adherence
from bkclient.repair.checker import LedgerChecker
from bkclient.repair.concurrency import for_each
from bkclient.repair.config import RepairConfig
from bkclient.repair.events import EventKind, OnRepairEvent, RepairEvent
from bkclient.repair.fragments import fragments_of, shape_of
from bkclient.repair.ledger import open_or_view
from bkclient.repair.patience import until_enabled
from bkclient.repair.replicas import check_replicas
from bkclient.repair.underreplication.marks import UnderReplication

__all__ = ["ClusterChecks", "LedgerCheckReport", "PlacementCheckReport", "ReplicaCheckReport"]


@dataclass(slots=True)
class LedgerCheckReport:
    """How many ledgers were checked, which were marked, and which could not be judged."""

    ledgers: int = 0
    copies_checked: int = 0
    marked: list[int] = field(default_factory=list)
    failures: dict[int, BookKeeperError] = field(default_factory=dict)


@dataclass(slots=True)
class PlacementCheckReport:
    """Fragments of closed ledgers that break the policy or meet only its minimum, and marks older than the grace period."""

    ledgers: int = 0
    failing_fragments: int = 0
    soft_fragments: int = 0
    failing_ledgers: list[int] = field(default_factory=list)
    overdue_marks: int = 0


@dataclass(slots=True)
class ReplicaCheckReport:
    """Ledgers with an entry that has no copy, fewer than the ack quorum, fewer than the write quorum; each counts once."""

    ledgers: int = 0
    without_replica: list[int] = field(default_factory=list)
    below_ack_quorum: list[int] = field(default_factory=list)
    below_write_quorum: list[int] = field(default_factory=list)
    #: Ledgers of which some bookie did not tell what it has.
    uncertain: list[int] = field(default_factory=list)


class ClusterChecks:
    """The three checks. ``wall_clock_ms`` tells how old marks are."""

    def __init__(
        self,
        core: ClientCore,
        marks: UnderReplication,
        checker: LedgerChecker,
        config: RepairConfig,
        wall_clock_ms: Callable[[], int],
        tell: OnRepairEvent,
    ) -> None:
        self._core = core
        self._marks = marks
        self._checker = checker
        self._config = config
        self._wall_clock_ms = wall_clock_ms
        self._tell = tell

    async def check_ledgers(self) -> LedgerCheckReport:
        """Check all ledgers (9.2) and mark those that lack copies; if all entries are read anyway, compare their copies too."""
        report = LedgerCheckReport()
        thorough = self._config.verification_percentage == 100

        async def check(ledger_id: int) -> None:
            found = await self._checker.check(await open_or_view(self._core, ledger_id), thorough=thorough)
            report.ledgers += 1
            report.copies_checked += found.copies_checked
            if found.repairable:
                await self._mark(ledger_id, found.bad_bookies)
                report.marked.append(ledger_id)
            for fragment in found.fragments:
                if fragment.conflict_count:
                    detail = (
                        f"copies of {fragment.conflict_count} entries disagree, the first is {fragment.conflicts[0]}"
                    )
                    self._tell(RepairEvent(EventKind.CONFLICT, ledger_id, detail))

        await self._for_each(check, report.failures)
        return report

    async def check_placement(self) -> PlacementCheckReport:
        """Count fragments by how well they keep to the policy, and mark those that do not, if that is wanted."""
        report = PlacementCheckReport()
        policy = self._core.watcher.policy

        async def check(ledger_id: int) -> None:
            metadata = await self._closed(ledger_id)
            if metadata is None:
                return
            report.ledgers += 1
            levels = [policy.adherence(shape_of(metadata), f.ensemble) for f in fragments_of(metadata, -1)]
            report.soft_fragments += levels.count(Adherence.MEETS_SOFT)
            failing = levels.count(Adherence.FAIL)
            if failing:
                report.failing_fragments += failing
                report.failing_ledgers.append(ledger_id)
                if self._config.mark_non_adherent_ledgers:
                    await self._mark(ledger_id, ())

        await self._for_each(check, {})
        if self._config.under_replicated_grace_s:
            oldest_ms = self._wall_clock_ms() - round(1000 * self._config.under_replicated_grace_s)
            async for mark in self._marks.marks():
                report.overdue_marks += mark.marked_ms is not None and mark.marked_ms < oldest_ms
        return report

    async def check_replicas(self) -> ReplicaCheckReport:
        """Compare what bookies list with what they should store."""
        report = ReplicaCheckReport()

        async def check(ledger_id: int) -> None:
            metadata = await self._closed(ledger_id)
            if metadata is None or metadata.last_entry_id < 0:
                return
            found = await check_replicas(self._core, metadata)
            report.ledgers += 1
            if found.silent:
                report.uncertain.append(ledger_id)
            if found.without_replica.count:
                report.without_replica.append(ledger_id)
            elif found.below_ack_quorum.count:
                report.below_ack_quorum.append(ledger_id)
            elif found.below_write_quorum.count:
                report.below_write_quorum.append(ledger_id)

        await self._for_each(check, {})
        return report

    async def _closed(self, ledger_id: int) -> LedgerMetadata | None:
        metadata = (await self._core.metadata.read_ledger(ledger_id)).metadata
        return metadata if metadata.is_closed else None

    async def _mark(self, ledger_id: int, missing: tuple[str, ...]) -> None:
        await until_enabled(self._marks)
        if await self._marks.mark(ledger_id, missing):
            self._tell(RepairEvent(EventKind.MARKED, ledger_id, ", ".join(missing)))

    async def _for_each(self, check: Callable[[int], Awaitable[None]], failures: dict[int, BookKeeperError]) -> None:
        async def tolerant(ledger_id: int) -> None:
            try:
                await until_enabled(self._marks)
                await check(ledger_id)
            except (ClientClosed, MetadataStoreError):
                raise
            except NoSuchLedger:
                return
            except BookKeeperError as error:
                failures[ledger_id] = error
                self._tell(RepairEvent(EventKind.FAILED, ledger_id, str(error)))

        config = self._config
        await for_each(
            self._core.metadata.list_ledgers(),
            config.max_concurrent_ledger_checks,
            tolerant,
            wait_s=config.ledger_check_wait_s,
        )

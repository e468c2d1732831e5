"""The auditor: the one program of a cluster that notices what is missing, and marks it.

Every candidate waits to be elected. The elected one audits when bookies are lost (:mod:`bkclient.repair.lost_bookies`
decides when) and runs the periodic checks; while a delayed audit is pending no check begins. Everything pauses while
auto-recovery is switched off. The times of the checks are kept in the metadata service, so that a new auditor goes on where
the old one stopped.

Two auditors at once, which a lost session may cause for a while, do no harm: marks merge.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import anyio

from bkclient._client.core import ClientCore
from bkclient._news import wait_for_news
from bkclient.errors import MetadataStoreError
from bkclient.metadata.base import BookieSets
from bkclient.repair.audit import audit_bookies
from bkclient.repair.checker import LedgerChecker
from bkclient.repair.cluster_checks import ClusterChecks
from bkclient.repair.concurrency import first_of
from bkclient.repair.config import RepairConfig
from bkclient.repair.events import EventKind, OnRepairEvent, RepairEvent
from bkclient.repair.lost_bookies import LostBookies
from bkclient.repair.patience import FailureCount, farewell, until_enabled
from bkclient.repair.underreplication.election import AuditorElection
from bkclient.repair.underreplication.marks import CheckKind, UnderReplication

__all__ = ["Auditor"]

_LOOK_S = 60.0
"""How often an auditor looks around although nothing told it to."""


class Auditor:
    """One candidate and, once elected, the auditor. :meth:`run` it in a task of its own."""

    def __init__(
        self,
        core: ClientCore,
        marks: UnderReplication,
        election: AuditorElection,
        checker: LedgerChecker,
        config: RepairConfig,
        wall_clock_ms: Callable[[], int],
        tell: OnRepairEvent,
    ) -> None:
        self._core = core
        self._marks = marks
        self._election = election
        self._config = config
        self._wall_clock_ms = wall_clock_ms
        self._tell = tell
        self._checks = ClusterChecks(core, marks, checker, config, wall_clock_ms, tell)

    async def run(self) -> None:
        """Stand for election and audit whenever elected, until cancelled; then another is elected, if the service answers soon.

        Raises :class:`~bkclient.errors.MetadataStoreError` once the service has failed too often in a row, and
        :class:`~bkclient.errors.ClientClosed`.
        """
        failures = FailureCount(self._config.max_metadata_failures)
        try:
            while True:
                try:
                    await self._election.until_elected()
                    self._tell(RepairEvent(EventKind.ELECTED))
                    await self._serve(failures)
                    self._tell(RepairEvent(EventKind.DEPOSED))
                except MetadataStoreError as error:
                    self._tell(RepairEvent(EventKind.FAILED, detail=str(error)))
                    await failures.failed(error)
        finally:
            await farewell(self._election.resign, self._tell)

    async def _serve(self, failures: FailureCount) -> None:
        """Be the auditor until deposed."""
        try:
            async with anyio.create_task_group() as tasks:
                term = _Term(self._core, self._marks, self._config, self._checks, self._wall_clock_ms, self._tell)
                tasks.start_soon(term.run, failures)
                await self._election.until_deposed()
                tasks.cancel_scope.cancel()
        except BaseExceptionGroup as group:
            first = first_of(group)
            raise first from first.__cause__  # its own, not the group


class _Term:
    """One term of office: what is known of the bookies, and when the next check of each kind is due."""

    def __init__(
        self,
        core: ClientCore,
        marks: UnderReplication,
        config: RepairConfig,
        checks: ClusterChecks,
        wall_clock_ms: Callable[[], int],
        tell: OnRepairEvent,
    ) -> None:
        self._core = core
        self._marks = marks
        self._config = config
        self._checks = checks
        self._wall_clock_ms = wall_clock_ms
        self._tell = tell
        self._lost: LostBookies
        self._news = asyncio.Event()
        self._audit_ended = asyncio.Event()
        self._bookies: BookieSets | None = None
        self._delay_version = -1

    async def run(self, failures: FailureCount) -> None:
        marks = self._marks
        await marks.open()
        await marks.set_lost_bookie_recovery_delay_s(self._config.lost_bookie_recovery_delay_s, only_first=True)
        self._delay_version = await marks.lost_bookie_recovery_delay_version()
        self._lost = LostBookies(
            _all(await self._core.metadata.bookies()), await marks.lost_bookie_recovery_delay_s() or 0
        )
        failures.succeeded()
        cancels = [
            self._core.metadata.watch_bookies(self._on_bookies),
            marks.watch_lost_bookie_recovery_delay(self._news.set),
        ]
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._audit_for_ever, failures)
                for due_s, interval_s, check in await self._schedule():
                    tasks.start_soon(self._check_for_ever, due_s, interval_s, check, failures)
        except BaseExceptionGroup as group:
            first = first_of(group)
            raise first from first.__cause__  # its own, not the group
        finally:
            for cancel in cancels:
                cancel()

    # Audits ------------------------------------------------------------------------------------------------------

    def _on_bookies(self, bookies: BookieSets) -> None:
        self._lost.on_bookies(_all(bookies), _now())
        self._news.set()

    async def _audit_for_ever(self, failures: FailureCount) -> None:
        while True:
            self._news.clear()
            has_begun = False
            try:
                await self._read_delay()
                due = self._lost.audit_at
                if due is not None and due <= _now():
                    await until_enabled(self._marks)
                    has_begun = True
                    self._lost.audited()
                    await self._audit()
                    failures.succeeded()
                    continue
            except MetadataStoreError as error:
                self._tell(RepairEvent(EventKind.FAILED, detail=str(error)))
                if has_begun:
                    self._lost.repeat(_now())
                await failures.failed(error)
                continue
            await wait_for_news(self._news, _LOOK_S if due is None else due - _now())

    async def _read_delay(self) -> None:
        version = await self._marks.lost_bookie_recovery_delay_version()
        if version != self._delay_version:
            self._delay_version = version
            self._lost.on_delay(await self._marks.lost_bookie_recovery_delay_s() or 0, _now())

    async def _audit(self) -> None:
        def on_marked(ledger_id: int, missing: tuple[str, ...]) -> None:
            self._tell(RepairEvent(EventKind.MARKED, ledger_id, ", ".join(missing)))

        report = await audit_bookies(self._core.metadata, self._marks, on_marked)
        for ledger_id, error in report.unreadable.items():
            self._tell(RepairEvent(EventKind.FAILED, ledger_id, str(error)))
        if not report.is_complete:
            self._lost.repeat(_now())
        gone = ", ".join(sorted(report.missing)) or "no bookie"
        detail = f"{report.ledgers} ledgers, {len(report.marked)} of them marked: {gone} is gone"
        self._tell(RepairEvent(EventKind.AUDITED, detail=detail))
        self._audit_ended.set()
        self._audit_ended.clear()

    # Periodic checks ---------------------------------------------------------------------------------------------

    async def _schedule(self) -> list[tuple[float, float, Callable[[], Awaitable[None]]]]:
        """``(first in, then every, what)`` for each check that is switched on, in seconds."""
        config = self._config
        found: list[tuple[float, float, Callable[[], Awaitable[None]]]] = []
        if config.bookie_check_interval_s:
            found.append((0.0, config.bookie_check_interval_s, self._audit))  # also once at the start
        for kind, interval_s, check in (
            (CheckKind.LEDGERS, config.ledger_check_interval_s, self._check_ledgers),
            (CheckKind.PLACEMENT, config.placement_check_interval_s, self._check_placement),
            (CheckKind.REPLICAS, config.replica_check_interval_s, self._check_replicas),
        ):
            if interval_s:
                last_ms = await self._marks.checked_ms(kind)
                passed_s = interval_s if last_ms is None else (self._wall_clock_ms() - last_ms) / 1000
                # A clock that went back must not put a check off for longer than its interval.
                found.append((min(interval_s, max(0.0, interval_s - passed_s)), interval_s, check))
        return found

    async def _check_for_ever(
        self, due_s: float, interval_s: float, check: Callable[[], Awaitable[None]], failures: FailureCount
    ) -> None:
        while True:
            await anyio.sleep(due_s)
            try:
                await until_enabled(self._marks)
                while self._lost.is_waiting:
                    await wait_for_news(self._audit_ended, _LOOK_S)
                await check()
                failures.succeeded()
                due_s = interval_s
            except MetadataStoreError as error:
                self._tell(RepairEvent(EventKind.FAILED, detail=str(error)))
                await failures.failed(error)
                due_s = 0.0
            except TimeoutError:
                detail = f"a check was given up: no ledger was done with in {self._config.ledger_check_wait_s:g} s"
                self._tell(RepairEvent(EventKind.FAILED, detail=detail))
                due_s = interval_s

    async def _check_ledgers(self) -> None:
        report = await self._checks.check_ledgers()
        await self._checked(
            CheckKind.LEDGERS,
            f"copies of {report.ledgers} ledgers: {len(report.marked)} marked, {len(report.failures)} not judged",
        )

    async def _check_placement(self) -> None:
        report = await self._checks.check_placement()
        await self._checked(
            CheckKind.PLACEMENT,
            f"placement of {report.ledgers} ledgers: {report.failing_fragments} fragments break the policy, "
            f"{report.soft_fragments} meet its minimum, {report.overdue_marks} marks are overdue",
        )

    async def _check_replicas(self) -> None:
        report = await self._checks.check_replicas()
        await self._checked(
            CheckKind.REPLICAS,
            f"lists of {report.ledgers} ledgers: {len(report.without_replica)} lack all copies of an entry, "
            f"{len(report.below_ack_quorum)} an ack quorum, {len(report.below_write_quorum)} a write quorum",
        )

    async def _checked(self, kind: CheckKind, detail: str) -> None:
        await self._marks.set_checked_ms(kind, self._wall_clock_ms())
        self._tell(RepairEvent(EventKind.CHECKED, detail=detail))


def _now() -> float:
    return asyncio.get_running_loop().time()


def _all(bookies: BookieSets) -> tuple[str, ...]:
    return (*bookies.writable, *bookies.read_only)

"""What an administrator asks for: checks, repairs, and the retirement of bookies."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Iterable
from contextlib import nullcontext
from random import Random
from typing import Final

import anyio

from bkclient._client.arguments import (
    check_callable,
    check_count,
    check_duration,
    check_flag,
    check_ledger_id,
    checked_settings,
)
from bkclient._client.client import BookKeeper
from bkclient._client.core import ClientCore
from bkclient._client.open import read_metadata
from bkclient.errors import ArgumentError, BookKeeperError, ClientClosed, IllegalOperation, NoSuchLedger
from bkclient.ledger import BookieId, LedgerMetadata
from bkclient.metadata.paths import check_bookie_id
from bkclient.metadata.tree import tree_of
from bkclient.repair.bookie_recovery import BookieRecovery, BookieRecoveryReport
from bkclient.repair.checker import LedgerChecker
from bkclient.repair.config import RepairConfig
from bkclient.repair.events import EventKind, OnRepairEvent, RepairEvent, no_event
from bkclient.repair.findings import LedgerReport
from bkclient.repair.fragments import stores_entries
from bkclient.repair.ledger import open_as_administrator, open_or_view
from bkclient.repair.replicas import ReplicaReport, check_replicas, entries_on
from bkclient.repair.replicator import FragmentReplicator, ReplicatedFragment
from bkclient.repair.restoring import RestoredCopies, restore_copies
from bkclient.repair.underreplication.election import AuditorElection
from bkclient.repair.underreplication.marks import UnderReplication
from bkclient.wire.availability import EntryAvailability

__all__ = ["BookieRegistered", "RepairAdmin", "core_of"]

#: A look at all ledgers costs a read of each, so there is a least time between two.
_SHORTEST_POLL_S: Final = 0.001
_LONGEST_POLL_S: Final = 86_400.0
_LONGEST_DECOMMISSION_S: Final = 365 * 86_400.0


def core_of(client: BookKeeper) -> ClientCore:
    """The seams of an entered client; :class:`~bkclient.errors.ClientClosed` after it was left."""
    return client._open_core()  # noqa: SLF001 - repairs are part of the client, in a package of their own


class BookieRegistered(IllegalOperation):
    """A bookie that should be gone is registered."""

    advice = "Stop the bookie, wait until its registration has gone, and call again."


class RepairAdmin:
    """Administration of a cluster through ``client``, which has to be entered and stays the caller's.

    Ledgers are opened without a password: theirs is in the metadata. ``config`` decides how ledgers are
    checked and copied; ``rng`` draws samples of entries. Methods raise :class:`~bkclient.errors.ArgumentError` for wrong
    arguments before anything is looked at or sent, and :class:`~bkclient.errors.ClientClosed` once the client is
    closed. Each may be cancelled at any time, and repeated: a repair that was given up has named no bookie in the
    metadata that lacks entries.
    """

    def __init__(self, client: BookKeeper, config: RepairConfig | None = None, *, rng: Random | None = None) -> None:
        self._client = client
        self._config = checked_settings(RepairConfig, config, "of() and from_properties() make one")
        core = core_of(client)
        self._checker = LedgerChecker(
            core,
            max_reads=self._config.max_checker_reads_in_flight,
            percentage=self._config.verification_percentage,
            rng=rng or core.rng,
        )
        self._replicator = FragmentReplicator(core, self._config)

    def __repr__(self) -> str:
        return f"<RepairAdmin of {self._client!r}>"

    # Looking -----------------------------------------------------------------------------------------------------

    async def check_ledger(self, ledger_id: int, *, thorough: bool = False) -> LedgerReport:
        """What is wrong with a ledger; ``thorough`` reads and compares every copy of every entry.

        An open ledger is judged as far as its bookies, or else its metadata, tell it to be confirmed.
        :class:`~bkclient.errors.NoSuchLedger` for an unknown id.
        """
        check_ledger_id(ledger_id)
        check_flag("thorough", thorough)
        return await self._checker.check(await open_or_view(self._core(), ledger_id), thorough=thorough)

    async def ledgers_on(self, bookie_id: BookieId) -> AsyncIterator[int]:
        """The ledgers that need the bookie for entries they have or, while open, may get."""
        check_bookie_id(bookie_id)
        core = self._core()
        async for ledger_id in core.metadata.list_ledgers():
            try:
                value = await core.metadata.read_ledger(ledger_id)
            except NoSuchLedger:
                continue
            if stores_entries(value.metadata, bookie_id):
                yield ledger_id

    async def entries_on(self, bookie_id: BookieId, ledger_id: int) -> EntryAvailability:
        """The entries of a ledger that the bookie says it stores; see :func:`bkclient.repair.replicas.entries_on`."""
        check_bookie_id(bookie_id)
        check_ledger_id(ledger_id, may_be_negative=False)
        return await entries_on(self._core(), ledger_id, bookie_id)

    async def check_replicas(self, ledger_id: int) -> ReplicaReport:
        """Which entries of a closed ledger have too few copies by what bookies list."""
        check_ledger_id(ledger_id)
        core = self._core()
        return await check_replicas(core, (await read_metadata(core, ledger_id)).metadata)

    # Repairing ---------------------------------------------------------------------------------------------------

    async def repair_ledger(
        self, ledger_id: int, *, thorough: bool = False, on_progress: OnRepairEvent = no_event
    ) -> LedgerReport:
        """Check a ledger, give its bad positions new bookies, and check it again; the report is that of the second check.

        Fragments that are still written to are left alone. A fragment that cannot be repaired is told as a step and keeps its
        place in the report.
        """
        check_ledger_id(ledger_id)
        check_flag("thorough", thorough)
        check_callable("on_progress", on_progress)
        ledger = await open_or_view(self._core(), ledger_id)
        report = await self._checker.check(ledger, thorough=thorough)
        for found in report.repairable:
            fragment = found.fragment
            if not fragment.is_final:
                on_progress(
                    RepairEvent(EventKind.SKIPPED, ledger_id, "it may still be written to", fragment.first_entry_id)
                )
                continue
            try:
                done: ReplicatedFragment = await self._replicator.replicate(ledger, fragment, found.bad_positions)
            except (ClientClosed, NoSuchLedger):
                raise
            except BookKeeperError as error:
                on_progress(RepairEvent(EventKind.FAILED, ledger_id, str(error), fragment.first_entry_id))
            else:
                new = ", ".join(bookie_id for _, bookie_id in sorted(done.replacements.items()))
                on_progress(RepairEvent(EventKind.REPLACED, ledger_id, new, fragment.first_entry_id, done.bytes_copied))
        if report.repairable:
            report = await self.check_ledger(ledger_id, thorough=thorough)
        return report

    async def close_ledger(self, ledger_id: int) -> LedgerMetadata:
        """Fence, recover and close a ledger unless it is closed; returns its metadata then.

        Raises as :meth:`bkclient.BookKeeper.open_ledger` does, :class:`~bkclient.errors.UnauthorizedAccess` excepted.
        """
        check_ledger_id(ledger_id)
        return (await open_as_administrator(self._core(), ledger_id, recover=True)).metadata

    async def restore_copies(
        self, bookie_id: BookieId, ledger_id: int, *, has_entry: Callable[[int], bool] = lambda _: False
    ) -> RestoredCopies:
        """Give a bookie back the entries of a ledger that it should have by the metadata and that ``has_entry`` denies.

        They come from the other bookies, and the metadata stays as it is; entries of a fragment that may still be written to are
        left alone. :class:`~bkclient.repair.replicator.UnreadableEntry` if no other bookie gives one of them,
        :class:`~bkclient.errors.ReplicationFailed` if the bookie does not take it.
        """
        check_bookie_id(bookie_id)
        check_ledger_id(ledger_id)
        check_callable("has_entry", has_entry)
        return await restore_copies(self._core(), self._replicator, ledger_id, bookie_id, has_entry)

    async def recover_bookie(
        self,
        bookie_ids: Collection[BookieId],
        *,
        ledger_ids: Iterable[int] | None = None,
        dry_run: bool = False,
        skip_open_ledgers: bool = False,
        skip_unrecoverable: bool = False,
        concurrency: int = 4,
        on_progress: OnRepairEvent = no_event,
    ) -> BookieRecoveryReport:
        """Copy what ``bookie_ids`` store to other bookies and name those in the metadata, of all ledgers or of ``ledger_ids``.

        Open ledgers whose last fragment lies on one of the bookies are fenced and closed first, and their writers fail;
        with ``skip_open_ledgers`` no open ledger is touched. A ``dry_run`` only tells. The other bookies must not be asked to
        store more than they can; the bookies themselves may be alive or dead.

        Every ledger is tried. :class:`~bkclient.repair.bookie_recovery.BookieRecoveryFailed` at the end if some could not be
        repaired; with ``skip_unrecoverable`` those that could not be opened are not counted. Repeating it repairs what is left.
        """
        sources = _checked_bookie_ids(bookie_ids)
        only = None if ledger_ids is None else _checked_ledger_ids(ledger_ids)
        for name, flag in (
            ("dry_run", dry_run),
            ("skip_open_ledgers", skip_open_ledgers),
            ("skip_unrecoverable", skip_unrecoverable),
        ):
            check_flag(name, flag)
        check_count("concurrency", concurrency)
        check_callable("on_progress", on_progress)
        recovery = BookieRecovery(
            self._core(),
            self._replicator,
            sources,
            dry_run=dry_run,
            skip_open_ledgers=skip_open_ledgers,
            skip_unrecoverable=skip_unrecoverable,
            on_progress=on_progress,
        )
        chosen = self._core().metadata.list_ledgers() if only is None else _each(only)
        return await recovery.run(chosen, concurrency)

    async def decommission(
        self,
        bookie_id: BookieId,
        *,
        poll_s: float = 30.0,
        timeout_s: float | None = None,
        on_progress: OnRepairEvent = no_event,
    ) -> None:
        """Wait until no ledger needs a bookie that was shut down; auto-recovery does the work, after an audit (9.7).

        :class:`BookieRegistered` while the bookie is registered, also if it comes back meanwhile.
        :class:`TimeoutError` after ``timeout_s``; what was repaired by then stays repaired. The bookie's cookie is not removed.
        """
        check_bookie_id(bookie_id)
        check_duration("poll_s", poll_s, _LONGEST_POLL_S, _SHORTEST_POLL_S)
        if timeout_s is not None:
            check_duration("timeout_s", timeout_s, _LONGEST_DECOMMISSION_S)
        check_callable("on_progress", on_progress)
        with nullcontext() if timeout_s is None else anyio.fail_after(timeout_s):
            await self._check_gone(bookie_id)
            await self.trigger_audit()
            while True:
                remaining = [ledger_id async for ledger_id in self.ledgers_on(bookie_id)]
                await self._check_gone(bookie_id)
                if not remaining:
                    return
                detail = f"{len(remaining)} ledgers are left on {bookie_id}"
                on_progress(RepairEvent(EventKind.WAITING, remaining[0], detail=detail))
                await anyio.sleep(poll_s)

    async def _check_gone(self, bookie_id: BookieId) -> None:
        registered = await self._core().metadata.bookies()
        if bookie_id in (*registered.writable, *registered.read_only):
            raise BookieRegistered(
                "the bookie is registered, so it may be running; shut it down first", bookie_id=bookie_id
            )

    # Auto-recovery -----------------------------------------------------------------------------------------------

    def under_replication(
        self, *, name: str = "admin", wall_clock_ms: Callable[[], int] | None = None
    ) -> UnderReplication:
        """The marks and switches of auto-recovery; ``wall_clock_ms`` is needed for marking ledgers only."""
        _check_name(name)
        if wall_clock_ms is not None:
            check_callable("wall_clock_ms", wall_clock_ms)
        core = self._core()
        return UnderReplication(
            tree_of(core.metadata), name=name, wall_clock_ms=wall_clock_ms or _no_clock, rng=core.rng
        )

    async def trigger_audit(self) -> None:
        """Have the auditor audit at once, by setting the delay of audits to what it is."""
        marks = self.under_replication()
        await marks.set_lost_bookie_recovery_delay_s(await marks.lost_bookie_recovery_delay_s() or 0)

    async def auditor(self) -> str | None:
        """The auditor of the cluster, None if there is none."""
        return await AuditorElection(tree_of(self._core().metadata), "admin").auditor()

    def _core(self) -> ClientCore:
        return core_of(self._client)


def _check_name(name: object) -> None:
    if not isinstance(name, str) or not name:
        raise ArgumentError(f"name must be a non-empty str, got {name!r}")


def _checked_bookie_ids(bookie_ids: object) -> tuple[BookieId, ...]:
    if isinstance(bookie_ids, str | bytes) or not isinstance(bookie_ids, Collection) or not bookie_ids:
        raise ArgumentError(f"bookie_ids must be a collection of at least one bookie id, got {bookie_ids!r}")
    return tuple(check_bookie_id(bookie_id) for bookie_id in bookie_ids)


def _checked_ledger_ids(ledger_ids: object) -> tuple[int, ...]:
    if isinstance(ledger_ids, str | bytes) or not isinstance(ledger_ids, Iterable):
        raise ArgumentError(f"ledger_ids must be an iterable of ledger ids, got {ledger_ids!r}")
    chosen = tuple(ledger_ids)
    for ledger_id in chosen:
        check_ledger_id(ledger_id)
    return chosen


async def _each(ledger_ids: Iterable[int]) -> AsyncIterator[int]:
    for ledger_id in ledger_ids:
        yield ledger_id


def _no_clock() -> int:
    raise ArgumentError("marking a ledger needs a wall_clock_ms")

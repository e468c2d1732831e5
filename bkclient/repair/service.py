"""Auto-recovery as a whole: an auditor, a worker, or both, around one client.

Programs of this kind, and Apache BookKeeper's own, may share a cluster in any number: the auditors elect one of themselves, and
the workers share the marked ledgers by locks.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import anyio

from bkclient._client.client import BookKeeper
from bkclient._client.connect import connect
from bkclient.config import ClientConfig
from bkclient.errors import MetadataStoreError
from bkclient.metadata.tree import tree_of
from bkclient.repair.admin import core_of
from bkclient.repair.auditor import Auditor
from bkclient.repair.checker import LedgerChecker
from bkclient.repair.concurrency import first_of
from bkclient.repair.config import RepairConfig
from bkclient.repair.events import EventKind, OnRepairEvent, RepairEvent, logged, no_event
from bkclient.repair.patience import FailureCount
from bkclient.repair.replicator import FragmentReplicator
from bkclient.repair.underreplication.election import AuditorElection
from bkclient.repair.underreplication.marks import UnderReplication
from bkclient.repair.worker import ReplicationWorker

__all__ = ["AutoRecovery", "RepairEvent", "run_auto_recovery"]


class AutoRecovery:
    """Auto-recovery by an entered ``client``, which stays the caller's.

    ``name`` is what locks and candidacies say about this program, a host name as a rule. ``wall_clock_ms`` tells
    milliseconds since 1970, for the records that other programs read. ``rng`` draws samples of entries and the order in
    which marks are tried.
    """

    def __init__(
        self,
        client: BookKeeper,
        config: RepairConfig | None = None,
        *,
        name: str,
        wall_clock_ms: Callable[[], int],
        rng: Random | None = None,
        with_auditor: bool = True,
        with_worker: bool = True,
        on_event: OnRepairEvent = no_event,
    ) -> None:
        config = config or RepairConfig()
        on_event = logged(on_event)
        core = core_of(client)
        rng = rng or core.rng
        tree = tree_of(core.metadata)
        checker = LedgerChecker(
            core, max_reads=config.max_checker_reads_in_flight, percentage=config.verification_percentage, rng=rng
        )
        self._max_metadata_failures = config.max_metadata_failures
        self._marks = UnderReplication(tree, name=name, wall_clock_ms=wall_clock_ms, rng=rng)
        self._election = AuditorElection(tree, name)
        self._worker: ReplicationWorker | None = None
        self._auditor: Auditor | None = None
        if with_worker:
            replicator = FragmentReplicator(core, config)
            self._worker = ReplicationWorker(core, self._marks, checker, replicator, config, on_event)
        if with_auditor:
            tell = on_event if self._worker is None else _waking(self._worker, on_event)
            self._auditor = Auditor(core, self._marks, self._election, checker, config, wall_clock_ms, tell)

    async def run(self) -> None:
        """Work until cancelled; may be run again afterwards. What it locked is unlocked then, and another auditor elected.

        Raises :class:`~bkclient.errors.MetadataStoreError` once the metadata service has failed too often in a row, and
        :class:`~bkclient.errors.MetadataSerializationError` if the cluster lays out its marks in an unknown way.
        """
        failures = FailureCount(self._max_metadata_failures)
        while True:
            try:
                await self._marks.open()
                break
            except MetadataStoreError as error:
                await failures.failed(error)
        try:
            async with anyio.create_task_group() as tasks:
                if self._worker is not None:
                    tasks.start_soon(self._worker.run, name="replication worker")
                if self._auditor is not None:
                    tasks.start_soon(self._auditor.run, name="auditor")
        except BaseExceptionGroup as group:
            first = first_of(group)
            raise first from first.__cause__  # its own, not the group


def _waking(worker: ReplicationWorker, on_event: OnRepairEvent) -> OnRepairEvent:
    """Let the worker beside an auditor begin at once with what that one marks."""

    def tell(event: RepairEvent) -> None:
        on_event(event)
        if event.kind is EventKind.MARKED:
            worker.wake()

    return tell


async def run_auto_recovery(
    uri: str,
    *,
    config: RepairConfig | None = None,
    client_config: ClientConfig | None = None,
    name: str,
    wall_clock_ms: Callable[[], int],
    rng: Random | None = None,
    with_auditor: bool = True,
    with_worker: bool = True,
    on_event: OnRepairEvent = no_event,
) -> None:
    """Auto-recovery for the cluster at ``uri``, with a client of its own, until cancelled; see :class:`AutoRecovery`.

    Raises as that and as :func:`bkclient.connect` do. Ending it unlocks its ledgers and lets another auditor be elected.
    """
    async with connect(uri, config=client_config, rng=rng) as client:
        recovery = AutoRecovery(
            client,
            config,
            name=name,
            wall_clock_ms=wall_clock_ms,
            rng=rng,
            with_auditor=with_auditor,
            with_worker=with_worker,
            on_event=on_event,
        )
        await recovery.run()

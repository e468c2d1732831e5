"""Records metadata operations when they take effect."""

from __future__ import annotations

from collections.abc import AsyncIterator

from bkclient.errors import BookKeeperError, MetadataOutcomeUnknown, MetadataVersionConflict, NoSuchLedger
from bkclient.ledger import BookieId, LedgerMetadata, Versioned
from bkclient.metadata.base import BookieAddress, BookieListener, BookieSets, Cancel, LedgerListener, MetadataStore
from bkclient.metadata.tree import NodeTree, tree_of
from scenarios.history import Kind
from scenarios.recording.recorders import Recorder, metadata_fields
from scenarios.recording.tree import RecordedTree, log_of
from simbookie.world.hosts import Host, World
from simbookie.world.metadata import SimulatedMetadataStore

__all__ = ["AppliedStore", "LearnedStore", "record_cas", "recorded_store"]


def record_cas(
    recorder: Recorder,
    actor: str,
    metadata: LedgerMetadata,
    cause: str,
    outcome: str,
    *,
    expected_version: int,
    version: int = -1,
) -> None:
    """Record META_CAS."""
    recorder.record(
        Kind.META_CAS,
        actor,
        metadata.ledger_id,
        cause=cause,
        outcome=outcome,
        expected_version=expected_version,
        **metadata_fields(metadata, version),
    )


class _Forwarding:
    """A store that forwards every call."""

    def __init__(self, inner: MetadataStore, recorder: Recorder, actor: str) -> None:
        self._inner = inner
        self._recorder = recorder
        self._actor = actor

    async def bookies(self) -> BookieSets:
        """Forwarded."""
        return await self._inner.bookies()

    def watch_bookies(self, listener: BookieListener) -> Cancel:
        """Forwarded."""
        return self._inner.watch_bookies(listener)

    async def bookie_address(self, bookie_id: BookieId) -> BookieAddress:
        """Forwarded."""
        return await self._inner.bookie_address(bookie_id)

    async def register_bookie(self, bookie_id: BookieId, address: BookieAddress, *, read_only: bool = False) -> None:
        """Forwarded."""
        await self._inner.register_bookie(bookie_id, address, read_only=read_only)

    async def unregister_bookie(self, bookie_id: BookieId) -> None:
        """Forwarded."""
        await self._inner.unregister_bookie(bookie_id)

    async def generate_ledger_id(self) -> int:
        """Forwarded."""
        return await self._inner.generate_ledger_id()

    async def create_ledger(self, metadata: LedgerMetadata) -> Versioned:
        """Forwarded."""
        return await self._inner.create_ledger(metadata)

    async def read_ledger(self, ledger_id: int) -> Versioned:
        """Forwarded."""
        return await self._inner.read_ledger(ledger_id)

    async def write_ledger(self, metadata: LedgerMetadata, expected_version: int) -> Versioned:
        """Forwarded."""
        return await self._inner.write_ledger(metadata, expected_version)

    async def delete_ledger(self, ledger_id: int) -> None:
        """Forwarded."""
        await self._inner.delete_ledger(ledger_id)

    def list_ledgers(self) -> AsyncIterator[int]:
        """Forwarded."""
        return self._inner.list_ledgers()

    def watch_ledger(self, ledger_id: int, listener: LedgerListener) -> Cancel:
        """Forwarded."""
        return self._inner.watch_ledger(ledger_id, listener)

    def node_tree(self) -> NodeTree:
        """Forwarded."""
        return tree_of(self._inner)

    async def aclose(self) -> None:
        """Forwarded."""
        await self._inner.aclose()

    def _record_cas(
        self, metadata: LedgerMetadata, cause: str, outcome: str, *, expected_version: int, version: int = -1
    ) -> None:
        record_cas(
            self._recorder, self._actor, metadata, cause, outcome, expected_version=expected_version, version=version
        )


class AppliedStore(_Forwarding):
    """Records at the service, below all delays and faults, when an operation is applied or refused.

    The order of successful META_CAS events is therefore the order in which the metadata changed, regardless of when clients get
    the answers. ``cause`` replaces the one that :class:`~scenarios.recording.causes.MetadataCauses` tells, for writers that are
    not clients.
    """

    def __init__(self, inner: MetadataStore, recorder: Recorder, actor: str, cause: str | None = None) -> None:
        super().__init__(inner, recorder, actor)
        self._cause = cause
        self._tree: RecordedTree | None = None

    def node_tree(self) -> RecordedTree:
        """The service's nodes; records what becomes of logs and cursors."""
        if self._tree is None:
            self._tree = RecordedTree(super().node_tree(), self._recorder, self._actor)
        return self._tree

    async def aclose(self) -> None:
        """Forwarded; consumers of groups are gone with the session."""
        await super().aclose()
        if self._tree is not None:
            self._tree.session_ended()

    async def create_ledger(self, metadata: LedgerMetadata) -> Versioned:
        """Record META_CAS, cause create; META_READ if a creation before made the ledger, which others have changed since."""
        created = await self._inner.create_ledger(metadata)
        self._recorder.learn(created.metadata)
        self._recorder.causes.created(self._actor, created)
        if created.version > 0:
            self._record_read(created)
            return created
        self._record_cas(created.metadata, "create", "ok", expected_version=-1, version=created.version)
        log = log_of(created.metadata)
        if log is not None:
            self._recorder.record(Kind.LOG_LEDGER, self._actor, created.metadata.ledger_id, log=log)
        return created

    async def write_ledger(self, metadata: LedgerMetadata, expected_version: int) -> Versioned:
        """Record META_CAS."""
        causes = self._recorder.causes
        cause = self._cause or causes.cause_of(self._actor, metadata, expected_version)
        try:
            written = await self._inner.write_ledger(metadata, expected_version)
        except MetadataVersionConflict:
            self._record_cas(metadata, cause, "conflict", expected_version=expected_version)
            raise
        except BookKeeperError:
            self._record_cas(metadata, cause, "error", expected_version=expected_version)
            raise
        causes.learn(written)
        self._record_cas(metadata, cause, "ok", expected_version=expected_version, version=written.version)
        return written

    async def read_ledger(self, ledger_id: int) -> Versioned:
        """Record META_READ."""
        value = await self._inner.read_ledger(ledger_id)
        self._recorder.causes.learn(value)
        self._record_read(value)
        return value

    def _record_read(self, value: Versioned) -> None:
        fields = metadata_fields(value.metadata, value.version)
        self._recorder.record(Kind.META_READ, self._actor, value.metadata.ledger_id, outcome="ok", **fields)

    async def delete_ledger(self, ledger_id: int) -> None:
        """Record META_CAS, cause delete, with the metadata that is deleted, unless somebody else deleted the ledger before."""
        try:
            value = await self._inner.read_ledger(ledger_id)
        except NoSuchLedger:
            return
        await self._inner.delete_ledger(ledger_id)
        self._record_cas(value.metadata, "delete", "ok", expected_version=-1, version=value.version)


class LearnedStore(_Forwarding):
    """Records at the client, above all delays and faults, that the outcome of a write is unknown to it."""

    async def write_ledger(self, metadata: LedgerMetadata, expected_version: int) -> Versioned:
        """Record META_CAS with outcome unknown if the client gets that error."""
        try:
            return await self._inner.write_ledger(metadata, expected_version)
        except MetadataOutcomeUnknown:
            cause = self._recorder.causes.cause_of(self._actor, metadata, expected_version)
            self._record_cas(metadata, cause, "unknown", expected_version=expected_version)
            raise


def recorded_store(world: World, host: Host, recorder: Recorder) -> LearnedStore:
    """The metadata store of a client on ``host``, in a session of its own, with both its ends recorded."""

    def open_session() -> AppliedStore:
        return AppliedStore(world.metadata.open_session(), recorder, host.name)

    return LearnedStore(SimulatedMetadataStore(world, host, open_session), recorder, host.name)

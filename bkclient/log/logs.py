"""The logs of a cluster."""

from __future__ import annotations

from collections.abc import AsyncIterator
from random import Random
from typing import Final

from bkclient import BookKeeper
from bkclient.errors import ArgumentError, MetadataVersionConflict
from bkclient.log.checking import LogLedgerReport, check_ledgers
from bkclient.log.cursor import CursorInfo, LogCursor, backlog_of, cursor_register
from bkclient.log.format.message_id import MessageId
from bkclient.log.machine.changes import CreateLog, DeleteLog, ForgetTrimmed, RemoveCursor, TrimLedgers
from bkclient.log.machine.codec import decode_manifest
from bkclient.log.machine.cursor import decode_cursor
from bkclient.log.machine.manifest import LogManifest
from bkclient.log.reader import LogReader
from bkclient.log.settings import LogSettings, PublishSettings
from bkclient.log.store import LOGS, ManifestStore
from bkclient.log.trimming import LAST, trim_through
from bkclient.log.writer import LogWriter
from bkclient.repair import RepairAdmin, RepairConfig

__all__ = ["Logs"]

_OWNER_LENGTH_MAX: Final = 200
_TRIMS_MAX: Final = 20


class Logs:
    """The logs of the cluster that ``client`` is connected to; the client has to be entered and stays the caller's.

    ::

        logs = Logs(bk)
        await logs.create("orders")

    A log is an unbounded sequence of messages under a name of 1 to 200 characters. It is made of ledgers, of which it adds and
    deletes one after the other. ``rng`` makes ids, by default the client's own. Methods raise
    :class:`~bkclient.errors.MetadataStoreError` when the metadata service does not answer.
    """

    def __init__(self, client: BookKeeper, *, rng: Random | None = None) -> None:
        self._client = client
        self._rng = rng or client.rng

    async def create(self, name: str, settings: LogSettings | None = None) -> None:
        """Create a log; :class:`~bkclient.log.LogExists` if there is one of this name."""
        store = self._store(name)
        await store.change(CreateLog(store.new_id(), settings or LogSettings(), store.now_ms() or 0))

    async def delete(self, name: str) -> None:
        """Delete a log and its ledgers, although it may be owned and read; :class:`~bkclient.log.NoSuchLog` if there is none."""
        store = self._store(name)
        manifest = await store.manifest()
        await self._delete_trimmed(store, await store.change(DeleteLog(manifest.log_id)))
        for cursor in manifest.cursors:
            await cursor_register(store, cursor).delete()

    async def names(self) -> AsyncIterator[str]:
        """The names of all logs, in alphabetical order; not a snapshot."""
        tree = self._client.node_tree()
        for name in await tree.children(LOGS):
            node = await tree.get(f"{LOGS}/{name}")
            if node is not None and not decode_manifest(node.data).is_deleted:
                yield name

    async def info(self, name: str) -> LogManifest:
        """What the metadata store holds about a log; :class:`~bkclient.log.NoSuchLog` if there is none."""
        return await self._store(name).manifest()

    async def check(
        self, name: str, *, thorough: bool = False, config: RepairConfig | None = None
    ) -> AsyncIterator[LogLedgerReport]:
        """A report on each ledger of the log, oldest first; nothing is changed, and an owner is not disturbed.

        A ledger has to exist, to be closed where the log says that it ended, with the same last entry, and to have all its
        copies, as by :meth:`bkclient.repair.RepairAdmin.check_ledger`; ``thorough`` reads and compares every copy of every entry.
        Raises :class:`~bkclient.log.NoSuchLog` if there is no such log.
        """
        admin = RepairAdmin(self._client, config, rng=self._rng)
        async for report in check_ledgers(self._store(name), admin, thorough=thorough):
            yield report

    async def trim(self, name: str, before: MessageId | None = None) -> list[int]:
        """Delete the ledgers that the log's retention does not keep; the ids of those that left the log.

        With ``before`` those that lie before this message instead. Only whole ledgers that have ended and that no cursor needs
        go, oldest first. May be called at any time, by any program; one that is interrupted is finished by the next one.
        """
        store = self._store(name)
        now_ms = store.now_ms()
        for _ in range(_TRIMS_MAX):
            manifest = await store.manifest()
            if before is None and now_ms is None and manifest.settings.retention_s is not None:
                raise ArgumentError("retention by time needs a client that was made with a wall_clock")
            through = trim_through(manifest, LAST if now_ms is None else now_ms, before)
            through = min(through, await self._needed(store, manifest) - 1)
            try:
                trimmed = await store.change(TrimLedgers(through, manifest.cursor_changes))
            except MetadataVersionConflict:
                continue  # a cursor came, or went back, since its position was looked at
            await self._delete_trimmed(store, trimmed)
            return [ledger.ledger_id for ledger in manifest.ledgers if ledger.ledger_id <= through]
        raise MetadataVersionConflict("cursors of the log come as often as it is looked at", advice="Trim again.")

    async def _needed(self, store: ManifestStore, manifest: LogManifest) -> int:
        """The first ledger that a cursor needs."""
        needed = LAST
        for name in manifest.cursors:
            value = await cursor_register(store, name).read()
            needed = min(needed, -1 if value is None else decode_cursor(value.data).ledger_id)
        return needed

    # Cursors -----------------------------------------------------------------------------------------------------

    def cursor(self, name: str, cursor: str, start: MessageId = MessageId.EARLIEST) -> LogCursor:
        """The durable cursor ``cursor`` of the log; one that does not exist is made, at the entry of ``start``."""
        _check_start(start)
        return LogCursor(self._store(name), cursor, start)

    async def cursors(self, name: str) -> list[CursorInfo]:
        """The cursors of a log as they were stored last, in alphabetical order."""
        store = self._store(name)
        manifest = await store.manifest()
        found = []
        for cursor in manifest.cursors:
            value = await cursor_register(store, cursor).read()
            if value is not None:
                state = decode_cursor(value.data)
                position = MessageId(state.ledger_id, state.entry_id)
                found.append(CursorInfo(cursor, position, state.holes, backlog_of(state, manifest)))
        return found

    async def remove_cursor(self, name: str, cursor: str) -> None:
        """Remove a cursor, so that it holds no messages back any more. Succeeds if there is none."""
        store = self._store(name)
        await store.manifest()
        await store.change(RemoveCursor(cursor))
        await cursor_register(store, cursor).delete()

    async def _delete_trimmed(self, store: ManifestStore, manifest: LogManifest) -> None:
        for ledger_id in manifest.trimmed:
            await self._client.delete_ledger(ledger_id)
        if manifest.trimmed:
            await store.change(ForgetTrimmed(manifest.trimmed))

    def writer(self, name: str, *, owner: str = "", settings: PublishSettings | None = None) -> LogWriter:
        """A publisher to the log, which takes it over when its ``async with`` block is entered.

        ``owner`` is what others are told of the owner, any text of at most 200 characters. Entering raises
        :class:`~bkclient.log.NoSuchLog` if there is no such log.
        """
        _check_owner(owner)
        return LogWriter(self._store(name), settings or PublishSettings(), owner or "unnamed")

    def reader(
        self,
        name: str,
        start: MessageId = MessageId.EARLIEST,
        *,
        inclusive: bool = True,
        start_ms: int | None = None,
        follow: bool = True,
    ) -> LogReader:
        """A reader of the log from the message ``start`` on, or, unless ``inclusive``, after it.

        ``MessageId.EARLIEST`` is the first message there is, ``MessageId.LATEST`` the next one to come, as far as bookies tell:
        one of the last 0.2 seconds may count as one to come. With ``start_ms``, milliseconds since 1970, reading begins at the
        first message that was published then or later. Unless ``follow``, it ends at what is the end when the reader's block is
        entered. Entering raises :class:`~bkclient.log.NoSuchLog` if there is no such log, and
        :class:`~bkclient.log.LogTrimmed` for a message that was trimmed.
        """
        _check_start(start)
        return LogReader(self._store(name), start, is_inclusive=inclusive, follow=follow, start_ms=start_ms)

    def _store(self, name: str) -> ManifestStore:
        return ManifestStore(self._client, name, self._rng)


def _check_owner(owner: object) -> None:
    if not isinstance(owner, str) or len(owner) > _OWNER_LENGTH_MAX:
        raise ArgumentError(f"owner must be a text of at most {_OWNER_LENGTH_MAX} characters")


def _check_start(start: object) -> None:
    if not isinstance(start, MessageId):
        raise ArgumentError(f"start must be a MessageId, got {type(start).__name__}")

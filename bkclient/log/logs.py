"""The logs of a cluster."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from random import Random
from typing import Any, Final

from bkclient import BookKeeper
from bkclient.errors import ArgumentError, IllegalOperation, MetadataVersionConflict, NoSuchLedger
from bkclient.log.checking import LogLedgerReport, check_ledgers
from bkclient.log.compaction import compact_log
from bkclient.log.consumer import LogConsumer, check_consumer
from bkclient.log.cursor import LogCursor
from bkclient.log.cursor_admin import CursorInfo, cursors_of, first_needed, remove_cursor, reset_cursor
from bkclient.log.deleting import delete_log, delete_partitions, delete_trimmed
from bkclient.log.format.compression import COMPRESSIONS, Compression, check_available
from bkclient.log.format.message_id import MessageId
from bkclient.log.machine.changes import ChangeSettings, CreateLog, DropLedger, TrimLedgers
from bkclient.log.machine.codec import decode_manifest
from bkclient.log.machine.manifest import MAX_PARTITIONS, LogLedger, LogManifest
from bkclient.log.membership import ConsumerMode
from bkclient.log.opening import check_partitions_free, parts_of
from bkclient.log.partitioning import Start, named_starts_of
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

    async def create(self, name: str, settings: LogSettings | None = None, *, partitions: int = 0) -> None:
        """Create a log; :class:`~bkclient.log.LogExists` if there is one of this name.

        With ``partitions``, at most 1,000, it consists of so many logs, whose names are ``NAME-partition-0`` and so on. Their
        number stays.
        """
        _check_partitions(partitions)
        store = self._store(name)
        if partitions:
            before = await store.read()
            if before is not None and before.manifest.is_deleted:
                await delete_partitions(store, before.manifest)
            if before is None or before.manifest.is_deleted:
                await check_partitions_free(store, partitions)
        creation = CreateLog(store.new_id(), settings or LogSettings(), store.now_ms() or 0, partitions)
        await parts_of(store, await store.change(creation))

    async def delete(self, name: str) -> None:
        """Delete a log and its ledgers, although it may be owned and read; :class:`~bkclient.log.NoSuchLog` if there is none."""
        await delete_log(self._store(name))

    async def names(self) -> AsyncIterator[str]:
        """The names of all logs but partitions, in alphabetical order; not a snapshot."""
        tree = self._client.node_tree()
        for name in await tree.children(LOGS):
            node = await tree.get(f"{LOGS}/{name}")
            if node is None:
                continue
            manifest = decode_manifest(node.data)
            if not manifest.is_deleted and manifest.partition < 0:
                yield name

    async def info(self, name: str) -> LogManifest:
        """What the metadata store holds about a log; :class:`~bkclient.log.NoSuchLog` if there is none."""
        return await self._store(name).manifest()

    async def partitions(self, name: str) -> list[str]:
        """The names of the logs that hold the messages: those of the partitions, or the log's own; each can be used by itself.

        :class:`~bkclient.log.NoSuchLog` if there is no such log.
        """
        return [store.name for store, _ in await self._parts(name)]

    async def _parts(self, name: str) -> list[tuple[ManifestStore, LogManifest]]:
        store = self._store(name)
        return await parts_of(store, await store.manifest())

    async def check(
        self, name: str, *, thorough: bool = False, config: RepairConfig | None = None
    ) -> AsyncIterator[LogLedgerReport]:
        """A report on each ledger of the log, oldest first; nothing is changed, and an owner is not disturbed.

        A ledger has to exist, to be closed where the log says that it ended, with the same last entry, and to have all its
        copies, as by :meth:`bkclient.repair.RepairAdmin.check_ledger`; ``thorough`` reads and compares every copy of every entry.
        Raises :class:`~bkclient.log.NoSuchLog` if there is no such log.
        """
        admin = RepairAdmin(self._client, config, rng=self._rng)
        for store, _ in await self._parts(name):
            async for report in check_ledgers(store, admin, thorough=thorough):
                yield report

    async def change_settings(self, name: str, /, **changes: Any) -> LogSettings:
        """Change settings of a log by name, as in ``retention_s=86_400.0``; all of them as they are then.

        An owner follows them from its next ledger on, and trimming at once. Of a log with partitions those of all of them
        change; a call that is interrupted may have changed some, and is repeated. Raises :class:`~bkclient.errors.ArgumentError`
        for what :class:`LogSettings` refuses, and :class:`~bkclient.log.NoSuchLog` if there is no such log.
        """
        change = ChangeSettings(tuple(sorted(changes.items())))
        store = self._store(name)
        if (await store.manifest()).partition >= 0:
            raise IllegalOperation(
                f"log {name!r} is a partition of another", advice="Change settings of the log that has the partitions."
            )
        manifest = await store.change(change)
        for part, _ in await parts_of(store, manifest):
            await part.change(change)
        return manifest.settings

    async def drop_lost_ledger(self, name: str, ledger_id: int) -> LogLedger:
        """Give up a ledger of which the metadata store knows nothing any more, **with all of its messages**; what it was.

        Such a ledger can be neither read nor recovered, so no owner can take the log over and no reader passes it. First try to
        restore its metadata from a backup of the metadata service. Only then, and once the program that owned the log last has
        ended for certain: nobody can fence the ledger any more, so that program might still be told that messages are stored
        in it. If it asks the metadata store it learns that it owns the log no more. Readers and cursors go on with the next
        ledger and are not told. Of a log with partitions name the partition, ``NAME-partition-N``.

        Raises :class:`~bkclient.errors.IllegalOperation` if the log has no such ledger, or the metadata store knows it.
        """
        store = self._store(name)
        ledger = (await store.manifest()).ledger(ledger_id)
        if ledger is None:
            raise IllegalOperation(f"log {name!r} has no ledger {ledger_id}", advice="See Logs.check (bk log check).")
        try:
            await self._client.ledger_metadata(ledger_id)
        except NoSuchLedger:
            await store.change(DropLedger(ledger_id))
            return ledger
        raise IllegalOperation(
            "the metadata store knows the ledger, so nothing needs to be given up",
            ledger_id=ledger_id,
            advice="Repair it by RepairAdmin (bk repair ledger).",
        )

    async def trim(self, name: str, before: MessageId | None = None) -> list[int]:
        """Delete the ledgers that the log's retention does not keep; the ids of those that left the log.

        With ``before`` those that lie before this message, in its partition, instead; ``MessageId.LATEST`` is after all messages
        of every partition. Only whole ledgers that have ended and that no cursor needs go, oldest first. May be called at any
        time, by any program; one that is interrupted is finished by the next one.

        Raises :class:`~bkclient.errors.ArgumentError` for an id that does not say which of several partitions it is of.
        """
        parts = await self._parts(name)
        if before is not None:
            parts = _parts_before(parts, before)
        return [ledger_id for part in parts for ledger_id in await self._trim(*part, before)]

    async def _trim(self, store: ManifestStore, manifest: LogManifest, before: MessageId | None) -> list[int]:
        now_ms = store.now_ms()
        for _ in range(_TRIMS_MAX):
            if before is None and now_ms is None and manifest.settings.retention_s is not None:
                raise ArgumentError("retention by time needs a client that was made with a wall_clock")
            through = trim_through(manifest, LAST if now_ms is None else now_ms, before)
            through = min(through, await first_needed(store, manifest) - 1)
            try:
                trimmed = await store.change(TrimLedgers(through, manifest.cursor_changes))
            except MetadataVersionConflict:
                manifest = await store.manifest()
                continue  # a cursor came, or went back, since its position was looked at
            await delete_trimmed(store, trimmed)
            return [
                ledger.ledger_id
                for ledger in manifest.ledgers
                if ledger.ledger_id <= min(through, trimmed.trimmed_through)
            ]
        raise MetadataVersionConflict("cursors of the log come as often as it is looked at", advice="Trim again.")

    async def compact(self, name: str, *, compression: str = "none", max_keys: int = 10_000_000) -> int:
        """Compact a log by key, up to its end now, for readers with ``compacted=True``; how many messages that leaves.

        The newest message of each key is kept, under its id; one with an empty payload deletes its key, and messages without a
        key are left out. The log itself is not changed, but trimming goes no further than what is compacted. Keys and ids are
        held in memory meanwhile: more than ``max_keys``, of a partition, raise :class:`~bkclient.errors.TooManyRequests`. Of two
        compactions at the same time one counts, and the other raises :class:`~bkclient.errors.MetadataVersionConflict`; one that
        died is cleaned up by the next.
        """
        if compression not in COMPRESSIONS:
            raise ArgumentError(f"compression must be one of {', '.join(COMPRESSIONS)}, got {compression!r}")
        check_available(compression)
        _check_max_keys(max_keys)
        how = Compression[compression.upper()]
        parts = await self._parts(name)
        return sum([await compact_log(*part, compression=how, max_keys=max_keys) for part in parts])

    # Cursors -----------------------------------------------------------------------------------------------------

    def cursor(self, name: str, cursor: str, start: Start = MessageId.EARLIEST) -> LogCursor:
        """The durable cursor ``cursor`` of the log; one that does not exist is made, at the entry of ``start``.

        For a log with partitions ``start`` may be several messages, at most one of each; the others begin at ``EARLIEST``.
        """
        return LogCursor(self._store(name), cursor, _checked_start(start))

    def consumer(
        self,
        name: str,
        group: str,
        *,
        mode: ConsumerMode = ConsumerMode.SHARED,
        start: Start = MessageId.EARLIEST,
        member: str = "",
        ack_timeout_s: float | None = None,
        max_unacknowledged: int = 1_000,
    ) -> LogConsumer:
        """A consumer in the group ``group``, whose position is the cursor of this name; a new one begins at ``start``.

        ``member`` is what others are told of it. A message that is not acknowledged ``ack_timeout_s`` seconds after it was
        delivered is delivered again; None: only when the partition passes to another consumer. At most ``max_unacknowledged``
        messages of each partition, up to 9,000, are read and not acknowledged. Entering raises
        :class:`~bkclient.log.ConsumerRefused` where the group is another's alone, and :class:`~bkclient.log.NoSuchLog` if there
        is no such log.
        """
        check_consumer(mode, ack_timeout_s, max_unacknowledged)
        _check_owner(member, "member")
        store = self._store(name)
        return LogConsumer(
            store,
            group,
            mode,
            _checked_start(start),
            name=member or "unnamed",
            ack_timeout_s=ack_timeout_s,
            max_unacknowledged=max_unacknowledged,
        )

    async def cursors(self, name: str) -> list[CursorInfo]:
        """The cursors of a log as they were stored last, in alphabetical order; of one with partitions, each in each of them."""
        found = [info for part in await self._parts(name) for info in await cursors_of(*part)]
        return sorted(found, key=lambda info: (info.name, info.position.partition))

    async def reset_cursor(
        self, name: str, cursor: str, start: Start | None = None, *, start_ms: int | None = None
    ) -> None:
        """Move a cursor that exists to the message ``start``, or to the first one published at ``start_ms`` or later.

        Everything before counts as acknowledged, and nothing from there on. ``start`` is as for :meth:`cursor`; partitions that
        it does not name stay as they are. A program that has the cursor open, as a group of consumers has, is deposed: it raises
        :class:`~bkclient.log.LogDeposed`, and a consumer opens it again. Raises :class:`~bkclient.log.LogTrimmed` for a message
        that was trimmed, and :class:`~bkclient.errors.IllegalOperation` if there is no such cursor.
        """
        if (start is None) == (start_ms is None):
            raise ArgumentError("give either start or start_ms")
        parts = await self._parts(name)
        starts: list[MessageId | None] = [MessageId.EARLIEST] * len(parts)
        if start is not None:
            starts = named_starts_of(_checked_start(start), len(parts) if parts[0][1].partition >= 0 else 0)
        for (store, manifest), each in zip(parts, starts, strict=True):
            if each is not None:
                await reset_cursor(store, manifest, cursor, each, start_ms)

    async def remove_cursor(self, name: str, cursor: str) -> None:
        """Remove a cursor, so that it holds no messages back any more. Succeeds if there is none."""
        for store, _ in await self._parts(name):
            await remove_cursor(store, cursor)

    def writer(self, name: str, *, owner: str = "", settings: PublishSettings | None = None) -> LogWriter:
        """A publisher to the log, which takes it over when its ``async with`` block is entered.

        ``owner`` is what others are told of the owner, any text of at most 200 characters. Entering raises
        :class:`~bkclient.log.NoSuchLog` if there is no such log. Raises :class:`~bkclient.errors.ArgumentError` for a compression
        whose package is not installed.
        """
        _check_owner(owner)
        settings = settings or PublishSettings()
        check_available(settings.compression)
        return LogWriter(self._store(name), settings, owner or "unnamed")

    def reader(
        self,
        name: str,
        start: Start = MessageId.EARLIEST,
        *,
        inclusive: bool = True,
        start_ms: int | None = None,
        follow: bool = True,
        compacted: bool = False,
    ) -> LogReader:
        """A reader of the log from the message ``start`` on, or, unless ``inclusive``, after it.

        ``MessageId.EARLIEST`` is the first message there is, ``MessageId.LATEST`` the next one to come, as far as bookies tell:
        one of the last 0.2 seconds may count as one to come. With ``start_ms``, milliseconds since 1970, reading begins at the
        first message that was published then or later. Unless ``follow``, it ends at what is the end when the reader's block is
        entered. Entering raises :class:`~bkclient.log.NoSuchLog` if there is no such log, and
        :class:`~bkclient.log.LogTrimmed` for a message that was trimmed. For a log with partitions ``start`` may be several
        messages, at most one of each; the others begin at ``EARLIEST``.

        With ``compacted`` what the last :meth:`compact` left is read instead of what it covered, and then what was published
        since.
        """
        if compacted and start_ms is not None:
            raise ArgumentError("start_ms and compacted are mutually exclusive")
        return LogReader(
            self._store(name),
            _checked_start(start),
            is_inclusive=inclusive,
            follow=follow,
            start_ms=start_ms,
            is_compacted=compacted,
        )

    def _store(self, name: str) -> ManifestStore:
        return ManifestStore(self._client, name, self._rng)


def _parts_before(
    parts: list[tuple[ManifestStore, LogManifest]], before: MessageId
) -> list[tuple[ManifestStore, LogManifest]]:
    """The partition that a message is in; all of them for what is before or after all messages."""
    if before in (MessageId.EARLIEST, MessageId.LATEST):
        return parts
    if len(parts) == 1 and before.partition < 0:
        return parts
    found = [part for part in parts if part[1].partition == before.partition]
    if not found:
        numbers = f"partitions 0 to {len(parts) - 1}" if parts[0][1].partition >= 0 else "no partitions"
        raise ArgumentError(f"before must name a partition of the log, got {before}", advice=f"The log has {numbers}.")
    return found


def _check_owner(owner: object, what: str = "owner") -> None:
    if not isinstance(owner, str) or len(owner) > _OWNER_LENGTH_MAX:
        raise ArgumentError(f"{what} must be a text of at most {_OWNER_LENGTH_MAX} characters")


def _check_max_keys(max_keys: object) -> None:
    if isinstance(max_keys, bool) or not isinstance(max_keys, int) or max_keys < 1:
        raise ArgumentError(f"max_keys must be a whole number >= 1, got {max_keys!r}")


def _check_partitions(partitions: object) -> None:
    if isinstance(partitions, bool) or not isinstance(partitions, int) or not 0 <= partitions <= MAX_PARTITIONS:
        raise ArgumentError(f"partitions must be a whole number from 0 to {MAX_PARTITIONS}, got {partitions!r}")


def _checked_start(start: object) -> Start:
    """``start``, or a list of what it consists of."""
    if isinstance(start, MessageId):
        return start
    if isinstance(start, Iterable) and not isinstance(start, str | bytes):
        ids = list(start)
        if all(isinstance(each, MessageId) for each in ids):
            return ids
    raise ArgumentError(f"start must be a MessageId, or several, got {type(start).__name__}")

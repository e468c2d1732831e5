"""Records what becomes of logs and their cursors, where the nodes that hold them are stored.

A write of a manifest is one change of all that is in it. It is recorded as what it changed, compared with the manifest before,
each with the version that the write made.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgpack

from bkclient.ledger import LedgerMetadata
from bkclient.log.machine.codec import decode_manifest
from bkclient.log.machine.cursor import decode_cursor
from bkclient.log.machine.manifest import CompactedLedger, LogLedger, LogManifest
from bkclient.metadata.base import Cancel
from bkclient.metadata.tree import NodeTree, TreeNode
from scenarios.history import Kind
from scenarios.recording.recorders import Recorder

__all__ = ["GroupMembers", "LogChanges", "RecordedTree", "log_of"]

_LOGS: Final = "logs"
_CURSORS: Final = "cursors"
_GROUPS: Final = "groups"
_APPLICATION: Final = b"bkclient-log"


def log_of(metadata: LedgerMetadata) -> str | None:
    """The log that a ledger was made for, as its custom metadata tells; None for another ledger."""
    custom = metadata.custom_metadata
    return custom["log"].decode() if custom.get("application") == _APPLICATION and "log" in custom else None


class RecordedTree:
    """A :class:`~bkclient.metadata.tree.NodeTree` at the service, below all delays and faults."""

    def __init__(self, inner: NodeTree, recorder: Recorder, actor: str) -> None:
        self._inner = inner
        self._changes = LogChanges(recorder, actor)
        self._members = GroupMembers(recorder, actor)

    async def get(self, path: str) -> TreeNode | None:
        """Forwarded."""
        return await self._inner.get(path)

    async def children(self, path: str) -> list[str]:
        """Forwarded."""
        return await self._inner.children(path)

    async def create(
        self, path: str, data: bytes = b"", *, is_ephemeral: bool = False, is_sequential: bool = False
    ) -> str | None:
        """Forwarded; records what a node of a log holds."""
        made = await self._inner.create(path, data, is_ephemeral=is_ephemeral, is_sequential=is_sequential)
        if made is not None:
            self._changes.stored(path, data, 0)
            self._members.made(made, data)
        return made

    async def write(self, path: str, data: bytes, version: int) -> bool:
        """Forwarded; records what it changed of a log, or the position of a cursor."""
        is_written = await self._inner.write(path, data, version)
        if is_written:
            self._changes.stored(path, data, version + 1)
        return is_written

    async def delete(self, path: str, version: int | None = None) -> bool:
        """Forwarded; records that a consumer left its group."""
        is_gone = await self._inner.delete(path, version)
        if is_gone:
            self._members.gone(path)
        return is_gone

    def session_ended(self) -> None:
        """The service has removed what was ephemeral."""
        self._members.all_gone()

    def watch(self, path: str, listener: Callable[[], None]) -> Cancel:
        """Forwarded."""
        return self._inner.watch(path, listener)


class GroupMembers:
    """Records which consumers of groups one session makes, and that they are gone. A group has a cursor in each partition."""

    def __init__(self, recorder: Recorder, actor: str) -> None:
        self._recorder = recorder
        self._actor = actor
        #: By path, the log, the group, the number and the mode.
        self._present: dict[str, tuple[str, str, int, str]] = {}

    def made(self, path: str, data: bytes) -> None:
        """A node of the tree was made."""
        directory, *rest = path.split("/")
        if directory == _GROUPS and len(rest) == 3:
            log, group, name = rest
            mode = msgpack.unpackb(data)[2]
            self._present[path] = log, group, int(name.rpartition("-")[2]), mode
            self._record(path, "joined")

    def gone(self, path: str) -> None:
        """A node of the tree was removed."""
        if path in self._present:
            self._record(path, "left")
            del self._present[path]

    def all_gone(self) -> None:
        """The session ended."""
        for path in list(self._present):
            self.gone(path)

    def _record(self, path: str, cause: str) -> None:
        log, group, number, mode = self._present[path]
        manifest = self._recorder.manifests.get(log)
        count = 0 if manifest is None else manifest.partitions
        for name in [f"{log}-partition-{partition}" for partition in range(count)] or [log]:
            member: dict[str, Any] = {"cursor": group, "cause": cause, "member": number, "mode": mode}
            self._recorder.record(Kind.LOG_MEMBER, self._actor, log=name, **member)


class LogChanges:
    """Records what one actor changes of logs and cursors."""

    def __init__(self, recorder: Recorder, actor: str) -> None:
        self._recorder = recorder
        self._actor = actor

    def stored(self, path: str, data: bytes, version: int) -> None:
        """A node of the tree was stored, with this version; nothing is recorded of one that is no log's."""
        directory, _, rest = path.partition("/")
        if directory == _LOGS:
            self._manifest_stored(rest, decode_manifest(data), version)
        elif directory == _CURSORS:
            log, _, cursor = rest.partition("/")
            state = decode_cursor(data)
            if state.is_removed:
                return  # which the manifest told
            openings = self._recorder.cursor_openings.setdefault((log, cursor), set())
            cause = "stored" if state.holder in openings else "opened"
            openings.add(state.holder)
            where = {"entry": state.entry_id, "version": version}
            self._record(Kind.LOG_CURSOR, log, state.ledger_id, cursor=cursor, cause=cause, **where)

    def _manifest_stored(self, log: str, new: LogManifest, version: int) -> None:
        known = self._recorder.manifests.get(log)
        old = known if known is not None else LogManifest(new.log_id)
        self._recorder.manifests[log] = new
        if new.epoch != old.epoch:
            self._record(Kind.LOG_CLAIM, log, epoch=new.epoch, version=version)
        for cursor in sorted({*old.cursors, *new.cursors}):
            if (cursor in old.cursors) != (cursor in new.cursors):
                cause = "listed" if cursor in new.cursors else "removed"
                self._record(Kind.LOG_CURSOR, log, cursor=cursor, cause=cause, entry=-1, version=version)
        self._compaction_stored(log, old, new, version)
        for ledger in old.ledgers:
            self._ledger_stored(log, ledger, new, version)
        for ledger in new.ledgers:
            if not old.has(ledger.ledger_id):
                self._record(Kind.LOG_APPEND, log, ledger.ledger_id, epoch=ledger.epoch, version=version)
        if old.claim_id and not new.claim_id:
            self._record(Kind.LOG_RELEASE, log, epoch=new.epoch, version=version)

    def _compaction_stored(self, log: str, old: LogManifest, new: LogManifest, version: int) -> None:
        """Record what became of compactions: one that was under way, and the one that readers are told of."""
        before, now = old.compacted, new.compacted
        if before is not None and before != now:
            self._compacted(log, "dropped", before, version)
        if now is not None and now != before:
            self._compacted(log, "done", now, version)
        if old.compacting not in (-1, new.compacting) and (now is None or now.ledger_id != old.compacting):
            self._compacted(log, "abandoned", CompactedLedger(old.compacting, -1, -1, 0), version)
        if new.compacting not in (-1, old.compacting):
            self._compacted(log, "begun", CompactedLedger(new.compacting, -1, -1, 0), version)

    def _compacted(self, log: str, cause: str, what: CompactedLedger, version: int) -> None:
        where = {"through": what.through_ledger_id, "entry": what.through_entry_id}
        self._record(Kind.LOG_COMPACT, log, what.ledger_id, cause=cause, **where, version=version)

    def _ledger_stored(self, log: str, old: LogLedger, new: LogManifest, version: int) -> None:
        """Record what became of a ledger that was in the list: trimmed, ended, or ended empty, which takes it out of the list."""
        ledger_id = old.ledger_id
        now = new.ledger(ledger_id)
        if now is None and ledger_id <= new.trimmed_through:
            self._record(Kind.LOG_TRIM, log, ledger_id, version=version)
        elif now is None or (old.end is None and now.end is not None):
            end = None if now is None else now.end
            last, length = (-1, 0) if end is None else (end.last_entry_id, end.length)
            self._record(Kind.LOG_END, log, ledger_id, last_entry=last, length=length, version=version)

    def _record(self, kind: Kind, log: str, ledger: int = -1, **fields: int | str) -> None:
        self._recorder.record(kind, self._actor, ledger, log=log, **fields)

"""What is done with cursors by others than those who have them open: list, reset and remove them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from bkclient.coordination import RegisterValue
from bkclient.errors import IllegalOperation, MetadataOutcomeUnknown, MetadataVersionConflict
from bkclient.log.errors import LogTrimmed
from bkclient.log.format.message_id import MessageId
from bkclient.log.machine.changes import MoveCursorBack, RemoveCursor
from bkclient.log.machine.cursor import CursorState, decode_cursor, encode_cursor
from bkclient.log.machine.manifest import LogManifest
from bkclient.log.partition_cursor import backlog_of, cursor_register
from bkclient.log.partition_reader import find_time, start_at
from bkclient.log.store import ManifestStore
from bkclient.log.trimming import LAST

__all__ = ["CursorInfo", "cursors_of", "first_needed", "mark_removed", "remove_cursor", "reset_cursor"]

_ATTEMPTS_MAX: Final = 20
_REMOVED: Final = encode_cursor(CursorState.removed())


@dataclass(frozen=True, slots=True)
class CursorInfo:
    """A cursor as it was stored last: its position, the first entry that is not acknowledged, and the holes beyond it.

    Of a log with partitions there is one for each, whose number is in ``position``. ``backlog_entries`` are the entries that are
    not acknowledged, without those of the ledger that is being written to.
    """

    name: str
    position: MessageId
    holes: int
    backlog_entries: int


async def cursors_of(store: ManifestStore, manifest: LogManifest) -> list[CursorInfo]:
    """The cursors of one log, or one partition, in the order of the manifest."""
    found = []
    for name in manifest.cursors:
        state = await _state_of(store, name)
        if state is not None:
            position = MessageId(state.ledger_id, state.entry_id, manifest.partition)
            found.append(CursorInfo(name, position, state.holes, backlog_of(state, manifest)))
    return found


async def first_needed(store: ManifestStore, manifest: LogManifest) -> int:
    """The first ledger that a cursor needs."""
    needed = LAST
    for name in manifest.cursors:
        state = await _state_of(store, name)
        needed = min(needed, -1 if state is None else state.ledger_id)
    return needed


async def _state_of(store: ManifestStore, name: str) -> CursorState | None:
    """What is stored of a cursor that is listed; None if another program is about to make it, or to remove it."""
    value = await cursor_register(store, name).read()
    state = None if value is None else decode_cursor(value.data)
    return None if state is None or state.is_removed else state


async def remove_cursor(store: ManifestStore, name: str) -> None:
    """Take a cursor out of the manifest. Its node stays, marked, so that what its last holder knows is of no use to it.

    A program that is opening it may announce it in between: a name without a position would keep trimming from everything.
    """
    for _ in range(_ATTEMPTS_MAX):
        await store.change(RemoveCursor(name))
        await mark_removed(store, name)
        if name not in (await store.manifest()).cursors or await _state_of(store, name) is not None:
            return
    raise MetadataVersionConflict(f"the cursor {name!r} is opened as often as it is removed", advice="Try again.")


async def mark_removed(store: ManifestStore, name: str) -> None:
    """Mark the node of a cursor that is in no manifest, if there is one."""
    register = cursor_register(store, name)
    if await register.read() is not None:
        await register.change(lambda _: _REMOVED)


async def reset_cursor(
    store: ManifestStore, manifest: LogManifest, name: str, start: MessageId, start_ms: int | None
) -> None:
    """Have a cursor begin at ``start``, or at a time; a program that has it open is deposed."""
    holder = store.new_id()
    if name not in manifest.cursors:
        raise IllegalOperation(f"log {store.name!r} has no cursor {name!r}", advice="Open one; that makes it.")
    for _ in range(_ATTEMPTS_MAX):
        place = await (start_at(store, manifest, start) if start_ms is None else find_time(store, manifest, start_ms))
        state = CursorState(manifest.log_id, holder, *place)
        if not await _take(store, name, state):
            manifest = await store.manifest()
            continue
        # From now on a trim that was decided by the position before is refused; one before that may have been faster.
        seen = await store.manifest()
        after = await store.change(MoveCursorBack(name, seen.cursor_changes))
        if 0 <= state.ledger_id <= after.trimmed_through:
            raise LogTrimmed(f"{start} was trimmed meanwhile", ledger_id=state.ledger_id)
        return
    raise MetadataVersionConflict(f"the cursor {name!r} is stored as often as it is looked at", advice="Try again.")


async def _take(store: ManifestStore, name: str, state: CursorState) -> bool:
    """Store a position in the place of another; false if somebody was faster."""
    register = cursor_register(store, name)
    value: RegisterValue | None = await register.read()
    if value is not None and decode_cursor(value.data).holder == state.holder:
        return True  # the answer was lost
    data = encode_cursor(state)
    try:
        await (register.create(data) if value is None else register.write(data, value.version))
    except (MetadataVersionConflict, MetadataOutcomeUnknown):
        return False
    return True

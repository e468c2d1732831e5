"""Planted defects of cursors and of groups of consumers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from bkclient.log import consumer, partition_reader
from bkclient.log.format.message import LogMessage
from bkclient.log.format.message_id import MessageId
from bkclient.log.held_partition import HeldPartition
from bkclient.log.machine.cursor import CursorState, decode_cursor, encode_cursor
from bkclient.log.machine.manifest import LogManifest
from bkclient.log.membership import GroupMember
from bkclient.log.partition_cursor import PartitionCursor
from bkclient.log.store import ManifestStore
from scenarios.mutants.base import Function, Mutant, Replacement

__all__ = ["LOG_GROUP_MUTANTS"]


def _stored_in_any_case(_save: Function) -> Function:
    """A cursor is stored although another opening has it."""

    async def mutated(self: PartitionCursor) -> None:
        stored = await self._register.read()
        assert stored is not None
        self._version = (await self._register.write(encode_cursor(self.state), stored.version)).version

    return mutated


def _acknowledged_when_read(read: Function) -> Function:
    """What is read ahead counts as acknowledged."""

    async def mutated(self: HeldPartition, limit: int, on_news: Callable[[], None]) -> None:
        offer = self.deliveries.offer

        def offered(message: LogMessage) -> None:
            place = message.id
            self.cursor.state.acknowledge(place.ledger_id, place.entry_id, place.batch_index, message.batch_size)
            self.cursor.is_dirty = True
            offer(message)

        self.deliveries.offer = offered  # type: ignore[method-assign]
        await read(self, limit, on_news)

    return mutated


def _opened_at_the_beginning(_take_over: Function) -> Function:
    """Who takes a cursor over forgets where it was."""

    async def mutated(self: PartitionCursor, manifest: LogManifest) -> None:
        state = CursorState(manifest.log_id, self._holder, -1, 0)
        if self._seen is None:
            written = await self._register.create(encode_cursor(state))
        else:
            written = await self._register.write(encode_cursor(state), self._seen.version)
        self.state, self._version = state, written.version

    return mutated


def _from_the_beginning(start_at: Function) -> Function:
    """Reading begins with the first message, wherever the cursor is."""

    async def mutated(store: ManifestStore, manifest: LogManifest, start: MessageId) -> tuple[int, int]:
        place: tuple[int, int] = await start_at(store, manifest, MessageId.EARLIEST if start.ledger_id >= 0 else start)
        return place

    return mutated


def _nothing_is_acknowledged(_is_acknowledged: Function) -> Function:
    def mutated(_self: CursorState, _ledger_id: int, _entry_id: int, _batch_index: int = -1) -> bool:
        return False

    return mutated


def _everything_to_everybody(_assigned: Function) -> Function:
    def mutated(_members: list[GroupMember], partitions: list[int], _member_id: str) -> set[int]:
        return set(partitions)

    return mutated


def _looked_at_only(take_over: Function) -> Function:
    """A cursor that is there is read, and not taken over."""

    async def mutated(self: PartitionCursor, manifest: LogManifest) -> None:
        if self._seen is None:
            await take_over(self, manifest)
        else:
            self.state, self._version = decode_cursor(self._seen.data), self._seen.version

    return mutated


def _looked_at_last(try_open: Function) -> Function:
    """The cursor is looked at after the members, so an opening in between is undone."""

    async def mutated(self: PartitionCursor) -> LogManifest | None:
        await self.look()
        opened: LogManifest | None = await try_open(self)
        return opened

    return mutated


LOG_GROUP_MUTANTS: Final[tuple[Mutant, ...]] = (
    Mutant(
        name="log-cursor-ignores-who-has-it",
        summary="a consumer stores its position although another one has taken the partition over",
        clauses=("H13",),
        in_runs=True,
        replaces=(Replacement(PartitionCursor, "_save", _stored_in_any_case),),
    ),
    Mutant(
        name="log-group-acknowledges-what-it-reads",
        summary="what a consumer has read ahead counts as acknowledged",
        clauses=("H14",),
        in_runs=True,
        replaces=(Replacement(HeldPartition, "read", _acknowledged_when_read),),
    ),
    Mutant(
        name="log-cursor-forgets-its-position",
        summary="who takes a cursor over begins anew",
        clauses=("H12",),
        in_runs=True,
        replaces=(Replacement(PartitionCursor, "_take_over", _opened_at_the_beginning),),
    ),
    Mutant(
        name="log-group-reads-from-the-beginning",
        summary="a consumer that gets a partition reads it from the beginning, and does not look at what is acknowledged",
        clauses=("H12",),
        in_runs=True,
        replaces=(
            Replacement(partition_reader, "start_at", _from_the_beginning),
            Replacement(CursorState, "is_acknowledged", _nothing_is_acknowledged),
        ),
    ),
    Mutant(
        name="log-group-has-many-active",
        summary="every consumer of a failover group takes the log over",
        clauses=("H19",),
        in_runs=True,
        replaces=(Replacement(consumer, "assigned", _everything_to_everybody),),
    ),
    Mutant(
        name="log-group-goes-by-an-old-list",
        summary="a consumer whose session ended meanwhile takes over by the list of members that it had got before",
        clauses=("H19",),
        in_runs=True,
        replaces=(Replacement(PartitionCursor, "try_open", _looked_at_last),),
    ),
    Mutant(
        name="log-group-reads-without-opening",
        summary="a consumer reads by a cursor that another one has open, and does not take it over",
        clauses=("H20",),
        in_runs=True,
        replaces=(Replacement(PartitionCursor, "_take_over", _looked_at_only),),
    ),
)

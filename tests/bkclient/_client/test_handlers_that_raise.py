"""A handler that raises, by a defect of ours or of something plugged in, ends its operation with an error, and soon.

For every handler of every shell something that it calls is made to raise. Nothing may wait for ever, nobody may be told that
all is well, and the error itself reaches the event loop's exception handler.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from bkclient._client.reading.followed import FollowedLedger
from bkclient._client.reading.polls import Poll
from bkclient.config import ClientConfig, ConnectionSettings, TimeoutSettings, WritingSettings
from bkclient.errors import BookKeeperError, ClientClosed, Code, MetadataStoreError, UnexpectedCondition
from bkclient.ledger import LedgerState
from bkclient.observability.memory_stats import MemoryStats
from bkclient.protocol.append import AppendMachine
from bkclient.protocol.batch_read import BatchRead
from bkclient.protocol.explicit_lac import ExplicitLac, LacWrite
from bkclient.protocol.force import ForceMachine
from bkclient.protocol.lac import LacProgress, LacRead
from bkclient.protocol.long_poll import LongPollRead
from bkclient.protocol.read import EntryRead
from bkclient.protocol.read_run import ReadRun
from bkclient.protocol.reconnect import ReconnectCheck
from bkclient.protocol.recovery import RecoveryMachine
from bkclient.repair.admin import core_of
from bkclient.repair.reads import CopyReads, ReadBatch
from bkclient.transport.adds import EachReplica
from bkclient.transport.reads import ReadReplies
from bkclient.wire.entry import EntryCodec
from bkclient.wire.messages import AddRequest, Request
from simbookie.world.loop import VirtualTimeLoop
from tests.bkclient._client.reading.ledgers import reader_of, tail_of, written
from tests.bkclient.fakes import (
    Answer,
    FakeBookie,
    FakeCluster,
    FakeTransport,
    advanced_writer_of,
    fake_cluster,
    writer_of,
)
from tests.bkclient.handlers import handlers
from tests.bkclient.inside import followed_of, reads_of
from tests.settling import settled

SOON_S = 130.0
"""Of virtual time: a little more than the longest timeout of a client."""


class PlantedError(Exception):
    """Nothing of ours raises it."""


class NotingLoop(VirtualTimeLoop):
    """Goes on after errors that were reported to it, as real loops do."""

    def __init__(self) -> None:
        super().__init__()
        self.reported: list[BaseException | None] = []
        self.messages: set[str] = set()
        #: Errors of operations that ended.
        self.ends: list[BookKeeperError] = []

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        self.reported.append(context["exception"])
        self.messages.add(context["message"])


def fails(*_arguments: object, **_options: object) -> None:
    raise PlantedError


Planting = Callable[[type, str], Callable[[], None]]
Story = Callable[[FakeCluster, Planting], Awaitable[None]]


async def ends(operation: Awaitable[object]) -> BookKeeperError:
    """The error that ``operation`` ends with: the planted one is behind it."""
    with pytest.raises(UnexpectedCondition) as caught:
        async with asyncio.timeout(SOON_S):
            await operation
    cause: BaseException | None = caught.value
    while cause is not None and not isinstance(cause.__cause__, PlantedError):
        cause = cause.__cause__
    assert isinstance(cause, BookKeeperError), "another error"
    loop = asyncio.get_running_loop()
    assert isinstance(loop, NotingLoop)
    loop.ends += [caught.value, cause]
    return caught.value


# Recovery ----------------------------------------------------------------------------------------------------------


def recovery_fails(
    target: type, name: str, *, marked: LedgerState = LedgerState.IN_RECOVERY, adds_fail: bool = False
) -> Story:
    async def story(where: FakeCluster, plant: Planting) -> None:
        writer = await written(where, 2)
        plant(target, name)
        if adds_fail:
            answer = FakeBookie.answer

            def refuse(bookie: FakeBookie, request: Request) -> Answer:
                return (Code.TIMEOUT, None) if isinstance(request, AddRequest) else answer(bookie, request)

            where.transport.bookies["a"].answer = refuse.__get__(where.transport.bookies["a"])  # type: ignore[method-assign]
        error = await ends(where.bk.open_ledger(writer.ledger_id, password=b"secret", recover=True))
        assert (error.ledger_id, error.message) == (writer.ledger_id, "a handler of the recovery raised PlantedError()")
        await settled()
        assert where.metadata(writer.ledger_id).state is marked

    return story


# Writers -----------------------------------------------------------------------------------------------------------


async def an_answer_to_an_add(where: FakeCluster, plant: Planting) -> None:
    writer = await written(where, 1)
    plant(AppendMachine, "acknowledged")
    first, second = writer.append_nowait(b"1"), writer.append_nowait(b"2")
    flushing = asyncio.ensure_future(writer.flush())
    assert (await ends(first)).entry_id == 1
    assert (await ends(second)).entry_id == 2
    await ends(flushing)
    await it_is_over(where, writer.ledger_id, writer.append(b"3"), writer.flush(), writer.force(), writer.close())
    assert (writer.in_flight_entries, where.bk.in_flight_entries, writer.in_flight_bytes) == (0, 0, 0)


async def a_failure_of_an_add(where: FakeCluster, plant: Planting) -> None:
    writer = await written(where, 1)
    plant(AppendMachine, "on_add_reply")
    for bookie in where.transport.bookies.values():
        bookie.code = Code.TIMEOUT
    assert (await ends(writer.append_nowait(b"1"))).entry_id == 1
    await it_is_over(where, writer.ledger_id, writer.append(b"3"), writer.flush(), writer.close())


async def it_is_over(where: FakeCluster, ledger_id: int, *calls: Awaitable[object]) -> None:
    """Every call fails, and a recovery decides where the ledger ends."""
    for call in calls:
        await ends(call)
    await settled()
    assert where.metadata(ledger_id).state is LedgerState.OPEN


async def an_entry_that_cannot_be_sent(where: FakeCluster, plant: Planting) -> None:
    writer = await written(where, 1)
    plant(EachReplica, "send")
    await ends(writer.append(b"1"))
    await it_is_over(where, writer.ledger_id, writer.append(b"3"), writer.flush(), writer.close())
    assert (where.bk.in_flight_entries, writer.in_flight_bytes) == (0, 0)


async def an_entry_with_an_id_that_cannot_be_sent(where: FakeCluster, plant: Planting) -> None:
    writer = await advanced_writer_of(where)
    plant(EntryCodec, "encode_header")
    await ends(writer.append(0, b"0"))
    await it_is_over(where, writer.ledger_id, writer.flush(), writer.close())
    assert (where.bk.in_flight_entries, writer.in_flight_bytes) == (0, 0)


async def an_entry_that_never_became_one(where: FakeCluster, plant: Planting) -> None:
    writer = await written(where, 1)
    plant(AppendMachine, "append")
    await ends(writer.append(b"1"))
    assert (where.bk.in_flight_entries, writer.in_flight_bytes) == (0, 0)


async def an_entry_above_a_gap(where: FakeCluster, plant: Planting) -> None:
    writer = await advanced_writer_of(where)
    above_a_gap = writer.append_nowait(7, b"7")
    await settled()
    plant(AppendMachine, "acknowledged")
    next_one = writer.append_nowait(0, b"0")
    await ends(next_one)
    await ends(above_a_gap)


async def the_look_at_what_is_pending(where: FakeCluster, plant: Planting) -> None:
    writer = await writer_of(where)
    where.transport.hold("abc")
    plant(AppendMachine, "check_quorum_timeout")
    await ends(writer.append(b"0"))
    await ends(writer.close())


async def a_late_failure(where: FakeCluster, plant: Planting) -> None:
    writer = await writer_of(where)
    failing = writer.metadata.last_fragment.ensemble[2]
    where.transport.bookies[failing].code = Code.TIMEOUT
    await writer.append(b"0")
    plant(AppendMachine, "act_on_late_failures")
    await asyncio.sleep(5)
    await it_is_over(where, writer.ledger_id, writer.append(b"1"), writer.close())


async def a_change_of_the_ensemble(where: FakeCluster, plant: Planting) -> None:
    writer = await writer_of(where)
    where.transport.bookies[writer.metadata.last_fragment.ensemble[0]].code = Code.TIMEOUT
    plant(AppendMachine, "on_update_done")
    await ends(writer.append(b"0"))
    await ends(writer.close())


def a_look_at_the_metadata(method: str, *, store_fails: bool = False) -> Story:
    async def story(where: FakeCluster, plant: Planting) -> None:
        writer = await written(where, 1)
        where.transport.reconnect("abc")
        if store_fails:
            where.store.read_errors = [MetadataStoreError("away")] * 3
        plant(ReconnectCheck, method)
        await it_is_over(where, writer.ledger_id, writer.append(b"1"), writer.flush(), writer.close())

    return story


async def a_close(where: FakeCluster, plant: Planting) -> None:
    writer = await written(where, 1)
    plant(AppendMachine, "on_update_done")
    await ends(writer.close())
    await ends(writer.close())


async def a_retry(where: FakeCluster, plant: Planting) -> None:
    writer = await writer_of(where, (3, 3, 3))
    where.transport.bookies[writer.metadata.last_fragment.ensemble[0]].code = Code.TIMEOUT
    plant(AppendMachine, "on_retry")
    await ends(writer.append(b"0"))


async def the_end_of_the_client(where: FakeCluster, plant: Planting) -> None:
    client = where.another_client()
    async with client as bk:
        first = await bk.create_ledger(ensemble_size=3, write_quorum_size=3, ack_quorum_size=2)
        second = await bk.create_ledger(ensemble_size=3, write_quorum_size=3, ack_quorum_size=2)
        where.transport.hold("abc")
        held = [first.append_nowait(b"0"), second.append_nowait(b"0")]
        plant(AppendMachine, "abandon")
    for future in held:
        await ends(future)


async def a_force(where: FakeCluster, plant: Planting) -> None:
    writer = await written(where, 1)
    plant(ForceMachine, "on_force_reply")
    await ends(writer.force())


async def an_explicit_lac(where: FakeCluster, plant: Planting) -> None:
    writer = await written(where, 1)
    plant(LacWrite, "on_reply")
    await ends(writer.write_explicit_lac())


def a_told_lac_goes_on(target: type, name: str) -> Story:
    async def story(where: FakeCluster, plant: Planting) -> None:
        writer = await written(where, 2)
        restore = plant(target, name)
        await asyncio.sleep(12)
        restore()
        await asyncio.sleep(12)
        assert all(bookie.explicit_lac is not None for bookie in where.transport.bookies.values())
        await writer.close()

    return story


async def a_look_at_connections(where: FakeCluster, plant: Planting) -> None:
    writer = await writer_of(where)
    where.transport.unwritable = set("abc")
    waiting = [asyncio.ensure_future(writer.wait_for_room()) for _ in range(2)]
    await settled()
    plant(FakeTransport, "is_writable")
    for waiter in waiting:
        await ends(waiter)


# Readers -----------------------------------------------------------------------------------------------------------


async def an_answer_to_a_read(where: FakeCluster, plant: Planting) -> None:
    reader = await reader_of(where, 3)
    plant(EntryRead, "on_reply")
    error = await ends(reader.read(1))
    assert (error.ledger_id, error.entry_id) == (reader.ledger_id, 1)


async def an_answer_to_many_reads(where: FakeCluster, plant: Planting) -> None:
    reader = await reader_of(where, 3)
    plant(ReadRun, "found")
    error = await ends(reader.read_entries(0, 2))
    assert (error.ledger_id, error.entry_id) == (reader.ledger_id, 0)


async def many_answers_to_many_reads(where: FakeCluster, plant: Planting) -> None:
    reader = await reader_of(where, 3)
    reads_of(reader).sender = Together(where.transport, reader.ledger_id)
    plant(ReadRun, "found")
    error = await ends(reader.read_entries(0, 2))
    assert (error.ledger_id, error.entry_id) == (reader.ledger_id, 0)


class Together:
    """Hands over all that it was asked for at once, as a transport does that sends many reads."""

    def __init__(self, transport: FakeTransport, ledger_id: int) -> None:
        self._transport = transport
        self._ledger_id = ledger_id

    def send(self, bookie_id: str, entry_ids: Sequence[int], replies: ReadReplies) -> None:
        entries = self._transport.bookies[bookie_id].entries
        found = [(entry_id, entries[self._ledger_id, entry_id], -1) for entry_id in entry_ids]
        asyncio.get_running_loop().call_soon(replies.on_found, bookie_id, found)


async def a_late_answer_to_a_read(where: FakeCluster, plant: Planting) -> None:
    reader = await reader_of(where, 3)
    where.transport.hold("abc")
    plant(EntryRead, "on_late")
    reading = [asyncio.ensure_future(reader.read(entry_id)) for entry_id in range(3)]
    for read in reading:
        await ends(read)


async def a_second_late_answer_to_a_read(where: FakeCluster, plant: Planting) -> None:
    reader = await reader_of(where, 1)
    where.transport.hold("abc")
    reading = asyncio.ensure_future(reader.read(0))
    await asyncio.sleep(3)
    plant(EntryRead, "on_late")
    await ends(reading)


async def an_answer_to_a_batch(where: FakeCluster, plant: Planting) -> None:
    reader = await reader_of(where, 3)
    plant(BatchRead, "verified")
    plant(BatchRead, "on_reply")
    for bookie in where.transport.bookies.values():
        bookie.code = Code.TIMEOUT
    await ends(reader.read_batch(0, 3))


async def a_late_answer_to_a_batch(where: FakeCluster, plant: Planting) -> None:
    reader = await reader_of(where, 3)
    where.transport.hold("abc")
    plant(BatchRead, "on_late")
    await ends(reader.read_batch(0, 3))


async def an_answer_about_the_lac(where: FakeCluster, plant: Planting) -> None:
    reader = await tail_of(where, await written(where, 2))
    plant(LacRead, "on_reply")
    plant(LacProgress, "on_reply")
    await ends(reader.read_last_add_confirmed())
    await ends(reader.try_read_last_add_confirmed())


async def an_answer_to_a_poll(where: FakeCluster, plant: Planting) -> None:
    reader = await tail_of(where, await written(where, 2))
    plant(LongPollRead, "on_reply")
    await ends(reader.read_last_add_confirmed_and_entry(2, 10.0))


async def a_late_answer_to_a_poll(where: FakeCluster, plant: Planting) -> None:
    reader = await tail_of(where, await written(where, 2))
    where.transport.hold("abc")
    plant(LongPollRead, "on_late")
    await ends(reader.read_last_add_confirmed_and_entry(2, 60.0))


async def a_poll_told_of_metadata(where: FakeCluster, plant: Planting) -> None:
    writer = await written(where, 2)
    reader = await tail_of(where, writer)
    where.transport.hold("abc")
    polling = asyncio.ensure_future(reader.read_last_add_confirmed_and_entry(2, 3600.0))
    await settled()
    plant(Poll, "_finish")
    await writer.close()
    await ends(polling)


async def a_change_of_the_metadata(where: FakeCluster, plant: Planting) -> None:
    writer = await written(where, 2)
    reader = await tail_of(where, writer)
    waiting = [asyncio.ensure_future(reader.wait_closed()) for _ in range(2)]
    await settled()
    plant(FollowedLedger, "_on_metadata")
    await writer.close()
    for waiter in waiting:
        await ends(waiter)


async def a_reader_at_the_end_of_the_client(where: FakeCluster, plant: Planting) -> None:
    writer = await written(where, 2)
    client = where.another_client()
    async with client as bk:
        reader = await bk.open_ledger(writer.ledger_id, password=b"secret", recover=False)
        waiting = asyncio.ensure_future(reader.wait_closed())
        await settled()
        followed_of(reader).on_client_closed = fails
    with pytest.raises(ClientClosed):
        await waiting


# Repairs -----------------------------------------------------------------------------------------------------------


def a_read_of_copies(target: type, name: str) -> Story:
    async def story(where: FakeCluster, plant: Planting) -> None:
        reader = await reader_of(where, 2)
        core = core_of(where.bk)
        codes: list[int] = []
        batch = ReadBatch(CopyReads(core, 1), reader._codec)
        plant(target, name)
        for entry_id in range(2):
            note = fails if name == "nothing" else lambda code, _: codes.append(code)
            await batch.read(entry_id, reader.metadata.last_fragment.ensemble[0], note)
        if name == "nothing":
            await ends(batch.drained())
        else:
            await batch.drained()
            assert codes == [Code.UNEXPECTED_CONDITION] * 2

    return story


# The table ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    handler: str
    story: Story
    config: ClientConfig = field(default_factory=ClientConfig)
    bookies: str = "abc"
    #: Whether the client has statistics, and whether ensembles may be changed.
    is_measured: bool = False
    may_change: bool = True


V2 = ClientConfig(connections=ConnectionSettings(protocol_version=2))
EXPLICIT_LACS = ClientConfig(writing=WritingSettings(explicit_lac_interval_s=2.0))
PATIENT = ClientConfig(timeouts=TimeoutSettings(backpressure_s=60.0))

ROWS = {
    "recovery, marking": Row(
        "recover._on_update_done", recovery_fails(RecoveryMachine, "on_update_done", marked=LedgerState.IN_RECOVERY)
    ),
    "recovery, fencing": Row("recover._on_fence_reply", recovery_fails(RecoveryMachine, "on_fence_reply")),
    "recovery, reading": Row("recover._on_read_reply", recovery_fails(RecoveryMachine, "on_read_reply")),
    "recovery, decoding": Row("recover._on_fence_reply", recovery_fails(EntryCodec, "decode")),
    "recovery, writing back": Row("recover.on_adds_stored", recovery_fails(RecoveryMachine, "acknowledged")),
    "recovery, not writing back": Row(
        "recover.on_add_failed", recovery_fails(RecoveryMachine, "on_add_reply", adds_fail=True)
    ),
    "a failed add": Row("writing.shell.on_add_failed", a_failure_of_an_add),
    "an add": Row("writing.shell.on_adds_stored", an_answer_to_an_add),
    "an add, measured": Row("writing.shell.on_adds_stored", an_answer_to_an_add, is_measured=True),
    "sending": Row("writing.shell.on_adds_stored", an_entry_that_cannot_be_sent),
    "encoding": Row("writing.shell.on_adds_stored", an_entry_with_an_id_that_cannot_be_sent),
    "accepting": Row("writing.shell.on_adds_stored", an_entry_that_never_became_one),
    "an add below a gap": Row("writing.shell.on_adds_stored", an_entry_above_a_gap),
    "the quorum timeout": Row("writing.shell._look", the_look_at_what_is_pending),
    "a late failure": Row("writing.shell._on_late_timer", a_late_failure, bookies="abcd"),
    "an ensemble change": Row("writing.shell._on_update_done", a_change_of_the_ensemble, bookies="abcd"),
    "an ensemble change, measured": Row(
        "writing.shell._on_update_done", a_change_of_the_ensemble, bookies="abcd", is_measured=True
    ),
    "metadata after a reconnect": Row("writing.ownership._on_timer", a_look_at_the_metadata("on_metadata")),
    "no metadata after a reconnect": Row(
        "writing.ownership._on_timer", a_look_at_the_metadata("on_read_failed", store_fails=True)
    ),
    "another look after a reconnect": Row(
        "writing.ownership._on_timer", a_look_at_the_metadata("on_retry", store_fails=True)
    ),
    "a close": Row("writing.shell._on_update_done", a_close),
    "a retry": Row("writing.shell._on_retry", a_retry, may_change=False),
    "the end of the client": Row("writing.shell._on_client_closed", the_end_of_the_client),
    "a force": Row("writing.force._on_reply", a_force),
    "an explicit LAC": Row("writing.explicit_lac._on_reply", an_explicit_lac),
    "a told LAC": Row("writing.explicit_lac._on_reply", a_told_lac_goes_on(LacWrite, "on_reply"), EXPLICIT_LACS),
    "the LAC timer": Row("writing.explicit_lac._on_tick", a_told_lac_goes_on(ExplicitLac, "on_tick"), EXPLICIT_LACS),
    "full connections": Row("connection_wait._look_at_connections", a_look_at_connections, PATIENT),
    "a read": Row("reading.entry_reads.on_reply", an_answer_to_a_read),
    "many reads": Row("reading.runs.__call__", an_answer_to_many_reads),
    "many answers": Row("reading.runs.on_found", many_answers_to_many_reads),
    "a late read": Row("reading.entry_reads._on_timer", a_late_answer_to_a_read),
    "a later read": Row("reading.late.on_late", a_second_late_answer_to_a_read),
    "a batch": Row("reading.batch_call._on_reply", an_answer_to_a_batch, V2),
    "a late batch": Row("reading.late.on_late", a_late_answer_to_a_batch, V2),
    "the LAC": Row("reading.lac._on_reply", an_answer_about_the_lac),
    "a poll": Row("reading.polls._on_reply", an_answer_to_a_poll),
    "a late poll": Row("reading.late.on_late", a_late_answer_to_a_poll),
    "a poll and the metadata": Row("reading.followed._on_watched", a_poll_told_of_metadata),
    "the metadata": Row("reading.followed._on_watched", a_change_of_the_metadata),
    "a reader and the end of the client": Row("reading.followed._on_client_closed", a_reader_at_the_end_of_the_client),
    "decoding a copy": Row("exchange.on_reply", a_read_of_copies(EntryCodec, "decode")),
    "noting a copy": Row("exchange.on_reply", a_read_of_copies(ReadBatch, "nothing")),
}

#: What errors call the operation, by module and, where that has several, by row.
CALLED = {
    "recover": "the recovery",
    "writing.shell": "the writer",
    "writing.ownership": "the writer",
    "writing.force": "a force",
    "writing.explicit_lac": "the writing of an explicit LAC",
    "connection_wait": "the wait for connections",
    "reading.entry_reads": "a read",
    "reading.batch_call": "a batch read",
    "reading.runs": "a read",
    "reading.lac": "a read of the last add confirmed",
    "reading.polls": "a long poll",
    "reading.followed": "a reader",
    "the LAC timer": "the timer of the explicit LAC",
    "a poll and the metadata": "a long poll",
    "decoding a copy": "a read of a copy",
    "a later read": "a read",
    "a late batch": "a batch read",
    "a late poll": "a long poll",
    "noting a copy": "a read of copies",
}

#: Handlers that end nobody's wait, or do nothing that could raise before they have.
HARMLESS = {
    "core.tell": "guards the handlers of updates",
    "reading.entry_reads.__call__": "calls on_reply, which is in the table",
    "reading.entry_reads.on_found": "calls on_reply, which is in the table",
    "repair.auditor._on_bookies": "sets an event",
    "repair.worker._on_bookies": "sets an event",
    "writing.admission._complete": "sets a future",
    "writing.shell.on_dropped": "stops the writer, which is what a handler that raised ends in",
}


def test_every_handler_is_in_the_table() -> None:
    assert {row.handler for row in ROWS.values()} | set(HARMLESS) == handlers()


@pytest.mark.parametrize("name", ROWS)
def test_an_operation_whose_handler_raises_ends_with_an_error(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    row = ROWS[name]

    def plant(target: type, method: str) -> Callable[[], None]:
        original = getattr(target, method, None)
        monkeypatch.setattr(target, method, fails, raising=False)
        return lambda: monkeypatch.setattr(target, method, original)

    async def play() -> None:
        async with fake_cluster(
            row.bookies,
            config=row.config,
            stats=MemoryStats() if row.is_measured else None,
            features=lambda _: not row.may_change,
        ) as where:
            try:
                await row.story(where, plant)
            finally:
                monkeypatch.undo()

    loop = NotingLoop()
    try:
        loop.run_until_complete(play())
        assert not loop.unretrieved, f"failed unseen: {loop.unretrieved}"
    finally:
        loop.close()
    assert loop.reported, "the error is known to nobody but the caller"
    assert {type(error) for error in loop.reported} == {PlantedError}
    what = CALLED.get(name) or CALLED[row.handler.rpartition(".")[0]]
    assert loop.messages == {f"a handler of {what} raised"}
    assert {error.message for error in loop.ends} <= {f"a handler of {what} raised PlantedError()"}
    assert all(error.ledger_id is not None for error in loop.ends)

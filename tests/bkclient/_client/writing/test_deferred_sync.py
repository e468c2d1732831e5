"""Ledgers with deferred sync: acknowledged before they are durable, and durable by force."""

from __future__ import annotations

import asyncio

import pytest

from bkclient._client.writing.writer import LedgerWriter
from bkclient.config import ClientConfig, ConnectionSettings
from bkclient.errors import (
    BookieNotAvailable,
    ClientClosed,
    Code,
    IllegalOperation,
    LedgerClosed,
    RequestTimeout,
    WriteFailed,
)
from bkclient.ledger import LedgerState
from bkclient.wire import bookkeeper_pb2
from bkclient.wire.connection import ClientConnection
from bkclient.wire.messages import AddRequest, ForceLedgerRequest, WriteFlags
from tests.bkclient.fakes import FakeCluster, advanced_writer_of, fake_cluster, payloads_of, writer_of
from tests.settling import settled


async def deferred(where: FakeCluster, sizes: tuple[int, int, int] = (3, 3, 2)) -> LedgerWriter:
    return await where.bk.create_ledger(
        ensemble_size=sizes[0],
        write_quorum_size=sizes[1],
        ack_quorum_size=sizes[2],
        password=b"secret",
        deferred_sync=True,
    )


@pytest.mark.rule("LAC-11")
@pytest.mark.rule("LAC-12")
@pytest.mark.behaviour("T-10")
@pytest.mark.behaviour("T-167")
@pytest.mark.behaviour("T-168")
async def test_entries_are_acknowledged_at_once_and_confirmed_by_force() -> None:
    async with fake_cluster() as where, await deferred(where) as writer:
        for entry_id in range(3):
            assert await writer.append(b"%d" % entry_id) == entry_id
        assert (writer.last_add_confirmed, writer.last_add_acknowledged, writer.last_add_pushed) == (-1, 2, 2)
        assert writer.is_deferred_sync
        await settled()
        flags = {request.write_flags for _, request in where.sent if isinstance(request, AddRequest)}
        assert flags == {WriteFlags.DEFERRED_SYNC}
        assert all(bookie.unforced == {writer.ledger_id: 3} for bookie in where.transport.bookies.values())

        await writer.force()
        assert writer.last_add_confirmed == 2
        assert not any(bookie.unforced for bookie in where.transport.bookies.values())


@pytest.mark.behaviour("T-33")
@pytest.mark.parametrize(("flags", "deferred"), [(0, False), (1, True), (6, False), (7, True)])
def test_deferred_sync_is_the_lowest_bit_on_the_wire_and_bits_nobody_knows_change_nothing(
    flags: int, deferred: bool
) -> None:
    assert int(WriteFlags.NONE) == 0
    assert bool(WriteFlags(flags) & WriteFlags.DEFERRED_SYNC) is deferred
    connection: ClientConnection[None] = ClientConnection(3)
    frame = b"".join(connection.send(AddRequest(7, 0, bytes(20), bytes(40), b"x", write_flags=flags), None))
    message = bookkeeper_pb2.Request.FromString(frame[4:])
    assert message.addRequest.HasField("writeFlags") is (flags != 0)
    assert message.addRequest.writeFlags == flags


@pytest.mark.behaviour("T-10")
async def test_an_ordinary_ledger_has_no_flags() -> None:
    async with fake_cluster() as where, await writer_of(where) as writer, await advanced_writer_of(where) as advanced:
        await writer.append(b"x")
        await advanced.append(0, b"x")

        assert not writer.is_deferred_sync
        assert {request.write_flags for _, request in where.sent if isinstance(request, AddRequest)} == {0}


@pytest.mark.rule("LAC-12")
async def test_forcing_before_anything_is_acknowledged_asks_nobody() -> None:
    async with fake_cluster() as where, await deferred(where) as writer:
        await writer.force()

        assert where.sent == []


@pytest.mark.behaviour("T-169")
async def test_force_on_an_advanced_writer_covers_the_prefix_without_a_gap() -> None:
    async with fake_cluster() as where:
        writer = await advanced_writer_of(where, deferred_sync=True)
        confirmed = []
        for entry_id in (0, 2, 4, 1, 3):
            writer.append_nowait(entry_id, b"x")
            await settled()
            await writer.force()
            confirmed.append(writer.last_add_confirmed)

        assert confirmed == [0, 0, 0, 2, 4]
        await writer.close()
        assert where.metadata(writer.ledger_id).last_entry_id == 4


@pytest.mark.rule("LAC-12")
@pytest.mark.behaviour("T-170")
async def test_force_needs_every_bookie_and_may_be_repeated() -> None:
    async with fake_cluster() as where, await deferred(where) as writer:
        await writer.append(b"x")
        await settled()
        where.transport.bookies["b"].code = Code.BOOKIE_NOT_AVAILABLE

        with pytest.raises(BookieNotAvailable) as caught:
            await writer.force()
        assert (caught.value.ledger_id, caught.value.bookie_id) == (writer.ledger_id, "b")
        assert writer.last_add_confirmed == -1

        where.transport.bookies["b"].code = None
        await writer.force()
        assert writer.last_add_confirmed == 0


@pytest.mark.rule("LAC-13")
@pytest.mark.behaviour("T-171")
async def test_an_entry_added_while_a_force_is_under_way_is_not_covered() -> None:
    async with fake_cluster() as where, await deferred(where) as writer:
        await writer.append(b"0")
        await settled()
        where.transport.hold("c")
        forcing = asyncio.create_task(writer.force())
        await settled()
        await writer.append(b"1")
        assert (writer.last_add_acknowledged, forcing.done()) == (1, False)

        where.transport.release("c")
        await forcing
        assert writer.last_add_confirmed == 0
        await writer.force()
        assert writer.last_add_confirmed == 1


@pytest.mark.rule("W-27")
@pytest.mark.behaviour("T-172")
async def test_a_failed_bookie_ends_the_writer_although_there_is_a_spare() -> None:
    async with fake_cluster("abcd") as where:
        writer = await deferred(where, (3, 3, 3))
        await writer.append(b"0")
        where.transport.bookies[writer.metadata.last_fragment.ensemble[0]].code = Code.TIMEOUT

        with pytest.raises(WriteFailed):
            await writer.append(b"1")
        await settled()
        assert len(where.metadata(writer.ledger_id).fragments) == 1


@pytest.mark.behaviour("T-173")
async def test_force_on_a_closed_handle_is_refused() -> None:
    async with fake_cluster() as where:
        writer = await deferred(where)
        await writer.append(b"x")
        await writer.close()
        with pytest.raises(LedgerClosed):
            await writer.force()
    with pytest.raises(ClientClosed):
        await writer.force()


@pytest.mark.rule("W-57")
@pytest.mark.rule("H-11")
@pytest.mark.behaviour("T-174")
async def test_an_explicit_close_cuts_off_what_was_not_forced_and_counts_its_bytes_out() -> None:
    async with fake_cluster() as where:
        writer = await deferred(where)
        await writer.append(b"forced")
        await writer.force()
        await writer.append(b"not forced")
        await writer.close()
        metadata = where.metadata(writer.ledger_id)
        assert (metadata.last_entry_id, metadata.length) == (0, 6)

        never_forced = await deferred(where)
        await never_forced.append(b"x")
        await never_forced.close()
        metadata = where.metadata(never_forced.ledger_id)
        assert (metadata.last_entry_id, metadata.length) == (-1, 0)


@pytest.mark.rule("H-11")
@pytest.mark.behaviour("T-174")
async def test_leaving_the_block_forces_first() -> None:
    async with fake_cluster() as where:
        async with await deferred(where) as writer:
            futures = [writer.append_nowait(b"%d" % number) for number in range(10)]

        assert [future.result() for future in futures] == list(range(10))
        assert await payloads_of(where, writer.ledger_id) == [b"%d" % number for number in range(10)]


@pytest.mark.rule("H-11")
async def test_leaving_the_block_by_an_exception_forces_too() -> None:
    async with fake_cluster() as where:
        writer = await deferred(where)

        async def use() -> None:
            async with writer:
                await writer.append(b"acknowledged")
                raise KeyError

        with pytest.raises(KeyError):
            await use()
        assert await payloads_of(where, writer.ledger_id) == [b"acknowledged"]


@pytest.mark.rule("H-11")
@pytest.mark.rule("LAC-15")
@pytest.mark.behaviour("T-175")
async def test_a_block_whose_force_fails_leaves_the_ledger_open_and_recovery_brings_everything_back() -> None:
    async with fake_cluster() as where:
        writer = await deferred(where)

        async def use() -> None:
            async with writer:
                for number in range(3):
                    await writer.append(b"%d" % number)
                await settled()
                where.transport.bookies["a"].code = Code.TIMEOUT

        with pytest.raises(RequestTimeout) as caught:
            await use()
        assert "was left open, because closing it now would cut off the entries after -1" in caught.value.__notes__[0]
        assert where.metadata(writer.ledger_id).state is LedgerState.OPEN

        where.transport.bookies["a"].code = None
        assert await payloads_of(where, writer.ledger_id) == [b"0", b"1", b"2"]


@pytest.mark.rule("LAC-14")
@pytest.mark.behaviour("T-176")
async def test_force_on_an_ordinary_ledger_succeeds_and_moves_nothing() -> None:
    async with fake_cluster() as where, await writer_of(where) as writer:
        for _ in range(3):
            await writer.append(b"x")
        await settled()
        where.sent.clear()
        await writer.force()

        assert writer.last_add_confirmed == 2
        assert [type(request) for _, request in where.sent] == [ForceLedgerRequest] * 3


@pytest.mark.rule("LAC-14")
async def test_force_over_version_2_is_an_illegal_operation() -> None:
    async with (
        fake_cluster(config=ClientConfig(connections=ConnectionSettings(protocol_version=2))) as where,
        await writer_of(where) as writer,
    ):
        await writer.append(b"x")
        with pytest.raises(IllegalOperation, match="version 3"):
            await writer.force()
        assert await writer.append(b"the writer goes on") == 1


async def test_a_force_whose_caller_gave_up_still_moves_the_lac() -> None:
    async with fake_cluster() as where, await deferred(where) as writer:
        await writer.append(b"x")
        await settled()
        where.transport.hold("abc")
        forcing = asyncio.create_task(writer.force())
        await settled()
        forcing.cancel()
        await settled()
        where.transport.release("abc")

        assert writer.last_add_confirmed == 0

"""A writer reads its own ledger up to what is confirmed."""

from __future__ import annotations

import pytest

from bkclient.errors import ArgumentError, ClientClosed, Code, NoSuchEntry, ReadFailed
from tests.bkclient.fakes import advanced_writer_of, fake_cluster, writer_of
from tests.settling import settled


async def test_a_writer_reads_what_it_has_confirmed_without_asking_how_far_that_is() -> None:
    async with fake_cluster() as where, await writer_of(where) as writer:
        for number in range(10):
            await writer.append(b"%d" % number)
        await settled()
        where.sent.clear()

        assert (await writer.reader.read(9)).payload == b"9"
        assert [entry.payload async for entry in writer.reader.read_range(2, 5)] == [b"2", b"3", b"4", b"5"]
        assert (await writer.reader.read_last_entry()).entry_id == 9
        assert {request.operation.name for _, request in where.sent} == {"READ_ENTRY"}
        assert await writer.append(b"it goes on") == 10


@pytest.mark.rule("R-19")
async def test_what_is_not_confirmed_is_not_read() -> None:
    async with fake_cluster() as where, await writer_of(where) as writer:
        with pytest.raises(NoSuchEntry):
            await writer.reader.read_last_entry()
        await writer.append(b"0")
        where.transport.hold("abc")
        writer.append_nowait(b"1")
        with pytest.raises(ReadFailed, match="entry 1"):
            await writer.reader.read(1)
        with pytest.raises(ReadFailed):
            writer.reader.read_range(0, 1)
        for first, last in ((-1, 0), (1, 0)):
            with pytest.raises(ArgumentError):
                writer.reader.read_range(first, last)
        where.transport.release("abc")


async def test_with_deferred_sync_what_is_not_forced_is_not_read() -> None:
    async with fake_cluster() as where, await advanced_writer_of(where, deferred_sync=True) as writer:
        await writer.append(0, b"0")
        with pytest.raises(ReadFailed):
            await writer.reader.read(0)
        await writer.force()
        assert (await writer.reader.read(0)).payload == b"0"


async def test_reads_go_to_the_bookies_of_their_fragments() -> None:
    async with fake_cluster("abcd") as where, await writer_of(where) as writer:
        await writer.append(b"0")
        gone = writer.metadata.last_fragment.ensemble[1]
        where.transport.bookies[gone].code = Code.BOOKIE_NOT_AVAILABLE
        for number in (1, 2, 3):
            await writer.append(b"%d" % number)
        await settled()
        where.sent.clear()

        assert len(writer.metadata.fragments) == 2
        assert [entry.payload async for entry in writer.reader.read_range(0, 3)] == [b"0", b"1", b"2", b"3"]
        asked_for_later = {b for b, r in where.sent if getattr(r, "entry_id", 0) > 0}
        assert gone not in asked_for_later


async def test_a_closed_writer_still_reads_and_a_closed_client_does_not() -> None:
    async with fake_cluster() as where:
        writer = await writer_of(where)
        await writer.append(b"0")
        await writer.close()
        assert writer.is_closed
        assert (await writer.reader.read_last_entry()).payload == b"0"
        assert writer.metadata_version == where.service.read(writer.ledger_id).version
    with pytest.raises(ClientClosed):
        await writer.reader.read(0)

"""What all handles have in common: they are ended by ``aclose`` or by a block, and ``repr`` says what state they are in."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

import bkclient
from bkclient import ClientConfig, LimitSettings, WritingSettings
from bkclient.coordination import LeaderElection
from bkclient.errors import ArgumentError, ClientClosed, LedgerFenced, MetadataStoreError
from bkclient.repair import RepairAdmin
from simbookie.cluster import memory_cluster
from tests.bkclient.fakes import advanced_writer_of, fake_cluster, payloads_of, writer_of
from tests.settling import settled


async def test_opening_a_ledger_leaves_its_writer_alone_unless_recovery_is_asked_for() -> None:
    async with fake_cluster() as where:
        writer = await writer_of(where)
        await writer.append(b"0")

        reader = await where.bk.open_ledger(writer.ledger_id, password=b"secret")
        administrator = await where.bk.open_ledger_as_administrator(writer.ledger_id)

        assert await writer.append(b"1") == 1
        assert not reader.is_closed
        assert not administrator.is_closed
        assert (await reader.read(0, unconfirmed=True)).payload == b"0"

        taken = await where.bk.open_ledger(writer.ledger_id, password=b"secret", recover=True)

        assert taken.is_closed
        assert taken.last_add_confirmed == 1
        with pytest.raises(LedgerFenced):
            await writer.append(b"2")


async def test_submit_waits_for_room_and_hands_out_a_future() -> None:
    async with fake_cluster(
        config=ClientConfig(
            limits=LimitSettings(max_in_flight_entries=2), writing=WritingSettings(explicit_lac_interval_s=0)
        )
    ) as where:
        writer = await writer_of(where)
        where.transport.hold("abc")
        first, second = await writer.submit(b"0"), await writer.submit(b"1")
        third = asyncio.ensure_future(writer.submit(b"2"))
        await settled()
        assert not third.done()
        assert not first.done()
        where.transport.release("abc")
        assert [await first, await second, await (await third)] == [0, 1, 2]
        await writer.aclose()
        assert await payloads_of(where, writer.ledger_id) == [b"0", b"1", b"2"]


async def test_submit_takes_ids_of_the_application_out_of_order() -> None:
    async with fake_cluster() as where:
        writer = await advanced_writer_of(where)
        later = await writer.submit(1, b"1")
        assert not later.done()
        assert [await (await writer.submit(0, b"0")), await later] == [0, 1]
        await writer.aclose()
        assert await payloads_of(where, writer.ledger_id) == [b"0", b"1"]


async def test_aclose_of_a_writer_keeps_what_is_in_flight_and_may_be_repeated() -> None:
    async with fake_cluster() as where:
        writer = await writer_of(where)
        future = await writer.submit(b"0")
        await writer.aclose()
        assert future.result() == 0
        assert writer.is_closed
        await writer.aclose()
        assert await payloads_of(where, writer.ledger_id) == [b"0"]


async def test_aclose_of_a_reader_ends_following_and_nothing_else() -> None:
    async with fake_cluster() as where:
        writer = await writer_of(where)
        await writer.append(b"0")
        reader = await where.bk.open_ledger(writer.ledger_id, password=b"secret")
        await reader.aclose()
        await reader.aclose()
        assert not reader.is_following
        assert await writer.append(b"1") == 1
        assert (await reader.read(1, unconfirmed=True)).payload == b"1"


async def test_a_client_can_be_held_without_a_block() -> None:
    async with memory_cluster() as uri:
        bk = await bkclient.connect(uri, rng=Random(1))
        async with await bk.create_ledger() as writer:
            await writer.append(b"0")
        reader = await bk.open_ledger(writer.ledger_id)
        assert (await reader.read(0)).payload == b"0"
        await bk.aclose()
        await bk.aclose()
        with pytest.raises(ClientClosed):
            await bk.ledger_metadata(writer.ledger_id)


async def test_a_client_that_was_never_entered_can_be_closed() -> None:
    async with fake_cluster() as where:
        unused = bkclient.BookKeeper(where.service.session(rng=Random(1)), where.transport)
        assert repr(unused) == "<BookKeeper not entered>"
        await unused.aclose()


async def test_a_connection_is_entered_once_and_its_store_is_closed_at_the_end() -> None:
    async with memory_cluster() as uri:
        pending = bkclient.connect(uri, rng=Random(1))
        async with pending as bk:
            with pytest.raises(ArgumentError, match="once"):
                await pending.__aenter__()
            store = bk._metadata
        with pytest.raises((MetadataStoreError, ClientClosed)):
            await store.bookies()


async def test_handles_show_their_ledger_and_its_state_and_no_secret() -> None:
    async with fake_cluster() as where:
        bk = where.bk
        assert repr(bk) == "<BookKeeper open>"
        writer = await writer_of(where)
        await writer.append(b"0")
        ledger_id = writer.ledger_id
        assert repr(writer) == f"<LedgerWriter ledger_id={ledger_id} open last_add_confirmed=0 last_add_pushed=0>"
        reader = await bk.open_ledger(ledger_id, password=b"secret")
        tail = reader.tail()
        assert (
            repr(reader) == f"<LedgerReader ledger_id={ledger_id} open last_add_confirmed={reader.last_add_confirmed}>"
        )
        assert repr(tail) == (
            f"<LedgerTail ledger_id={ledger_id} open next_entry_id=0 last_add_confirmed={reader.last_add_confirmed}>"
        )
        await tail.aclose()
        assert " ended " in repr(tail)
        await bk.open_ledger(ledger_id, password=b"secret", recover=True)
        with pytest.raises(LedgerFenced):
            await writer.append(b"1")
        assert " ended by LedgerFenced " in repr(writer)
        advanced = await advanced_writer_of(where)
        await advanced.aclose()
        assert repr(advanced).startswith(f"<AdvancedLedgerWriter ledger_id={advanced.ledger_id} closed ")
        assert repr(writer.reader) == f"<LedgerReads ledger_id={ledger_id} last_add_confirmed=0>"
        assert repr(RepairAdmin(bk)) == "<RepairAdmin of <BookKeeper open>>"
        assert repr(LeaderElection(bk, "indexer", "host-7")) == "<LeaderElection name='indexer' candidate='host-7'>"
        assert not any("secret" in repr(handle) for handle in (bk, writer, reader, tail, advanced))
    assert repr(bk) == "<BookKeeper closed>"


async def test_a_writer_has_reads_of_its_own_ledger_and_is_no_reader_itself() -> None:
    async with fake_cluster() as where:
        writer = await writer_of(where)
        await writer.append(b"0")
        assert [name for name in dir(writer) if name.startswith(("read", "try_read"))] == ["reader"]
        assert writer.reader is writer.reader
        assert (await writer.reader.read(0)).payload == b"0"
        assert (await writer.reader.read_last_entry()).entry_id == writer.reader.last_add_confirmed == 0

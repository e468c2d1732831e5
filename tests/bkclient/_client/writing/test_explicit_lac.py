"""Writers that tell the LAC besides entries, from a timer or when asked."""

from __future__ import annotations

import asyncio

import anyio
import pytest

from bkclient._client.writing.writer import LedgerWriter
from bkclient.config import ClientConfig, TimeoutSettings, WritingSettings
from bkclient.errors import ClientClosed, Code, LedgerClosed, WriteFailed
from bkclient.ledger import DigestType
from bkclient.wire.entry import EntryCodec
from bkclient.wire.messages import WriteLacRequest
from tests.bkclient.fakes import FakeCluster, fake_cluster, in_virtual_time, writer_of
from tests.bkclient.inside import has_lac_timer
from tests.settling import settled

EVERY_SECOND = ClientConfig(writing=WritingSettings(explicit_lac_interval_s=1.0))
CODEC_PASSWORD = b"secret"


def told(where: FakeCluster) -> list[tuple[str, int]]:
    """Who was told which LAC."""
    return [(bookie_id, request.lac) for bookie_id, request in where.sent if isinstance(request, WriteLacRequest)]


def decoded(where: FakeCluster, writer: LedgerWriter) -> set[int]:
    """The LACs that bookies keep, with their digests verified."""
    codec = EntryCodec(writer.ledger_id, DigestType.CRC32C, CODEC_PASSWORD)
    return {codec.decode_lac(b.explicit_lac) for b in where.transport.bookies.values() if b.explicit_lac is not None}


@pytest.mark.rule("LAC-5")
@pytest.mark.rule("LAC-6")
@pytest.mark.behaviour("T-158")
@in_virtual_time
async def test_an_idle_writer_tells_its_lac_by_the_second_interval_and_once() -> None:
    async with fake_cluster(config=EVERY_SECOND) as where, await writer_of(where) as writer:
        for _ in range(5):
            await writer.append(b"x")
        await anyio.sleep(1.5)
        assert told(where) == []  # entries carried it as far as 3
        await anyio.sleep(1)
        assert sorted(told(where)) == [("a", 4), ("b", 4), ("c", 4)]
        await anyio.sleep(10)

        assert len(told(where)) == 3
        assert decoded(where, writer) == {4}
        reader = await where.bk.open_ledger(writer.ledger_id, password=b"secret", recover=False)
        assert reader.last_add_confirmed == 4
        assert (await reader.read(4)).payload == b"x"


@pytest.mark.behaviour("T-157")
@in_virtual_time
async def test_without_an_interval_nothing_is_told_and_readers_lag_one_entry_behind() -> None:
    async with (
        fake_cluster(config=ClientConfig(writing=WritingSettings(explicit_lac_interval_s=0))) as where,
        await writer_of(where) as writer,
    ):
        for _ in range(5):
            await writer.append(b"x")
        await anyio.sleep(10)

        assert told(where) == []
        reader = await where.bk.open_ledger(writer.ledger_id, password=b"secret", recover=False)
        assert reader.last_add_confirmed == 3
        assert await reader.read_last_add_confirmed() == 3


@pytest.mark.rule("LAC-9")
@in_virtual_time
async def test_bookies_that_do_not_take_it_harm_nothing_and_are_told_again() -> None:
    async with fake_cluster(config=EVERY_SECOND) as where, await writer_of(where) as writer:
        await writer.append(b"x")
        await settled()
        for bookie in where.transport.bookies.values():
            bookie.code = Code.TIMEOUT
        await anyio.sleep(3.5)
        assert len(told(where)) >= 6
        for bookie in where.transport.bookies.values():
            bookie.code = None
        await anyio.sleep(2)

        assert decoded(where, writer) == {0}
        assert await writer.append(b"y") == 1


@in_virtual_time
async def test_a_closed_writer_and_a_closed_client_tell_nothing() -> None:
    async with fake_cluster(config=EVERY_SECOND) as where:
        writer, left_open = await writer_of(where), await writer_of(where)
        await writer.append(b"x")
        await left_open.append(b"x")
        await writer.close()
        await settled()
    where.sent.clear()
    await anyio.sleep(10)

    assert where.sent == []


@pytest.mark.rule("LAC-7")
@pytest.mark.behaviour("T-162")
async def test_the_lac_is_told_on_demand_to_its_write_set() -> None:
    async with fake_cluster("abcde") as where, await writer_of(where, (5, 3, 2)) as writer:
        assert await writer.write_explicit_lac() == -1
        assert where.sent == []
        for _ in range(4):
            await writer.append(b"x")
        await settled()

        assert await writer.write_explicit_lac() == 3
        ensemble = writer.metadata.last_fragment.ensemble
        assert told(where) == [(ensemble[position % 5], 3) for position in (3, 4, 5)]
        reader = await where.bk.open_ledger(writer.ledger_id, password=b"secret", recover=False)
        assert reader.last_add_confirmed == 3


@pytest.mark.behaviour("T-160")
async def test_with_deferred_sync_the_lac_told_is_the_one_forced() -> None:
    async with fake_cluster() as where:
        writer = await where.bk.create_ledger(write_quorum_size=3, password=b"secret", deferred_sync=True)
        for _ in range(3):
            await writer.append(b"x")
        assert await writer.write_explicit_lac() == -1
        await writer.force()
        await writer.append(b"not forced")

        assert await writer.write_explicit_lac() == 2
        reader = await where.bk.open_ledger(writer.ledger_id, password=b"secret", recover=False)
        assert reader.last_add_confirmed == 2


async def test_telling_succeeds_at_the_ack_quorum_and_fails_when_it_is_out_of_reach() -> None:
    async with fake_cluster() as where, await writer_of(where) as writer:
        await writer.append(b"x")
        await settled()
        where.transport.hold("c")
        assert await writer.write_explicit_lac() == 0

        where.transport.bookies["a"].code = where.transport.bookies["b"].code = Code.WRITE
        with pytest.raises(WriteFailed, match="too few bookies took the explicit LAC 0") as caught:
            await writer.write_explicit_lac()
        assert caught.value.ledger_id == writer.ledger_id
        where.transport.release("c")
        where.transport.bookies["a"].code = where.transport.bookies["b"].code = None
        assert await writer.append(b"the writer goes on") == 1


async def test_telling_on_an_ended_writer_is_refused() -> None:
    async with fake_cluster() as where:
        writer = await writer_of(where)
        await writer.append(b"x")
        await writer.close()
        with pytest.raises(LedgerClosed):
            await writer.write_explicit_lac()
    with pytest.raises(ClientClosed):
        await writer.write_explicit_lac()


async def test_telling_whose_caller_gave_up_ends_quietly() -> None:
    async with fake_cluster() as where, await writer_of(where) as writer:
        await writer.append(b"x")
        await settled()
        where.transport.hold("abc")
        telling = asyncio.create_task(writer.write_explicit_lac())
        await settled()
        telling.cancel()
        await settled()
        where.transport.release("abc", Code.WRITE)
        await settled()


# By default ---------------------------------------------------------------------------------------------------------


@pytest.mark.rule("LAC-5")
@in_virtual_time
async def test_by_default_a_single_entry_is_told_a_tenth_of_a_second_later() -> None:
    async with fake_cluster() as where, await writer_of(where) as writer:
        await writer.append(b"x")
        await anyio.sleep(0.099)
        assert told(where) == []
        await anyio.sleep(0.002)

        assert sorted(told(where)) == [("a", 0), ("b", 0), ("c", 0)]
        reader = await where.bk.open_ledger(writer.ledger_id, password=b"secret", recover=False)
        assert reader.last_add_confirmed == 0


@pytest.mark.rule("LAC-6")
@in_virtual_time
async def test_after_a_burst_the_last_entry_is_told_within_two_tenths_of_a_second_and_nothing_before() -> None:
    async with fake_cluster() as where, await writer_of(where) as writer:
        for _ in range(100):
            await writer.append(b"x")
            await anyio.sleep(0.009)
        assert told(where) == [], "entries carry the LAC of a writer that is busy"
        await anyio.sleep(0.2)

        assert sorted(told(where)) == [("a", 99), ("b", 99), ("c", 99)]


@pytest.mark.rule("LAC-6")
@in_virtual_time
async def test_a_writer_with_nothing_to_tell_has_no_timer() -> None:
    """A client may have thousands of ledgers open that nobody writes to."""
    async with (
        fake_cluster(config=ClientConfig(timeouts=TimeoutSettings(add_quorum_s=None))) as where,
        await writer_of(where) as writer,
    ):
        assert has_lac_timer(writer) is None, "it is not even made before the first entry"
        for number in range(3):
            await writer.append(b"x")
            assert has_lac_timer(writer)
            await anyio.sleep(10)
            assert not has_lac_timer(writer), "told"
            assert len(told(where)) == 3 * (number + 1)


@pytest.mark.rule("LAC-9")
@in_virtual_time
async def test_bookies_that_do_not_take_it_are_asked_less_and_less_often() -> None:
    async with fake_cluster() as where:
        writer = await writer_of(where)
        await writer.append(b"x")
        for bookie in where.transport.bookies.values():
            bookie.code = Code.TOO_MANY_REQUESTS
        await anyio.sleep(100)
        assert 3 * 10 <= len(told(where)) <= 3 * 20
        for bookie in where.transport.bookies.values():
            bookie.code = None
        await anyio.sleep(20)
        assert decoded(where, writer) == {0}
        count = len(told(where))
        await writer.append(b"x")
        await anyio.sleep(0.2)

        assert len(told(where)) == count + 3, "a success ends the waiting"


@pytest.mark.rule("LAC-12")
@in_virtual_time
async def test_what_a_force_confirms_is_told_although_no_entry_follows() -> None:
    async with fake_cluster() as where:
        writer = await where.bk.create_ledger(password=b"secret", write_quorum_size=3, deferred_sync=True)
        await writer.append(b"x")
        await anyio.sleep(10)
        assert told(where) == []

        await writer.force()
        await anyio.sleep(0.2)

        assert decoded(where, writer) == {0}


@in_virtual_time
async def test_no_timer_is_left_when_the_writer_has_ended() -> None:
    async with fake_cluster() as where:
        writer = await writer_of(where)
        await writer.append(b"x")
        await writer.close()
        await anyio.sleep(10)
        assert told(where) == []

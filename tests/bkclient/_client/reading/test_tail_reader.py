"""Reading ledgers that are still being written: nothing is fenced, nothing unconfirmed is shown, the end is followed."""

from __future__ import annotations

import asyncio

import pytest

from bkclient.config import ClientConfig
from bkclient.errors import Code, ReadFailed, RequestTimeout, UnauthorizedAccess
from bkclient.ledger import LedgerState
from bkclient.wire.entry import EntryCodec
from bkclient.wire.messages import LAST_ENTRY, ReadLacRequest, ReadRequest
from tests.bkclient._client.reading.ledgers import BOTH_VERSIONS, tail_of, written
from tests.bkclient.fakes import fake_cluster
from tests.settling import settled


@pytest.mark.rule("NR-1")
@pytest.mark.rule("NR-3")
@pytest.mark.rule("NR-5")
@pytest.mark.behaviour("T-27")
@pytest.mark.behaviour("T-112")
@pytest.mark.parametrize("config", BOTH_VERSIONS)
async def test_opening_without_recovery_fences_nothing_and_the_writer_goes_on(config: ClientConfig) -> None:
    async with fake_cluster(config=config) as where, await written(where, 3) as writer:
        reader = await tail_of(where, writer)

        assert not reader.is_closed
        assert reader.length == 0
        assert where.metadata(writer.ledger_id).state is LedgerState.OPEN
        assert await writer.append(b"3") == 3
        assert not any(isinstance(request, ReadRequest) and request.fence_key for _, request in where.sent)


@pytest.mark.rule("LAC-2")
@pytest.mark.rule("R-19")
@pytest.mark.rule("R-34")
@pytest.mark.rule("R-37")
@pytest.mark.behaviour("T-39")
@pytest.mark.parametrize("config", BOTH_VERSIONS)
async def test_a_tailing_reader_sees_what_entries_tell_and_reads_no_further(config: ClientConfig) -> None:
    async with fake_cluster(config=config) as where, await written(where, 5) as writer:
        where.sent.clear()
        reader = await tail_of(where, writer)

        wanted = ReadRequest if config.connections.protocol_version == 2 else ReadLacRequest
        assert [type(request) for _, request in where.sent] == [wanted] * 3
        assert reader.last_add_confirmed == 3
        assert [entry.payload async for entry in reader] == [b"0", b"1", b"2", b"3"]
        with pytest.raises(ReadFailed, match="entry 4") as caught:
            await reader.read(4)
        assert caught.value.entry_id == 4


@pytest.mark.rule("R-37")
async def test_over_version_2_the_last_entry_is_asked_for() -> None:
    async with fake_cluster(config=BOTH_VERSIONS[0]) as where, await written(where, 2) as writer:
        where.sent.clear()
        await tail_of(where, writer)

        assert {request.entry_id for _, request in where.sent if isinstance(request, ReadRequest)} == {LAST_ENTRY}


@pytest.mark.rule("NR-4")
@pytest.mark.behaviour("T-112")
async def test_the_lac_of_a_reader_moves_when_asked_to_and_not_by_itself() -> None:
    async with fake_cluster() as where, await written(where, 2) as writer:
        reader = await tail_of(where, writer)
        await writer.append(b"2")
        await settled()
        assert reader.last_add_confirmed == 0

        assert await reader.read_last_add_confirmed() == 1
        assert reader.last_add_confirmed == 1
        assert (await reader.read_last_entry()).payload == b"1"


@pytest.mark.rule("LAC-3")
@pytest.mark.rule("LAC-4")
async def test_answers_to_reads_move_the_lac_forward_and_never_back() -> None:
    async with fake_cluster() as where, await written(where, 6) as writer:
        reader = await tail_of(where, writer)
        assert reader.last_add_confirmed == 4

        for bookie in where.transport.bookies.values():
            bookie.max_lac = 5
        await reader.read(0)
        assert reader.last_add_confirmed == 5

        for bookie in where.transport.bookies.values():
            bookie.max_lac = 1
        await reader.read(0)
        assert reader.last_add_confirmed == 5


@pytest.mark.rule("R-35")
async def test_an_answer_that_is_behind_does_not_take_the_lac_back() -> None:
    async with fake_cluster() as where, await written(where, 4) as writer:
        reader = await tail_of(where, writer)
        for bookie in where.transport.bookies.values():
            del bookie.entries[writer.ledger_id, 3]

        assert await reader.read_last_add_confirmed() == 2


@pytest.mark.rule("R-34")
@pytest.mark.behaviour("T-146")
async def test_an_explicit_lac_counts_where_it_is_higher_than_the_last_entrys_and_where_there_is_no_entry() -> None:
    async with fake_cluster() as where, await written(where, 4) as writer:
        codec = EntryCodec(writer.ledger_id, writer.metadata.digest_type or 1, b"secret")  # type: ignore[arg-type]
        where.transport.bookies["a"].explicit_lac = codec.encode_lac(3)
        assert (await tail_of(where, writer)).last_add_confirmed == 3

        where.transport.bookies["a"].explicit_lac = codec.encode_lac(1)
        assert (await tail_of(where, writer)).last_add_confirmed == 2

        for bookie in where.transport.bookies.values():
            bookie.entries.clear()
        assert (await tail_of(where, writer)).last_add_confirmed == 1


@pytest.mark.rule("R-34")
@pytest.mark.behaviour("T-141")
async def test_a_ledger_nobody_knows_yet_has_nothing_confirmed() -> None:
    async with fake_cluster() as where, await written(where, 0) as writer:
        reader = await tail_of(where, writer)

        assert reader.last_add_confirmed == -1
        assert [entry async for entry in reader] == []


@pytest.mark.rule("R-36")
async def test_a_corrupt_answer_is_no_answer() -> None:
    async with fake_cluster() as where, await written(where, 3) as writer:
        for name in "ab":
            where.transport.bookies[name].entries[writer.ledger_id, 2] = b"rotten" * 20
        with pytest.raises(Exception, match="DIGEST_MATCH"):
            await tail_of(where, writer)

        where.transport.bookies["b"].explicit_lac = b"rotten" * 20
        del where.transport.bookies["b"].entries[writer.ledger_id, 2]
        with pytest.raises(Exception, match="DIGEST_MATCH"):
            await tail_of(where, writer)

        where.transport.bookies["b"].explicit_lac = None
        assert (await tail_of(where, writer)).last_add_confirmed == 1


@pytest.mark.rule("R-34")
@pytest.mark.rule("NR-2")
@pytest.mark.behaviour("T-18")
@pytest.mark.parametrize(("code", "error"), [(Code.TIMEOUT, RequestTimeout), (Code.UNAUTHORIZED, UnauthorizedAccess)])
async def test_a_lac_that_cannot_be_learned_is_an_error_with_the_ledgers_id(code: Code, error: type[Exception]) -> None:
    async with fake_cluster() as where, await written(where, 1) as writer:
        for name in "ab":
            where.transport.bookies[name].code = code

        with pytest.raises(error, match=f"ledger {writer.ledger_id}"):
            await tail_of(where, writer)
        assert where.service.snapshot().ledger_watches == {}
        for name in "ab":
            where.transport.bookies[name].code = None


@pytest.mark.rule("R-34")
async def test_one_silent_bookie_does_not_hold_up_the_answer() -> None:
    async with fake_cluster() as where, await written(where, 3) as writer:
        where.transport.hold("b")

        assert (await tail_of(where, writer)).last_add_confirmed == 1
        where.transport.release("b")


async def test_a_caller_that_gives_up_asking_leaves_the_reader_as_it_was() -> None:
    async with fake_cluster() as where, await written(where, 3) as writer:
        reader = await tail_of(where, writer)
        where.transport.hold("abc")
        asking = asyncio.create_task(reader.read_last_add_confirmed())
        await settled()
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        where.transport.release("abc")

        assert await reader.read_last_add_confirmed() == 1


# Following the metadata --------------------------------------------------------------------------------------------


@pytest.mark.rule("NR-7")
@pytest.mark.rule("M38")
async def test_a_reader_follows_ensemble_changes_and_asks_the_right_bookies() -> None:
    async with fake_cluster("ab") as where:
        writer = await written(where, 1, sizes=(1, 1, 1))
        reader = await tail_of(where, writer)
        (first,) = writer.metadata.last_fragment.ensemble
        where.transport.bookies[first].code = Code.WRITE
        await writer.append(b"1")
        await writer.append(b"2")
        where.transport.bookies[first].code = None
        await settled()
        assert len(reader.metadata.fragments) == 2
        assert reader.metadata_version == 1

        assert await reader.read_last_add_confirmed() == 1
        assert [entry.payload async for entry in reader] == [b"0", b"1"]
        await writer.close()


@pytest.mark.rule("NR-4")
@pytest.mark.rule("NR-7")
async def test_a_reader_learns_the_final_end_when_the_ledger_is_closed() -> None:
    async with fake_cluster() as where:
        writer = await written(where, 3)
        reader = await tail_of(where, writer)
        await writer.close()
        await settled()

        assert (reader.is_closed, reader.last_add_confirmed, reader.length) == (True, 2, 3)
        assert [entry.payload async for entry in reader] == [b"0", b"1", b"2"]
        where.sent.clear()
        assert await reader.read_last_add_confirmed() == 2
        assert where.sent == []


@pytest.mark.rule("NR-7")
async def test_a_ledger_that_was_closed_between_the_open_and_the_watch_is_seen_as_closed() -> None:
    async with fake_cluster() as where:
        writer = await written(where, 3)
        where.transport.hold("abc")
        opening = asyncio.create_task(tail_of(where, writer))
        await settled()
        await writer.close()
        where.transport.release("abc")
        reader = await opening
        await settled()

        assert (reader.is_closed, reader.last_add_confirmed) == (True, 2)


@pytest.mark.rule("B5")
async def test_an_answer_under_way_while_the_ledger_is_closed_does_not_move_the_end() -> None:
    async with fake_cluster() as where:
        writer = await written(where, 4)
        reader = await tail_of(where, writer)
        where.transport.hold("abc")
        asking = asyncio.create_task(reader.read_last_add_confirmed())
        await settled()
        where.edit(writer.ledger_id, lambda metadata: metadata.closed(1, 2))
        await settled()
        where.transport.release("abc")

        assert await asking == 1
        assert (reader.last_add_confirmed, reader.length) == (1, 2)


@pytest.mark.rule("NR-7")
async def test_the_deletion_of_the_ledger_is_ignored() -> None:
    async with fake_cluster() as where:
        writer = await written(where, 3)
        reader = await tail_of(where, writer)
        await where.bk.delete_ledger(writer.ledger_id)
        await settled()

        assert not reader.is_closed
        assert [entry.payload async for entry in reader] == [b"0", b"1"]


@pytest.mark.rule("NR-8")
async def test_a_reader_that_is_closed_follows_no_more() -> None:
    async with fake_cluster() as where:
        writer = await written(where, 3)
        async with await tail_of(where, writer) as reader:
            assert where.service.snapshot().ledger_watches != {}
        assert where.service.snapshot().ledger_watches == {}
        await writer.close()
        await settled()

        assert not reader.is_closed
        await reader.aclose()

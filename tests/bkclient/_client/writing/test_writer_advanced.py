"""Writers whose entry ids the application chooses."""

from __future__ import annotations

import asyncio
import random

import pytest

from bkclient.config import ClientConfig, LimitSettings
from bkclient.errors import (
    ArgumentError,
    Code,
    DuplicateEntryId,
    LedgerClosed,
    LedgerFenced,
    TooManyRequests,
)
from bkclient.ledger import DigestType
from tests.bkclient.fakes import advanced_writer_of, fake_cluster, payloads_of, writer_of
from tests.bkclient.inside import shell_of
from tests.settling import settled

# Ids ----------------------------------------------------------------------------------------------------------------


@pytest.mark.rule("W-5")
@pytest.mark.rule("API-16")
@pytest.mark.behaviour("T-22")
@pytest.mark.behaviour("T-61")
async def test_entries_in_any_order_complete_in_the_order_of_ids_and_read_back() -> None:
    async with fake_cluster() as where, await advanced_writer_of(where) as writer:
        ids = list(range(50))
        random.Random(1).shuffle(ids)
        done: list[int] = []
        futures = {entry_id: writer.append_nowait(entry_id, b"%d" % entry_id) for entry_id in ids}
        for future in futures.values():
            future.add_done_callback(lambda finished: done.append(finished.result()))
        await writer.flush()
        await settled()

        assert done == list(range(50))
        assert all(future.result() == entry_id for entry_id, future in futures.items())
        assert (writer.last_add_confirmed, writer.last_add_pushed, writer.in_flight_entries) == (49, 49, 0)
        await writer.close()
        assert await payloads_of(where, writer.ledger_id) == [b"%d" % entry_id for entry_id in range(50)]
        assert where.metadata(writer.ledger_id).length == sum(len(b"%d" % entry_id) for entry_id in range(50))


@pytest.mark.rule("API-16")
async def test_an_entry_above_a_gap_is_not_acknowledged_until_it_is_filled() -> None:
    async with fake_cluster() as where, await advanced_writer_of(where) as writer:
        above = writer.append_nowait(1, b"1")
        await settled()
        assert not above.done()

        assert await writer.append(0, b"0") == 0
        assert await above == 1


@pytest.mark.behaviour("T-22")
@pytest.mark.behaviour("T-70")
async def test_a_repeated_id_is_refused_and_the_original_completes() -> None:
    async with fake_cluster() as where, await advanced_writer_of(where) as writer:
        where.transport.hold("abc")
        original = writer.append_nowait(0, b"original")
        with pytest.raises(DuplicateEntryId) as caught:
            writer.append_nowait(0, b"repeated")
        assert (caught.value.ledger_id, caught.value.entry_id) == (writer.ledger_id, 0)
        with pytest.raises(DuplicateEntryId):
            await writer.append(0, b"repeated")
        assert writer.in_flight_entries == 1
        where.transport.release("abc")

        assert await original == 0
        with pytest.raises(DuplicateEntryId):
            await writer.append(0, b"acknowledged by now")
        with pytest.raises(DuplicateEntryId):
            await writer.append(-1, b"negative")
        assert await writer.append(1, b"next") == 1
        await writer.close()
        assert await payloads_of(where, writer.ledger_id) == [b"original", b"next"]


@pytest.mark.rule("H-3")
async def test_a_repeated_id_that_is_acknowledged_and_not_forced_is_refused_too() -> None:
    async with fake_cluster() as where, await advanced_writer_of(where, deferred_sync=True) as writer:
        await writer.append(0, b"0")
        assert writer.last_add_confirmed == -1

        with pytest.raises(DuplicateEntryId):
            await writer.append(0, b"again")
        assert await writer.append(1, b"1") == 1


@pytest.mark.rule("H-2")
async def test_of_many_callers_with_one_id_exactly_one_succeeds() -> None:
    async with fake_cluster() as where, await advanced_writer_of(where) as writer:
        results = await asyncio.gather(
            *(writer.append(0, b"%d" % caller) for caller in range(20)), return_exceptions=True
        )

        assert [result for result in results if result == 0] == [0]
        assert sum(isinstance(result, DuplicateEntryId) for result in results) == 19


@pytest.mark.rule("API-14")
@pytest.mark.behaviour("T-62")
@pytest.mark.behaviour("T-63")
async def test_an_append_of_the_other_kind_does_not_exist() -> None:
    async with fake_cluster() as where, await advanced_writer_of(where) as given, await writer_of(where) as counted:
        with pytest.raises(TypeError):
            given.append_nowait(b"no id")  # type: ignore[call-arg, arg-type]
        with pytest.raises(TypeError):
            counted.append_nowait(0, b"an id")  # type: ignore[call-arg, arg-type]
        reader = await where.bk.open_ledger(counted.ledger_id, password=b"secret", recover=False)
        assert not hasattr(reader, "append")
        await reader.aclose()
        assert where.sent == [item for item in where.sent if item[1].operation.name == "READ_LAC"]


@pytest.mark.parametrize("entry_id", ["0", 0.0, None, True, b"0", 2**63])
async def test_what_is_no_entry_id_is_refused_before_anything_is_sent(entry_id: object) -> None:
    async with fake_cluster() as where, await advanced_writer_of(where) as writer:
        with pytest.raises(ArgumentError):
            await writer.append(entry_id, b"x")  # type: ignore[arg-type]
        with pytest.raises(ArgumentError):
            writer.append_nowait(entry_id, b"x")  # type: ignore[arg-type]

        assert where.sent == []
        assert (writer.in_flight_entries, where.bk.in_flight_entries) == (0, 0)


# The end ------------------------------------------------------------------------------------------------------------


@pytest.mark.rule("W-23")
@pytest.mark.behaviour("T-69")
async def test_a_ledger_with_a_skipped_id_ends_before_it() -> None:
    async with fake_cluster() as where:
        writer = await advanced_writer_of(where)
        for entry_id in range(5):
            await writer.append(entry_id, b"%d" % entry_id)
        beyond = [writer.append_nowait(entry_id, b"beyond") for entry_id in (6, 7, 8)]
        await settled()
        assert not any(future.done() for future in beyond)

        await writer.flush()  # waits for nothing that cannot come
        await writer.close()

        assert all(isinstance(future.exception(), LedgerClosed) for future in beyond)
        reader = await where.bk.open_ledger(writer.ledger_id, password=b"secret", recover=True)
        assert reader.last_add_confirmed == 4
        assert reader.length == 5


@pytest.mark.rule("W-23")
async def test_leaving_the_block_with_a_gap_says_what_is_missing_and_closes_before_it() -> None:
    async with fake_cluster() as where:
        writer = await advanced_writer_of(where)

        async def use() -> None:
            async with writer:
                for entry_id in (0, 2, 3):
                    writer.append_nowait(entry_id, b"x")

        with pytest.raises(LedgerClosed, match=r"entry 1 was never appended.* 2 entries beyond") as caught:
            await use()
        assert caught.value.entry_id == 2
        assert where.metadata(writer.ledger_id).last_entry_id == 0


@pytest.mark.behaviour("T-66")
async def test_an_append_after_the_close_is_refused() -> None:
    async with fake_cluster() as where:
        writer = await advanced_writer_of(where)
        await writer.append(0, b"0")
        await writer.close()

        with pytest.raises(LedgerClosed):
            await writer.append(1, b"late")
        with pytest.raises(LedgerClosed):
            writer.append_nowait(7, b"late")


@pytest.mark.behaviour("T-56")
@pytest.mark.behaviour("T-60")
@pytest.mark.parametrize("digest_type", list(DigestType))
async def test_advanced_ledgers_of_every_digest_type_read_back(digest_type: DigestType) -> None:
    async with fake_cluster() as where:
        writer = await where.bk.create_advanced_ledger(digest_type=digest_type, password=b"secret", ledger_id=77)
        async with writer:
            for entry_id in (1, 0, 2):
                writer.append_nowait(entry_id, b"%d" % entry_id)

        assert await payloads_of(where, 77) == [b"0", b"1", b"2"]


# Failures -----------------------------------------------------------------------------------------------------------


@pytest.mark.behaviour("T-67")
async def test_bookies_that_fail_between_and_during_the_writes_cost_no_entry() -> None:
    async with fake_cluster("abcdef") as where:
        writer = await advanced_writer_of(where)
        ids = list(range(60))
        random.Random(2).shuffle(ids)
        futures = []
        for count, entry_id in enumerate(ids):
            futures.append(writer.append_nowait(entry_id, b"%d" % entry_id))
            if count in {20, 40}:
                where.transport.bookies[writer.metadata.last_fragment.ensemble[count // 20]].code = Code.WRITE
                await settled()
        await asyncio.gather(*futures)
        await writer.close()

        assert await payloads_of(where, writer.ledger_id) == [b"%d" % entry_id for entry_id in range(60)]
        assert len({b for f in writer.metadata.fragments for b in f.ensemble}) > 3


@pytest.mark.behaviour("T-68")
async def test_an_entry_far_ahead_is_rewritten_when_all_bookies_are_replaced() -> None:
    async with fake_cluster("abcdef") as where:
        writer = await advanced_writer_of(where)
        for entry_id in range(5):
            await writer.append(entry_id, b"%d" % entry_id)
        ahead = writer.append_nowait(10, b"10")
        await settled()
        before = writer.metadata.last_fragment.ensemble
        for bookie_id in before:
            where.transport.bookies[bookie_id].code = Code.BOOKIE_NOT_AVAILABLE
        futures = [writer.append_nowait(entry_id, b"%d" % entry_id) for entry_id in range(5, 10)]
        await asyncio.gather(*futures, ahead)
        await writer.close()

        assert set(writer.metadata.last_fragment.ensemble).isdisjoint(before)
        for bookie_id in before:
            where.transport.bookies[bookie_id].code = None
        assert await payloads_of(where, writer.ledger_id) == [b"%d" % entry_id for entry_id in range(11)]


async def test_entries_above_a_gap_fail_with_the_writer() -> None:
    async with fake_cluster() as where:
        writer = await advanced_writer_of(where)
        beyond = writer.append_nowait(5, b"x")
        await settled()
        for bookie in where.transport.bookies.values():
            bookie.code = Code.LEDGER_FENCED
        failing = writer.append_nowait(0, b"x")
        await settled()

        assert isinstance(failing.exception(), LedgerFenced)
        assert isinstance(beyond.exception(), LedgerFenced)
        with pytest.raises(LedgerFenced):
            await writer.flush()


# The window ---------------------------------------------------------------------------------------------------------


async def test_a_window_full_of_entries_above_a_gap_lets_the_missing_ones_pass() -> None:
    async with (
        fake_cluster(config=ClientConfig(limits=LimitSettings(max_in_flight_entries=3))) as where,
        await advanced_writer_of(where) as writer,
    ):
        beyond = [writer.append_nowait(entry_id, b"x") for entry_id in (3, 4, 5)]
        with pytest.raises(TooManyRequests, match="3 entries"):
            writer.append_nowait(6, b"x")
        waiting = [asyncio.create_task(writer.append(entry_id, b"x")) for entry_id in (7, 6, 2, 1)]
        await settled()
        assert not any(task.done() for task in waiting)

        async with asyncio.timeout(5):
            assert await writer.append(0, b"x") == 0
            assert await asyncio.gather(*waiting) == [7, 6, 2, 1]
        assert [future.result() for future in beyond] == [3, 4, 5]
        assert (where.bk.in_flight_entries, writer.in_flight_bytes, shell_of(writer).turns) == (0, 0, {})


async def test_waiting_for_the_room_of_the_next_entry_takes_no_time() -> None:
    async with (
        fake_cluster(config=ClientConfig(limits=LimitSettings(max_in_flight_entries=1))) as where,
        await advanced_writer_of(where) as writer,
    ):
        writer.append_nowait(1, b"x")
        await writer.wait_for_room(0)
        assert await writer.append(0, b"x") == 0


async def test_who_waits_for_an_advanced_writer_learns_of_its_end() -> None:
    async with fake_cluster(config=ClientConfig(limits=LimitSettings(max_in_flight_entries=1))) as where:
        writer = await advanced_writer_of(where)
        writer.append_nowait(5, b"x")
        waiting = [asyncio.create_task(writer.append(entry_id, b"x")) for entry_id in (6, 7)]
        await settled()
        await writer.close()

        results = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(result) for result in results] == [LedgerClosed, LedgerClosed]
        assert shell_of(writer).turns == {}

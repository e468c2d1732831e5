"""Appending through the writer: buffers, futures, flushing, and the errors an application sees."""

from __future__ import annotations

import asyncio

import pytest

from bkclient.config import ClientConfig, LimitSettings, WritingSettings
from bkclient.errors import (
    ArgumentError,
    BookKeeperError,
    Code,
    IllegalOperation,
    LedgerClosed,
    LedgerFenced,
    NotEnoughBookies,
    WriteFailed,
)
from bkclient.ledger import LedgerState
from bkclient.wire.messages import AddRequest
from tests.bkclient.fakes import fake_cluster, payloads_of, writer_of
from tests.settling import settled

TINY_WINDOW = ClientConfig(limits=LimitSettings(max_in_flight_entries=2))


# Appending ----------------------------------------------------------------------------------------------------------


@pytest.mark.rule("W-4")
@pytest.mark.rule("API-15")
@pytest.mark.behaviour("T-21")
@pytest.mark.behaviour("T-23")
@pytest.mark.parametrize(
    "payload", [b"bytes", bytearray(b"array"), memoryview(b"view"), b"", memoryview(b"v.i.e.w")[::2]]
)
async def test_every_kind_of_buffer_is_appended_and_read_back(payload: bytes | bytearray | memoryview) -> None:
    async with fake_cluster() as where, await writer_of(where) as writer:
        assert await writer.append(payload) == 0
        assert (writer.last_add_confirmed, writer.last_add_pushed) == (0, 0)
        assert writer.length == len(bytes(payload))
        await writer.close()

        assert await payloads_of(where, writer.ledger_id) == [bytes(payload)]


async def test_a_buffer_may_be_changed_as_soon_as_append_nowait_returned() -> None:
    async with fake_cluster() as where, await writer_of(where) as writer:
        buffer = bytearray(b"before")
        future = writer.append_nowait(buffer)
        buffer[:] = b"after!"
        await future
        await writer.close()

        assert await payloads_of(where, writer.ledger_id) == [b"before"]


@pytest.mark.rule("W-21")
async def test_futures_complete_in_the_order_of_entry_ids() -> None:
    async with fake_cluster() as where, await writer_of(where) as writer:
        done: list[int] = []
        futures = [writer.append_nowait(b"x") for _ in range(50)]
        for future in futures:
            future.add_done_callback(lambda finished: done.append(finished.result()))

        assert writer.in_flight_entries == 50
        await writer.flush()
        await settled()

        assert done == list(range(50))
        assert writer.in_flight_entries == 0


@pytest.mark.parametrize("payload", ["text", None, 7, [b"x"], object()])
async def test_what_is_not_bytes_like_is_refused_before_anything_is_sent(payload: object) -> None:
    async with fake_cluster() as where, await writer_of(where) as writer:
        with pytest.raises(ArgumentError, match=rf"ledger {writer.ledger_id}.*got {type(payload).__name__}"):
            await writer.append(payload)  # type: ignore[arg-type]

        assert where.sent == []
        assert writer.last_add_pushed == -1


async def test_a_payload_that_no_frame_can_carry_is_refused_and_the_largest_that_fits_is_not() -> None:
    config = ClientConfig(limits=LimitSettings(max_frame_size_bytes=1024))
    async with fake_cluster(config=config) as where, await writer_of(where) as writer:
        with pytest.raises(ArgumentError, match="payload must be <= 832 bytes to fit a frame, got 1024"):
            await writer.append(bytes(1024))
        assert where.sent == []

        assert await writer.append(bytes(832)) == 0


@pytest.mark.rule("W-11")
async def test_all_replicas_get_the_same_request_and_resends_too() -> None:
    async with fake_cluster("abcd") as where:
        writer = await writer_of(where)
        victim = writer.metadata.last_fragment.ensemble[0]
        where.transport.bookies[victim].code = Code.WRITE
        await writer.append(b"x")
        await settled()

        requests = {(r.entry_id, r.body) for _, r in where.sent if isinstance(r, AddRequest)}
        assert len(requests) == 1
        assert len(where.sent) == 4


async def test_appending_takes_no_task() -> None:
    async with fake_cluster() as where, await writer_of(where) as writer:
        where.transport.hold("abc")
        before = len(asyncio.all_tasks())
        futures = [writer.append_nowait(b"x") for _ in range(1000)]
        await settled()

        assert len(asyncio.all_tasks()) == before
        where.transport.release("abc")
        assert await futures[-1] == 999


# Errors -------------------------------------------------------------------------------------------------------------


@pytest.mark.rule("W-17")
@pytest.mark.rule("W-42")
@pytest.mark.parametrize(
    ("code", "error"),
    [(Code.LEDGER_FENCED, LedgerFenced), (Code.ILLEGAL_OPERATION, IllegalOperation), (Code.WRITE, NotEnoughBookies)],
)
async def test_a_failed_append_says_which_ledger_and_entry_and_why(code: Code, error: type[BookKeeperError]) -> None:
    async with fake_cluster() as where:
        writer = await writer_of(where)
        await writer.append(b"kept")
        for bookie in where.transport.bookies.values():
            bookie.code = code

        futures = [writer.append_nowait(b"lost"), writer.append_nowait(b"lost too")]
        for entry_id, future in enumerate(futures, start=1):
            with pytest.raises(error) as caught:
                await future
            assert (caught.value.ledger_id, caught.value.entry_id) == (writer.ledger_id, entry_id)
            assert "bookie" in str(caught.value)
        assert len({id(future.exception()) for future in futures}) == 2

        with pytest.raises(error):
            writer.append_nowait(b"refused")
        await writer.close()
        assert where.metadata(writer.ledger_id).last_entry_id == 0


@pytest.mark.behaviour("T-29")
@pytest.mark.behaviour("T-108")
@pytest.mark.rule("REC-43")
async def test_a_writer_whose_ledger_was_taken_over_is_fenced_and_both_agree_on_the_end() -> None:
    async with fake_cluster() as where:
        writer = await writer_of(where)
        await writer.append(b"kept")
        async with where.another_client() as other:
            reader = await other.open_ledger(writer.ledger_id, password=b"secret", recover=True)

        with pytest.raises(LedgerFenced):
            await writer.append(b"late")
        await writer.close()

        assert reader.last_add_confirmed == writer.last_add_confirmed == 0


@pytest.mark.behaviour("T-107")
async def test_a_hundred_appends_after_a_takeover_all_end() -> None:
    async with fake_cluster() as where:
        writer = await writer_of(where)
        async with where.another_client() as other:
            await other.open_ledger(writer.ledger_id, password=b"secret", recover=True)

        results = await asyncio.gather(*(writer.append(b"x") for _ in range(100)), return_exceptions=True)

        assert {type(result) for result in results} == {LedgerFenced}


@pytest.mark.rule("W-44")
async def test_a_writer_that_learns_of_a_recovery_from_the_metadata_goes_on_refusing_as_fenced() -> None:
    async with fake_cluster("abcd") as where:
        writer = await writer_of(where)
        where.edit(writer.ledger_id, lambda metadata: metadata.with_state(LedgerState.IN_RECOVERY))
        where.transport.bookies[writer.metadata.last_fragment.ensemble[0]].code = Code.TIMEOUT

        with pytest.raises(LedgerFenced):
            await writer.append(b"x")
        with pytest.raises(LedgerFenced):
            writer.append_nowait(b"y")
        with pytest.raises(LedgerFenced):
            await writer.flush()

        assert where.metadata(writer.ledger_id).state is LedgerState.IN_RECOVERY


@pytest.mark.rule("W-29")
async def test_the_configured_number_of_ensemble_changes_is_the_last() -> None:
    async with fake_cluster("abcd", config=ClientConfig(writing=WritingSettings(max_ensemble_changes=1))) as where:
        writer = await writer_of(where, (1, 1, 1))
        for bookie in where.transport.bookies.values():
            bookie.code = Code.WRITE

        with pytest.raises(WriteFailed, match="entry 0"):
            await writer.append(b"x")

        assert len(where.sent) == 2


async def test_futures_that_nobody_awaits_do_not_complain() -> None:
    complaints: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: complaints.append(context))
    async with fake_cluster() as where:
        writer = await writer_of(where)
        for bookie in where.transport.bookies.values():
            bookie.code = Code.LEDGER_FENCED
        for _ in range(10):
            writer.append_nowait(b"x")
        await settled()

    assert complaints == []


@pytest.mark.rule("W-42")
async def test_an_append_whose_caller_gave_up_fails_with_the_others_without_complaint() -> None:
    async with fake_cluster() as where:
        writer = await writer_of(where)
        where.transport.hold("abc")
        given_up, waited_for = writer.append_nowait(b"0"), writer.append_nowait(b"1")
        given_up.cancel()
        flushing = asyncio.create_task(writer.flush())
        await settled()
        flushing.cancel()
        await settled()

        where.transport.release("abc", Code.LEDGER_FENCED)

        assert isinstance(waited_for.exception(), LedgerFenced)
        with pytest.raises(LedgerFenced, match="entry 0"):
            await writer.flush()


# Flushing -----------------------------------------------------------------------------------------------------------


async def test_flushing_waits_for_what_was_appended_before_it_and_for_no_more() -> None:
    async with fake_cluster() as where, await writer_of(where, (1, 1, 1)) as writer:
        where.transport.hold("abc")
        writer.append_nowait(b"0")
        flushed = asyncio.create_task(writer.flush())
        await settled()
        assert not flushed.done()
        where.transport.release("abc")
        where.transport.hold("abc")
        writer.append_nowait(b"1")

        await flushed
        assert writer.in_flight_entries == 1
        where.transport.release("abc")


async def test_flushing_with_nothing_in_flight_returns_at_once() -> None:
    async with fake_cluster() as where, await writer_of(where) as writer:
        await writer.flush()
        await writer.append(b"x")
        await writer.flush()


async def test_flushing_raises_what_the_first_failed_append_failed_with_to_everybody_and_every_time() -> None:
    async with fake_cluster() as where:
        writer = await writer_of(where)
        where.transport.hold("abc")
        writer.append_nowait(b"0")
        writer.append_nowait(b"1")
        flushing = [asyncio.create_task(writer.flush()) for _ in range(3)]
        await settled()

        where.transport.release("abc", Code.LEDGER_FENCED)
        results = await asyncio.gather(*flushing, return_exceptions=True)
        assert [type(result) for result in results] == [LedgerFenced] * 3
        with pytest.raises(LedgerFenced, match="entry 0"):
            await writer.flush()


@pytest.mark.rule("W-52")
async def test_flushing_after_a_close_that_left_entries_behind_says_so() -> None:
    async with fake_cluster() as where:
        writer = await writer_of(where)
        await writer.append(b"kept")
        where.transport.hold("abc")
        future = writer.append_nowait(b"lost")
        await writer.close()

        with pytest.raises(LedgerClosed, match="entry 1"):
            await writer.flush()
        with pytest.raises(LedgerClosed):
            await future
        assert where.metadata(writer.ledger_id).last_entry_id == 0


async def test_flushing_after_a_close_that_lost_nothing_is_fine() -> None:
    async with fake_cluster() as where:
        writer = await writer_of(where)
        await writer.append(b"kept")
        await writer.close()

        await writer.flush()

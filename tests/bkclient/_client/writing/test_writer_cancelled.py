"""A cancelled append gives up its answer and nothing else: the entry stays where it is, in every order of events."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bkclient._client.writing.advanced import AdvancedLedgerWriter
from bkclient._client.writing.outcomes import AppendFuture
from bkclient._client.writing.writer import LedgerWriter
from bkclient.errors import LedgerFenced
from tests.bkclient.fakes import FakeCluster, advanced_writer_of, fake_cluster, in_virtual_time, payloads_of, writer_of
from tests.settling import settled


def append_all(writer: LedgerWriter | AdvancedLedgerWriter, count: int) -> list[AppendFuture]:
    if isinstance(writer, AdvancedLedgerWriter):
        return [writer.append_nowait(entry_id, b"%d" % entry_id) for entry_id in reversed(range(count))][::-1]
    return [writer.append_nowait(b"%d" % entry_id) for entry_id in range(count)]


def assert_in_flight(where: FakeCluster, writer: LedgerWriter | AdvancedLedgerWriter, count: int) -> None:
    """Entries of one byte each, none of which is acknowledged."""
    assert (writer.last_add_acknowledged, writer.last_add_pushed, writer.length) == (-1, count - 1, count)
    assert (writer.in_flight_entries, writer.in_flight_bytes) == (count, count)
    assert (where.bk.in_flight_entries, where.bk.in_flight_bytes) == (count, count)


@pytest.mark.rule("W-21")
@pytest.mark.parametrize("cancelled", [[0], [1], [3], [0, 1, 2, 3], [1, 2]])
@pytest.mark.parametrize("new_writer", [writer_of, advanced_writer_of])
async def test_cancelling_appends_takes_no_entry_out(
    cancelled: list[int], new_writer: Callable[[FakeCluster], asyncio.Future[LedgerWriter | AdvancedLedgerWriter]]
) -> None:
    async with fake_cluster() as where:
        writer = await new_writer(where)
        where.transport.hold("abc")
        futures = append_all(writer, 4)
        for entry_id in cancelled:
            assert futures[entry_id].cancel()
        await settled()
        assert_in_flight(where, writer, 4)
        assert writer.last_add_confirmed == -1

        where.transport.release("abc")
        await writer.flush()

        assert writer.last_add_confirmed == 3
        kept = [future for entry_id, future in enumerate(futures) if entry_id not in cancelled]
        assert [await future for future in kept] == [entry_id for entry_id in range(4) if entry_id not in cancelled]
        assert (writer.in_flight_bytes, where.bk.in_flight_entries, where.bk.in_flight_bytes) == (0, 0, 0)
        await writer.close()
        assert await payloads_of(where, writer.ledger_id) == [b"0", b"1", b"2", b"3"]


@pytest.mark.rule("W-21")
async def test_what_comes_after_a_cancelled_append_waits_for_its_entry() -> None:
    async with fake_cluster() as where:
        writer = await writer_of(where)
        where.transport.hold("abc")
        first, second = append_all(writer, 2)
        first.cancel()
        await settled()
        for bookie_id, request, reply_to in list(where.transport._held):
            if request.entry_id == 1:  # type: ignore[union-attr]
                where.transport._serve(bookie_id, request, reply_to)
        await settled()
        assert not second.done()
        assert writer.last_add_confirmed == -1

        where.transport.release("abc")
        assert await second == 1


@pytest.mark.rule("W-36")
async def test_the_entry_of_a_cancelled_append_goes_to_the_new_ensemble_too() -> None:
    async with fake_cluster("abcd") as where:
        writer = await writer_of(where)
        where.transport.hold("abcd")
        futures = append_all(writer, 2)
        futures[0].cancel()
        failed = writer.metadata.last_fragment.ensemble[0]
        where.transport.release(failed, -23)
        await settled()
        (spare,) = set("abcd") - {*writer.metadata.fragments[0].ensemble, failed} or {"d"}
        new = [bookie_id for bookie_id, _ in where.sent if bookie_id == spare]
        assert len(new) == 2
        where.transport.release("abcd")
        await writer.flush()
        assert writer.last_add_confirmed == 1


@pytest.mark.rule("W-42")
async def test_a_cancelled_append_that_would_have_failed_still_fails_the_others() -> None:
    async with fake_cluster() as where:
        writer = await writer_of(where)
        where.transport.hold("abc")
        futures = append_all(writer, 3)
        futures[0].cancel()
        where.transport.release("abc", LedgerFenced.code)
        await settled()
        assert [type(future.exception()) for future in futures[1:]] == [LedgerFenced, LedgerFenced]
        with pytest.raises(LedgerFenced) as caught:
            await writer.flush()
        assert caught.value.entry_id == 0
        assert where.bk.in_flight_entries == 0


@settings(max_examples=100)
@given(
    st.lists(
        st.tuples(st.sampled_from(["append", "append", "cancel", "answer", "answer"]), st.integers(0, 20)),
        min_size=5,
        max_size=40,
    )
)
def test_cancelling_changes_nothing_whenever_it_happens(events: list[tuple[str, int]]) -> None:
    """Two writers get the same bookies' answers; of one of them appends are cancelled, and nothing else differs."""

    @in_virtual_time
    async def story() -> None:
        async with fake_cluster() as calm, fake_cluster() as hasty:
            places = (calm, hasty)
            writers = [await writer_of(where) for where in places]
            futures: list[list[AppendFuture]] = [[], []]
            for where in places:
                where.transport.hold("abc")
            for event, number in events:
                for index, (where, writer) in enumerate(zip(places, writers, strict=True)):
                    if event == "append":
                        futures[index].append(writer.append_nowait(b"%d" % len(futures[index])))
                    elif event == "answer":
                        where.transport.answer_first(number % 4)
                    elif index and futures[1]:
                        futures[1][number % len(futures[1])].cancel()
                await settled()
                calm_one, hasty_one = (
                    (w.last_add_confirmed, w.last_add_pushed, w.length, w.in_flight_entries, w.in_flight_bytes)
                    for w in writers
                )
                assert calm_one == hasty_one
            for where, writer in zip(places, writers, strict=True):
                where.transport.release("abc")
                await writer.flush()
                await writer.close()
            assert await payloads_of(calm, writers[0].ledger_id) == await payloads_of(hasty, writers[1].ledger_id)

    story()

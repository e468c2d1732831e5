"""The bookie's LAC: explicit LACs, and long polls that wait for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bkclient.wire.messages import (
    LongPoll,
    ReadLacRequest,
    ReadLacResponse,
    ReadRequest,
    ReadResponse,
    Response,
    Status,
    WriteLacRequest,
    WriteLacResponse,
)
from simbookie.config import BookieConfig
from simbookie.shares import Shares
from simbookie.storage.base import ReadCallback, StorageIOError
from simbookie.storage.group_commit import JournalConfig

Virtually = Callable[[Callable[[], Any]], None]


def write_lac(kit: Any, ledger_id: int, lac: int, key: bytes | None = None) -> WriteLacRequest:
    return WriteLacRequest(ledger_id, lac, key or kit.KEY, kit.entry_body(ledger_id, lac)[:16] + b"digest")


def poll(
    previous_lac: int, timeout_ms: int | None = 1000, *, piggyback: bool = True, entry_id: int = -1
) -> ReadRequest:
    return ReadRequest(1, entry_id, long_poll=LongPoll(previous_lac, timeout_ms, piggyback))


# ---------------------------------------------------------------------------------------------------------- explicit LAC


@pytest.mark.rule("BK-18")
async def test_an_explicit_lac_is_kept_and_told_with_the_last_entry(kit: Any) -> None:
    bench = kit.Bench()
    await bench.ask(kit.add(1, 0), kit.add(1, 1))
    request = write_lac(kit, 1, 1)
    assert await bench.ask(request) == [WriteLacResponse(Status.OK, 1)]
    assert await bench.ask(ReadLacRequest(1)) == [ReadLacResponse(Status.OK, 1, request.body, kit.add(1, 1).body)]
    (read,) = await bench.ask(ReadRequest(1, 0))
    assert read.max_lac == 1


@pytest.mark.rule("BK-18")
async def test_without_any_lac_there_is_no_entry_whether_the_ledger_exists_or_not(kit: Any) -> None:
    bench = kit.Bench()
    await bench.ask(kit.fencing_read(1))
    answers = await bench.ask(ReadLacRequest(1), ReadLacRequest(404))
    assert answers == [ReadLacResponse(Status.NO_ENTRY, 1), ReadLacResponse(Status.NO_ENTRY, 404)]


@pytest.mark.rule("BK-18")
async def test_an_explicit_lac_without_entries_comes_with_an_io_error_as_from_real_bookies(kit: Any) -> None:
    bench = kit.Bench()
    request = write_lac(kit, 1, 4)
    assert await bench.status(request) is Status.OK, "which creates the ledger"
    assert await bench.ask(ReadLacRequest(1)) == [ReadLacResponse(Status.IO_ERROR, 1, request.body, None)]


@pytest.mark.rule("BK-18")
async def test_writing_a_lac_needs_the_key_and_a_whole_packet_but_no_unfenced_ledger(kit: Any) -> None:
    bench = kit.Bench()
    await bench.ask(kit.add(1, 0), kit.fencing_read(1))
    assert await bench.status(write_lac(kit, 1, 0, kit.OTHER_KEY)) is Status.UNAUTHORIZED
    assert await bench.status(WriteLacRequest(1, 0, kit.KEY, bytes(15))) is Status.BAD_REQUEST
    assert await bench.status(write_lac(kit, 1, 0)) is Status.OK


@pytest.mark.rule("BK-15")
async def test_the_known_lac_is_a_maximum(kit: Any) -> None:
    notebook = kit.Notebook()
    bench = kit.Bench(observer=notebook)
    await bench.ask(
        kit.add(1, 0), kit.add(1, 5, lac=4), write_lac(kit, 1, 2), kit.add(1, 3, lac=2), write_lac(kit, 1, 9)
    )
    assert notebook.of("lac_advanced") == [("lac_advanced", 1, 4), ("lac_advanced", 1, 9)]
    (read,) = await bench.ask(ReadRequest(1, 0))
    assert read.max_lac == 9


@pytest.mark.rule("BK-18")
def test_an_explicit_lac_is_known_at_once_and_answered_when_durable(kit: Any, virtually: Virtually) -> None:
    async def story() -> None:
        bench = kit.Bench(journal=JournalConfig(sync_latency_s=0.010))
        bench.submit(kit.add(1, 0))
        await asyncio.sleep(1)
        answers = bench.submit(write_lac(kit, 1, 0))
        (read,) = bench.submit(ReadRequest(1, 0))
        assert read.max_lac == 0
        assert answers == []
        await asyncio.sleep(1)
        assert answers.statuses == [Status.OK]
        assert answers.times == [pytest.approx(1.010)]

    virtually(story)


# ------------------------------------------------------------------------------------------------------------ long polls


@pytest.mark.rule("BK-16")
def test_a_poll_waits_for_a_higher_lac_and_brings_the_next_entry(kit: Any, virtually: Virtually) -> None:
    async def story() -> None:
        bench = kit.Bench(wall_clock=lambda: 1_700_000_000.5)
        await bench.ask(kit.add(1, 0))
        answers = bench.submit(poll(-1), poll(0))
        assert bench.bookie.waiting_polls == 2
        await asyncio.sleep(0.2)
        await bench.ask(kit.add(1, 1, lac=0))
        assert answers == [
            ReadResponse(Status.OK, 1, 0, kit.add(1, 0).body, max_lac=0, lac_update_timestamp_ms=1_700_000_000_500)
        ]
        assert answers.times == [0.2]
        await asyncio.sleep(5)
        assert answers[1:] == [ReadResponse(Status.OK, 1, -1, None, max_lac=0)], "its time is up, which is no error"
        assert answers.times[1] == pytest.approx(1.0)
        assert bench.bookie.waiting_polls == 0

    virtually(story)


@pytest.mark.rule("BK-16")
@pytest.mark.parametrize("waits_on", [True, False])
def test_an_update_that_tells_a_poll_nothing_leaves_it_waiting_unless_bookkeeper_is_imitated(
    waits_on: bool, kit: Any, virtually: Virtually
) -> None:
    async def story() -> None:
        bench = kit.Bench(BookieConfig(long_polls_wait_on=waits_on))
        await bench.ask(kit.add(1, 0))
        answers = bench.submit(poll(0), poll(0, 5000))
        await asyncio.sleep(0.2)
        await bench.ask(kit.add(1, 1, lac=0), kit.add(1, 2, lac=1))
        with_the_entry = ReadResponse(Status.OK, 1, 1, kit.add(1, 1, lac=0).body, max_lac=1)
        if waits_on:
            assert [(each.entry_id, each.max_lac) for each in answers] == [(1, 1), (1, 1)]
            assert answers.times == [0.2, 0.2]
        else:
            # What the bookie knows when the time is up is told then; a poll whose client has gone was dropped for good.
            await asyncio.sleep(2)
            assert answers == [with_the_entry]
            assert answers.times == [pytest.approx(1.0)]
            assert bench.bookie.waiting_polls == 1
            bench.bookie.forget("")
            assert bench.bookie.waiting_polls == 0

    virtually(story)


@pytest.mark.rule("BK-16")
async def test_a_poll_that_has_something_to_tell_or_no_timeout_does_not_wait(kit: Any) -> None:
    bench = kit.Bench()
    await bench.ask(kit.add(1, 0), kit.add(1, 1, lac=0))
    assert bench.submit(poll(-1)) == [ReadResponse(Status.OK, 1, 0, kit.add(1, 0).body, max_lac=0)]
    assert bench.submit(poll(0, timeout_ms=None)) == [ReadResponse(Status.OK, 1, -1, None, max_lac=0)]


@pytest.mark.rule("BK-17")
async def test_the_lac_passed_but_the_entry_is_elsewhere(kit: Any) -> None:
    bench = kit.Bench()
    await bench.ask(kit.add(1, 9, lac=8))
    assert bench.submit(poll(3)) == [ReadResponse(Status.OK, 1, -1, None, max_lac=8)]
    assert bench.submit(poll(-2)) == [ReadResponse(Status.OK, 1, -1, None, max_lac=8)], "entry -1 is not an entry"


@pytest.mark.rule("BK-17")
async def test_piggyback_asks_for_entry_minus_one(kit: Any) -> None:
    bench = kit.Bench()
    await bench.ask(kit.add(1, 0))
    assert bench.submit(poll(-1, entry_id=0)) == [ReadResponse(Status.BAD_REQUEST, 1, 0)]


@pytest.mark.rule("BK-16")
def test_without_piggyback_a_poll_ends_in_an_ordinary_read(kit: Any, virtually: Virtually) -> None:
    async def story() -> None:
        bench = kit.Bench()
        await bench.ask(kit.add(1, 0))
        answers = bench.submit(poll(-1, 500, piggyback=False, entry_id=0), poll(-1, 500, piggyback=False, entry_id=7))
        assert answers == []
        await asyncio.sleep(1)
        assert answers == [
            ReadResponse(Status.OK, 1, 0, kit.add(1, 0).body, max_lac=-1),
            ReadResponse(Status.NO_ENTRY, 1, 7),
        ]

    virtually(story)


@pytest.mark.rule("BK-16")
async def test_polling_an_unknown_ledger_fails_at_once(kit: Any) -> None:
    assert kit.Bench().submit(poll(-1)) == [ReadResponse(Status.NO_LEDGER, 1, -1)]


@pytest.mark.rule("BK-16")
async def test_explicit_lac_fence_and_deletion_wake_polls(kit: Any) -> None:
    bench = kit.Bench()
    await bench.ask(kit.add(1, 0))
    by_lac = bench.submit(poll(-1))
    await bench.ask(write_lac(kit, 1, 0))
    assert by_lac.statuses == [Status.OK]
    assert by_lac[0].body == kit.add(1, 0).body
    by_fence = bench.submit(poll(5))
    await bench.ask(kit.fencing_read(1))
    assert by_fence == [ReadResponse(Status.OK, 1, -1, None, max_lac=0)]
    by_deletion = bench.submit(poll(5))
    bench.bookie.delete_ledger(1)
    assert by_deletion == [ReadResponse(Status.NO_LEDGER, 1, -1)]


@pytest.mark.rule("BK-16")
async def test_an_update_below_what_a_poll_waits_for_leaves_it_waiting_even_on_a_fenced_ledger(kit: Any) -> None:
    bench = kit.Bench()
    await bench.ask(kit.add(1, 0), kit.fencing_read(1))
    answers = bench.submit(poll(5))
    await bench.ask(kit.add(1, 5, lac=4, recovery=True))
    assert answers == []
    await bench.ask(kit.add(1, 7, lac=6, recovery=True))
    assert [answer.max_lac for answer in answers] == [6]


@pytest.mark.rule("BK-9")
async def test_waiting_polls_are_bounded(kit: Any) -> None:
    bench = kit.Bench(BookieConfig(long_polls_max=2))
    await bench.ask(kit.add(1, 0))
    answers = bench.submit(poll(5), poll(5), poll(5))
    assert answers == [ReadResponse(Status.TOO_MANY_REQUESTS, 1, -1)]
    assert bench.submit(poll(-2)).statuses == [Status.OK], "one that does not wait is welcome"
    bench.bookie.crash()


@pytest.mark.rule("BK-16")
async def test_a_poll_whose_entry_cannot_be_read_fails(kit: Any) -> None:
    bench = kit.Bench()
    await bench.ask(kit.add(1, 0), kit.add(1, 1, lac=0))

    def fail(_ledger: int, _entry: int, on_read: ReadCallback, token: object) -> None:
        on_read(token, None, StorageIOError("rotten"))

    bench.storage.read_entry = fail
    assert bench.submit(poll(-1)).statuses == [Status.IO_ERROR]


@pytest.mark.rule("D11")
async def test_a_ledger_in_limbo_tells_no_lac(kit: Any) -> None:
    bench = kit.Bench()
    bench.bookie.set_limbo(1, in_limbo=True)
    assert bench.submit(poll(-1)).statuses == [Status.UNKNOWN_LEDGER_STATE]


@pytest.mark.rule("BK-24")
async def test_an_answer_that_crashes_the_bookie_silences_the_polls_behind_it(kit: Any) -> None:
    bench = kit.Bench()
    await bench.ask(kit.add(1, 0))
    answers = kit.Answers()

    def crash(response: Response) -> None:
        answers(response)
        bench.bookie.crash()

    for respond in (answers, crash, answers):
        bench.bookie.submit(poll(-1), respond)
    bench.submit(kit.add(1, 1, lac=0))
    await kit.settle()
    assert len(answers) == 2


@pytest.mark.rule("BK-9")
async def test_a_source_with_many_polls_gives_way_to_one_with_fewer(kit: Any) -> None:
    bench = kit.Bench(BookieConfig(long_polls_max=10))
    await bench.ask(kit.add(1, 0))
    greedy, modest = kit.Answers(), kit.Answers()
    for _ in range(11):
        bench.bookie.submit(poll(5), greedy, source="greedy")
    assert greedy.statuses == [Status.TOO_MANY_REQUESTS]
    for _ in range(7):
        bench.bookie.submit(poll(5), modest, source="modest")
    assert modest.statuses == [Status.TOO_MANY_REQUESTS] * 2, "half is its share"
    assert greedy.statuses[1:] == [Status.OK] * 5, "as if their time were up"
    assert bench.bookie.waiting_polls == 10
    bench.bookie.crash()


@pytest.mark.rule("BK-9")
async def test_the_polls_of_one_source_are_bounded(kit: Any) -> None:
    bench = kit.Bench(BookieConfig(long_polls_per_source_max=2))
    await bench.ask(kit.add(1, 0))
    answers = kit.Answers()
    for _ in range(3):
        bench.bookie.submit(poll(5), answers, source="a")
    bench.bookie.submit(poll(5), answers, source="b")
    assert answers.statuses == [Status.TOO_MANY_REQUESTS]
    bench.bookie.crash()


@pytest.mark.rule("BK-16")
async def test_the_polls_of_a_client_that_has_gone_are_dropped(kit: Any) -> None:
    bench = kit.Bench(BookieConfig(long_polls_max=4))
    await bench.ask(kit.add(1, 0))
    answers = kit.Answers()
    for _ in range(4):
        bench.bookie.submit(poll(0), answers, source="gone")
    bench.bookie.forget("gone")
    bench.bookie.forget("gone")
    assert (bench.bookie.waiting_polls, answers) == (0, [])
    for _ in range(4):
        bench.bookie.submit(poll(0), answers, source="b")
    assert answers == []
    await bench.ask(kit.add(1, 2, lac=1))
    assert len(answers) == 4
    assert bench.bookie.waiting_polls == 0


@pytest.mark.rule("BK-16")
def test_a_poll_waits_no_longer_than_the_bookie_allows(kit: Any, virtually: Callable[..., None]) -> None:
    async def story() -> None:
        bench = kit.Bench(BookieConfig(long_poll_wait_max_s=7))
        await bench.ask(kit.add(1, 0))
        answers = bench.submit(ReadRequest(1, -1, long_poll=LongPoll(5, 1 << 62)))
        began = asyncio.get_running_loop().time()
        await asyncio.sleep(8)
        assert answers.statuses == [Status.OK]
        assert answers.times[0] == pytest.approx(began + 7, abs=0.001)

    virtually(story)


@pytest.mark.rule("BK-16")
async def test_many_polls_are_answered_over_several_turns_and_each_once(kit: Any) -> None:
    bench = kit.Bench()
    await bench.ask(kit.add(1, 0))
    answers = bench.submit(*(poll(0) for _ in range(900)))
    bench.submit(kit.add(1, 2, lac=1))
    counts = [len(answers)]
    for _ in range(6):
        await asyncio.sleep(0)
        counts.append(len(answers) - sum(counts))
    assert max(counts) <= 257, "and the answer to the add"
    assert len([answer for answer in answers if isinstance(answer, ReadResponse)]) == 900
    assert bench.bookie.waiting_polls == 0


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.booleans()), max_size=60))
def test_shares_know_what_each_source_holds_and_the_greediest(steps: list[tuple[str, bool]]) -> None:
    shares, model = Shares(), dict.fromkeys("abcd", 0)
    for source, adds in steps:
        if adds:
            shares.add(source)
            model[source] += 1
        elif model[source]:
            shares.remove(source)
            model[source] -= 1
        assert shares.largest == max(model.values())
        assert {name: shares.count(name) for name in model} == model
        if shares.largest:
            assert model[shares.greediest()] == shares.largest

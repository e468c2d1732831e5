"""Lists of entries: what they say, when, and how little of a turn they take."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bkclient.wire.availability import decode_availability, encode_runs
from bkclient.wire.messages import BatchReadRequest, EntryListRequest, EntryListResponse, Status
from simbookie.availability import _PIECE
from simbookie.config import BookieConfig
from tests.simbookie.test_server import until

LONG = 5 * _PIECE


async def striped(kit: Any, config: BookieConfig | None = None, entries: int = LONG) -> Any:
    """A bookie with every other entry of ledger 1, as a striped ledger leaves them."""
    bench = kit.Bench(config, capacity_bytes=1 << 30)
    await bench.ask(*(kit.add(1, 2 * number, payload=b"") for number in range(entries)))
    return bench


def listed(answer: EntryListResponse) -> list[int]:
    assert answer.status is Status.OK
    assert answer.availability is not None
    return list(decode_availability(answer.availability))


@pytest.mark.rule("BK-22")
async def test_a_short_list_is_answered_at_once(kit: Any) -> None:
    bench = await striped(kit, entries=_PIECE)
    (answer,) = bench.submit(EntryListRequest(1))
    assert listed(answer) == list(range(0, 2 * _PIECE, 2))


@pytest.mark.rule("BK-22")
async def test_entries_without_gaps_are_one_run_however_many(kit: Any) -> None:
    bench = kit.Bench()
    await bench.ask(*(kit.add(1, entry_id, payload=b"") for entry_id in range(2 * _PIECE)))
    (answer,) = bench.submit(EntryListRequest(1))
    assert len(answer.availability) == 64 + 24


@pytest.mark.rule("BK-30")
async def test_a_long_list_is_made_over_several_turns_a_piece_in_each(
    kit: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = await striped(kit)
    sizes: list[int] = []

    def noting(runs: Any) -> bytes:
        pairs = list(runs)
        sizes.append(len(pairs))
        return encode_runs(pairs)

    monkeypatch.setattr("simbookie.availability.encode_runs", noting)
    answers = bench.submit(*(EntryListRequest(1) for _ in range(400)))
    assert answers == []
    turns = 0
    while len(answers) < 400:
        before = len(sizes)
        await asyncio.sleep(0)
        assert len(sizes) - before <= 1
        turns += 1
        assert turns < 20, "400 requests share one list"
    assert max(sizes) <= _PIECE
    assert listed(answers[0]) == listed(answers[-1]) == list(range(0, 2 * LONG, 2))


@pytest.mark.rule("BK-22")
async def test_a_list_holds_what_was_stored_when_it_was_asked_for(kit: Any) -> None:
    bench = await striped(kit)
    early = bench.submit(EntryListRequest(1))
    for _ in range(3):
        await asyncio.sleep(0)
    bench.submit(kit.add(1, 1, payload=b""), kit.add(1, 9 * LONG, payload=b""))
    late = bench.submit(EntryListRequest(1))
    await until(lambda: bool(late))
    assert listed(early[0])[:2] in ([0, 2], [0, 1])
    assert listed(late[0])[:3] == [0, 1, 2]
    assert listed(late[0])[-1] == 9 * LONG


@pytest.mark.rule("BK-9")
async def test_requests_for_long_lists_are_bounded(kit: Any) -> None:
    bench = await striped(kit, BookieConfig(pending_reads_max=3))
    answers = bench.submit(*(EntryListRequest(1) for _ in range(5)))
    assert answers.statuses == [Status.TOO_MANY_REQUESTS] * 2
    await until(lambda: len(answers) == 5)
    assert answers.statuses[2:] == [Status.OK] * 3
    assert bench.submit(EntryListRequest(1)) == [], "there is room again"
    bench.bookie.crash()


@pytest.mark.rule("BK-24")
async def test_lists_under_way_are_answered_at_a_shutdown_and_not_after_a_crash(kit: Any) -> None:
    bench = await striped(kit)
    crashed = bench.submit(EntryListRequest(1))
    bench.bookie.crash()
    bench.bookie.start()
    answers = bench.submit(EntryListRequest(1), EntryListRequest(1))
    stopped = asyncio.Event()
    bench.bookie.shutdown(stopped.set)
    await stopped.wait()
    assert [len(listed(answer)) for answer in answers] == [LONG, LONG]
    assert crashed == []


@pytest.mark.rule("BK-12")
async def test_a_ledger_deleted_while_its_list_is_made_is_no_ledger(kit: Any) -> None:
    bench = await striped(kit)
    answers = bench.submit(EntryListRequest(1))
    await asyncio.sleep(0)
    bench.bookie.delete_ledger(1)
    await until(lambda: bool(answers))
    assert answers.statuses == [Status.NO_LEDGER]


@pytest.mark.rule("BK-20")
@pytest.mark.parametrize(("asked", "got"), [(0, 10), (7, 7), (10, 10), (11, 10)])
async def test_a_batch_read_returns_no_more_entries_than_the_bookie_allows(kit: Any, asked: int, got: int) -> None:
    bench = kit.Bench(BookieConfig(batch_read_entries_max=10))
    await bench.ask(*(kit.add(1, entry_id) for entry_id in range(30)))
    (answer,) = await bench.ask(BatchReadRequest(1, 0, asked, 1 << 20))
    assert len(answer.bodies) == got

"""Reads: single, last, batch; what is denied, what is unknown; and the small requests beside them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from bkclient.wire.availability import decode_availability
from bkclient.wire.messages import (
    AuthMessage,
    BatchReadRequest,
    BatchReadResponse,
    BookieInfoRequest,
    BookieInfoResponse,
    EntryListRequest,
    EntryListResponse,
    ErrorResponse,
    Operation,
    ReadLacRequest,
    ReadRequest,
    ReadResponse,
    StartTlsRequest,
    Status,
)
from simbookie.config import BookieConfig
from simbookie.storage.base import ReadCallback, StorageIOError
from simbookie.storage.group_commit import JournalConfig

Virtually = Callable[[Callable[[], Any]], None]


@pytest.mark.rule("BK-12")
async def test_an_unknown_ledger_and_a_missing_entry_are_told_apart(kit: Any) -> None:
    bench = kit.Bench()
    await bench.ask(kit.add(1, 0))
    assert await bench.ask(ReadRequest(2, 0)) == [ReadResponse(Status.NO_LEDGER, 2, 0)]
    assert await bench.ask(ReadRequest(2, -1)) == [ReadResponse(Status.NO_LEDGER, 2, -1)]
    assert await bench.ask(ReadRequest(1, 1)) == [ReadResponse(Status.NO_ENTRY, 1, 1)]
    assert bench.bookie.ledger_ids() == [1], "reading creates nothing"


@pytest.mark.rule("BK-13")
async def test_entry_minus_one_is_the_highest_entry_stored_not_that_at_the_lac(kit: Any) -> None:
    bench = kit.Bench()
    await bench.ask(kit.add(1, 7, lac=3), kit.add(1, 4, lac=3))
    (answer,) = await bench.ask(ReadRequest(1, -1))
    assert answer == ReadResponse(Status.OK, 1, -1, kit.add(1, 7, lac=3).body, max_lac=3)


@pytest.mark.rule("BK-13")
async def test_there_is_no_last_entry_in_a_ledger_without_entries(kit: Any) -> None:
    bench = kit.Bench()
    await bench.ask(kit.fencing_read(1))
    assert await bench.status(ReadRequest(1, -1)) is Status.NO_ENTRY


@pytest.mark.rule("BK-14")
@pytest.mark.rule("BK-15")
async def test_plain_reads_tell_the_highest_lac_seen_and_fencing_reads_tell_none(kit: Any) -> None:
    bench = kit.Bench()
    await bench.ask(kit.add(1, 9, lac=8), kit.add(1, 2, lac=1))
    (plain,) = await bench.ask(ReadRequest(1, 2))
    (missing,) = await bench.ask(ReadRequest(1, 3))
    (fencing,) = await bench.ask(kit.fencing_read(1, 2))
    assert [plain.max_lac, missing.max_lac, fencing.max_lac] == [8, None, None]


@pytest.mark.rule("D10")
async def test_an_entry_that_cannot_be_read_is_an_error_and_never_missing(kit: Any) -> None:
    bench = kit.Bench()
    await bench.ask(kit.add(1, 0))

    def fail(_ledger: int, _entry: int, on_read: ReadCallback, token: object) -> None:
        on_read(token, None, StorageIOError("rotten"))

    bench.storage.read_entry = fail
    requests = [ReadRequest(1, 0), kit.fencing_read(1), BatchReadRequest(1, 0, 10, 1000), ReadLacRequest(1)]
    assert (await bench.ask(*requests)).statuses == [Status.IO_ERROR] * 4


@pytest.mark.rule("BK-9")
def test_pending_reads_are_bounded_and_recovery_reads_are_not(kit: Any, virtually: Virtually) -> None:
    async def story() -> None:
        bench = kit.Bench(BookieConfig(pending_reads_max=2))
        await bench.ask(kit.add(1, 0))
        read = bench.storage.read_entry

        def slowly(ledger_id: int, entry_id: int, on_read: ReadCallback, token: object) -> None:
            asyncio.get_running_loop().call_later(0.5, read, ledger_id, entry_id, on_read, token)

        bench.storage.read_entry = slowly
        normal = bench.submit(ReadRequest(1, 0), BatchReadRequest(1, 0, 1, 100), ReadRequest(1, 0))
        assert normal == [ReadResponse(Status.TOO_MANY_REQUESTS, 1, 0)]
        assert bench.submit(BatchReadRequest(1, 0, 1, 100)) == [BatchReadResponse(Status.TOO_MANY_REQUESTS, 1, 0)]
        urgent = bench.submit(kit.fencing_read(1), ReadRequest(1, 0, high_priority=True))
        await asyncio.sleep(1)
        assert urgent.statuses == [Status.OK, Status.OK]
        assert normal.statuses == [Status.TOO_MANY_REQUESTS, Status.OK, Status.OK]
        assert (await bench.ask(ReadRequest(1, 0))).statuses == []
        await asyncio.sleep(1)
        assert len(bench.submit(ReadRequest(1, 0), ReadRequest(1, 0), ReadRequest(1, 0))) == 1, "counted down to zero"

    virtually(story)


# --------------------------------------------------------------------------------------------------------------- batches


def batch(entry_id: int, max_count: int, max_size: int, **fields: Any) -> BatchReadRequest:
    return BatchReadRequest(1, entry_id, max_count, max_size, **fields)


async def stored(kit: Any, payload_sizes: dict[int, int], config: BookieConfig | None = None) -> Any:
    bench = kit.Bench(config)
    await bench.ask(*(kit.add(1, entry_id, payload=bytes(size)) for entry_id, size in payload_sizes.items()))
    return bench


async def sizes(bench: Any, request: BatchReadRequest) -> list[int]:
    (answer,) = await bench.ask(request)
    assert answer.status is Status.OK
    assert answer.entry_id == request.entry_id
    return [len(body) for body in answer.bodies]


@pytest.mark.rule("BK-20")
async def test_a_batch_ends_at_the_first_missing_entry_or_at_its_count(kit: Any) -> None:
    bench = await stored(kit, {0: 0, 1: 0, 2: 0, 4: 0})
    assert await sizes(bench, batch(0, 10, 10_000)) == [32, 32, 32]
    assert await sizes(bench, batch(1, 0, 10_000)) == [32, 32], "no count is no limit"
    assert await sizes(bench, batch(1, -5, 10_000)) == [32, 32]
    assert await sizes(bench, batch(0, 2, 10_000)) == [32, 32]


@pytest.mark.rule("BK-20")
async def test_a_batch_whose_first_entry_is_missing_fails_like_a_read(kit: Any) -> None:
    bench = await stored(kit, {0: 0})
    assert await bench.ask(batch(3, 10, 10_000)) == [BatchReadResponse(Status.NO_ENTRY, 1, 3)]
    assert await bench.ask(BatchReadRequest(2, 0, 1, 1)) == [BatchReadResponse(Status.NO_LEDGER, 2, 0)]


@pytest.mark.rule("BK-20")
@pytest.mark.parametrize(
    ("max_size", "count"), [(36 + 3 * 36, 3), (36 + 3 * 36 - 1, 2), (36 + 36, 1), (36, 1), (1, 1), (0, 1), (-1, 1)]
)
async def test_the_size_of_a_batch_counts_overheads_and_the_first_entry_always_fits(
    kit: Any, max_size: int, count: int
) -> None:
    bench = await stored(kit, dict.fromkeys(range(5), 0))
    assert await sizes(bench, batch(0, 10, max_size)) == [32] * count


@pytest.mark.rule("BK-20")
async def test_smaller_entries_after_the_first_do_not_raise_the_count(kit: Any) -> None:
    bench = await stored(kit, {0: 100, 1: 0, 2: 0, 3: 0, 4: 0})
    assert await sizes(bench, batch(0, 10, 36 + 2 * 136)) == [132, 32]


@pytest.mark.rule("BK-20")
async def test_an_entry_that_would_exceed_the_size_is_left_out(kit: Any) -> None:
    bench = await stored(kit, {0: 0, 1: 0, 2: 500, 3: 0})
    assert await sizes(bench, batch(0, 10, 300)) == [32, 32]


@pytest.mark.rule("BK-20")
async def test_the_bookie_limits_the_size_of_a_batch_too(kit: Any) -> None:
    bench = await stored(kit, dict.fromkeys(range(5), 0), BookieConfig(batch_read_bytes_max=36 + 2 * 36))
    assert await sizes(bench, batch(0, 10, 1 << 40)) == [32, 32]


@pytest.mark.rule("BK-20")
async def test_a_batch_from_the_last_entry_is_that_entry(kit: Any) -> None:
    bench = await stored(kit, {0: 0, 1: 0, 2: 10})
    assert await sizes(bench, batch(-1, 10, 10_000)) == [42]


async def test_a_batch_of_thousands_needs_no_deep_stack(kit: Any) -> None:
    bench = await stored(kit, dict.fromkeys(range(5000), 0), BookieConfig(batch_read_entries_max=5000))
    assert len(await sizes(bench, batch(0, 0, 1 << 30))) == 5000


@pytest.mark.rule("BK-11")
def test_a_fencing_batch_fences_and_waits_like_a_read(kit: Any, virtually: Virtually) -> None:
    async def story() -> None:
        bench = kit.Bench(journal=JournalConfig(sync_latency_s=0.010))
        bench.submit(kit.add(1, 0))
        await asyncio.sleep(1)
        answers = bench.submit(batch(0, 10, 1000, fence_key=kit.KEY))
        assert answers == []
        assert await bench.status(kit.add(1, 1)) is Status.FENCED
        await asyncio.sleep(1)
        assert answers.statuses == [Status.OK]
        assert await bench.status(batch(0, 10, 1000, fence_key=kit.OTHER_KEY)) is Status.UNAUTHORIZED

    virtually(story)


# ----------------------------------------------------------------------------------------------------------------- limbo


@pytest.mark.rule("BK-21")
@pytest.mark.rule("D11")
async def test_in_limbo_nothing_is_denied_and_only_recoveries_add(kit: Any) -> None:
    bench = kit.Bench()
    await bench.ask(kit.add(1, 0))
    bench.bookie.set_limbo(1, in_limbo=True, fence=False)
    assert await bench.status(kit.add(1, 1)) is Status.UNAUTHORIZED
    assert await bench.ask(ReadRequest(1, 0)) == [ReadResponse(Status.OK, 1, 0, kit.add(1, 0).body)]
    for request in (
        ReadRequest(1, 1),
        ReadRequest(1, -1),
        kit.fencing_read(1, 1),
        kit.fencing_read(1, -1),
        batch(1, 1, 100),
        batch(-1, 1, 100),
        EntryListRequest(1),
    ):
        assert await bench.status(request) is Status.UNKNOWN_LEDGER_STATE, request
    assert await bench.status(ReadLacRequest(1)) is Status.NO_ENTRY
    assert await bench.status(kit.add(1, 1, recovery=True)) is Status.OK, "what ends the limbo may need this bookie"
    assert await bench.status(ReadRequest(1, 1)) is Status.OK


@pytest.mark.rule("BK-21")
async def test_a_ledger_never_heard_of_can_be_in_limbo_and_learns_its_key_later(kit: Any) -> None:
    bench = kit.Bench()
    bench.bookie.set_limbo(1, in_limbo=True)
    assert await bench.status(ReadRequest(1, 0)) is Status.UNKNOWN_LEDGER_STATE
    assert await bench.status(kit.fencing_read(1)) is Status.UNKNOWN_LEDGER_STATE
    assert await bench.status(kit.fencing_read(1, key=kit.OTHER_KEY)) is Status.UNAUTHORIZED
    bench.bookie.set_limbo(1, in_limbo=False)
    assert await bench.status(ReadRequest(1, 0)) is Status.NO_ENTRY
    assert await bench.status(kit.add(1, 0)) is Status.FENCED, "limbo fenced it, and fences stay"


async def test_a_ledger_that_nobody_spoke_of_is_not_made_by_leaving_limbo(kit: Any) -> None:
    bench = kit.Bench()
    bench.bookie.set_limbo(1, in_limbo=False)

    assert bench.bookie.ledger_ids() == []
    assert await bench.status(ReadRequest(1, 0)) is Status.NO_LEDGER
    assert not bench.bookie.delete_ledger(1)


# ---------------------------------------------------------------------------------------------------------- small things


@pytest.mark.rule("BK-22")
async def test_the_list_of_entries_is_in_the_availability_encoding(kit: Any) -> None:
    bench = await stored(kit, dict.fromkeys((0, 1, 2, 5, 6), 0))
    (answer,) = await bench.ask(EntryListRequest(1))
    assert list(decode_availability(answer.availability)) == [0, 1, 2, 5, 6]
    assert await bench.ask(EntryListRequest(2)) == [EntryListResponse(Status.NO_LEDGER, 2)]


@pytest.mark.rule("BK-22")
@pytest.mark.parametrize(
    ("requested", "total", "free"), [(0, None, None), (1, 1000, None), (2, None, 880), (3, 1000, 880), (7, 1000, 880)]
)
async def test_bookie_info_holds_what_was_asked_for(
    kit: Any, requested: int, total: int | None, free: int | None
) -> None:
    bench = kit.Bench(capacity_bytes=1000)
    await bench.ask(kit.add(1, 0, payload=bytes(68)))
    assert await bench.ask(BookieInfoRequest(requested)) == [BookieInfoResponse(Status.OK, total, free)]


@pytest.mark.rule("BK-22")
async def test_any_authentication_succeeds_and_tls_is_refused(kit: Any) -> None:
    bench = kit.Bench()
    auth, tls = await bench.ask(AuthMessage("SomePlugin", b"secret"), StartTlsRequest())
    assert (auth.status, auth.plugin_name, auth.payload) == (Status.OK, "AuthDisabledPlugin", b"")
    assert tls == ErrorResponse(Operation.START_TLS, Status.BAD_REQUEST)


@pytest.mark.rule("BK-22")
async def test_an_unknown_request_is_a_bad_request(kit: Any) -> None:
    class RangeRead:
        operation = Operation.BATCH_READ_ENTRY

    (answer,) = await kit.Bench().ask(RangeRead())
    assert answer == ErrorResponse(Operation.BATCH_READ_ENTRY, Status.BAD_REQUEST)

"""Adds and fences: what a bookie takes, refuses, and when it says so."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from bkclient.wire.messages import (
    AddRequest,
    AddResponse,
    BatchReadRequest,
    ForceLedgerRequest,
    ReadRequest,
    Status,
    WriteFlags,
    WriteLacRequest,
    WriteLacResponse,
)
from simbookie.config import BookieConfig
from simbookie.storage.base import DurableCallback, NoSpace, StorageError, StorageIOError, WriteCacheFull
from simbookie.storage.group_commit import JournalConfig

Virtually = Callable[[Callable[[], Any]], None]
SLOW = JournalConfig(group_wait_max_s=0.001, sync_latency_s=0.010)


@pytest.mark.rule("BK-3")
async def test_the_first_add_creates_the_ledger_and_sets_its_key(kit: Any) -> None:
    bench = kit.Bench()
    assert await bench.status(ReadRequest(1, 0)) is Status.NO_LEDGER
    assert await bench.status(kit.add(1, 0)) is Status.OK
    assert await bench.status(kit.add(1, 1, master_key=kit.OTHER_KEY)) is Status.UNAUTHORIZED
    assert await bench.status(kit.add(1, 1, master_key=kit.OTHER_KEY, recovery=True)) is Status.UNAUTHORIZED
    assert await bench.status(kit.fencing_read(1, key=kit.OTHER_KEY)) is Status.UNAUTHORIZED
    assert await bench.status(kit.add(1, 1)) is Status.OK, "and the refused fence did not fence (T-116)"


@pytest.mark.rule("BK-2")
async def test_the_ids_in_the_body_decide_and_those_of_the_request_are_echoed(kit: Any) -> None:
    bench = kit.Bench()
    body = kit.entry_body(7, 3)
    answers = await bench.ask(AddRequest(1, 0, kit.KEY, body[:32], body[32:]))
    assert answers == [AddResponse(Status.OK, 1, 0)]
    assert await bench.status(ReadRequest(1, 0)) is Status.NO_LEDGER
    (read,) = await bench.ask(ReadRequest(7, 3))
    assert read.body == body


@pytest.mark.rule("BK-2")
async def test_it_does_not_matter_where_a_request_cuts_the_body(kit: Any) -> None:
    bench = kit.Bench()
    body = kit.entry_body(1, 0, payload=b"data")
    assert await bench.status(AddRequest(1, 0, kit.KEY, body, b"")) is Status.OK
    (read,) = await bench.ask(ReadRequest(1, 0))
    assert read.body == body


@pytest.mark.rule("BK-6")
async def test_gaps_and_any_order_are_fine(kit: Any) -> None:
    bench = kit.Bench()
    answers = await bench.ask(kit.add(1, 5), kit.add(1, 2), kit.add(1, 9))
    assert answers.statuses == [Status.OK] * 3
    assert await bench.status(ReadRequest(1, 3)) is Status.NO_ENTRY


@pytest.mark.rule("D14")
async def test_a_duplicate_succeeds_and_leaves_one_copy_the_later_one(kit: Any) -> None:
    bench = kit.Bench()
    first, second = kit.add(1, 0, lac=-1), kit.add(1, 0, lac=5)
    answers = await bench.ask(first, second)
    assert answers.statuses == [Status.OK, Status.OK]
    assert bench.storage.entry_ids(1) == [0]
    (read,) = await bench.ask(ReadRequest(1, 0))
    assert read.body == second.body


@pytest.mark.rule("BK-7")
def test_an_add_is_readable_at_once_and_answered_after_the_sync_in_order(kit: Any, virtually: Virtually) -> None:
    async def story() -> None:
        bench = kit.Bench(journal=SLOW)
        answers = bench.submit(kit.add(1, 0), kit.add(1, 1), kit.add(2, 0))
        assert answers == []
        assert await bench.status(ReadRequest(1, 1)) is Status.OK
        await asyncio.sleep(1)
        assert [(answer.ledger_id, answer.entry_id) for answer in answers] == [(1, 0), (1, 1), (2, 0)]
        assert answers.times == [pytest.approx(0.011)] * 3

    virtually(story)


@pytest.mark.rule("LAC-11")
def test_a_deferred_sync_add_is_answered_before_the_sync_and_force_waits_for_it(kit: Any, virtually: Virtually) -> None:
    async def story() -> None:
        bench = kit.Bench(journal=SLOW)
        deferred = bench.submit(kit.add(1, 0, write_flags=WriteFlags.DEFERRED_SYNC))
        forced = bench.submit(ForceLedgerRequest(1))
        await asyncio.sleep(1)
        assert deferred.statuses == forced.statuses == [Status.OK]
        assert deferred.times == [pytest.approx(0.001)]
        assert forced.times == [pytest.approx(0.011)]

    virtually(story)


@pytest.mark.rule("BK-19")
async def test_force_needs_neither_a_ledger_nor_a_key(kit: Any) -> None:
    assert await kit.Bench().status(ForceLedgerRequest(404)) is Status.OK


# -------------------------------------------------------------------------------------------------------------- fencing


@pytest.mark.rule("BK-4")
@pytest.mark.rule("D1")
@pytest.mark.rule("D13")
async def test_a_fenced_ledger_refuses_adds_and_takes_recovery_adds(kit: Any) -> None:
    bench = kit.Bench()
    await bench.ask(kit.add(1, 0))
    assert await bench.status(kit.fencing_read(1)) is Status.OK
    assert await bench.status(kit.add(1, 1)) is Status.FENCED
    assert await bench.status(kit.add(1, 1, high_priority=True)) is Status.FENCED
    assert await bench.status(ReadRequest(1, 1)) is Status.NO_ENTRY
    assert await bench.status(kit.add(1, 1, recovery=True, high_priority=True)) is Status.OK
    assert await bench.status(ReadRequest(1, 1)) is Status.OK


@pytest.mark.rule("BK-10")
async def test_fencing_an_unknown_ledger_creates_it_keyed_and_fenced(kit: Any) -> None:
    bench = kit.Bench()
    assert await bench.status(kit.fencing_read(1)) is Status.NO_ENTRY
    assert await bench.status(kit.add(1, 0)) is Status.FENCED
    assert await bench.status(kit.add(1, 0, master_key=kit.OTHER_KEY)) is Status.UNAUTHORIZED
    assert await bench.status(kit.add(1, 0, recovery=True)) is Status.OK
    assert await bench.status(ReadRequest(1, 7)) is Status.NO_ENTRY


@pytest.mark.rule("BK-11")
@pytest.mark.rule("D2")
def test_a_successful_fencing_read_waits_for_the_durable_fence_and_an_error_of_bookkeepers_does_not(
    kit: Any, virtually: Virtually
) -> None:
    async def story() -> None:
        bench = kit.Bench(BookieConfig(error_waits_for_fence=False), SLOW)
        bench.submit(kit.add(1, 0))
        await asyncio.sleep(1)
        successful = bench.submit(kit.fencing_read(1))
        missing = bench.submit(kit.fencing_read(1, 5), kit.fencing_read(2))
        assert missing.statuses == [Status.NO_ENTRY, Status.NO_ENTRY]
        again = bench.submit(kit.fencing_read(1, 0))
        plain = bench.submit(ReadRequest(1, 0))
        assert plain.statuses == [Status.OK], "others do not wait"
        await asyncio.sleep(1)
        assert successful.statuses == again.statuses == [Status.OK]
        assert successful.times == again.times == [pytest.approx(1.011)]
        later = bench.submit(kit.fencing_read(1))
        assert later.statuses == [Status.OK], "a durable fence is not waited for"

    virtually(story)


@pytest.mark.rule("D3")
def test_error_answers_wait_for_the_fence_too(kit: Any, virtually: Virtually) -> None:
    async def story() -> None:
        bench = kit.Bench(journal=SLOW)
        answers = bench.submit(kit.fencing_read(1))
        assert answers == []
        await asyncio.sleep(1)
        assert answers.statuses == [Status.NO_ENTRY]
        assert answers.times == [pytest.approx(0.011)]

    virtually(story)


@pytest.mark.rule("BK-11")
async def test_a_fence_that_cannot_be_logged_fails_the_read_and_is_tried_again(kit: Any) -> None:
    bench = kit.Bench()
    await bench.ask(kit.add(1, 0))
    log_fence = bench.storage.fence
    failures: list[StorageError | None] = [StorageIOError("injected")]

    def fence(ledger_id: int, on_durable: DurableCallback, token: object) -> None:
        error = failures.pop() if failures else None
        if error is None:
            log_fence(ledger_id, on_durable, token)
        else:
            asyncio.get_running_loop().call_soon(on_durable, token, error)

    bench.storage.fence = fence
    assert await bench.status(kit.fencing_read(1)) is Status.IO_ERROR
    assert await bench.status(kit.add(1, 1)) is Status.FENCED, "in memory the fence stands"
    assert await bench.status(kit.fencing_read(1)) is Status.OK


@pytest.mark.rule("BK-10")
async def test_a_fencing_read_without_a_key_is_unauthorized_and_fences_nothing(kit: Any) -> None:
    bench = kit.Bench()
    assert await bench.status(kit.fencing_read(1, key=b"")) is Status.UNAUTHORIZED
    assert await bench.status(BatchReadRequest(1, 0, 1, 100, b"")) is Status.UNAUTHORIZED
    assert await bench.status(kit.add(1, 0)) is Status.OK


@pytest.mark.rule("BK-5")
async def test_a_fenced_ledger_is_not_brought_back_after_its_deletion(kit: Any) -> None:
    bench = kit.Bench()
    await bench.ask(kit.add(1, 0), kit.fencing_read(1))
    assert bench.bookie.delete_ledger(1)
    assert not bench.bookie.delete_ledger(1)
    assert await bench.status(kit.add(1, 1)) is Status.FENCED
    assert await bench.status(kit.add(1, 1, recovery=True)) is Status.FENCED
    assert await bench.status(kit.add(1, 1, master_key=kit.OTHER_KEY)) is Status.FENCED, "before the key is looked at"
    assert await bench.status(kit.fencing_read(1)) is Status.NO_LEDGER
    assert await bench.status(ReadRequest(1, 0)) is Status.NO_LEDGER
    assert await bench.status(WriteLacRequest(1, 0, kit.KEY, kit.entry_body(1, 0))) is Status.NO_LEDGER
    assert bench.bookie.ledger_ids() == []


@pytest.mark.rule("BK-5")
def test_the_memory_of_a_deleted_ledger_fades(kit: Any, virtually: Virtually) -> None:
    async def story() -> None:
        bench = kit.Bench(BookieConfig(deleted_memory_s=100.0))
        await bench.ask(kit.fencing_read(1))
        bench.bookie.delete_ledger(1)
        await asyncio.sleep(99)
        assert await bench.status(kit.add(1, 0)) is Status.FENCED
        await asyncio.sleep(99)
        assert await bench.status(kit.add(1, 0)) is Status.FENCED
        await asyncio.sleep(101)
        assert await bench.status(kit.add(1, 0)) is Status.OK

    virtually(story)


async def test_a_ledger_deleted_without_a_fence_is_simply_gone(kit: Any) -> None:
    bench = kit.Bench()
    await bench.ask(kit.add(1, 0))
    bench.bookie.delete_ledger(1)
    assert await bench.status(kit.add(1, 1, master_key=kit.OTHER_KEY)) is Status.OK


# ---------------------------------------------------------------------------------------------------- order of refusals


@pytest.mark.rule("BK-1")
def test_refusals_come_in_their_order(kit: Any, virtually: Virtually) -> None:
    """Each step removes the reason that was given, and the next one in line shows."""

    async def story() -> None:
        bench = kit.Bench(BookieConfig(pending_adds_max=1), SLOW)
        await bench.ask(kit.fencing_read(1), kit.fencing_read(2))
        await asyncio.sleep(1)
        bench.bookie.delete_ledger(1)
        bench.bookie.set_limbo(2, in_limbo=True)
        bench.submit(kit.add(9, 0))
        bench.bookie.set_read_only(True)
        assert await bench.status(kit.add(1, 0)) is Status.TOO_MANY_REQUESTS
        await asyncio.sleep(1)
        assert await bench.status(kit.add(1, 0)) is Status.READ_ONLY
        bench.bookie.set_read_only(False)
        assert await bench.status(kit.add(1, 0)) is Status.FENCED
        assert await bench.status(kit.add(2, 0, master_key=kit.OTHER_KEY)) is Status.UNAUTHORIZED
        assert await bench.status(kit.add(2, 0)) is Status.FENCED
        bench.bookie.set_limbo(3, in_limbo=True, fence=False)
        assert await bench.status(kit.add(3, 0)) is Status.UNAUTHORIZED, "in limbo"
        bench.submit(kit.add(2, 0, recovery=True))
        await asyncio.sleep(1)
        assert await bench.status(ReadRequest(2, 0)) is Status.OK

    virtually(story)


@pytest.mark.rule("BK-1")
@pytest.mark.parametrize(
    ("error", "status"),
    [(WriteCacheFull(), Status.TOO_MANY_REQUESTS), (StorageIOError(), Status.IO_ERROR), (NoSpace(), Status.IO_ERROR)],
)
async def test_what_the_storage_refuses_is_answered_once_and_not_counted_as_pending(
    kit: Any, error: StorageError, status: Status
) -> None:
    bench = kit.Bench()

    def refuse(*_: object) -> None:
        raise error

    bench.storage.add_entry = refuse
    assert await bench.status(kit.add(1, 0)) is status
    assert bench.bookie.pending_adds == 0


@pytest.mark.rule("BK-1")
async def test_a_journal_that_fails_afterwards_fails_the_add(kit: Any) -> None:
    bench = kit.Bench()

    def fail(_ledger: int, _entry: int, _body: bytes, on_durable: DurableCallback, token: object) -> None:
        asyncio.get_running_loop().call_soon(on_durable, token, StorageIOError())

    bench.storage.add_entry = fail
    assert await bench.status(kit.add(1, 0)) is Status.IO_ERROR
    assert bench.bookie.pending_adds == 0


@pytest.mark.rule("BK-1")
@pytest.mark.parametrize("size", [0, 7, 8, 16, 23])
async def test_a_body_too_short_to_hold_its_ids_is_a_bad_request_and_creates_nothing(kit: Any, size: int) -> None:
    bench = kit.Bench()
    await bench.ask(kit.add(1, 0))
    body = kit.entry_body(1, 1)[:size]
    assert await bench.status(AddRequest(1, 1, kit.KEY, body, b"")) is Status.BAD_REQUEST
    assert await bench.status(AddRequest(2, 1, kit.KEY, kit.entry_body(2, 1)[:size], b"")) is Status.BAD_REQUEST
    assert bench.bookie.ledger_ids() == [1]
    if size >= 8:
        assert await bench.status(AddRequest(1, 1, kit.OTHER_KEY, body, b"")) is Status.UNAUTHORIZED
        await bench.ask(kit.fencing_read(1))
        assert await bench.status(AddRequest(1, 1, kit.KEY, body, b"")) is Status.FENCED


async def test_a_negative_entry_id_is_a_bad_request(kit: Any) -> None:
    bench = kit.Bench()
    assert await bench.status(kit.add(1, -1)) is Status.BAD_REQUEST
    assert await bench.status(kit.fencing_read(1)) is Status.NO_ENTRY


# ---------------------------------------------------------------------------------------------------------------- limits


@pytest.mark.rule("BK-9")
def test_pending_adds_are_bounded_and_high_priority_is_not(kit: Any, virtually: Virtually) -> None:
    async def story() -> None:
        bench = kit.Bench(BookieConfig(pending_adds_max=3), SLOW)
        answers = bench.submit(*(kit.add(1, entry_id) for entry_id in range(5)))
        assert [(answer.status, answer.entry_id) for answer in answers] == [
            (Status.TOO_MANY_REQUESTS, 3),
            (Status.TOO_MANY_REQUESTS, 4),
        ]
        lac = WriteLacRequest(1, 0, kit.KEY, kit.entry_body(1, 0))
        assert await bench.status(lac) is Status.TOO_MANY_REQUESTS
        assert await bench.status(ForceLedgerRequest(1)) is Status.TOO_MANY_REQUESTS
        urgent = bench.submit(kit.add(1, 9, recovery=True, high_priority=True))
        await asyncio.sleep(1)
        assert urgent.statuses == [Status.OK]
        assert answers.statuses[2:] == [Status.OK] * 3
        assert bench.bookie.pending_adds == 0
        bench.submit(*(kit.add(1, entry_id) for entry_id in range(3)))
        assert bench.bookie.pending_adds == 3

    virtually(story)


@pytest.mark.rule("BK-8")
async def test_a_read_only_bookie_serves_everything_but_ordinary_writes(kit: Any) -> None:
    bench = kit.Bench()
    await bench.ask(kit.add(1, 0))
    bench.bookie.set_read_only(True)
    assert await bench.status(kit.add(1, 1)) is Status.READ_ONLY
    assert await bench.status(kit.add(1, 1, recovery=True)) is Status.READ_ONLY, "re-replication has no priority"
    lac = kit.entry_body(1, 0)
    assert await bench.ask(WriteLacRequest(1, 0, kit.KEY, lac)) == [WriteLacResponse(Status.READ_ONLY, 1)]
    assert await bench.status(ForceLedgerRequest(1)) is Status.OK
    assert await bench.status(kit.fencing_read(1)) is Status.OK
    assert await bench.status(kit.add(1, 1, recovery=True, high_priority=True)) is Status.OK
    bench.bookie.set_read_only(False)
    assert await bench.status(kit.add(2, 0)) is Status.OK


@pytest.mark.rule("BK-8")
async def test_high_priority_adds_can_be_refused_in_read_only_mode(kit: Any) -> None:
    bench = kit.Bench(BookieConfig(high_priority_adds_when_read_only=False))
    bench.bookie.set_read_only(True)
    assert await bench.status(kit.add(1, 1, recovery=True, high_priority=True)) is Status.READ_ONLY


@pytest.mark.rule("BK-8")
async def test_a_full_disk_turns_the_bookie_read_only_until_there_is_space(kit: Any) -> None:
    bench = kit.Bench(capacity_bytes=1000)
    modes: list[bool] = []
    stop = bench.bookie.watch_read_only(modes.append)
    for ledger_id in range(10):
        assert await bench.status(kit.add(ledger_id, 0, payload=bytes(48))) is Status.OK
    assert modes == [True]
    assert await bench.status(kit.add(1, 1, payload=b"")) is Status.READ_ONLY
    assert await bench.status(kit.add(1, 1, payload=bytes(100), high_priority=True)) is Status.IO_ERROR
    bench.bookie.delete_ledger(0)
    assert modes == [True, False]
    bench.bookie.set_read_only(True)
    bench.bookie.delete_ledger(1)
    assert bench.bookie.read_only, "by hand stays by hand"
    bench.bookie.set_read_only(False)
    assert modes == [True, False, True, False]
    stop()
    stop()
    bench.bookie.set_read_only(True)
    assert len(modes) == 4


@pytest.mark.parametrize("name", BookieConfig.__slots__)
def test_negative_limits_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match=name):
        BookieConfig(**{name: -1})  # type: ignore[arg-type]


@pytest.mark.rule("BK-33")
async def test_a_key_too_long_for_any_client_is_refused_and_nothing_is_kept_of_it(kit: Any) -> None:
    bench = kit.Bench(BookieConfig(master_key_bytes_max=30))
    for request in (
        kit.add(1, 0, master_key=bytes(31)),
        kit.fencing_read(1, key=bytes(31)),
        WriteLacRequest(1, 0, bytes(31), struct.pack(">qq", 1, 0)),
    ):
        assert await bench.status(request) is Status.BAD_REQUEST
        assert bench.bookie.ledger_ids() == []
    assert await bench.status(kit.add(1, 0, master_key=bytes(30))) is Status.OK
    assert await bench.status(kit.add(1, 1, master_key=bytes(31))) is Status.UNAUTHORIZED
    bench.bookie.set_limbo(2, in_limbo=True, fence=False)
    assert await bench.status(kit.fencing_read(2, key=bytes(31))) is Status.BAD_REQUEST
    assert bench.storage.ledger(2).master_key is None


@pytest.mark.rule("BK-33")
async def test_an_explicit_lac_too_long_for_any_client_is_refused(kit: Any) -> None:
    bench = kit.Bench(BookieConfig(explicit_lac_bytes_max=40))
    body = struct.pack(">qq", 1, 7)
    assert await bench.status(WriteLacRequest(1, 7, kit.KEY, body + bytes(25))) is Status.BAD_REQUEST
    assert await bench.status(WriteLacRequest(1, 7, kit.KEY, body + bytes(24))) is Status.OK


@pytest.mark.rule("BK-33")
@pytest.mark.parametrize("kind", ["ledgers", "lacs"])
async def test_what_strangers_store_without_entries_fills_the_bookie_too(kit: Any, kind: str) -> None:
    bench = kit.Bench(capacity_bytes=10_000)
    bench.storage.config = replace(bench.storage.config, ledger_bytes=100)
    statuses = set()
    for ledger_id in range(200):
        request = (
            kit.fencing_read(ledger_id)
            if kind == "ledgers"
            else WriteLacRequest(ledger_id, 7, kit.KEY, struct.pack(">qq", ledger_id, 7) + bytes(100))
        )
        statuses.add(await bench.status(request))
    assert bench.bookie.read_only
    assert bench.storage.capacity().free < 500
    assert len(bench.bookie.ledger_ids()) < 100
    assert statuses <= {Status.NO_ENTRY, Status.IO_ERROR, Status.OK, Status.READ_ONLY}

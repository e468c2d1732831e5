"""One journal: when groups are flushed, what a sync covers, how files roll, and who waits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from simbookie.storage.base import CrashMode, StorageIOError
from simbookie.storage.disk.faults import DiskFault, DiskFaultKind, DiskOperation
from simbookie.storage.disk.simulated import DiskCosts, SimulatedDisk
from simbookie.storage.journal.mark import LogMark
from simbookie.storage.journal.records import explicit_lac_body, fence_body, key_body
from simbookie.storage.journal.replay import file_ids
from simbookie.storage.journal.watching import FlushCause
from simbookie.storage.quirks import Quirk
from tests.simbookie.storage.journals import JournalBench, journal_records, journal_settings
from tests.simbookie.storage.stores import entry

Virtually = Callable[[Callable[[], Any]], None]
EMPTY = journal_settings(group_wait_max_s=0)


# --------------------------------------------------------------------------------------------------- group commit


def test_a_lone_record_waits_for_company_then_for_the_sync(virtually: Virtually) -> None:
    async def story() -> None:
        bench = await JournalBench(sync_s=0.005).opened()
        bench.add(1)
        await asyncio.sleep(1)
        assert bench.acknowledged == [(1, 1.007)]
        assert bench.journal.stats.flushes[FlushCause.MAX_WAIT] == 1

    virtually(story)


def test_records_that_come_while_the_oldest_waits_are_in_its_group(virtually: Virtually) -> None:
    async def story() -> None:
        bench = await JournalBench().opened()
        for entry_id in range(4):
            bench.add(entry_id)
            await asyncio.sleep(0.0006)
        await asyncio.sleep(1)
        assert bench.acknowledged == [(entry_id, 1.002) for entry_id in range(4)]
        assert bench.journal.stats.syncs == 1

    virtually(story)


def test_when_the_wait_is_over_records_that_have_waited_as_long_join_the_group_and_younger_ones_do_not(
    virtually: Virtually,
) -> None:
    async def story() -> None:
        # the writer stands still while the queue of syncs is full, so that records grow old before it sees them
        bench = await JournalBench(journal_settings(queue_size=1), sync_s=0.010).opened()
        bench.add(0)
        await asyncio.sleep(0.003)  # 0 is being synced
        bench.add(1)
        await asyncio.sleep(0.003)  # 1 is in the queue of syncs
        bench.add(2)
        await asyncio.sleep(0.0025)  # 2 is flushed and held up; from here on the writer stands still
        bench.add(3)
        await asyncio.sleep(0.003)
        bench.add(4)
        await asyncio.sleep(1)
        assert bench.acknowledged.tokens == [0, 1, 2, 3, 4]
        zero, one, two, three, four = bench.acknowledged.times
        assert (zero, one, two) == (1.012, 1.022, 1.032)
        assert three == four, "both had waited long when the writer went on: one group, though 4 came 3 ms later"

    virtually(story)


def test_the_round_that_finds_the_wait_over_takes_one_more_and_a_further_young_one_waits(virtually: Virtually) -> None:
    async def story() -> None:
        bench = await JournalBench().opened()
        bench.add(0)
        # they come in the turn of the loop in which the wait ends
        asyncio.get_running_loop().call_at(1.002, bench.add, 1, 2, 3)
        await asyncio.sleep(1)
        assert bench.acknowledged == [(0, 1.002), (1, 1.002), (2, 1.004), (3, 1.004)]

    virtually(story)


def test_a_large_group_is_flushed_when_a_further_record_comes(virtually: Virtually) -> None:
    async def story() -> None:
        settings = journal_settings(group_wait_max_s=5.0, buffered_bytes_max=1_000)
        bench = await JournalBench(settings).opened()
        bench.add(0, size=996)
        bench.add(1, size=100)
        await asyncio.sleep(0.001)
        assert bench.acknowledged == [], "1,000 bytes are not more than the limit"
        bench.add(2, 3, 4, size=100)
        await asyncio.sleep(0.001)
        assert bench.acknowledged.tokens == [0, 1]
        assert bench.journal.stats.flushes[FlushCause.MAX_OUTSTANDING_BYTES] == 1
        await asyncio.sleep(10)
        assert bench.acknowledged == [(0, 1.001), (1, 1.001), (2, 6.001), (3, 6.001), (4, 6.001)]

    virtually(story)


def test_a_limit_of_records_is_passed_by_one(virtually: Virtually) -> None:
    async def story() -> None:
        bench = await JournalBench(journal_settings(group_wait_max_s=5.0, buffered_entries_max=3)).opened()
        bench.add(*range(4))
        await asyncio.sleep(0.001)
        assert bench.acknowledged == []
        bench.add(4)
        await asyncio.sleep(0.001)
        assert bench.acknowledged.tokens == [0, 1, 2, 3]
        assert bench.journal.stats.flushes[FlushCause.MAX_OUTSTANDING_BYTES] == 1

    virtually(story)


@pytest.mark.parametrize("fields", [{"flush_when_queue_empty": True}, {"group_wait_max_s": 0}])
def test_a_group_is_flushed_as_soon_as_nothing_is_queued_if_asked_to(
    virtually: Virtually, fields: dict[str, Any]
) -> None:
    async def story() -> None:
        bench = await JournalBench(journal_settings(**fields), sync_s=0.005).opened()
        bench.add(0, 1)
        await asyncio.sleep(0.001)
        bench.add(2)
        await asyncio.sleep(1)
        assert bench.acknowledged == [(0, 1.005), (1, 1.005), (2, 1.01)]
        assert bench.journal.stats.flushes[FlushCause.EMPTY_QUEUE] == 2

    virtually(story)


def test_no_callback_runs_within_the_call(virtually: Virtually) -> None:
    async def story() -> None:
        bench = await JournalBench(EMPTY).opened()
        bench.add(1)
        assert bench.acknowledged == []
        await asyncio.sleep(0.001)
        assert bench.acknowledged.tokens == [1]

    virtually(story)


# ---------------------------------------------------------------------------------------------------------- syncing


def test_flushes_during_a_sync_share_the_next_one_and_are_acknowledged_in_order(virtually: Virtually) -> None:
    async def story() -> None:
        bench = await JournalBench(EMPTY, sync_s=0.010).opened()
        for entry_id in range(5):
            bench.add(entry_id)
            await asyncio.sleep(0.002)
        await asyncio.sleep(1)
        assert bench.acknowledged == [(0, 1.01), *((entry_id, 1.02) for entry_id in range(1, 5))]
        assert bench.journal.stats.last_group == 4
        assert bench.journal.mark == LogMark(1, 6 * 512)

    virtually(story)


def test_the_mark_follows_the_syncs(virtually: Virtually) -> None:
    async def story() -> None:
        bench = await JournalBench(EMPTY, sync_s=0.010, mark=LogMark(0, 77)).opened()
        bench.add(0, size=100)
        await asyncio.sleep(0.009)
        assert bench.journal.mark == LogMark(0, 77)
        await asyncio.sleep(0.002)
        assert bench.journal.mark == LogMark(1, 1_024)

    virtually(story)


def test_an_acknowledged_record_survives_a_power_loss_and_an_unacknowledged_one_need_not(virtually: Virtually) -> None:
    async def story() -> None:
        bench = await JournalBench(EMPTY, sync_s=0.010).opened()
        bench.add(0)
        await asyncio.sleep(0.005)
        bench.add(1)
        await asyncio.sleep(0.006)
        assert bench.acknowledged.tokens == [0]
        lost = bench.journal.crash()
        bench.disk.crash(CrashMode.POWER_LOSS)
        assert (bench.entries(), lost) == ([0], [(7, 1)])
        await asyncio.sleep(1)
        assert bench.acknowledged.tokens == [0]

    virtually(story)


def test_a_process_crash_keeps_what_was_flushed_and_loses_what_was_buffered(virtually: Virtually) -> None:
    async def story() -> None:
        bench = await JournalBench(sync_s=1.0).opened()
        await asyncio.sleep(1)
        bench.add(0)
        await asyncio.sleep(0.003)
        bench.add(1)
        await asyncio.sleep(0.001)
        assert bench.journal.crash() == [(7, 0), (7, 1)]
        bench.disk.crash(CrashMode.PROCESS)
        assert bench.entries() == [0]

    virtually(story)


def test_records_that_wait_for_no_sync_are_acknowledged_after_the_flush(virtually: Virtually) -> None:
    async def story() -> None:
        bench = await JournalBench(EMPTY, sync_s=0.010).opened()
        bench.add(0)
        bench.add(1, written=True)
        await asyncio.sleep(1)
        assert (bench.written, bench.acknowledged) == ([(1, 1.0)], [(0, 1.01)])

    virtually(story)


def test_without_syncing_a_flush_acknowledges_and_a_sync_comes_once_in_an_interval(virtually: Virtually) -> None:
    async def story() -> None:
        settings = journal_settings(group_wait_max_s=0, sync_data=False, page_cache_flush_interval_s=0.5)
        bench = await JournalBench(settings, sync_s=0.010).opened()
        for entry_id in range(12):
            bench.add(entry_id)
            await asyncio.sleep(0.1)
        assert bench.acknowledged.times == [round(1.0 + 0.1 * entry_id, 6) for entry_id in range(12)]
        assert bench.journal.stats.syncs == 3, "of entries 0, 5 and 10"
        bench.journal.crash()
        bench.disk.crash(CrashMode.POWER_LOSS)
        assert bench.entries() == list(range(11))

    virtually(story)


@pytest.mark.parametrize("is_faithful", [False, True])
def test_forcing_waits_for_a_sync_where_nothing_else_does(virtually: Virtually, *, is_faithful: bool) -> None:
    async def story() -> None:
        settings = journal_settings(group_wait_max_s=0, sync_data=False, page_cache_flush_interval_s=100)
        quirks = frozenset({Quirk.FORCE_WITHOUT_SYNC}) if is_faithful else frozenset[Quirk]()
        bench = await JournalBench(settings, sync_s=0.010, quirks=quirks).opened()
        bench.add(0)
        assert bench.force()
        await asyncio.sleep(1)
        assert bench.acknowledged == [(0, 1.0), ("force", 1.0 if is_faithful else 1.01)]
        bench.journal.crash()
        bench.disk.crash(CrashMode.POWER_LOSS)
        assert bench.entries() == ([] if is_faithful else [0])

    virtually(story)


def test_forcing_covers_what_was_queued_before_and_writes_nothing(virtually: Virtually) -> None:
    async def story() -> None:
        bench = await JournalBench(sync_s=0.010).opened()
        bench.add(0, written=True)
        bench.force()
        await asyncio.sleep(1)
        assert (bench.written, bench.acknowledged) == ([(0, 1.002)], [("force", 1.012)])
        assert bench.entries() == [0]

    virtually(story)


# ------------------------------------------------------------------------------------------------- bounds and lines


def test_a_full_queue_has_senders_wait_in_line_and_refuses_to_force(virtually: Virtually) -> None:
    async def story() -> None:
        bench = await JournalBench(journal_settings(group_wait_max_s=0, queue_size=3)).opened()
        bench.add(*range(5))
        assert (bench.journal.queued, bench.journal.in_line) == (3, 2)
        assert not bench.force()
        await asyncio.sleep(1)
        assert bench.acknowledged.tokens == [0, 1, 2, 3, 4]
        assert bench.force()

    virtually(story)


def test_memory_is_reserved_until_the_record_is_in_the_buffer_and_one_may_go_over(virtually: Virtually) -> None:
    async def story() -> None:
        bench = await JournalBench(memory_bytes_max=250, sync_s=0.010).opened()
        bench.add(0, 1, 2, 3, size=100)
        assert (bench.journal.memory_used, bench.journal.queued, bench.journal.in_line) == (300, 3, 1)
        await asyncio.sleep(0.001)
        assert (bench.journal.memory_used, bench.journal.in_line) == (0, 0), "long before the sync"
        await asyncio.sleep(1)
        assert bench.acknowledged.tokens == [0, 1, 2, 3]

    virtually(story)


def test_the_line_keeps_its_order_whatever_is_small(virtually: Virtually) -> None:
    async def story() -> None:
        bench = await JournalBench(memory_bytes_max=100).opened()
        bench.add(0, size=200)
        bench.add(1, size=200)
        bench.add(2, size=32)
        assert bench.force(), "takes no memory"
        assert bench.journal.in_line == 3
        await asyncio.sleep(1)
        assert bench.entries() == [0, 1, 2]
        assert bench.acknowledged.tokens == [0, 1, 2, "force"]

    virtually(story)


def test_the_writer_waits_while_the_queue_of_syncs_is_full(virtually: Virtually) -> None:
    async def story() -> None:
        bench = await JournalBench(journal_settings(group_wait_max_s=0, queue_size=2), sync_s=1.0).opened()
        await asyncio.sleep(5)
        seen = 0
        for entry_id in range(8):
            bench.add(entry_id)
            await asyncio.sleep(0.01)
            seen = max(seen, bench.journal.flushes_waiting)
        assert seen == 2
        assert bench.entries() == [0, 1, 2, 3], "one is synced, two wait, one is held up; the rest is not written"
        assert (bench.journal.queued, bench.journal.in_line) == (2, 2)
        await asyncio.sleep(10)
        assert bench.acknowledged.tokens == list(range(8))

    virtually(story)


# ------------------------------------------------------------------------------------------------------------- files


def test_arrival_order_is_the_order_in_the_file_with_every_kind_of_record(virtually: Virtually) -> None:
    async def story() -> None:
        bench = await JournalBench().opened()
        bodies = [key_body(7, b"key"), fence_body(7), explicit_lac_body(7, b"packet")]
        for number, body in enumerate(bodies):
            bench.add(number)
            bench.journal.append(7, -0x1000, body, None, None)
        await asyncio.sleep(1)
        kinds = [(record.kind.value, record.content[-6:]) for record in journal_records(bench.folder)]
        assert [kind for kind, _ in kinds] == ["entry", "key", "entry", "fence", "entry", "explicit-lac"]
        assert (kinds[1][1], kinds[5][1]) == (b"key", b"packet")

    virtually(story)


def test_explicit_lacs_are_not_written_in_an_older_format(virtually: Virtually) -> None:
    async def story() -> None:
        bench = await JournalBench(journal_settings(format_version=5)).opened()
        bench.journal.append(7, -0x8000, explicit_lac_body(7, b"packet"), bench.acknowledged, "lac")
        bench.add(0)
        await asyncio.sleep(1)
        assert bench.acknowledged.tokens == ["lac", 0]
        assert bench.entries() == [0]

    virtually(story)


def test_a_file_grows_ahead_of_what_is_written_and_flushes_end_at_the_alignment(virtually: Virtually) -> None:
    async def story() -> None:
        bench = await JournalBench(journal_settings(group_wait_max_s=0, alignment_bytes=4_096)).opened()
        file = bench.folder.open("1.txn")
        assert file.size == 16_384
        bench.add(0, size=100)
        await asyncio.sleep(0.001)
        assert bench.journal.mark == LogMark(1, 4_096)
        bench.add(1, size=12_276)
        await asyncio.sleep(0.001)
        assert (bench.journal.mark, file.size) == (LogMark(1, 16_384), 16_384)
        bench.add(2)
        await asyncio.sleep(0.001)
        assert (bench.journal.mark, file.size) == (LogMark(1, 20_480), 32_768)
        assert bench.entries() == [0, 1, 2]

    virtually(story)


def test_format_4_has_neither_a_long_header_nor_padding(virtually: Virtually) -> None:
    async def story() -> None:
        bench = await JournalBench(journal_settings(group_wait_max_s=0, format_version=4)).opened()
        bench.add(0)
        await asyncio.sleep(0.001)
        bench.add(1)
        await asyncio.sleep(0.001)
        assert bench.journal.mark == LogMark(1, 8 + 2 * 36)
        assert bench.entries() == [0, 1]

    virtually(story)


def test_the_buffer_goes_to_the_page_cache_when_it_is_full(virtually: Virtually) -> None:
    async def story() -> None:
        bench = await JournalBench(journal_settings(write_buffer_bytes=1_000, group_wait_max_s=5.0)).opened()
        bench.add(0, size=900)
        await asyncio.sleep(0.001)
        assert bench.entries() == []
        bench.add(1, size=900)
        await asyncio.sleep(0.001)
        # of the second its beginning: what was allocated ahead makes it look whole
        assert bench.entries() == [0, 1]
        assert bench.journal.mark == LogMark()

    virtually(story)


def test_a_file_that_grew_too_large_is_followed_by_the_next(virtually: Virtually) -> None:
    async def story() -> None:
        bench = await JournalBench(journal_settings(group_wait_max_s=0, file_bytes_max=1_536)).opened()
        for entry_id in range(6):
            bench.add(entry_id, size=500)
            await asyncio.sleep(0.001)
        # 512 of header, 512 for each entry; the third one takes a file above 1,536
        assert file_ids(bench.folder) == [1, 2, 3]
        assert bench.entries() == list(range(6))
        assert bench.acknowledged.tokens == list(range(6))
        await bench.drained()

    virtually(story)


def test_ids_begin_after_the_time_and_go_on_from_what_is_there(virtually: Virtually) -> None:
    async def story() -> None:
        disk = SimulatedDisk()
        for name in ("1f.txn", "3.txn", "lastId"):
            disk.create(f"journal/current/{name}")
        bench = await JournalBench(disk=disk).opened()
        assert max(file_ids(bench.folder)) == 0x20
        assert file_ids((await JournalBench().opened()).folder) == [1]

    virtually(story)


@pytest.mark.parametrize("is_faithful", [False, True])
def test_a_sync_after_a_roll_covers_the_older_file_too(virtually: Virtually, *, is_faithful: bool) -> None:
    async def story() -> None:
        disk = SimulatedDisk(costs=DiskCosts(sync_s=0.010, at_a_time=2))
        disk.faults.plant(DiskFault(DiskOperation.SYNC, DiskFaultKind.STALL, path="*/1.txn", skip=1, amount=0.1))
        quirks = frozenset({Quirk.ROLLED_FILE_SYNCED_LATE}) if is_faithful else frozenset[Quirk]()
        settings = journal_settings(group_wait_max_s=0, file_bytes_max=1_536)
        bench = await JournalBench(settings, disk, quirks=quirks).opened()
        lost: list[bool] = []

        def acknowledged(_token: object, _error: object) -> None:
            # the power goes as the first of them is acknowledged
            bench.journal.crash()
            disk.crash(CrashMode.POWER_LOSS)
            lost.append(1 not in bench.entries())

        bench.add(0, size=500)
        await asyncio.sleep(0.001)
        # while 0 is being synced: 1, then 2, which closes the file, then 3 in the next file
        bench.journal.append(7, 1, entry(7, 1, bytes(468)), acknowledged, 1)
        for entry_id in (2, 3):
            await asyncio.sleep(0.001)
            bench.add(entry_id, size=500)
        await asyncio.sleep(1)
        assert file_ids(bench.folder) == [1, 2]
        assert bench.acknowledged.tokens == [0]
        assert lost == [is_faithful]

    virtually(story)


def test_a_failure_between_two_flushes_of_a_sync_tells_nobody_twice(virtually: Virtually) -> None:
    async def story() -> None:
        disk = SimulatedDisk(costs=DiskCosts(sync_s=0.010, at_a_time=2))
        disk.faults.plant(DiskFault(DiskOperation.SYNC, DiskFaultKind.STALL, path="*/1.txn", skip=1, amount=0.1))
        settings = journal_settings(group_wait_max_s=0, file_bytes_max=1_536)
        bench = await JournalBench(settings, disk, quirks=frozenset({Quirk.ROLLED_FILE_SYNCED_LATE})).opened()
        for entry_id in range(4):
            bench.add(entry_id, size=500)
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.121)
        assert bench.acknowledged.tokens == [0, 1]
        disk.faults.plant(DiskFault(DiskOperation.WRITE))
        bench.add(4)
        await asyncio.sleep(1)
        assert bench.acknowledged.tokens == [0, 1]
        assert [token for token, _ in bench.acknowledged.errors] == [2, 3, 4]

    virtually(story)


# ------------------------------------------------------------------------------------------------------- when it ends


def test_draining_writes_syncs_and_acknowledges_everything(virtually: Virtually) -> None:
    async def story() -> None:
        bench = JournalBench(journal_settings(group_wait_max_s=60, queue_size=2), sync_s=0.010)
        bench.add(*range(5))
        await bench.drained()
        assert bench.acknowledged.tokens == list(range(5))
        bench.disk.crash(CrashMode.POWER_LOSS)
        assert bench.entries() == list(range(5))

    virtually(story)


def test_draining_syncs_what_was_acknowledged_without(virtually: Virtually) -> None:
    async def story() -> None:
        settings = journal_settings(group_wait_max_s=0, sync_data=False, page_cache_flush_interval_s=100)
        bench = await JournalBench(settings).opened()
        bench.add(0)
        await asyncio.sleep(1)
        await bench.drained()
        bench.disk.crash(CrashMode.POWER_LOSS)
        assert bench.entries() == [0]

    virtually(story)


@pytest.mark.parametrize(
    "fault",
    [
        DiskFault(DiskOperation.SYNC, skip=1),
        DiskFault(DiskOperation.WRITE, skip=2),
        DiskFault(DiskOperation.WRITE, DiskFaultKind.PARTIAL, skip=2, amount=9),
    ],
)
def test_a_disk_that_fails_ends_the_journal_and_fails_everything_that_waits(
    virtually: Virtually, fault: DiskFault
) -> None:
    async def story() -> None:
        bench = JournalBench(EMPTY, sync_s=0.010)
        bench.disk.faults.plant(fault)
        await bench.opened()
        bench.add(0, 1)
        await asyncio.sleep(0.005)
        bench.add(2)
        await asyncio.sleep(1)
        bench.add(3)
        assert bench.force()
        await asyncio.sleep(1)
        assert bench.acknowledged == []
        assert [token for token, _ in bench.acknowledged.errors] == [0, 1, 2, 3, "force"]
        assert len(bench.failures) == 1
        assert isinstance(bench.failures[0], StorageIOError)

    virtually(story)


def test_a_journal_that_failed_can_be_drained_and_crashed(virtually: Virtually) -> None:
    async def story() -> None:
        for is_crashed in (False, True):
            bench = await JournalBench(EMPTY).opened()
            bench.disk.faults.plant(DiskFault(DiskOperation.SYNC))
            bench.add(0)
            await asyncio.sleep(1)
            drained: list[bool] = []
            bench.journal.drain(partial(drained.append, True))
            assert drained == []
            if is_crashed:
                bench.journal.crash()
            await asyncio.sleep(1)
            assert drained == ([] if is_crashed else [True])

    virtually(story)


def test_a_journal_that_cannot_open_its_file_fails(virtually: Virtually) -> None:
    async def story() -> None:
        for operation in (DiskOperation.CREATE, DiskOperation.SYNC, DiskOperation.SYNC_FOLDER, DiskOperation.WRITE):
            bench = JournalBench()
            bench.disk.faults.plant(DiskFault(operation))
            bench.add(0)
            await asyncio.sleep(1)
            assert (len(bench.failures), len(bench.acknowledged.errors)) == (1, 1)

    virtually(story)


def test_a_callback_may_crash_the_journal(virtually: Virtually) -> None:
    async def story() -> None:
        bench = await JournalBench(EMPTY).opened()
        calls: list[object] = []

        def crash(token: object, _error: object) -> None:
            calls.append(token)
            bench.journal.crash()
            bench.disk.crash(CrashMode.PROCESS)

        for number in range(3):
            bench.journal.append(7, number, bytes(32), crash, number)
        await asyncio.sleep(1)
        assert calls == [0]

    virtually(story)


def test_every_step_has_a_name(virtually: Virtually) -> None:
    async def story() -> None:
        steps: list[str] = []
        bench = await JournalBench(EMPTY, on_step=steps.append).opened()
        bench.add(0)
        await asyncio.sleep(1)
        names = ["create", "header", "flush", "written", "sync", "synced", "acknowledge"]
        assert steps == [f"journal.{name}" for name in names]

    virtually(story)


def test_a_journal_whose_disk_fails_while_it_is_drained_is_drained(virtually: Virtually) -> None:
    async def story() -> None:
        bench = await JournalBench(sync_s=0.01).opened()
        bench.add(0)
        bench.disk.faults.plant(DiskFault(DiskOperation.SYNC, path="journal/*"))
        await asyncio.wait_for(bench.drained(), 10)
        assert [token for token, _ in bench.acknowledged.errors] == [0]
        assert len(bench.failures) == 1

    virtually(story)

"""Writers that the application lets go without closing them: it is warned, and nothing is kept of them."""

from __future__ import annotations

import asyncio
import gc
import threading
import warnings
import weakref

import anyio
import pytest

from bkclient._client.writing.base import BaseWriter
from bkclient._client.writing.shell import WriterShell
from bkclient.config import ClientConfig, TimeoutSettings, WritingSettings
from bkclient.errors import Code, LedgerClosed
from bkclient.ledger import LedgerState
from bkclient.repair.admin import core_of
from tests.bkclient.fakes import FakeCluster, advanced_writer_of, fake_cluster, in_virtual_time, writer_of
from tests.bkclient.inside import shell_of
from tests.settling import settled

ALL_TIMERS = ClientConfig(
    timeouts=TimeoutSettings(add_quorum_s=30.0), writing=WritingSettings(explicit_lac_interval_s=20.0)
)


async def drop_one(where: FakeCluster) -> weakref.ref[WriterShell]:
    writer = await writer_of(where)
    await writer.append(b"kept")
    return weakref.ref(shell_of(writer))


def drop_in_virtual_time(writer: BaseWriter) -> weakref.ref[WriterShell]:
    """What the garbage collector does; but the simulated loop takes nothing from other threads, so it is told here."""
    shell_of(writer).on_dropped()
    return weakref.ref(shell_of(writer))


async def test_a_writer_that_is_dropped_without_close_warns_and_names_its_ledger() -> None:
    async with fake_cluster() as where:
        writer = await writer_of(where)
        ledger_id = writer.ledger_id
        gc.collect()  # what tests before this one have dropped
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            del writer
            gc.collect()
        (warning,) = (each for each in caught if "was dropped without close" in str(each.message))
        assert warning.category is ResourceWarning
        assert f"the writer of ledger {ledger_id} was dropped without close()" in str(warning.message)
        assert where.metadata(ledger_id).state is LedgerState.OPEN


async def test_nothing_is_kept_of_writers_that_were_dropped() -> None:
    async with fake_cluster(config=ALL_TIMERS) as where:
        core = core_of(where.bk)
        kept = len(core._closers)
        shells = [await drop_one(where) for _ in range(50)]
        await settled()
        gc.collect()

        assert [shell for shell in shells if shell() is not None] == []
        assert len(core._closers) == kept


async def test_writers_that_ended_are_dropped_without_a_word() -> None:
    async with fake_cluster() as where:
        async with await writer_of(where):
            pass
        closed = await writer_of(where)
        await closed.close()
        fenced = await writer_of(where)
        for bookie in where.transport.bookies.values():
            bookie.fenced.add(fenced.ledger_id)
        with pytest.raises(Exception, match="taken over"):
            await fenced.append(b"x")
        await settled()
        shells = [weakref.ref(shell_of(writer)) for writer in (closed, fenced)]
        left = await writer_of(where)
        del closed, fenced
        gc.collect()
        assert [shell for shell in shells if shell() is not None] == []
    del left  # the client has told it, and it is nobody's fault any more
    gc.collect()


@in_virtual_time
async def test_what_a_dropped_writer_has_under_way_ends_and_then_it_is_let_go() -> None:
    async with fake_cluster(config=ALL_TIMERS) as where:
        writer = await writer_of(where)
        where.transport.hold("abc")
        futures = [writer.append_nowait(b"x") for _ in range(3)]
        shell = drop_in_virtual_time(writer)
        del writer
        await anyio.sleep(3)
        assert not any(future.done() for future in futures)

        where.transport.release("abc")
        assert [await future for future in futures] == [0, 1, 2]
        await anyio.sleep(3)
        gc.collect()
        assert shell() is None
        assert (where.bk.in_flight_entries, where.bk.in_flight_bytes) == (0, 0)


@in_virtual_time
async def test_what_a_dropped_writer_has_above_a_gap_fails_because_nobody_can_fill_it() -> None:
    async with fake_cluster() as where:
        writer = await advanced_writer_of(where)
        first, beyond = writer.append_nowait(0, b"x"), writer.append_nowait(2, b"x")
        shared, ledger_id = shell_of(writer).window.shared, writer.ledger_id
        drop_in_virtual_time(writer)
        assert await first == 0
        await anyio.sleep(3)

        failure = beyond.exception()
        assert isinstance(failure, LedgerClosed)
        assert "dropped without close()" in str(failure)
        assert (shared.entries, shared.bytes, shared.above_gaps, shared.bytes_above_gaps) == (0, 0, 0, 0)
        assert where.metadata(ledger_id).state is LedgerState.OPEN


@in_virtual_time
async def test_a_dropped_writer_that_ends_by_itself_meanwhile_is_let_go_once() -> None:
    async with fake_cluster() as where:
        writer = await writer_of(where)
        where.transport.hold("abc")
        future = writer.append_nowait(b"x")
        drop_in_virtual_time(writer)
        where.transport.release("abc", Code.LEDGER_FENCED)
        await anyio.sleep(3)
        assert future.exception() is not None


async def test_garbage_may_be_collected_in_another_thread() -> None:
    async with fake_cluster() as where:
        held: list[BaseWriter] = [await writer_of(where)]
        shell = weakref.ref(shell_of(held[0]))
        thread = threading.Thread(target=held.clear)
        thread.start()
        await asyncio.to_thread(thread.join)
        await settled()
        gc.collect()
        assert shell() is None


def test_a_writer_may_outlive_its_loop() -> None:
    held: list[BaseWriter] = []

    async def make() -> None:
        async with fake_cluster() as where:
            held.append(await writer_of(where))

    asyncio.run(make())
    shell_of(held[0])._is_let_go = False  # as of a client whose loop was closed without a word to it
    held.clear()
    gc.collect()

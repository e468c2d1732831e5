"""Every call of client and writers, cancelled wherever it waits: ledger, window and handle stay as they should be.

Opening, watching and creating have their own stories beside their other tests.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import anyio
import pytest

from bkclient._client.writing.advanced import AdvancedLedgerWriter
from bkclient._client.writing.writer import LedgerWriter
from bkclient.config import ClientConfig, LimitSettings, TimeoutSettings, WritingSettings
from bkclient.errors import BookKeeperError, Code
from bkclient.ledger import LedgerState
from bkclient.repair.admin import core_of
from tests.bkclient.fakes import FakeCluster, advanced_writer_of, fake_cluster, payloads_of, writer_of
from tests.bkclient.inside import machine_of, shell_of
from tests.cancellation import Cancel, cancel_everywhere
from tests.settling import settled

Writer = LedgerWriter | AdvancedLedgerWriter
Call = Callable[[Any], Coroutine[Any, Any, object]]

#: Everything that makes appends wait: two entries in flight, a rate, connections to look at.
NARROW = ClientConfig(
    limits=LimitSettings(max_in_flight_entries=2, max_client_in_flight_entries=2, throttle_per_s=100),
    timeouts=TimeoutSettings(backpressure_s=0.01),
    writing=WritingSettings(explicit_lac_interval_s=1.0),
)


def hold_for_a_while(where: FakeCluster) -> None:
    where.transport.hold("abcd")
    asyncio.get_running_loop().call_later(0.005, where.transport.release, "abcd")


async def check(where: FakeCluster, writer: Writer, acknowledged: list[bytes]) -> None:
    """The handle still works where it should, nothing is held, and another client finds what was acknowledged."""
    if machine_of(writer).is_writable:
        await writer.flush()
        if isinstance(writer, LedgerWriter):
            await writer.append(b"goes on")
        else:
            await writer.append(writer.last_add_acknowledged + 1, b"goes on")
        acknowledged = [*acknowledged, b"goes on"]
    window = shell_of(writer).window
    for line in (window, window.shared):
        assert (line.entries, line.bytes, line.woken, line.waiters) == (0, 0, 0, {})
    assert (window._own, shell_of(writer).turns) == ({}, {})
    async with where.another_client() as other:
        reader = await other.open_ledger(writer.ledger_id, password=b"secret", recover=True)
        payloads = [entry.payload async for entry in reader]
    assert [payload for payload in payloads if payload in acknowledged] == acknowledged
    metadata = where.metadata(writer.ledger_id)
    assert (metadata.state, metadata.last_entry_id) == (LedgerState.CLOSED, len(payloads) - 1)
    assert metadata.length == sum(map(len, payloads))


async def read_all(writer: Writer) -> list[bytes]:
    return [entry.payload async for entry in writer.reader.read_range(0, 0)]


async def in_a_block(writer: LedgerWriter) -> None:
    async with writer:
        await writer.append(b"cancelled")
        writer.append_nowait(b"in flight")


async def in_an_advanced_block(writer: AdvancedLedgerWriter) -> None:
    async with writer:
        await writer.append(3, b"cancelled")


COUNTED: dict[str, Call] = {
    "append": lambda writer: writer.append(b"cancelled"),
    "wait_for_room": lambda writer: writer.wait_for_room(),
    "flush": lambda writer: writer.flush(),
    "force": lambda writer: writer.force(),
    "write_explicit_lac": lambda writer: writer.write_explicit_lac(),
    "read": lambda writer: writer.reader.read(0),
    "read_range": read_all,
    "read_last_entry": lambda writer: writer.reader.read_last_entry(),
    "close": lambda writer: writer.close(),
    "async with": in_a_block,
}
GIVEN: dict[str, Call] = {
    **COUNTED,
    "append": lambda writer: writer.append(3, b"cancelled"),
    "wait_for_room": lambda writer: writer.wait_for_room(3),
    "async with": in_an_advanced_block,
}


@pytest.mark.parametrize("bookie_fails", [False, True])
@pytest.mark.parametrize("name", COUNTED)
def test_a_cancelled_call_of_a_writer_leaves_everything_consistent(name: str, bookie_fails: bool) -> None:
    async def story(cancel: Cancel) -> None:
        async with fake_cluster("abcd", config=NARROW) as where:
            writer = await writer_of(where)
            await writer.append(b"first")
            if bookie_fails:
                where.transport.bookies[writer.metadata.last_fragment.ensemble[1]].code = Code.TIMEOUT
            hold_for_a_while(where)
            writer.append_nowait(b"second")
            writer.append_nowait(b"third")  # the window is full
            try:
                await cancel(COUNTED[name](writer))
            except BookKeeperError:
                assert name == "force"
                assert bookie_fails
            await check(where, writer, [b"first"])

    cancel_everywhere(story)


@pytest.mark.parametrize("name", GIVEN)
def test_a_cancelled_call_of_an_advanced_writer_leaves_everything_consistent(name: str) -> None:
    async def story(cancel: Cancel) -> None:
        async with fake_cluster("abcd", config=NARROW) as where:
            writer = await advanced_writer_of(where)
            await writer.append(0, b"first")
            hold_for_a_while(where)
            writer.append_nowait(1, b"second")
            writer.append_nowait(2, b"third")  # the window is full
            await cancel(GIVEN[name](writer))
            await check(where, writer, [b"first"])

    cancel_everywhere(story)


def test_an_append_above_a_gap_that_is_cancelled_still_counts_when_the_gap_is_filled() -> None:
    async def story(cancel: Cancel) -> None:
        async with fake_cluster(config=ClientConfig(limits=LimitSettings(max_in_flight_entries=1))) as where:
            writer = await advanced_writer_of(where)
            shell_of(writer).loop.call_later(1, writer.append_nowait, 0, b"fills the gap")
            await cancel(writer.append(1, b"above"))
            await anyio.sleep(2)
            assert writer.in_flight_entries == 0
            await check(where, writer, [b"fills the gap"])

    cancel_everywhere(story)


@pytest.mark.parametrize("is_failing", [False, True])
def test_a_cancelled_force_of_a_deferred_ledger_may_be_repeated(is_failing: bool) -> None:
    async def story(cancel: Cancel) -> None:
        async with fake_cluster() as where:
            writer = await where.bk.create_ledger(write_quorum_size=3, password=b"secret", deferred_sync=True)
            await writer.append(b"0")
            await settled()
            if is_failing:
                where.transport.bookies["b"].code = Code.TIMEOUT
            try:
                await cancel(writer.force())
            except BookKeeperError:
                assert is_failing
            where.transport.bookies["b"].code = None
            await settled()
            await writer.force()
            assert writer.last_add_confirmed == 0
            await writer.close()
            assert await payloads_of(where, writer.ledger_id) == [b"0"]

    cancel_everywhere(story)


def test_leaving_the_block_of_a_deferred_ledger_may_be_cancelled_and_loses_nothing_forced() -> None:
    async def story(cancel: Cancel) -> None:
        async with fake_cluster() as where:
            writer = await where.bk.create_ledger(write_quorum_size=3, password=b"secret", deferred_sync=True)
            await writer.append(b"forced")
            await writer.force()

            async def use() -> None:
                async with writer:
                    await writer.append(b"not forced")

            await cancel(use())
            payloads = await payloads_of(where, writer.ledger_id)
            assert payloads in ([b"forced"], [b"forced", b"not forced"])

    cancel_everywhere(story)


CLIENT: dict[str, Callable[[FakeCluster, int], Coroutine[Any, Any, object]]] = {
    "create_advanced_ledger": lambda where, _: where.bk.create_advanced_ledger(),
    "open_ledger_as_administrator": lambda where, ledger_id: where.bk.open_ledger_as_administrator(
        ledger_id, recover=True
    ),
    "delete_ledger": lambda where, _: where.bk.delete_ledger(4711),
    "ledger_metadata": lambda where, ledger_id: where.bk.ledger_metadata(ledger_id),
    "is_closed": lambda where, ledger_id: where.bk.is_closed(ledger_id),
    "bookies": lambda where, _: where.bk.bookies(),
    "is_metadata_available": lambda where, _: where.bk.is_metadata_available(),
    "list_ledgers": lambda where, _: listed(where),
}


async def listed(where: FakeCluster) -> list[int]:
    return [ledger_id async for ledger_id in where.bk.list_ledgers()]


@pytest.mark.parametrize("name", CLIENT)
def test_a_cancelled_call_of_the_client_leaves_it_usable(name: str) -> None:
    async def story(cancel: Cancel) -> None:
        async with fake_cluster("abcd") as where:
            writer = await writer_of(where)
            await writer.append(b"first")
            await settled()
            await cancel(CLIENT[name](where, writer.ledger_id))
            await settled()
            if name == "open_ledger_as_administrator":
                assert await payloads_of(where, writer.ledger_id) == [b"first"]
            else:
                await check(where, writer, [b"first"])
            async with await where.bk.create_ledger(ledger_id=99) as another:
                await another.append(b"x")
            assert not core_of(where.bk).window.entries

    cancel_everywhere(story)


def test_leaving_the_client_may_be_cancelled_and_closes_the_transport_all_the_same() -> None:
    async def story(cancel: Cancel) -> None:
        async with fake_cluster() as where:
            other = where.another_client()

            async def use() -> None:
                async with other as bk:
                    writer = await bk.create_ledger()
                    writer.append_nowait(b"x")

            await cancel(use())
            assert where.transport.is_closed is False
            if other._core is not None:
                assert other._core.is_closed

    cancel_everywhere(story)

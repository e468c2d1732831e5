"""Many entries appended by one call, as an application meets it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from bkclient.config import ClientConfig, LimitSettings
from bkclient.errors import (
    ArgumentError,
    BookKeeperError,
    Code,
    IllegalOperation,
    LedgerClosed,
    LedgerFenced,
    NotEnoughBookies,
)
from bkclient.observability import stats as names
from bkclient.observability.memory_stats import MemoryStats
from bkclient.protocol.append import AppendMachine
from tests.bkclient.fakes import fake_cluster, in_virtual_time, payloads_of, writer_of
from tests.bkclient.inside import shell_of
from tests.settling import settled

NARROW = ClientConfig(limits=LimitSettings(max_in_flight_entries=8))


def numbered(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


async def test_entries_are_in_their_order_and_have_the_ids_that_are_returned() -> None:
    async with fake_cluster(config=NARROW) as where:
        async with await writer_of(where) as writer:
            assert await writer.append(b"before") == 0
            assert await writer.append_all(numbered(100)) == list(range(1, 101))
            assert writer.last_add_acknowledged == writer.last_add_pushed == 100
            assert writer.in_flight_entries == 0
        assert await payloads_of(where, writer.ledger_id) == [b"before", *numbered(100)]


async def test_nothing_is_appended_of_nothing() -> None:
    async with fake_cluster() as where, await writer_of(where) as writer:
        assert await writer.append_all([]) == []
        assert writer.last_add_pushed == -1


async def test_payloads_are_taken_as_there_is_room() -> None:
    """So a generator may be as long as it likes; what is taken and not appended yet is bounded."""
    taken = 0

    def generated() -> Iterator[bytes]:
        nonlocal taken
        for payload in numbered(1000):
            taken += 1
            yield payload

    async with fake_cluster(config=NARROW) as where, await writer_of(where) as writer:
        where.transport.hold("abc")
        appending = asyncio.create_task(writer.append_all(generated()))
        await settled()
        assert (writer.in_flight_entries, writer.last_add_pushed) == (8, 7)
        assert taken <= 8 + 256
        where.transport.release("abc")
        assert await appending == list(range(1000))


async def test_large_payloads_are_not_taken_many_at_a_time() -> None:
    taken = 0

    def generated() -> Iterator[bytes]:
        nonlocal taken
        for _ in range(100):
            taken += 1
            yield bytes(512 * 1024)

    limits = LimitSettings(max_in_flight_bytes=12 * 1024 * 1024, max_client_in_flight_bytes=64 * 1024 * 1024)
    async with fake_cluster(config=ClientConfig(limits=limits)) as where, await writer_of(where) as writer:
        where.transport.hold("abc")
        appending = asyncio.create_task(writer.append_all(generated()))
        await settled()
        assert writer.in_flight_entries == 24
        assert taken <= 24 + 2, "a megabyte at a time"
        where.transport.release("abc")
        await appending


async def test_any_bytes_like_payload_is_copied_when_it_is_taken() -> None:
    buffer = bytearray(b"first")
    async with fake_cluster() as where:
        async with await writer_of(where) as writer:
            where.transport.hold("abc")
            appending = asyncio.create_task(writer.append_all([buffer, memoryview(b"second"), b"third"]))
            await settled()
            buffer[:] = b"other"
            where.transport.release("abc")
            await appending
        assert await payloads_of(where, writer.ledger_id) == [b"first", b"second", b"third"]


@pytest.mark.parametrize("wrong", ["text", None, 7, bytes(6 * 1024 * 1024)], ids=lambda value: type(value).__name__)
@pytest.mark.parametrize("place", [0, 5, 40])
async def test_a_payload_that_is_none_ends_it_behind_those_before(wrong: Any, place: int) -> None:
    payloads: list[Any] = numbered(50)
    payloads[place] = wrong
    async with fake_cluster(config=NARROW) as where:
        async with await writer_of(where) as writer:
            with pytest.raises(ArgumentError, match="payload must be"):
                await writer.append_all(payloads)
            assert writer.last_add_pushed == place - 1
            assert await writer.append(b"goes on") == place
        assert await payloads_of(where, writer.ledger_id) == [*numbered(place), b"goes on"]


@pytest.mark.parametrize("wrong", [b"one payload", "text", 5, None], ids=lambda value: type(value).__name__)
async def test_one_payload_is_no_source_of_payloads(wrong: Any) -> None:
    async with fake_cluster() as where, await writer_of(where) as writer:
        with pytest.raises(ArgumentError, match=f"iterable of bytes-like objects, got {type(wrong).__name__}"):
            await writer.append_all(wrong)
        assert writer.last_add_pushed == -1


async def test_an_exception_of_the_source_ends_it_and_the_writer_goes_on() -> None:
    def generated() -> Iterator[bytes]:
        yield from numbered(20)
        raise ZeroDivisionError

    async with fake_cluster(config=NARROW) as where:
        async with await writer_of(where) as writer:
            with pytest.raises(ZeroDivisionError):
                await writer.append_all(generated())
            await writer.flush()
            pushed = writer.last_add_pushed + 1
            assert await writer.append(b"goes on") == pushed
        assert await payloads_of(where, writer.ledger_id) == [*numbered(pushed), b"goes on"]


async def test_a_cancelled_call_leaves_the_writer_intact() -> None:
    async with fake_cluster(config=NARROW) as where, await writer_of(where) as writer:
        where.transport.hold("abc")
        appending = asyncio.create_task(writer.append_all(numbered(30)))
        await settled()
        appending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await appending
        assert writer.in_flight_entries == 8
        where.transport.release("abc")
        await writer.flush()
        assert writer.last_add_acknowledged == 7
        assert await writer.append_all(numbered(3)) == [8, 9, 10]


async def test_others_may_append_meanwhile_and_the_ids_tell() -> None:
    async with fake_cluster(config=NARROW) as where:
        async with await writer_of(where) as writer:
            calls = asyncio.gather(*(writer.append_all([b"%d" % caller] * 30) for caller in range(3)))
            single = await asyncio.gather(*(writer.append(b"3") for _ in range(10)))
            ids = [*await calls, sorted(single)]
            assert sorted(entry_id for each in ids for entry_id in each) == list(range(100))
        entries = await payloads_of(where, writer.ledger_id)
        for caller, each in enumerate(ids):
            assert each == sorted(each)
            assert {entries[entry_id] for entry_id in each} == {b"%d" % caller}


async def test_it_raises_what_ended_the_writer_before_it_was_done() -> None:
    async with fake_cluster(config=NARROW) as where:
        writer = await writer_of(where)
        await writer.append_all(numbered(5))
        for bookie in where.transport.bookies.values():
            bookie.fenced.add(writer.ledger_id)
        with pytest.raises(LedgerFenced) as refused:
            await writer.append_all(numbered(100))
        assert refused.value.ledger_id == writer.ledger_id
        assert writer.last_add_acknowledged == 4
        with pytest.raises(LedgerFenced):
            await writer.append_all(numbered(1))
        with pytest.raises(LedgerFenced):
            await writer.append_all([])
        with pytest.raises(BookKeeperError):
            await writer.aclose()


async def test_it_raises_a_failure_of_the_last_entries_too() -> None:
    async with fake_cluster() as where:
        writer = await writer_of(where)
        for bookie in where.transport.bookies.values():
            bookie.add_code = Code.BOOKIE_NOT_AVAILABLE
        with pytest.raises(NotEnoughBookies):
            await writer.append_all(numbered(3))
        with pytest.raises(BookKeeperError):
            await writer.aclose()


async def test_a_closed_writer_takes_nothing() -> None:
    async with fake_cluster() as where:
        writer = await writer_of(where)
        await writer.close()
        with pytest.raises(LedgerClosed):
            await writer.append_all([b"x"])


async def test_another_thread_is_refused() -> None:
    async with fake_cluster() as where, await writer_of(where) as writer:
        with pytest.raises(IllegalOperation, match="event loop"):
            await asyncio.to_thread(asyncio.run, writer.append_all([b"x"]))
        assert writer.last_add_pushed == -1


@pytest.mark.parametrize("sizes", [(3, 3, 2), (3, 2, 2)])
async def test_bookies_that_fail_meanwhile_are_replaced(sizes: tuple[int, int, int]) -> None:
    async with fake_cluster("abcde", config=NARROW) as where:
        async with await writer_of(where, sizes) as writer:
            appending = asyncio.create_task(writer.append_all(numbered(300)))
            for _ in range(2):
                for _ in range(20):
                    await asyncio.sleep(0)
                where.transport.bookies[writer.metadata.last_fragment.ensemble[0]].code = Code.BOOKIE_NOT_AVAILABLE
            assert await appending == list(range(300))
        for bookie in where.transport.bookies.values():
            bookie.code = None
        assert await payloads_of(where, writer.ledger_id) == numbered(300)
        assert len(writer.metadata.fragments) >= 2


@in_virtual_time
async def test_a_rate_that_is_configured_holds() -> None:
    config = ClientConfig(limits=LimitSettings(throttle_per_s=100))
    async with fake_cluster(config=config) as where, await writer_of(where) as writer:
        began = asyncio.get_running_loop().time()
        assert await writer.append_all(numbered(250)) == list(range(250))
        assert 1.4 <= asyncio.get_running_loop().time() - began <= 1.6


async def test_statistics_count_each_entry() -> None:
    stats = MemoryStats()
    async with fake_cluster(stats=stats) as where, await writer_of(where) as writer:
        await writer.append_all(numbered(40))
        assert stats.operations_of(names.ADD).succeeded.count == 40


@pytest.mark.parametrize("fails", [0, 2], ids=["first", "third"])
async def test_a_defect_fails_all_of_them_and_gives_their_places_back(
    fails: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with fake_cluster() as where:
        writer = await writer_of(where)
        shell = shell_of(writer)
        monkeypatch.setattr(shell, "codec", _Codec(shell.codec.encode_header, fails))
        with pytest.raises(BookKeeperError) as failed:
            await writer.append_all(numbered(5))
        assert failed.value.code == Code.UNEXPECTED_CONDITION
        assert (shell.window.entries, shell.window.bytes, shell.window.shared.entries) == (0, 0, 0)
        assert sorted(shell.outcomes.failed) == list(range(5))
        with pytest.raises(BookKeeperError):
            await writer.aclose()


class _Codec:
    """Raises at one of its calls."""

    def __init__(self, encode: Callable[..., bytes], fails: int) -> None:
        self._encode, self._left = encode, fails

    def encode_header(self, *arguments: Any) -> bytes:
        self._left -= 1
        if self._left < 0:
            raise ZeroDivisionError
        return self._encode(*arguments)


async def test_most_entries_go_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or all of this would be about appends one by one."""
    together = []

    def noted(machine: AppendMachine, payloads: list[bytes]) -> None:
        together.append(len(payloads))
        append_all(machine, payloads)

    append_all = AppendMachine.append_all
    monkeypatch.setattr(AppendMachine, "append_all", noted)
    async with fake_cluster() as where, await writer_of(where) as writer:
        await writer.append_all(numbered(1000))
    assert sum(together) == 1000
    assert max(together) == 256

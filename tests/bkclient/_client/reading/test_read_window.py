"""How many entries of a range are asked for at a time: as many as configured, but never more than fit into 16 MiB."""

from __future__ import annotations

import asyncio

import pytest

from bkclient import LedgerReader
from bkclient._client.reading.entry_reads import ReadOperation
from bkclient._client.reading.window import ReadWindow
from bkclient.errors import IllegalOperation
from bkclient.ledger import LedgerMetadata
from bkclient.wire.messages import ReadRequest
from tests.bkclient.fakes import FakeCluster, fake_cluster, writer_of
from tests.bkclient.inside import followed_of, reads_of
from tests.settling import settled

MIB = 1024 * 1024


async def a_reader(where: FakeCluster, sizes: list[int], *, is_closed: bool = True) -> LedgerReader:
    """Of a ledger with entries of these sizes, all of them confirmed."""
    writer = await writer_of(where)
    for size in sizes:
        await writer.append(bytes(size))
    if is_closed:
        await writer.close()
    else:
        await writer.append(b"")  # tells what is confirmed
    await settled()
    reader = await where.bk.open_ledger(writer.ledger_id, password=b"secret", recover=False)
    await reader.read_last_add_confirmed()
    where.sent.clear()
    return reader


def requested(where: FakeCluster) -> int:
    return sum(isinstance(request, ReadRequest) for _, request in where.sent)


@pytest.mark.parametrize(("size", "at_first"), [(0, 8), (100, 40), (1 * MIB, 16), (5 * MIB, 3), (17 * MIB, 1)])
async def test_a_closed_ledger_tells_how_many_of_its_entries_fit(size: int, at_first: int) -> None:
    async with fake_cluster() as where:
        reader = await a_reader(where, [10] * 40)
        known = followed_of(reader)
        known.value = type(known.value)(longer(known.metadata, 40 * size), known.value.version)
        window = ReadWindow(reads_of(reader), ReadOperation(), 0, 64)
        assert window.fill(39) == at_first
        window.clear()


def longer(metadata: LedgerMetadata, length: int) -> LedgerMetadata:
    return metadata.closed(metadata.last_entry_id, length)


async def test_in_an_open_ledger_a_few_entries_are_read_until_one_tells_how_large_they_are() -> None:
    async with fake_cluster() as where:
        reader = await a_reader(where, [10] * 40, is_closed=False)
        where.transport.hold("abc")
        reading = asyncio.ensure_future(reader.read_entries(0, 39))
        await settled()
        assert requested(where) == 8
        where.transport.answer_first(1)
        await settled()
        assert requested(where) == 40
        where.transport.release("abc")
        assert len(await reading) == 40


class Permits:
    """A rate that allows so many more requests."""

    def __init__(self, left: int) -> None:
        self.left = left

    def try_take(self) -> bool:
        if self.left == 0:
            return False
        self.left -= 1
        return True


@pytest.mark.parametrize(("permits", "asked_for", "left"), [(0, 1, 0), (10, 11, 0), (39, 40, 0), (50, 40, 11)])
async def test_a_window_takes_a_permit_for_each_request_but_the_first_and_no_other(
    permits: int, asked_for: int, left: int
) -> None:
    async with fake_cluster() as where:
        reads = reads_of(await a_reader(where, [10] * 40))
        reads.throttle = throttle = Permits(permits)  # type: ignore[assignment]
        window = ReadWindow(reads, ReadOperation(), 0, 64)
        assert window.fill(39) == asked_for
        assert throttle.left == left
        window.clear()


async def test_one_large_entry_is_taken_as_a_sign_of_more() -> None:
    async with fake_cluster() as where:
        reader = await a_reader(where, [4 * MIB] + [10] * 200)
        window = ReadWindow(reads_of(reader), ReadOperation(), 0, 64)
        assert window.fill(200) == 64  # small ones, on average
        await window.take(200)
        where.sent.clear()
        for entry_id in range(1, 62):
            assert (await window.take(200)).entry_id == entry_id
        assert requested(where) == 0
        assert (await window.take(200)).entry_id == 62  # with two left of the four that fit
        assert requested(where) == 2
        window.clear()


async def test_a_window_that_was_cleared_gives_nothing_more() -> None:
    async with fake_cluster() as where:
        reader = await a_reader(where, [10] * 4)
        window = ReadWindow(reads_of(reader), ReadOperation(), 0, 64)
        assert (await window.take(3)).entry_id == 0
        window.clear()
        where.sent.clear()
        with pytest.raises(IllegalOperation, match="another task ended") as caught:
            await window.take(3)
        assert caught.value.ledger_id == reader.ledger_id
        assert where.sent == []

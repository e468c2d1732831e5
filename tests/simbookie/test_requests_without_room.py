"""Requests that make the storage let go of a ledger's file on a full disk: all are answered, and no ledger is left half made."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from bkclient.wire.answers import failed_answer
from bkclient.wire.messages import (
    AddRequest,
    BatchReadRequest,
    BookieInfoRequest,
    EntryListRequest,
    ForceLedgerRequest,
    LongPoll,
    ReadLacRequest,
    ReadRequest,
    Request,
    Status,
    WriteLacRequest,
)
from simbookie.bookie import Bookie
from simbookie.storage.kinds import StoreKind
from simbookie.world.files import FilesConfig, disk_of, storage_in_files

Virtually = Callable[[Callable[[], Any]], None]
KEY = b"k" * 20
KINDS = pytest.mark.parametrize("kind", StoreKind)


class Bench:
    """A bookie that keeps one index file open, and one page of it, with ledgers 0 to 3 of one entry each; its disk is full."""

    def __init__(self, kind: StoreKind, entries: int = 1) -> None:
        self.storage = storage_in_files(kind, FilesConfig(index_files=1, index_pages=2), Random(1))
        self.bookie = Bookie("b", self.storage)
        self._entries = entries

    async def start(self) -> Bench:
        started = asyncio.Event()
        self.bookie.start(started.set)
        await started.wait()
        for ledger_id in range(4):
            for entry_id in range(self._entries):
                assert await self.status(add(ledger_id, 2 * entry_id)) == Status.OK
        self.empty = disk_of(self.storage).fill(0)
        return self

    async def status(self, request: Request) -> Status:
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.bookie.submit(request, answer.set_result)
        async with asyncio.timeout(5):
            return Status((await answer).status)


def add(ledger_id: int, entry_id: int) -> AddRequest:
    head = b"".join(value.to_bytes(8, "big", signed=True) for value in (ledger_id, entry_id, -1, 0))
    return AddRequest(ledger_id, entry_id, KEY, head, b"payload")


def requests(ledger_id: int) -> list[Request]:
    return [
        ReadRequest(ledger_id, 0),
        ReadLacRequest(ledger_id),
        EntryListRequest(ledger_id),
        ReadRequest(ledger_id, -1, long_poll=LongPoll(-1, 10)),
        WriteLacRequest(ledger_id, 0, KEY, add(ledger_id, 0).header),
        ReadRequest(ledger_id, 0, fence_key=KEY),
        ReadRequest(ledger_id, 0, fence_key=KEY),
        BatchReadRequest(ledger_id, 0, 5, 1000),
        add(ledger_id, 1),
        ForceLedgerRequest(ledger_id),
        BookieInfoRequest(3),
    ]


@KINDS
def test_every_request_is_answered(kind: StoreKind, virtually: Virtually) -> None:
    async def story() -> None:
        bench = await Bench(kind).start()
        for ledger_id in range(9):
            for request in requests(ledger_id):
                await bench.status(request)
        assert bench.bookie.pending_reads == bench.bookie.waiting_polls == bench.bookie.pending_adds == 0

    virtually(story)


def test_a_ledger_for_which_there_was_no_room_is_made_when_there_is(virtually: Virtually) -> None:
    async def story() -> None:
        bench = await Bench(StoreKind.SORTED).start()
        assert await bench.status(add(9, 0)) == Status.IO_ERROR
        assert await bench.status(ReadRequest(9, 0)) == Status.NO_LEDGER
        assert await bench.status(ReadRequest(9, 0, fence_key=KEY)) == Status.IO_ERROR
        assert 9 not in bench.storage.ledger_ids()
        bench.empty()
        assert await bench.status(ReadRequest(9, 0, fence_key=KEY)) == Status.NO_ENTRY
        assert bench.storage.ledger_ids() == [0, 1, 2, 3, 9]

    virtually(story)


def test_a_fence_that_was_not_stored_is_not_waited_for_and_is_stored_by_the_next_that_can_be(
    virtually: Virtually,
) -> None:
    async def story() -> None:
        bench = await Bench(StoreKind.SORTED).start()
        fencing = ReadRequest(0, 0, fence_key=KEY)
        assert [await bench.status(fencing) for _ in range(2)] == [Status.IO_ERROR] * 2
        bench.empty()
        assert await bench.status(fencing) == Status.OK
        info = bench.storage.ledger(0)
        assert info is not None
        assert info.fenced

    virtually(story)


def test_lists_that_cannot_be_made_keep_no_others_waiting(virtually: Virtually) -> None:
    async def story() -> None:
        bench = await Bench(StoreKind.SORTED, entries=1100).start()
        told = await asyncio.gather(*(bench.status(EntryListRequest(ledger_id)) for ledger_id in (0, 1, 2, 3, 0)))
        assert set(told) <= {Status.OK, Status.IO_ERROR}
        bench.empty()
        assert await bench.status(EntryListRequest(1)) == Status.OK

    virtually(story)


def test_a_failure_has_the_form_of_the_answer() -> None:
    for request in requests(7):
        answer: Any = failed_answer(request, Status.IO_ERROR)
        assert type(answer).__name__ == type(request).__name__.replace("Request", "Response")
        assert answer.status is Status.IO_ERROR
        assert getattr(answer, "ledger_id", 7) == 7

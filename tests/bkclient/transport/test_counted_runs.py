"""Which runs have their answers counted, and what becomes of what was held back. What writers make of it is in test_tally."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bkclient.errors import Code
from bkclient.protocol.append_ports import Quorums
from bkclient.transport.adds import counts_quorums
from bkclient.transport.bulk import LedgerAdds
from bkclient.transport.tcp import TcpTransport
from bkclient.wire.messages import AddRequest, WriteFlags
from tests.bkclient.transport.scripted_bookie import keep_silent, until
from tests.bkclient.transport.test_bulk import BOOKIES, Replies, Sender, add_in, connected, template, three

NEWEST = 1_000


class CountingReplies(Replies):
    """Those of a writer that takes what was counted, and asks for what was held back when a bookie fails."""

    def __init__(self, sender: Sender) -> None:
        super().__init__()
        #: Entries that were told of once, in order, with the bookies that stored them.
        self.stored_together: list[tuple[tuple[str, ...], int]] = []
        self._sender = sender

    def on_adds_stored_by(self, quorums: Quorums, entry_ids: list[int]) -> None:
        self._check("a quorum")
        for place, entry_id in enumerate(entry_ids):
            self.stored_together.append((quorums.bookies_of(place), entry_id))

    def on_add_failed(self, bookie_id: str, entry_id: int, code: int) -> None:
        adds_of(self._sender).count_no_more()
        super().on_add_failed(bookie_id, entry_id, code)

    @property
    def entries(self) -> list[int]:
        """Those that were told of once, in order."""
        return [entry_id for _, entry_id in self.stored_together]


def adds_of(sender: Sender) -> LedgerAdds:
    adds = sender.adds
    assert counts_quorums(adds)
    assert isinstance(adds, LedgerAdds)
    return adds


async def counting(
    transport: TcpTransport, quorum: int = 2, up_to: int = NEWEST, *, is_striped: bool = False, **options: Any
) -> tuple[Sender, CountingReplies]:
    """A sender that counts, from its next run on."""
    sender = await connected(transport, **options)
    sender.replies = replies = CountingReplies(sender)
    del sender.adds  # in version 2 a ledger's entries are put into runs by one sender as long as it is there
    sender.adds = transport.add_sender(template(**options), replies)
    adds_of(sender).count(quorum, up_to, is_striped=is_striped)
    return sender, replies


in_both_versions = pytest.mark.parametrize("version", [2, 3])


@in_both_versions
@pytest.mark.parametrize("quorum", [1, 2, 3])
async def test_an_entry_is_told_of_once_by_as_many_bookies_as_a_quorum_has(version: int, quorum: int) -> None:
    async with three(protocol_version=version) as (_, transport):
        sender, replies = await counting(transport, quorum)
        sender.send(range(1, 50))
        await until(lambda: replies.entries == list(range(1, 50)))
        assert {len(set(bookies)) for bookies, _ in replies.stored_together} == {quorum}
        await until(lambda: not any(transport.pending_requests(bookie_id) for bookie_id in BOOKIES))
        assert not replies.stored
        assert not replies.wrong
        assert not transport.write_sets_of(1).held_back


async def test_writers_share_a_run_that_is_counted_if_all_of_them_count_alike() -> None:
    async with three() as (_, transport):
        first, told_first = await counting(transport, ledger_id=1)
        second, told_second = await counting(transport, ledger_id=2)
        other, told_other = await counting(transport, 3, ledger_id=3)
        for entry_id in (1, 2):
            first.send([entry_id])
            second.send([entry_id])
        await until(lambda: told_first.entries == told_second.entries == [1, 2])
        assert not told_first.stored
        assert not told_second.stored
        first.send([3])
        other.send([1])
        await until(lambda: told_first.count == told_other.count == 3)
        assert [told_first.entries, told_other.entries] == [[1, 2], []]


async def test_what_comes_over_a_connection_that_is_too_new_is_told_of_each_bookie() -> None:
    async with three() as (_, transport):
        newest = max(transport.connections.values(), default=0)
        assert newest == 0
        sender, replies = await counting(transport, up_to=2)
        assert sorted(transport.connections.values()) == [1, 2, 3]
        sender.send([1, 2])
        await until(lambda: replies.count == 6)
        adds_of(sender).count(2, 3, is_striped=False)
        sender.send([3])
        await until(lambda: replies.entries == [3])


def body_in(add: AddRequest) -> bytes:
    return bytes(add.header) + bytes(add.payload)


def body_of(sender: Sender, entry_id: int, payload: bytes) -> bytes:
    return sender.codec.encode_header(entry_id, entry_id - 1, 0, payload) + payload


PAIRS = [("b0", "b1"), ("b1", "b2"), ("b2", "b0")]


@in_both_versions
@pytest.mark.parametrize("payload", [b"short", bytes(600), bytes(5000)], ids=["short", "in pieces", "large"])
@pytest.mark.parametrize("turns", [1, 4])
async def test_entries_of_a_striped_ledger_are_told_of_once_and_in_order(
    version: int, payload: bytes, turns: int
) -> None:
    async with three(protocol_version=version) as (bookies, transport):
        sender, replies = await counting(transport, is_striped=True)
        for entry_id in range(1, 50):
            sender.send([entry_id], payload, bookies=PAIRS[entry_id % 3])
            if entry_id % (50 // turns) == 0:
                await asyncio.sleep(0)
        await until(lambda: len(replies.stored_together) == 49)
        assert replies.stored_together == [(tuple(sorted(PAIRS[each % 3])), each) for each in range(1, 50)]
        assert not replies.stored
        assert not replies.wrong
        assert not transport.write_sets_of(1).held_back
        for bookie_id, bookie in zip(BOOKIES, bookies, strict=True):
            assert [add_in(each).entry_id for each in bookie.received] == [
                0,
                *[each for each in range(1, 50) if bookie_id in PAIRS[each % 3]],
            ]
            for each in map(add_in, bookie.received[1:]):
                assert body_in(each) == body_of(sender, each.entry_id, payload)


@in_both_versions
async def test_frames_of_any_number_of_buffers_share_a_striped_run(version: int) -> None:
    """Short frames are one buffer with the compiled core, others two, and three with flags in version 3."""
    async with three(protocol_version=version) as (bookies, transport):
        sender, replies = await counting(transport, is_striped=True)
        flagged, told = await counting(
            transport, is_striped=True, ledger_id=2, write_flags=WriteFlags.DEFERRED_SYNC if version == 3 else 0
        )
        payloads = [b"", b"short", bytes(600), bytes(3000), b"", bytes(20)]
        for entry_id, payload in enumerate(payloads * 3, start=1):
            sender.send([entry_id], payload, bookies=PAIRS[entry_id % 3])
            flagged.send([entry_id], payload, bookies=PAIRS[entry_id // 2 % 3])
        await until(lambda: len(replies.entries) == len(told.entries) == 18)
        found = {
            (add.ledger_id, add.entry_id, bookie_id, body_in(add))
            for bookie_id, bookie in zip(BOOKIES, bookies, strict=True)
            for add in map(add_in, bookie.received)
            if add.entry_id
        }
        expected = {
            (ledger_id, entry_id, bookie_id, body_of(by, entry_id, payload))
            for entry_id, payload in enumerate(payloads * 3, start=1)
            for ledger_id, by, pair in ((1, sender, PAIRS[entry_id % 3]), (2, flagged, PAIRS[entry_id // 2 % 3]))
            for bookie_id in pair
        }
        assert found == expected


async def test_a_writer_counts_beside_one_whose_connection_is_too_new_for_it() -> None:
    """A run with a write set over a new connection is counted for those who do not use it."""
    async with three() as (_, transport):
        await counting(transport)
        numbers = transport.connections
        older, newest = sorted(BOOKIES, key=numbers.__getitem__)[:2], max(numbers.values())
        first, told_first = await counting(transport, up_to=newest - 1, ledger_id=2)
        second, told_second = await counting(transport, up_to=newest, ledger_id=3)
        for entry_id in (1, 2):
            second.send([entry_id])
            first.send([entry_id], bookies=tuple(older))
        await until(lambda: told_first.entries == told_second.entries == [1, 2])
        first.send([3], bookies=tuple(older))
        first.send([4])
        await until(lambda: told_first.count == 5)
        assert told_first.entries == [1, 2], "one of its entries goes over that connection"


@in_both_versions
async def test_what_was_held_back_is_told_before_a_failure_and_everything_after_it(version: int) -> None:
    async with three(protocol_version=version) as (bookies, transport):
        sender, replies = await counting(transport)
        bookies[1].script = bookies[2].script = keep_silent
        sender.send([1, 2, 3])
        await until(lambda: transport.pending_requests("b0") == 0)
        assert (replies.count, replies.entries) == (0, [])
        assert len(transport.write_sets_of(1).held_back) == 1
        (stream, *_) = [stream for stream in transport.streams_to(BOOKIES, 1) if stream.bookie_id == "b2"]
        stream.abort(Code.BOOKIE_NOT_AVAILABLE, "a test")
        assert replies.stored == [("b0", (1, 2, 3))]
        assert [entry_id for _, entry_id, _ in replies.failed] == [1, 2, 3]
        assert not transport.write_sets_of(1).held_back
        sender.send([4], bookies=("b0", "b1"))
        await until(lambda: replies.stored_by("b0") == [1, 2, 3, 4])


async def test_a_run_that_is_open_when_its_writer_asks_is_not_counted() -> None:
    async with three() as (_, transport):
        sender, replies = await counting(transport)
        sender.send([1])
        adds_of(sender).tell()
        await until(lambda: replies.count == 3)
        sender.send([2])
        await until(lambda: replies.entries == [2])
        await asyncio.sleep(0)
        assert replies.count == 3

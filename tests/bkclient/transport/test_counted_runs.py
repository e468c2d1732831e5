"""Which runs have their answers counted, and what becomes of what was held back. What writers make of it is in test_tally."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bkclient.errors import Code
from bkclient.transport.adds import counts_quorums
from bkclient.transport.bulk import LedgerAdds
from bkclient.transport.tcp import TcpTransport
from tests.bkclient.transport.scripted_bookie import keep_silent, until
from tests.bkclient.transport.test_bulk import BOOKIES, Replies, Sender, connected, template, three

NEWEST = 1_000


class CountingReplies(Replies):
    """Those of a writer that takes what was counted, and asks for what was held back when a bookie fails."""

    def __init__(self, sender: Sender) -> None:
        super().__init__()
        self.stored_together: list[tuple[tuple[str, ...], tuple[int, ...]]] = []
        self._sender = sender

    def on_adds_stored_by(self, bookie_ids: tuple[str, ...], entry_ids: list[int]) -> None:
        self._check("a quorum")
        self.stored_together.append((bookie_ids, tuple(entry_ids)))

    def on_add_failed(self, bookie_id: str, entry_id: int, code: int) -> None:
        adds_of(self._sender).count_no_more()
        super().on_add_failed(bookie_id, entry_id, code)

    @property
    def entries(self) -> list[int]:
        """Those that were told of once, in order."""
        return [entry_id for _, entry_ids in self.stored_together for entry_id in entry_ids]


def adds_of(sender: Sender) -> LedgerAdds:
    adds = sender.adds
    assert counts_quorums(adds)
    assert isinstance(adds, LedgerAdds)
    return adds


async def counting(
    transport: TcpTransport, quorum: int = 2, up_to: int = NEWEST, **options: Any
) -> tuple[Sender, CountingReplies]:
    """A sender that counts, from its next run on."""
    sender = await connected(transport, **options)
    sender.replies = replies = CountingReplies(sender)
    del sender.adds  # in version 2 a ledger's entries are put into runs by one sender as long as it is there
    sender.adds = transport.add_sender(template(**options), replies)
    adds_of(sender).count(quorum, up_to)
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
        adds_of(sender).count(2, 3)
        sender.send([3])
        await until(lambda: replies.entries == [3])


async def test_a_striped_run_is_told_of_each_bookie() -> None:
    async with three() as (_, transport):
        sender, replies = await counting(transport)
        for entry_id, bookies in enumerate([("b0", "b1"), ("b1", "b2"), ("b2", "b0")], start=1):
            sender.send([entry_id], bookies=bookies)
        await until(lambda: replies.count == 6)
        assert not replies.entries


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

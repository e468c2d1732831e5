"""Ranges, however they are read: in runs of single reads or in batches, their entries and errors are those of single reads."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bkclient import LedgerReader
from bkclient.config import ClientConfig, ConnectionSettings, ReadingSettings
from bkclient.errors import BookKeeperError, ClientClosed, Code, DigestMismatch, NoSuchEntry, RequestTimeout
from bkclient.transport.reads import ReadReplies
from bkclient.wire.connection import FoundBody
from bkclient.wire.messages import BatchReadRequest, ReadRequest
from simbookie.world.loop import VirtualTimeLoop
from tests.bkclient._client.reading.ledgers import reader_of, tail_of, written
from tests.bkclient._client.reading.test_late_reads import order_of
from tests.bkclient.fakes import FakeCluster, FakeTransport, fake_cluster, in_virtual_time
from tests.bkclient.inside import reads_of
from tests.settling import settled

ENTRIES = 12
#: What a bookie has of an entry.
GOOD, MISSING, ROTTEN, OF_ANOTHER = "good", "missing", "rotten", "of another"
CONDITIONS = st.sampled_from([GOOD, GOOD, GOOD, GOOD, MISSING, ROTTEN, OF_ANOTHER])


def config_of(version: int, ahead: int = 64, **reading: bool) -> ClientConfig:
    return ClientConfig(
        connections=ConnectionSettings(protocol_version=version),
        reading=ReadingSettings(read_ahead_entries=ahead, reorder=False, **reading),
    )


class InChunks:
    """Hands over good answers a few at a time, in any order, as a transport does that sends many reads; others one by one."""

    def __init__(self, transport: FakeTransport, ledger_id: int, seed: int) -> None:
        self._transport = transport
        self._ledger_id = ledger_id
        self._rng = Random(seed)
        self._found: list[tuple[str, ReadReplies, FoundBody]] = []

    def send(self, bookie_id: str, entry_ids: Sequence[int], replies: ReadReplies) -> None:
        bookie = self._transport.bookies[bookie_id]
        for entry_id in entry_ids:
            body = bookie.entries.get((self._ledger_id, entry_id))
            if body is None or bookie.code is not None:
                self._transport.submit(bookie_id, ReadRequest(self._ledger_id, entry_id), replies)
            else:
                self._found.append((bookie_id, replies, (entry_id, body, entry_id - 1)))
        asyncio.get_running_loop().call_soon(self._hand_over)

    def _hand_over(self) -> None:
        self._rng.shuffle(self._found)
        count = self._rng.randint(1, 4)
        now, self._found = self._found[:count], self._found[count:]
        by_call: dict[tuple[str, int], tuple[ReadReplies, list[FoundBody]]] = {}
        for bookie_id, replies, found in now:
            by_call.setdefault((bookie_id, id(replies)), (replies, []))[1].append(found)
        for (bookie_id, _), (replies, bodies) in by_call.items():
            replies.on_found(bookie_id, bodies)
        if self._found:
            asyncio.get_running_loop().call_soon(self._hand_over)


Outcome = tuple[int, bytes] | tuple[int, str]


def outcome_of(entry_id: int, error: BookKeeperError) -> Outcome:
    return entry_id, f"{error.code} {type(error).__name__} {error.entry_id} {error.bookie_id}"


async def damage(
    where: FakeCluster, ledger_id: int, conditions: list[tuple[str, str, str]], codes: list[int | None]
) -> None:
    for bookie, code, at_bookie in zip(where.transport.bookies.values(), codes, range(3), strict=True):
        bookie.code = code
        original = dict(bookie.entries)
        for entry_id, condition in enumerate(conditions):
            key = (ledger_id, entry_id)
            if key not in original:
                continue  # it stands on the other two
            if condition[at_bookie] == MISSING:
                del bookie.entries[key]
            elif condition[at_bookie] == ROTTEN:
                bookie.entries[key] = original[key][:-1] + b"?"
            elif condition[at_bookie] == OF_ANOTHER:
                bookie.entries[key] = original[ledger_id, entry_id - 3 if entry_id > 2 else entry_id + 3]


@settings(deadline=None, max_examples=60)
@given(
    way=st.sampled_from(["each", "chunks", "batches"]),
    sizes=st.sampled_from([(3, 3, 2), (3, 2, 2)]),
    ahead=st.sampled_from([1, 2, 5, 8, 64]),
    conditions=st.lists(st.tuples(CONDITIONS, CONDITIONS, CONDITIONS), min_size=ENTRIES, max_size=ENTRIES),
    codes=st.lists(st.sampled_from([None, None, None, Code.READ, Code.TIMEOUT]), min_size=3, max_size=3),
    knowing=st.lists(st.booleans(), min_size=3, max_size=3),
    seed=st.integers(0, 100),
)
def test_a_range_has_the_entries_and_the_error_of_single_reads(
    way: str,
    sizes: tuple[int, int, int],
    ahead: int,
    conditions: list[tuple[str, str, str]],
    codes: list[int | None],
    knowing: list[bool],
    seed: int,
) -> None:
    async def story(*, singly: bool) -> list[Outcome]:
        async with fake_cluster(config=config_of(2 if way == "batches" else 3, ahead)) as where:
            reader = await reader_of(where, ENTRIES, sizes)
            await damage(where, reader.ledger_id, conditions, codes)
            for bookie, knows in zip(where.transport.bookies.values(), knowing, strict=True):
                bookie.knows_batches = knows
            if way == "chunks":
                reads_of(reader).sender = InChunks(where.transport, reader.ledger_id, seed)
            return await (one_by_one(reader) if singly else in_a_range(reader))

    def play(*, singly: bool) -> list[Outcome]:
        loop = VirtualTimeLoop()
        try:
            return loop.run_until_complete(story(singly=singly))
        finally:
            loop.close()

    assert play(singly=False) == play(singly=True)


async def one_by_one(reader: LedgerReader) -> list[Outcome]:
    outcomes: list[Outcome] = []
    for entry_id in range(ENTRIES):
        try:
            outcomes.append((entry_id, (await reader.read(entry_id)).payload))
        except BookKeeperError as error:
            return [*outcomes, outcome_of(entry_id, error)]
    return outcomes


async def in_a_range(reader: LedgerReader) -> list[Outcome]:
    outcomes: list[Outcome] = []
    try:
        async for entry in reader.read_range(0, ENTRIES - 1):
            assert entry.entry_id == len(outcomes)
            outcomes.append((entry.entry_id, entry.payload))
    except BookKeeperError as error:
        return [*outcomes, outcome_of(len(outcomes), error)]
    return outcomes


# Batches ---------------------------------------------------------------------------------------------------------


def asked(where: FakeCluster) -> list[tuple[str, int, int]]:
    """Bookie, first entry and number of entries of each request."""
    return [
        (bookie_id, request.entry_id, request.max_count if isinstance(request, BatchReadRequest) else 1)
        for bookie_id, request in where.sent
        if isinstance(request, ReadRequest | BatchReadRequest)
    ]


@pytest.mark.rule("R-25")
async def test_a_range_is_read_in_batches_of_about_half_a_window_that_begin_at_one_replica_after_the_other() -> None:
    async with fake_cluster(config=config_of(2, 16)) as where:
        reader = await reader_of(where, 30)
        assert [entry.entry_id async for entry in reader.read_range(0, 29)] == list(range(30))
        assert [(first, count) for _, first, count in asked(where)] == [(0, 7), (7, 7), (14, 7), (21, 7), (28, 2)]
        ensemble = reader.metadata.last_fragment.ensemble
        assert [bookie_id for bookie_id, _, _ in asked(where)] == [ensemble[first % 3] for first in (0, 7, 14, 21, 28)]


@pytest.mark.rule("R-25")
@pytest.mark.parametrize(
    ("config", "sizes", "parallel"),
    [
        (config_of(3), (3, 3, 2), False),
        (config_of(2), (3, 2, 2), False),
        (config_of(2, batch=False), (3, 3, 2), False),
        (config_of(2), (3, 3, 2), True),
    ],
)
async def test_everything_else_is_read_one_by_one(
    config: ClientConfig, sizes: tuple[int, int, int], parallel: bool
) -> None:
    async with fake_cluster(config=config) as where:
        reader = await reader_of(where, 9, sizes)
        found = reader.read_range(0, 8, parallel=parallel)
        assert [entry.entry_id async for entry in found] == list(range(9))
        assert {type(request) for _, request in where.sent} == {ReadRequest}


@pytest.mark.rule("R-25")
async def test_iteration_and_tails_read_in_batches_too() -> None:
    async with fake_cluster(config=config_of(2)) as where:
        reader = await reader_of(where, 9)
        assert [entry.entry_id async for entry in reader] == list(range(9))
        assert [(first, count) for _, first, count in asked(where)] == [(0, 9)]
        where.sent.clear()
        assert [entry.entry_id async for entry in reader.tail(2)] == list(range(2, 9))
        assert [(first, count) for _, first, count in asked(where)] == [(2, 7)]


async def test_a_tail_asks_for_no_more_than_is_confirmed() -> None:
    async with fake_cluster(config=config_of(2)) as where, await written(where, 6) as writer:
        reader = await tail_of(where, writer)
        where.sent.clear()
        async with reader.tail() as tail:
            assert [(await anext(tail)).entry_id for _ in range(5)] == list(range(5))
        assert max(first + count for _, first, count in asked(where)) == 5


async def test_a_batch_keeps_to_the_entries_of_one_ensemble() -> None:
    async with fake_cluster("abcd", config=config_of(2)) as where:
        writer = await written(where, 4)
        where.transport.bookies[writer.metadata.last_fragment.ensemble[0]].code = Code.WRITE
        await writer.append(b"4")
        await settled()
        for bookie in where.transport.bookies.values():
            bookie.code = None
        await writer.append(b"5")
        await writer.close()
        first = writer.metadata.fragments[1].first_entry_id
        reader = await where.bk.open_ledger(writer.ledger_id, password=b"secret", recover=False)
        where.sent.clear()
        assert [entry.payload async for entry in reader] == [b"%d" % entry_id for entry_id in range(6)]
        assert all(begin >= first or begin + count <= first for _, begin, count in asked(where))
        for bookie_id, begin, _ in asked(where):
            assert bookie_id in reader.metadata.ensemble_at(begin)


@pytest.mark.rule("R-32")
@in_virtual_time
async def test_bookies_without_batches_are_read_one_by_one_from_then_on() -> None:
    async with fake_cluster(config=config_of(2)) as where:
        reader = await reader_of(where, 9)
        for bookie in where.transport.bookies.values():
            bookie.knows_batches = False
        assert len(await reader.read_entries(0, 8)) == 9
        assert [count for _, _, count in asked(where)] == [9] * 3 + [1] * 9
        where.sent.clear()
        assert len(await reader.read_entries(0, 8)) == 9
        assert {type(request) for _, request in where.sent} == {ReadRequest}


@pytest.mark.rule("R-30")
async def test_what_follows_a_rotten_entry_comes_from_another_replica() -> None:
    async with fake_cluster(config=config_of(2)) as where:
        reader = await reader_of(where, 9)
        where.transport.bookies[order_of(reader, 0)[0]].entries[reader.ledger_id, 4] = b"rotten"
        assert [entry.entry_id async for entry in reader] == list(range(9))
        assert asked(where)[0][1:] == (0, 9)
        assert asked(where)[1][1:] == (4, 5)


async def test_an_answer_with_fewer_entries_is_followed_by_a_request_for_the_rest() -> None:
    async with fake_cluster(config=config_of(2)) as where:
        reader = await reader_of(where, 9)
        bookie = where.transport.bookies[order_of(reader, 0)[0]]
        del bookie.entries[reader.ledger_id, 2]
        assert [entry.entry_id async for entry in reader] == list(range(9))
        assert asked(where)[0][1:] == (0, 9)
        assert asked(where)[1][1:] == (2, 7)


@pytest.mark.parametrize("version", [2, 3])
async def test_a_range_ends_with_the_client(version: int) -> None:
    async with fake_cluster(config=config_of(version)) as where:
        reader = await reader_of(where, 9)
        where.transport.hold("abc")
        reading = asyncio.ensure_future(reader.read_entries(0, 8))
        await settled()
        await where.bk.aclose()
        with pytest.raises(ClientClosed):
            await reading


@pytest.mark.parametrize("version", [2, 3])
@in_virtual_time
async def test_a_range_that_nobody_takes_any_more_asks_no_other_replica(version: int) -> None:
    async with fake_cluster(config=config_of(version)) as where:
        reader = await reader_of(where, 9)
        where.transport.hold("abc")
        entries = reader.read_range(0, 8)
        reading = asyncio.ensure_future(anext(entries))
        await settled()
        reading.cancel()
        await settled()
        count = len(where.sent)
        where.transport.release("abc", Code.TIMEOUT)
        await asyncio.sleep(10)
        assert len(where.sent) == count
        assert reads_of(reader).waiting == {}


@pytest.mark.rule("R-11")
@pytest.mark.parametrize(("version", "answered"), [(2, False), (3, False), (3, True)])
@in_virtual_time
async def test_late_answers_of_a_range_are_asked_of_the_next_replica_unless_the_bookie_answers(
    version: int, answered: bool
) -> None:
    async with fake_cluster(config=config_of(version)) as where:
        reader = await reader_of(where, 6)
        slow = order_of(reader, 0)[0]
        where.transport.hold(slow)
        reading = asyncio.ensure_future(reader.read_entries(0, 5))
        await asyncio.sleep(1)
        if answered:
            where.transport.answer_first(1)
        await asyncio.sleep(3)
        if answered:
            assert not reading.done()
            where.transport.release(slow)
        assert len(await reading) == 6
        where.transport.release(slow)


@pytest.mark.parametrize("version", [2, 3])
async def test_errors_of_a_range_are_those_of_its_first_entry_that_cannot_be_read(version: int) -> None:
    async with fake_cluster(config=config_of(version)) as where:
        reader = await reader_of(where, 9)
        for bookie in where.transport.bookies.values():
            bookie.entries[reader.ledger_id, 3] = b"rotten"
            del bookie.entries[reader.ledger_id, 5]
        for error, first in ((DigestMismatch, 0), (NoSuchEntry, 4)):
            with pytest.raises(error) as caught:
                await reader.read_entries(first, 8)
            assert caught.value.entry_id == {0: 3, 4: 5}[first]
        for bookie in where.transport.bookies.values():
            bookie.code = Code.TIMEOUT
        with pytest.raises(RequestTimeout):
            await reader.read_entries(0, 8)

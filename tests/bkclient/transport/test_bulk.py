"""Entries sent to their write set by one call: what bookies get, who hears of what, and every way in which it can fail."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bkclient.errors import Code
from bkclient.ledger import DigestType
from bkclient.metadata.base import BookieAddress
from bkclient.transport import bulk
from bkclient.transport.adds import EachReplica, adds_over
from bkclient.transport.bulk import LedgerAdds
from bkclient.transport.tcp import TcpTransport, TcpTransportConfig
from bkclient.transport.wrapping import WrappingTransport
from bkclient.wire import v2, v3
from bkclient.wire.entry import EntryCodec
from bkclient.wire.envelope import ReceivedRequest
from bkclient.wire.messages import (
    AddRequest,
    AddResponse,
    AddTemplate,
    ErrorResponse,
    Operation,
    ReadRequest,
    Response,
    Status,
    WriteFlags,
)
from tests.bkclient.transport.scripted_bookie import BookieConnection, ScriptedBookie, keep_silent, running, until

CODEC = EntryCodec(1, DigestType.CRC32C, b"")
BOOKIES = ("b0", "b1", "b2")


def template(ledger_id: int = 1, **options: Any) -> AddTemplate:
    return AddTemplate(ledger_id=ledger_id, master_key=CODEC.master_key, **options)


def add_in(received: ReceivedRequest) -> AddRequest:
    assert isinstance(received.request, AddRequest)
    return received.request


class Replies:
    """What the sender of adds was told, in order; each outcome has to be told once, and not while something is sent."""

    def __init__(self) -> None:
        #: Runs of entries that a bookie stored, as they came.
        self.stored: list[tuple[str, tuple[int, ...]]] = []
        self.failed: list[tuple[str, int, int]] = []
        self.is_sending = False
        self.expected = 0
        self.wrong: list[str] = []

    def on_adds_stored(self, bookie_id: str, entry_ids: Sequence[int]) -> None:
        self._check(bookie_id)
        self.stored.append((bookie_id, tuple(entry_ids)))

    def on_add_failed(self, bookie_id: str, entry_id: int, code: int) -> None:
        self._check(bookie_id)
        self.failed.append((bookie_id, entry_id, code))

    def _check(self, bookie_id: str) -> None:
        if self.is_sending:
            self.wrong.append(f"{bookie_id} answered before anything was sent")

    @property
    def count(self) -> int:
        return sum(len(entry_ids) for _, entry_ids in self.stored) + len(self.failed)

    def stored_by(self, bookie_id: str) -> list[int]:
        return [entry_id for bookie, entry_ids in self.stored if bookie == bookie_id for entry_id in entry_ids]

    def failures(self) -> set[tuple[str, int]]:
        return {(bookie_id, code) for bookie_id, _, code in self.failed}

    async def all(self) -> None:
        """Wait until everything that was sent has its outcome."""
        await until(lambda: self.count >= self.expected)
        assert (self.count, self.wrong) == (self.expected, [])


class Sender:
    """Sends entries, and counts what is owed to the one who is told."""

    def __init__(self, transport: TcpTransport, **options: Any) -> None:
        self.replies = Replies()
        common = template(**options)
        self.codec = EntryCodec(common.ledger_id, DigestType.CRC32C, b"")
        self.adds = adds_over(transport, common, self.replies)
        assert isinstance(self.adds, LedgerAdds)

    def send(self, entry_ids: Sequence[int], payload: bytes = b"payload", bookies: tuple[str, ...] = BOOKIES) -> None:
        self.replies.is_sending = True
        for entry_id in entry_ids:
            self.adds.send(bookies, entry_id, self.codec.encode_header(entry_id, entry_id - 1, 0, payload), payload)
            self.replies.expected += len(bookies)
        self.replies.is_sending = False


@asynccontextmanager
async def transport_to(*bookies: ScriptedBookie, **config: Any) -> AsyncIterator[TcpTransport]:
    """A transport that knows ``bookies`` as b0, b1, ..."""

    async def resolve(bookie_id: str) -> BookieAddress:
        return bookies[int(bookie_id[1:])].address

    transport = TcpTransport(resolve, TcpTransportConfig(**config), rng=random.Random(7))
    try:
        yield transport
    finally:
        await transport.aclose()
        transport.check()


@asynccontextmanager
async def three(**config: Any) -> AsyncIterator[tuple[list[ScriptedBookie], TcpTransport]]:
    """Three bookies and a transport to them."""
    async with running() as one, running() as two, running() as last:
        bookies = [one, two, last]
        async with transport_to(*bookies, **config) as transport:
            yield bookies, transport


async def connected(transport: TcpTransport, **options: Any) -> Sender:
    """A sender, after connections to all three bookies have been made by entry 0."""
    sender = Sender(transport, **options)
    sender.send([0])
    await sender.replies.all()
    return sender


# The ordinary way -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [2, 3])
async def test_an_entry_is_encoded_once_and_every_bookie_gets_it(version: int) -> None:
    async with three(protocol_version=version) as (bookies, transport):
        sender = await connected(transport)
        sender.send(range(1, 40))
        await sender.replies.all()

    frames = [
        [(each.txn_id, add_in(each).entry_id, add_in(each).body) for each in bookie.received] for bookie in bookies
    ]
    assert [entry_id for _, entry_id, _ in frames[0]] == list(range(40))
    assert frames[0][1:] == frames[1][1:] == frames[2][1:]
    assert [sender.replies.stored_by(bookie_id) for bookie_id in BOOKIES] == [list(range(40))] * 3
    assert sender.replies.failed == []


@pytest.mark.parametrize("version", [2, 3])
async def test_what_follows_in_a_turn_is_not_late_after_a_rest(version: int) -> None:
    """What was sent last over the other connections is no beginning of the turn, however long ago that was."""
    async with three(protocol_version=version) as (_, transport):
        sender = await connected(transport)
        streams = transport.streams_to(BOOKIES, 1)
        now = asyncio.get_running_loop().time()
        for stream in streams:
            stream.turn_began = now - 1000
        sender.send([1])
        transport.submit("b1", ReadRequest(1, 0), lambda *_: None)
        sender.send([2], bookies=BOOKIES[1:])
        await asyncio.sleep(0)
        assert [stream.connection.expire(now) for stream in streams] == [[], [], []]
        await sender.replies.all()


@pytest.mark.parametrize("version", [2, 3])
async def test_acknowledgements_that_come_together_are_told_together(version: int) -> None:
    async with three(protocol_version=version) as (bookies, transport):
        sender = await connected(transport)
        held: list[tuple[BookieConnection, ReceivedRequest]] = []
        bookies[0].script = lambda connection, received: held.append((connection, received))
        sender.send(range(1, 9), bookies=BOOKIES[:1])
        await until(lambda: len(held) == 8)
        sender.replies.stored.clear()
        replies = [
            connection.wire.encode_response(received, AddResponse(Status.OK, 1, add_in(received).entry_id))
            for connection, received in held
        ]
        held[0][0].send(b"".join(replies[:3]) + b"".join(reversed(replies[3:])))
        await until(lambda: bool(sender.replies.stored))
        assert sender.replies.stored == [("b0", (1, 2, 3, 8, 7, 6, 5, 4))]


async def test_writers_that_share_a_connection_hear_of_their_own_entries() -> None:
    async with three() as (_, transport):
        one, other = await connected(transport, ledger_id=1), await connected(transport, ledger_id=2)
        for first in range(1, 10, 3):
            one.send(range(first, first + 3))
            other.send(range(first, first + 3))
        await one.replies.all()
        await other.replies.all()
        for sender in (one, other):
            assert [sender.replies.stored_by(bookie_id) for bookie_id in BOOKIES] == [list(range(10))] * 3


async def test_what_is_remembered_of_connections_is_shared_by_writers_and_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bulk, "_WRITE_SETS_MAX", 3)
    async with three() as (_, transport):
        first = await connected(transport)
        known = transport.write_sets_of(1)
        assert not known, "there was no connection when the first entry was sent"
        for bookies in (BOOKIES, BOOKIES[:2], BOOKIES[1:], BOOKIES):
            first.send([len(known) + 10 * len(bookies) + first.replies.expected], bookies=bookies)
            assert bookies in known
            assert len(known) <= 2
        second = Sender(transport, ledger_id=2)
        streams = known[BOOKIES]
        second.send([0])
        assert transport.write_sets_of(2) is known
        assert known[BOOKIES] is streams
        await first.replies.all()
        await second.replies.all()
        streams[0].abort(Code.BOOKIE_NOT_AVAILABLE, "a test")
        assert not known, "routes have changed"


async def test_other_requests_and_their_answers_go_between() -> None:
    async with three() as (_, transport):
        sender = await connected(transport)
        codes: list[int] = []

        def on_reply(_bookie_id: str, _request: object, code: int, _response: Response | None) -> None:
            codes.append(code)

        for entry_id in range(1, 21):
            sender.send([entry_id])
            transport.submit("b0", ReadRequest(1, entry_id), on_reply)
        await sender.replies.all()
        await until(lambda: len(codes) == 20)
        assert codes == [Code.OK] * 20


@pytest.mark.parametrize("write_flags", [WriteFlags.NONE, WriteFlags.DEFERRED_SYNC])
@pytest.mark.parametrize("recovery", [False, True])
async def test_what_all_adds_have_in_common_reaches_the_bookies(recovery: bool, write_flags: WriteFlags) -> None:
    async with three() as (bookies, transport):
        sender = await connected(transport, recovery=recovery, high_priority=recovery, write_flags=write_flags)
        sender.send([1])
        await sender.replies.all()
        for bookie in bookies:
            for received in bookie.received:
                request = add_in(received)
                assert (request.recovery, request.write_flags, request.master_key) == (
                    recovery,
                    write_flags,
                    CODEC.master_key,
                )
                assert (received.priority > 0) == recovery


@pytest.mark.parametrize("channels", [1, 3])
async def test_a_ledger_keeps_to_its_channel(channels: int) -> None:
    async with three(channels_per_bookie=channels) as (bookies, transport):
        for ledger_id in range(6):
            sender = await connected(transport, ledger_id=ledger_id)
            sender.send(range(1, 4))
            await sender.replies.all()
        for bookie in bookies:
            assert len(bookie.connections) == channels
            for connection in bookie.connections:
                ledgers = {add_in(each).ledger_id for each in connection.received}
                assert len({ledger_id % channels for ledger_id in ledgers}) == 1


# What cannot go that way ----------------------------------------------------------------------------------------------


async def test_entries_sent_before_there_is_a_connection_wait_for_it() -> None:
    async with three() as (bookies, transport):
        sender = Sender(transport)
        sender.send(range(5))
        await sender.replies.all()
        sender.send(range(5, 9))
        await sender.replies.all()
        for bookie_id, bookie in zip(BOOKIES, bookies, strict=True):
            assert sender.replies.stored_by(bookie_id) == list(range(9))
            assert [add_in(each).entry_id for each in bookie.received] == list(range(9))


async def test_a_bookie_that_goes_costs_its_own_outcomes_and_comes_back() -> None:
    async with three(backoff_initial_s=0.001, backoff_max_s=0.001) as (bookies, transport):
        sender = await connected(transport)
        bookies[1].script = keep_silent
        sender.send(range(1, 4))
        await until(lambda: sender.replies.count == 3 + 6)
        await bookies[1].stop()
        await sender.replies.all()
        assert sender.replies.failures() == {("b1", Code.BOOKIE_NOT_AVAILABLE)}
        sender.send([4])
        await sender.replies.all()
        assert sender.replies.failed[-1] == ("b1", 4, Code.BOOKIE_NOT_AVAILABLE)
        bookies[1].script = BookieConnection.succeed
        await bookies[1].start()

        async def comes_back(entry_id: int) -> bool:
            await asyncio.sleep(0.002)
            sender.send([entry_id])
            await sender.replies.all()
            return entry_id in sender.replies.stored_by("b1")

        async with asyncio.timeout(10):
            entry_id = 5
            while not await comes_back(entry_id):
                entry_id += 1
        assert sender.replies.stored_by("b0") == list(range(entry_id + 1))


async def test_a_bookie_that_does_not_answer_in_time_is_told_of_once() -> None:
    async with three(add_timeout_s=0.05) as (bookies, transport):
        sender = await connected(transport)
        bookies[2].script = keep_silent
        sender.send([1, 2])
        await sender.replies.all()
        assert sender.replies.failed == [("b2", 1, Code.TIMEOUT), ("b2", 2, Code.TIMEOUT)]


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize(
    ("status", "code"), [(Status.FENCED, Code.LEDGER_FENCED), (Status.READ_ONLY, Code.WRITE_ON_READ_ONLY_BOOKIE)]
)
async def test_a_refusal_is_told_and_what_was_stored_around_it(version: int, status: Status, code: Code) -> None:
    async with three(protocol_version=version) as (bookies, transport):
        sender = await connected(transport)

        def refuse_odd(connection: BookieConnection, received: ReceivedRequest) -> None:
            request = add_in(received)
            if request.entry_id % 2:
                answer = AddResponse(status, request.ledger_id, request.entry_id)
                connection.send(connection.wire.encode_response(received, answer))
            else:
                connection.succeed(received)

        bookies[0].script = refuse_odd
        sender.send(range(1, 9))
        await sender.replies.all()
        assert sender.replies.failed == [("b0", entry_id, code) for entry_id in (1, 3, 5, 7)]
        assert sender.replies.stored_by("b0") == [0, 2, 4, 6, 8]


@pytest.mark.rule("ERR-2")
async def test_a_refusal_that_names_no_entry_belongs_to_the_add_with_its_transaction_id() -> None:
    async with three() as (bookies, transport):
        sender = await connected(transport)
        held: list[tuple[BookieConnection, ReceivedRequest]] = []
        bookies[0].script = lambda connection, received: held.append((connection, received))
        sender.send([1, 2, 3])
        await until(lambda: len(held) == 3)
        connection, second = held[1]
        assert second.request is not None
        refusal = ErrorResponse(Operation.ADD_ENTRY, Status.UNAUTHORIZED)
        connection.send(connection.wire.encode_response(second, refusal))
        await until(lambda: bool(sender.replies.failed))
        assert sender.replies.failed == [("b0", 2, Code.UNAUTHORIZED)]


@pytest.mark.parametrize("limit", [{"max_outstanding_requests": 4}, {"max_outstanding_bytes": 400}])
async def test_a_bookie_that_owes_too_much_gets_no_more(limit: dict[str, int]) -> None:
    async with three(**limit) as (bookies, transport):
        sender = await connected(transport)
        bookies[0].script = keep_silent
        for entry_id in range(1, 11):
            sender.send([entry_id])
            await until(lambda entry_id=entry_id: len(sender.replies.stored_by("b1")) > entry_id)  # type: ignore[misc]
        await until(lambda: len(sender.replies.stored_by("b2")) == 11)
        taken = 10 - len(sender.replies.failed)
        assert 0 < taken < 10
        assert sender.replies.failed == [("b0", each, Code.TOO_MANY_REQUESTS) for each in range(taken + 1, 11)]


@pytest.mark.parametrize("version", [2, 3])
async def test_a_bookie_that_is_named_twice_gets_an_entry_twice_and_answers_twice(version: int) -> None:
    async with three(protocol_version=version) as (bookies, transport):
        sender = await connected(transport)
        for entry_id in range(1, 4):
            sender.send([entry_id], bookies=("b0", "b1", "b0"))
            await sender.replies.all()
        assert sender.replies.stored_by("b0") == [0, 1, 1, 2, 2, 3, 3]
        assert [add_in(each).entry_id for each in bookies[0].received].count(2) == 2
        transport.check()


async def test_a_key_that_is_in_use_goes_over_another_connection() -> None:
    async with three(protocol_version=2) as (bookies, transport):
        sender, other = await connected(transport), await connected(transport)
        held: list[tuple[BookieConnection, ReceivedRequest]] = []
        bookies[0].script = lambda connection, received: held.append((connection, received))
        sender.send([1])
        other.send([1])
        await until(lambda: len(held) == 2)
        assert held[0][0] is not held[1][0]
        for connection, received in reversed(held):
            connection.succeed(received)
        await sender.replies.all()
        await other.replies.all()


async def test_what_the_version_lacks_is_refused_for_every_bookie() -> None:
    async with three(protocol_version=2) as (bookies, transport):
        sender = Sender(transport, write_flags=WriteFlags.DEFERRED_SYNC)
        sender.send([0])
        await sender.replies.all()
        assert sender.replies.failed == [(bookie_id, 0, Code.ILLEGAL_OPERATION) for bookie_id in BOOKIES]
        assert [bookie.received for bookie in bookies] == [[], [], []]


async def test_a_frame_that_is_too_large_is_refused_for_every_bookie() -> None:
    async with three(max_frame_size_bytes=2048) as (bookies, transport):
        sender = await connected(transport)
        sender.send([1], bytes(4096))
        await sender.replies.all()
        assert sender.replies.failed == [(bookie_id, 1, Code.ILLEGAL_OPERATION) for bookie_id in BOOKIES]
        assert [len(bookie.received) for bookie in bookies] == [1, 1, 1]


async def test_closing_ends_everything_that_is_outstanding() -> None:
    async with three() as (bookies, transport):
        sender = await connected(transport)
        for bookie in bookies:
            bookie.script = keep_silent
        sender.send(range(1, 6))
        await asyncio.sleep(0.01)
        await transport.aclose()
        await sender.replies.all()
        assert sender.replies.failures() == {(bookie_id, Code.CLIENT_CLOSED) for bookie_id in BOOKIES}
        sender.send([6])
        await sender.replies.all()
        assert sender.replies.failed[-3:] == [(bookie_id, 6, Code.CLIENT_CLOSED) for bookie_id in BOOKIES]


async def test_a_bookie_that_takes_nothing_more_is_not_forgotten() -> None:
    async with three() as (bookies, transport):
        sender = await connected(transport)
        bookies[0].connections[0].transport.pause_reading()
        for entry_id in range(1, 101):
            sender.send([entry_id], bytes(100_000))
            await asyncio.sleep(0)
        assert not transport.is_writable("b0")
        bookies[0].connections[0].transport.resume_reading()
        await sender.replies.all()
        assert sender.replies.stored_by("b0") == list(range(101))


@pytest.mark.parametrize("name", ["on_adds_stored", "on_add_failed"])
async def test_one_who_raises_is_reported_and_costs_nobody_else_an_outcome(name: str) -> None:
    async with three() as (bookies, transport):
        sender, other = await connected(transport, ledger_id=1), await connected(transport, ledger_id=2)
        planted, reported = RuntimeError("planted"), list[BaseException | None]()
        asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context["exception"]))

        def fails(*_: object) -> None:
            raise planted

        setattr(sender.replies, name, fails)
        if name == "on_add_failed":
            bookies[0].script = keep_silent
        sender.send([1])
        other.send([1])
        if name == "on_add_failed":
            await asyncio.sleep(0.01)
            await bookies[0].stop()
        await other.replies.all()
        await until(lambda: bool(reported))
        assert set(reported) == {planted}


# Over other transports ------------------------------------------------------------------------------------------------


async def test_what_stands_around_a_transport_sees_every_request() -> None:
    class Watching(WrappingTransport):
        seen: list[tuple[str, int]] = []  # noqa: RUF012 - of this test

        def submit(self, bookie_id: str, request: Any, reply_to: Any) -> None:
            self.seen.append((bookie_id, request.entry_id))
            super().submit(bookie_id, request, reply_to)

    async with three() as (_, transport):
        replies = Replies()
        watching = Watching(transport)
        adds = adds_over(watching, template(), replies)
        assert isinstance(adds, EachReplica)
        assert not isinstance(adds, LedgerAdds)
        adds.send(BOOKIES, 0, CODEC.encode_header(0, -1, 0, b"x"), b"x")
        replies.expected = 3
        await replies.all()
        assert watching.seen == [(bookie_id, 0) for bookie_id in BOOKIES]


IDS = st.one_of(
    st.integers(0, 300), st.integers(2**14 - 3, 2**14 + 3), st.integers(2**28 - 3, 2**28 + 3), st.just(2**63 - 1)
)


@given(
    entries=st.lists(st.tuples(IDS, IDS, st.binary(max_size=40)), min_size=1, max_size=8),
    recovery=st.booleans(),
    high_priority=st.booleans(),
    write_flags=st.sampled_from([0, 1]),
    ledger_id=IDS,
)
def test_an_encoder_makes_the_frames_of_single_requests(
    entries: list[tuple[int, int, bytes]], recovery: bool, high_priority: bool, write_flags: int, ledger_id: int
) -> None:
    shared = template(ledger_id, recovery=recovery, high_priority=high_priority, write_flags=write_flags)
    encoder = v3.AddEncoder(shared)
    for txn_id, entry_id, payload in entries:
        buffers, acknowledgement, size = encoder.encode(txn_id, entry_id, b"header", payload)
        alone = v3.encode_request(shared.request(entry_id, b"header", payload), txn_id)
        assert (b"".join(buffers), acknowledgement, size) == (
            b"".join(alone.buffers),
            alone.acknowledgement,
            alone.size,
        )
        assert v3.decode_response(acknowledgement[4:]) == (alone.match, AddResponse(Status.OK, ledger_id, entry_id))
        received = v3.decode_request(b"".join(buffers)[4:])
        assert isinstance(received.request, AddRequest)
        assert (received.txn_id, received.request.entry_id) == (txn_id, entry_id)
    if not write_flags:
        old = v2.AddPacketEncoder(shared)
        for txn_id, entry_id, payload in entries:
            buffers, acknowledgement, size = old.encode(txn_id, entry_id, b"header" * 3, payload)
            alone = v2.encode_request(shared.request(entry_id, b"header" * 3, payload), txn_id)
            assert (b"".join(buffers), acknowledgement, size) == (
                b"".join(alone.buffers),
                alone.acknowledgement,
                alone.size,
            )

"""Entries of one turn, which connections are handed together: when they leave, what is counted, how a run ends.

What holds of keys, which version 2 uses again, is in :mod:`tests.bkclient.transport.test_keys_in_runs`.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bkclient.errors import Code
from bkclient.transport.open_run import MOST_BYTES, MOST_ENTRIES, WriteSets
from bkclient.transport.request_stream import RequestStream
from bkclient.transport.tcp import TcpTransport
from bkclient.wire import v2, v3
from bkclient.wire.connection import ClientConnection
from bkclient.wire.envelope import ReceivedRequest
from bkclient.wire.messages import AddRequest, AddResponse, AddTemplate, Operation, ReadRequest, Status
from bkclient.wire.v3_add import encode_add_response
from tests.bkclient.transport.scripted_bookie import keep_silent, until
from tests.bkclient.transport.test_bulk import BOOKIES, Replies, add_in, connected, three
from tests.bkclient.wire.made_runs import MadeAdd, run_of


def streams_of(transport: TcpTransport) -> tuple[RequestStream, ...]:
    return transport.streams_to(BOOKIES, 1)


def outstanding(transport: TcpTransport) -> list[int]:
    return [transport.pending_requests(bookie_id) for bookie_id in BOOKIES]


in_both_versions = pytest.mark.parametrize("version", [2, 3])

# When a run ends ------------------------------------------------------------------------------------------------------


@in_both_versions
async def test_entries_of_a_turn_are_one_run_for_all_connections(version: int) -> None:
    async with three(protocol_version=version) as (_, transport):
        sender = await connected(transport)
        sender.send(range(1, 6))
        streams = streams_of(transport)
        (run,) = {stream.run for stream in streams}
        assert run is not None
        assert not any(stream.buffers for stream in streams)
        await asyncio.sleep(0)
        assert {stream.run for stream in streams} == {None}
        runs = {id(stream.connection.runs[0]) for stream in streams}
        assert len(runs) == 1
        assert not any(stream.connection.adds for stream in streams)
        await sender.replies.all()
        assert not any(stream.connection.runs for stream in streams)


@in_both_versions
async def test_what_was_sent_in_this_turn_is_counted_for_whoever_asks(version: int) -> None:
    async with three(protocol_version=version) as (_, transport):
        sender = await connected(transport)
        sender.send(range(1, 6))
        assert outstanding(transport) == [5, 5, 5]
        transport.check()
        sender.send(range(6, 8))
        assert outstanding(transport) == [7, 7, 7]
        await sender.replies.all()
        assert outstanding(transport) == [0, 0, 0]


@in_both_versions
async def test_other_requests_leave_in_the_order_in_which_they_were_submitted(version: int) -> None:
    async with three(protocol_version=version) as (bookies, transport):
        sender = await connected(transport)
        sender.send([1, 2])
        transport.submit("b0", ReadRequest(1, 0), lambda *_: None)
        sender.send([3])
        sender.send([4], bookies=BOOKIES[:2])
        sender.send([5])
        await sender.replies.all()
        kinds = [type(each.request).__name__[:4] for each in bookies[0].received[1:]]
        assert kinds == ["AddR", "AddR", "Read", "AddR", "AddR", "AddR"]
        for bookie, expected in zip(bookies, ([1, 2, 3, 4, 5], [1, 2, 3, 4, 5], [1, 2, 3, 5]), strict=True):
            adds = [each for each in bookie.received[1:] if not isinstance(each.request, ReadRequest)]
            assert [add_in(each).entry_id for each in adds] == expected


@in_both_versions
async def test_a_run_that_is_full_leaves_before_the_turn_is_over(version: int) -> None:
    async with three(protocol_version=version) as (bookies, transport):
        sender = await connected(transport)
        # Acknowledgements of one run have one size, so ids have to be as long as each other.
        while next(transport.txn_ids) < 1000:
            pass
        ids = range(1000, 1000 + MOST_ENTRIES + 3)
        sender.send(ids[:-2])
        first = streams_of(transport)[0]
        assert (len(first.buffers), len(first.connection.runs)) == (0, 1)
        assert len(first.connection.runs[0]) == MOST_ENTRIES
        sender.send([ids[-2]], bytes(MOST_BYTES))
        sender.send([ids[-1]])
        assert len(first.connection.runs) == 2
        await sender.replies.all()
        for bookie in bookies:
            assert [add_in(each).entry_id for each in bookie.received] == [0, *ids]


@in_both_versions
async def test_a_limit_holds_within_a_turn(version: int) -> None:
    async with three(protocol_version=version, max_outstanding_requests=4) as (bookies, transport):
        sender = await connected(transport)
        bookies[0].script = keep_silent
        sender.send(range(1, 3))
        await until(lambda: len(sender.replies.stored_by("b2")) == 3)
        sender.send(range(3, 11))
        await until(lambda: len(sender.replies.failed) == 6 + 4 + 4)
        await until(lambda: outstanding(transport) == [4, 0, 0])
        assert {code for _, _, code in sender.replies.failed} == {Code.TOO_MANY_REQUESTS}
        assert sorted(each for bookie_id, each, _ in sender.replies.failed if bookie_id == "b0") == list(range(5, 11))


@in_both_versions
async def test_a_connection_that_is_lost_in_the_turn_costs_its_own_outcomes(version: int) -> None:
    async with three(protocol_version=version) as (_, transport):
        sender = await connected(transport)
        sender.send([1, 2])
        sender.replies.is_sending = False
        streams_of(transport)[1].abort(Code.BOOKIE_NOT_AVAILABLE, "a test")
        await sender.replies.all()
        assert sender.replies.failed == [("b1", each, Code.BOOKIE_NOT_AVAILABLE) for each in (1, 2)]
        assert [sender.replies.stored_by(bookie_id) for bookie_id in ("b0", "b2")] == [[0, 1, 2]] * 2


@in_both_versions
async def test_entries_of_several_writers_share_a_run_and_each_hears_of_its_own(version: int) -> None:
    async with three(protocol_version=version) as (_, transport):
        senders = [await connected(transport, ledger_id=ledger_id) for ledger_id in (1, 2, 3)]
        for entry_id in (1, 2):
            for sender in senders:
                sender.send([entry_id])
        senders[0].send([3, 4])
        run = transport.write_sets_of(1).run
        assert run is not None
        assert len(run.entry_ids) == 8
        for sender, last in zip(senders, (4, 2, 2), strict=True):
            await sender.replies.all()
            assert [sender.replies.stored_by(bookie_id) for bookie_id in BOOKIES] == [list(range(last + 1))] * 3


@in_both_versions
async def test_write_sets_of_a_striped_ledger_share_a_run_and_each_connection_gets_its_own_entries(
    version: int,
) -> None:
    async with three(protocol_version=version) as (bookies, transport):
        sender = await connected(transport)
        sets = [("b0", "b1"), ("b1", "b2"), ("b2", "b0")]
        for entry_id in range(1, 10):
            sender.send([entry_id], bookies=sets[entry_id % 3])
        run = transport.write_sets_of(1).run
        assert run is not None
        assert (len(run.entry_ids), len(run.sets)) == (9, 3)
        await sender.replies.all()
        assert not sender.replies.failed
        for bookie_id, bookie in zip(BOOKIES, bookies, strict=True):
            expected = [0, *[entry_id for entry_id in range(1, 10) if bookie_id in sets[entry_id % 3]]]
            assert [add_in(each).entry_id for each in bookie.received] == expected
            assert sender.replies.stored_by(bookie_id) == expected


async def test_one_sender_of_a_ledger_puts_entries_into_runs_in_version_2() -> None:
    """Answers of two would look alike. When the first is gone, and all that it sent, another one may."""
    async with three(protocol_version=2) as (_, transport):
        first, second = await connected(transport), await connected(transport)
        first.send([1])
        second.send([2])
        assert transport.write_sets_of(1).run is None
        await first.replies.all()
        await second.replies.all()
        del first
        third = await connected(transport)
        third.send([3, 4])
        second.send([5])
        third.send([6])
        run = transport.write_sets_of(1).run
        assert run is not None
        assert run.entry_ids == [6]
        await second.replies.all()
        await third.replies.all()


def test_only_what_can_be_gone_claims_a_ledger() -> None:
    class Fixed:
        __slots__ = ()

    write_sets, replies = WriteSets(), Replies()
    fixed: Any = Fixed()
    assert [write_sets.claim(1, each) for each in (fixed, replies, replies, Replies())] == [False, True, False, False]
    del replies
    assert write_sets.claim(1, Replies())


# Any answers ----------------------------------------------------------------------------------------------------------

RUNS = st.lists(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 300)), min_size=1, max_size=6), max_size=5)


@in_both_versions
@given(
    data=st.data(),
    runs=RUNS,
    order=st.sampled_from(["as sent", "as sent", "two exchanged", "any"]),
    failing=st.booleans(),
    cuts=st.lists(st.integers(1, 150), max_size=8),
)
def test_a_run_is_told_of_as_its_adds_are_that_were_sent_one_by_one(
    version: int, data: st.DataObject, runs: list[list[tuple[int, int]]], order: str, failing: bool, cuts: list[int]
) -> None:
    tokens = ["one", "two", "three"]
    together: ClientConnection[str] = ClientConnection(version)
    alone: ClientConnection[str] = ClientConnection(version)
    answers: list[bytes] = []
    for number, adds in enumerate(runs):
        made: list[MadeAdd[str]] = []
        for place, (writer, size) in enumerate(adds):
            entry_id, txn_id = 10 * number + place, 1000 + 10 * number + place
            template = AddTemplate(ledger_id=1 + writer, master_key=bytes(20))
            encoder = v3.AddEncoder(template) if version == 3 else v2.AddPacketEncoder(template)
            _, stored, frame = encoder.encode(txn_id, entry_id, b"", bytes(size))
            made.append((entry_id, tokens[writer], frame, stored))
            assert alone.send_add(stored, (entry_id, tokens[writer], float(number), frame))
            if failing and data.draw(st.integers(0, 5)) == 0:
                answers.append(refusal(version, txn_id, AddResponse(Status.IO_ERROR, 1 + writer, entry_id)))
            else:
                answers.append(stored)
        together.send_run(run_of(made, float(number)))
    if order == "any":
        answers = data.draw(st.permutations(answers))
    elif order == "two exchanged" and len(answers) > 1:
        place = data.draw(st.integers(0, len(answers) - 2))
        answers[place : place + 2] = answers[place + 1], answers[place]
    stream = b"".join(answers[: data.draw(st.integers(0, len(answers)))])
    assert heard(together, stream, list(cuts)) == heard(alone, stream, list(cuts))
    assert together.awaited() == alone.awaited()
    assert together.check() == alone.check()
    now = float(data.draw(st.integers(-1, 5)))
    assert together.expire(now) == alone.expire(now)
    assert together.abandon() == alone.abandon()


def refusal(version: int, txn_id: int, response: AddResponse) -> bytes:
    """The frame of an answer that says so."""
    if version == 3:
        return encode_add_response(txn_id, response)
    request = AddRequest(response.ledger_id, response.entry_id, bytes(20), b"", b"")
    return v2.encode_response(ReceivedRequest(2, 2, Operation.ADD_ENTRY, txn_id, 0, request), response)


def heard(connection: ClientConnection[str], stream: bytes, cuts: list[int]) -> list[object]:
    """What is told of these bytes, in the order and in the groups in which it is; and what is left after each chunk."""
    told: list[object] = []
    while stream:
        size = min(len(free := connection.get_buffer()), len(stream), cuts.pop() if cuts else len(stream))
        free[:size] = stream[:size]
        stream = stream[size:]
        told.append(connection.buffer_updated(size))
        told += [(sent, token, status) for sent, token, status, _ in connection.answers()]
        told.append((connection.outstanding_requests, connection.outstanding_bytes, len(connection.frames)))
    return told

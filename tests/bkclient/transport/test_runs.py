"""Entries of one turn, which connections are handed together: when they leave, what is counted, how a run ends."""

from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from bkclient.errors import Code
from bkclient.transport.open_run import MOST_BYTES, MOST_ENTRIES
from bkclient.transport.request_stream import RequestStream
from bkclient.transport.tcp import TcpTransport
from bkclient.wire import v3
from bkclient.wire.connection import ClientConnection
from bkclient.wire.messages import AddResponse, AddTemplate, ReadRequest, Status
from bkclient.wire.runs import Run
from bkclient.wire.v3_add import encode_add_response
from tests.bkclient.transport.scripted_bookie import keep_silent, until
from tests.bkclient.transport.test_bulk import BOOKIES, add_in, connected, three


def streams_of(transport: TcpTransport) -> tuple[RequestStream, ...]:
    return transport.streams_to(BOOKIES, 1)


def outstanding(transport: TcpTransport) -> list[int]:
    return [transport.pending_requests(bookie_id) for bookie_id in BOOKIES]


# When a run ends ------------------------------------------------------------------------------------------------------


async def test_entries_of_a_turn_are_one_run_for_all_connections() -> None:
    async with three() as (_, transport):
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


async def test_what_was_sent_in_this_turn_is_counted_for_whoever_asks() -> None:
    async with three() as (_, transport):
        sender = await connected(transport)
        sender.send(range(1, 6))
        assert outstanding(transport) == [5, 5, 5]
        transport.check()
        sender.send(range(6, 8))
        assert outstanding(transport) == [7, 7, 7]
        await sender.replies.all()
        assert outstanding(transport) == [0, 0, 0]


async def test_other_requests_leave_in_the_order_in_which_they_were_submitted() -> None:
    async with three() as (bookies, transport):
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


async def test_a_run_that_is_full_leaves_before_the_turn_is_over() -> None:
    async with three() as (bookies, transport):
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


async def test_a_limit_holds_within_a_turn() -> None:
    async with three(max_outstanding_requests=4) as (bookies, transport):
        sender = await connected(transport)
        bookies[0].script = keep_silent
        sender.send(range(1, 3))
        await until(lambda: len(sender.replies.stored_by("b2")) == 3)
        sender.send(range(3, 11))
        await until(lambda: len(sender.replies.failed) == 6 + 4 + 4)
        await until(lambda: outstanding(transport) == [4, 0, 0])
        assert {code for _, _, code in sender.replies.failed} == {Code.TOO_MANY_REQUESTS}
        assert sorted(each for bookie_id, each, _ in sender.replies.failed if bookie_id == "b0") == list(range(5, 11))


async def test_a_connection_that_is_lost_in_the_turn_costs_its_own_outcomes() -> None:
    async with three() as (_, transport):
        sender = await connected(transport)
        sender.send([1, 2])
        sender.replies.is_sending = False
        streams_of(transport)[1].abort(Code.BOOKIE_NOT_AVAILABLE, "a test")
        await sender.replies.all()
        assert sender.replies.failed == [("b1", each, Code.BOOKIE_NOT_AVAILABLE) for each in (1, 2)]
        assert [sender.replies.stored_by(bookie_id) for bookie_id in ("b0", "b2")] == [[0, 1, 2]] * 2


async def test_entries_of_several_writers_share_a_run_and_each_hears_of_its_own() -> None:
    async with three() as (_, transport):
        senders = [await connected(transport, ledger_id=ledger_id) for ledger_id in (1, 2, 3)]
        for entry_id in (1, 2):
            for sender in senders:
                sender.send([entry_id])
        senders[0].send([3, 4])
        run = transport.write_sets_of(1).run
        assert run is not None
        assert len(run.adds) == 8
        for sender, last in zip(senders, (4, 2, 2), strict=True):
            await sender.replies.all()
            assert [sender.replies.stored_by(bookie_id) for bookie_id in BOOKIES] == [list(range(last + 1))] * 3


async def test_write_sets_of_a_striped_ledger_share_a_run_and_each_connection_gets_its_own_entries() -> None:
    async with three() as (bookies, transport):
        sender = await connected(transport)
        sets = [("b0", "b1"), ("b1", "b2"), ("b2", "b0")]
        for entry_id in range(1, 10):
            sender.send([entry_id], bookies=sets[entry_id % 3])
        run = transport.write_sets_of(1).run
        assert run is not None
        assert (len(run.adds), len(run.sets)) == (9, 3)
        await sender.replies.all()
        assert not sender.replies.failed
        for bookie_id, bookie in zip(BOOKIES, bookies, strict=True):
            expected = [0, *[entry_id for entry_id in range(1, 10) if bookie_id in sets[entry_id % 3]]]
            assert [add_in(each).entry_id for each in bookie.received] == expected
            assert sender.replies.stored_by(bookie_id) == expected


# Any answers ----------------------------------------------------------------------------------------------------------

RUNS = st.lists(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 300)), min_size=1, max_size=6), max_size=5)


@given(
    data=st.data(),
    runs=RUNS,
    order=st.sampled_from(["as sent", "as sent", "two exchanged", "any"]),
    failing=st.booleans(),
    cuts=st.lists(st.integers(1, 150), max_size=8),
)
def test_a_run_is_told_of_as_its_adds_are_that_were_sent_one_by_one(
    data: st.DataObject, runs: list[list[tuple[int, int]]], order: str, failing: bool, cuts: list[int]
) -> None:
    tokens = ["one", "two", "three"]
    together: ClientConnection[str] = ClientConnection(3)
    alone: ClientConnection[str] = ClientConnection(3)
    answers: list[bytes] = []
    for number, adds in enumerate(runs):
        made = []
        for place, (writer, size) in enumerate(adds):
            entry_id, txn_id = 10 * number + place, 1000 + 10 * number + place
            template = AddTemplate(ledger_id=1 + writer, master_key=b"k")
            _, stored, frame = v3.AddEncoder(template).encode(txn_id, entry_id, b"", bytes(size))
            made.append((entry_id, tokens[writer], frame, stored))
            assert alone.send_add(stored, (entry_id, tokens[writer], float(number), frame))
            if failing and data.draw(st.integers(0, 5)) == 0:
                refusal = AddResponse(Status.IO_ERROR, 1 + writer, entry_id)
                answers.append(encode_add_response(txn_id, refusal))
            else:
                answers.append(stored)
        together.send_run(Run(made, float(number)))
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

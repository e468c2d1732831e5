"""Reads of version 2, many at a time: bytes and outcomes of reads that are sent one by one, and one request of each key."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bkclient.wire import v2
from bkclient.wire.connection import ClientConnection
from bkclient.wire.envelope import ReceivedRequest
from bkclient.wire.errors import WireError
from bkclient.wire.framing import frame
from bkclient.wire.messages import (
    AddResponse,
    BatchReadResponse,
    ErrorResponse,
    Operation,
    ReadRequest,
    ReadResponse,
    Response,
    Status,
)
from bkclient.wire.outstanding import KeyInUse
from bkclient.wire.server_connection import ServerConnection
from bkclient.wire.v2_read import BODY_AT, ReadPacketEncoder, match_in
from tests.bkclient.wire.test_v3_read import Heard, key, take

IDS = st.integers(-(2**63), 2**63 - 1) | st.integers(0, 300)


@given(ledger_id=IDS, entry_id=IDS, txn_id=st.integers(0, 2**63))
def test_a_read_is_byte_for_byte_what_a_single_one_is(ledger_id: int, entry_id: int, txn_id: int) -> None:
    data, match, _ = ReadPacketEncoder(ledger_id).encode(txn_id, entry_id)
    encoded = v2.encode_request(ReadRequest(ledger_id, entry_id), txn_id)
    assert (data, match) == (b"".join(encoded.buffers), encoded.match)


RESPONSES: list[Response] = [
    ReadResponse(Status.OK, 1, 4, b"body"),
    ReadResponse(Status.OK, 1, 4),
    ReadResponse(Status.NO_ENTRY, 1, 4),
    AddResponse(Status.OK, 1, 4),
    BatchReadResponse(Status.OK, 1, 4, (b"body",)),
]


@settings(deadline=None, max_examples=300)
@given(
    response=st.sampled_from(RESPONSES), flips=st.lists(st.tuples(st.integers(0, 40), st.integers(1, 255)), max_size=2)
)
def test_what_is_recognised_is_a_good_answer_and_good_answers_are(
    response: Response, flips: list[tuple[int, int]]
) -> None:
    received = ReceivedRequest(2, 2, int(response.operation), 0, 0, None)
    content = bytearray(v2.encode_response(received, response)[4:])
    for place, bits in flips:
        if place < len(content):
            content[place] ^= bits
    data = b"??" + bytes(content) + b"??"
    match = match_in(data, 2, 2 + len(content))
    try:
        expected, decoded = v2.decode_response(bytes(content))
    except WireError:
        assert match is None
        return
    if match is not None:
        assert isinstance(decoded, ReadResponse)
        assert (match, decoded.status, decoded.body) == (expected, Status.OK, bytes(content[BODY_AT:]))
    elif not flips:
        assert not (isinstance(decoded, ReadResponse) and decoded.status is Status.OK)


KINDS = st.sampled_from(["found", "empty", "denied", "refused", "twice", "silent"])


@settings(deadline=None)
@given(kinds=st.lists(KINDS, min_size=1, max_size=12), data=st.data())
def test_many_reads_have_the_outcomes_of_single_ones_for_any_answers_order_and_chunking(
    kinds: list[str], data: st.DataObject
) -> None:
    many: ClientConnection[str] = ClientConnection(2)
    single: ClientConnection[str] = ClientConnection(2)
    count = len(kinds)
    split = data.draw(st.integers(0, count))
    encoder = ReadPacketEncoder(7)
    sent = b"".join(many.send_reads(encoder, 7, range(split), "one", 1.0))
    sent += b"".join(many.send_reads(encoder, 7, range(split, count), "other", 2.0))
    by_single = b""
    for entry_id in range(count):
        token, deadline = ("one", 1.0) if entry_id < split else ("other", 2.0)
        by_single += b"".join(single.send(ReadRequest(7, entry_id), token, deadline))
    assert sent == by_single
    now = data.draw(st.sampled_from([0.0, 1.0, 2.0]))
    expired = [sorted((token, key(request)) for request, token in each.expire(now)) for each in (many, single)]
    assert expired[0] == expired[1]

    bookie, answers = ServerConnection(), []
    for received, kind in zip(bookie.receive(sent), kinds, strict=True):
        assert isinstance(received.request, ReadRequest)
        entry_id = received.request.entry_id
        body = b"entry %d" % entry_id * (entry_id % 5 * 500 + 1)
        responses: dict[str, Response] = {
            "empty": ReadResponse(Status.OK, 7, entry_id, b""),
            "denied": ReadResponse(Status.NO_ENTRY, 7, entry_id),
            "refused": ErrorResponse(Operation.READ_ENTRY, Status.TOO_MANY_REQUESTS),
        }
        answer = bookie.encode_response(received, responses.get(kind, ReadResponse(Status.OK, 7, entry_id, body)))
        answers += {"twice": [answer, answer], "silent": []}.get(kind, [answer])
    stream = b"".join(data.draw(st.permutations(answers)))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    heard, by_one = Heard({}), Heard({})
    take(heard, many, stream, cuts)
    take(by_one, single, stream, cuts)
    assert heard == by_one
    for each in (many, single):
        each.check()
    assert (many.outstanding_requests, many.load.bytes) == (single.outstanding_requests, single.load.bytes)
    assert many.unmatched_answers == single.unmatched_answers
    keys = [many.is_free(match_of(entry_id)) for entry_id in range(count)]
    assert keys == [single.is_free(match_of(entry_id)) for entry_id in range(count)]
    rest = sorted((token, key(request)) for request, token in many.abandon())
    assert rest == sorted((token, key(request)) for request, token in single.abandon())


def match_of(entry_id: int) -> bytes:
    match = v2.match_of(ReadRequest(7, entry_id))
    assert match is not None
    return match


def good_answer(entry_id: int) -> bytes:
    content = v2.encode_response(ReceivedRequest(2, 2, 2, 0, 0, None), ReadResponse(Status.OK, 7, entry_id, b"body"))
    assert frame(content[4:]) == content
    return content


def test_a_key_has_one_request_however_it_was_sent() -> None:
    connection: ClientConnection[str] = ClientConnection(2)
    encoder = ReadPacketEncoder(7)
    fencing = ReadRequest(7, 5, fence_key=bytes(20))
    assert connection.is_free(match_of(5))
    assert len(connection.send_reads(encoder, 7, [5], "first", 1.0)) == 1
    assert not connection.is_free(match_of(5))
    with pytest.raises(KeyInUse):
        connection.send(fencing, "second", 9.0)
    assert connection.check() == (1, connection.load.bytes)
    assert len(connection.send_reads(encoder, 7, [4, 5, 6], "third", 9.0)) == 1  # up to the key in use
    # Given up is not free: its answer must not pass for that to another.
    assert [key(request)[1] for request, _ in connection.expire(1.0)] == [5]
    assert not connection.is_free(match_of(5))
    assert connection.send_reads(encoder, 7, [5], "fourth", 9.0) == []
    with pytest.raises(KeyInUse):
        connection.send(fencing, "fifth", 9.0)
    heard = Heard({})
    take(heard, connection, good_answer(5), [])
    assert heard.outcomes == {}
    assert connection.unmatched_answers == 1
    assert connection.is_free(match_of(5))
    connection.send(fencing, "sixth", 9.0)
    assert connection.send_reads(encoder, 7, [5], "seventh", 9.0) == []
    take(heard, connection, good_answer(5) + good_answer(4), [])
    assert {(token, entry_id) for token, entry_id in heard.outcomes} == {("sixth", 5), ("third", 4)}
    assert connection.outstanding_requests == 0


def test_keys_that_somebody_waits_for_are_told_of() -> None:
    wanted: set[bytes] = set()
    connection: ClientConnection[str] = ClientConnection(2, wanted=wanted)
    connection.send_reads(ReadPacketEncoder(7), 7, [4, 5, 6], "token", 1.0)
    wanted.add(match_of(5))
    heard = Heard({})
    take(heard, connection, good_answer(4) + good_answer(5), [])
    assert (heard.count, connection.changed) == (2, [match_of(5)])
    wanted.add(match_of(6))
    connection.expire(1.0)
    assert connection.changed == [match_of(5), match_of(6)]

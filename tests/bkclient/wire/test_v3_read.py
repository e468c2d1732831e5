"""Reads of version 3 laid out by hand: the bytes of protobuf, and the outcomes of reads that are sent one by one."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bkclient.wire import bookkeeper_pb2 as pb
from bkclient.wire import v3
from bkclient.wire.chunks import FoundBody, bodies_in
from bkclient.wire.connection import Answer, ClientConnection
from bkclient.wire.envelope import ReceivedRequest
from bkclient.wire.errors import MalformedMessage, WireError
from bkclient.wire.framing import frame
from bkclient.wire.messages import AddRequest, ErrorResponse, Operation, ReadRequest, ReadResponse, Response, Status
from bkclient.wire.outstanding import Load
from bkclient.wire.server_connection import ServerConnection
from bkclient.wire.v3_read import ReadEncoder, body_in, max_lac_in

IDS = st.integers(-1, 2**63 - 1) | st.integers(0, 2**15)
TXN_IDS = st.integers(0, 2**64 - 1) | st.integers(0, 2**15)
BODIES = st.binary(max_size=200) | st.sampled_from([127, 128, 129, 16_383, 16_384, 70_000]).map(bytes)


@settings(deadline=None)
@given(ledger_id=IDS, reads=st.lists(st.tuples(TXN_IDS, IDS), min_size=1, max_size=5))
def test_a_hand_made_read_is_byte_for_byte_what_protobuf_writes(ledger_id: int, reads: list[tuple[int, int]]) -> None:
    encoder = ReadEncoder(ledger_id)
    for txn_id, entry_id in reads:
        data, match, _ = encoder.encode(txn_id, entry_id)
        encoded = v3.encode_request(ReadRequest(ledger_id, entry_id), txn_id)
        assert (data, match) == (b"".join(encoded.buffers), encoded.match)


@settings(deadline=None)
@given(
    ledger_id=IDS,
    reads=st.lists(st.tuples(TXN_IDS, IDS), min_size=1, max_size=5) | st.just([(127, 5), (128, 6), (129, 7)]),
)
def test_reads_that_are_made_together_are_those_made_one_by_one(ledger_id: int, reads: list[tuple[int, int]]) -> None:
    each = [ReadEncoder(ledger_id).encode(*ids) for ids in reads]
    together = ReadEncoder(ledger_id).encode_all(*(list(ids) for ids in zip(*reads, strict=True)))
    assert list(zip(*together, strict=True)) == each


def found_in(data: bytes, position: int, end: int, start: bytes) -> tuple[bytes, int | None] | None:
    """Body and LAC of what :func:`body_in` finds."""
    places = body_in(data, position, end, start)
    if places is None:
        return None
    message_at, body_at, body_end = places
    assert data.startswith(start, message_at)
    if body_end == end:
        return data[body_at:body_end], None
    max_lac = max_lac_in(data[body_end:end])
    return None if max_lac is None else (data[body_at:body_end], max_lac)


def answer_of(txn_id: int, response: Response) -> bytes:
    """The content of the frame."""
    return v3.encode_response(ReceivedRequest(3, 3, Operation.READ_ENTRY, txn_id, 0, None), response)[4:]


@settings(deadline=None)
@given(ids=st.tuples(IDS, IDS), txn_id=TXN_IDS, body=BODIES, max_lac=st.none() | st.integers(-(2**63), 2**63 - 1))
def test_a_good_answer_is_found_as_protobuf_reads_it(
    ids: tuple[int, int], txn_id: int, body: bytes, max_lac: int | None
) -> None:
    content = answer_of(txn_id, ReadResponse(Status.OK, *ids, body, max_lac))
    _, match, start = ReadEncoder(ids[0]).encode(txn_id, ids[1])
    assert content.startswith(match)
    expected = (body, max_lac)
    assert found_in(content, len(match), len(content), start) == expected
    # It may stand anywhere in what has arrived.
    around = b"??" + content + b"\x28\x01"
    assert found_in(around, 2 + len(match), 2 + len(content), start) == expected


@pytest.mark.parametrize("size", [2**21 - 1, 2**21 - 40, 2**21, 2**21 + 1, 3 * 2**20])
def test_a_large_answer_is_found_or_left_to_protobuf(size: int) -> None:
    body = bytes(size)
    content = answer_of(1, ReadResponse(Status.OK, 1, 0, body, 0))
    _, match, start = ReadEncoder(1).encode(1, 0)
    assert found_in(content, len(match), len(content), start) == ((body, 0) if size == 2**21 - 40 else None)


@pytest.mark.parametrize(
    "response",
    [
        ErrorResponse(Operation.READ_ENTRY, Status.NO_LEDGER),
        ReadResponse(Status.NO_ENTRY, 1, 0),
        ReadResponse(Status.OK, 1, 0),
        ReadResponse(Status.OK, 1, 0, b"body", 5, 17),
        ReadResponse(Status.OK, 1, 0, b"body", None, 17),
        ReadResponse(Status.OK, 1, 1, b"body"),
        ReadResponse(Status.OK, 2, 0, b"body"),
    ],
)
def test_any_other_answer_is_left_to_protobuf(response: Response) -> None:
    content = answer_of(7, response)
    _, match, start = ReadEncoder(1).encode(7, 0)
    assert content.startswith(match)
    assert found_in(content, len(match), len(content), start) is None


@settings(deadline=None, max_examples=300)
@given(
    body=st.binary(max_size=20) | st.just(bytes(200)),
    max_lac=st.none() | st.integers(-1, 2**63 - 1),
    entry_id=st.integers(0, 300),
    data=st.data(),
)
def test_what_is_found_in_a_damaged_answer_protobuf_reads_too(
    body: bytes, max_lac: int | None, entry_id: int, data: st.DataObject
) -> None:
    content = bytearray(answer_of(9, ReadResponse(Status.OK, 1, entry_id, body, max_lac)))
    _, match, start = ReadEncoder(1).encode(9, entry_id)
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(len(match), len(content) - 1))
        match data.draw(st.sampled_from(["flip", "cut", "insert", "repeat"])):
            case "flip":
                content[place] ^= data.draw(st.integers(1, 255))
            case "cut":
                del content[place]
            case "insert":
                content.insert(place, data.draw(st.integers(0, 255)))
            case _:
                content += content[place:]
    damaged = bytes(content)
    found = found_in(damaged, len(match), len(damaged), start)
    if found is not None:
        key, response = v3.decode_response(damaged)
        assert key == match
        assert isinstance(response, ReadResponse)
        assert (response.status, response.ledger_id, response.entry_id) == (Status.OK, 1, entry_id)
        assert (response.body, response.max_lac) == found


def test_a_lac_in_more_bytes_than_it_needs_is_read_and_one_that_does_not_fit_is_not() -> None:
    _, match, start = ReadEncoder(1).encode(9, 0)
    for rest, expected in [
        ("2880808000", 0),
        ("28ffffffffffffffffff01", -1),
        ("28ffffffffffffffffff7f", None),
        ("28ffffffffffffffffffff01", None),
        ("2880", None),
        ("28", None),
        ("2900", None),
        ("28010801", None),
    ]:
        message = start + b"\x01!" + bytes.fromhex(rest)
        content = match + b"\x10\x00\xa2\x06%c" % len(message) + message
        found = found_in(content, len(match), len(content), start)
        assert found == (None if expected is None else (b"!", expected)), rest


#: What is done to an answer: a byte more or less at its end, another length of its message, another length of its body.
DAMAGES = st.sampled_from([(0, 0, 0)] * 4 + [(1, 0, 0), (-1, 0, 0), (0, 1, 0), (0, 0, 1), (1, 1, 0), (1, 0, 1)])
ALIKE = st.tuples(
    st.sampled_from([1, 2, 126, 127, 128, 129, 16_383, 16_384]),  # transaction id
    st.sampled_from([0, 126, 127, 128, 16_383, 16_384]),  # entry id
    st.sampled_from([b"", b"body", b"copy", bytes(126), bytes(127), bytes(128)]),
    st.none() | st.sampled_from([-1, 0, 5, 126, 127, 128, 2**40]),
    DAMAGES,
)


def damaged_answer(match: bytes, start: bytes, content: bytes, damage: tuple[int, int, int]) -> bytes:
    at_end, to_message, to_body = damage
    damaged = bytearray(content)
    damaged[len(match) + 4] ^= to_message & 1
    damaged[content.index(start) + len(start)] ^= to_body & 1
    return bytes(damaged + b"\0" if at_end > 0 else damaged[: len(damaged) + at_end])


@settings(deadline=None, max_examples=300)
@given(reads=st.lists(ALIKE, min_size=2, max_size=8, unique_by=lambda read: read[0]))
@example(reads=[(127, 128, b"abc", None, (0, 0, 0)), (128, 127, b"abc", None, (0, 1, 0))])
@example(reads=[(127, 128, b"abcd", None, (0, 0, 0)), (128, 127, b"abcd", None, (0, 1, 0))])
@example(reads=[(1, 1, b"body", 5, (0, 0, 0)), (2, 2, b"copy", 6, (0, 0, 0))])
@example(reads=[(1, 1, b"body", 5, (0, 0, 0)), (2, 2, b"copy", None, (0, 0, 0))])
@example(reads=[(1, 1, b"body", 5, (0, 0, 0)), (2, 2, b"copy", 5, (0, 1, 0))])
@example(reads=[(1, 1, b"body", None, (0, 0, 0)), (2, 2, b"copy", None, (1, 0, 0))])
def test_answers_that_are_alike_are_found_as_each_by_itself(
    reads: list[tuple[int, int, bytes, int | None, tuple[int, int, int]]],
) -> None:
    """Of a chunk as much is found as of its frames one after the other, whatever the one before looked like."""
    encoder = ReadEncoder(5)
    sent = {}
    frames = []
    for txn_id, entry_id, body, max_lac, damage in reads:
        _, match, start = encoder.encode(txn_id, entry_id)
        sent[match] = (start, entry_id, "token", 1.0, 20, 5)
        content = answer_of(txn_id, ReadResponse(Status.OK, 5, entry_id, body, max_lac))
        frames.append(frame(damaged_answer(match, start, content, damage)))

    bodies: list[FoundBody] = []
    size = 0
    left = dict(sent)
    for each in frames:
        found, position, _, _ = bodies_in(each, left, 3, 2**20)
        if not position:
            break
        bodies += found[0][1]
        size += position

    found, position, count, _ = bodies_in(b"".join(frames), sent, 3, 2**20)
    assert [body for _, several in found for body in several] == bodies
    assert (position, count, sent) == (size, len(bodies), left)


# On a connection: as if sent one by one ------------------------------------------------------------------------------


@dataclass
class Heard:
    """What became of reads, by token and entry: body and LAC, or a status that says why not; and how often it was told."""

    outcomes: dict[tuple[str, int], tuple[Status, bytes | None, int | None]]
    count: int = 0
    error: str | None = None

    def note(self, token: str, entry_id: int, status: Status, body: bytes | None, max_lac: int | None) -> None:
        self.outcomes[token, entry_id] = (status, body, max_lac)
        self.count += 1


def take(heard: Heard, connection: ClientConnection[str], data: bytes, cuts: list[int]) -> None:
    """Receive ``data`` in chunks, as streams do."""
    edges = [0, *cuts, len(data)]
    try:
        for begin, end in itertools.pairwise(edges):
            chunk = memoryview(data)[begin:end]
            while chunk:
                buffer = connection.get_buffer()
                count = min(len(buffer), len(chunk))
                buffer[:count] = chunk[:count]
                chunk = chunk[count:]
                connection.buffer_updated(count)
                for token, bodies in connection.found():
                    for entry_id, body, max_lac in bodies:
                        heard.note(token, entry_id, Status.OK, body, max_lac)
                note_all(heard, connection.answers())
    except WireError as error:
        heard.error = error.message


def note_all(heard: Heard, answers: Iterable[Answer[str]]) -> None:
    for request, token, status, response in answers:
        if isinstance(request, ReadRequest):
            body, max_lac = (response.body, response.max_lac) if isinstance(response, ReadResponse) else (None, None)
            heard.note(token, request.entry_id, status, body, max_lac)


KINDS = st.sampled_from(["found", "without lac", "with a time", "empty", "denied", "refused", "of another", "twice"])


def response_of(kind: str, ledger_id: int, entry_id: int) -> Response:
    body = b"entry %d" % entry_id * (entry_id % 7 * 400 + 1)
    responses: dict[str, Response] = {
        "found": ReadResponse(Status.OK, ledger_id, entry_id, body, entry_id - 1),
        "twice": ReadResponse(Status.OK, ledger_id, entry_id, body, 2**40),
        "without lac": ReadResponse(Status.OK, ledger_id, entry_id, body),
        "with a time": ReadResponse(Status.OK, ledger_id, entry_id, body, 5, 6),
        "empty": ReadResponse(Status.OK, ledger_id, entry_id),
        "denied": ReadResponse(Status.NO_ENTRY, ledger_id, entry_id),
        "refused": ErrorResponse(Operation.READ_ENTRY, Status.TOO_MANY_REQUESTS),
        "of another": ReadResponse(Status.OK, ledger_id, entry_id + 1, body),
    }
    return responses[kind]


@settings(deadline=None)
@given(
    kinds=st.lists(st.tuples(st.sampled_from(["one", "other"]), KINDS), min_size=1, max_size=12),
    adds=st.integers(0, 2),
    data=st.data(),
)
def test_many_reads_have_the_outcomes_of_single_ones_for_any_answers_order_and_chunking(
    kinds: list[tuple[str, str]], adds: int, data: st.DataObject
) -> None:
    # Two connections to two bookies that do the same; the one is asked many at a time.
    many: ClientConnection[str] = ClientConnection()
    single: ClientConnection[str] = ClientConnection()
    ledgers = {"one": 1, "other": 300}
    encoders = {token: ReadEncoder(ledger_id) for token, ledger_id in ledgers.items()}
    sent = b""
    for entry_id, (token, _) in enumerate(kinds):
        frames = many.send_reads(encoders[token], ledgers[token], [entry_id], token, 10.0)
        expected = b"".join(single.send(ReadRequest(ledgers[token], entry_id), token, 10.0))
        assert b"".join(frames) == expected
        sent += expected
    for entry_id in range(adds):
        request = AddRequest(1, entry_id, b"key", b"", b"payload")
        sent += b"".join(many.send(request, "add", 10.0))
        assert sent.endswith(b"".join(single.send(request, "add", 10.0)))

    bookie = ServerConnection()
    answers: list[bytes] = []
    for received, (token, kind) in zip(bookie.receive(sent), kinds, strict=False):
        assert isinstance(received.request, ReadRequest)
        answer = bookie.encode_response(received, response_of(kind, ledgers[token], received.request.entry_id))
        answers += [answer, answer] if kind == "twice" else [answer]
    stream = b"".join(data.draw(st.permutations(answers)))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))

    heard, by_single = Heard({}), Heard({})
    take(heard, many, stream, cuts)
    take(by_single, single, stream, cuts)
    assert heard == by_single
    assert (many.outstanding_requests, many.load.bytes) == (single.outstanding_requests, single.load.bytes)
    assert many.unmatched_answers == single.unmatched_answers
    many.check()
    rest = sorted((token, key(request)) for request, token in many.abandon())
    assert rest == sorted((token, key(request)) for request, token in single.abandon())


def key(request: object) -> tuple[str, int]:
    assert isinstance(request, ReadRequest | AddRequest)
    return type(request).__name__, request.entry_id


def test_reads_stop_where_the_load_is_full_and_the_rest_is_not_registered() -> None:
    by_count: ClientConnection[str] = ClientConnection(load=Load(max_requests=3))
    assert len(by_count.send_reads(ReadEncoder(1), 1, range(5), "token", 1.0)) == 3
    assert by_count.send_reads(ReadEncoder(1), 1, range(5), "token", 1.0) == []
    by_bytes: ClientConnection[str] = ClientConnection(load=Load(max_bytes=40))
    assert len(by_bytes.send_reads(ReadEncoder(1), 1, range(5), "token", 1.0)) == 3  # of 19 bytes: the last one exceeds
    by_frame: ClientConnection[str] = ClientConnection(max_frame_size=18)
    assert by_frame.send_reads(ReadEncoder(1), 1, range(5), "token", 1.0) == []
    for connection, count in ((by_count, 3), (by_bytes, 3), (by_frame, 0)):
        assert connection.check()[0] == connection.load.requests == count


def test_reads_expire_and_their_late_answers_are_ignored() -> None:
    connection: ClientConnection[str] = ClientConnection()
    first = connection.send_reads(ReadEncoder(1), 1, [4, 5], "token", 1.0)
    connection.send_reads(ReadEncoder(1), 1, [6], "token", 2.0)
    assert [(key(request)[1], token) for request, token in connection.expire(1.0)] == [(4, "token"), (5, "token")]
    bookie = ServerConnection()
    (received,) = bookie.receive(first[0])
    late = bookie.encode_response(received, ReadResponse(Status.OK, 1, 4, b"body", 3))
    heard = Heard({})
    take(heard, connection, late, [])
    assert (heard.count, connection.unmatched_answers) == (0, 1)
    assert [key(request)[1] for request, _ in connection.abandon()] == [6]
    assert connection.load.bytes == 0


def test_after_a_malformed_frame_nothing_is_found_any_more() -> None:
    connection: ClientConnection[str] = ClientConnection()
    (sent,) = connection.send_reads(ReadEncoder(1), 1, [4], "token", 1.0)
    bookie = ServerConnection()
    (received,) = bookie.receive(sent)
    heard = Heard({})
    take(heard, connection, frame(b"rubbish"), [])
    assert heard.error is not None
    with pytest.raises(MalformedMessage):
        list(connection.receive(b""))
    heard = Heard({})
    take(heard, connection, bookie.encode_response(received, ReadResponse(Status.OK, 1, 4, b"body", 3)), [])
    assert heard.count == 0
    assert heard.error is not None


def test_protobuf_may_name_the_fields_of_a_good_answer_in_any_order() -> None:
    connection: ClientConnection[str] = ClientConnection()
    (sent,) = connection.send_reads(ReadEncoder(1), 1, [4], "token", 1.0)
    (received,) = ServerConnection().receive(sent)
    message = pb.ReadResponse(status=pb.EOK, ledgerId=1, entryId=4, body=b"body", maxLAC=3).SerializeToString()
    _, match, _ = ReadEncoder(1).encode(received.txn_id, 4)
    content = b"\xa2\x06%c%b\x10\x00%b" % (len(message), message, match)
    heard = Heard({})
    take(heard, connection, frame(content), [])
    assert heard.outcomes == {("token", 4): (Status.OK, b"body", 3)}

"""The client's end of a connection: matching, sharing of encodings, expiry, damage."""

from __future__ import annotations

import gc
import itertools
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bkclient.errors import IllegalOperation
from bkclient.ledger import DigestType
from bkclient.wire import v2
from bkclient.wire.connection import Answer, ClientConnection
from bkclient.wire.entry import EntryCodec
from bkclient.wire.envelope import ReceivedRequest
from bkclient.wire.errors import FrameTooLarge, MalformedMessage, WireError
from bkclient.wire.framing import frame
from bkclient.wire.messages import (
    AddRequest,
    AddResponse,
    AuthMessage,
    BatchReadRequest,
    BatchReadResponse,
    BookieInfoRequest,
    BookieInfoResponse,
    EntryListRequest,
    EntryListResponse,
    ErrorResponse,
    ForceLedgerRequest,
    ForceLedgerResponse,
    LongPoll,
    ReadLacRequest,
    ReadLacResponse,
    ReadRequest,
    ReadResponse,
    Request,
    Response,
    StartTlsRequest,
    StartTlsResponse,
    Status,
    WriteLacRequest,
    WriteLacResponse,
)
from bkclient.wire.outstanding import KeyInUse, Load
from bkclient.wire.server_connection import ServerConnection

CODEC = EntryCodec(1, DigestType.CRC32C, b"")
KEY = CODEC.master_key


def add(entry_id: int, payload: bytes = b"payload", *, recovery: bool = False) -> AddRequest:
    header = CODEC.encode_header(entry_id, entry_id - 1, 0, payload)
    return AddRequest(1, entry_id, KEY, header, payload, recovery=recovery)


def received(data: bytes) -> list[ReceivedRequest]:
    return list(ServerConnection().receive(data))


def send(connection: ClientConnection[str], request: Request, token: str, deadline: float = 10.0) -> ReceivedRequest:
    """Send a request and give what a bookie receives."""
    (request_received,) = received(b"".join(connection.send(request, token, deadline)))
    return request_received


def reply(to: ReceivedRequest, response: Response) -> bytes:
    return ServerConnection().encode_response(to, response)


def added(to: ReceivedRequest, status: Status = Status.OK) -> bytes:
    assert isinstance(to.request, AddRequest)
    return reply(to, AddResponse(status, to.request.ledger_id, to.request.entry_id))


def tokens(answers: Iterable[Answer[str]]) -> list[tuple[str, Status]]:
    return [(token, status) for _, token, status, _ in answers]


EXCHANGES_V3: list[tuple[Request, Response]] = [
    (ReadRequest(1, 0), ReadResponse(Status.OK, 1, 0, b"body", 5)),
    (ReadRequest(1, -1, fence_key=KEY, high_priority=True), ReadResponse(Status.NO_ENTRY, 1, -1)),
    (ReadRequest(1, -1, long_poll=LongPoll(4, 10, piggyback=True)), ReadResponse(Status.OK, 1, 5, b"body", 5, 99)),
    (WriteLacRequest(1, 0, KEY, b"packet"), WriteLacResponse(Status.OK, 1)),
    (ReadLacRequest(1), ReadLacResponse(Status.OK, 1, b"lac", b"entry")),
    (ForceLedgerRequest(1), ForceLedgerResponse(Status.IO_ERROR, 1)),
    (BookieInfoRequest(2), BookieInfoResponse(Status.OK, None, 5)),
    (EntryListRequest(1), EntryListResponse(Status.OK, 1, bytes(64))),
    (StartTlsRequest(), StartTlsResponse(Status.OK)),
    (AuthMessage("plugin", b"?"), AuthMessage("plugin", b"!")),
]
EXCHANGES_V2: list[tuple[Request, Response]] = [
    (ReadRequest(1, 0), ReadResponse(Status.OK, 1, 0, b"body")),
    (ReadRequest(1, -1, fence_key=KEY), ReadResponse(Status.NO_ENTRY, 1, -1)),
    (BatchReadRequest(1, 3, 2, 100), BatchReadResponse(Status.OK, 1, 3, (b"one", b"two"))),
    (AuthMessage("plugin", b"?"), AuthMessage("plugin", b"!")),
]
EXCHANGES = [(3, *exchange) for exchange in EXCHANGES_V3] + [(2, *exchange) for exchange in EXCHANGES_V2]


@pytest.mark.parametrize(("version", "request_", "response"), EXCHANGES)
def test_every_request_gets_its_answer_and_is_outstanding_until_then(
    version: int, request_: Request, response: Response
) -> None:
    connection: ClientConnection[str] = ClientConnection(version)
    at_bookie = send(connection, request_, "token")
    assert connection.outstanding_requests == 1
    assert connection.outstanding_bytes > 0
    ((request_back, token, status, response_back),) = connection.receive(reply(at_bookie, response))
    assert (request_back, token, status) == (request_, "token", response.status)
    if isinstance(response, AuthMessage):
        assert isinstance(response_back, AuthMessage)
        assert response_back.payload == b"!"
    else:
        assert response_back == response
    assert (connection.outstanding_requests, connection.outstanding_bytes) == (0, 0)


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("status", list(Status))
def test_the_answer_to_an_add_is_its_status(version: int, status: Status) -> None:
    connection: ClientConnection[str] = ClientConnection(version)
    request = add(5)
    at_bookie = send(connection, request, "token")
    assert list(connection.receive(added(at_bookie, status))) == [(request, "token", status, None)]
    assert connection.outstanding_requests == 0


@pytest.mark.rule("ERR-2")
def test_a_refusal_without_ids_belongs_to_the_request_with_its_transaction_id() -> None:
    connection: ClientConnection[str] = ClientConnection()
    first, second = send(connection, add(0), "first"), send(connection, ReadRequest(1, 0, high_priority=True), "second")
    server = ServerConnection()
    data = server.refuse(second, Status.UNAUTHORIZED) + server.refuse(first, Status.UNAUTHORIZED)
    answers = list(connection.receive(data))
    assert tokens(answers) == [("second", Status.UNAUTHORIZED), ("first", Status.UNAUTHORIZED)]
    assert isinstance(answers[0][3], ErrorResponse)
    assert answers[1][3] is None


@pytest.mark.parametrize("version", [2, 3])
def test_answers_may_come_in_any_order(version: int) -> None:
    connection: ClientConnection[str] = ClientConnection(version)
    sent = [send(connection, add(entry_id), str(entry_id)) for entry_id in range(3)]
    order = [2, 0, 1]
    data = b"".join(added(sent[index]) for index in order)
    assert tokens(connection.receive(data)) == [(str(index), Status.OK) for index in order]


@pytest.mark.parametrize("version", [2, 3])
def test_an_answer_to_nothing_outstanding_is_ignored_and_so_is_a_second_one(version: int) -> None:
    connection: ClientConnection[str] = ClientConnection(version)
    at_bookie = send(connection, add(0), "token")
    stranger = send(ClientConnection(version, txn_ids=itertools.count(77)), add(9), "other")
    data = added(stranger) + added(at_bookie) + added(at_bookie)
    assert tokens(connection.receive(data)) == [("token", Status.OK)]
    assert connection.unmatched_answers == 2


def test_the_operation_is_part_of_what_is_matched() -> None:
    connection: ClientConnection[str] = ClientConnection()
    send(connection, add(0), "add")
    read = send(ClientConnection(), ReadRequest(1, 0), "read")
    assert list(connection.receive(reply(read, ReadResponse(Status.OK, 1, 0, b"body")))) == []
    assert (connection.outstanding_requests, connection.unmatched_answers) == (1, 1)


def test_an_acknowledgement_with_fields_in_another_order_is_recognised_too() -> None:
    connection: ClientConnection[str] = ClientConnection()
    send(connection, add(7), "token")
    message = b"\x18\x07\x10\x01\x08\x00"
    content = b"\xaa\x06\x06" + message + b"\x10\x00" + b"\x0a\x06\x18\x01\x10\x02\x08\x03"
    assert tokens(connection.receive(frame(content))) == [("token", Status.OK)]


# Sending an add again.


def test_transaction_ids_ascend_on_a_connection_even_for_a_request_sent_twice() -> None:
    connection: ClientConnection[str] = ClientConnection()
    request = add(0)
    first, second = send(connection, request, "first"), send(connection, request, "second")
    assert first.txn_id < second.txn_id
    data = added(second, Status.FENCED) + added(first)
    assert tokens(connection.receive(data)) == [("second", Status.FENCED), ("first", Status.OK)]


def test_a_late_answer_to_an_expired_add_is_not_taken_for_the_answer_to_its_repetition() -> None:
    connection: ClientConnection[str] = ClientConnection()
    request = add(0)
    first = send(connection, request, "first", deadline=1.0)
    assert connection.expire(1.0) == [(request, "first")]
    second = send(connection, request, "second")
    assert list(connection.receive(added(first, Status.FENCED))) == []
    assert tokens(connection.receive(added(second))) == [("second", Status.OK)]


def test_late_answers_take_no_longer_with_many_adds_outstanding() -> None:
    def calls_with(outstanding: int) -> int:
        connection: ClientConnection[str] = ClientConnection()
        late = [send(connection, add(entry_id), "late", deadline=1.0) for entry_id in range(10)]
        assert len(connection.expire(1.0)) == 10
        for entry_id in range(outstanding):
            send(connection, add(entry_id), "later")
        chunk = b"".join(added(at_bookie, status) for at_bookie in late for status in (Status.OK, Status.FENCED))
        events: list[str] = []
        gc.collect()  # the collector calls what watches it
        gc.disable()
        sys.setprofile(lambda _frame, event, _argument: events.append(event))
        try:
            answers = list(connection.receive(chunk))
        finally:
            sys.setprofile(None)
            gc.enable()
        assert answers == []
        assert connection.unmatched_answers == 20
        assert connection.outstanding_requests == outstanding
        return len(events)

    assert calls_with(1000) == calls_with(1) > 20


@pytest.mark.parametrize(("nth", "is_outstanding"), [(0, True), (499, True), (999, True), (1000, False)])
def test_an_answer_about_another_entry_ends_the_connection_unless_it_is_late(nth: int, is_outstanding: bool) -> None:
    # Their transaction ids have two bytes, then three.
    connection: ClientConnection[str] = ClientConnection(txn_ids=itertools.count(16_000))
    late = send(connection, add(0), "late", deadline=1.0)
    assert len(connection.expire(1.0)) == 1
    sent = [*(send(connection, add(entry_id), str(entry_id)) for entry_id in range(1000)), late]
    about_another = reply(sent[nth], AddResponse(Status.OK, 1, 5000))
    if is_outstanding:
        with pytest.raises(MalformedMessage, match="about entry 5000 of ledger 1 to the add of another"):
            list(connection.receive(about_another))
    else:
        assert list(connection.receive(about_another)) == []
        assert connection.unmatched_answers == 1


# Keys of version 2.

ONE_KEY: list[tuple[str, Request, Request]] = [
    ("an ordinary and a fencing read", ReadRequest(1, 0), ReadRequest(1, 0, fence_key=KEY)),
    ("two reads of the last entry", ReadRequest(1, -1), ReadRequest(1, -1, fence_key=KEY, high_priority=True)),
    ("an add and one of a recovery", add(0), add(0, b"x", recovery=True)),
    ("two steps of an authentication", AuthMessage("plugin", b"1"), AuthMessage("plugin", b"2")),
]


def answer_to(at_bookie: ReceivedRequest, status: Status = Status.OK) -> bytes:
    request = at_bookie.request
    if isinstance(request, AddRequest):
        return added(at_bookie, status)
    if isinstance(request, AuthMessage):
        return reply(at_bookie, AuthMessage("plugin"))
    assert isinstance(request, ReadRequest)
    return reply(at_bookie, ReadResponse(status, request.ledger_id, request.entry_id))


@pytest.mark.parametrize(("first", "second"), [pair[1:] for pair in ONE_KEY], ids=[pair[0] for pair in ONE_KEY])
def test_over_version_2_a_key_has_one_request_until_its_answer_has_come(first: Request, second: Request) -> None:
    connection: ClientConnection[str] = ClientConnection(2)
    at_bookie = send(connection, first, "first", deadline=1.0)
    with pytest.raises(KeyInUse) as taken:
        connection.send(second, "second")
    key = v2.match_of(second)
    assert taken.value.key == key
    assert key.hex() in str(taken.value)
    assert (connection.outstanding_requests, connection.outstanding.given_up) == (1, 0)
    assert not connection.outstanding.is_given_up(key)
    assert [token for _, token in connection.expire(1.0)] == ["first"]
    with pytest.raises(KeyInUse):
        connection.send(second, "second")
    assert (connection.outstanding_requests, connection.outstanding.given_up) == (0, 1)
    assert connection.outstanding.is_given_up(key)
    late = answer_to(at_bookie, Status.NO_ENTRY)
    assert list(connection.receive(late)) == []
    assert (connection.unmatched_answers, connection.outstanding.given_up) == (1, 0)
    assert not connection.outstanding.is_given_up(key)
    again = send(connection, second, "second")
    assert [token for token, _ in tokens(connection.receive(answer_to(again)))] == ["second"]
    assert (connection.outstanding_requests, connection.outstanding_bytes) == (0, 0)


def test_batch_reads_have_ids_of_their_own_over_version_2() -> None:
    connection: ClientConnection[str] = ClientConnection(2)
    request = BatchReadRequest(1, 0, 2, 100)
    sent = [send(connection, request, name, deadline=1.0) for name in ("a", "b")]
    connection.expire(1.0)
    sent.append(send(connection, request, "c"))
    answers = [reply(at_bookie, BatchReadResponse(Status.OK, 1, 0, (b"x",))) for at_bookie in sent]
    assert tokens(connection.receive(b"".join(answers))) == [("c", Status.OK)]
    assert connection.outstanding.given_up == 0


@pytest.mark.parametrize("request_", [request for request, _ in EXCHANGES_V2] + [add(3), ReadLacRequest(1)])
def test_the_key_of_a_request_is_known_without_encoding_it(request_: Request) -> None:
    known = v2.match_of(request_)
    if isinstance(request_, BatchReadRequest | ReadLacRequest):
        assert known is None
    else:
        assert known == v2.encode_request(request_, 7).match


def test_keys_that_somebody_waits_for_are_told_when_their_request_is_answered_or_given_up() -> None:
    wanted = [v2.match_of(ReadRequest(1, entry_id)) or b"" for entry_id in range(3)]
    connection: ClientConnection[str] = ClientConnection(2, wanted=wanted)
    sent = [send(connection, ReadRequest(1, entry_id), "token", deadline=entry_id) for entry_id in range(4)]
    assert list(connection.receive(reply(sent[2], ReadResponse(Status.NO_ENTRY, 1, 2))))
    connection.expire(1.0)
    assert connection.changed == [wanted[2], wanted[0], wanted[1]]
    connection.changed.clear()
    assert list(connection.receive(reply(sent[1], ReadResponse(Status.NO_ENTRY, 1, 1)))) == []
    assert list(connection.receive(reply(sent[3], ReadResponse(Status.NO_ENTRY, 1, 3))))
    assert connection.changed == [wanted[1]]


def test_connections_may_share_a_load() -> None:
    load = Load()
    one: ClientConnection[str] = ClientConnection(2, load=load)
    other: ClientConnection[str] = ClientConnection(2, load=load)
    sent = send(one, add(0), "one")
    send(other, add(0), "other")
    assert load.requests == 2
    assert load.bytes == one.outstanding_bytes == other.outstanding_bytes
    assert tokens(one.receive(added(sent))) == [("one", Status.OK)]
    other.abandon()
    assert (load.requests, load.bytes) == (0, 0)


# Expiry and the end.


@pytest.mark.rule("W-45")
@pytest.mark.parametrize("version", [2, 3])
def test_requests_expire_at_their_deadline_and_their_late_answers_are_ignored(version: int) -> None:
    connection: ClientConnection[str] = ClientConnection(version)
    slow = send(connection, add(0), "slow", deadline=3.0)
    send(connection, ReadRequest(1, 0), "read", deadline=2.0)
    send(connection, add(1), "patient", deadline=4.0)
    assert connection.expire(1.999) == []
    assert [token for _, token in connection.expire(2.0)] == ["read"]
    assert [token for _, token in connection.expire(3.5)] == ["slow"]
    assert list(connection.receive(added(slow))) == []
    assert connection.outstanding_requests == 1


def test_abandoning_gives_every_outstanding_request_back_once_and_in_order() -> None:
    connection: ClientConnection[str] = ClientConnection(2)
    for entry_id, name in enumerate(("a", "b")):
        connection.send(ReadRequest(1, entry_id), name)
    connection.send(add(0), "c")
    assert [token for _, token in connection.abandon()] == ["a", "b", "c"]
    assert connection.abandon() == []
    assert (connection.outstanding_requests, connection.outstanding_bytes) == (0, 0)


# Limits and damage.


@pytest.mark.parametrize("version", [2, 3])
def test_a_request_over_the_frame_limit_is_refused_here_and_nothing_is_outstanding(version: int) -> None:
    connection: ClientConnection[str] = ClientConnection(version, max_frame_size=2000)
    size = sum(map(len, connection.send(add(0, b"x" * 1000), "fits")))
    exact = add(1, b"x" * (1000 + 2000 - size))
    connection.send(exact, "fits exactly")
    with pytest.raises(FrameTooLarge) as refused:
        connection.send(add(2, exact.payload + b"x"), "too large")
    assert (refused.value.size, refused.value.limit) == (2001, 2000)
    assert connection.outstanding_requests == 2


def test_what_the_version_cannot_express_is_refused_and_nothing_is_outstanding() -> None:
    for version, request in ((2, ReadLacRequest(1)), (3, BatchReadRequest(1, 0, 1, 1))):
        connection: ClientConnection[str] = ClientConnection(version)
        with pytest.raises(IllegalOperation):
            connection.send(request, "token")
        assert connection.outstanding_requests == 0


def test_there_are_only_versions_2_and_3() -> None:
    with pytest.raises(ValueError, match="protocol_version must be 2 or 3, got 1"):
        ClientConnection(1)


@pytest.mark.parametrize("version", [2, 3])
def test_answers_before_a_malformed_frame_count_and_the_error_stays(version: int) -> None:
    connection: ClientConnection[str] = ClientConnection(version)
    good = added(send(connection, add(0), "good"))
    send(connection, add(1), "outstanding")
    got: list[Answer[str]] = []
    with pytest.raises(MalformedMessage):
        got.extend(connection.receive(good + frame(b"\xff") + good))
    assert tokens(got) == [("good", Status.OK)]
    for data in (b"", good):
        with pytest.raises(WireError):
            list(connection.receive(data))
    assert [token for _, token in connection.abandon()] == ["outstanding"]


@pytest.mark.parametrize("version", [2, 3])
def test_an_oversized_answer_is_refused_on_its_prefix(version: int) -> None:
    connection: ClientConnection[str] = ClientConnection(version, max_frame_size=1024)
    with pytest.raises(FrameTooLarge):
        list(connection.receive((1021).to_bytes(4, "big")))


def conversation(version: int) -> tuple[Callable[[], ClientConnection[str]], bytes, list[tuple[str, Status]]]:
    """A way to make a connection with requests outstanding, all answers to them, and what it shall make of those."""
    requests: list[tuple[Request, Response]] = [
        (add(0), AddResponse(Status.OK, 1, 0)),
        (ReadRequest(1, 0), ReadResponse(Status.OK, 1, 0, b"body" * 20)),
        (add(300), AddResponse(Status.TOO_MANY_REQUESTS, 1, 300)),
        *((BatchReadRequest(1, 0, 5, 99), BatchReadResponse(Status.OK, 1, 0, (b"a", b""))),) * (version == 2),
        *((ReadLacRequest(1), ReadLacResponse(Status.NO_ENTRY, 1)),) * (version == 3),
        (ReadRequest(1, 9), ReadResponse(Status.NO_ENTRY, 1, 9)),
    ]

    def make() -> ClientConnection[str]:
        connection: ClientConnection[str] = ClientConnection(version)
        for index, (request, _) in enumerate(requests):
            connection.send(request, str(index))
        return connection

    fresh: ClientConnection[str] = ClientConnection(version)
    data = b"".join(reply(send(fresh, request, ""), response) for request, response in requests)
    return make, data, [(str(index), response.status) for index, (_, response) in enumerate(requests)]


@pytest.mark.parametrize("version", [2, 3])
def test_answers_may_be_split_at_every_byte(version: int) -> None:
    make, data, expected = conversation(version)
    for cut in range(len(data) + 1):
        connection = make()
        assert tokens([*connection.receive(data[:cut]), *connection.receive(data[cut:])]) == expected
        assert connection.outstanding_requests == 0


@pytest.mark.parametrize("version", [2, 3])
def test_answers_may_be_written_in_place(version: int) -> None:
    make, data, expected = conversation(version)
    connection = make()
    got: list[tuple[str, Status]] = []
    for start in range(0, len(data), 7):
        chunk = data[start : start + 7]
        connection.get_buffer()[: len(chunk)] = chunk
        got += [(token, Status.OK) for token, _ in connection.buffer_updated(len(chunk))]
        got += tokens(connection.answers())
    assert got == expected


@pytest.mark.parametrize("version", [2, 3])
@settings(deadline=None)
@given(data=st.data())
def test_damaged_streams_give_every_request_back_exactly_once(version: int, data: st.DataObject) -> None:
    make, stream, expected = conversation(version)
    damaged = bytearray(stream)
    for position in data.draw(st.lists(st.integers(0, len(stream) * 8 - 1), min_size=1, max_size=6)):
        damaged[position // 8] ^= 1 << (position % 8)
    connection = make()
    given_back: list[str] = []
    with suppress(WireError):
        for start in range(0, len(damaged), 50):
            for _, token, _, _ in connection.receive(bytes(damaged[start : start + 50])):
                given_back.append(token)
    given_back += [token for _, token in connection.abandon()]
    assert sorted(given_back) == sorted(token for token, _ in expected)
    assert (connection.outstanding_requests, connection.outstanding_bytes) == (0, 0)


@pytest.mark.parametrize("version", [2, 3])
@settings(deadline=None)
@given(data=st.binary(max_size=300))
def test_random_bytes_answer_nothing(version: int, data: bytes) -> None:
    make, _, expected = conversation(version)
    connection = make()
    with suppress(WireError):
        assert list(connection.receive(data)) == []
    assert connection.outstanding_requests == len(expected)


def test_a_request_may_be_sent_while_answers_are_being_taken() -> None:
    connection: ClientConnection[str] = ClientConnection()
    data = b"".join(added(send(connection, add(entry_id), str(entry_id))) for entry_id in range(3))
    for _, token, _, _ in connection.receive(data):
        send(connection, add(10 + int(token)), "again " + token)
    assert [token for _, token in connection.abandon()] == ["again 0", "again 1", "again 2"]

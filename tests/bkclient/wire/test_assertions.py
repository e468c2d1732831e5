"""Assertions of a connection: each planted defect is noticed where it happens, not where somebody misses an answer."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from bkclient.wire import v2, v3
from bkclient.wire.connection import ClientConnection
from bkclient.wire.envelope import EncodedRequest
from bkclient.wire.errors import MalformedMessage, WireError
from bkclient.wire.messages import (
    AddResponse,
    AddTemplate,
    BatchReadRequest,
    BatchReadResponse,
    ForceLedgerRequest,
    ForceLedgerResponse,
    LongPoll,
    ReadRequest,
    ReadResponse,
    Request,
    Response,
    Status,
)
from bkclient.wire.outstanding import Load, Outstanding
from bkclient.wire.runs import Run
from bkclient.wire.v3_add import header_field
from tests.bkclient.wire.made_runs import run_of
from tests.bkclient.wire.test_connection import add, reply, send

# What a bookie says is no matter of assertions: it may be anything, and ends the connection.

STRANGE: list[tuple[str, int, Request, Response]] = [
    ("an acknowledgement of another entry", 3, add(5), AddResponse(Status.OK, 1, 6)),
    ("an acknowledgement in another ledger", 3, add(5), AddResponse(Status.OK, 2, 5)),
    ("a refusal of another entry", 3, add(5), AddResponse(Status.FENCED, 1, 6)),
    ("a denial of another entry", 3, ReadRequest(1, 5), ReadResponse(Status.NO_ENTRY, 1, 6)),
    ("a denial of another ledger", 3, ReadRequest(1, 5), ReadResponse(Status.NO_LEDGER, 2, 5)),
    ("another entry", 3, ReadRequest(1, 5), ReadResponse(Status.OK, 1, 4, b"body")),
    ("a force of another ledger", 3, ForceLedgerRequest(1), ForceLedgerResponse(Status.OK, 2)),
    ("a batch from elsewhere", 2, BatchReadRequest(1, 5, 2, 100), BatchReadResponse(Status.OK, 1, 4, (b"x",))),
    ("a batch of another ledger", 2, BatchReadRequest(1, 5, 2, 100), BatchReadResponse(Status.NO_ENTRY, 2, 5)),
]


@pytest.mark.parametrize(
    ("version", "request_", "response"), [case[1:] for case in STRANGE], ids=[c[0] for c in STRANGE]
)
def test_an_answer_that_names_something_else_ends_the_connection(
    version: int, request_: Request, response: Response
) -> None:
    connection: ClientConnection[str] = ClientConnection(version)
    answer = reply(send(connection, request_, "token"), response)
    with pytest.raises(MalformedMessage, match="an answer about"):
        list(connection.receive(answer))
    assert connection.abandon() == [(request_, "token")], "it was not settled"
    with pytest.raises(WireError):
        list(connection.receive(answer))


def test_a_long_poll_may_be_answered_with_another_entry_of_its_ledger() -> None:
    connection: ClientConnection[str] = ClientConnection()
    poll = ReadRequest(1, 5, long_poll=LongPoll(4, 10, piggyback=True))
    answer = ReadResponse(Status.OK, 1, 7, b"body")
    assert [response for *_, response in connection.receive(reply(send(connection, poll, "token"), answer))] == [answer]


# What is ours.


def test_an_operation_that_is_no_part_of_what_is_matched(monkeypatch: pytest.MonkeyPatch) -> None:
    connection: ClientConnection[str] = ClientConnection()
    sent = send(connection, ForceLedgerRequest(1), "token")

    def without_operation(content: bytes) -> tuple[bytes, Response]:
        _match, response = v3_decode(content)
        return header_field(ForceLedgerRequest.operation, 1), response

    v3_decode = v3.decode_response
    monkeypatch.setattr(v3, "decode_response", without_operation)
    with pytest.raises(AssertionError, match="operation is part"):
        list(connection.receive(reply(sent, ReadResponse(Status.NO_ENTRY, 1, 0))))


def test_transaction_ids_that_do_not_ascend() -> None:
    connection: ClientConnection[str] = ClientConnection(txn_ids=iter([5, 3]))
    connection.send(ReadRequest(1, 0), "first")
    with pytest.raises(AssertionError, match="ids ascend"):
        connection.send(ReadRequest(1, 1), "second")


def test_a_size_that_is_not_that_of_the_buffers(monkeypatch: pytest.MonkeyPatch) -> None:
    def forgets_the_tail(request: Request, txn_id: int) -> EncodedRequest:
        encoded = original(request, txn_id)
        encoded.buffers = encoded.buffers[:-1]
        return encoded

    original = v3.encode_request
    monkeypatch.setattr(v3, "encode_request", forgets_the_tail)
    connection: ClientConnection[str] = ClientConnection()
    with pytest.raises(AssertionError, match="the size of a frame"):
        connection.send(add(0), "token")


def test_an_answer_that_settles_another_request(monkeypatch: pytest.MonkeyPatch) -> None:
    def oldest(self: Outstanding[object], key: bytes) -> object:
        return self.entries.pop(next(iter(self.entries)))

    connection: ClientConnection[str] = ClientConnection()
    send(connection, ReadRequest(1, 0), "first")
    second = send(connection, ReadRequest(1, 1), "second")
    monkeypatch.setattr(Outstanding, "answered", oldest)
    with pytest.raises(AssertionError, match="settles the request"):
        list(connection.receive(reply(second, ReadResponse(Status.NO_ENTRY, 1, 1))))


@pytest.mark.parametrize("size", [0, 10], ids=["not its bytes", "its bytes too"])
def test_a_request_that_is_counted_off_twice(size: int) -> None:
    load = Load()
    connection: ClientConnection[str] = ClientConnection(load=load)
    sent = send(connection, ReadRequest(1, 0), "token")
    load.put_on(size)
    load.take_off(size)
    load.requests -= 1
    load.bytes -= size
    with pytest.raises(AssertionError, match="counted once"):
        list(connection.receive(reply(sent, ReadResponse(Status.NO_ENTRY, 1, 0))))


def test_a_load_that_is_taken_off_twice_or_with_another_size() -> None:
    load = Load()
    load.put_on(10)
    load.take_off(10)
    with pytest.raises(AssertionError, match="counted once"):
        load.take_off(10)
    other = Load()
    other.put_on(10)
    with pytest.raises(AssertionError, match="counted once"):
        other.take_off(9)
    with pytest.raises(AssertionError, match="never negative"):
        Load().put_on(-1)


def test_a_request_that_is_given_up_twice() -> None:
    for keys_recur in (False, True):
        outstanding: Outstanding[str] = Outstanding(keys_recur=keys_recur)
        outstanding.add(b"key", "entry")
        outstanding.give_up(b"key")
        with pytest.raises(AssertionError, match="awaits its answer"):
            outstanding.give_up(b"key")


class Uncounted(Outstanding[str]):
    """Does not count what it gives up."""

    def give_up(self, key: bytes) -> None:
        self.entries[key] = None


def test_a_request_that_is_given_up_and_not_counted() -> None:
    outstanding = Uncounted(keys_recur=True)
    outstanding.add(b"key", "entry")
    outstanding.give_up(b"key")
    with pytest.raises(AssertionError, match="is counted"):
        outstanding.answered(b"key")


def test_an_add_that_is_given_up_twice() -> None:
    outstanding: Outstanding[str] = Outstanding(keys_recur=True)
    outstanding.never_mind(b"key")
    with pytest.raises(AssertionError, match="given up once"):
        outstanding.never_mind(b"key")


def test_the_check_sees_what_is_given_up_and_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    connection: ClientConnection[str] = ClientConnection(2)
    send(connection, ReadRequest(1, 0), "token", deadline=1.0)
    monkeypatch.setattr(Outstanding, "give_up", Uncounted.give_up)
    connection.expire(1.0)
    with pytest.raises(AssertionError, match="given up is counted"):
        connection.check()


@pytest.mark.parametrize("version", [2, 3])
def test_a_connection_that_is_abandoned_and_still_owes_an_answer(monkeypatch: pytest.MonkeyPatch, version: int) -> None:
    connection: ClientConnection[str] = ClientConnection(version)
    send(connection, ReadRequest(1, 0), "token")
    monkeypatch.setattr(Outstanding, "give_up", lambda *_: None)
    with pytest.raises(AssertionError, match="nothing is outstanding"):
        connection.abandon()


@pytest.mark.parametrize("version", [2, 3])
def test_the_check_counts_what_is_outstanding(version: int) -> None:
    def sizes() -> Iterator[int]:
        for entry_id in itertools.count():
            before = connection.outstanding_bytes
            send(connection, add(entry_id), "token")
            yield connection.outstanding_bytes - before

    connection: ClientConnection[str] = ClientConnection(version)
    assert connection.check() == (0, 0)
    three = list(itertools.islice(sizes(), 3))
    assert connection.check() == (3, sum(three))
    connection.load.bytes -= 1
    with pytest.raises(AssertionError, match="part of the load"):
        connection.check()


def v2_run(*entry_ids: int) -> Run[str]:
    template = AddTemplate(ledger_id=1, master_key=bytes(20))
    frames = [(each, v2.AddPacketEncoder(template).encode(1, each, b"", b"")) for each in entry_ids]
    return run_of([(entry_id, "token", size, stored) for entry_id, (_, stored, size) in frames], 1.0)


def test_the_check_sees_a_key_of_two_adds_and_one_that_was_given_up() -> None:
    connection: ClientConnection[str] = ClientConnection(2)
    connection.send_run(v2_run(0, 1))
    assert connection.check()[0] == 2
    connection.send_run(v2_run(1, 2))
    with pytest.raises(AssertionError, match="one add awaits"):
        connection.check()
    other: ClientConnection[str] = ClientConnection(2)
    other.send_run(v2_run(0))
    other.expire(1.0)
    other.send_run(v2_run(0))
    with pytest.raises(AssertionError, match="given up is not used"):
        other.check()

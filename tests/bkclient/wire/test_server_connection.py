"""The bookie's end of a connection: telling the versions apart, and answering in the request's own."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bkclient.errors import IllegalOperation
from bkclient.wire import v2, v3
from bkclient.wire.envelope import ReceivedRequest
from bkclient.wire.errors import FrameTooLarge, MalformedMessage, WireError
from bkclient.wire.framing import frame
from bkclient.wire.messages import (
    AddRequest,
    AddResponse,
    AuthMessage,
    ErrorResponse,
    ForceLedgerRequest,
    Operation,
    ReadRequest,
    Request,
    StartTlsRequest,
    Status,
)
from bkclient.wire.server_connection import ServerConnection
from tests.bkclient.wire import test_v2, test_v3


class Bookie(ServerConnection):
    """The connection under test, with short words for what the tests look at."""

    def versions(self, data: bytes) -> list[int]:
        return [received.protocol_version for received in self.receive(data)]

    def summaries(self, data: bytes) -> list[object]:
        return [
            (received.protocol_version, received.operation, received.txn_id, test_v3.plain(received.request))
            for received in self.receive(data)
        ]

    def answer_all(self, data: bytes) -> None:
        """Answer whatever comes as a bookie would have to be able to."""
        for received in self.receive(data):
            request = received.request
            if isinstance(request, AddRequest):
                assert self.encode_response(received, AddResponse(Status.OK, request.ledger_id, request.entry_id))
            with suppress(IllegalOperation):
                assert self.refuse(received, Status.BAD_REQUEST)


def v3_frame(request: Request, txn_id: int = 1) -> bytes:
    return b"".join(v3.encode_request(request, txn_id).buffers)


def v2_frame(request: Request, txn_id: int = 1) -> bytes:
    return b"".join(v2.encode_request(request, txn_id).buffers)


FRAMES_BY_NAME = {
    **{f"version 3 {name}": bytes.fromhex(data) for name, _, _, data in test_v3.REQUESTS},
    **{f"version 2 {name}": bytes.fromhex(data) for name, _, data in test_v2.REQUESTS},
}
ALL_FRAMES = list(FRAMES_BY_NAME.values())


def test_version_3_frames_may_precede_version_2_frames() -> None:
    server = Bookie()
    versions = server.versions(v3_frame(StartTlsRequest()) + v3_frame(ReadRequest(1, 0)) + v2_frame(ReadRequest(1, 0)))
    assert versions == [3, 3, 2]
    assert server.protocol_version == 2


@pytest.mark.parametrize("request_", [ReadRequest(1, 0), AddRequest(1, 0, b"", b"", b"")])
def test_a_version_3_frame_after_a_version_2_frame_ends_the_connection(request_: Request) -> None:
    server = Bookie()
    assert server.versions(v2_frame(ReadRequest(1, 0))) == [2]
    with pytest.raises(MalformedMessage):
        server.versions(v3_frame(request_))


def test_an_unknown_operation_number_ends_the_connection() -> None:
    with pytest.raises(MalformedMessage):
        Bookie().versions(frame(b"\x0a\x06\x08\x03\x10\x63\x18\x01"))


@pytest.mark.parametrize("operation", [3, 4, 12])
def test_operations_without_a_message_can_be_refused_by_their_header(operation: int) -> None:
    server = Bookie()
    content = bytes((0x0A, 6, 8, 3, 0x10, operation, 0x18, 14))
    (received,) = server.receive(frame(content))
    assert received.request is None
    assert server.refuse(received, Status.BAD_REQUEST) == frame(content + b"\x10\x94\x03")


def test_answers_have_the_version_of_their_request_whatever_came_later() -> None:
    server = Bookie()
    new, old = server.receive(v3_frame(ReadRequest(1, 0)) + v2_frame(ReadRequest(1, 0), 2))
    assert v3.decode_response(server.refuse(new, Status.NO_ENTRY)[4:])[1].status is Status.NO_ENTRY
    assert v2.decode_response(server.refuse(old, Status.NO_ENTRY)[4:])[1].status is Status.NO_ENTRY
    error = ErrorResponse(Operation.READ_ENTRY, Status.UNAUTHORIZED)
    assert server.encode_response(new, error) == server.refuse(new, Status.UNAUTHORIZED)
    assert server.encode_response(old, error) == server.refuse(old, Status.UNAUTHORIZED)


def test_auth_disabled_and_start_tls_refused_can_be_answered() -> None:
    server = Bookie()
    auth, tls = server.receive(v3_frame(AuthMessage("some.Plugin", b"x"), 13) + v3_frame(StartTlsRequest(), 10))
    answer = server.encode_response(auth, AuthMessage("AuthDisabledPlugin"))
    assert answer.hex() == ("000000230a0608031005180d1000b206160a124175746844697361626c6564506c7567696e1200")
    assert server.refuse(tls, Status.BAD_REQUEST).hex() == "0000000b0a0608031009180a109403"


def test_what_version_2_cannot_answer_is_illegal() -> None:
    server = Bookie()
    (auth,) = server.receive(v2_frame(AuthMessage("p")))
    with pytest.raises(IllegalOperation):
        server.refuse(auth, Status.UNAUTHORIZED)


def test_the_body_of_an_add_arrives_whole_with_the_ids_that_are_to_be_echoed() -> None:
    body = test_v3.E0
    server = Bookie()
    new, old = server.receive(
        v3_frame(AddRequest(8, 9, test_v3.KEY, body[:36], body[36:]))
        + v2_frame(AddRequest(8, 9, test_v3.KEY, body[:36], body[36:]))
    )
    assert isinstance(new.request, AddRequest)
    assert isinstance(old.request, AddRequest)
    assert new.request.body == old.request.body == body
    assert (new.request.ledger_id, new.request.entry_id) == (8, 9), "version 3 echoes the request's own ids"
    assert (old.request.ledger_id, old.request.entry_id) == (1, 0), "version 2 has only those of the body"


@pytest.mark.parametrize("data", ALL_FRAMES, ids=FRAMES_BY_NAME)
def test_every_request_may_be_split_at_every_byte(data: bytes) -> None:
    whole = Bookie().summaries(data)
    assert len(whole) == 1
    for cut in range(len(data) + 1):
        server = Bookie()
        assert server.summaries(data[:cut]) + server.summaries(data[cut:]) == whole


def test_requests_may_be_written_in_place() -> None:
    server = Bookie()
    data = v3_frame(ForceLedgerRequest(1)) * 3
    server.get_buffer()[: len(data)] = data
    assert [received.operation for received in server.buffer_updated(len(data))] == [Operation.FORCE_LEDGER] * 3


def test_frames_over_the_limit_end_the_connection_after_the_requests_before_them() -> None:
    server = Bookie(max_frame_size=100)
    fits = v3_frame(AddRequest(1, 0, b"k", b"", b"x" * 76))
    assert len(fits) == 100
    got: list[ReceivedRequest] = []
    with pytest.raises(FrameTooLarge):
        got.extend(server.receive(fits + (97).to_bytes(4, "big")))
    assert len(got) == 1
    with pytest.raises(FrameTooLarge):
        list(server.receive(b""))


def test_after_a_malformed_frame_the_error_stays() -> None:
    server = Bookie()
    for data in (frame(b"\x02\x63\x00\x00"), v3_frame(ReadRequest(1, 0)), b""):
        with pytest.raises(MalformedMessage):
            list(server.receive(data))


@settings(deadline=None)
@given(data=st.lists(st.sampled_from(ALL_FRAMES), max_size=4).map(b"".join), flips=st.lists(st.integers(0), max_size=5))
def test_damaged_streams_give_requests_or_a_wire_error(data: bytes, flips: list[int]) -> None:
    damaged = bytearray(data)
    for flip in flips:
        if damaged:
            damaged[flip // 8 % len(damaged)] ^= 1 << flip % 8
    server = Bookie()
    with suppress(WireError):
        for start in range(0, len(damaged), 40):
            server.answer_all(bytes(damaged[start : start + 40]))


@settings(deadline=None)
@given(data=st.binary(max_size=300) | st.binary(max_size=80).map(frame))
def test_random_bytes_give_requests_or_a_wire_error(data: bytes) -> None:
    with suppress(WireError):
        Bookie().answer_all(data)

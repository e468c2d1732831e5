"""Version 2: every vector of the protocol in both directions, and what decoders do with anything else."""

from __future__ import annotations

import struct
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bkclient.errors import Code, IllegalOperation
from bkclient.wire import v2
from bkclient.wire.envelope import ReceivedRequest
from bkclient.wire.errors import MalformedMessage
from bkclient.wire.messages import (
    LAST_ENTRY,
    AddRequest,
    AddResponse,
    AuthMessage,
    BatchReadRequest,
    BatchReadResponse,
    BookieInfoRequest,
    EntryListRequest,
    ErrorResponse,
    ForceLedgerRequest,
    LongPoll,
    Operation,
    ReadLacRequest,
    ReadLacResponse,
    ReadRequest,
    ReadResponse,
    Request,
    Response,
    StartTlsRequest,
    Status,
    WriteLacRequest,
    code_for_status,
)
from tests.bkclient.wire.test_v3 import (
    E0,
    E0_HEADER,
    E0_HEX,
    E1,
    E1_HEX,
    KEY,
    KEY_HEX,
    NONCE,
    PLUGIN,
    REAL_PLUGIN,
    plain,
)

SECRET_KEY_HEX = "e793cbc379107648537183605cd361d3bb789a39"
HMAC_E0_HEX = (
    "00000000000000010000000000000000ffffffffffffffff0000000000000005985ff33d73766e6ab95e91f14097a562ffc64ae868656c6c6f"
)
AUTH_HEX = "0000001a020300000a124175746844697361626c6564506c7567696e1200"

REQUESTS: list[tuple[str, Request, str]] = [
    ("add", AddRequest(1, 0, KEY, E0_HEADER, b"hello"), f"0000004102010000{KEY_HEX}{E0_HEX}"),
    (
        "recovery add",
        AddRequest(1, 0, KEY, E0_HEADER, b"hello", recovery=True, high_priority=True),
        f"0000004102010006{KEY_HEX}{E0_HEX}",
    ),
    (
        "hmac add",
        AddRequest(1, 0, bytes.fromhex(SECRET_KEY_HEX), bytes.fromhex(HMAC_E0_HEX)[:52], b"hello"),
        f"0000005102010000{SECRET_KEY_HEX}{HMAC_E0_HEX}",
    ),
    ("read", ReadRequest(1, 0), "000000140202000000000000000000010000000000000000"),
    ("read last", ReadRequest(1, LAST_ENTRY), "00000014020200000000000000000001ffffffffffffffff"),
    (
        "fencing read",
        ReadRequest(1, LAST_ENTRY, fence_key=KEY),
        f"00000028020200010000000000000001ffffffffffffffff{KEY_HEX}",
    ),
    (
        "recovery read",
        ReadRequest(1, 1, fence_key=KEY, high_priority=True),
        f"000000280202000500000000000000010000000000000001{KEY_HEX}",
    ),
    (
        "batch read",
        BatchReadRequest(1, 0, 2, 5242880),
        "0000002802070000000000000000000100000000000000000000000000000009000000020000000000500000",
    ),
    (
        "auth",
        AuthMessage(REAL_PLUGIN, NONCE),
        "0000002e020300000a16626b636c69656e742d7368617265642d7365637265741210" + NONCE.hex(),
    ),
    ("auth in the name of no plug-in", AuthMessage(PLUGIN), AUTH_HEX),
]

BATCH_HEX = f"0000007c020700000000000000000000000000010000000000000000000000000000000900000029{E0_HEX}0000002b{E1_HEX}"

RESPONSES: list[tuple[str, Response, str]] = [
    ("add", AddResponse(Status.OK, 1, 0), "00000018020100000000000000000000000000010000000000000000"),
    ("add fenced", AddResponse(Status.FENCED, 1, 0), "00000018020100000000006800000000000000010000000000000000"),
    ("read", ReadResponse(Status.OK, 1, 0, E0), f"0000004102020000000000000000000000000001{'00' * 8}{E0_HEX}"),
    (
        "read last",
        ReadResponse(Status.OK, 1, LAST_ENTRY, E1),
        f"0000004302020000000000000000000000000001{'ff' * 8}{E1_HEX}",
    ),
    (
        "read without entry",
        ReadResponse(Status.NO_ENTRY, 1, 7),
        "00000018020200000000000200000000000000010000000000000007",
    ),
    ("batch read", BatchReadResponse(Status.OK, 1, 0, (E0, E1)), BATCH_HEX),
    (
        "batch read without ledger",
        BatchReadResponse(Status.NO_LEDGER, 1, 0),
        "000000200207000000000001000000000000000100000000000000000000000000000009",
    ),
    ("auth", AuthMessage(PLUGIN), AUTH_HEX),
]

STATUSES = {
    Status.OK: 0,
    Status.NO_LEDGER: 1,
    Status.NO_ENTRY: 2,
    Status.BAD_REQUEST: 100,
    Status.IO_ERROR: 101,
    Status.UNAUTHORIZED: 102,
    Status.BAD_VERSION: 103,
    Status.FENCED: 104,
    Status.READ_ONLY: 105,
    Status.TOO_MANY_REQUESTS: 106,
    Status.UNKNOWN_LEDGER_STATE: 107,
}


def received_for(request: Request | None, version: int = 2, txn_id: int = 9) -> ReceivedRequest:
    operation = 0 if request is None else int(request.operation)
    return ReceivedRequest(2, version, operation, txn_id, 0, request)


@pytest.mark.parametrize(("name", "request_", "frame"), REQUESTS, ids=[case[0] for case in REQUESTS])
def test_requests_match_the_protocols_vectors(name: str, request_: Request, frame: str) -> None:
    encoded = v2.encode_request(request_, 9)
    assert b"".join(encoded.buffers).hex() == frame
    assert encoded.size == len(frame) // 2
    received = v2.decode_request(bytes.fromhex(frame)[4:])
    assert plain(received.request) == plain(request_)
    assert (received.operation, received.protocol_version, received.packet_version) == (request_.operation, 2, 2)
    if isinstance(request_, BatchReadRequest):
        assert received.txn_id == 9


@pytest.mark.parametrize(("name", "response", "frame"), RESPONSES, ids=[case[0] for case in RESPONSES])
def test_responses_match_the_protocols_vectors(name: str, response: Response, frame: str) -> None:
    assert v2.encode_response(received_for(None), response).hex() == frame
    _, decoded = v2.decode_response(bytes.fromhex(frame)[4:])
    assert plain(decoded) == plain(response)


@pytest.mark.parametrize(
    ("request_", "response"),
    [
        (AddRequest(1, 0, KEY, b"", b""), AddResponse(Status.OK, 1, 0)),
        (AddRequest(1, 0, KEY, b"", b""), AddResponse(Status.FENCED, 1, 0)),
        (ReadRequest(1, LAST_ENTRY), ReadResponse(Status.OK, 1, LAST_ENTRY, E1)),
        (ReadRequest(1, 7), ReadResponse(Status.NO_ENTRY, 1, 7)),
        (BatchReadRequest(1, 5, 1, 1), BatchReadResponse(Status.OK, 1, 5, (E0,))),
        (AuthMessage(PLUGIN), AuthMessage("other", b"x")),
    ],
)
def test_an_answer_has_the_match_bytes_of_its_request(request_: Request, response: Response) -> None:
    encoded = v2.encode_request(request_, 9)
    content = v2.encode_response(received_for(request_), response)[4:]
    assert v2.decode_response(content)[0] == encoded.match
    if isinstance(request_, AddRequest):
        frame = len(content).to_bytes(4, "big") + content
        assert (frame == encoded.acknowledgement) == (response.status is Status.OK)
        assert v2.match_of_acknowledgement(frame) == encoded.match
        assert v2.acknowledgement_of(encoded.match, response) == encoded.acknowledgement
    else:
        assert encoded.acknowledgement is None
        assert v2.acknowledgement_of(encoded.match, response) is None
    assert v2.acknowledgement_with(encoded.match) == encoded.acknowledgement


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (ReadRequest(1, 0), ReadRequest(1, 1)),
        (ReadRequest(1, 0), ReadRequest(2, 0)),
        (ReadRequest(1, 0), AddRequest(1, 0, KEY, b"", b"")),
    ],
)
def test_different_requests_have_different_match_bytes(one: Request, other: Request) -> None:
    assert v2.encode_request(one, 1).match != v2.encode_request(other, 1).match


def test_batch_reads_are_matched_by_their_request_id_alone() -> None:
    request = BatchReadRequest(1, 0, 2, 100)
    assert v2.encode_request(request, 1).match != v2.encode_request(request, 2).match
    assert v2.encode_request(request, 1).match == v2.encode_request(BatchReadRequest(5, 6, 2, 100), 1).match


def test_the_payload_of_an_add_is_not_copied() -> None:
    payload = b"p" * 100
    assert any(buffer is payload for buffer in v2.encode_request(AddRequest(1, 0, KEY, E0_HEADER, payload), 1).buffers)


@pytest.mark.rule("ERR-1")
@pytest.mark.parametrize(("status", "number"), STATUSES.items())
def test_statuses_have_the_numbers_of_version_2(status: Status, number: int) -> None:
    content = v2.encode_response(received_for(None), AddResponse(status, 1, 0))[4:]
    assert struct.unpack_from(">i", content, 4) == (number,)
    assert v2.decode_response(content)[1] == AddResponse(status, 1, 0)


@pytest.mark.rule("R-17")
def test_an_unknown_error_number_means_the_general_failure_of_the_operation() -> None:
    for opcode, code in ((1, Code.WRITE), (2, Code.READ)):
        content = struct.pack(">BBHiqq", 2, opcode, 0, 999, 1, 0)
        _, response = v2.decode_response(content)
        assert code_for_status(response.status, response.operation) is code
    _, response = v2.decode_response(struct.pack(">BBHiqqq", 2, 7, 0, -5, 1, 0, 9))
    assert code_for_status(response.status, response.operation) is Code.READ


def test_a_failed_read_carries_no_body_even_if_given_one() -> None:
    content = v2.encode_response(received_for(None), ReadResponse(Status.NO_ENTRY, 1, 0, E0))[4:]
    assert len(content) == 24
    content = v2.encode_response(received_for(None), BatchReadResponse(Status.IO_ERROR, 1, 0, (E0,)))[4:]
    assert len(content) == 32


def test_trailing_bytes_of_a_read_without_fencing_are_ignored() -> None:
    content = bytes.fromhex("02020000" + "00" * 7 + "01" + "00" * 8) + b"trailing"
    assert plain(v2.decode_request(content).request) == plain(ReadRequest(1, 0))


def test_a_fencing_read_without_its_key_is_malformed_in_version_2_and_keyless_in_older_ones() -> None:
    ids = struct.pack(">qq", 1, 0)
    with pytest.raises(MalformedMessage, match="master key"):
        v2.decode_request(b"\x02\x02\x00\x01" + ids + KEY[:-1])
    request = v2.decode_request(b"\x01\x02\x00\x01" + ids).request
    assert plain(request) == plain(ReadRequest(1, 0, fence_key=b""))


def test_version_0_takes_all_of_the_word_but_the_version_as_operation_and_has_no_flags() -> None:
    ids = struct.pack(">qq", 1, 0)
    request = v2.decode_request(b"\x00\x00\x00\x02" + ids)
    assert plain(request.request) == plain(ReadRequest(1, 0))
    assert request.packet_version == 0
    with pytest.raises(MalformedMessage, match="unknown operation"):
        v2.decode_request(b"\x00\x02\x00\x00" + ids)


@pytest.mark.parametrize("version", [0, 1, 2, 3, 10, 255])
def test_responses_carry_the_version_of_the_request_supported_or_not(version: int) -> None:
    word = b"\0\0\0\2" if version == 0 else bytes((version, 2, 0, 0))
    received = v2.decode_request(word + struct.pack(">qq", 1, 0))
    assert received.is_version_supported == (version <= 2)
    assert v2.encode_refusal(received, Status.BAD_VERSION)[4:9] == word + b"\0"


IDS_OF_E0_HEX = "00000000000000010000000000000000"


@pytest.mark.parametrize(
    ("request_hex", "response", "answer_hex"),
    [
        (f"00000001{KEY_HEX}{E0_HEX}", AddResponse(Status.OK, 1, 0), f"0000000100000000{IDS_OF_E0_HEX}"),
        (
            f"00000002{IDS_OF_E0_HEX}",
            ReadResponse(Status.OK, 1, 0, E0),
            f"0000000200000000{IDS_OF_E0_HEX}{E0_HEX}",
        ),
        (
            f"00000007{IDS_OF_E0_HEX}000000000000004d000000010000000000000000",
            BatchReadResponse(Status.OK, 1, 0, (E0,)),
            f"0000000700000000{IDS_OF_E0_HEX}000000000000004d00000029{E0_HEX}",
        ),
    ],
)
def test_answers_in_version_0_have_the_operation_as_their_whole_first_word(
    request_hex: str, response: Response, answer_hex: str
) -> None:
    # What Apache BookKeeper 4.18.0 bookies answer.
    received = v2.decode_request(bytes.fromhex(request_hex))
    assert v2.encode_response(received, response)[4:].hex() == answer_hex


@pytest.mark.parametrize("version", [0, 1, 2, 3, 200])
def test_auth_is_taken_in_any_version_and_answered_in_version_2(version: int) -> None:
    word = b"\0\0\0\3" if version == 0 else bytes((version, 3, 0, 0))
    received = v2.decode_request(word + b"\x0a\x01x\x12\x01y")
    assert received.is_version_supported
    assert v2.encode_response(received, AuthMessage(PLUGIN))[4:8] == b"\2\3\0\0"


@pytest.mark.parametrize("opcode", [0, 4, 5, 6, 8, 255])
def test_operations_that_do_not_travel_in_version_2_are_malformed(opcode: int) -> None:
    with pytest.raises(MalformedMessage, match="unknown operation"):
        v2.decode_request(bytes((2, opcode, 0, 0)) + bytes(100))
    with pytest.raises(MalformedMessage, match="unknown operation"):
        v2.decode_response(bytes((2, opcode, 0, 0)) + bytes(100))


@pytest.mark.parametrize(
    "request_",
    [
        WriteLacRequest(1, 0, KEY, b""),
        ReadLacRequest(1),
        ForceLedgerRequest(1),
        BookieInfoRequest(3),
        EntryListRequest(1),
        StartTlsRequest(),
        ReadRequest(1, 0, long_poll=LongPoll(0)),
        AddRequest(1, 0, KEY, b"", b"", write_flags=1),
        AddRequest(1, 0, KEY[:-1], b"", b""),
        ReadRequest(1, 0, fence_key=b""),
        BatchReadRequest(1, 0, 1, 1, fence_key=KEY + b"x"),
    ],
)
def test_what_version_2_lacks_cannot_be_encoded(request_: Request) -> None:
    with pytest.raises(IllegalOperation):
        v2.encode_request(request_, 1)


@pytest.mark.parametrize(
    ("request_", "size"),
    [(AddRequest(1, 0, KEY, b"", b""), 24), (ReadRequest(1, 0), 24), (BatchReadRequest(1, 0, 1, 1), 32)],
)
def test_a_refusal_repeats_the_ids_of_the_request(request_: Request, size: int) -> None:
    received = received_for(request_)
    for data in (
        v2.encode_refusal(received, Status.UNAUTHORIZED),
        v2.encode_response(received, ErrorResponse(request_.operation, Status.UNAUTHORIZED)),
    ):
        match, response = v2.decode_response(data[4:])
        assert response.status is Status.UNAUTHORIZED
        assert match == v2.encode_request(request_, 9).match
        assert len(data) == 4 + size


def test_version_2_has_no_answer_for_a_failed_auth_nor_for_what_only_version_3_asks() -> None:
    with pytest.raises(IllegalOperation, match="closing the connection"):
        v2.encode_refusal(received_for(AuthMessage(PLUGIN)), Status.UNAUTHORIZED)
    with pytest.raises(IllegalOperation):
        v2.encode_response(received_for(None), AuthMessage(PLUGIN, status=Status.UNAUTHORIZED))
    with pytest.raises(IllegalOperation, match="READ_LAC"):
        v2.encode_response(received_for(None), ReadLacResponse(Status.OK, 1))
    with pytest.raises(IllegalOperation):
        v2.encode_response(received_for(None), ErrorResponse(Operation.AUTH, Status.UNAUTHORIZED))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x02\x01\x00",
        b"\x02\x01\x00\x00" + bytes(35),
        b"\x02\x02\x00\x00" + bytes(15),
        b"\x02\x07\x00\x00" + bytes(35),
        b"\x02\x07\x00\x01" + bytes(36 + 19),
        b"\x02\x03\x00\x00",
        b"\x02\x03\x00\x00\x0a\x05abc",
        b"\x02\x03\x00\x00\x0a\x01\xff\x12\x00",
    ],
)
def test_requests_that_are_too_short_or_damaged_are_malformed(content: bytes) -> None:
    with pytest.raises(MalformedMessage):
        v2.decode_request(content)


@pytest.mark.parametrize(
    "content",
    [
        b"\x02\x01",
        b"\x02\x01\x00\x00" + bytes(19),
        b"\x02\x01\x00\x00" + bytes(21),
        b"\x02\x02\x00\x00\x00\x00\x00\x02" + bytes(17),
        b"\x02\x07\x00\x00" + bytes(27),
        b"\x02\x07\x00\x00" + bytes(28) + b"\x00\x00\x00",
        b"\x02\x07\x00\x00" + bytes(28) + b"\x00\x00\x00\x02x",
        b"\x02\x07\x00\x00" + bytes(28) + b"\xff\xff\xff\xff",
        b"\x02\x07\x00\x00" + bytes(28) + b"\xff\xff\xff\xfc",
        b"\x02\x07\x00\x00\x00\x00\x00\x01" + bytes(24) + b"\x00\x00\x00\x00",
    ],
)
def test_responses_of_a_wrong_size_are_malformed(content: bytes) -> None:
    with pytest.raises(MalformedMessage):
        v2.decode_response(content)


VALID = [bytes.fromhex(case[-1])[4:] for case in (*REQUESTS, *RESPONSES)]


@settings(deadline=None)
@given(st.binary(max_size=100) | st.binary(max_size=100).map(lambda data: b"\x02" + data))
def test_random_bytes_decode_or_are_malformed(content: bytes) -> None:
    attempt(content)


@settings(deadline=None)
@given(st.sampled_from(VALID), st.data())
def test_truncated_and_bit_flipped_packets_decode_or_are_malformed(content: bytes, data: st.DataObject) -> None:
    damaged = bytearray(content[: data.draw(st.integers(0, len(content)))])
    for position in data.draw(st.lists(st.integers(0, max(0, len(damaged) * 8 - 1)), max_size=4)):
        if damaged:
            damaged[position // 8] ^= 1 << (position % 8)
    attempt(bytes(damaged))


def attempt(content: bytes) -> None:
    with suppress(MalformedMessage):
        assert v2.decode_request(content).request is not None
    with suppress(MalformedMessage):
        v2.decode_response(content)

"""Version 3: every vector of the protocol in both directions, and what decoders do with anything else."""

from __future__ import annotations

from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bkclient.errors import Code, IllegalOperation
from bkclient.wire import bookkeeper_pb2 as pb
from bkclient.wire import v3
from bkclient.wire.availability import encode_availability
from bkclient.wire.envelope import ReceivedRequest
from bkclient.wire.errors import MalformedMessage
from bkclient.wire.messages import (
    LAST_ENTRY,
    AddRequest,
    AddResponse,
    AuthMessage,
    BatchReadRequest,
    BookieInfoRequest,
    BookieInfoResponse,
    EntryListRequest,
    EntryListResponse,
    ErrorResponse,
    ForceLedgerRequest,
    ForceLedgerResponse,
    LongPoll,
    Operation,
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
    code_for_status,
)
from bkclient.wire.v3_add import header_field, varint

KEY_HEX = "850bf1071c5e3d8c24235676f8816ae0cbe2f14f"
KEY = bytes.fromhex(KEY_HEX)
E0_HEADER = bytes.fromhex("00000000000000010000000000000000ffffffffffffffff0000000000000005e3a5f74d")
E0_HEX = "00000000000000010000000000000000ffffffffffffffff0000000000000005e3a5f74d68656c6c6f"
E0 = bytes.fromhex(E0_HEX)
E1_HEX = "000000000000000100000000000000010000000000000000000000000000000c688d8221776f726c642121"
E1 = bytes.fromhex(E1_HEX)
LAC0_HEX = "00000000000000010000000000000000b64e4ca2"
LAC0 = bytes.fromhex(LAC0_HEX)
#: What a bookie without a plug-in calls itself, and one that clients have.
PLUGIN = "AuthDisabledPlugin"
REAL_PLUGIN = "bkclient-shared-secret"
NONCE = bytes(range(16))

REQUESTS: list[tuple[str, int, Request, str]] = [
    (
        "add",
        1,
        AddRequest(1, 0, KEY, E0_HEADER, b"hello"),
        f"000000500a06080310021801aa0645080110001a14{KEY_HEX}2229{E0_HEX}",
    ),
    (
        "recovery add",
        2,
        AddRequest(1, 0, KEY, E0_HEADER, b"hello", recovery=True, high_priority=True),
        f"000000550a080803100218022064aa0648080110001a14{KEY_HEX}2229{E0_HEX}a00601",
    ),
    (
        "deferred sync add",
        3,
        AddRequest(1, 0, KEY, E0_HEADER, b"hello", write_flags=1),
        f"000000520a06080310021803aa0647080110001a14{KEY_HEX}2229{E0_HEX}2801",
    ),
    ("read", 4, ReadRequest(1, 0), "0000000f0a06080310011804a2060408011000"),
    (
        "fencing read",
        5,
        ReadRequest(1, LAST_ENTRY, fence_key=KEY),
        f"000000310a06080310011805a20626080110ffffffffffffffffff011a14{KEY_HEX}a00601",
    ),
    (
        "long poll",
        6,
        ReadRequest(1, LAST_ENTRY, long_poll=LongPoll(0, 1000, piggyback=True)),
        "000000200a06080310011806a20615080110ffffffffffffffffff01200028e807a00602",
    ),
    (
        "write lac",
        7,
        WriteLacRequest(1, 0, KEY, LAC0),
        f"0000003b0a06080310061807ba0630080110001a14{KEY_HEX}2214{LAC0_HEX}",
    ),
    ("read lac", 8, ReadLacRequest(1), "0000000d0a06080310071808c206020801"),
    ("bookie info", 9, BookieInfoRequest(3), "0000000d0a06080310081809ca06020803"),
    ("start tls", 10, StartTlsRequest(), "0000000b0a0608031009180ad20600"),
    ("force", 11, ForceLedgerRequest(1), "0000000d0a060803100a180bda06020801"),
    ("entry list", 12, EntryListRequest(1), "0000000d0a060803100b180ce206020801"),
    (
        "auth",
        1,
        AuthMessage(REAL_PLUGIN, NONCE),
        "000000350a06080310051801b2062a0a16626b636c69656e742d7368617265642d7365637265741210" + NONCE.hex(),
    ),
    (
        "auth in the name of no plug-in",
        13,
        AuthMessage(PLUGIN),
        "000000210a0608031005180db206160a124175746844697361626c6564506c7567696e1200",
    ),
]

RESPONSES: list[tuple[str, int, Response, str]] = [
    ("add", 1, AddResponse(Status.OK, 1, 0), "000000130a060803100218011000aa0606080010011800"),
    ("add fenced", 1, AddResponse(Status.FENCED, 1, 0), "000000150a0608031002180110f803aa060708f80310011800"),
    (
        "read",
        4,
        ReadResponse(Status.OK, 1, 0, E0, max_lac=0),
        f"000000400a060803100118041000a206330800100118002229{E0_HEX}2800",
    ),
    (
        "piggyback",
        6,
        ReadResponse(Status.OK, 1, 1, E1, max_lac=1, lac_update_timestamp_ms=1700000000000),
        f"000000490a060803100118061000a2063c080010011801222b{E1_HEX}28013080d095ffbc31",
    ),
    (
        "piggyback with nothing new",
        6,
        ReadResponse(Status.OK, 1, LAST_ENTRY, max_lac=0),
        "0000001e0a060803100118061000a206110800100118ffffffffffffffffff012800",
    ),
    (
        "read of an unknown ledger",
        4,
        ReadResponse(Status.NO_LEDGER, 1, 0),
        "000000150a06080310011804109203a2060708920310011800",
    ),
    ("write lac", 7, WriteLacResponse(Status.OK, 1), "000000110a060803100618071000ba060408001001"),
    (
        "read lac",
        8,
        ReadLacResponse(Status.OK, 1, LAC0, E1),
        f"000000540a060803100718081000c20647080010011a14{LAC0_HEX}222b{E1_HEX}",
    ),
    (
        "read lac with nothing stored",
        8,
        ReadLacResponse(Status.NO_ENTRY, 1),
        "000000130a06080310071808109303c206050893031001",
    ),
    ("bookie info", 9, BookieInfoResponse(Status.OK, 1000, 400), "000000150a060803100818091000ca0608080010e807189003"),
    ("start tls refused", 10, ErrorResponse(Operation.START_TLS, Status.BAD_REQUEST), "0000000b0a0608031009180a109403"),
    ("force", 11, ForceLedgerResponse(Status.OK, 1), "000000110a060803100a180b1000da060408001001"),
    (
        "entry list",
        12,
        EntryListResponse(Status.OK, 1, encode_availability([0, 1, 2, 5, 6])),
        "000000830a060803100b180c1000e20676080010011a70" + encode_availability([0, 1, 2, 5, 6]).hex(),
    ),
    (
        "auth",
        13,
        AuthMessage(PLUGIN),
        "000000230a0608031005180d1000b206160a124175746844697361626c6564506c7567696e1200",
    ),
    (
        "batch read refused",
        14,
        ErrorResponse(Operation.BATCH_READ_ENTRY, Status.BAD_REQUEST),
        "0000000b0a060803100c180e109403",
    ),
]


def plain(message: object) -> object:
    """Requests compare by identity; their fields are what a round trip keeps. The body of an add comes back whole."""
    if isinstance(message, AddRequest):
        return (
            message.ledger_id,
            message.entry_id,
            message.master_key,
            message.body,
            message.recovery,
            message.high_priority,
            message.write_flags,
        )
    slots: Any = getattr(message, "__slots__", ())
    return (type(message), *(getattr(message, name) for name in slots))


def received_for(operation: int, txn_id: int, priority: int = 0) -> ReceivedRequest:
    return ReceivedRequest(3, 3, operation, txn_id, priority, None)


@pytest.mark.parametrize(("name", "txn_id", "request_", "frame"), REQUESTS, ids=[case[0] for case in REQUESTS])
def test_requests_match_the_protocols_vectors(name: str, txn_id: int, request_: Request, frame: str) -> None:
    encoded = v3.encode_request(request_, txn_id)
    assert b"".join(encoded.buffers).hex() == frame
    assert encoded.size == len(frame) // 2
    received = v3.decode_request(bytes.fromhex(frame)[4:])
    assert plain(received.request) == plain(request_)
    assert (received.operation, received.txn_id, received.protocol_version) == (request_.operation, txn_id, 3)
    assert received.is_version_supported


@pytest.mark.parametrize(("name", "txn_id", "response", "frame"), RESPONSES, ids=[case[0] for case in RESPONSES])
def test_responses_match_the_protocols_vectors(name: str, txn_id: int, response: Response, frame: str) -> None:
    assert v3.encode_response(received_for(response.operation, txn_id), response).hex() == frame
    content = bytes.fromhex(frame)[4:]
    if response.operation is Operation.BATCH_READ_ENTRY:
        with pytest.raises(MalformedMessage, match="which has none"):
            v3.decode_response(content)
        return
    match, decoded = v3.decode_response(content)
    assert match == header_field(response.operation, txn_id)
    assert plain(decoded) == plain(response)


def test_a_fencing_read_may_have_its_flag_first() -> None:
    frame = f"0a06080310011805a20626a00601080110ffffffffffffffffff011a14{KEY_HEX}"
    request = v3.decode_request(bytes.fromhex(frame)).request
    assert plain(request) == plain(ReadRequest(1, LAST_ENTRY, fence_key=KEY))


@settings(deadline=None)
@given(
    ids=st.tuples(st.integers(-1, 2**63 - 1), st.integers(-1, 2**63 - 1)),
    txn_id=st.integers(0, 2**64 - 1),
    key=st.binary(max_size=200),
    header=st.binary(max_size=60),
    payload=st.binary(max_size=20000) | st.integers(0, 70000).map(bytes),
    flags=st.tuples(st.booleans(), st.booleans(), st.sampled_from([0, 1, 2, 300])),
)
def test_the_hand_made_add_is_byte_for_byte_what_protobuf_writes(
    ids: tuple[int, int],
    txn_id: int,
    key: bytes,
    header: bytes,
    payload: bytes,
    flags: tuple[bool, bool, int],
) -> None:
    recovery, high_priority, write_flags = flags
    request = AddRequest(*ids, key, header, payload, recovery, high_priority, write_flags)
    message = pb.Request()
    message.header.version = pb.VERSION_THREE
    message.header.operation = pb.ADD_ENTRY
    message.header.txnId = txn_id
    if high_priority:
        message.header.priority = 100
    add = message.addRequest
    add.ledgerId, add.entryId, add.masterKey, add.body = *ids, key, header + payload
    if recovery:
        add.flag = pb.AddRequest.RECOVERY_ADD
    if write_flags:
        add.writeFlags = write_flags
    content = message.SerializeToString()
    encoded = v3.encode_request(request, txn_id)
    assert b"".join(encoded.buffers) == len(content).to_bytes(4, "big") + content
    assert encoded.size == 4 + len(content)
    assert any(buffer is payload for buffer in encoded.buffers), "the payload was copied"


@settings(deadline=None)
@given(
    ids=st.tuples(st.integers(-1, 2**63 - 1), st.integers(-1, 2**63 - 1)),
    txn_id=st.integers(0, 2**64 - 1),
    status=st.sampled_from(Status),
)
def test_the_hand_made_add_response_is_byte_for_byte_what_protobuf_writes(
    ids: tuple[int, int], txn_id: int, status: Status
) -> None:
    message = pb.Response()
    message.header.version = pb.VERSION_THREE
    message.header.operation = pb.ADD_ENTRY
    message.header.txnId = txn_id
    message.status = message.addResponse.status = cast("pb.StatusCode", int(status))
    message.addResponse.ledgerId, message.addResponse.entryId = ids
    content = message.SerializeToString()
    received = received_for(Operation.ADD_ENTRY, txn_id)
    assert v3.encode_response(received, AddResponse(status, *ids)) == len(content).to_bytes(4, "big") + content
    encoded = v3.encode_request(AddRequest(*ids, b"", b"", b""), txn_id)
    frame = len(content).to_bytes(4, "big") + content
    assert (frame == encoded.acknowledgement) == (status is Status.OK)
    match, response = v3.decode_response(content)
    assert match == encoded.match == v3.match_of_acknowledgement(frame)
    assert v3.acknowledgement_of(match, response) == encoded.acknowledgement


def test_a_refusal_that_names_no_entry_has_no_acknowledgement() -> None:
    assert v3.acknowledgement_of(b"", ErrorResponse(Operation.ADD_ENTRY, Status.UNAUTHORIZED)) is None


@settings(deadline=None)
@given(value=st.integers(-(2**63), 2**64 - 1))
def test_varints_are_those_of_protobuf(value: int) -> None:
    expected = bytearray()
    rest = value % 2**64
    while rest > 0x7F:
        expected.append(rest & 0x7F | 0x80)
        rest >>= 7
    assert varint(value) == bytes([*expected, rest])


@pytest.mark.rule("ERR-2")
def test_a_failed_response_may_lack_its_message_and_a_successful_one_may_not() -> None:
    _, response = v3.decode_response(header_field(Operation.READ_ENTRY, 4) + b"\x10" + varint(Status.UNAUTHORIZED))
    assert response == ErrorResponse(Operation.READ_ENTRY, Status.UNAUTHORIZED)
    for operation in (Operation.READ_ENTRY, Operation.ADD_ENTRY, Operation.START_TLS):
        with pytest.raises(MalformedMessage, match="without its message"):
            v3.decode_response(header_field(operation, 4) + b"\x10\x00")


@pytest.mark.rule("ERR-2")
@pytest.mark.parametrize(
    ("outer", "inner", "effective"),
    [
        (Status.OK, Status.OK, Status.OK),
        (Status.OK, Status.FENCED, Status.FENCED),
        (Status.UNAUTHORIZED, Status.OK, Status.UNAUTHORIZED),
        (Status.UNAUTHORIZED, Status.FENCED, Status.UNAUTHORIZED),
    ],
)
def test_the_outer_status_prevails_unless_it_is_ok(outer: Status, inner: Status, effective: Status) -> None:
    inner_message = b"\x08" + varint(inner) + b"\x10\x01\x18\x00"
    content = (
        header_field(Operation.ADD_ENTRY, 1)
        + b"\x10"
        + varint(outer)
        + b"\xaa\x06"
        + varint(len(inner_message))
        + inner_message
    )
    assert v3.decode_response(content)[1] == AddResponse(effective, 1, 0)


@pytest.mark.rule("R-17")
@pytest.mark.parametrize(
    ("operation", "field", "code"),
    [
        (Operation.ADD_ENTRY, b"\xaa\x06", Code.WRITE),
        (Operation.READ_ENTRY, b"\xa2\x06", Code.READ),
        (Operation.FORCE_LEDGER, b"\xda\x06", Code.WRITE),
    ],
)
def test_an_unknown_status_number_means_the_general_failure_of_the_operation(
    operation: Operation, field: bytes, code: Code
) -> None:
    unknown = varint(599)
    ids = b"\x10\x01" if operation is Operation.FORCE_LEDGER else b"\x10\x01\x18\x00"
    message = b"\x08" + unknown + ids
    for content in (
        header_field(operation, 1) + b"\x10" + unknown,
        header_field(operation, 1) + b"\x10" + unknown + field + varint(len(message)) + message,
        header_field(operation, 1) + b"\x10\x00" + field + varint(len(message)) + message,
    ):
        _, response = v3.decode_response(content)
        assert code_for_status(response.status, response.operation) is code


def test_a_missing_status_or_one_that_is_no_number_is_malformed_not_unknown() -> None:
    with pytest.raises(MalformedMessage):
        v3.decode_response(header_field(Operation.ADD_ENTRY, 1) + b"\x12\x01x")
    with pytest.raises(MalformedMessage):
        v3.decode_response(header_field(Operation.ADD_ENTRY, 1))
    with pytest.raises(MalformedMessage):
        v3.decode_response(header_field(Operation.ADD_ENTRY, 1) + b"\x10\x00\xaa\x06\x04\x10\x01\x18\x00")


@pytest.mark.parametrize("operation", [3, 4, 12])
def test_operations_without_a_message_are_received_to_be_refused_with_their_own_header(operation: int) -> None:
    content = b"\x0a\x08\x08\x03\x10" + varint(operation) + b"\x18\x0e\x20\x64"
    received = v3.decode_request(content)
    assert (received.request, received.operation, received.txn_id, received.priority) == (None, operation, 14, 100)
    assert v3.encode_refusal(received, Status.BAD_REQUEST)[4:] == content + b"\x10" + varint(404)


def test_a_request_without_the_message_of_its_operation_is_received_to_be_refused() -> None:
    assert v3.decode_request(header_field(Operation.ADD_ENTRY, 1)).request is None


@pytest.mark.parametrize(
    "content",
    [
        b"",
        header_field(99, 1),
        b"\xaa\x06\x02\x08\x01",
        header_field(Operation.READ_ENTRY, 1) + b"\xa2\x06\x02\x08\x01",
        header_field(Operation.READ_ENTRY, 1)[:-1],
    ],
    ids=["empty", "unknown operation", "no header", "missing required field", "truncated"],
)
def test_what_protobuf_would_reject_or_lacks_a_required_field_is_malformed(content: bytes) -> None:
    with pytest.raises(MalformedMessage):
        v3.decode_request(content)
    with pytest.raises(MalformedMessage):
        v3.decode_response(content)


def test_unknown_fields_and_unknown_optional_flags_are_ignored() -> None:
    read = b"\x08\x01\x10\x00\xa0\x06\x09\xf8\x3f\x05"
    content = header_field(Operation.READ_ENTRY, 4) + b"\xa2\x06" + varint(len(read)) + read + b"\xf8\x3f\x01"
    assert plain(v3.decode_request(content).request) == plain(ReadRequest(1, 0))


def test_a_fencing_read_without_a_key_is_received_with_an_empty_one() -> None:
    content = header_field(Operation.READ_ENTRY, 4) + b"\xa2\x06\x07\x08\x01\x10\x00\xa0\x06\x01"
    request = v3.decode_request(content).request
    assert isinstance(request, ReadRequest)
    assert request.fence_key == b""


def test_piggyback_without_previous_lac_is_an_ordinary_read_and_fencing_ends_a_long_poll() -> None:
    piggyback = header_field(Operation.READ_ENTRY, 4) + b"\xa2\x06\x07\x08\x01\x10\x00\xa0\x06\x02"
    assert plain(v3.decode_request(piggyback).request) == plain(ReadRequest(1, 0))
    fencing = header_field(Operation.READ_ENTRY, 4) + b"\xa2\x06\x09\x08\x01\x10\x00\x20\x05\xa0\x06\x01"
    assert plain(v3.decode_request(fencing).request) == plain(ReadRequest(1, 0, fence_key=b""))


def test_a_long_poll_may_come_without_a_timeout_and_without_piggyback() -> None:
    request = ReadRequest(1, 3, long_poll=LongPoll(2))
    content = b"".join(v3.encode_request(request, 1).buffers)[4:]
    assert plain(v3.decode_request(content).request) == plain(request)


def test_a_request_of_another_version_is_received_to_be_answered_with_bad_version() -> None:
    received = v3.decode_request(b"\x0a\x06\x08\x02\x10\x07\x18\x05\xc2\x06\x02\x08\x01")
    assert not received.is_version_supported
    response = v3.encode_response(received, ReadLacResponse(Status.BAD_VERSION, 1))
    assert v3.decode_response(response[4:])[1] == ReadLacResponse(Status.BAD_VERSION, 1)


@pytest.mark.parametrize(
    ("request_", "answer"),
    [
        (AddRequest(424242, 0, KEY, E0, b""), "0a0608031002180710f703aa060908f70310b2f2191800"),
        (ReadRequest(424242, 3), "0a0608031001180710f703a2060908f70310b2f2191803"),
        (ReadRequest(424242, 3, fence_key=KEY), "0a0608031001180710f703a2060908f70310b2f2191803"),
        (
            ReadRequest(424242, -1, long_poll=LongPoll(3, 5, piggyback=True)),
            "0a0608031001180710f703a2061208f70310b2f21918ffffffffffffffffff01",
        ),
        (WriteLacRequest(424242, 0, KEY, b""), "0a0608031006180710f703ba060708f70310b2f219"),
        (ReadLacRequest(424242), "0a0608031007180710f703c2060708f70310b2f219"),
        (ForceLedgerRequest(424242), "0a060803100a180710f703da060708f70310b2f219"),
        (BookieInfoRequest(3), "0a0608031008180710f703ca060308f703"),
        (EntryListRequest(424242), "0a060803100b180710f703e2060708f70310b2f219"),
    ],
)
def test_another_version_is_refused_in_version_3_with_the_message_of_the_operation(
    request_: Request, answer: str
) -> None:
    # The answers are what Apache BookKeeper 4.17.2 and 4.18.0 bookies sent.
    received = ReceivedRequest(3, 2, int(request_.operation), 7, 100, request_)
    assert not received.is_version_supported
    assert v3.encode_refusal(received, Status.BAD_VERSION)[4:].hex() == answer


@pytest.mark.parametrize(
    "content", ["0a06080210051807b206060a0178120179", "0a06080210091807d20600", "0a0608021003180a"]
)
def test_auth_and_tls_and_what_has_no_message_are_taken_in_any_version(content: str) -> None:
    received = v3.decode_request(bytes.fromhex(content))
    assert (received.packet_version, received.is_version_supported) == (2, True)


def test_auth_responses_copy_the_header_of_the_request_and_others_do_not() -> None:
    received = ReceivedRequest(3, 3, Operation.AUTH, 13, 7, AuthMessage(PLUGIN))
    assert v3.encode_response(received, AuthMessage(PLUGIN))[4:14].hex() == "0a080803100518 0d2007".replace(" ", "")
    received = ReceivedRequest(3, 3, Operation.FORCE_LEDGER, 13, 7, ForceLedgerRequest(1))
    assert v3.encode_response(received, ForceLedgerResponse(Status.OK, 1))[4:12] == header_field(10, 13)


def test_start_tls_accepted_round_trips() -> None:
    frame = v3.encode_response(received_for(Operation.START_TLS, 10), StartTlsResponse(Status.OK))
    assert v3.decode_response(frame[4:])[1] == StartTlsResponse(Status.OK)


def test_an_auth_failure_is_a_status() -> None:
    frame = v3.encode_response(received_for(Operation.AUTH, 1), AuthMessage(PLUGIN, b"x", Status.UNAUTHORIZED))
    assert plain(v3.decode_response(frame[4:])[1]) == plain(AuthMessage(PLUGIN, b"x", Status.UNAUTHORIZED))


def test_a_plugin_name_that_is_not_utf8_is_malformed() -> None:
    with pytest.raises(MalformedMessage, match="UTF-8"):
        v3.decode_request(header_field(Operation.AUTH, 1) + b"\xb2\x06\x05\x0a\x01\xff\x12\x00")


def test_what_version_3_lacks_cannot_be_encoded() -> None:
    with pytest.raises(IllegalOperation, match="BATCH_READ"):
        v3.encode_request(BatchReadRequest(1, 0, 1, 1), 1)
    with pytest.raises(IllegalOperation, match="fence and wait"):
        v3.encode_request(ReadRequest(1, 0, fence_key=KEY, long_poll=LongPoll(0)), 1)


def test_high_priority_reads_carry_it_in_the_header_but_not_in_what_is_matched() -> None:
    encoded = v3.encode_request(ReadRequest(1, 0, high_priority=True), 300)
    received = v3.decode_request(encoded.buffers[0][4:])
    assert isinstance(received.request, ReadRequest)
    assert received.request.high_priority
    assert received.priority == 100
    assert encoded.match == header_field(Operation.READ_ENTRY, 300)


VALID = [bytes.fromhex(case[3])[4:] for case in (*REQUESTS, *RESPONSES)]


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_random_bytes_decode_or_are_malformed(content: bytes) -> None:
    attempt(content)


@settings(deadline=None)
@given(st.sampled_from(VALID), st.data())
def test_truncated_and_bit_flipped_messages_decode_or_are_malformed(content: bytes, data: st.DataObject) -> None:
    damaged = bytearray(content[: data.draw(st.integers(0, len(content)))])
    for position in data.draw(st.lists(st.integers(0, max(0, len(damaged) * 8 - 1)), max_size=4)):
        if damaged:
            damaged[position // 8] ^= 1 << (position % 8)
    attempt(bytes(damaged))


def attempt(content: bytes) -> None:
    for decode in (v3.decode_request, v3.decode_response):
        try:
            result: object = decode(content)
        except MalformedMessage:
            continue
        assert result is not None

"""The add that a bookie reads by hand: what the decoder of its version reads, or nothing at all."""

from __future__ import annotations

import dataclasses
import struct
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bkclient.wire import bookkeeper_pb2 as pb
from bkclient.wire import v2, v3
from bkclient.wire.envelope import ReceivedRequest
from bkclient.wire.messages import AddRequest, AddResponse, Status
from bkclient.wire.received_add import ReceivedAdd, received_add_v2, received_add_v3
from tests.bkclient.wire.golden_files import golden_files

KEY = bytes(range(20))
IDS = (
    st.integers(0, 2**63 - 1)
    | st.integers(0, 300)
    | st.sampled_from([2**7, 2**14, 2**21, 2**28, 2**35, 2**56, 2**63 - 1])
)
BODIES = st.binary(max_size=300) | st.sampled_from([bytes(size) for size in (0, 127, 128, 16_383, 16_384, 70_000)])


def content_of(request: AddRequest, txn_id: int = 5) -> bytes:
    return b"".join(v3.encode_request(request, txn_id).buffers)[4:]


def content_of_v2(request: AddRequest, txn_id: int = 5) -> bytes:
    header = entry_ids(request) + request.header
    return b"".join(v2.encode_request(dataclasses.replace(request, header=header), txn_id).buffers)[4:]


def entry_ids(request: AddRequest) -> bytes:
    """What a body begins with; version 2 has the ids nowhere else."""
    return struct.pack(">qq", request.ledger_id, request.entry_id)


def add(ledger_id: int = 7, entry_id: int = 300, body: bytes = b"body", key: bytes = KEY) -> AddRequest:
    return AddRequest(ledger_id, entry_id, key, body, b"")


def fields(found: object) -> dict[str, object]:
    """All that a request says, and what surrounds it."""
    assert dataclasses.is_dataclass(found)
    told = {
        field.name: getattr(found, field.name) for field in dataclasses.fields(found) if field.name != "acknowledgement"
    }
    return told | ({"request": fields(told["request"])} if told.get("request") is not None else {})


def check(content: bytes, wire: int = 3) -> ReceivedAdd | None:
    """What is read by hand, which is nothing or what the decoder of that version reads and answers."""
    found = received_add_v3(content) if wire == 3 else received_add_v2(content)
    if found is not None:
        decoder: Any = v3 if wire == 3 else v2
        oracle = decoder.decode_request(content)
        assert fields(found) == fields(oracle)
        assert found.acknowledgement == decoder.encode_response(oracle, stored(oracle))
    return found


def stored(received: ReceivedRequest) -> AddResponse:
    request = received.request
    assert isinstance(request, AddRequest)
    return AddResponse(Status.OK, request.ledger_id, request.entry_id)


@given(ledger_id=IDS, entry_id=IDS, txn_id=IDS, body=BODIES)
@example(ledger_id=0, entry_id=0, txn_id=0, body=b"")
def test_an_ordinary_add_is_read_as_protobuf_reads_it(ledger_id: int, entry_id: int, txn_id: int, body: bytes) -> None:
    assert check(content_of(add(ledger_id, entry_id, body), txn_id)) is not None


@given(ledger_id=IDS, entry_id=IDS, body=BODIES)
@example(ledger_id=0, entry_id=0, body=b"")
def test_an_ordinary_add_of_version_2_is_read_as_its_decoder_reads_it(
    ledger_id: int, entry_id: int, body: bytes
) -> None:
    assert check(content_of_v2(add(ledger_id, entry_id, body)), wire=2) is not None


@given(data=st.data())
def test_whatever_is_changed_is_read_as_protobuf_reads_it_or_not_at_all(data: st.DataObject) -> None:
    request = add(data.draw(IDS), data.draw(IDS), data.draw(st.binary(max_size=40)))
    check(changed(content_of(request, data.draw(IDS)), data))


@given(data=st.data())
def test_whatever_is_changed_in_version_2_is_read_as_its_decoder_reads_it_or_not_at_all(data: st.DataObject) -> None:
    check(changed(content_of_v2(add(data.draw(IDS), data.draw(IDS), data.draw(st.binary(max_size=40)))), data), wire=2)


def changed(original: bytes, data: st.DataObject) -> bytes:
    content = bytearray(original)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(content) - 1))
        match data.draw(st.sampled_from(["set", "insert", "cut"])):
            case "set":
                content[at] = data.draw(st.integers(0, 255))
            case "insert":
                content[at:at] = data.draw(st.binary(min_size=1, max_size=3))
            case _:
                del content[at : at + data.draw(st.integers(1, 3))]
        if not content:
            break
    return bytes(content)


def written(**more: object) -> pb.Request:
    request = pb.Request()
    request.header.version, request.header.operation, request.header.txnId = 3, 2, 5  # type: ignore[assignment]
    message = request.addRequest
    message.ledgerId, message.entryId, message.masterKey, message.body = 7, 300, KEY, b"body"
    for name, value in more.items():
        if name == "priority":
            request.header.priority = value  # type: ignore[assignment]
        else:
            setattr(message, name, value)
    return request


UNUSUAL = {
    "priority": written(priority=1).SerializeToString(),
    "recovery": written(flag=1).SerializeToString(),
    "write flags": written(writeFlags=1).SerializeToString(),
    "write flags that say nothing": written(writeFlags=0).SerializeToString(),
    "a key of another size": written(masterKey=b"short").SerializeToString(),
    "a negative entry id": written(entryId=-1).SerializeToString(),
    "a negative ledger id": written(ledgerId=-1).SerializeToString(),
    "something unknown behind the message": written().SerializeToString() + b"\x98\x7d\x01",
    "the same message twice": written().SerializeToString() + written().SerializeToString(),
    "another order": b"\xaa\x06" + content_of(add())[content_of(add()).index(b"\xaa\x06") + 2 :] + content_of(add())[:8],
    "an id in more bytes than it needs": b"\x0a\x07" + content_of(add())[2:].replace(b"\x18\x05", b"\x18\x85\x00", 1),
    "a length in more bytes than it needs": content_of(add()).replace(b"\x22\x04body", b"\x22\x84\x00body").replace(
        b"\xaa\x06\x21", b"\xaa\x06\x22"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", UNUSUAL)
def test_what_is_not_ordinary_is_left_to_protobuf(name: str) -> None:
    content = UNUSUAL[name]
    assert isinstance(v3.decode_request(content).request, AddRequest)  # it is an add

    assert received_add_v3(content) is None


UNUSUAL_V2 = {
    "recovery": content_of_v2(dataclasses.replace(add(), recovery=True)),
    "priority": content_of_v2(dataclasses.replace(add(), high_priority=True)),
    "an older version": b"\x01" + content_of_v2(add())[1:],
    "the oldest version": b"\0\0\0" + content_of_v2(add())[1:2] + content_of_v2(add())[4:],
    "a negative entry id": content_of_v2(add(entry_id=-1)),
    "a negative ledger id": content_of_v2(add(ledger_id=-1)),
}


@pytest.mark.parametrize("name", UNUSUAL_V2)
def test_what_is_not_ordinary_in_version_2_is_left_to_its_decoder(name: str) -> None:
    content = UNUSUAL_V2[name]
    assert isinstance(v2.decode_request(content).request, AddRequest)  # it is an add

    assert received_add_v2(content) is None


@pytest.mark.parametrize("wire", [2, 3])
def test_the_clients_of_bookkeeper_write_ordinary_adds(wire: int) -> None:
    decode = {2: v2.decode_request, 3: v3.decode_request}[wire]
    seen = 0
    for golden in golden_files():
        for content in map(bytes.fromhex, golden.requests if golden.wire == wire else ()):
            if wire == 2 and content.startswith(b"\x0a"):
                continue  # what comes before TLS is of version 3
            request = decode(content).request
            if isinstance(request, AddRequest) and not (
                request.recovery or request.high_priority or request.write_flags
            ):
                assert check(content, wire) is not None
                seen += 1

    assert seen > 0


def test_the_ordinary_one_among_them_is_ordinary() -> None:
    assert written().SerializeToString() == content_of(add())
    assert check(content_of(add())) is not None


@pytest.mark.parametrize("end", range(len(content_of(add()))))
def test_a_part_of_an_add_is_none(end: int) -> None:
    assert received_add_v3(content_of(add())[:end]) is None


@pytest.mark.parametrize("end", range(4 + 20 + 16))
def test_an_add_of_version_2_without_all_ids_is_none(end: int) -> None:
    assert received_add_v2(content_of_v2(add())[:end]) is None


def test_others_are_none() -> None:
    for content in (b"", b"\x00", bytes(100), b"\xff" * 100):
        assert received_add_v3(content) is None
        assert received_add_v2(content) is None

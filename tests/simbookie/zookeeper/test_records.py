"""Bytes and records: kazoo's codec as the other opinion, and bytes that are nothing."""

from __future__ import annotations

import struct
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kazoo.protocol import serialization as codec
from kazoo.security import ACL, Id

from simbookie.zookeeper.acl import OPEN_ACL, AclEntry, Identity
from simbookie.zookeeper.codes import ErrorCode, EventType, OpCode
from simbookie.zookeeper.jute import FrameSplitter, JuteError, JuteReader, JuteWriter, framed
from simbookie.zookeeper.messages import (
    Check,
    ConnectRequest,
    Create,
    Delete,
    EventFrame,
    Multi,
    PathRequest,
    SetAcl,
    SetData,
    Stat,
    read_auth,
    read_request,
    write_acl,
    write_connect_response,
    write_event,
    write_reply,
)

INT32, INT64 = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
TEXT = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20)
ENTRIES = st.lists(st.builds(lambda bits, scheme, name: ACL(bits, Id(scheme, name)), INT32, TEXT, TEXT), max_size=3)
FRAME_MAX = 1000


def ours(entries: list[ACL]) -> tuple[AclEntry, ...]:
    return tuple(AclEntry(entry.perms, Identity(entry.id.scheme, entry.id.id)) for entry in entries)


@given(path=TEXT, data=st.none() | st.binary(max_size=20), acl=ENTRIES, number=INT32, flag=st.booleans())
def test_requests_as_kazoo_writes_them_are_read(
    path: str, data: bytes | None, acl: list[ACL], number: int, flag: bool
) -> None:
    expected: list[tuple[Any, object]] = [
        (codec.Create(path, data, acl, number), Create(OpCode.CREATE, path, data, ours(acl), number)),
        (codec.Create2(path, data, acl, number), Create(OpCode.CREATE2, path, data, ours(acl), number)),
        (codec.Delete(path, number), Delete(path, number)),
        (codec.SetData(path, data, number), SetData(path, data, number)),
        (codec.SetACL(path, acl, number), SetAcl(path, ours(acl), number)),
        (codec.CheckVersion(path, number), Check(path, number)),
        (codec.Exists(path, flag), PathRequest(OpCode.EXISTS, path, flag)),
        (codec.GetData(path, flag), PathRequest(OpCode.GET_DATA, path, flag)),
        (codec.GetChildren(path, flag), PathRequest(OpCode.GET_CHILDREN, path, flag)),
        (codec.GetChildren2(path, flag), PathRequest(OpCode.GET_CHILDREN2, path, flag)),
        (codec.GetACL(path), PathRequest(OpCode.GET_ACL, path)),
        (codec.Sync(path), PathRequest(OpCode.SYNC, path)),
        (
            codec.Transaction([codec.Delete(path, number), codec.CheckVersion(path, number)]),
            Multi(OpCode.MULTI, (Delete(path, number), Check(path, number))),
        ),
    ]
    for written, request in expected:
        reader = JuteReader(bytes(written.serialize()))
        assert read_request(OpCode(written.type), reader) == request
        assert reader.remaining == 0


@given(st.integers(0, 100), st.integers(0, 60_000), INT64, st.binary(max_size=16), st.booleans())
def test_sessions_are_opened_as_kazoo_asks_for_them(
    zxid: int, timeout_ms: int, session_id: int, password: bytes, knows_read_only: bool
) -> None:
    written = bytes(codec.Connect(0, zxid, timeout_ms, session_id, password, read_only=False).serialize())
    request = ConnectRequest.read(written if knows_read_only else written[:-1])
    assert request == ConnectRequest(zxid, timeout_ms, session_id, password, knows_read_only)
    answer = write_connect_response(request, 4000, 7, b"p" * 16)[4:]
    told, size = codec.Connect.deserialize(answer, 0)
    assert (told.time_out, told.session_id, told.passwd) == (4000, 7, b"p" * 16)
    assert size == len(answer), "old clients are not sent what they do not know"


@given(st.tuples(INT64, INT64, INT64, INT64, INT32, INT32, INT32, INT64, INT32, INT32, INT64), ENTRIES)
def test_kazoo_reads_replies(numbers: tuple[int, ...], entries: list[ACL]) -> None:
    stat = Stat(*numbers)
    body = write_acl(ours(entries), stat)
    header, offset = codec.ReplyHeader.deserialize(write_reply(5, 6, -101, body), 4)
    assert header == (5, 6, -101)
    acl, told = codec.GetACL.deserialize(bytes(body), 0)
    assert offset == 4 + 16
    assert (acl, tuple(told)) == (entries, tuple(stat))


@given(st.sampled_from(EventType), TEXT, INT64)
def test_kazoo_reads_events(kind: EventType, path: str, zxid: int) -> None:
    frame = write_event(EventFrame(zxid, kind, path))
    header, offset = codec.ReplyHeader.deserialize(frame, 4)
    event, _ = codec.Watch.deserialize(frame, offset)
    assert (header.xid, header.zxid, header.err) == (-1, zxid, ErrorCode.OK)
    assert event == (kind, 3, path)


@given(st.sampled_from(OpCode), st.binary(max_size=200))
def test_bytes_that_are_nothing_are_refused(op: OpCode, data: bytes) -> None:
    reads: list[Callable[[JuteReader], object]] = [
        lambda reader: read_request(op, reader),
        lambda _: ConnectRequest.read(data),
        read_auth,
    ]
    for read in reads:
        with suppress(JuteError):
            read(JuteReader(data))


@given(st.sampled_from([1, 7, 14, 15, 101, 105]), st.data())
def test_a_request_that_is_cut_off_or_flipped_is_refused_or_another_one(op: int, data: st.DataObject) -> None:
    entry = ACL(31, Id("world", "anyone"))
    whole = {
        1: codec.Create("/a", b"data", [entry, entry], 0).serialize(),
        7: codec.SetACL("/a", [entry, entry], 0).serialize(),
        14: codec.Transaction([codec.Delete("/a", 1), codec.Create("/b", b"", [entry], 0)]).serialize(),
        15: codec.Create2("/a", b"data", [entry, entry], 0).serialize(),
        101: JuteWriter().int64(1).texts(["/a"]).texts(["/b"]).texts(["/c"]).data,
        105: JuteWriter().int64(1).texts(["/a"]).texts(["/b"]).texts(["/c"]).texts([]).texts(["/d"]).data,
    }[op]
    cut = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(JuteError):
        read_request(OpCode(op), JuteReader(bytes(whole[:cut])))
    flipped = bytearray(whole)
    flipped[cut] ^= data.draw(st.integers(1, 255))
    with suppress(JuteError):
        read_request(OpCode(op), JuteReader(bytes(flipped)))


@pytest.mark.parametrize("count", [2**31 - 1, 10**6, 100, -2, -(2**31)])
def test_a_vector_is_believed_only_as_far_as_bytes_have_come(count: int) -> None:
    data = struct.pack(">i", count) + struct.pack(">i", -1) * 9
    with pytest.raises(JuteError):
        JuteReader(data).texts()


@given(st.lists(st.binary(max_size=50)), st.integers(1, 30))
def test_a_stream_is_cut_into_the_records_it_was_made_of(records: list[bytes], step: int) -> None:
    stream = b"".join(map(framed, records))
    splitter = FrameSplitter(FRAME_MAX)
    found: list[bytes] = []
    for start in range(0, len(stream), step):
        splitter.feed(stream[start : start + step])
        found += splitter.records()
    assert found == records
    assert splitter.buffered == 0


def test_a_frame_takes_no_room_before_it_has_come() -> None:
    splitter = FrameSplitter(1 << 30)
    splitter.feed(struct.pack(">i", 1 << 30) + b"x")
    assert list(splitter.records()) == []
    assert splitter.buffered == 5


@pytest.mark.parametrize("size", [FRAME_MAX + 1, 2**31 - 1, -1, -(2**31)])
def test_a_frame_out_of_bounds_is_refused_at_once(size: int) -> None:
    splitter = FrameSplitter(FRAME_MAX)
    splitter.feed(struct.pack(">i", size))
    with pytest.raises(JuteError, match=str(size)):
        list(splitter.records())


def test_what_is_no_text_cannot_become_a_path() -> None:
    assert JuteReader(b"\0\0\0\2/\xff").text() == "/\ufffd"
    assert write_acl(OPEN_ACL, Stat(*[0] * 11))[:4] == struct.pack(">i", 1)

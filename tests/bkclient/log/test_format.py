"""Message ids, and the bytes of entries."""

from __future__ import annotations

import pickle
import tracemalloc
import zlib
from importlib.util import find_spec
from itertools import pairwise
from typing import Any

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bkclient.errors import ArgumentError, DigestMismatch, IllegalOperation
from bkclient.log import LogMessage, MessageId
from bkclient.log.format.compression import Compression, check_available, compress, decompress
from bkclient.log.format.entry import (
    BATCH_BYTES_MAX,
    HEADER_BYTES,
    decode_entry,
    encode_entry,
    encode_rows,
    publish_time,
)
from bkclient.log.format.message import NewMessage, as_bytes, row_of
from bkclient.log.format.message_id import ids_of_batch

parts = st.integers(-1, 2**63 - 1)
texts = st.text(st.characters(codec="utf-8"), max_size=5)
messages = st.builds(
    NewMessage,
    st.binary(max_size=30),
    st.none() | texts,
    st.none() | st.dictionaries(texts, st.binary(max_size=5), max_size=3),
    st.none() | st.integers(0, 2**63 - 1),
)


@settings(max_examples=25)
@given(parts, parts, parts, parts)
def test_an_id_is_parsed_as_it_was_formatted(ledger: int, entry: int, partition: int, batch: int) -> None:
    message_id = MessageId(ledger, entry, partition, batch)
    assert MessageId.parse(str(message_id)) == message_id


def test_parts_that_are_absent_may_be_left_out() -> None:
    assert MessageId.parse("7:3") == MessageId.parse("7:3:-1") == MessageId.parse("7:3:-1:-1") == MessageId(7, 3)
    assert str(MessageId(7, 3)) == "7:3:-1:-1"


@pytest.mark.parametrize(
    "text", ["", "7", "7:", "7:3:1:2:4", "7:-2", "+7:3", "07:3", "7: 3", "9" * 20 + ":1", 7, None, "٣:1"]
)
def test_what_is_no_id_is_refused(text: Any) -> None:
    with pytest.raises(ArgumentError):
        MessageId.parse(text)


@pytest.mark.parametrize("part", [-2, 2**63, True, "1", 1.0])
def test_parts_of_an_id_are_checked(part: Any) -> None:
    with pytest.raises(ArgumentError, match="entry_id"):
        MessageId(1, part)


def test_ids_compare_in_the_order_of_the_log() -> None:
    ids = [MessageId.EARLIEST, MessageId(1, 9), MessageId(2, 0), MessageId(2, 1, -1, 0), MessageId(2, 1, -1, 1)]
    assert all(one < other for one, other in pairwise(ids))
    assert max(*ids, MessageId.LATEST) is MessageId.LATEST


PACKAGES = {Compression.LZ4: "lz4", Compression.ZSTD: "zstandard", Compression.SNAPPY: "cramjam"}
AVAILABLE = [each for each in Compression if each not in PACKAGES or find_spec(PACKAGES[each])]


@settings(max_examples=40)
@given(st.lists(messages, min_size=1, max_size=4), st.integers(0, 2**64 - 1), st.sampled_from(AVAILABLE))
def test_an_entry_is_read_as_it_was_written(batch: list[NewMessage], at_ms: int, compression: Compression) -> None:
    data = encode_entry(batch, at_ms, compression)
    found = decode_entry(data, 5, 6)
    assert [message.payload for message in found] == [message.payload for message in batch]
    assert [(message.key, message.event_ms, dict(message.headers)) for message in found] == [
        (message.key, message.event_ms, dict(message.headers or {})) for message in batch
    ]
    assert publish_time(data) == found[0].publish_ms == at_ms
    indexes = [-1] if len(batch) == 1 else list(range(len(batch)))
    assert [message.id for message in found] == [MessageId(5, 6, -1, index) for index in indexes]


def test_the_bytes_of_an_entry_are_those_of_version_1() -> None:
    data = encode_entry([NewMessage(b"a"), NewMessage(b"b", "k", {"h": b"v"}, 9)], 7, Compression.NONE)
    assert data.hex() == "0100000000020000000000000007000000129291c4016194c40162a16b81a168c4017609"
    assert decode_entry(data, 0, 0)[1] == LogMessage(MessageId(0, 0, -1, 1), b"b", "k", {"h": b"v"}, 9, 7, 2)


def test_rows_and_bare_payloads_are_stored_as_messages_are() -> None:
    whole = [NewMessage(b"a"), NewMessage(b"b", "k", {"h": b"v"}, 9), NewMessage(b"", "k")]
    for batch in (whole, whole[:1], whole[:1] * 3, whole[1:]):
        rows: list[Any] = [row[0] if len(row := message.row()) == 1 else row for message in batch]
        assert encode_rows(rows, 7, Compression.NONE) == encode_entry(batch, 7, Compression.NONE)


@given(st.none() | st.text(max_size=20), st.none() | st.just({"h": b"v"}), st.none() | st.integers(0, 9))
def test_a_row_is_what_the_message_stores(key: str | None, headers: dict[str, bytes] | None, at: int | None) -> None:
    try:
        message = NewMessage(b"payload", key, headers, at)
    except ArgumentError:
        with pytest.raises(ArgumentError):
            row_of(b"payload", key, headers, at)
    else:
        assert row_of(b"payload", key, headers, at) == (message.row(), message.size)
        assert row_of(bytearray(b"payload"), key, headers, at) == (message.row(), message.size)


def test_ids_of_a_batch_are_those_of_its_messages() -> None:
    assert ids_of_batch(7, 3, 1, 1) == [MessageId(7, 3, 1)]
    found = ids_of_batch(7, 3, 1, 3)
    assert found == [MessageId(7, 3, 1, index) for index in range(3)]
    assert {type(each) for each in found} == {MessageId}
    assert pickle.loads(pickle.dumps(found)) == found
    assert repr(found[2]) == "MessageId(ledger_id=7, entry_id=3, partition=1, batch_index=2)"
    with pytest.raises(ArgumentError):
        ids_of_batch(2**63, 3, 1, 3)


def test_the_repr_of_a_message_shows_nothing_of_its_content() -> None:
    text = repr(LogMessage(MessageId(1, 2), b"secret", "secret", {"secret": b"secret"}, 5, 6, 7))
    assert "secret" not in text
    assert "event_ms=5, publish_ms=6, batch_size=7" in text


def test_compression_is_left_out_where_it_saves_nothing() -> None:
    assert encode_entry([NewMessage(b"x")], 0, Compression.ZLIB)[1] == Compression.NONE
    large = encode_entry([NewMessage(b"x" * 10_000)], 0, Compression.ZLIB)
    assert large[1] == Compression.ZLIB
    assert len(large) < 200


@settings(max_examples=100)
@given(
    st.lists(messages, min_size=1, max_size=3),
    st.integers(0, 10_000),
    st.integers(0, 255),
    st.booleans(),
    st.sampled_from(AVAILABLE),
)
def test_damaged_bytes_are_refused_or_are_other_messages(
    batch: list[NewMessage], position: int, value: int, is_cut: bool, compression: Compression
) -> None:
    data = bytearray(encode_entry(batch, 1, compression))
    if is_cut:
        del data[position % len(data) :]
    else:
        data[position % len(data)] = value
    try:
        found = decode_entry(bytes(data), 1, 1)
    except (DigestMismatch, IllegalOperation):  # the latter where it names a compression that is not installed
        return
    assert all(isinstance(message, LogMessage) for message in found)


@pytest.mark.parametrize("compression", PACKAGES)
def test_packages_compress_and_take_no_more_memory_than_the_header_says(compression: Compression) -> None:
    pytest.importorskip(PACKAGES[compression])
    check_available(compression.name.lower())
    text = b"a line of a log, and another one " * 300
    packed = compress(compression, text)
    assert len(packed) < len(text) / 15
    assert decompress(compression, packed, len(text)) == text
    for length in (0, 1, len(text) - 1, len(text) + 1):
        with pytest.raises(DigestMismatch):
            decompress(compression, packed, length)
    for junk in (b"", b"junk", packed[:-3], packed + b"more"):
        with pytest.raises(DigestMismatch):
            decompress(compression, junk, len(text))
    bomb = compress(compression, bytes(40_000_000))
    tracemalloc.start()
    with pytest.raises(DigestMismatch):
        decompress(compression, bomb, 100)
    assert tracemalloc.get_traced_memory()[1] < 1_000_000
    tracemalloc.stop()


def test_a_frame_that_does_not_say_what_it_holds_is_bounded_too() -> None:
    zstandard = pytest.importorskip("zstandard")
    packed = zstandard.ZstdCompressor(write_content_size=False).compress(bytes(1000))
    assert decompress(Compression.ZSTD, packed, 1000) == bytes(1000)
    with pytest.raises(DigestMismatch):
        decompress(Compression.ZSTD, packed, 999)


@pytest.mark.parametrize("name", ["lz4", "zstd", "snappy"])
def test_a_package_that_is_missing_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr("bkclient.log.format.compression._module", lambda _: None)
    package = PACKAGES[Compression[name.upper()]]
    with pytest.raises(ArgumentError, match=rf"compression {name} needs {package}, .*'bkclient\[compression\]'"):
        check_available(name)
    with pytest.raises(IllegalOperation, match=rf"compressed by {name}, and {package} is not installed"):
        decompress(Compression[name.upper()], b"", 1)
    check_available("zlib")


def header(version: int = 1, compression: int = 0, count: int = 1, length: int = 0) -> bytes:
    return bytes([version, compression]) + count.to_bytes(4, "big") + bytes(8) + length.to_bytes(4, "big")


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "at least 18 bytes"),
        (header(version=2), "format 2"),
        (header(compression=9), "compression 9"),
        (header(count=0), "0 messages"),
        (header(count=100_001), "100001 messages"),
        (header(length=BATCH_BYTES_MAX + 1), "cannot have"),
        (header(length=5), "0 bytes, not 5"),
        (header(length=1) + b"\x90", "does not hold 1 messages"),
        (header(length=2) + b"\x91\x05", "does not hold"),
        (header(length=4) + b"\x91\x91\xa1a", "wrong shape"),
        (header(length=5) + b"\x91\x81\xc4\x00\x01", "wrong shape"),  # a map whose key is a payload
        (header(length=2) + b"\x81\x00", "not"),
        (header(length=8) + msgpack.packb([[b"", None, 5, 1.5]])[:8], "not"),
        (header(compression=1, length=5) + b"junk", "cannot be decompressed"),
    ],
)
def test_what_is_no_entry_is_refused(data: bytes, words: str) -> None:
    with pytest.raises(DigestMismatch, match=words):
        decode_entry(data, 1, 1)


def test_no_more_is_decompressed_than_the_header_says() -> None:
    bomb = zlib.compress(bytes(50_000_000))
    with pytest.raises(DigestMismatch, match="do not end"):
        decompress(Compression.ZLIB, bomb, 100)
    with pytest.raises(DigestMismatch, match="not 101"):
        decompress(Compression.ZLIB, zlib.compress(bytes(100)), 101)


@pytest.mark.parametrize(
    "wrong",
    [
        {"key": 5},
        {"key": "k" * 65_536},
        {"key": "\ud800"},
        {"headers": {"a": "b"}},
        {"headers": {1: b""}},
        {"headers": {str(n): b"" for n in range(101)}},
        {"headers": {"a": bytes(65_535)}},
        {"headers": {"\ud800": b""}},
        {"headers": [1]},
        {"event_ms": -1},
        {"event_ms": 2**63},
        {"event_ms": 1.5},
        {"event_ms": True},
    ],
)
def test_a_message_of_a_wrong_shape_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ArgumentError):
        NewMessage(b"", **wrong)


def test_payloads_are_bytes_like() -> None:
    assert as_bytes(bytearray(b"a")) == as_bytes(memoryview(b"a")) == b"a"
    with pytest.raises(ArgumentError, match="bytes-like, got str"):
        as_bytes("a")


def test_a_batch_has_its_limits() -> None:
    with pytest.raises(ArgumentError, match="1 to 100000 messages, got 0"):
        encode_entry([], 0, Compression.NONE)
    with pytest.raises(ArgumentError, match="at most 67108864 bytes"):
        encode_entry([NewMessage(bytes(BATCH_BYTES_MAX))], 0, Compression.NONE)


def test_the_size_of_a_message_is_no_less_than_its_bytes() -> None:
    message = NewMessage(b"x" * 10, "ü" * 5, {"ü": b"v" * 20}, 2**62)
    assert message.size >= len(encode_entry([message], 0, Compression.NONE)) - HEADER_BYTES - 5

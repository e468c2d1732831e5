"""Entries and ledgers of Pulsar topics as bytes: those that Pulsar wrote, and hostile ones."""

from __future__ import annotations

import struct
import tracemalloc
import zlib
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

import pytest
from google_crc32c import value as crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from bkclient.errors import ArgumentError, BookKeeperError, DigestMismatch, IllegalOperation, MetadataSerializationError
from bkclient.log import MessageId
from bkclient.log.pulsar import PulsarLedger, PulsarMessage
from bkclient.log.pulsar.entry import decode_pulsar_entry
from bkclient.log.pulsar.ledgers import decode_topic, node_of, partition_of
from bkclient.log.pulsar.pulsar_pb2 import StoredManagedLedger, StoredMetadata, StoredSingleMetadata
from tests.bkclient.log.pulsar.recorded import ENTRIES, NODES

PACKAGES = {"lz4": "lz4", "zstd": "zstandard", "snappy": "cramjam"}


def is_readable(way: str) -> bool:
    return way not in PACKAGES or find_spec(PACKAGES[way]) is not None


WAYS = [way for way in ("none", "lz4", "zlib", "zstd", "snappy") if is_readable(way)]
PLAIN = PulsarMessage(
    MessageId(7, 9), b"plain", properties={"colour": "blau, größer"}, producer="producer", publish_ms=1_700_000_000_001
)


def one(name: str) -> PulsarMessage:
    (found,) = decode_pulsar_entry(ENTRIES[name], 7, 9)
    return found


def test_a_message_is_read_with_all_that_was_sent() -> None:
    assert one("plain") == PLAIN
    assert PLAIN.is_readable
    found = one("with-all")
    assert (found.payload, found.key, found.event_ms, found.ordering_key) == (
        b"with all",
        "key",
        1600000000123,
        b"order",
    )
    assert found.sequence_id == 1
    found = one("null-value")
    assert (found.payload, found.key, found.is_null) == (b"", "key", True)
    found = one("base64-key")
    assert (found.key, found.is_key_base64) == ("a2V5", True)
    assert (one("empty").payload, one("empty").is_null) == (b"", False)
    assert one("unchecked").payload == b"no checksum"


@pytest.mark.parametrize("way", WAYS)
def test_what_pulsar_compressed_is_read(way: str) -> None:
    found = one(f"compressed-{way.upper()}")
    assert found.payload == b"text that compresses, " * 40
    assert found.compression == ""


@pytest.mark.parametrize("way", WAYS)
def test_a_batch_becomes_its_messages(way: str) -> None:
    found = decode_pulsar_entry(ENTRIES[f"batch-{way.upper()}"], 7, 9, 4)
    assert [message.id for message in found] == [MessageId(7, 9, 4, index) for index in range(3)]
    assert [message.payload for message in found] == [b"message 0", b"", b"message 2"]
    assert [message.properties for message in found] == [{"n": "0"}, {"n": "1"}, {"n": "2"}]
    assert [(message.key, message.is_null, message.event_ms) for message in found] == [
        (None, False, 5),
        ("key", True, 6),
        (None, False, 7),
    ]
    first = found[0].sequence_id
    assert [message.sequence_id for message in found] == [first, first + 1, first + 2]
    assert {(message.producer, message.batch_size) for message in found} == {("producer", 3)}


def test_a_batch_of_one_is_a_batch() -> None:
    found = one("batch-of-one")
    assert (found.id, found.payload, found.batch_size) == (MessageId(7, 9, -1, 0), b"message 0", 1)


def test_what_is_no_whole_message_is_told_as_what_it_is() -> None:
    chunks = [one("chunk-0"), one("chunk-1")]
    assert [(each.chunk, each.chunks, each.chunked_id, each.payload) for each in chunks] == [
        (0, 2, "p-7", b"first"),
        (1, 2, "p-7", b"other"),
    ]
    encrypted = one("encrypted")
    assert (encrypted.encryption_keys, encrypted.payload) == (("app.key",), b"not to be read")
    assert (encrypted.compression, encrypted.batch_size) == ("lz4", 2)
    assert one("marker").marker == 10
    assert one("transaction").transaction == (4, 5)
    assert one("transaction").is_readable
    assert not any(each.is_readable for each in (*chunks, encrypted, one("marker")))


def test_what_brokers_add_is_told() -> None:
    found = one("by-broker")
    assert found.index == 0
    assert found.broker_ms is not None
    assert found.broker_ms > 1_700_000_000_000
    assert [each.index for each in decode_pulsar_entry(ENTRIES["batch-by-broker"], 7, 9)] == [1, 2, 3]
    assert (one("plain").index, one("plain").broker_ms) == (None, None)


@pytest.mark.parametrize("name", ["compressed-SNAPPY", "batch-SNAPPY"])
def test_a_compression_without_its_library_is_named_with_the_entry(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bkclient.log.format.compression._module", lambda _: None)
    with pytest.raises(IllegalOperation, match="ledger 7, entry 9: the messages are compressed by snappy, and cramjam"):
        decode_pulsar_entry(ENTRIES[name], 7, 9)


@pytest.mark.parametrize("way", [way for way in NODES if is_readable(way)])
def test_the_list_of_ledgers_is_read(way: str) -> None:
    topic = decode_topic("t", NODES[way])
    assert topic.name == "t"
    assert topic.terminated_at is None
    *closed, last = topic.ledgers
    assert [ledger.entries for ledger in closed] == [6] * len(closed)
    assert all(ledger.size and ledger.closed_ms and not ledger.is_gone for ledger in closed)
    assert last == PulsarLedger(closed[-1].ledger_id + 1)


def test_a_topic_may_be_empty_terminated_or_offloaded() -> None:
    assert decode_topic("t", b"").ledgers == ()
    stored = StoredManagedLedger()
    stored.terminatedPosition.ledgerId, stored.terminatedPosition.entryId = 5, 6
    ledger = stored.ledgerInfo.add(ledgerId=5, entries=7, size=8, timestamp=9)
    ledger.offloadContext.complete = ledger.offloadContext.bookkeeperDeleted = True
    stored.properties.add(key="k", value="v")
    topic = decode_topic("t", stored.SerializeToString())
    assert topic.terminated_at == (5, 6)
    assert topic.ledgers == (PulsarLedger(5, 7, 8, 9, is_offloaded=True, is_gone=True),)
    assert topic.properties == {"k": "v"}


@pytest.mark.parametrize(
    ("topic", "node"),
    [
        ("orders", "public/default/persistent/orders"),
        ("persistent://shop/eu/orders-partition-3", "shop/eu/persistent/orders-partition-3"),
        ("shop/eu/größe 1/2~*", "shop/eu/persistent/gr%C3%B6%C3%9Fe+1%2F2%7E*"),
    ],
)
def test_a_topic_is_found_where_brokers_keep_it(topic: str, node: str) -> None:
    assert node_of(topic) == f"managed-ledgers/{node}"


@pytest.mark.parametrize(
    "topic",
    ["", "a/b", "persistent://a/b", "persistent://x", "non-persistent://a/b/c", "a//c", "a/../c", "a/b/..", "x\0y"],
)
def test_what_names_no_topic_is_refused(topic: str) -> None:
    with pytest.raises(ArgumentError, match="must have the form persistent://"):
        node_of(topic)


def test_partitions_are_known_by_their_names() -> None:
    assert partition_of("persistent://a/b/c-partition-12") == 12
    assert [partition_of(name) for name in ("c", "c-partition-", "c-partition-x", "c-partition-" + "9" * 10)] == [
        -1
    ] * 4


# Hostile bytes -------------------------------------------------------------------------------------------------------


def entry(payload: bytes = b"", *, checksum: bool = True, **fields: Any) -> bytes:
    metadata = StoredMetadata(**{"producer_name": "p", "sequence_id": 1, "publish_time": 2, **fields})
    head = metadata.SerializeToString()
    rest = struct.pack(">I", len(head)) + head + payload
    return (b"\x0e\x01" + struct.pack(">I", crc32c(rest)) if checksum else b"") + rest


def single(payload: bytes, size: int | None = None) -> bytes:
    head = StoredSingleMetadata(payload_size=len(payload) if size is None else size).SerializeToString()
    return struct.pack(">I", len(head)) + head + payload


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "requires a buffer"),
        (b"\x0e\x01", "requires a buffer"),
        (b"\x0e\x02\xff\xff\xff\xff", "metadata to byte"),
        (b"\x0e\x01\0\0\0\0" + entry(checksum=False), "checksum of the producer does not fit"),
        (b"\xff\xff\xff\xffx", "metadata to byte 4294967299 of 5"),
        (b"\0\0\0\1\xff", "Pulsar topic"),
        (b"\0\0\0\0", "lacks fields"),
        (entry(num_messages_in_batch=0), "a batch of 0 messages"),
        (entry(num_messages_in_batch=-5), "a batch of -5 messages"),
        (entry(num_messages_in_batch=100_001), "a batch of 100001 messages"),
        (entry(single(b"x"), num_messages_in_batch=2), "requires a buffer"),
        (entry(single(b"x") + b"y", num_messages_in_batch=1), "1 bytes follow"),
        (entry(single(b"x", 2), num_messages_in_batch=1), "message 0 of the batch has 2 bytes, 1 are left"),
        (entry(single(b"x", -1), num_messages_in_batch=1), "message 0 of the batch has -1 bytes"),
        (entry(b"x", compression=9), "compression 9 is not known"),
        (entry(b"\xff\xff", compression=2, uncompressed_size=1), "cannot be decompressed"),
        (entry(zlib.compress(b"xy"), compression=2, uncompressed_size=1), "does not have 1 bytes"),
        (entry(zlib.compress(b"x") + b"y", compression=2, uncompressed_size=1), "does not have 1 bytes"),
        (entry(b"x", compression=1, uncompressed_size=2**26 + 1), "more than 67108864"),
        (entry(b"x", num_chunks_from_msg=2, chunk_id=2), "chunk 2 of 2"),
        (entry(b"x", num_chunks_from_msg=2, chunk_id=-1), "chunk -1 of 2"),
    ],
)
def test_what_is_no_entry_of_a_topic_is_refused_with_its_place(data: bytes, words: str) -> None:
    with pytest.raises(DigestMismatch, match=words) as refused:
        decode_pulsar_entry(data, 7, 9)
    assert (refused.value.ledger_id, refused.value.entry_id) == (7, 9)


def test_no_more_is_decompressed_than_the_metadata_says() -> None:
    bomb = entry(zlib.compress(bytes(50_000_000)), compression=2, uncompressed_size=100)
    tracemalloc.start()
    with pytest.raises(DigestMismatch, match="does not have 100 bytes"):
        decode_pulsar_entry(bomb, 7, 9)
    assert tracemalloc.get_traced_memory()[1] < 1_000_000
    tracemalloc.stop()


@settings(max_examples=300)
@given(st.sampled_from(sorted(ENTRIES)), st.integers(0, 2000), st.binary(max_size=6), st.booleans())
def test_damaged_entries_are_refused_or_are_other_messages(name: str, at: int, bytes_: bytes, is_cut: bool) -> None:
    data = bytearray(ENTRIES[name].removeprefix(b"\x0e\x01"))  # without the checksum, which finds almost all of it
    data = data[4:] if len(data) < len(ENTRIES[name]) else data
    if is_cut:
        del data[at % len(data) :]
    else:
        data[at % len(data) : at % len(data) + len(bytes_)] = bytes_
    refused: BookKeeperError | None = None
    try:
        found = decode_pulsar_entry(bytes(data), 7, 9)
    except (DigestMismatch, IllegalOperation) as error:
        refused = error
    else:
        assert all(replace(message, id=MessageId(7, 9)) for message in found)
    assert refused is None or (refused.ledger_id, refused.entry_id) == (7, 9)


@settings(max_examples=200)
@given(st.sampled_from(sorted(NODES)), st.integers(0, 300), st.binary(max_size=6), st.booleans())
def test_a_damaged_list_is_refused_or_is_another_list(name: str, at: int, bytes_: bytes, is_cut: bool) -> None:
    data = bytearray(NODES[name])
    if is_cut:
        del data[at % len(data) :]
    else:
        data[at % len(data) : at % len(data) + len(bytes_)] = bytes_
    try:
        found = decode_topic("t", bytes(data))
    except MetadataSerializationError as error:
        assert "topic t" in str(error)  # noqa: PT017 - most damage makes another list
    else:
        assert found.name == "t"


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"\x47\x78", "cannot be decoded"),
        (b"\x47\x78\xff\xff\xff\xff", "a header of 4294967295 bytes"),
        (b"\x47\x78\0\0\0\4\x08\x04\x10\x05", "snappy"),
        (b"\x47\x78\0\0\0\5\x08\x02\x10\x90\x4e", "does not have 10000 bytes"),
        (b"\x0a\x0b\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "cannot have the id -1"),
        (b"\xff", "cannot be decoded"),
        (b"\x0a\x00", "lacks fields"),
    ],
)
def test_a_node_that_holds_no_list_is_refused(data: bytes, words: str) -> None:
    with pytest.raises(MetadataSerializationError, match=words):
        decode_topic("t", data)

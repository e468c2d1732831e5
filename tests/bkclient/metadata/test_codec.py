"""The stored forms of ledger metadata, byte by byte, and the refusal of everything that is not one of them."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import pytest
from google.protobuf import text_format
from hypothesis import given
from hypothesis import strategies as st

from bkclient.errors import MetadataSerializationError
from bkclient.ledger import DigestType, Fragment, LedgerMetadata, LedgerState
from bkclient.metadata.codec import (
    ENSEMBLE_SIZE_MAX,
    LEDGER_METADATA_BYTES_MAX,
    decode_ledger_metadata,
    encode_ledger_metadata,
)
from bkclient.wire.metadata_pb2 import LedgerMetadataFormat

BOOKIES = ("127.0.0.1:3181", "127.0.0.1:3182", "127.0.0.1:3183")
OPEN = LedgerMetadata(7, 3, 2, 2, (Fragment(0, BOOKIES),), creator_token=42)
CLOSED = replace(OPEN.closed(1, 12), creator_token=0)
WITH_EXTRAS = LedgerMetadata(
    7,
    1,
    1,
    1,
    (Fragment(0, BOOKIES[:1]),),
    digest_type=DigestType.CRC32,
    password=b"secret",
    custom_metadata={"app": b"py"},
    ctime_ms=1700000000000,
    creator_token=42,
)
PRE_PASSWORD = replace(OPEN, digest_type=None, has_password=False, format_version=1, creator_token=0)

VECTORS = {
    "open": (
        OPEN,
        (
            "426f6f6b69654d65746164617461466f726d617456657273696f6e09330a4f08021003180020ffffffffffffffffff01280132320a0e3132372e"
            "302e302e313a333138310a0e3132372e302e302e313a333138320a0e3132372e302e302e313a333138331000380342004802602a"
        ),
    ),
    "closed": (
        CLOSED,
        (
            "426f6f6b69654d65746164617461466f726d617456657273696f6e09330a4608021003180c2001280332320a0e3132372e302e302e313a333138"
            "310a0e3132372e302e302e313a333138320a0e3132372e302e302e313a3331383310003803420048026000"
        ),
    ),
    "password, custom metadata and creation time": (
        WITH_EXTRAS,
        (
            "426f6f6b69654d65746164617461466f726d617456657273696f6e09330a4708011001180020ffffffffffffffffff01280132120a0e3132372e"
            "302e302e313a3331383110003801420673656372657448015080d095ffbc315a090a0361707012027079602a"
        ),
    ),
}

TEXT_OF_OPEN = """BookieMetadataFormatVersion\t2
quorumSize: 2
ensembleSize: 3
length: 0
lastEntryId: -1
state: OPEN
segment {
  ensembleMember: "127.0.0.1:3181"
  ensembleMember: "127.0.0.1:3182"
  ensembleMember: "127.0.0.1:3183"
  firstEntryId: 0
}
digestType: CRC32C
password: ""
ackQuorumSize: 2
"""

LINES = "BookieMetadataFormatVersion\t1\n2\n3\n{length}\n0\t127.0.0.1:3181\t127.0.0.1:3182\t127.0.0.1:3183{end}"


def v3(payload: bytes) -> bytes:
    """A value of format 3 with a payload of less than 128 bytes."""
    return b"BookieMetadataFormatVersion\t3\n" + bytes([len(payload)]) + payload


BODY_OF_OPEN = bytes.fromhex(VECTORS["open"][1])[31:]


@pytest.mark.rule("MD-1")
@pytest.mark.parametrize("name", VECTORS)
def test_format_3_is_written_and_read_byte_by_byte(name: str) -> None:
    metadata, hex_text = VECTORS[name]
    assert encode_ledger_metadata(metadata).hex() == hex_text
    assert decode_ledger_metadata(7, bytes.fromhex(hex_text)) == metadata


@pytest.mark.rule("API-6")
def test_format_2_is_protobuf_text_without_the_creator_token() -> None:
    assert encode_ledger_metadata(replace(OPEN, format_version=2)).decode() == TEXT_OF_OPEN
    assert decode_ledger_metadata(7, TEXT_OF_OPEN.encode()) == replace(OPEN, format_version=2, creator_token=0)


@pytest.mark.parametrize(
    ("metadata", "length", "end"),
    [
        (PRE_PASSWORD, 0, "\n"),
        (PRE_PASSWORD.with_state(LedgerState.IN_RECOVERY), 0, "\n-102\tCLOSED"),
        (PRE_PASSWORD.closed(-1, 0), 0, "\n-1\tCLOSED"),
        (PRE_PASSWORD.closed(9, 120), 120, "\n9\tCLOSED"),
    ],
)
def test_format_1_is_lines_whose_last_one_tells_the_state(metadata: LedgerMetadata, length: int, end: str) -> None:
    text = LINES.format(length=length, end=end)
    assert encode_ledger_metadata(metadata).decode() == text
    assert decode_ledger_metadata(7, text.encode()) == metadata
    assert decode_ledger_metadata(7, f"{text.rstrip()}\n".encode()) == metadata
    assert decode_ledger_metadata(7, text.rstrip().encode()) == metadata


@pytest.mark.rule("MD-1")
def test_length_and_last_entry_of_an_open_ledger_are_not_believed() -> None:
    text = TEXT_OF_OPEN.replace("length: 0", "length: 77").replace("lastEntryId: -1", "lastEntryId: 5")
    metadata = decode_ledger_metadata(7, text.encode())
    assert (metadata.length, metadata.last_entry_id) == (0, -1)


def test_an_absent_ack_quorum_is_the_write_quorum() -> None:
    text = TEXT_OF_OPEN.replace("ackQuorumSize: 2\n", "")
    assert decode_ledger_metadata(7, text.encode()).ack_quorum_size == 2


@pytest.mark.rule("API-7")
def test_without_a_password_the_digest_type_does_not_count() -> None:
    metadata = decode_ledger_metadata(7, TEXT_OF_OPEN.replace('password: ""\n', "").encode())
    assert not metadata.has_password
    assert metadata.digest_type is None
    assert b"digestType" not in encode_ledger_metadata(metadata)


def test_fragments_are_sorted_however_they_were_stored() -> None:
    metadata = OPEN.with_ensemble(10, ("a:1", "b:1", "c:1"))
    data = encode_ledger_metadata(replace(metadata, format_version=2)).decode()
    head, first, second, tail = data.split("segment {")[0], *data.split("segment {")[1:], ""
    second, tail = second.split("}\n", 1)
    swapped = f"{head}segment {{{second}}}\nsegment {{{first}{tail}"
    assert swapped != data
    assert decode_ledger_metadata(7, swapped.encode()).fragments == metadata.fragments


@pytest.mark.rule("H-15")
def test_fields_of_a_newer_writer_survive_a_rewrite() -> None:
    newer = bytes.fromhex("a20603") + b"new"
    metadata = decode_ledger_metadata(7, v3(BODY_OF_OPEN + newer))
    rewritten = encode_ledger_metadata(metadata.with_state(LedgerState.IN_RECOVERY))
    assert rewritten.endswith(newer)
    assert decode_ledger_metadata(7, rewritten).state is LedgerState.IN_RECOVERY
    assert metadata.creator_token == 42


def test_every_version_a_ledger_may_have_is_the_one_it_is_rewritten_in() -> None:
    for metadata in (PRE_PASSWORD, replace(OPEN, format_version=2), OPEN):
        again = decode_ledger_metadata(7, encode_ledger_metadata(metadata)).closed(0, 1)
        assert encode_ledger_metadata(again)[28:29] == b"%d" % metadata.format_version


MALFORMED = {
    "empty": b"",
    "no header": b"LedgerMetadata\t3\n",
    "no version": b"BookieMetadataFormatVersion\t\n",
    "version 0": b"BookieMetadataFormatVersion\t0\n",
    "version 4": b"BookieMetadataFormatVersion\t4\n" + BODY_OF_OPEN,
    "no payload": b"BookieMetadataFormatVersion\t3\n",
    "empty message": v3(b""),
    "length without end": b"BookieMetadataFormatVersion\t3\n" + b"\xff" * 9,
    "truncated": v3(BODY_OF_OPEN)[:-1],
    "bytes after the message": v3(BODY_OF_OPEN) + b"\x00",
    "unknown state": v3(BODY_OF_OPEN.replace(b"\x28\x01", b"\x28\x07")),
    "unknown digest type": v3(BODY_OF_OPEN.replace(b"\x38\x03", b"\x38\x09")),
    "bookie id with a slash": v3(BODY_OF_OPEN.replace(b"127.0.0.1:3181", b"../../../../ab")),
    "bookie id that is no text": v3(BODY_OF_OPEN.replace(b"127.0.0.1:3181", b"\xff" * 14)),
    "ensemble too small": TEXT_OF_OPEN.replace("ensembleSize: 3", "ensembleSize: 4").encode(),
    "quorum above the ensemble": TEXT_OF_OPEN.replace("quorumSize: 2", "quorumSize: 4", 1).encode(),
    "ack quorum 0": TEXT_OF_OPEN.replace("ackQuorumSize: 2", "ackQuorumSize: 0").encode(),
    "first fragment not at 0": TEXT_OF_OPEN.replace("firstEntryId: 0", "firstEntryId: 1").encode(),
    "closed without an end": TEXT_OF_OPEN.replace("OPEN", "CLOSED").replace("lastEntryId: -1\n", "").encode(),
    "closed before the first entry": TEXT_OF_OPEN.replace("OPEN", "CLOSED").replace("Id: -1", "Id: -2").encode(),
    "unknown text field": (TEXT_OF_OPEN + "future: 1\n").encode(),
    "text that is not UTF-8": TEXT_OF_OPEN.encode() + b"\xff",
    "negative token": (TEXT_OF_OPEN + "cToken: -1\n").encode(),
    "too few lines": b"BookieMetadataFormatVersion\t1\n2\n3\n0",
    "words for numbers": LINES.format(length="many", end="").encode(),
    "closed at a word": LINES.format(length=0, end="\nlast\tCLOSED").encode(),
    "number with an underscore": LINES.format(length="1_0", end="").encode(),
}


@pytest.mark.rule("MD-3")
@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_metadata_is_a_serialization_error_that_names_the_ledger(name: str) -> None:
    with pytest.raises(MetadataSerializationError, match="ledger 4711") as caught:
        decode_ledger_metadata(4711, MALFORMED[name])
    assert caught.value.ledger_id == 4711


def test_two_fragments_that_start_at_the_same_entry_are_malformed() -> None:
    segment = TEXT_OF_OPEN[TEXT_OF_OPEN.index("segment") : TEXT_OF_OPEN.index("digestType")]
    with pytest.raises(MetadataSerializationError, match="does not start above"):
        decode_ledger_metadata(7, (TEXT_OF_OPEN + segment).encode())


@pytest.mark.parametrize(
    "metadata",
    [
        replace(OPEN, format_version=0),
        replace(OPEN, format_version=4),
        replace(OPEN, format_version=1),
        replace(PRE_PASSWORD, ack_quorum_size=1),
        replace(PRE_PASSWORD, custom_metadata={"a": b""}),
        replace(OPEN, creator_token=2**63),
        replace(OPEN, fragments=(Fragment(0, ("a\tb", "c", "d")),)),
        replace(OPEN, format_version=2, unknown_fields=b"\xa2\x06\x01x"),
    ],
)
def test_what_the_format_cannot_hold_is_refused_instead_of_dropped(metadata: LedgerMetadata) -> None:
    with pytest.raises(MetadataSerializationError, match="ledger 7"):
        encode_ledger_metadata(metadata)


def test_metadata_larger_than_a_zookeeper_packet_is_refused_before_it_is_sent() -> None:
    room = LEDGER_METADATA_BYTES_MAX - len(encode_ledger_metadata(replace(OPEN, custom_metadata={"a": b"x" * 10**6})))
    largest = replace(OPEN, custom_metadata={"a": b"x" * (10**6 + room)})
    assert len(encode_ledger_metadata(largest)) == LEDGER_METADATA_BYTES_MAX
    with pytest.raises(MetadataSerializationError, match="the limit is"):
        encode_ledger_metadata(replace(largest, custom_metadata={"a": b"x" * (10**6 + room + 1)}))


bookie_ids = st.from_regex(r"[a-zA-Z0-9._-]{1,12}:[0-9]{1,5}", fullmatch=True)
sizes = st.lists(st.integers(1, 4), min_size=3, max_size=3).map(lambda sizes: sorted(sizes, reverse=True))


@st.composite
def ledgers(draw: st.DrawFn) -> LedgerMetadata:
    """Any metadata that format 3 can hold, some of it restricted to what the older formats can."""
    ensemble_size, write_quorum, ack_quorum = draw(sizes)
    starts = sorted({0, *draw(st.lists(st.integers(1, 2**62), max_size=3))})
    ensemble = st.lists(bookie_ids, min_size=ensemble_size, max_size=ensemble_size, unique=True).map(tuple)
    version = draw(st.integers(1, 3))
    has_password = version > 1 and draw(st.booleans())
    metadata = LedgerMetadata(
        ledger_id=draw(st.integers(0, 2**63 - 1)),
        ensemble_size=ensemble_size,
        write_quorum_size=write_quorum,
        ack_quorum_size=ack_quorum if version > 1 else write_quorum,
        fragments=tuple(Fragment(start, draw(ensemble)) for start in starts),
        state=draw(st.sampled_from([LedgerState.OPEN, LedgerState.IN_RECOVERY])),
        digest_type=draw(st.sampled_from(DigestType)) if has_password else None,
        password=draw(st.binary(max_size=20)) if has_password else b"",
        has_password=has_password,
        custom_metadata=draw(st.dictionaries(st.text(max_size=5), st.binary(max_size=9))) if version > 1 else {},
        format_version=version,
        ctime_ms=draw(st.none() | st.integers(0, 2**62)) if version > 1 else None,
        creator_token=draw(st.integers(0, 2**63 - 1)) if version == 3 else 0,
    )
    return draw(st.just(metadata) | st.builds(metadata.closed, st.integers(-1, 2**62), st.integers(0, 2**62)))


@given(ledgers())
def test_what_was_encoded_is_decoded(metadata: LedgerMetadata) -> None:
    assert decode_ledger_metadata(metadata.ledger_id, encode_ledger_metadata(metadata)) == metadata


def decodes_or_is_refused(data: bytes) -> None:
    metadata = None
    with suppress(MetadataSerializationError):
        metadata = decode_ledger_metadata(4711, data)
    if metadata is not None:
        assert decode_ledger_metadata(4711, encode_ledger_metadata(metadata)) == metadata


@given(st.integers(1, 3), st.binary(max_size=200))
def test_no_bytes_raise_anything_but_a_serialization_error(version: int, payload: bytes) -> None:
    decodes_or_is_refused(b"BookieMetadataFormatVersion\t%d\n" % version + payload)


@given(st.data())
def test_damaged_metadata_raises_nothing_but_a_serialization_error(data: st.DataObject) -> None:
    stored = bytearray(encode_ledger_metadata(data.draw(ledgers())))
    for _ in range(data.draw(st.integers(1, 4))):
        stored[data.draw(st.integers(29, len(stored) - 1))] = data.draw(st.integers(0, 255))
    decodes_or_is_refused(bytes(stored))


@given(st.lists(st.sampled_from('0123456789-\t\nCLOSEDab:.{}" segmentfirstEntryId'), max_size=60).map("".join))
def test_no_text_raises_anything_but_a_serialization_error(text: str) -> None:
    decodes_or_is_refused(b"BookieMetadataFormatVersion\t1\n" + text.encode())
    decodes_or_is_refused(b"BookieMetadataFormatVersion\t2\n" + text.encode())


class TestLimits:
    """What no honest client stores, and what would be expensive to read."""

    @pytest.mark.parametrize("version", [1, 2, 3])
    def test_an_ensemble_may_be_large_and_not_larger(self, version: int) -> None:
        for size in (ENSEMBLE_SIZE_MAX, ENSEMBLE_SIZE_MAX + 1, 20_000):
            data = stored_by_a_stranger(version, tuple(f"b{number}:1" for number in range(size)))
            if size <= ENSEMBLE_SIZE_MAX:
                assert decode_ledger_metadata(5, data).ensemble_size == size
                continue
            with pytest.raises(
                MetadataSerializationError, match=rf"ledger 5: .* ensemble of {size} bookies, the limit is 1000"
            ):
                decode_ledger_metadata(5, data)

    @pytest.mark.parametrize("version", [1, 2, 3])
    @pytest.mark.parametrize("ensemble", [("a:1", "a:1", "a:1"), ("a:1", "b:1", "a:1")])
    def test_an_ensemble_names_a_bookie_once(self, version: int, ensemble: tuple[str, ...]) -> None:
        with pytest.raises(MetadataSerializationError, match=r"ledger 5: .* names a bookie twice"):
            decode_ledger_metadata(5, stored_by_a_stranger(version, ensemble))

    @pytest.mark.parametrize("version", [1, 2, 3])
    @pytest.mark.parametrize("name", ["x" * 3000, "evil;touch pwned/", "\x1b]0;pwn\x07", "", "readonly", ".."])
    def test_a_bookie_has_an_id(self, version: int, name: str) -> None:
        with pytest.raises(MetadataSerializationError, match="not a bookie id") as caught:
            decode_ledger_metadata(5, stored_by_a_stranger(version, (name, "b:1", "c:1")))
        assert len(str(caught.value)) < 500
        assert str(caught.value).isprintable()

    def test_nothing_is_encoded_that_would_be_refused(self) -> None:
        for ensemble in (("a:1", "a:1"), tuple(f"b{number}:1" for number in range(ENSEMBLE_SIZE_MAX + 1))):
            metadata = LedgerMetadata(5, len(ensemble), 1, 1, (Fragment(0, ensemble),))
            with pytest.raises(MetadataSerializationError, match="cannot encode"):
                encode_ledger_metadata(metadata)


def stored_by_a_stranger(version: int, ensemble: tuple[str, ...]) -> bytes:
    header = b"BookieMetadataFormatVersion\t%d\n" % version
    if version == 1:
        lines = ["2", str(len(ensemble)), "0", "\t".join(("0", *ensemble))]
        return header + "\n".join(lines).encode() + b"\n"
    message = LedgerMetadataFormat(
        quorumSize=2, ensembleSize=len(ensemble), length=0, state="OPEN", digestType="CRC32C", password=b""
    )
    message.segment.add(ensembleMember=ensemble, firstEntryId=0)
    if version == 2:
        return header + text_format.MessageToString(message).encode()
    body = message.SerializeToString()
    length = bytearray()
    rest = len(body)
    while rest > 0x7F:
        length.append(rest & 0x7F | 0x80)
        rest >>= 7
    return header + bytes((*length, rest)) + body

"""Entry and explicit-LAC packets: layout vectors, and every way a packet can be wrong."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bkclient.entry import Entry
from bkclient.errors import DigestMismatch
from bkclient.ledger import DigestType
from bkclient.wire.entry import ENTRY_HEADER_SIZE, EntryCodec

ID = st.integers(0, 2**63 - 1)
E0 = "00000000000000010000000000000000ffffffffffffffff0000000000000005"
HELLO = "68656c6c6f"
LAC0 = "00000000000000010000000000000000"
FIRST = (1, 0, -1, 5, b"hello")

BODIES: list[tuple[str, DigestType, bytes, tuple[int, int, int, int, bytes], str]] = [
    ("first entry", DigestType.CRC32C, b"", FIRST, E0 + "e3a5f74d" + HELLO),
    ("first entry", DigestType.CRC32C, b"secret", FIRST, E0 + "e3a5f74d" + HELLO),
    ("first entry", DigestType.CRC32, b"", FIRST, E0 + "0000000030a56872" + HELLO),
    ("first entry", DigestType.CRC32, b"secret", FIRST, E0 + "0000000030a56872" + HELLO),
    ("first entry", DigestType.HMAC, b"", FIRST, E0 + "00107b7f219e26462e04e16e6e7a7f41e046e090" + HELLO),
    ("first entry", DigestType.HMAC, b"secret", FIRST, E0 + "985ff33d73766e6ab95e91f14097a562ffc64ae8" + HELLO),
    ("first entry", DigestType.DUMMY, b"", FIRST, E0 + HELLO),
    ("first entry", DigestType.DUMMY, b"secret", FIRST, E0 + HELLO),
    (
        "second entry",
        DigestType.CRC32C,
        b"",
        (1, 1, 0, 12, b"world!!"),
        "000000000000000100000000000000010000000000000000000000000000000c688d8221776f726c642121",
    ),
    (
        "no payload",
        DigestType.CRC32C,
        b"",
        (1, 0, -1, 0, b""),
        "00000000000000010000000000000000ffffffffffffffff0000000000000000cdb5d280",
    ),
    (
        "ledger 12345678901",
        DigestType.CRC32C,
        b"",
        (12345678901, 3, 2, 1000, b"\x00\x01\xff"),
        "00000002dfdc1c350000000000000003000000000000000200000000000003e892dce12d0001ff",
    ),
]

LAC_PACKETS: list[tuple[DigestType, bytes, str]] = [
    (DigestType.CRC32C, b"", LAC0 + "b64e4ca2"),
    (DigestType.CRC32C, b"secret", LAC0 + "b64e4ca2"),
    (DigestType.CRC32, b"", LAC0 + "00000000fbc05f16"),
    (DigestType.CRC32, b"secret", LAC0 + "00000000fbc05f16"),
    (DigestType.HMAC, b"", LAC0 + "d35939c05a6e8cf3f07e9cca549c0e42abbbc98f"),
    (DigestType.HMAC, b"secret", LAC0 + "cf212213f695a43077f9fe40f50e4d562960b577"),
    (DigestType.DUMMY, b"", LAC0),
    (DigestType.DUMMY, b"secret", LAC0),
]


@pytest.mark.parametrize(("name", "digest_type", "password", "entry", "body"), BODIES)
def test_entry_bodies_match_the_protocols_vectors(
    name: str, digest_type: DigestType, password: bytes, entry: tuple[int, int, int, int, bytes], body: str
) -> None:
    ledger_id, entry_id, lac, length, payload = entry
    codec = EntryCodec(ledger_id, digest_type, password)
    assert (codec.encode_header(entry_id, lac, length, payload) + payload).hex() == body, name
    assert codec.decode(bytes.fromhex(body), entry_id) == Entry(ledger_id, entry_id, payload, length, lac)
    assert len(body) // 2 == codec.overhead + len(payload)


@pytest.mark.parametrize(("digest_type", "password", "packet"), LAC_PACKETS)
def test_explicit_lac_packets_match_the_protocols_vectors(
    digest_type: DigestType, password: bytes, packet: str
) -> None:
    codec = EntryCodec(1, digest_type, password)
    assert codec.encode_lac(0).hex() == packet
    assert codec.decode_lac(bytes.fromhex(packet)) == 0


@pytest.mark.parametrize("digest_type", list(DigestType))
@settings(deadline=None)
@given(
    entry=st.builds(Entry, ID, ID, st.binary(max_size=200), ID, st.integers(-1, 2**63 - 1)),
    password=st.binary(max_size=20),
)
def test_what_was_encoded_decodes_to_itself(digest_type: DigestType, entry: Entry, password: bytes) -> None:
    codec = EntryCodec(entry.ledger_id, digest_type, password)
    lac = entry.last_add_confirmed
    body = codec.encode_header(entry.entry_id, lac, entry.ledger_length, entry.payload) + entry.payload
    assert codec.decode(body, entry.entry_id) == entry
    assert codec.decode_lac(codec.encode_lac(lac)) == lac


@pytest.mark.rule("R-3")
@pytest.mark.parametrize("digest_type", [t for t in DigestType if t is not DigestType.DUMMY])
def test_flipping_any_single_bit_of_an_entry_is_a_digest_mismatch(digest_type: DigestType) -> None:
    codec = EntryCodec(1, digest_type, b"pw")
    body = codec.encode_header(7, 6, 30, b"abc") + b"abc"
    for bit in range(len(body) * 8):
        flipped = bytearray(body)
        flipped[bit // 8] ^= 1 << (bit % 8)
        with pytest.raises(DigestMismatch):
            codec.decode(bytes(flipped), 7)


@pytest.mark.rule("R-3")
@pytest.mark.parametrize("digest_type", list(DigestType))
def test_a_body_shorter_than_header_and_digest_is_a_digest_mismatch(digest_type: DigestType) -> None:
    codec = EntryCodec(1, digest_type, b"")
    body = codec.encode_header(0, -1, 0, b"")
    assert codec.decode(body, 0).payload == b""
    for size in range(len(body)):
        with pytest.raises(DigestMismatch, match="too few") as caught:
            codec.decode(body[:size], 0)
        assert (caught.value.ledger_id, caught.value.entry_id) == (1, 0)


@pytest.mark.rule("R-3")
def test_an_intact_entry_of_another_ledger_is_a_digest_mismatch() -> None:
    body = EntryCodec(2, DigestType.CRC32C, b"").encode_header(0, -1, 0, b"")
    with pytest.raises(DigestMismatch, match="ledger 2"):
        EntryCodec(1, DigestType.CRC32C, b"").decode(body, 0)


@pytest.mark.rule("R-3")
def test_an_intact_entry_with_another_id_is_a_digest_mismatch_unless_the_last_one_was_asked_for() -> None:
    codec = EntryCodec(1, DigestType.CRC32C, b"")
    body = codec.encode_header(5, 4, 0, b"")
    with pytest.raises(DigestMismatch, match="returned entry 5"):
        codec.decode(body, 4)
    assert codec.decode(body, None).entry_id == 5


@pytest.mark.rule("R-3")
def test_the_digest_is_judged_before_the_ids() -> None:
    body = bytearray(EntryCodec(2, DigestType.CRC32C, b"").encode_header(9, 8, 0, b""))
    body[ENTRY_HEADER_SIZE] ^= 1
    with pytest.raises(DigestMismatch, match="digest does not fit"):
        EntryCodec(1, DigestType.CRC32C, b"").decode(bytes(body), 4)


@pytest.mark.rule("R-3")
def test_a_wrong_password_is_noticed_by_the_hmac_digest_only() -> None:
    for digest_type in DigestType:
        body = EntryCodec(1, digest_type, b"right").encode_header(0, -1, 1, b"x") + b"x"
        other = EntryCodec(1, digest_type, b"wrong")
        if digest_type is DigestType.HMAC:
            with pytest.raises(DigestMismatch):
                other.decode(body, 0)
        else:
            assert other.decode(body, 0).payload == b"x"


def test_the_upper_half_of_a_crc32_digest_has_to_be_zero() -> None:
    codec = EntryCodec(1, DigestType.CRC32, b"")
    body = bytearray(codec.encode_header(0, -1, 0, b""))
    body[ENTRY_HEADER_SIZE] = 1
    with pytest.raises(DigestMismatch):
        codec.decode(bytes(body), 0)


def test_an_explicit_lac_is_verified_like_an_entry() -> None:
    codec = EntryCodec(1, DigestType.CRC32C, b"")
    packet = codec.encode_lac(41)
    with pytest.raises(DigestMismatch, match="too few"):
        codec.decode_lac(packet[:-1])
    with pytest.raises(DigestMismatch, match="does not fit"):
        codec.decode_lac(packet[:15] + b"\x07" + packet[16:])
    with pytest.raises(DigestMismatch, match="ledger 2"):
        codec.decode_lac(EntryCodec(2, DigestType.CRC32C, b"").encode_lac(41))


@settings(deadline=None)
@given(data=st.binary(max_size=120))
def test_arbitrary_bytes_decode_to_an_entry_of_this_ledger_or_to_a_digest_mismatch(data: bytes) -> None:
    for digest_type in DigestType:
        codec = EntryCodec(0, digest_type, b"")
        with suppress(DigestMismatch):
            assert codec.decode(data, None).ledger_id == 0
        with suppress(DigestMismatch):
            codec.decode_lac(data)


def test_the_codec_carries_the_master_key_of_its_password() -> None:
    assert EntryCodec(1, DigestType.DUMMY, b"secret").master_key.hex() == "e793cbc379107648537183605cd361d3bb789a39"


# Several at a time ---------------------------------------------------------------------------------------------------


@pytest.mark.rule("R-3", "R-30")
@pytest.mark.parametrize("digest_type", list(DigestType))
@settings(deadline=None)
@given(st.data())
def test_several_are_decoded_as_one_by_one(digest_type: DigestType, data: st.DataObject) -> None:
    codec, other = EntryCodec(1, digest_type, b"pw"), EntryCodec(2, digest_type, b"pw")
    entry_ids = data.draw(st.lists(st.integers(0, 3), max_size=5))
    bodies = []
    for entry_id in entry_ids:
        payload = data.draw(st.binary(max_size=8))
        writer = data.draw(st.sampled_from([codec] * 6 + [other]))
        written_id = data.draw(st.sampled_from([entry_id] * 6 + [9]))
        body = bytearray(writer.encode_header(written_id, entry_id - 1, 7, payload) + payload)
        if data.draw(st.integers(0, 6)) == 6:
            body[data.draw(st.integers(0, len(body) - 1))] ^= 1
        bodies.append(bytes(body[: data.draw(st.sampled_from([None] * 6 + [ENTRY_HEADER_SIZE + 3, 0]))]))
    assert codec.decode_several(entry_ids, bodies) == codec.decode_each(entry_ids, bodies)


def test_there_are_as_many_bodies_as_entries() -> None:
    codec = EntryCodec(1, DigestType.CRC32C, b"")
    with pytest.raises(ValueError, match="zip"):
        codec.decode_several([0, 1], [codec.encode_header(0, -1, 0, b"")])

"""What is encoded many at a time is what is encoded one by one, whatever the sizes of its ids, headers and payloads."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bkclient.ledger import DigestType
from bkclient.wire.entry import EntryCodec
from bkclient.wire.messages import AddTemplate
from bkclient.wire.v2 import AddPacketEncoder
from bkclient.wire.v3_add import AddEncoder, varint, varints

IDS = st.integers(0, 2**63 - 1) | st.integers(0, 300) | st.sampled_from([127, 128, 16_383, 16_384, 2**21 - 1, 2**28])
VALUES = st.integers(-(2**63), 2**64 - 1) | IDS
PAYLOADS = st.binary(max_size=40) | st.sampled_from([b"", bytes(100), b"x" * 100, bytes(16_384)])
LENGTHS = st.integers(0, 2**63 - 1)
#: Transaction id, entry id, header, payload.
ADDS = st.lists(
    st.tuples(IDS, IDS, st.just(b"h" * 36) | st.just(b"g" * 36) | st.binary(max_size=40), PAYLOADS),
    min_size=1,
    max_size=6,
)
TEMPLATES = st.builds(
    AddTemplate,
    ledger_id=IDS,
    master_key=st.just(bytes(20)) | st.just(b"k" * 20),
    recovery=st.booleans(),
    write_flags=st.sampled_from([0, 0, 1]),
    high_priority=st.booleans(),
)
ORDINARY = AddTemplate(ledger_id=7, master_key=bytes(20))
Encoder = AddEncoder | AddPacketEncoder


def add(
    txn_id: int, entry_id: int, header: bytes = b"h" * 36, payload: bytes = b"same"
) -> tuple[int, int, bytes, bytes]:
    return txn_id, entry_id, header, payload


def together(encoder: Encoder, adds: list[tuple[int, int, bytes, bytes]]) -> list[tuple[bytes, bytes, int]]:
    """Frame, acknowledgement and size of each."""
    encoded = encoder.encode_all(*(list(column) for column in zip(*adds, strict=True)))
    return [(b"".join(buffers), stored, size) for buffers, stored, size in zip(*encoded, strict=True)]


def one_by_one(encoder: Encoder, adds: list[tuple[int, int, bytes, bytes]]) -> list[tuple[bytes, bytes, int]]:
    encoded = [encoder.encode(*add) for add in adds]
    return [(b"".join(buffers), stored, size) for buffers, stored, size in encoded]


@pytest.mark.parametrize("version", [2, 3])
@settings(deadline=None)
@given(template=TEMPLATES, adds=ADDS, before=ADDS)
@example(template=ORDINARY, adds=[add(126 + n, 5) for n in range(3)], before=[add(1, 1)])
@example(template=ORDINARY, adds=[add(5, 126 + n) for n in range(3)], before=[add(1, 1)])
@example(template=ORDINARY, adds=[add(5, 5), add(6, 6, header=b"h" * 8)], before=[add(1, 1)])
@example(template=ORDINARY, adds=[add(5, 5), add(6, 6, payload=b"longer")], before=[add(1, 1)])
@example(template=ORDINARY, adds=[add(20_000 + n, 30_000 + n) for n in range(5)], before=[add(1, 1, payload=b"other")])
def test_adds(
    version: int,
    template: AddTemplate,
    adds: list[tuple[int, int, bytes, bytes]],
    before: list[tuple[int, int, bytes, bytes]],
) -> None:
    if version == 2 and template.write_flags:
        return  # which it lacks
    made: type[Encoder] = AddPacketEncoder if version == 2 else AddEncoder
    encoder, other = made(template), made(template)
    assert together(encoder, before) == one_by_one(other, before)
    assert together(encoder, adds) == one_by_one(other, adds), "whatever was laid out before"
    assert one_by_one(encoder, before) == one_by_one(other, before), "what is laid out is the same"


@pytest.mark.parametrize("digest_type", list(DigestType))
@settings(deadline=None)
@given(entries=st.lists(st.tuples(LENGTHS, st.integers(-1, 2**62), LENGTHS, PAYLOADS), min_size=1, max_size=5))
def test_headers(digest_type: DigestType, entries: list[tuple[int, int, int, bytes]]) -> None:
    codec = EntryCodec(7, digest_type, b"password")
    columns = [list(column) for column in zip(*entries, strict=True)]
    expected = [codec.encode_header(*entry) for entry in entries]
    assert codec.encode_headers(*columns) == expected


@given(values=st.lists(VALUES, min_size=1, max_size=6) | IDS.map(lambda first: [first, first + 1, first + 2]))
@example(values=[16_383, 16_384])
@example(values=[-1, 5])
def test_varints(values: list[int]) -> None:
    assert varints(values) == [varint(value) for value in values]

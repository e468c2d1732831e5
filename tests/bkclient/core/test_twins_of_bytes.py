"""The compiled core against the definitions: entries, frames and chunks of answers, hostile ones too."""

from __future__ import annotations

import random
import struct
from contextlib import suppress
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from bkclient._core import using_core
from bkclient.entry import Entry
from bkclient.ledger import DigestType
from bkclient.wire import chunks, v2, v3
from bkclient.wire.bodies import Bodies, bodies_from, count_in
from bkclient.wire.entry import EntryCodec
from bkclient.wire.messages import AddRequest, AddTemplate, ReadResponse, Status, WriteFlags
from bkclient.wire.v2_read import ReadPacketEncoder
from bkclient.wire.v3_add import varint
from bkclient.wire.v3_read import ReadEncoder
from tests.bkclient.core.both_cores import needs_compiled_core, same_in_both

pytestmark = needs_compiled_core

IDS = st.one_of(
    st.integers(0, 2**63 - 1), st.integers(0, 300), st.integers(-(2**64), 2**66), st.sampled_from([-1, 2**63])
)
#: Around the sizes from which on the libraries' checksums are used, and payloads are not copied.
SIZES = st.one_of(st.integers(0, 200), st.sampled_from([511, 512, 513, 1023, 1024, 1025, 4095, 4096, 4097, 70_000]))
DIGESTS = st.sampled_from(DigestType)


def data(size: int, seed: int) -> bytes:
    return random.Random(seed).randbytes(size)


PAYLOADS = st.builds(data, SIZES, st.integers(0, 5))


@st.composite
def damaged(draw: st.DrawFn, content: bytes) -> bytes:
    """Some bytes, whole, cut off, continued or with one of them changed."""
    kind = draw(st.sampled_from(["whole", "cut", "longer", "changed", "whole"]))
    if kind == "cut":
        return content[: draw(st.integers(0, len(content)))]
    if kind == "longer":
        return content + draw(st.binary(max_size=9))
    if kind == "changed" and content:
        place = draw(st.integers(0, min(len(content) - 1, 80)))
        return content[:place] + draw(st.binary(min_size=1, max_size=1)) + content[place + 1 :]
    return content


# Entries -----------------------------------------------------------------------------------------------------------


@given(DIGESTS, IDS, IDS, IDS, IDS, PAYLOADS)
def test_headers(digest: DigestType, ledger_id: int, entry_id: int, lac: int, length: int, payload: bytes) -> None:
    codec = EntryCodec(ledger_id, digest, b"secret")
    same_in_both(lambda: codec.encode_header(entry_id, lac, length, payload))
    same_in_both(lambda: codec.encode_header(entry_id, lac, length, bytearray(payload)))  # type: ignore[arg-type]
    same_in_both(lambda: codec.encode_header("0", lac, length, payload))  # type: ignore[arg-type]


@given(st.data(), DIGESTS, st.integers(-(2**63), 2**63 - 1), st.integers(-(2**63), 2**63 - 1), PAYLOADS)
def test_entries_that_bookies_send(
    drawn: st.DataObject, digest: DigestType, ledger_id: int, number: int, payload: bytes
) -> None:
    codec, other = EntryCodec(ledger_id, digest, b"secret"), EntryCodec(7, digest, b"secret")
    writer = drawn.draw(st.sampled_from([codec, codec, other]))
    body = drawn.draw(damaged(writer.encode_header(number, -1, 9, payload) + payload))
    expected = drawn.draw(st.sampled_from([None, number, number, 5]))
    found = same_in_both(lambda: codec.decode(body, expected))
    same_in_both(lambda: codec.decode(memoryview(body), expected))  # type: ignore[arg-type]
    if writer is codec and expected in {None, number} and body == codec.encode_header(number, -1, 9, payload) + payload:
        assert found == Entry(ledger_id, number, payload, 9, -1)


@given(st.data(), DIGESTS, st.lists(st.tuples(st.integers(0, 9), PAYLOADS), max_size=5))
def test_several_entries_that_a_bookie_sends(
    drawn: st.DataObject, digest: DigestType, entries: list[tuple[int, bytes]]
) -> None:
    codec = EntryCodec(7, digest, b"secret")
    bodies = tuple(
        drawn.draw(st.just(body) | damaged(body))
        for body in (codec.encode_header(number, -1, 9, payload) + payload for number, payload in entries)
    )
    entry_ids = [drawn.draw(st.sampled_from([number, number, number, 5])) for number, _ in entries]
    found = same_in_both(lambda: codec.decode_several(entry_ids, bodies))
    assert (
        found
        == same_in_both(lambda: codec.decode_several(entry_ids, list(bodies)))
        == codec.decode_each(entry_ids, bodies)
    )
    same_in_both(lambda: codec.decode_several(entry_ids, tuple(map(memoryview, bodies))))  # type: ignore[arg-type]
    same_in_both(lambda: codec.decode_several([*entry_ids, 1], bodies))


@given(
    st.data(),
    DIGESTS,
    st.lists(st.tuples(st.integers(0, 3), st.sampled_from([b"", b"a payload", bytes(1100)])), max_size=6),
)
def test_entries_of_a_batch(drawn: st.DataObject, digest: DigestType, entries: list[tuple[int, bytes]]) -> None:
    codec = EntryCodec(7, digest, b"secret")
    bodies = [codec.encode_header(number, -1, 9, payload) + payload for number, payload in entries]
    content = drawn.draw(damaged(b"four" + b"".join(len(body).to_bytes(4, "big") + body for body in bodies)))

    def decoded() -> Any:
        packed = bodies_from(content, 4)[:drawn_count]
        entry_ids = [number for number, _ in entries][: len(packed)]
        found = codec.decode_several(entry_ids, packed)
        assert len(entry_ids) < len(packed) or found == codec.decode_each(entry_ids, tuple(packed))
        return len(packed), found

    drawn_count = drawn.draw(st.none() | st.integers(0, 6))
    same_in_both(decoded)


@given(st.binary(max_size=40), st.integers(0, 45))
@example(b"\0\0\0\2ab\0\0\0\0", 0)
@example(b"\xff\xff\xff\xffab", 0)
def test_bodies_that_are_counted(content: bytes, start: int) -> None:
    same_in_both(lambda: count_in(content, start))


@given(st.binary(max_size=200), st.integers(-9, 210), st.integers(0, 5))
def test_places_of_bodies_that_nobody_looked_at(content: bytes, start: int, count: int) -> None:
    """What is told of them is not believed: nothing outside of their bytes is read."""
    codec = EntryCodec(7, DigestType.CRC32C, b"")
    with using_core("cython"), suppress(struct.error):
        assert codec.decode_several(range(count), Bodies(content, start, count)) == []


@given(st.integers(0, 12_000), st.integers(0, 20))
def test_sums_of_any_size(size: int, cut: int) -> None:
    """Of three parts at once, and of what is left of them."""
    payload = data(12_020, size % 7)[cut : cut + size]
    for digest in (DigestType.CRC32C, DigestType.CRC32):
        codec = EntryCodec(7, digest, b"")
        same_in_both(lambda: codec.encode_header(1, 0, 9, payload))  # noqa: B023 - called at once


# Frames of adds ----------------------------------------------------------------------------------------------------

TEMPLATES = st.builds(
    AddTemplate,
    ledger_id=st.integers(0, 2**63 - 1),
    master_key=st.binary(min_size=20, max_size=20),
    recovery=st.booleans(),
    high_priority=st.booleans(),
)
ENTRIES = st.lists(
    st.tuples(st.integers(0, 2**63 - 1) | st.integers(0, 2**15), IDS, st.binary(max_size=40), PAYLOADS), max_size=6
)


@given(TEMPLATES, ENTRIES)
def test_frames_of_version_2(template: AddTemplate, entries: list[tuple[int, int, bytes, bytes]]) -> None:
    def frames() -> list[Any]:
        encoder = v2.AddPacketEncoder(template)
        return [encoder.encode(*entry) for entry in entries]

    same_in_both(frames)


@given(TEMPLATES, st.sampled_from(list(WriteFlags)), ENTRIES)
def test_frames_of_version_3(
    template: AddTemplate, flags: WriteFlags, entries: list[tuple[int, int, bytes, bytes]]
) -> None:
    flagged = AddTemplate(ledger_id=template.ledger_id, master_key=template.master_key, write_flags=flags)

    def frames() -> list[Any]:
        encoders = v3.AddEncoder(template), v3.AddEncoder(flagged)
        return [encoder.encode(*entry) for entry in entries for encoder in encoders]

    same_in_both(frames)


# Acknowledgements --------------------------------------------------------------------------------------------------


def acknowledgement(version: int, txn_id: int, entry_id: int) -> bytes:
    template = AddTemplate(ledger_id=5, master_key=bytes(20))
    encoder = v2.AddPacketEncoder(template) if version == 2 else v3.AddEncoder(template)
    return encoder.encode(txn_id, entry_id, b"", b"")[1]


@given(
    st.data(),
    st.sampled_from([2, 3]),
    st.lists(st.integers(0, 400), max_size=20, unique=True),
    st.sampled_from([1, 2**40]),
)
def test_chunks_of_acknowledgements(drawn: st.DataObject, version: int, entry_ids: list[int], first_txn: int) -> None:
    frames = {entry_id: acknowledgement(version, first_txn + entry_id, entry_id) for entry_id in entry_ids}
    tokens = [object(), object()]
    known: dict[bytes, Any] = {
        frames[entry_id]: (entry_id, tokens[entry_id % 3 // 2], 1.0, 100 + entry_id)
        for entry_id in entry_ids
        if drawn.draw(st.integers(0, 9))
    }
    chunk = drawn.draw(damaged(b"".join(drawn.draw(st.permutations(list(frames.values()))))))

    def taken() -> Any:
        left = dict(known)
        found, position, size = chunks.taken(chunk, left)
        assert 0 <= position <= len(chunk)
        return found, position, size, left, chunks.runs_of(found)

    same_in_both(taken)


def test_runs_are_of_one_token_each() -> None:
    one, other = object(), object()
    request = AddRequest(1, 2, b"", b"", b"")
    adds: list[Any] = [
        (1, one, 0.0, 1),
        (2, one, 0.0, 1),
        (3, other, 0.0, 1),
        (request, other, 0.0, 1),
        (4, other, 0.0, 1),
        (5, one, 0.0, 1),
    ]
    runs = same_in_both(lambda: chunks.runs_of(adds))
    assert runs == [(one, [1, 2]), (other, [3]), (other, request), (other, [4]), (one, [5])]


# Answers to reads --------------------------------------------------------------------------------------------------


def field(number: bytes, content: bytes) -> bytes:
    return number + varint(len(content)) + content


def answer(version: int, match: bytes, entry_id: int, body: bytes, rest: bytes) -> bytes:
    """The good answer to a read."""
    if version == 2:
        content = b"\x02\x02\x00\x00\x00\x00\x00\x00" + match[1:] + body
    else:
        message = b"\x08\x00\x10" + varint(5) + b"\x18" + varint(entry_id) + field(b"\x22", body) + rest
        content = match + b"\x10\x00" + field(b"\xa2\x06", message)
    return len(content).to_bytes(4, "big") + content


RESTS = st.sampled_from(
    [
        b"",
        b"",
        b"\x28\x05",
        b"\x28" + varint(-1),
        b"\x28\x85",
        b"\x30\x01",
        b"\x28\x01\x30\x01",
        b"\x28" + b"\x80" * 9 + b"\x02",
    ]
)
#: Bodies whose length has one byte, two, three and four.
BODIES = st.sampled_from([b"", b"body", bytes(127), bytes(128), bytes(16_000), bytes(2**14), bytes(2**21 - 200)])


@settings(max_examples=150)
@given(
    st.data(), st.sampled_from([2, 3]), st.lists(st.integers(0, 300), max_size=8, unique=True), st.integers(20, 2**22)
)
def test_chunks_of_entries(drawn: st.DataObject, version: int, entry_ids: list[int], max_content: int) -> None:
    encoder = ReadPacketEncoder(5) if version == 2 else ReadEncoder(5)
    tokens = [object(), object()]
    known: dict[bytes, Any] = {}
    frames = []
    for entry_id in entry_ids:
        frame, match, start = encoder.encode(300 - entry_id, entry_id)
        if drawn.draw(st.integers(0, 9)):
            known[match] = (start, entry_id, tokens[entry_id % 3 // 2], 1.0, len(frame), 5)
        frames.append(drawn.draw(damaged(answer(version, match, entry_id, drawn.draw(BODIES), drawn.draw(RESTS)))))
    data = b"".join(frames)

    def found() -> Any:
        left = dict(known)
        bodies, position, count, size = chunks.bodies_in(data, left, version, max_content)
        assert 0 <= position <= len(data)
        return bodies, position, count, size, left

    same_in_both(found)


@given(
    st.sampled_from([2, 3]),
    st.lists(st.sampled_from([b"\x80", b"\xff", b"\x00", b"\x01", b"\x85", b"\x22", b"\x08", b"\x28"]), max_size=24),
)
@example(3, [b"\x80", b"\x80", b"\x80", b"\x08"])
@example(3, [b"\x8e", b"\x00", b"\x08", b"\x00", b"\x10", b"\x05", b"\x18", b"\x07", b"\x22", b"\x80"])
def test_lengths_that_lead_nowhere(version: int, rest: list[bytes]) -> None:
    """What stands behind the match bytes of a read is arbitrary: no byte beyond the frame is looked at."""
    encoder = ReadPacketEncoder(5) if version == 2 else ReadEncoder(5)
    _, match, start = encoder.encode(9, 7)
    content = (b"\x02\x02" + bytes(6) + match[1:] if version == 2 else match + b"\x10\x00\xa2\x06") + b"".join(rest)
    data = len(content).to_bytes(4, "big") + content
    for end in range(len(data) + 1):
        known: dict[bytes, Any] = {match: (start, 7, None, 1.0, 20, 5)}
        same_in_both(lambda: chunks.bodies_in(data[:end], dict(known), version, 2**20))  # noqa: B023 - called at once


def test_a_good_answer_is_found_by_both() -> None:
    for version, encoder in ((2, ReadPacketEncoder(5)), (3, ReadEncoder(5))):
        _, match, start = encoder.encode(9, 7)
        known: dict[bytes, Any] = {match: (start, 7, "token", 1.0, 20, 5)}
        data = answer(version, match, 7, b"body", b"")
        assert v_of(version).decode_response(data[4:])[1] == ReadResponse(Status.OK, 5, 7, b"body")
        found = same_in_both(lambda: chunks.bodies_in(data, dict(known), version, 2**20))  # noqa: B023 - called at once
        assert found == ([("token", [(7, b"body", None)])], len(data), 1, 20)


def v_of(version: int) -> Any:
    return v2 if version == 2 else v3

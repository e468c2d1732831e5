"""The bytes of a journal: each kind of record, padding, headers of all versions, and what cannot be read."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simbookie.storage.disk.simulated import SimulatedDisk
from simbookie.storage.journal.reader import JournalScan, ScanEnd
from simbookie.storage.journal.records import (
    LENGTH,
    JournalFormatError,
    JournalRecord,
    JournalRecordKind,
    explicit_lac_body,
    fence_body,
    file_id_of,
    file_name,
    header,
    key_body,
    padding,
    parse_body,
    version_of_header,
)
from tests.simbookie.storage.stores import entry


def record(body: bytes) -> bytes:
    return LENGTH.pack(len(body)) + body


def scanned(content: bytes, position: int = 0) -> tuple[list[bytes], JournalScan]:
    file = SimulatedDisk().create("1.txn")
    file.write(0, content)
    scan = JournalScan(file, position)
    return [body for _, body in scan], scan


def test_the_bytes_of_each_record() -> None:
    assert key_body(5, b"secret") == struct.pack(">qqi", 5, -4096, 6) + b"secret"
    assert fence_body(5) == struct.pack(">qq", 5, -8192)
    assert explicit_lac_body(5, b"packet") == struct.pack(">qqi", 5, -32768, 6) + b"packet"
    assert header(6) == b"BKLG\0\0\0\x06" + bytes(504)
    assert header(4) == b"BKLG\0\0\0\x04"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (entry(5, 3, b"x"), JournalRecord(JournalRecordKind.ENTRY, 5, 3, entry(5, 3, b"x"))),
        (key_body(5, b"secret"), JournalRecord(JournalRecordKind.KEY, 5, -4096, b"secret")),
        (fence_body(5), JournalRecord(JournalRecordKind.FENCE, 5, -8192, b"")),
        (explicit_lac_body(5, b"packet"), JournalRecord(JournalRecordKind.EXPLICIT_LAC, 5, -32768, b"packet")),
        (struct.pack(">qq", 5, -99) + b"new", JournalRecord(JournalRecordKind.UNKNOWN, 5, -99, b"new")),
    ],
)
def test_bodies_are_parsed(body: bytes, expected: JournalRecord) -> None:
    assert parse_body(body, 6) == expected


@pytest.mark.parametrize(
    ("body", "since"), [(key_body(1, b"k"), 3), (fence_body(1), 4), (explicit_lac_body(1, b"p"), 6)]
)
def test_a_record_that_is_newer_than_its_file_is_an_error(body: bytes, since: int) -> None:
    assert parse_body(body, since).ledger_id == 1
    with pytest.raises(JournalFormatError, match=f"version {since - 1}"):
        parse_body(body, since - 1)


@pytest.mark.parametrize(
    "body",
    [b"", bytes(15), key_body(1, b"secret")[:-1], key_body(1, b"")[:-1], struct.pack(">qqi", 1, -4096, -1)],
)
def test_a_body_that_is_cut_short_is_an_error(body: bytes) -> None:
    with pytest.raises(JournalFormatError):
        parse_body(body, 6)


@pytest.mark.parametrize("version", [0, 7, -1])
def test_versions_from_elsewhere_are_errors(version: int) -> None:
    with pytest.raises(JournalFormatError, match=f"version {version}"):
        version_of_header(struct.pack(">4si", b"BKLG", version))


@pytest.mark.parametrize("version", [1, 2, 3, 4, 5, 6])
def test_files_of_every_version_are_read(version: int) -> None:
    head = {1: b"", 2: header(2)[:8], 3: header(3)[:8], 4: header(4), 5: header(5), 6: header(6)}[version]
    bodies, scan = scanned(head + record(entry(1, 0)) + record(entry(1, 1)))
    assert (bodies, scan.version, scan.end) == ([entry(1, 0), entry(1, 1)], version, ScanEnd.END_OF_FILE)


def test_names_of_files() -> None:
    assert file_name(0x1F0) == "1f0.txn"
    assert file_id_of("1f0.txn") == 0x1F0
    assert [file_id_of(name) for name in ("1f0.log", "lastMark", "x.txn", ".txn", "1.2.txn")] == [None] * 5


@given(position=st.integers(0, 20_000), alignment=st.sampled_from([512, 1_024, 4_096]))
def test_padding_ends_at_the_alignment_and_is_skipped(position: int, alignment: int) -> None:
    pad = padding(position, alignment)
    assert (position + len(pad)) % alignment == 0
    assert (len(pad) == 0) == (position % alignment == 0)
    assert len(pad) < alignment + 8
    if pad:
        assert pad[:8] == struct.pack(">ii", -0x100, len(pad) - 8)
        bodies, scan = scanned(header(6) + pad + record(entry(1, 0)))
        assert bodies == [entry(1, 0)]
        assert scan.position == 512 + len(pad) + 36


@pytest.mark.parametrize(("left", "size"), [(9, 9), (8, 8), (7, 519), (1, 513)])
def test_where_its_head_does_not_fit_padding_goes_on_into_the_next_block(left: int, size: int) -> None:
    assert len(padding(1_024 - left, 512)) == size


# ------------------------------------------------------------------------------------------------------ where it ends


def test_a_scan_tells_where_records_are() -> None:
    file = SimulatedDisk().create("1.txn")
    file.write(0, header(6) + record(entry(1, 0)) + padding(548, 512) + record(entry(1, 1)))
    assert list(JournalScan(file)) == [(512, entry(1, 0)), (1_024, entry(1, 1))]
    assert list(JournalScan(file, 548)) == [(1_024, entry(1, 1))]


@pytest.mark.parametrize(
    ("rest", "end", "position"),
    [
        (b"", ScanEnd.END_OF_FILE, 548),
        (bytes(100), ScanEnd.ZERO_LENGTH, 552),
        (b"\0\0", ScanEnd.SHORT_RECORD, 550),
        (record(entry(1, 1))[:-1], ScanEnd.SHORT_RECORD, 583),
        (LENGTH.pack(1 << 30) + b"x", ScanEnd.SHORT_RECORD, 553),
        (LENGTH.pack(-0x100), ScanEnd.SHORT_RECORD, 552),
        (LENGTH.pack(-0x100) + LENGTH.pack(9) + bytes(8), ScanEnd.SHORT_RECORD, 564),
    ],
)
def test_a_torn_tail_ends_a_scan_quietly(rest: bytes, end: ScanEnd, position: int) -> None:
    bodies, scan = scanned(header(6) + record(entry(1, 0)) + rest)
    assert (bodies, scan.end, scan.position) == ([entry(1, 0)], end, position)


def test_a_padding_of_no_length_is_skipped() -> None:
    assert scanned(header(6) + LENGTH.pack(-0x100) + LENGTH.pack(0) + record(entry(1, 0)))[0] == [entry(1, 0)]


@pytest.mark.parametrize("junk", [LENGTH.pack(-1), LENGTH.pack(-0x100) + LENGTH.pack(-5)])
def test_a_negative_length_is_an_error(junk: bytes) -> None:
    with pytest.raises(JournalFormatError, match="at 548"):
        scanned(header(6) + record(entry(1, 0)) + junk + bytes(50))


def test_before_version_5_there_is_no_padding() -> None:
    with pytest.raises(JournalFormatError):
        scanned(header(4) + padding(8, 512))


def test_a_mark_behind_the_end_is_an_end() -> None:
    bodies, scan = scanned(header(6), 5_000)
    assert (bodies, scan.position, scan.end) == ([], 5_000, ScanEnd.END_OF_FILE)


def test_records_larger_than_what_is_read_at_a_time_are_whole() -> None:
    bodies = [entry(1, number, bytes([number]) * 700_000) for number in range(3)]
    assert scanned(header(6) + b"".join(map(record, bodies)))[0] == bodies

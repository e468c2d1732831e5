"""The bytes of entry logs: header, ledgers map, locations, names. Real tools read them in other tests."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simbookie.storage.entry_logs.format import (
    HEADER_SIZE,
    LOG_ID_MAX,
    MAP_BATCH_MAX,
    EntryLogDamaged,
    EntryLogHeader,
    compacted_ids,
    decode_last_id,
    encode_last_id,
    encode_ledgers_map,
    id_after,
    last_id_in,
    location_of,
    log_id_of,
    log_ids,
    log_name,
    parse_map_record,
    position_of,
)

LEDGER_IDS = st.integers(0, (1 << 63) - 1)


def test_the_header_is_a_mark_a_version_where_the_map_is_and_how_many_ledgers_in_1024_bytes() -> None:
    header = EntryLogHeader(map_offset=0x0102, ledger_count=3)
    data = header.encode()
    assert len(data) == HEADER_SIZE
    assert data[:20] == bytes.fromhex("424b4c4f 00000001 0000000000000102 00000003")
    assert not any(data[20:])
    assert EntryLogHeader.decode(data) == EntryLogHeader.decode(data[:20]) == header


@pytest.mark.parametrize("data", [b"", b"BKLO" + bytes(15), b"BKLE" + bytes(1020)])
def test_what_is_no_header_is_refused(data: bytes) -> None:
    with pytest.raises(EntryLogDamaged):
        EntryLogHeader.decode(data)


def test_a_log_has_a_map_once_the_header_says_where_and_not_in_the_version_before() -> None:
    assert not EntryLogHeader().has_map
    assert EntryLogHeader(map_offset=2000).has_map
    assert not EntryLogHeader(map_offset=2000, version=0).has_map


def test_the_ledgers_map_is_a_record_of_an_entry_that_does_not_exist() -> None:
    assert encode_ledgers_map({7: 100}) == struct.pack(">iqqiqq", 4 + 8 + 8 + 16 + 0, -1, -2, 1, 7, 100)
    assert encode_ledgers_map({}) == b""


@given(st.dictionaries(LEDGER_IDS, st.integers(1, 1 << 40), max_size=20))
def test_a_ledgers_map_is_read_as_it_was_written(sizes: dict[int, int]) -> None:
    data = encode_ledgers_map(sizes)
    assert dict(parse_map_record(data) if data else []) == sizes


def test_ten_thousand_ledgers_fill_a_record_of_the_map() -> None:
    data = encode_ledgers_map(dict.fromkeys(range(MAP_BATCH_MAX + 1), 1))
    first = 4 + struct.unpack(">i", data[:4])[0]
    assert len(parse_map_record(data[:first])) == MAP_BATCH_MAX
    assert parse_map_record(data[first:]) == [(MAP_BATCH_MAX, 1)]


def damaged(offset: int, data: bytes) -> bytes:
    whole = bytearray(encode_ledgers_map({7: 100, 8: 1}))
    whole[offset : offset + len(data)] = data
    return bytes(whole)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        damaged(0, struct.pack(">i", 51)),
        damaged(4, struct.pack(">q", 1)),
        damaged(12, struct.pack(">q", -1)),
        damaged(20, struct.pack(">i", 1)),
        damaged(20, struct.pack(">i", -1)),
        damaged(0, b"") + b"x",
        damaged(0, b"")[:-1],
    ],
)
def test_what_is_no_record_of_the_map_is_refused(data: bytes) -> None:
    with pytest.raises(EntryLogDamaged):
        parse_map_record(data)


@given(st.integers(0, LOG_ID_MAX), st.integers(HEADER_SIZE + 4, (1 << 31) - 1))
def test_a_location_is_a_log_and_a_position(log_id: int, position: int) -> None:
    location = location_of(log_id, position)
    assert 0 < location < 1 << 63
    assert (log_id_of(location), position_of(location)) == (log_id, position)


def test_a_location_is_laid_out_in_two_halves() -> None:
    assert location_of(0x12, 0x400) == 0x12_0000_0400


def test_files_are_named_in_hexadecimal() -> None:
    assert log_name(27) == "1b.log"
    names = ["1b.log", "0.log", "1b.log.compacting", "1c.log.a.compacted", "lastId", "x.log", ".log", "1.log.log"]
    assert log_ids(names) == [0, 27]
    assert compacted_ids(names) == [28]


@pytest.mark.parametrize(
    ("data", "log_id"),
    [(encode_last_id(27), 27), (b"1b\n", 27), (b"1b", 27), (b"1B\r\n", 27), (b"", None), (b"\n", None), (b"x\n", None)],
)
def test_the_last_id_is_read_as_it_was_written_or_not_at_all(data: bytes, log_id: int | None) -> None:
    assert decode_last_id(data) == log_id


@pytest.mark.parametrize(
    ("ids", "last"),
    [
        ([], -1),
        ([0], 0),
        ([5, 3, 4], 5),
        ([LOG_ID_MAX - 2, LOG_ID_MAX - 1], -1),
        ([0, 1, 2, LOG_ID_MAX - 1], 2),
        ([1_500_000_000, 1_500_000_001], -1),
    ],
)
def test_the_last_id_of_a_folder_is_the_one_with_the_most_room_after_it(ids: list[int], last: int) -> None:
    assert last_id_in(ids) == last


def test_ids_wrap_around() -> None:
    assert id_after(LOG_ID_MAX - 1) == LOG_ID_MAX
    assert id_after(LOG_ID_MAX) == id_after(-1) == 0

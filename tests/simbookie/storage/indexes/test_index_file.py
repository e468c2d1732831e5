"""The bytes of index files: header, names, positions. Real tools read them in other tests."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simbookie.storage.indexes.index_file import (
    HEADER_SIZE,
    PAGE_SIZE,
    PAGE_SLOTS,
    HeaderFull,
    IndexDamaged,
    IndexHeader,
    index_name,
    ledger_of,
    page_position,
)


def test_the_header_is_a_mark_a_version_the_key_the_state_and_the_explicit_lac() -> None:
    data = IndexHeader(b"key", fenced=True, explicit_lac=b"l" * 16).encode()
    assert len(data) == HEADER_SIZE
    assert data[:35] == b"BKLE" + struct.pack(">ii3sii", 1, 3, b"key", 1, 16) + b"l" * 12
    assert not any(data[39:])
    assert IndexHeader(b"key", in_limbo=True).encode()[15:23] == struct.pack(">ii", 2, 0)


HEADERS = st.builds(
    IndexHeader,
    st.none() | st.binary(min_size=1, max_size=200),
    st.booleans(),
    st.booleans(),
    st.none() | st.binary(min_size=16, max_size=200),
)


@given(HEADERS)
def test_a_header_is_read_as_it_was_written(header: IndexHeader) -> None:
    assert IndexHeader.decode(header.encode()) == header


def test_the_version_before_has_no_explicit_lac() -> None:
    old = IndexHeader(b"key", fenced=True, explicit_lac=b"l" * 16, version=0)
    assert old.encode()[15:].rstrip(b"\0") == b"\0\0\0\x01"
    assert IndexHeader.decode(old.encode()) == IndexHeader(b"key", fenced=True, version=0)


def test_a_key_and_an_explicit_lac_share_the_header() -> None:
    assert len(IndexHeader(b"k" * 504, explicit_lac=b"l" * 500).encode()) == HEADER_SIZE
    with pytest.raises(HeaderFull):
        IndexHeader(b"k" * 505, explicit_lac=b"l" * 500).encode()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"BKLE" + bytes(7),
        b"BKLO" + bytes(1020),
        b"BKLE" + struct.pack(">ii", 2, 0) + bytes(1012),
        b"BKLE" + struct.pack(">ii", 1, -1) + bytes(1012),
        b"BKLE" + struct.pack(">ii", 1, 1013) + bytes(1012),
        b"BKLE" + struct.pack(">iiii", 1, 0, 0, 15) + bytes(1004),
        b"BKLE" + struct.pack(">iiii", 1, 0, 0, -1) + bytes(1004),
        IndexHeader(b"key", explicit_lac=b"l" * 16).encode()[:38],
    ],
)
def test_what_is_no_header_is_refused(data: bytes) -> None:
    with pytest.raises(IndexDamaged):
        IndexHeader.decode(data)


@pytest.mark.parametrize(
    ("ledger_id", "name"), [(0, "0/0/0.idx"), (1, "0/1/1.idx"), (0x12AB34, "ab/34/12ab34.idx"), (0xFFF, "f/ff/fff.idx")]
)
def test_files_are_in_folders_named_by_the_last_two_bytes_of_the_ledger(ledger_id: int, name: str) -> None:
    assert index_name(ledger_id) == name
    assert ledger_of(name.rpartition("/")[2]) == ledger_id


@pytest.mark.parametrize("name", ["x.idx", ".idx", "1.idx.rloc", "1.log", "12345678901234567.idx"])
def test_other_files_are_no_index(name: str) -> None:
    assert ledger_of(name) is None


def test_a_page_holds_1024_locations_behind_the_header() -> None:
    assert (PAGE_SLOTS, PAGE_SIZE) == (1024, 8192)
    assert page_position(0) == 1024
    assert page_position(1024) == 1024 + 8192

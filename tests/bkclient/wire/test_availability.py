"""The list of stored entries: what Java bookies write, the general form, and damage."""

from __future__ import annotations

import itertools
import struct
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bkclient.wire.availability import EntryAvailability, EntryGroup, decode_availability, encode_availability
from bkclient.wire.errors import MalformedMessage

VECTOR = (
    "0000000000000002"
    + "00" * 56
    + "000000000000000000000000000000000000000300000000"
    + "000000000000000500000000000000050000000200000000"
)


def encoded(*groups: tuple[int, int, int, int], version: int = 0, count: int | None = None) -> bytes:
    header = struct.pack(">ii56x", version, len(groups) if count is None else count)
    return header + b"".join(struct.pack(">qqii", *group) for group in groups)


def test_the_protocols_vector_encodes_and_decodes() -> None:
    assert encode_availability([0, 1, 2, 5, 6]).hex() == VECTOR
    decoded = decode_availability(bytes.fromhex(VECTOR))
    assert list(decoded) == [0, 1, 2, 5, 6]
    assert decoded.count == 5


def test_no_entries_are_a_header_alone() -> None:
    assert encode_availability([]) == bytes(64)
    assert decode_availability(bytes(64)) == EntryAvailability(())
    assert 0 not in decode_availability(bytes(64))


@settings(deadline=None)
@given(st.sets(st.integers(0, 60) | st.integers(2**62, 2**62 + 20)))
def test_what_was_encoded_is_contained_and_nothing_else(ids: set[int]) -> None:
    decoded = decode_availability(encode_availability(sorted(ids)))
    assert list(decoded) == sorted(ids)
    assert decoded.count == len(ids)
    for entry_id in (*range(62), *range(2**62 - 2, 2**62 + 22)):
        assert (entry_id in decoded) == (entry_id in ids)


def test_a_periodic_group_stands_for_all_its_runs() -> None:
    decoded = decode_availability(encoded((10, 30, 2, 10), (40, 40, 1, 0)))
    assert list(decoded) == [10, 11, 20, 21, 30, 31, 40]
    assert [entry_id for entry_id in range(50) if entry_id in decoded] == [10, 11, 20, 21, 30, 31, 40]


def test_a_group_with_more_ids_than_memory_costs_nothing_until_iterated() -> None:
    decoded = decode_availability(encoded((0, 2**63 - 2, 1, 1)))
    assert decoded.count == 2**63 - 1
    assert 2**62 in decoded
    assert list(itertools.islice(decoded, 3)) == [0, 1, 2]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        bytes(63),
        bytes(65),
        encoded(version=1),
        encoded(count=1),
        encoded(count=-1),
        encoded((0, 0, 1, 0), count=2),
        encoded((0, 0, 1, 0), count=2**31 - 1),
        encoded((0, 0, 0, 0)),
        encoded((0, 0, -1, 0)),
        encoded((-1, -1, 1, 0)),
        encoded((5, 4, 1, 1)),
        encoded((0, 5, 1, 0)),
        encoded((0, 5, 1, 2)),
        encoded((0, 4, 3, 2)),
        encoded((0, 4, 1, -2)),
        encoded((5, 5, 1, 0), (4, 4, 1, 0)),
        encoded((5, 5, 2, 0), (6, 6, 1, 0)),
    ],
)
def test_damaged_lists_are_malformed(data: bytes) -> None:
    with pytest.raises(MalformedMessage):
        decode_availability(data)


@settings(deadline=None)
@given(st.binary(max_size=160))
def test_random_bytes_decode_or_are_malformed(data: bytes) -> None:
    with suppress(MalformedMessage):
        decode_availability(data)
    with suppress(MalformedMessage):
        decode_availability(struct.pack(">ii56x", 0, len(data) // 24) + data[: len(data) // 24 * 24])


@pytest.mark.parametrize("ids", [[1, 1], [2, 1], [-1]])
def test_ids_that_do_not_ascend_cannot_be_encoded(ids: list[int]) -> None:
    with pytest.raises(ValueError, match="ascend"):
        encode_availability(ids)


def test_a_group_counts_its_ids() -> None:
    assert EntryGroup(0, 0, 5, 0).count == 5
    assert EntryGroup(0, 20, 2, 10).count == 6

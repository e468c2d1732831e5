"""Cutting input into entries and writing entries out: every framing, every cut, every limit."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bkclient import Entry
from bkclient.cli.framing import Framing, OutputFormat, formatter, splitter
from bkclient.errors import ArgumentError

LIMIT = 100


def cut(framing: Framing, *chunks: bytes, limit: int = LIMIT) -> list[bytes]:
    splitting = splitter(framing, limit)
    found = [payload for chunk in chunks for payload in splitting.feed(chunk)]
    return [*found, *splitting.end()]


def entry(payload: bytes, entry_id: int = 3) -> Entry:
    return Entry(7, entry_id, payload, 40, 2)


def in_chunks(data: bytes, cuts: list[int]) -> list[bytes]:
    at = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    return [data[start:end] for start, end in pairwise(at)]


@pytest.mark.parametrize(
    ("data", "lines"),
    [
        (b"", []),
        (b"one", [b"one"]),
        (b"one\n", [b"one"]),
        (b"one\ntwo", [b"one", b"two"]),
        (b"\n\n", [b"", b""]),
        (b"one\r\n", [b"one\r"]),
    ],
)
def test_a_line_is_an_entry_whether_or_not_the_last_one_ends(data: bytes, lines: list[bytes]) -> None:
    assert cut(Framing.LINES, data) == lines


def test_the_whole_input_is_one_entry_even_if_it_is_empty() -> None:
    assert cut(Framing.WHOLE, b"a\n", b"b") == [b"a\nb"]
    assert cut(Framing.WHOLE) == [b""]


@given(payloads=st.lists(st.binary(max_size=20)), cuts=st.lists(st.integers(0, 200)))
def test_length_prefixed_output_is_length_prefixed_input_however_it_is_cut(
    payloads: list[bytes], cuts: list[int]
) -> None:
    data = b"".join(map(formatter(OutputFormat.LENGTH_PREFIXED), map(entry, payloads)))

    assert cut(Framing.LENGTH_PREFIXED, *in_chunks(data, cuts)) == payloads


@given(
    payloads=st.lists(st.binary(max_size=20).filter(lambda data: b"\n" not in data)), cuts=st.lists(st.integers(0, 200))
)
def test_lines_that_were_written_are_the_lines_that_are_read_however_they_are_cut(
    payloads: list[bytes], cuts: list[int]
) -> None:
    data = b"".join(map(formatter(OutputFormat.LINES), map(entry, payloads)))

    assert cut(Framing.LINES, *in_chunks(data, cuts)) == payloads


@pytest.mark.parametrize(
    ("framing", "fits", "too_large", "named"),
    [
        (Framing.LINES, b"x" * LIMIT, b"x" * (LIMIT + 1), "line 1"),
        (Framing.LINES, b"a\n" + b"x" * LIMIT + b"\n", b"a\n" + b"x" * (LIMIT + 1) + b"\n", "line 2"),
        (Framing.WHOLE, b"x" * LIMIT, b"x" * (LIMIT + 1), "the input"),
        (Framing.LENGTH_PREFIXED, b"\0\0\0\x64" + b"x" * LIMIT, b"\0\0\0\x65", "record 1"),
    ],
)
def test_an_entry_over_the_limit_is_refused_and_named(
    framing: Framing, fits: bytes, too_large: bytes, named: str
) -> None:
    cut(framing, fits)
    with pytest.raises(ArgumentError, match=f"{named} is larger than the largest entry, 100 bytes"):
        cut(framing, too_large)


def test_a_line_that_does_not_end_is_refused_before_it_is_read_whole() -> None:
    splitting = splitter(Framing.LINES, LIMIT)
    list(splitting.feed(b"x" * LIMIT))
    with pytest.raises(ArgumentError):
        list(splitting.feed(b"x"))


@pytest.mark.parametrize("data", [b"\0", b"\0\0\0\2x", b"\0\0\0\0\0\0\0\1"])
def test_input_that_ends_within_a_record_is_refused(data: bytes) -> None:
    with pytest.raises(ArgumentError, match="in the middle of record"):
        cut(Framing.LENGTH_PREFIXED, data)


def test_entries_are_shown_in_hex_and_json() -> None:
    assert formatter(OutputFormat.RAW)(entry(b"a\xff\n")) == b"a\xff\n"
    assert formatter(OutputFormat.HEX)(entry(b"a\xff")) == b"3 61ff\n"
    assert json.loads(formatter(OutputFormat.JSON)(entry(b"a\xff"))) == {
        "ledgerId": 7,
        "entryId": 3,
        "length": 40,
        "lastAddConfirmed": 2,
        "payload": "Yf8=",
    }

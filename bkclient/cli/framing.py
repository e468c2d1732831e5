"""How entries look outside of a ledger: what is read from standard input, what is written to standard output.

Three framings, each the same in both directions, so that what ``read`` prints ``append`` takes:

* *lines*: an entry is a line, without its line feed. An entry that holds a line feed cannot be told from two entries;
* *length-prefixed*: four bytes, big endian, say how many bytes of entry follow. Any entry survives;
* *whole* (input) and *raw* (output): no framing; all of the input is one entry, entries are written back to back.

``hex`` and ``json`` are for looking at entries.
"""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import Final, Protocol

from bkclient import Entry
from bkclient.errors import ArgumentError

__all__ = ["Framing", "OutputFormat", "Splitter", "formatter", "splitter"]

_PREFIX: Final = struct.Struct(">I")


class Framing(StrEnum):
    """How standard input is cut into entries."""

    LINES = "lines"
    LENGTH_PREFIXED = "length-prefixed"
    WHOLE = "whole"


class OutputFormat(StrEnum):
    """How entries are written to standard output."""

    LINES = "lines"
    RAW = "raw"
    LENGTH_PREFIXED = "length-prefixed"
    HEX = "hex"
    JSON = "json"


class Splitter(Protocol):
    """Cuts a stream into entries."""

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The entries that ``data`` completes."""
        ...

    def end(self) -> Iterator[bytes]:
        """The entries that the end of the stream completes; :class:`~bkclient.errors.ArgumentError` in the middle of one."""
        ...


def splitter(framing: Framing, max_entry_bytes: int) -> Splitter:
    """A splitter for ``framing`` which keeps no more than one entry of ``max_entry_bytes``.

    Larger ones raise :class:`~bkclient.errors.ArgumentError`, before they are read whole.
    """
    if framing is Framing.LINES:
        return _Lines(max_entry_bytes)
    if framing is Framing.LENGTH_PREFIXED:
        return _LengthPrefixed(max_entry_bytes)
    return _Whole(max_entry_bytes)


def _too_large(what: str, max_entry_bytes: int) -> ArgumentError:
    return ArgumentError(f"{what} is larger than the largest entry, {max_entry_bytes} bytes")


class _Lines:
    def __init__(self, max_entry_bytes: int) -> None:
        self._max = max_entry_bytes
        self._rest: list[bytes] = []
        self._rest_bytes = 0
        self._number = 1

    def feed(self, data: bytes) -> Iterator[bytes]:
        *lines, rest = data.split(b"\n")
        for line in lines:
            whole = b"".join((*self._rest, line)) if self._rest else line
            self._rest.clear()
            self._rest_bytes = 0
            self._check(len(whole))
            self._number += 1
            yield whole
        if rest:
            self._rest.append(rest)
            self._rest_bytes += len(rest)
            self._check(self._rest_bytes)

    def end(self) -> Iterator[bytes]:
        if self._rest:
            yield b"".join(self._rest)

    def _check(self, size: int) -> None:
        if size > self._max:
            raise _too_large(f"line {self._number}", self._max)


class _LengthPrefixed:
    def __init__(self, max_entry_bytes: int) -> None:
        self._max = max_entry_bytes
        self._buffer = bytearray()
        self._number = 1

    def feed(self, data: bytes) -> Iterator[bytes]:
        self._buffer += data
        start = 0
        while len(self._buffer) - start >= _PREFIX.size:
            (size,) = _PREFIX.unpack_from(self._buffer, start)
            if size > self._max:
                raise _too_large(f"record {self._number}", self._max)
            end = start + _PREFIX.size + size
            if len(self._buffer) < end:
                break
            yield bytes(self._buffer[start + _PREFIX.size : end])
            self._number += 1
            start = end
        del self._buffer[:start]

    def end(self) -> Iterator[bytes]:
        if self._buffer:
            raise ArgumentError(f"the input ends in the middle of record {self._number}")
        yield from ()


class _Whole:
    def __init__(self, max_entry_bytes: int) -> None:
        self._max = max_entry_bytes
        self._chunks: list[bytes] = []
        self._bytes = 0

    def feed(self, data: bytes) -> Iterator[bytes]:
        self._chunks.append(data)
        self._bytes += len(data)
        if self._bytes > self._max:
            raise _too_large("the input", self._max)
        yield from ()

    def end(self) -> Iterator[bytes]:
        yield b"".join(self._chunks)


def formatter(output: OutputFormat) -> Callable[[Entry], bytes]:
    """The function that writes an entry in ``output``."""
    return _FORMATTERS[output]


def _as_line(entry: Entry) -> bytes:
    return entry.payload + b"\n"


def _as_raw(entry: Entry) -> bytes:
    return entry.payload


def _as_length_prefixed(entry: Entry) -> bytes:
    return _PREFIX.pack(len(entry.payload)) + entry.payload


def _as_hex(entry: Entry) -> bytes:
    return f"{entry.entry_id} {entry.payload.hex()}\n".encode()


def _as_json(entry: Entry) -> bytes:
    value = {
        "ledgerId": entry.ledger_id,
        "entryId": entry.entry_id,
        "length": entry.ledger_length,
        "lastAddConfirmed": entry.last_add_confirmed,
        "payload": base64.b64encode(entry.payload).decode("ascii"),
    }
    return json.dumps(value).encode() + b"\n"


_FORMATTERS: Final[dict[OutputFormat, Callable[[Entry], bytes]]] = {
    OutputFormat.LINES: _as_line,
    OutputFormat.RAW: _as_raw,
    OutputFormat.LENGTH_PREFIXED: _as_length_prefixed,
    OutputFormat.HEX: _as_hex,
    OutputFormat.JSON: _as_json,
}

"""What a cursor remembers: which entries of a log are acknowledged, as a value with a codec.

A cursor has a *position*, the first entry that is not acknowledged: everything before it is. Entries beyond it that were
acknowledged one by one are ranges, per ledger; entries of which some messages were, are bitmaps. Ranges that the position
reaches become part of what is before it.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from typing import Any, Final

import msgpack

from bkclient.errors import MetadataSerializationError, TooManyRequests
from bkclient.log.format.entry import BATCH_MESSAGES_MAX
from bkclient.log.machine.manifest import LogManifest

__all__ = ["MAX_CURSOR_BYTES", "MAX_HOLES", "CursorState", "decode_cursor", "encode_cursor"]

MAX_HOLES: Final = 10_000
"""Ranges and bitmaps of one cursor, as in Pulsar's brokers."""
MAX_CURSOR_BYTES: Final = 1_000_000
_VERSION: Final = 1

Range = list[int]


@dataclass(slots=True)
class CursorState:
    """A cursor of the log ``log_id``, moved by the opening ``holder``. ``ranges`` are ``[first, last]``, ascending and apart."""

    log_id: str
    holder: str
    ledger_id: int
    entry_id: int
    ranges: dict[int, list[Range]] = field(default_factory=dict)
    #: By ledger and entry, the number of messages of an entry, and a bit for each that is acknowledged.
    partial: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict)

    @classmethod
    def removed(cls) -> CursorState:
        """What is stored in the place of a cursor that was removed, so that its versions do not begin anew."""
        return cls("", "", -1, 0)

    @property
    def is_removed(self) -> bool:
        """Whether there is no such cursor any more."""
        return not self.holder

    @property
    def holes(self) -> int:
        """How many ranges and bitmaps there are."""
        return sum(map(len, self.ranges.values())) + len(self.partial)

    def is_acknowledged(self, ledger_id: int, entry_id: int, batch_index: int = -1) -> bool:
        """Whether a message is acknowledged; without an index, whether its whole entry is."""
        if (ledger_id, entry_id) < (self.ledger_id, self.entry_id):
            return True
        if ranges := self.ranges.get(ledger_id):
            index = bisect_right(ranges, entry_id, key=_first) - 1
            if index >= 0 and entry_id <= ranges[index][1]:
                return True
        found = self.partial.get((ledger_id, entry_id))
        return found is not None and batch_index >= 0 and bool(found[1] >> batch_index & 1)

    def backlog_in(self, ledger_id: int, last_entry_id: int) -> int:
        """How many entries of a ledger that ends with ``last_entry_id`` are not acknowledged."""
        if ledger_id < self.ledger_id:
            return 0
        first = self.entry_id if ledger_id == self.ledger_id else 0
        acknowledged = sum(last - start + 1 for start, last in self.ranges.get(ledger_id, ()))
        return max(last_entry_id + 1 - first - acknowledged, 0)

    def acknowledge(self, ledger_id: int, entry_id: int, batch_index: int = -1, batch_size: int = 1) -> None:
        """Acknowledge one message of an entry of ``batch_size``; with an index of -1 all of it.

        :class:`~bkclient.errors.TooManyRequests` if that is one hole too many; nothing is acknowledged then.
        """
        if self.is_acknowledged(ledger_id, entry_id, batch_index):
            return
        key = (ledger_id, entry_id)
        if key not in self.partial and self.holes >= MAX_HOLES and not self._is_next_to_others(ledger_id, entry_id):
            raise TooManyRequests(
                f"a cursor remembers at most {MAX_HOLES} holes",
                advice=f"Acknowledge what is before them, from {self.ledger_id}:{self.entry_id} on.",
            )
        if batch_index >= 0 and batch_size > 1:
            bits = self.partial.get(key, (batch_size, 0))[1] | 1 << batch_index
            if bits != (1 << batch_size) - 1:
                self.partial[key] = (batch_size, bits)
                return
        self.partial.pop(key, None)
        self._add(ledger_id, entry_id)

    def acknowledge_before(self, ledger_id: int, entry_id: int) -> None:
        """Acknowledge everything before an entry."""
        if (ledger_id, entry_id) > (self.ledger_id, self.entry_id):
            self.ledger_id, self.entry_id = ledger_id, entry_id
            self._forget_what_is_before()

    def settle(self, manifest: LogManifest) -> None:
        """Move the position over what is acknowledged, and over ends of ledgers and ledgers that left the log."""
        while True:
            ranges = self.ranges.get(self.ledger_id)
            if ranges and ranges[0][0] <= self.entry_id:
                self.entry_id = max(self.entry_id, ranges.pop(0)[1] + 1)
                if not ranges:
                    del self.ranges[self.ledger_id]
                continue
            ledger = manifest.ledger(self.ledger_id)
            has_more = ledger is not None and (ledger.end is None or self.entry_id <= ledger.end.last_entry_id)
            following = manifest.first_after(self.ledger_id)
            if has_more or following is None:
                break
            self.ledger_id, self.entry_id = following.ledger_id, 0
        self._forget_what_is_before()

    def _forget_what_is_before(self) -> None:
        here = (self.ledger_id, self.entry_id)
        self.partial = {key: value for key, value in self.partial.items() if key >= here}
        self.ranges = {
            ledger_id: kept
            for ledger_id, ranges in self.ranges.items()
            if (kept := [each for each in ranges if (ledger_id, each[1]) >= here])
        }

    def _is_next_to_others(self, ledger_id: int, entry_id: int) -> bool:
        ranges = self.ranges.get(ledger_id, [])
        index = bisect_right(ranges, entry_id, key=_first)
        is_after = index > 0 and ranges[index - 1][1] == entry_id - 1
        is_before = index < len(ranges) and ranges[index][0] == entry_id + 1
        return is_after or is_before or (ledger_id, entry_id) == (self.ledger_id, self.entry_id)

    def _add(self, ledger_id: int, entry_id: int) -> None:
        ranges = self.ranges.setdefault(ledger_id, [])
        index = bisect_right(ranges, entry_id, key=_first)
        ranges.insert(index, [entry_id, entry_id])
        for left in (index, index - 1):
            if 0 <= left < len(ranges) - 1 and ranges[left][1] + 1 == ranges[left + 1][0]:
                ranges[left][1] = ranges.pop(left + 1)[1]


def _first(each: Range) -> int:
    return each[0]


def encode_cursor(state: CursorState) -> bytes:
    """msgpack: ``[1, log id, holder, ledger, entry, {ledger: [first, last, ...]}, [[ledger, entry, messages, bits], ...]]``."""
    ranges = {ledger_id: [edge for each in found for edge in each] for ledger_id, found in state.ranges.items()}
    partial = [[*key, size, bits.to_bytes((size + 7) // 8, "big")] for key, (size, bits) in state.partial.items()]
    data: bytes = msgpack.packb(
        [_VERSION, state.log_id, state.holder, state.ledger_id, state.entry_id, ranges, partial]
    )
    if len(data) > MAX_CURSOR_BYTES:
        raise TooManyRequests(
            f"a cursor has at most {MAX_CURSOR_BYTES} bytes, this one would have {len(data)}",
            advice=f"Acknowledge what is before the holes, from {state.ledger_id}:{state.entry_id} on.",
        )
    return data


def decode_cursor(data: bytes) -> CursorState:
    """The state; :class:`~bkclient.errors.MetadataSerializationError` if the bytes are none that this version knows."""
    try:
        version, *fields = msgpack.unpackb(data, strict_map_key=False)
        if version == _VERSION:
            return _state_from(*fields)
    except (ValueError, TypeError, AttributeError, msgpack.UnpackException) as error:
        raise MetadataSerializationError(f"the record of the cursor is damaged: {error}") from error
    raise MetadataSerializationError(f"the record of the cursor has version {version!r}, known is {_VERSION}")


def _state_from(
    log_id: Any, holder: Any, ledger_id: Any, entry_id: Any, ranges: dict[Any, Any], partial: list[Any]
) -> CursorState:
    if type(log_id) is not str or type(holder) is not str:
        raise ValueError("ids must be texts")
    numbers = [ledger_id, entry_id, *ranges, *(edge for edges in ranges.values() for edge in edges)]
    if any(type(number) is not int for number in numbers):
        raise ValueError("positions must be whole numbers")
    found = {each: [list(edges[i : i + 2]) for i in range(0, len(edges), 2)] for each, edges in ranges.items()}
    for pairs in found.values():
        flat = [edge for pair in pairs for edge in pair]
        if any(len(pair) != 2 for pair in pairs) or flat != sorted(flat):
            raise ValueError("ranges must ascend")
    bitmaps = {}
    for ledger, entry, size, bits in partial:
        if not 0 < size <= BATCH_MESSAGES_MAX or len(bits) != (size + 7) // 8:
            raise ValueError("a bitmap of a wrong size")
        bitmaps[int(ledger), int(entry)] = (int(size), int.from_bytes(bits, "big"))
    return CursorState(log_id, holder, ledger_id, entry_id, found, bitmaps)

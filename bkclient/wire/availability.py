"""Which entries of a ledger a bookie stores, as bookies list them to one another and to auditors.

The encoding is a header of 64 bytes (version 0, number of groups, zeros) and groups of 24 bytes, each standing for runs of
``size`` consecutive ids that start at ``first``, ``first + period``, ... up to ``last``; a period of 0 means one run. A
group of 24 bytes can therefore stand for more ids than memory could hold, so decoding keeps the groups and
answers questions about them; it never lists ids unless asked to.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from bkclient.wire.errors import MalformedMessage

__all__ = [
    "EntryAvailability",
    "EntryGroup",
    "decode_availability",
    "encode_availability",
    "encode_header",
    "encode_runs",
]

_HEADER_SIZE: Final = 64
_HEADER: Final = struct.Struct(">ii")
_GROUP: Final = struct.Struct(">qqii")
_VERSION: Final = 0


@dataclass(frozen=True, slots=True)
class EntryGroup:
    """Runs of ``size`` ids starting at ``first``, ``first + period``, ..., ``last``; one run if ``period`` is 0."""

    first: int
    last: int
    size: int
    period: int

    def __contains__(self, entry_id: int) -> bool:
        if not self.first <= entry_id < self.last + self.size:
            return False
        return self.period == 0 or (entry_id - self.first) % self.period < self.size

    @property
    def count(self) -> int:
        """How many ids there are; more than ``len`` could express, hence no ``__len__``."""
        return self.size if self.period == 0 else ((self.last - self.first) // self.period + 1) * self.size

    def __iter__(self) -> Iterator[int]:
        for start in range(self.first, self.last + 1, self.period or 1):
            yield from range(start, start + self.size)


@dataclass(frozen=True, slots=True)
class EntryAvailability:
    """The entry ids of ``groups``, which ascend and do not overlap. Iteration is lazy and may be very long."""

    groups: tuple[EntryGroup, ...]

    def __contains__(self, entry_id: int) -> bool:
        index = bisect_right(self.groups, entry_id, key=lambda group: group.first)
        return index > 0 and entry_id in self.groups[index - 1]

    def __iter__(self) -> Iterator[int]:
        for group in self.groups:
            yield from group

    @property
    def count(self) -> int:
        """How many entries there are."""
        return sum(group.count for group in self.groups)


def encode_availability(entry_ids: Iterable[int]) -> bytes:
    """The encoding of ``entry_ids``, ascending: one group per run of consecutive ids, as Java bookies write it."""
    runs: list[tuple[int, int]] = []
    first = previous = -1
    for entry_id in entry_ids:
        if entry_id <= previous:
            raise ValueError(f"entry ids must ascend from 0: {entry_id} after {previous}")
        if first < 0:
            first = entry_id
        elif entry_id != previous + 1:
            runs.append((first, previous))
            first = entry_id
        previous = entry_id
    if first >= 0:
        runs.append((first, previous))
    return encode_header(len(runs)) + encode_runs(runs)


def encode_header(groups: int) -> bytes:
    """The header of an encoding with so many groups, which follow it."""
    return _HEADER.pack(_VERSION, groups).ljust(_HEADER_SIZE, b"\0")


def encode_runs(runs: Iterable[tuple[int, int]]) -> bytes:
    """A group for each of ``runs``, which are pairs of first and last id and ascend; may be joined with those of other runs."""
    pack = _GROUP.pack
    return b"".join([pack(first, first, last - first + 1, 0) for first, last in runs])


def decode_availability(data: bytes) -> EntryAvailability:
    """The ids encoded in ``data``; raises :class:`~bkclient.wire.errors.MalformedMessage`."""
    if len(data) < _HEADER_SIZE:
        raise MalformedMessage(f"a list of entries of {len(data)} bytes")
    version, count = _HEADER.unpack_from(data)
    if version != _VERSION:
        raise MalformedMessage(f"a list of entries of the unknown version {version}")
    if count < 0 or len(data) != _HEADER_SIZE + count * _GROUP.size:
        raise MalformedMessage(f"a list of entries with {count} groups in {len(data)} bytes")
    groups: list[EntryGroup] = []
    following = 0
    for fields in _GROUP.iter_unpack(data[_HEADER_SIZE:]):
        group = EntryGroup(*fields)
        if not _is_sound(group) or group.first < following:
            raise MalformedMessage(f"a list of entries with the group {group}, where ids may start at {following}")
        following = group.last + group.size
        groups.append(group)
    return EntryAvailability(tuple(groups))


def _is_sound(group: EntryGroup) -> bool:
    if group.size <= 0 or group.period < 0 or group.last < group.first:
        return False
    if group.period == 0:
        return group.first == group.last
    return group.size <= group.period and (group.last - group.first) % group.period == 0

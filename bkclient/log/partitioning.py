"""Which partition of a log a message belongs to, and where reading begins in each.

A key belongs to the partition that Pulsar's clients choose with their scheme ``Murmur3_32Hash``: MurmurHash3 of 32 bits with
seed 0 over the key as UTF-8, without its sign bit, modulo the number of partitions. So a program that moves messages between the
two finds a key where it expects it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from bkclient.errors import ArgumentError
from bkclient.log.format.message_id import MessageId

__all__ = ["PartitionRouter", "Start", "key_hash", "named_starts_of", "starts_of"]

Start = MessageId | Iterable[MessageId]
"""Where reading begins: a message, or, with partitions, one for each of some of them."""

_MASK: Final = 0xFFFFFFFF
_POSITIVE: Final = 0x7FFFFFFF
_C1: Final = 0xCC9E2D51
_C2: Final = 0x1B873593


def key_hash(key: str) -> int:
    """The hash of a key, from 0 to 2**31 - 1."""
    data = key.encode()
    found = 0
    whole = len(data) & ~3
    for offset in range(0, whole, 4):
        found = _rotated(found ^ _mixed(int.from_bytes(data[offset : offset + 4], "little")), 13)
        found = (found * 5 + 0xE6546B64) & _MASK
    if whole < len(data):
        found ^= _mixed(int.from_bytes(data[whole:], "little"))
    found ^= len(data)
    found = (found ^ found >> 16) * 0x85EBCA6B & _MASK
    found = (found ^ found >> 13) * 0xC2B2AE35 & _MASK
    return (found ^ found >> 16) & _POSITIVE


def _mixed(block: int) -> int:
    return _rotated(block * _C1 & _MASK, 15) * _C2 & _MASK


def _rotated(value: int, bits: int) -> int:
    return (value << bits | value >> 32 - bits) & _MASK


class PartitionRouter:
    """Chooses the partitions of messages: by key, or without one by turns, a batch at a time.

    ``is_empty`` tells whether no message is gathered for a partition. So messages without a key stay with a partition until its
    batch is sent, and batches are as large as those of a log without partitions.
    """

    def __init__(self, partitions: int, is_empty: Callable[[int], bool]) -> None:
        self._partitions: Final = partitions
        self._is_empty: Final = is_empty
        self._current = partitions - 1

    def choose(self, key: str | None) -> int:
        """The partition of a message with this key."""
        if key is not None:
            return key_hash(key) % self._partitions
        if self._is_empty(self._current):
            self._current = (self._current + 1) % self._partitions
        return self._current


def starts_of(start: Start, partitions: int) -> list[MessageId]:
    """Where reading begins in each partition; a log without partitions counts as one.

    ``EARLIEST`` and ``LATEST`` are for all of them. A message is for its partition, and those without one begin at ``EARLIEST``.
    Raises :class:`~bkclient.errors.ArgumentError` for ids that are not of this log's partitions, or two of one.
    """
    return [MessageId.EARLIEST if each is None else each for each in named_starts_of(start, partitions)]


def named_starts_of(start: Start, partitions: int) -> list[MessageId | None]:
    """The same, and None for partitions without a message."""
    ids = [start] if isinstance(start, MessageId) else list(start)
    if len(ids) == 1 and (ids[0] in (MessageId.EARLIEST, MessageId.LATEST) or not partitions):
        return [*ids] * max(partitions, 1)
    if not partitions and ids:
        raise ArgumentError("start must be one message id: the log has no partitions")
    found: list[MessageId | None] = [None] * max(partitions, 1)
    for each in ids:
        if not 0 <= each.partition < partitions:
            raise ArgumentError(f"start must name a partition from 0 to {partitions - 1}, got {each}")
        if found[each.partition] is not None:
            raise ArgumentError(f"start must name each partition once, got {each.partition} twice")
        found[each.partition] = each
    return found

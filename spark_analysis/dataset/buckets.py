"""Which bucket of a data set a history belongs to: the one in which Spark looks for it.

Spark's bucketed tables place a row by the hash of a column, Murmur3 with 32 bits of the string's UTF-8 bytes. Files that are
written without Spark have to be placed by the same function, or joins and aggregates that trust the placement would be wrong
without a word. ``tests/spark_analysis/test_dataset.py`` holds this function to Spark's own.
"""

from __future__ import annotations

from typing import Final

__all__ = ["bucket_of"]

_SEED: Final = 42
_WORD: Final = 0xFFFFFFFF


def bucket_of(history: str, buckets: int) -> int:
    """The bucket, counted from 0, of the history of this name in a data set of ``buckets`` buckets."""
    return _murmur3(history.encode()) % buckets


def _murmur3(data: bytes) -> int:
    """Spark's ``hash`` of a string: whole words first, then single bytes, each as a signed word of its own."""
    whole = len(data) // 4 * 4
    state = _SEED
    for start in range(0, whole, 4):
        state = _mixed(state, int.from_bytes(data[start : start + 4], "little"))
    for byte in data[whole:]:
        state = _mixed(state, (byte - 256 if byte > 127 else byte) & _WORD)
    state ^= len(data)
    state = (state ^ state >> 16) * 0x85EBCA6B & _WORD
    state = (state ^ state >> 13) * 0xC2B2AE35 & _WORD
    state ^= state >> 16
    return state - (1 << 32) if state >> 31 else state


def _mixed(state: int, word: int) -> int:
    word = word * 0xCC9E2D51 & _WORD
    word = _rotated(word, 15) * 0x1B873593 & _WORD
    return _rotated(state ^ word, 13) * 5 + 0xE6546B64 & _WORD


def _rotated(word: int, bits: int) -> int:
    return (word << bits | word >> 32 - bits) & _WORD

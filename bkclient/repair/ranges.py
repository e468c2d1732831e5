"""Which entries of a range one position of an ensemble stores.

In a striped ensemble a position stores Qw of every E consecutive entries, always the same ones counted from a multiple of
E. So everything follows from one period: the first entry stored is at most E - 1 steps from the start of a range, and the
n-th is found without walking. Ranges are inclusive at both ends; one that ends before it starts is empty.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from random import Random

from bkclient.errors import ArgumentError
from bkclient.protocol.quorum import QuorumSizes

__all__ = ["first_stored", "sampled", "stored", "stored_at_any", "stored_count"]


def _offsets(sizes: QuorumSizes, position: int, first: int, last: int) -> tuple[int, ...]:
    """How far behind ``first`` the entries of one period lie that ``position`` stores."""
    if not 0 <= position < sizes.ensemble_size:
        raise ArgumentError(f"position must be between 0 and {sizes.ensemble_size - 1}, got {position}")
    if first < 0 or last < first - 1:
        raise ArgumentError(f"0 <= first <= last + 1 must hold, got {first} and {last}")
    return tuple(step for step in range(sizes.ensemble_size) if sizes.stores(position, first + step))


def stored_count(sizes: QuorumSizes, position: int, first: int, last: int) -> int:
    """How many of the entries ``first`` to ``last`` the position stores."""
    offsets = _offsets(sizes, position, first, last)
    periods, rest = divmod(last - first + 1, sizes.ensemble_size)
    return periods * len(offsets) + sum(offset < rest for offset in offsets)


def _nth(sizes: QuorumSizes, offsets: tuple[int, ...], first: int, number: int) -> int:
    periods, index = divmod(number, len(offsets))
    return first + periods * sizes.ensemble_size + offsets[index]


def first_stored(sizes: QuorumSizes, position: int, first: int, last: int) -> int | None:
    """The first of the entries that the position stores; None if it stores none."""
    entry_id = first + _offsets(sizes, position, first, last)[0]
    return entry_id if entry_id <= last else None


def stored(sizes: QuorumSizes, position: int, first: int, last: int) -> Iterator[int]:
    """The entries that the position stores, ascending."""
    offsets = _offsets(sizes, position, first, last)
    return (_nth(sizes, offsets, first, n) for n in range(stored_count(sizes, position, first, last)))


def stored_at_any(sizes: QuorumSizes, positions: Collection[int], first: int, last: int) -> Iterator[int]:
    """The entries that at least one of the positions stores, ascending."""
    residues = [
        any(sizes.stores(position, residue) for position in positions) for residue in range(sizes.ensemble_size)
    ]
    return (entry_id for entry_id in range(first, last + 1) if residues[entry_id % sizes.ensemble_size])


def sampled(sizes: QuorumSizes, position: int, first: int, last: int, percentage: float, rng: Random) -> Iterator[int]:
    """The first and the last entry that the position stores, and about ``percentage`` of those in between.

    The entries in between are cut into buckets of equal size, and one is drawn from each, so that a long stretch is nowhere
    left out. Ascending; 100 gives every entry.
    """
    offsets = _offsets(sizes, position, first, last)
    count = stored_count(sizes, position, first, last)
    if count == 0:
        return
    yield _nth(sizes, offsets, first, 0)
    if percentage > 0:
        bucket = max(1, round(100 / percentage))
        for start in range(1, count - 1, bucket):
            yield _nth(sizes, offsets, first, rng.randrange(start, min(start + bucket, count - 1)))
    if count > 1:
        yield _nth(sizes, offsets, first, count - 1)

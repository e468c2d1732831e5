"""Quorum arithmetic: which bookies store an entry, and what a set of answers proves.

All sets of ensemble positions are bit masks: bit ``i`` stands for position ``i`` of the ensemble. The whole of
BookKeeper's safety rests on two thresholds with one shape. An entry is acknowledged once ``Qa`` of its ``Qw`` bookies
stored it; so a property covers a ledger exactly when no ``Qa`` bookies of any write set are without it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache

from bkclient.errors import ArgumentError, Code
from bkclient.ledger import LedgerMetadata
from bkclient.protocol.value import Value

__all__ = ["EXPLICIT_NEGATIVES", "CoverageSet", "QuorumSizes"]

#: Answers by which a bookie asserts that it never stored the entry. Everything else proves nothing.
EXPLICIT_NEGATIVES = frozenset({int(Code.NO_SUCH_ENTRY), int(Code.NO_SUCH_LEDGER_ON_BOOKIE)})


@dataclass(frozen=True, slots=True)
class QuorumSizes:
    """E, Qw and Qa of a ledger, constant for its life; E >= Qw >= Qa >= 1 (API-3)."""

    ensemble_size: int
    write_quorum_size: int
    ack_quorum_size: int
    #: The write set of entry ``n`` is the one at ``n`` modulo E; for those that ask for every answer.
    write_sets: tuple[tuple[int, ...], ...] = field(init=False, repr=False, compare=False)
    #: The same as bit masks.
    masks: tuple[int, ...] = field(init=False, repr=False, compare=False)
    #: Whether an entry is stored by a part of its ensemble, so that write sets differ.
    is_striped: bool = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        size, write_quorum, ack_quorum = self.ensemble_size, self.write_quorum_size, self.ack_quorum_size
        if not size >= write_quorum >= ack_quorum >= 1:
            raise ArgumentError(
                "ensemble_size >= write_quorum_size >= ack_quorum_size >= 1 must hold, "
                f"got {size}, {write_quorum} and {ack_quorum}"
            )
        write_sets = tuple(tuple((first + w) % size for w in range(write_quorum)) for first in range(size))
        object.__setattr__(self, "write_sets", write_sets)
        object.__setattr__(self, "masks", tuple(sum(1 << i for i in write_set) for write_set in write_sets))
        object.__setattr__(self, "is_striped", write_quorum < size)

    @staticmethod
    def of(metadata: LedgerMetadata) -> QuorumSizes:
        """The sizes that ``metadata`` records; their tables are made once, because every read asks for them."""
        return _shared(metadata.ensemble_size, metadata.write_quorum_size, metadata.ack_quorum_size)

    def write_set(self, entry_id: int) -> tuple[int, ...]:
        """The positions that store ``entry_id``, in the order in which they are read by default (DS-1, DS-5)."""
        return self.write_sets[entry_id % self.ensemble_size]

    def stores(self, position: int, entry_id: int) -> bool:
        """Whether ``position`` is in the write set of ``entry_id`` (DS-2)."""
        return bool(self.masks[entry_id % self.ensemble_size] >> position & 1)

    def is_ack_quorum(self, acknowledged: int) -> bool:
        """Whether the positions in ``acknowledged`` (all of one write set) make an entry durable (DS-6)."""
        return acknowledged.bit_count() >= self.ack_quorum_size

    @property
    def negatives_to_deny(self) -> int:
        """How many explicit negatives of one write set prove that the entry was never acknowledged: Qw - Qa + 1 (REC-18)."""
        return self.write_quorum_size - self.ack_quorum_size + 1

    def is_covered(self, known: int) -> bool:
        """Whether no ack quorum of any write set lies wholly outside ``known`` (DS-11)."""
        return all((window & ~known).bit_count() < self.ack_quorum_size for window in self.masks)


@lru_cache(maxsize=256)
def _shared(ensemble_size: int, write_quorum_size: int, ack_quorum_size: int) -> QuorumSizes:
    return QuorumSizes(ensemble_size, write_quorum_size, ack_quorum_size)


class CoverageSet(Value):
    """Which positions of an ensemble have been heard, for fencing and LAC reads (DS-10).

    A position is *known* when its bookie answered OK or with an explicit negative; no answer yet, and every other
    answer, leaves it unknown (DS-15).
    """

    __slots__ = ("_answered", "_known", "_sizes")

    def __init__(self, sizes: QuorumSizes) -> None:
        self._sizes = sizes
        self._known = 0
        self._answered = 0

    def add(self, position: int, code: int) -> None:
        """Note the answer of ``position``; a later answer of the same position replaces it."""
        bit = 1 << position
        self._answered |= bit
        if code == Code.OK or code in EXPLICIT_NEGATIVES:
            self._known |= bit
        else:
            self._known &= ~bit
        assert not self._known & ~self._answered, "who is known has answered"

    @property
    def is_covered(self) -> bool:
        """Whether enough is known (DS-11)."""
        return self._sizes.is_covered(self._known)

    @property
    def is_exhausted(self) -> bool:
        """Whether every position has answered."""
        return self._answered.bit_count() == self._sizes.ensemble_size

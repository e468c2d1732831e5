"""What there is to check and to repair: the fragments of a ledger, as of one moment.

A fragment may be copied once it is *final*: no client will add to it or cut it. That is so for every fragment of a closed
ledger, and for every one that a later fragment follows: a fragment begins one above what its writer had confirmed, so the
boundary itself proves that everything below it is confirmed. Which fragment is the last is told by its first entry
and never by its bookies: an older fragment may have the same ones.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from bkclient._client.reading.lac import least_lac
from bkclient.errors import ReplicationFailed
from bkclient.ledger import BookieId, Ensemble, Fragment, LedgerMetadata, Versioned
from bkclient.placement.base import LedgerShape
from bkclient.protocol.ensemble import ReplaceBookie
from bkclient.protocol.intents import Choose
from bkclient.protocol.quorum import QuorumSizes
from bkclient.protocol.update import LocalMetadata, UpdateHandle
from bkclient.repair.ranges import first_stored

__all__ = [
    "LedgerFragment",
    "ReplaceInFragment",
    "choose_replacements",
    "fragments_of",
    "replacement_update",
    "shape_of",
    "stores_entries",
]


@dataclass(frozen=True, slots=True)
class LedgerFragment:
    """The entries ``first_entry_id`` to ``last_entry_id`` of a ledger, on ``ensemble``.

    The last one known; for an empty fragment it is one below the first. ``is_last`` tells the fragment that new entries of an
    open ledger belong to, ``is_final`` that its entries will never change.
    """

    ledger_id: int
    first_entry_id: int
    last_entry_id: int
    ensemble: Ensemble
    is_last: bool
    is_final: bool

    @property
    def is_empty(self) -> bool:
        """Whether no entry is known to be in it."""
        return self.last_entry_id < self.first_entry_id

    @property
    def entry_count(self) -> int:
        """How many entries are known to be in it."""
        return self.last_entry_id - self.first_entry_id + 1

    def positions_of(self, bookies: Collection[BookieId]) -> tuple[int, ...]:
        """Where in the ensemble any of ``bookies`` are."""
        return tuple(position for position, bookie_id in enumerate(self.ensemble) if bookie_id in bookies)


def fragments_of(metadata: LedgerMetadata, last_add_confirmed: int) -> tuple[LedgerFragment, ...]:
    """All fragments in order; ``last_add_confirmed`` is where an open ledger is known to end and ignored for a closed one."""
    end = max(least_lac(metadata), -1 if metadata.is_closed else last_add_confirmed)
    found = []
    for index, fragment in enumerate(metadata.fragments):
        is_last = index == len(metadata.fragments) - 1
        last = end if is_last else metadata.fragments[index + 1].first_entry_id - 1
        if metadata.is_closed:
            last = min(last, end)
        found.append(
            LedgerFragment(
                metadata.ledger_id,
                fragment.first_entry_id,
                max(last, fragment.first_entry_id - 1),
                fragment.ensemble,
                is_last,
                metadata.is_closed or not is_last,
            )
        )
    return tuple(found)


def shape_of(metadata: LedgerMetadata) -> LedgerShape:
    """What placement is told about the ledger."""
    return LedgerShape.of(metadata)


def stores_entries(metadata: LedgerMetadata, bookie_id: BookieId) -> bool:
    """Whether the ledger needs the bookie for entries it has or may get.

    A fragment whose entries are all striped to others does not; nor does the empty last fragment of a closed ledger. The last
    fragment of an open ledger does, because it may grow.
    """
    sizes = QuorumSizes.of(metadata)
    for fragment in fragments_of(metadata, -1):
        for position in fragment.positions_of((bookie_id,)):
            if not fragment.is_final:
                return True
            if first_stored(sizes, position, fragment.first_entry_id, fragment.last_entry_id) is not None:
                return True
    return False


def choose_replacements(
    ensemble: Ensemble, positions: Collection[int], excluded: Collection[BookieId], choose: ReplaceBookie
) -> dict[int, BookieId]:
    """A new bookie for each of ``positions`` for which there is one.

    New ones are none of ``excluded``, of the ensemble, of those that leave, or chosen before.
    """
    leaving = frozenset(ensemble[position] for position in positions) | frozenset(excluded)
    members = list(ensemble)
    chosen: dict[int, BookieId] = {}
    for position in sorted(positions):
        candidate = choose(tuple(members), position, leaving)
        if candidate is None:
            continue
        assert candidate not in members, "placement offered a member of the ensemble"
        assert candidate not in leaving, "placement offered a bookie that leaves"
        members[position] = chosen[position] = candidate
    return chosen


@dataclass(frozen=True, slots=True)
class ReplaceInFragment:
    """Name the new bookies of a fragment, in whatever state the ledger is by then.

    ``ensemble`` is that of the fragment as it was copied. Positions that another program has changed meanwhile stay as it left
    them. It fails as :class:`~bkclient.errors.ReplicationFailed` if a new bookie has become a member by another repair: an
    ensemble names a bookie once.
    """

    cause: ClassVar[str] = "rereplicate"

    first_entry_id: int
    ensemble: Ensemble
    replacements: tuple[tuple[int, BookieId], ...]

    def is_needed(self, metadata: LedgerMetadata) -> bool:
        """Whether any of the bookies to be replaced is still there."""
        present = self._present(metadata)
        return present is not None and any(present[p] == self.ensemble[p] for p, _ in self.replacements)

    def applied(self, metadata: LedgerMetadata, choose: Choose) -> LedgerMetadata:  # noqa: ARG002
        """With the new bookies."""
        first, present = self.first_entry_id, self._present(metadata)
        assert present is not None, "the update is needed only if the fragment is there"
        members = list(present)
        for position, bookie_id in self.replacements:
            if members[position] != self.ensemble[position]:
                continue
            if bookie_id in present:
                raise ReplicationFailed(
                    f"another repair has put the bookie into the fragment at entry {first} meanwhile; check the ledger again",
                    ledger_id=metadata.ledger_id,
                    bookie_id=bookie_id,
                )
            members[position] = bookie_id
        fragments = tuple(
            Fragment(first, tuple(members)) if f.first_entry_id == first else f for f in metadata.fragments
        )
        return replace(metadata, fragments=fragments)

    def _present(self, metadata: LedgerMetadata) -> Ensemble | None:
        return next((f.ensemble for f in metadata.fragments if f.first_entry_id == self.first_entry_id), None)


def replacement_update(
    value: Versioned, fragment: LedgerFragment, replacements: Mapping[int, BookieId]
) -> tuple[LocalMetadata, UpdateHandle]:
    """The metadata update that names the new bookies of a fragment; see :class:`ReplaceInFragment`."""
    local = LocalMetadata(value)
    intent = ReplaceInFragment(fragment.first_entry_id, fragment.ensemble, tuple(replacements.items()))
    return local, UpdateHandle(local, local.begin(intent))

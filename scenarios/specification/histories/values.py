"""Metadata and write sets, as the specification sees them."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

from scenarios.specification.values import NotSpecifiedError

__all__ = [
    "CLOSED",
    "DENIALS",
    "FENCED",
    "IN_RECOVERY",
    "OK",
    "OPEN",
    "Ensemble",
    "Fragments",
    "Stored",
    "require",
    "stored_by",
    "write_set",
]

OPEN: Final = "OPEN"
IN_RECOVERY: Final = "IN_RECOVERY"
CLOSED: Final = "CLOSED"

# Result codes, stated anew: what judges a client shares no table with it.
OK: Final = 0
FENCED: Final = -101
#: A bookie that answers so vouches that it never had the entry, or anything of the ledger.
DENIALS: Final = frozenset({-13, -7})

Ensemble = tuple[str, ...]
Fragments = tuple[tuple[int, Ensemble], ...]


def require(holds: bool, what: str) -> None:  # noqa: FBT001
    """Raise unless ``holds``."""
    if not holds:
        raise NotSpecifiedError(what)


@dataclass(frozen=True, slots=True)
class Stored:
    """One version of a ledger's metadata."""

    version: int
    state: str
    fragments: Fragments
    last_entry: int
    ensemble_size: int
    write_quorum: int
    ack_quorum: int

    @property
    def ensemble(self) -> Ensemble:
        """That of the last fragment."""
        return self.fragments[-1][1]

    def write_set(self, ensemble: Ensemble, entry: int) -> Ensemble:
        """The bookies of ``entry``, if ``ensemble`` holds it."""
        return write_set(ensemble, entry, self.write_quorum)

    def ensemble_of(self, entry: int) -> Ensemble:
        """The ensemble of the fragment that holds ``entry``."""
        return next(ensemble for first, ensemble in reversed(self.fragments) if first <= entry)

    def is_covered(self, ensemble: Ensemble, fenced: set[str]) -> bool:
        """``HasQuorumCoverage`` for every write set: no ack quorum of it is unfenced."""
        return all(
            sum(bookie in fenced for bookie in self.write_set(ensemble, first)) > self.write_quorum - self.ack_quorum
            for first in range(len(ensemble))
        )


def write_set(ensemble: Ensemble, entry: int, write_quorum: int) -> Ensemble:
    """The bookies of ``entry``. The specification has no striping, so there it is the ensemble."""
    return tuple(ensemble[(entry + i) % len(ensemble)] for i in range(write_quorum))


def stored_by(fields: dict[str, Any]) -> Stored:
    """The metadata that an event tells of; it must be such as the specification has."""
    stored = Stored(
        fields["version"],
        fields["state"],
        tuple((first, tuple(members)) for first, members in fields["fragments"]),
        fields["last_entry"],
        fields["ensemble_size"],
        fields["write_quorum_size"],
        fields["ack_quorum_size"],
    )
    fragments = stored.fragments
    require(bool(fragments) and fragments[0][0] == 0, "the first fragment does not begin with entry 0")
    require(all(one < other for (one, _), (other, _) in pairwise(fragments)), "the fragments are out of order")
    for _, ensemble in fragments:
        require(
            len(ensemble) == len(set(ensemble)) == stored.ensemble_size,
            f"an ensemble is {', '.join(ensemble)}, and has {stored.ensemble_size} bookies",
        )
    return stored

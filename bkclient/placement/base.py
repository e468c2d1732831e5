"""Which bookies store a ledger: one small interface, policies are plug-ins.

A policy only chooses. Which bookies it may choose from, which of them are to be avoided because they misbehave, and what is
tried when there are too few is up to :class:`~bkclient.placement.watcher.BookieWatcher`, through which a client
asks its policy, and which believes nothing that a policy says: an offer that breaks the rules below fails the operation that
asked, and nothing else. ``docs/using/placement.md`` shows how to write one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Protocol, runtime_checkable

from bkclient.ledger import BookieId, Ensemble, LedgerMetadata
from bkclient.metadata.base import BookieSets

__all__ = [
    "Adherence",
    "BookieHealth",
    "Features",
    "LedgerShape",
    "PlacementDefaults",
    "PlacementPolicy",
    "RepairingPolicy",
    "SteadyOrderPolicy",
    "no_features",
]

Features = Callable[[str], bool]
"""Tells whether a feature, by its name, is switched on at this moment."""


def no_features(name: str) -> bool:  # noqa: ARG001
    """No feature is on."""
    return False


class Adherence(IntEnum):
    """How well an ensemble keeps to a policy (section 8.3 of the rules); higher is better."""

    FAIL = 1
    MEETS_SOFT = 3
    MEETS_STRICT = 5


@dataclass(frozen=True, slots=True)
class LedgerShape:
    """What a policy may know about the ledger: its sizes and its custom metadata."""

    ensemble_size: int
    write_quorum_size: int
    ack_quorum_size: int
    custom_metadata: Mapping[str, bytes] = field(default_factory=dict)

    @staticmethod
    def of(metadata: LedgerMetadata) -> LedgerShape:
        """The shape of an existing ledger."""
        return LedgerShape(
            metadata.ensemble_size,
            metadata.write_quorum_size,
            metadata.ack_quorum_size,
            metadata.custom_metadata,
        )


class BookieHealth(Protocol):
    """What a client knows about its bookies when it orders the replicas of a read."""

    def pending_requests(self, bookie_id: BookieId) -> int:
        """Requests without an answer yet; huge for a bookie whose connection takes no more."""
        ...

    def is_slow(self, bookie_id: BookieId) -> bool:
        """Whether the bookie was lately overtaken by a replica asked after it."""
        ...

    def last_failed_entry(self, bookie_id: BookieId) -> int | None:
        """The entry id that the bookie last failed to deliver within the history kept, None if none."""
        ...


class PlacementPolicy(Protocol):
    """Chooses among the registered bookies. Read-only and unregistered bookies are never chosen.

    None of these may wait for anything; a policy that needs knowledge from elsewhere keeps it up to date by itself. What a
    policy raises, and a choice that breaks the rules below, fails the one operation that asked:
    :class:`~bkclient.errors.ArgumentError` from :meth:`new_ensemble` as such, which says that no cluster could serve the
    request; everything else as :class:`~bkclient.errors.NotEnoughBookies` caused by it, and a choice that breaks the
    rules as :class:`~bkclient.errors.UnexpectedCondition`.
    """

    def update(self, bookies: BookieSets) -> None:
        """The registered bookies changed."""
        ...

    def new_ensemble(self, shape: LedgerShape, excluded: frozenset[BookieId]) -> Ensemble | None:
        """``shape.ensemble_size`` distinct writable bookies, none ``excluded``; None if there are too few."""
        ...

    def replace(
        self, shape: LedgerShape, ensemble: Ensemble, position: int, excluded: frozenset[BookieId]
    ) -> BookieId | None:
        """A writable bookie for ``position``, neither in ``ensemble`` nor in ``excluded``; None if there is none."""
        ...

    def adherence(self, shape: LedgerShape, ensemble: Ensemble) -> Adherence:
        """How well ``ensemble`` keeps to the policy."""
        ...

    def covers_fault_domains(self, shape: LedgerShape, bookies: Collection[BookieId]) -> bool:
        """Whether acknowledgements of ``bookies`` span as many fault domains as the policy asks for."""
        ...

    def read_order(self, write_set: Sequence[BookieId], health: BookieHealth) -> tuple[BookieId, ...]:
        """The members of ``write_set`` in the order in which to ask them; none added, none left out."""
        ...


@runtime_checkable
class RepairingPolicy(Protocol):
    """A policy that can tell how to mend an ensemble that breaks it; those that cannot leave the method out."""

    def propose_repair(self, shape: LedgerShape, ensemble: Ensemble, excluded: frozenset[BookieId]) -> Ensemble | None:
        """An adherent ensemble that differs from ``ensemble`` in as few positions as possible; None if there is none.

        Bookies that come in are writable, not ``excluded`` and not members of ``ensemble``. An ensemble that adheres is its own
        repair.
        """
        ...


@runtime_checkable
class SteadyOrderPolicy(Protocol):
    """A policy that tells whether its order of reads may be remembered; those that cannot are asked for every entry."""

    @property
    def has_steady_read_order(self) -> bool:
        """Whether the order depends on the write set, the registered bookies, and which are slow or have failed, alone.

        Constant.
        """
        ...


class PlacementDefaults:
    """The answers of a policy that knows no fault domains and has no preference among replicas; to inherit from."""

    def adherence(self, shape: LedgerShape, ensemble: Ensemble) -> Adherence:  # noqa: ARG002
        """Every ensemble keeps to a policy that asks for nothing."""
        return Adherence.MEETS_STRICT

    def covers_fault_domains(self, shape: LedgerShape, bookies: Collection[BookieId]) -> bool:  # noqa: ARG002
        """Always."""
        return True

    def read_order(self, write_set: Sequence[BookieId], health: BookieHealth) -> tuple[BookieId, ...]:  # noqa: ARG002
        """As striped."""
        return tuple(write_set)

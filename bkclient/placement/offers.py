"""Asking a policy, and believing nothing of what it says.

Policies are plug-ins. Whatever one does wrong becomes a typed error of the operation that asked; the client, its other
operations and the machines of the protocol never notice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

from bkclient.errors import ArgumentError, NotEnoughBookies, UnexpectedCondition
from bkclient.ledger import BookieId, Ensemble
from bkclient.placement.base import BookieHealth, LedgerShape, PlacementPolicy, RepairingPolicy

__all__ = ["ask_for_ensemble", "ask_for_order", "ask_for_repair", "ask_for_replacement", "name_of"]


def name_of(policy: object) -> str:
    """How errors and logs call a policy."""
    return type(policy).__name__


def ask_for_ensemble(
    policy: PlacementPolicy, shape: LedgerShape, excluded: frozenset[BookieId], writable: Collection[BookieId]
) -> Ensemble | None:
    """A new ensemble as ``policy`` chooses it, or None.

    Raises :class:`~bkclient.errors.ArgumentError` as the policy does, :class:`~bkclient.errors.NotEnoughBookies` for anything
    else that it raises, and :class:`~bkclient.errors.UnexpectedCondition` for an offer that no policy may make.
    """
    try:
        offer = policy.new_ensemble(shape, excluded)
    except ArgumentError:
        raise
    except Exception as error:
        raise _failed(policy, error) from error
    if offer is None:
        return None
    ensemble = _checked_tuple(policy, offer, shape.ensemble_size)
    for position, bookie_id in enumerate(ensemble):
        _check(policy, bookie_id, excluded, ensemble[:position], writable)
    return ensemble


def ask_for_replacement(
    policy: PlacementPolicy,
    shape: LedgerShape,
    ensemble: Ensemble,
    position: int,
    excluded: frozenset[BookieId],
    writable: Collection[BookieId],
) -> BookieId | None:
    """A bookie for ``position``, or None.

    Raises as :func:`ask_for_ensemble` does, but no ArgumentError: it is too late for that.
    """
    try:
        offer = policy.replace(shape, ensemble, position, excluded)
    except Exception as error:
        raise _failed(policy, error) from error
    if offer is not None:
        _check(policy, offer, excluded, ensemble, writable)
    return offer


def ask_for_repair(
    policy: RepairingPolicy,
    shape: LedgerShape,
    ensemble: Ensemble,
    excluded: frozenset[BookieId],
    writable: Collection[BookieId],
) -> Ensemble | None:
    """A mended ensemble, or None. Raises as :func:`ask_for_replacement` does."""
    try:
        offer = policy.propose_repair(shape, ensemble, excluded)
    except Exception as error:
        raise _failed(policy, error) from error
    if offer is None:
        return None
    repaired = _checked_tuple(policy, offer, len(ensemble))
    for position, bookie_id in enumerate(repaired):
        if bookie_id != ensemble[position]:
            _check(policy, bookie_id, excluded, (*ensemble, *repaired[:position]), writable)
    return repaired


def ask_for_order(policy: PlacementPolicy, write_set: Sequence[BookieId], health: BookieHealth) -> tuple[BookieId, ...]:
    """The members of ``write_set`` in another order; raises :class:`~bkclient.errors.UnexpectedCondition` otherwise."""
    striped = tuple(write_set)
    try:
        ordered = tuple(policy.read_order(striped, health))
        is_sound = ordered == striped or Counter(ordered) == Counter(striped)
    except Exception as error:
        raise UnexpectedCondition(
            f"the placement policy {name_of(policy)} could not order {striped}: {error!r}"
        ) from error
    if not is_sound:
        raise UnexpectedCondition(
            f"the placement policy {name_of(policy)} must only reorder {striped}, and returned {ordered}"
        )
    return ordered


def _failed(policy: object, error: Exception) -> NotEnoughBookies:
    return NotEnoughBookies(f"the placement policy {name_of(policy)} failed: {error!r}")


def _checked_tuple(policy: object, offer: Sequence[BookieId], size: int) -> Ensemble:
    if not isinstance(offer, (tuple, list)) or len(offer) != size:
        raise UnexpectedCondition(f"the placement policy {name_of(policy)} offered {offer!r}, not {size} bookies")
    return tuple(offer)


def _check(
    policy: object,
    bookie_id: object,
    excluded: frozenset[BookieId],
    members: Collection[BookieId],
    writable: Collection[BookieId],
) -> None:
    if not isinstance(bookie_id, str):
        what = "which is no bookie id"
    elif bookie_id in members:
        what = "which is a member already"
    elif bookie_id in excluded:
        what = "which was excluded"
    elif bookie_id not in writable:
        what = "which is not registered as writable"
    else:
        return
    raise UnexpectedCondition(
        f"the placement policy {name_of(policy)} offered {bookie_id!r}, {what}",
        bookie_id=bookie_id if isinstance(bookie_id, str) else None,
    )

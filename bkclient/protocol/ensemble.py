"""Replacing failed bookies in an ensemble."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from bkclient.errors import Code, error_for
from bkclient.metadata.model import BookieId, Ensemble

__all__ = ["ReplaceBookie", "replace_failed"]

ReplaceBookie = Callable[[Ensemble, int, frozenset[BookieId]], BookieId | None]
"""``(ensemble, position, excluded)``: a bookie for ``position``, in neither of the other two; None if there is none."""


def replace_failed(
    ledger_id: int,
    ensemble: Ensemble,
    failures: Mapping[int, BookieId],
    choose: ReplaceBookie,
    *,
    failed_before: Collection[BookieId] = (),
) -> Ensemble:
    """The ensemble with a replacement for every failed bookie that still is where it failed (W-31).

    The other positions keep their bookies and their order. Replacements are never failed bookies of this change, nor
    of ``failed_before``, nor members of the ensemble being built (PL-4). Raises
    :class:`~bkclient.errors.NotEnoughBookies` if not a single one could be replaced; otherwise a partial result is
    accepted.
    """
    excluded = frozenset(failures.values()).union(failed_before)
    members = list(ensemble)
    replaced = unreplaced = 0
    for position, bookie_id in sorted(failures.items()):
        if members[position] != bookie_id:
            continue
        candidate = choose(tuple(members), position, excluded)
        if candidate is None:
            unreplaced += 1
            continue
        assert candidate not in excluded, "placement offered a failed bookie"
        assert candidate not in members, "placement offered a member of the ensemble"
        members[position] = candidate
        replaced += 1
    if unreplaced and not replaced:
        failed = ", ".join(sorted(failures.values()))
        raise error_for(
            Code.NOT_ENOUGH_BOOKIES,
            f"no writable bookie is left to replace {failed} in the ensemble {', '.join(ensemble)}",
            ledger_id=ledger_id,
        )
    return tuple(members)

"""Giving a bookie back the copies that it should have by the metadata, which stays as it is.

A bookie that has lost entries is still named for them. The copies are read from the other bookies, byte for byte with the
writer's digest, and added to it as a recovery adds them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bkclient._client.core import ClientCore
from bkclient.ledger import BookieId
from bkclient.repair.ledger import open_as_administrator
from bkclient.repair.replicator import FragmentReplicator

__all__ = ["RestoredCopies", "restore_copies"]


@dataclass(frozen=True, slots=True)
class RestoredCopies:
    """What a bookie got back of one ledger."""

    ledger_id: int
    entries_copied: int = 0
    bytes_copied: int = 0


async def restore_copies(
    core: ClientCore,
    replicator: FragmentReplicator,
    ledger_id: int,
    bookie_id: BookieId,
    has_entry: Callable[[int], bool],
) -> RestoredCopies:
    """Copy the entries that ``bookie_id`` should have and has not; those of a fragment that may still grow are left alone.

    Raises as :meth:`~bkclient.repair.admin.RepairAdmin.restore_copies` does.
    """
    ledger = await open_as_administrator(core, ledger_id)
    entries = size = 0
    for fragment in ledger.fragments:
        targets = dict.fromkeys(fragment.positions_of((bookie_id,)), bookie_id)
        if not targets or not fragment.is_final:
            continue
        copied = await replicator.copy_missing(ledger, fragment, targets, lambda entry_id: not has_entry(entry_id))
        entries, size = entries + copied[0], size + copied[1]
    return RestoredCopies(ledger_id, entries, size)

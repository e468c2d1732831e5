"""The changes of a manifest that compact a log, as values.

A compaction announces its ledger before it writes to it, and has the manifest point to it when it is closed. Whichever ledger the
manifest does not point to any more is *dropped* by the same change, and deleted afterwards; so a compaction that died leaves
nothing that the next one does not find.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from bkclient.errors import MetadataVersionConflict
from bkclient.log.errors import NoSuchLog
from bkclient.log.machine.manifest import CompactedLedger, LogManifest

__all__ = ["BeginCompaction", "FinishCompaction", "ForgetDropped"]


def _check_exists(manifest: LogManifest, log_id: str) -> None:
    if manifest.is_deleted or manifest.log_id != log_id:
        raise NoSuchLog("the log was deleted")


@dataclass(frozen=True, slots=True)
class BeginCompaction:
    """Announce the ledger of a compaction; that of another one that is under way is dropped, and its end refused.

    ``basis`` is what the log was compacted to when this compaction began to read. If it is something else since, what was read
    may end before that does, and trimming went by that: :class:`~bkclient.errors.MetadataVersionConflict`.
    """

    log_id: str
    ledger_id: int
    basis: CompactedLedger | None = None

    def is_made(self, manifest: LogManifest) -> bool:
        """Whether it is announced."""
        _check_exists(manifest, self.log_id)
        return manifest.compacting == self.ledger_id

    def applied(self, manifest: LogManifest) -> LogManifest:
        """With the ledger."""
        if manifest.compacted != self.basis:
            raise MetadataVersionConflict(
                "the log was compacted meanwhile", advice="Compact it again if that is not enough."
            )
        dropped = () if manifest.compacting < 0 else (manifest.compacting,)
        return replace(manifest, compacting=self.ledger_id, dropped=(*manifest.dropped, *dropped))


@dataclass(frozen=True, slots=True)
class FinishCompaction:
    """Have the manifest point to the ledger of a compaction, which is closed, and drop the one before.

    :class:`~bkclient.errors.MetadataVersionConflict` if another compaction began since, or what follows was trimmed.
    """

    log_id: str
    compacted: CompactedLedger

    def is_made(self, manifest: LogManifest) -> bool:
        """Whether it does."""
        _check_exists(manifest, self.log_id)
        return manifest.compacted == self.compacted

    def applied(self, manifest: LogManifest) -> LogManifest:
        """Pointing to it."""
        if manifest.compacting != self.compacted.ledger_id:
            raise MetadataVersionConflict("another compaction of the log began meanwhile")
        if manifest.trimmed_through > self.compacted.through_ledger_id:
            raise MetadataVersionConflict("the log was trimmed behind what was compacted", advice="Compact it again.")
        dropped = () if manifest.compacted is None else (manifest.compacted.ledger_id,)
        return replace(manifest, compacted=self.compacted, compacting=-1, dropped=(*manifest.dropped, *dropped))


@dataclass(frozen=True, slots=True)
class ForgetDropped:
    """Dropped ledgers have been deleted."""

    ledger_ids: tuple[int, ...]

    def is_made(self, manifest: LogManifest) -> bool:
        """Whether none is remembered."""
        return not set(self.ledger_ids) & set(manifest.dropped)

    def applied(self, manifest: LogManifest) -> LogManifest:
        """Without them."""
        return replace(manifest, dropped=tuple(each for each in manifest.dropped if each not in self.ledger_ids))

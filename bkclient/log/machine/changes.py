"""The changes of a manifest, as values: what is wanted, not how far it has come.

``is_made`` says whether a manifest shows the change already, ``applied`` what to store. Both are pure, and evaluated again after
every conflict and every unknown outcome; so a change that was made without an answer is recognised, and is not made twice.
Both may raise, which ends the attempt: :class:`~bkclient.log.errors.LogDeposed` where another owner holds the log,
:class:`~bkclient.log.errors.NoSuchLog` where it was deleted.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Protocol

from bkclient.errors import IllegalOperation, MetadataVersionConflict, UnexpectedCondition
from bkclient.log.errors import LogDeposed, LogExists, NoSuchLog
from bkclient.log.machine.manifest import LedgerEnd, LogLedger, LogManifest, LogState
from bkclient.log.settings import LogSettings

__all__ = [
    "AddCursor",
    "AppendLedger",
    "ChangeSettings",
    "ClaimLog",
    "CreateLog",
    "DeleteLog",
    "DropLedger",
    "EndLedgers",
    "ForgetTrimmed",
    "ManifestChange",
    "MoveCursorBack",
    "ReleaseLog",
    "RemoveCursor",
    "TrimLedgers",
]


class ManifestChange(Protocol):
    """One kind of change. Implementations are frozen values."""

    def is_made(self, manifest: LogManifest) -> bool:
        """Whether nothing is left to do."""
        ...

    def applied(self, manifest: LogManifest) -> LogManifest:
        """``manifest`` as wanted."""
        ...


def _check_exists(manifest: LogManifest) -> None:
    if manifest.is_deleted:
        raise NoSuchLog("the log was deleted")


def _check_owner(manifest: LogManifest, claim_id: str) -> None:
    _check_exists(manifest)
    if manifest.claim_id != claim_id:
        owner = f"{manifest.owner!r}" if manifest.claim_id else "an owner that has left it since"
        raise LogDeposed(f"the log was taken over by {owner}, in epoch {manifest.epoch}")


@dataclass(frozen=True, slots=True)
class CreateLog:
    """Create a log, or find that this very creation was made; in place of a deleted one it goes on with its versions."""

    log_id: str
    settings: LogSettings
    created_ms: int
    partitions: int = 0
    partition: int = -1

    def is_made(self, manifest: LogManifest) -> bool:
        """Whether the log is this one."""
        return manifest.log_id == self.log_id

    def applied(self, manifest: LogManifest) -> LogManifest:
        """The new log in place of the deleted one; :class:`~bkclient.log.errors.LogExists` if it was not deleted."""
        if not manifest.is_deleted:
            raise LogExists("a log with this name exists")
        return replace(
            manifest,
            log_id=self.log_id,
            settings=self.settings,
            state=LogState.ACTIVE,
            created_ms=self.created_ms,
            cursor_changes=manifest.cursor_changes + 1,
            partitions=self.partitions,
            partition=self.partition,
        )

    def new(self) -> LogManifest:
        """The manifest where there never was one of this name."""
        return LogManifest(
            self.log_id,
            self.settings,
            created_ms=self.created_ms,
            partitions=self.partitions,
            partition=self.partition,
        )


@dataclass(frozen=True, slots=True)
class ClaimLog:
    """Become the owner, whether there is one or not. From then on no other owner can change the list.

    ``term`` is the epoch in which a log was claimed whose partition this is, and becomes the partition's; 0 without partitions.
    An owner of the whole log that was overtaken by another can claim no partition any more that the other has.
    """

    owner: str
    claim_id: str
    term: int = 0

    def is_made(self, manifest: LogManifest) -> bool:
        """Whether this claim is there."""
        return manifest.claim_id == self.claim_id

    def applied(self, manifest: LogManifest) -> LogManifest:
        """In a new epoch."""
        _check_exists(manifest)
        if not self.term and manifest.partition >= 0:
            raise IllegalOperation(
                f"it is partition {manifest.partition} of a log", advice="Publish to the log that has the partitions."
            )
        if self.term and manifest.epoch >= self.term:
            raise LogDeposed(f"the partition was taken over by {manifest.owner!r}, in epoch {manifest.epoch}")
        epoch = self.term or manifest.epoch + 1
        return replace(manifest, epoch=epoch, owner=self.owner, claim_id=self.claim_id)


@dataclass(frozen=True, slots=True)
class EndLedgers:
    """Note where ledgers end; those that are empty leave the log."""

    claim_id: str
    ends: tuple[LedgerEnd, ...]

    def is_made(self, manifest: LogManifest) -> bool:
        """Whether none of them is open."""
        _check_owner(manifest, self.claim_id)
        return not {end.ledger_id for end in self.ends} & set(manifest.open_ledgers)

    def applied(self, manifest: LogManifest) -> LogManifest:
        """With their ends."""
        return manifest.with_ends(self.ends)


@dataclass(frozen=True, slots=True)
class AppendLedger:
    """Note where the ledgers before end, and append a new one, which has to be empty still."""

    claim_id: str
    ends: tuple[LedgerEnd, ...]
    ledger_id: int
    created_ms: int

    def is_made(self, manifest: LogManifest) -> bool:
        """Whether the ledger is in the list."""
        _check_owner(manifest, self.claim_id)
        return manifest.has(self.ledger_id)

    def applied(self, manifest: LogManifest) -> LogManifest:
        """With the ledger at the end; :class:`~bkclient.errors.UnexpectedCondition` if its id is not the highest."""
        ended = manifest.with_ends(self.ends)
        highest = max((ended.trimmed_through, *ended.trimmed, *(ledger.ledger_id for ledger in ended.ledgers)))
        if self.ledger_id <= highest:
            raise UnexpectedCondition(
                f"a new ledger of a log must have a higher id than all before, and {highest} is among them",
                ledger_id=self.ledger_id,
            )
        new = LogLedger(self.ledger_id, manifest.epoch, self.created_ms)
        return replace(ended, ledgers=(*ended.ledgers, new))


@dataclass(frozen=True, slots=True)
class ReleaseLog:
    """Note where the last ledger ends, and own the log no more."""

    claim_id: str
    ends: tuple[LedgerEnd, ...]

    def is_made(self, manifest: LogManifest) -> bool:
        """Whether this owner holds the log no more; a successor has seen to the ledgers then."""
        return manifest.claim_id != self.claim_id

    def applied(self, manifest: LogManifest) -> LogManifest:
        """Without an owner."""
        return replace(manifest.with_ends(self.ends), owner="", claim_id="")


@dataclass(frozen=True, slots=True)
class TrimLedgers:
    """Take ledgers that have ended out of the log, from its beginning through ``through``.

    ``through`` was decided by the positions of the cursors as of ``cursor_changes``. A cursor that was added or moved back
    since may need what is to go, so the change is refused by :class:`~bkclient.errors.MetadataVersionConflict` then, and is to
    be decided anew.
    """

    through: int
    cursor_changes: int

    def is_made(self, manifest: LogManifest) -> bool:
        """Whether none of them is left."""
        _check_exists(manifest)
        return not self._going(manifest)

    def applied(self, manifest: LogManifest) -> LogManifest:
        """Without them."""
        if manifest.cursor_changes != self.cursor_changes:
            raise MetadataVersionConflict("a cursor was added or moved back meanwhile", advice="Trim again.")
        going = self._going(manifest)
        return replace(
            manifest,
            ledgers=manifest.ledgers[len(going) :],
            trimmed=(*manifest.trimmed, *going),
            trimmed_through=going[-1],
        )

    def _going(self, manifest: LogManifest) -> tuple[int, ...]:
        return tuple(
            ledger.ledger_id
            for ledger in manifest.ledgers
            if ledger.ledger_id <= self.through and manifest.may_be_trimmed(ledger)
        )


@dataclass(frozen=True, slots=True)
class ForgetTrimmed:
    """Trimmed ledgers have been deleted."""

    ledger_ids: tuple[int, ...]

    def is_made(self, manifest: LogManifest) -> bool:
        """Whether none is remembered."""
        return not set(self.ledger_ids) & set(manifest.trimmed)

    def applied(self, manifest: LogManifest) -> LogManifest:
        """Without them."""
        return replace(manifest, trimmed=tuple(each for each in manifest.trimmed if each not in self.ledger_ids))


@dataclass(frozen=True, slots=True)
class AddCursor:
    """Have trimming look at a cursor, whose position has been stored."""

    name: str

    def is_made(self, manifest: LogManifest) -> bool:
        """Whether it does."""
        _check_exists(manifest)
        return self.name in manifest.cursors

    def applied(self, manifest: LogManifest) -> LogManifest:
        """With the cursor."""
        return replace(
            manifest, cursors=tuple(sorted((*manifest.cursors, self.name))), cursor_changes=manifest.cursor_changes + 1
        )


@dataclass(frozen=True, slots=True)
class MoveCursorBack:
    """Have trimming look at the cursors again, because the position of one has been stored that is before its last one.

    ``seen`` are the changes of a manifest that was read after that. If others were made since, by any cursor, that is enough:
    a trim decided before them is refused, and one decided after them has seen the position.
    """

    name: str
    seen: int

    def is_made(self, manifest: LogManifest) -> bool:
        """Whether any change came later."""
        _check_exists(manifest)
        return manifest.cursor_changes > self.seen

    def applied(self, manifest: LogManifest) -> LogManifest:
        """With one more change."""
        return replace(manifest, cursor_changes=manifest.cursor_changes + 1)


@dataclass(frozen=True, slots=True)
class RemoveCursor:
    """Have trimming look at a cursor no more."""

    name: str

    def is_made(self, manifest: LogManifest) -> bool:
        """Whether it does not."""
        return self.name not in manifest.cursors

    def applied(self, manifest: LogManifest) -> LogManifest:
        """Without the cursor."""
        return replace(manifest, cursors=tuple(name for name in manifest.cursors if name != self.name))


@dataclass(frozen=True, slots=True)
class ChangeSettings:
    """Change some settings of a log, by name; the others stay what they are."""

    changes: tuple[tuple[str, Any], ...]

    def is_made(self, manifest: LogManifest) -> bool:
        """Whether the log has them; raises :class:`~bkclient.errors.ArgumentError` for what settings cannot be."""
        _check_exists(manifest)
        return manifest.settings == self._wanted(manifest)

    def applied(self, manifest: LogManifest) -> LogManifest:
        """With them."""
        return replace(manifest, settings=self._wanted(manifest))

    def _wanted(self, manifest: LogManifest) -> LogSettings:
        return LogSettings.of(manifest.settings.as_dict() | dict(self.changes))


@dataclass(frozen=True, slots=True)
class DropLedger:
    """Take a ledger whose metadata are gone out of the log, with all of its messages.

    One that may be written to cannot be fenced any more, so its owner loses the log: it can neither list another ledger nor note
    an end.
    """

    ledger_id: int

    def is_made(self, manifest: LogManifest) -> bool:
        """Whether the log does not have it."""
        _check_exists(manifest)
        return not manifest.has(self.ledger_id)

    def applied(self, manifest: LogManifest) -> LogManifest:
        """Without it."""
        kept = tuple(ledger for ledger in manifest.ledgers if ledger.ledger_id != self.ledger_id)
        if self.ledger_id in manifest.open_ledgers:
            return replace(manifest, ledgers=kept, owner="", claim_id="")
        return replace(manifest, ledgers=kept)


@dataclass(frozen=True, slots=True)
class DeleteLog:
    """Delete the log with ``log_id``: all of its ledgers are to be deleted, and an owner is deposed."""

    log_id: str

    def is_made(self, manifest: LogManifest) -> bool:
        """Whether it is gone, or another log has its name."""
        return manifest.is_deleted or manifest.log_id != self.log_id

    def applied(self, manifest: LogManifest) -> LogManifest:
        """Deleted."""
        ids = tuple(ledger.ledger_id for ledger in manifest.ledgers)
        made = (-1 if manifest.compacted is None else manifest.compacted.ledger_id, manifest.compacting)
        return replace(
            manifest,
            compacted=None,
            compacting=-1,
            dropped=(*manifest.dropped, *(ledger_id for ledger_id in made if ledger_id >= 0)),
            state=LogState.DELETED,
            owner="",
            claim_id="",
            ledgers=(),
            cursors=(),
            trimmed=(*manifest.trimmed, *ids),
            trimmed_through=max((manifest.trimmed_through, *ids)),
        )

"""Bringing about one change of a manifest, by compare-and-set, until it is made or cannot be.

As for ledgers (:mod:`bkclient.protocol.update`): a conflict, and a write whose outcome is unknown, are answered by reading again
and evaluating the change anew. A write is conditional on the version that was read, so an old one that is carried out late either
is this very change, and the next look finds it made, or conflicts.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from bkclient.errors import BookKeeperError, MetadataStoreError, UnexpectedCondition
from bkclient.log.errors import NoSuchLog
from bkclient.log.machine.changes import CreateLog, ManifestChange
from bkclient.log.machine.manifest import LogManifest
from bkclient.protocol.value import Value, moved

__all__ = ["ManifestUpdate", "ReadManifest", "UpdateState", "VersionedManifest", "WriteManifest"]

_ATTEMPTS_MAX: Final = 100
"""Conflicts of one change in a row; more than any number of programs causes by accident."""


@dataclass(frozen=True, slots=True)
class VersionedManifest:
    """A manifest as of one version of the store."""

    manifest: LogManifest
    version: int


@dataclass(frozen=True, slots=True)
class ReadManifest:
    """Read the manifest, past every cache."""


@dataclass(frozen=True, slots=True)
class WriteManifest:
    """Write ``manifest`` if the stored version is ``version``; None: if there is none."""

    manifest: LogManifest
    version: int | None


class UpdateState(Enum):
    """How far a change has come."""

    READING = "reading"
    WRITING = "writing"
    MADE = "made"
    FAILED = "failed"


_NEXT: Final = {
    UpdateState.READING: (UpdateState.READING, UpdateState.WRITING, UpdateState.MADE, UpdateState.FAILED),
    UpdateState.WRITING: (UpdateState.READING, UpdateState.MADE, UpdateState.FAILED),
    UpdateState.MADE: (),
    UpdateState.FAILED: (),
}


class ManifestUpdate(Value):
    """One change under way. ``action`` is to be carried out; without one it has ended, and ``error`` says whether it failed.

    ``value`` is the manifest as it was read or written last. What is known already, as ``basis``, saves a read.
    """

    __slots__ = ("action", "attempts", "change", "error", "state", "value")

    def __init__(self, change: ManifestChange, basis: VersionedManifest | None = None) -> None:
        self.change = change
        self.state = UpdateState.READING
        self.value = basis
        self.attempts = 0
        self.error: BookKeeperError | None = None
        self.action: ReadManifest | WriteManifest | None = ReadManifest()
        if basis is not None:
            self.on_read(basis)

    def on_read(self, value: VersionedManifest | None) -> None:
        """What is stored; None if there is nothing."""
        assert self.state is UpdateState.READING
        self.value = value
        try:
            if value is None:
                if not isinstance(self.change, CreateLog):
                    raise NoSuchLog("there is no log with this name")
                action = WriteManifest(self.change.new(), None)
            elif self.change.is_made(value.manifest):
                self._end(UpdateState.MADE)
                return
            else:
                action = WriteManifest(self.change.applied(value.manifest), value.version)
        except BookKeeperError as error:
            self.fail(error)
        except ValueError as error:
            failure = UnexpectedCondition(f"the manifest of the log cannot take a change: {error}")
            failure.__cause__ = error
            self.fail(failure)
        else:
            self.attempts += 1
            self.action = action
            self._move(UpdateState.WRITING)

    def on_written(self) -> None:
        """The manifest was written."""
        action = self.action
        assert isinstance(action, WriteManifest)
        self.value = VersionedManifest(action.manifest, 0 if action.version is None else action.version + 1)
        self._end(UpdateState.MADE)

    def on_not_written(self) -> None:
        """Another client was faster, or it is not known whether it was written."""
        assert self.state is UpdateState.WRITING
        if self.attempts >= _ATTEMPTS_MAX:
            self.fail(MetadataStoreError("the manifest of the log changes as often as it is read"))
            return
        self.action = ReadManifest()
        self._move(UpdateState.READING)

    def fail(self, error: BookKeeperError) -> None:
        """Give up."""
        self.error = error
        self._end(UpdateState.FAILED)

    def _end(self, state: UpdateState) -> None:
        self._move(state)
        self.action = None

    def _move(self, state: UpdateState) -> None:
        self.state = moved(_NEXT, self.state, state)

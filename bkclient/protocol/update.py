"""The metadata update loop: change a ledger's metadata by compare-and-set until it sticks or nothing is left to do.

Every metadata change of the protocol (ensemble change, close, marking and closing by recovery) is an
:class:`~bkclient.protocol.intents.Intent`. The loop (W-48) evaluates it on the local value, writes conditionally on its
version, and after a conflict re-reads and starts over; so two clients that change different things both succeed, and the
second of two that want the same finds nothing to do.

A lost connection leaves the outcome of a write unknown. Re-reading resolves that too: a write that was applied makes the
intent say that nothing is left to do. One that seems not to have been applied may be under way still, or not have come to the
replica that was read. It is harmless as long as the loop goes on, because the next write has the same version to expect, and only
one of them finds it. An update that gives up instead first writes the metadata as they are, for the same reason: its owner goes
on as if it had never been, so it must not come true later.

Updates are part of the handle whose view they change, and are told apart by number; :class:`UpdateHandle` is for the driver
that runs one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NoReturn, Protocol

from bkclient.errors import BookKeeperError, Code, error_for
from bkclient.ledger import BookieId, LedgerMetadata, Versioned
from bkclient.protocol.intents import Choose, Intent
from bkclient.protocol.value import NOTHING, Value, own

__all__ = ["LocalMetadata", "MetadataUpdate", "ReadMetadata", "UpdateHandle", "UpdateOwner", "WriteMetadata"]

_MAX_ATTEMPTS = 1000


@dataclass(frozen=True, slots=True)
class WriteMetadata:
    """Write ``metadata`` if the stored version is ``expected_version``."""

    metadata: LedgerMetadata
    expected_version: int


@dataclass(frozen=True, slots=True)
class ReadMetadata:
    """Read the ledger's metadata."""

    ledger_id: int


class MetadataUpdate(Value):
    """One run of the loop. ``action`` is to be carried out; without one it has ended, and ``error`` says whether it failed.

    An ``error`` beside an ``action`` is how it will end, unless another version is found. If it did not fail, the local value
    is what the update wanted. Metadata that cannot take the shape that the intent asks for was changed by somebody who may not
    change it, and fails the update as UNEXPECTED_CONDITION (W-30, REC-35). Conflicts are retried ``attempts_left`` times, far
    more than any number of clients can cause by accident, and then fail as METADATA_VERSION.
    """

    __slots__ = ("action", "attempts_left", "basis", "doubtful_version", "error", "intent")

    def __init__(self, intent: Intent, basis: Versioned, attempts_left: int) -> None:
        self.intent = intent
        self.basis = basis
        self.attempts_left = attempts_left
        #: The version that the last write without an answer expects, which may be applied as long as that is the version stored.
        self.doubtful_version = -1
        self.action: WriteMetadata | ReadMetadata | None = None
        self.error: BookKeeperError | None = None

    def evaluate(self, basis: Versioned, choose: Choose) -> None:
        """Decide what to do about ``basis``."""
        self.basis = basis
        self.error = None
        ledger_id = basis.metadata.ledger_id
        try:
            if not self.intent.is_needed(basis.metadata):
                self.action = None
                return
            self._write(self.intent.applied(basis.metadata, choose))
        except BookKeeperError as error:
            self._give_up(error)
        except ValueError as error:
            failure = error_for(Code.UNEXPECTED_CONDITION, str(error), ledger_id=ledger_id)
            failure.__cause__ = error
            self._give_up(failure)

    def _write(self, metadata: LedgerMetadata) -> None:
        if self.attempts_left == 0:
            message = f"the {self.intent.cause} update met a conflict at every attempt"
            self.fail(error_for(Code.METADATA_VERSION, message, ledger_id=metadata.ledger_id))
            return
        self.attempts_left -= 1
        self.action = WriteMetadata(metadata, self.basis.version)

    def _give_up(self, error: BookKeeperError) -> None:
        """End with ``error``, after a write that keeps an earlier one from being applied if there may be one."""
        self.fail(error)
        if self.basis.version == self.doubtful_version:
            self._write(self.basis.metadata)

    def fail(self, error: BookKeeperError) -> None:
        """End at once."""
        self.error = error
        self.action = None


def _no_choice(metadata: LedgerMetadata, failures: Mapping[int, BookieId]) -> NoReturn:
    raise AssertionError(f"nothing chooses bookies for {failures} of ledger {metadata.ledger_id}")


class LocalMetadata(Value):
    """A handle's view of its ledger's metadata, and the updates of it that are under way.

    An update that finds the view changed by another one merges with it (W-48.3).
    """

    __slots__ = ("_begun", "_updates", "value")

    def __init__(self, value: Versioned) -> None:
        self.value = value
        self._updates: dict[int, MetadataUpdate] = NOTHING
        self._begun = 0

    def begin(self, intent: Intent, choose: Choose = _no_choice, *, max_attempts: int = _MAX_ATTEMPTS) -> int:
        """Begin an update; returns its number."""
        self._begun += 1
        self._updates = own(self._updates)
        update = self._updates[self._begun] = MetadataUpdate(intent, self.value, max_attempts)
        update.evaluate(self.value, choose)
        return self._begun

    def update(self, number: int) -> MetadataUpdate:
        """The update with this number, until :meth:`end` takes it out."""
        return self._updates[number]

    def end(self, number: int) -> MetadataUpdate:
        """Take out an update that has ended."""
        update = self._updates.pop(number)
        assert update.action is None, "an update ends when nothing is left to do"
        return update

    def on_update_answer(
        self, number: int, answer: Versioned | BookKeeperError | None, choose: Choose = _no_choice
    ) -> None:
        """What came of the action: what is stored, as written or read; an error that ends the update (W-49); or None.

        None says that the write found another version, or that its outcome is unknown: read and decide anew (W-48.4).
        """
        update = self._updates[number]
        assert update.basis.version <= self.value.version, "a view does not go back"
        action = update.action
        assert action is not None, "nothing is asked for any more"
        if isinstance(answer, BookKeeperError):
            update.fail(answer)
        elif answer is None:
            assert isinstance(action, WriteMetadata), "nothing was being written"
            update.doubtful_version = action.expected_version
            update.action = ReadMetadata(self.value.metadata.ledger_id)
        elif isinstance(action, WriteMetadata):
            if self.value.version == update.basis.version:
                self.value = answer
                update.action = None
            else:
                update.evaluate(self.value, choose)
        else:
            # Never step back to an older version, which a lagging replica of the store may serve.
            if answer.version > self.value.version:
                self.value = answer
            update.evaluate(self.value, choose)


class UpdateOwner(Protocol):
    """Whatever has updates: a machine, or a :class:`LocalMetadata` by itself."""

    def update(self, number: int) -> MetadataUpdate:
        """The update with this number."""
        ...

    def on_update_answer(self, number: int, answer: Versioned | BookKeeperError | None) -> None:
        """See :meth:`LocalMetadata.on_update_answer`."""
        ...


class UpdateHandle:
    """One update for its driver: carry out :attr:`action`, report what came of it, until :attr:`action` is None."""

    __slots__ = ("number", "owner")

    def __init__(self, owner: UpdateOwner, number: int) -> None:
        self.owner = owner
        self.number = number

    @property
    def cause(self) -> str:
        """What the update is for: ``ensemble``, ``close``, ``recover`` or ``rereplicate``."""
        return self.owner.update(self.number).intent.cause

    @property
    def ledger_id(self) -> int:
        """The ledger whose metadata is updated."""
        return self.owner.update(self.number).basis.metadata.ledger_id

    @property
    def action(self) -> WriteMetadata | ReadMetadata | None:
        """What to do now."""
        return self.owner.update(self.number).action

    @property
    def error(self) -> BookKeeperError | None:
        """Why the update failed, if it did."""
        return self.owner.update(self.number).error

    def on_written(self, written: Versioned) -> None:
        """The conditional write succeeded."""
        assert isinstance(self.action, WriteMetadata), "nothing was being written"
        self.owner.on_update_answer(self.number, written)

    def on_conflict(self) -> None:
        """The write found another version, or its outcome is unknown."""
        self.owner.on_update_answer(self.number, None)

    def on_read(self, stored: Versioned) -> None:
        """The stored value arrived after a conflict."""
        assert isinstance(self.action, ReadMetadata), "nothing was being read"
        self.owner.on_update_answer(self.number, stored)

    def on_error(self, error: BookKeeperError) -> None:
        """The store failed for good."""
        self.owner.on_update_answer(self.number, error)

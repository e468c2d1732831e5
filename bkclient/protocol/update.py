"""The metadata update loop: change a ledger's metadata by compare-and-set until it sticks or nothing is left to do.

Every metadata change of the protocol (ensemble change, close, marking and closing by recovery) is a *predicate* that says
whether the change is still needed, and a pure *transformation*. The loop (W-48) evaluates both on the local value,
writes conditionally on its version, and after a conflict re-reads and starts over; so two clients that change different
things both succeed, and the second of two that want the same finds nothing to do.

A lost connection leaves the outcome of a write unknown. Re-reading resolves that too: a write that was applied makes the
predicate say that nothing is left to do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bkclient.errors import BookKeeperError, Code, error_for
from bkclient.ledger import LedgerMetadata, Versioned

__all__ = ["LocalMetadata", "MetadataUpdate", "ReadMetadata", "WriteMetadata"]


@dataclass(frozen=True, slots=True)
class WriteMetadata:
    """Write ``metadata`` if the stored version is ``expected_version``."""

    metadata: LedgerMetadata
    expected_version: int


@dataclass(frozen=True, slots=True)
class ReadMetadata:
    """Read the ledger's metadata."""

    ledger_id: int


class LocalMetadata:
    """A handle's view of its ledger's metadata; several updates may replace it, each only where it last looked."""

    __slots__ = ("value",)

    def __init__(self, value: Versioned) -> None:
        self.value = value

    def replace(self, expected: Versioned, value: Versioned) -> bool:
        """Set the value if it still is ``expected`` (the same object); tells whether it was."""
        if self.value is not expected:
            return False
        self.value = value
        return True


class MetadataUpdate:
    """One run of the loop. Drive it: carry out :attr:`action`, report what came of it, until :attr:`action` is None.

    After that :attr:`error` says whether it failed; if it did not, the local value is what the update wanted.

    ``cause`` names the update for observers: ``ensemble``, ``close`` or ``recover``. ``needs_update`` and ``transform`` may raise
    :class:`~bkclient.errors.BookKeeperError`; the update then fails with it. Metadata that cannot take the shape that
    ``transform`` asks for was changed by somebody who may not change it, and fails the update as UNEXPECTED_CONDITION (W-30,
    REC-35). Conflicts are retried ``max_attempts`` times, far more than any number of clients can cause by accident, and
    then fail as METADATA_VERSION.
    """

    def __init__(
        self,
        local: LocalMetadata,
        cause: str,
        *,
        needs_update: Callable[[LedgerMetadata], bool],
        transform: Callable[[LedgerMetadata], LedgerMetadata],
        max_attempts: int = 1000,
    ) -> None:
        self.cause = cause
        self.action: WriteMetadata | ReadMetadata | None = None
        self.error: BookKeeperError | None = None
        self._local = local
        self._needs_update = needs_update
        self._transform = transform
        self._attempts_left = max_attempts
        self._basis = local.value
        self._evaluate()

    @property
    def ledger_id(self) -> int:
        """The ledger whose metadata is updated."""
        return self._basis.metadata.ledger_id

    def on_written(self, written: Versioned) -> None:
        """The conditional write succeeded."""
        assert isinstance(self.action, WriteMetadata), "nothing was being written"
        if self._local.replace(self._basis, written):
            self.action = None
        else:
            # Another update replaced the local value meanwhile; merge with what it left (W-48.3).
            self._evaluate()

    def on_conflict(self) -> None:
        """The write found another version, or its outcome is unknown: read and decide anew (W-48.4)."""
        assert isinstance(self.action, WriteMetadata), "nothing was being written"
        self.action = ReadMetadata(self.ledger_id)

    def on_read(self, stored: Versioned) -> None:
        """The stored value arrived after a conflict."""
        assert isinstance(self.action, ReadMetadata), "nothing was being read"
        # Never step back to an older version, which a lagging replica of the store may serve.
        if stored.version > self._local.value.version:
            self._local.value = stored
        self._evaluate()

    def on_error(self, error: BookKeeperError) -> None:
        """The store failed for good (W-49)."""
        self._fail(error)

    def _evaluate(self) -> None:
        self._basis = self._local.value
        try:
            if not self._needs_update(self._basis.metadata):
                self.action = None
                return
            if self._attempts_left == 0:
                raise error_for(
                    Code.METADATA_VERSION,
                    f"the {self.cause} update met a conflict at every attempt",
                    ledger_id=self.ledger_id,
                )
            self._attempts_left -= 1
            self.action = WriteMetadata(self._transform(self._basis.metadata), self._basis.version)
        except BookKeeperError as error:
            self._fail(error)
        except ValueError as error:
            failure = error_for(Code.UNEXPECTED_CONDITION, str(error), ledger_id=self.ledger_id)
            failure.__cause__ = error
            self._fail(failure)

    def _fail(self, error: BookKeeperError) -> None:
        self.error = error
        self.action = None

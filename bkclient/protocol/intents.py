"""What the protocol wants of a ledger's metadata, as values.

An intent says what is wanted, not how far it has come: a :class:`~bkclient.protocol.update.MetadataUpdate` evaluates it on
whatever is stored, again after every conflict. ``is_needed`` says whether anything is left to do, ``applied`` what to
store. Both are pure, but that :class:`ReplaceBookies` asks for new bookies when it is applied: who is available then is
what counts. Both may raise :class:`~bkclient.errors.BookKeeperError`, which ends the update.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar, Protocol

from bkclient.errors import Code, error_for
from bkclient.ledger import BookieId, Ensemble, LedgerMetadata, LedgerState

__all__ = ["Choose", "Intent", "MarkInRecovery", "ReplaceBookies", "SealAsRecovered", "SealAsWritten"]

Choose = Callable[[LedgerMetadata, Mapping[int, BookieId]], Ensemble]
"""``(metadata, failures)``: its last ensemble with other bookies where these failed."""


class Intent(Protocol):
    """One kind of change. Implementations are frozen values."""

    @property
    def cause(self) -> str:
        """Names the change for observers."""
        ...

    def is_needed(self, metadata: LedgerMetadata) -> bool:
        """Whether ``metadata`` is not yet as wanted."""
        ...

    def applied(self, metadata: LedgerMetadata, choose: Choose) -> LedgerMetadata:
        """``metadata`` as wanted. ValueError if it cannot take that shape."""
        ...


@dataclass(frozen=True, slots=True)
class MarkInRecovery:
    """Take the ledger over (REC-3)."""

    cause: ClassVar[str] = "recover"

    def is_needed(self, metadata: LedgerMetadata) -> bool:
        """Whether none did."""
        return metadata.state is LedgerState.OPEN

    def applied(self, metadata: LedgerMetadata, choose: Choose) -> LedgerMetadata:  # noqa: ARG002
        """In another state."""
        return metadata.with_state(LedgerState.IN_RECOVERY)


@dataclass(frozen=True, slots=True)
class ReplaceBookies:
    """Other bookies in place of those that failed, from ``first_entry_id`` on, which is LAC + 1 (W-30)."""

    cause: ClassVar[str] = "ensemble"

    first_entry_id: int
    failures: tuple[tuple[int, BookieId], ...]

    def is_needed(self, metadata: LedgerMetadata) -> bool:
        """Whether the ledger is open, and any of them is where it failed."""
        ensemble = metadata.last_fragment.ensemble
        return metadata.state is LedgerState.OPEN and any(
            ensemble[position] == bookie_id for position, bookie_id in self.failures
        )

    def applied(self, metadata: LedgerMetadata, choose: Choose) -> LedgerMetadata:
        """With a fragment of the bookies that ``choose`` names."""
        return metadata.with_ensemble(self.first_entry_id, choose(metadata, dict(self.failures)))


@dataclass(frozen=True, slots=True)
class SealAsWritten:
    """The writer closes its ledger where it knows it to end (W-51)."""

    cause: ClassVar[str] = "close"

    last_entry_id: int
    length: int

    def is_needed(self, metadata: LedgerMetadata) -> bool:
        """Whether the ledger is not closed. METADATA_VERSION if it is, and somewhere else."""
        if not metadata.is_closed:
            return True  # IN_RECOVERY too: this client knows exactly what it acknowledged (W-43, W-54)
        if (metadata.last_entry_id, metadata.length) == (self.last_entry_id, self.length):
            return False
        raise error_for(
            Code.METADATA_VERSION,
            f"another client closed the ledger at entry {metadata.last_entry_id} with {metadata.length} bytes, "
            f"this writer ends at entry {self.last_entry_id} with {self.length} bytes",
            ledger_id=metadata.ledger_id,
        )

    def applied(self, metadata: LedgerMetadata, choose: Choose) -> LedgerMetadata:  # noqa: ARG002
        """Closed."""
        return metadata.closed(self.last_entry_id, self.length)


@dataclass(frozen=True, slots=True)
class SealAsRecovered:
    """A recovery closes the ledger where it found the end, with the bookies that it put in place of others on the way."""

    cause: ClassVar[str] = "close"

    last_entry_id: int
    length: int
    ensembles: tuple[tuple[int, Ensemble], ...]

    def is_needed(self, metadata: LedgerMetadata) -> bool:
        """Whether the ledger is not closed. UNEXPECTED_CONDITION if it is open again."""
        if metadata.state is LedgerState.OPEN:
            raise error_for(
                Code.UNEXPECTED_CONDITION, "the ledger is open again during recovery", ledger_id=metadata.ledger_id
            )
        return metadata.state is LedgerState.IN_RECOVERY  # REC-37: closed by somebody else is as good

    def applied(self, metadata: LedgerMetadata, choose: Choose) -> LedgerMetadata:  # noqa: ARG002
        """Closed, with its new fragments."""
        for first_entry_id, ensemble in self.ensembles:
            metadata = metadata.with_ensemble(first_entry_id, ensemble)  # REC-35: never below a stored one
        return metadata.closed(self.last_entry_id, self.length)

"""What the writer of a ledger and the client that recovers it have in common: their parts, as seen from outside."""

from __future__ import annotations

from collections.abc import Mapping

from bkclient.errors import BookKeeperError
from bkclient.ledger import BookieId, Ensemble, LedgerMetadata, Versioned
from bkclient.protocol.adds import PendingAdds
from bkclient.protocol.quorum import QuorumSizes
from bkclient.protocol.update import LocalMetadata, MetadataUpdate
from bkclient.protocol.value import Value

__all__ = ["LedgerMachine"]


class LedgerMachine(Value):
    """A machine that adds entries to a ledger, and its parts: the adds that are not done, and its view of the metadata."""

    OUTSIDE = frozenset({"ports"})
    __slots__ = ("adds", "local", "ports")

    adds: PendingAdds
    local: LocalMetadata

    @property
    def metadata(self) -> LedgerMetadata:
        """The ledger's metadata as this machine knows it."""
        return self.local.value.metadata

    def choose_ensemble(self, metadata: LedgerMetadata, failures: Mapping[int, BookieId]) -> Ensemble:
        """The last ensemble of ``metadata`` without ``failures``, for updates that ask for it."""
        raise NotImplementedError

    def update(self, number: int) -> MetadataUpdate:
        """A metadata update under way."""
        return self.local.update(number)

    def on_update_answer(self, number: int, answer: Versioned | BookKeeperError | None) -> None:
        """What came of an action of a metadata update; see :meth:`~bkclient.protocol.update.LocalMetadata.on_update_answer`."""
        self.local.on_update_answer(number, answer, self.choose_ensemble)

    @property
    def sizes(self) -> QuorumSizes:
        """E, Qw and Qa of the ledger."""
        return self.adds.sizes

    @property
    def ensemble(self) -> Ensemble:
        """The bookies that entries are sent to now."""
        return self.adds.ensemble

    @property
    def last_add_acknowledged(self) -> int:
        """Highest entry id done, in order: the sequence head."""
        return self.adds.last_add_acknowledged

    @property
    def last_add_confirmed(self) -> int:
        """Highest entry id known to be durable with everything before it (LAC)."""
        return self.adds.last_add_confirmed

    @property
    def last_add_pushed(self) -> int:
        """Highest entry id handed in (LAP)."""
        return self.adds.last_add_pushed

    @property
    def length(self) -> int:
        """Payload bytes of all entries handed in (and not taken back), from the start of the ledger."""
        return self.adds.length

    @property
    def pending_count(self) -> int:
        """Number of adds not done yet."""
        return len(self.adds.pending)

    def is_pending(self, entry_id: int) -> bool:
        """Whether the entry was handed in and is not done yet."""
        return entry_id in self.adds.pending

    def is_taken(self, entry_id: int) -> bool:
        """Whether no entry can be appended under ``entry_id``: one was, or it is negative."""
        return entry_id <= self.adds.last_add_acknowledged or entry_id in self.adds.pending

    @property
    def known_end(self) -> int:
        """The last entry that the ledger is known to include: as stored if it is closed, else the LAC."""
        return self.metadata.last_entry_id if self.metadata.is_closed else self.last_add_confirmed

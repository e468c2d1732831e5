"""Which change of metadata a write is: what histories record as the cause of META_CAS.

The client says nothing of it, since it is not instrumented. What is written tells, beside the version that it builds on: that is
what its writer knew, whatever became of the write.
"""

from __future__ import annotations

from typing import Final

from bkclient.ledger import LedgerMetadata, LedgerState, Versioned

__all__ = ["MetadataCauses"]

_BY_STATE: Final = {
    LedgerState.OPEN: "ensemble",
    LedgerState.IN_RECOVERY: "recover",
    LedgerState.CLOSED: "close",
}


class MetadataCauses:
    """What was stored of each ledger, and by it the causes of writes.

    A write that leaves state and end alone and replaces bookies repairs the ledger, which is re-replication: in any fragment of a
    closed ledger, in all but the last one of another. Writers replace bookies of the last one, and recoveries replace none before
    they close. What another client than the creator writes to an open ledger is re-replication too.
    """

    def __init__(self) -> None:
        self._creators: dict[int, str] = {}
        self._stored: dict[tuple[int, int], LedgerMetadata] = {}

    def created(self, actor: str, value: Versioned) -> None:
        """A ledger was created by ``actor``."""
        self._creators[value.metadata.ledger_id] = actor
        self.learn(value)

    def learn(self, value: Versioned) -> None:
        """A version was stored, or read."""
        self._stored[value.metadata.ledger_id, value.version] = value.metadata

    def cause_of(self, actor: str, metadata: LedgerMetadata, expected_version: int) -> str:
        """The cause of a write that ``actor`` bases on ``expected_version``."""
        basis = self._stored.get((metadata.ledger_id, expected_version))
        if basis is not None and _is_repair(metadata, basis):
            return "rereplicate"
        cause = _BY_STATE[metadata.state]
        if cause == "ensemble" and self._creators.get(metadata.ledger_id, actor) != actor:
            return "rereplicate"
        return cause


def _is_repair(written: LedgerMetadata, basis: LedgerMetadata) -> bool:
    return (
        (written.state, written.last_entry_id) == (basis.state, basis.last_entry_id)
        and written.fragments != basis.fragments
        and (written.is_closed or written.fragments[-1:] == basis.fragments[-1:])
    )

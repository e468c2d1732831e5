"""What a client can tell about itself while it works: one small interface for every way of counting.

A client without an observer of this kind has ``None`` in its place and asks nothing of it: not a clock, not a call. Names are
those under which Apache BookKeeper reports the same things, so that dashboards for its Java client can be reused.
"""

from __future__ import annotations

from typing import Final, Protocol

__all__ = ["ClientStats"]

# Operations: latency and outcome.
CREATE: Final = "LEDGER_CREATE"
OPEN: Final = "LEDGER_OPEN"
DELETE: Final = "LEDGER_DELETE"
RECOVER: Final = "LEDGER_RECOVER"
CLOSE: Final = "LEDGER_CLOSE"
ADD: Final = "ADD_ENTRY"
READ: Final = "READ_ENTRY"
READ_LAC: Final = "READ_LAST_CONFIRMED"
TRY_READ_LAC: Final = "TRY_READ_LAST_CONFIRMED"
READ_LAC_AND_ENTRY: Final = "READ_LAST_CONFIRMED_AND_ENTRY"
FORCE: Final = "FORCE"
WRITE_LAC: Final = "WRITE_LAC"

# Events.
ENSEMBLE_CHANGES: Final = "NUM_ENSEMBLE_CHANGE"
ADD_UNDER_REPLICATED: Final = "ADD_OP_UR"
SPECULATIVE_READS: Final = "SPECULATIVE_READ_COUNT"
READS_REORDERED: Final = "READ_REQUESTS_REORDERED"
LAC_UPDATE_HITS: Final = "LAC_UPDATE_HITS"
LAC_UPDATE_MISSES: Final = "LAC_UPDATE_MISSES"
DIGEST_MISMATCHES: Final = "READ_OP_DM"
RECOVERED_ENTRIES: Final = "LEDGER_RECOVER_ADD_ENTRIES"
QUARANTINED: Final = "BOOKIE_QUARANTINE"
FAULT_DOMAINS_MISSED: Final = "WRITE_DELAYED_DUE_TO_NOT_ENOUGH_FAULT_DOMAINS"
THROTTLED: Final = "WRITE_THROTTLED"


class ClientStats(Protocol):
    """Receives what happens in one client. Must neither raise nor wait."""

    def now(self) -> float:
        """A clock in seconds, for latencies."""
        ...

    def operation(self, name: str, seconds: float, code: int) -> None:
        """An operation ended with a :class:`~bkclient.errors.Code` (0 for success) after ``seconds``."""
        ...

    def event(self, name: str, amount: int = 1) -> None:
        """Something happened ``amount`` times."""
        ...

    def level(self, name: str, change: int) -> None:
        """Something of which there are several at a time became more or fewer by ``change`` (a gauge)."""
        ...

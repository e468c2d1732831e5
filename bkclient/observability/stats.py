"""What a client can tell about itself while it works: one small interface for every way of counting.

A client without an observer of this kind has ``None`` in its place and asks nothing of it: not a clock, not a call. Names are
those under which Apache BookKeeper's client reports the same things, so that dashboards made for it can be used; what it does
not report has a name of ours. ``docs/using/observability.md`` lists them.

Two interfaces: :class:`ClientStats` hears of operations of the client, :class:`BookieStats` of requests and connections,
bookie by bookie. One object may be both, as those in :mod:`bkclient.observability` are.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final, Protocol, runtime_checkable

__all__ = ["METRICS", "BookieStats", "ClientStats", "Metric", "MetricKind"]


class MetricKind(Enum):
    """What is counted, and how."""

    #: How often, how long, with which outcome.
    OPERATION = "operation"
    #: How often.
    EVENT = "event"
    #: Amounts, each time it happens: how often, and how much in all.
    AMOUNT = "amount"
    #: How many at present.
    LEVEL = "level"


@dataclass(frozen=True, slots=True)
class Metric:
    """What is known about a name. ``scope`` is where BookKeeper files it; metrics of a bookie are kept for each one."""

    name: str
    kind: MetricKind
    meaning: str
    scope: str = "bookkeeper_client"
    is_per_bookie: bool = False
    #: Whether BookKeeper's Java client reports it under the same name.
    is_bookkeepers: bool = True
    #: What amounts are amounts of.
    unit: str = "entries"

    @property
    def full_name(self) -> str:
        """The name with its scope."""
        return f"{self.scope}_{self.name}"


METRICS: Final[dict[str, Metric]] = {}


def _declare(name: str, kind: MetricKind, meaning: str, *, is_bookkeepers: bool = True) -> str:
    METRICS[name] = Metric(name, kind, meaning, is_bookkeepers=is_bookkeepers)
    return name


# Operations of the client: latency and outcome.
CREATE: Final = _declare("LEDGER_CREATE", MetricKind.OPERATION, "creating a ledger")
OPEN: Final = _declare("LEDGER_OPEN", MetricKind.OPERATION, "opening a ledger, its recovery included")
DELETE: Final = _declare("LEDGER_DELETE", MetricKind.OPERATION, "deleting a ledger")
RECOVER: Final = _declare("LEDGER_RECOVER", MetricKind.OPERATION, "recovering a ledger")
CLOSE: Final = _declare("LEDGER_CLOSE", MetricKind.OPERATION, "closing a ledger by its writer", is_bookkeepers=False)
ADD: Final = _declare("ADD_ENTRY", MetricKind.OPERATION, "appending an entry, from the call to its acknowledgement")
READ: Final = _declare("READ_ENTRY", MetricKind.OPERATION, "reading an entry")
READ_LAC: Final = _declare("READ_LAC", MetricKind.OPERATION, "asking the ensemble for the last add confirmed")
TRY_READ_LAC: Final = _declare(
    "TRY_READ_LAC", MetricKind.OPERATION, "asking for a last add confirmed until one is newer", is_bookkeepers=False
)
READ_LAC_AND_ENTRY: Final = _declare(
    "READ_LAST_CONFIRMED_AND_ENTRY", MetricKind.OPERATION, "waiting for the next entry"
)
FORCE: Final = _declare("FORCE", MetricKind.OPERATION, "making acknowledged entries durable")
WRITE_LAC: Final = _declare("WRITE_LAC", MetricKind.OPERATION, "telling the ensemble the last add confirmed")

# Events.
ENSEMBLE_CHANGES: Final = _declare("NUM_ENSEMBLE_CHANGE", MetricKind.EVENT, "ensembles changed because bookies failed")
ADD_UNDER_REPLICATED: Final = _declare(
    "ADD_ENTRY_UR", MetricKind.EVENT, "entries acknowledged although a bookie had failed to store them"
)
SPECULATIVE_READS: Final = _declare(
    "SPECULATIVE_READ_COUNT", MetricKind.EVENT, "reads sent to a further replica in advance"
)
READS_REORDERED: Final = _declare("READ_REQUESTS_REORDERED", MetricKind.EVENT, "reads that began with another replica")
LAC_UPDATE_HITS: Final = _declare("LAC_UPDATE_HITS", MetricKind.EVENT, "answers that told a newer last add confirmed")
LAC_UPDATE_MISSES: Final = _declare("LAC_UPDATE_MISSES", MetricKind.EVENT, "answers that told none that was newer")
DIGEST_MISMATCHES: Final = _declare("READ_ENTRY_DM", MetricKind.EVENT, "replicas that came back corrupt")
RECOVERED_ENTRIES: Final = _declare(
    "LEDGER_RECOVER_ADD_ENTRIES", MetricKind.AMOUNT, "entries written back by a recovery"
)
RECOVERY_READS: Final = _declare("LEDGER_RECOVER_READ_ENTRIES", MetricKind.AMOUNT, "entries read by a recovery")
NOT_ADHERING: Final = _declare(
    "bookie_watcher_ENSEMBLE_NOT_ADHERING_TO_PLACEMENT_POLICY_TOTAL",
    MetricKind.EVENT,
    "ensembles chosen, or changed, against the placement policy because there were no better bookies",
)
QUARANTINED: Final = _declare("BOOKIE_QUARANTINE", MetricKind.EVENT, "bookies put in quarantine", is_bookkeepers=False)
FAULT_DOMAINS_MISSED: Final = _declare(
    "WRITE_DELAYED_DUE_TO_NOT_ENOUGH_FAULT_DOMAINS",
    MetricKind.EVENT,
    "entries that had their quorum before they had their fault domains",
)
THROTTLED: Final = _declare(
    "WRITE_THROTTLED", MetricKind.EVENT, "appends that waited for connections to take more", is_bookkeepers=False
)

# Levels.
PENDING_ADDS: Final = _declare("NUM_PENDING_ADD", MetricKind.LEVEL, "entries appended and not yet acknowledged")

_LOG: Final = "bkclient_log"


def _declare_log(name: str, kind: MetricKind, meaning: str, unit: str = "") -> str:
    METRICS[f"{_LOG}_{name}"] = Metric(name, kind, meaning, scope=_LOG, is_bookkeepers=False, unit=unit)
    return f"{_LOG}_{name}"


# Logs over ledgers: those that a client owns, and cursors that it has open.
LOG_CLAIM: Final = _declare_log(
    "CLAIM", MetricKind.OPERATION, "taking a log over, or one partition, the recovery of its last ledger included"
)
LOG_PUBLISH: Final = _declare_log(
    "PUBLISH", MetricKind.OPERATION, "publishing a batch of messages, from its being handed in to its acknowledgement"
)
LOG_BATCH_MESSAGES: Final = _declare_log(
    "BATCH_MESSAGES", MetricKind.AMOUNT, "messages of a batch that was acknowledged", "messages"
)
LOG_BATCH_BYTES: Final = _declare_log(
    "BATCH_BYTES", MetricKind.AMOUNT, "bytes of such a batch as it is stored", "bytes"
)
LOG_LEDGERS_BEGUN: Final = _declare_log(
    "LEDGERS_BEGUN",
    MetricKind.EVENT,
    "ledgers that owners of logs have begun: the first ones, and those in the place of others",
)
LOG_LEDGERS_FAILED: Final = _declare_log(
    "LEDGERS_FAILED", MetricKind.EVENT, "ledgers of logs that were ended because they did not take an entry"
)
LOG_OWNERS_ENDED: Final = _declare_log(
    "OWNERS_ENDED", MetricKind.EVENT, "owners of logs that were deposed or have failed"
)
LOG_PENDING_MESSAGES: Final = _declare_log(
    "PENDING_MESSAGES", MetricKind.LEVEL, "messages in batches that were handed in and are not acknowledged yet"
)
LOG_CURSOR_STORE: Final = _declare_log("CURSOR_STORE", MetricKind.OPERATION, "storing the position of a cursor")
LOG_CURSOR_BACKLOG: Final = _declare_log(
    "CURSOR_BACKLOG",
    MetricKind.LEVEL,
    "entries that open cursors have not acknowledged, of ledgers that have ended, as of when each was opened or stored last",
)

_CHANNEL: Final = "per_channel_bookie_client"


def _declare_channel(name: str, kind: MetricKind, meaning: str) -> str:
    METRICS[f"{_CHANNEL}_{name}"] = Metric(name, kind, meaning, scope=_CHANNEL, is_per_bookie=True)
    return f"{_CHANNEL}_{name}"


# Requests and connections, for each bookie. What a request is counted as, and what as well when it times out: BookKeeper
# counts that a second time, as a success of the timeout.
_REQUESTS: Final = {
    "ADD_ENTRY": "adding an entry",
    "READ_ENTRY": "reading one entry or several",
    "READ_LAC": "reading the last add confirmed",
    "WRITE_LAC": "writing the last add confirmed",
    "FORCE": "making entries durable",
    "GET_BOOKIE_INFO": "asking for disk space",
    "GET_LIST_OF_ENTRIES_OF_LEDGER": "asking which entries are stored",
}
REQUESTS: Final = {
    name: (
        _declare_channel(name, MetricKind.OPERATION, f"{meaning}, from the request to its outcome"),
        _declare_channel(f"TIMEOUT_{name}", MetricKind.OPERATION, f"{meaning}, but without an answer in time"),
    )
    for name, meaning in _REQUESTS.items()
}
OUTSTANDING_ADDS: Final = _declare_channel("ADD_OP_OUTSTANDING", MetricKind.LEVEL, "adds without an outcome yet")
OUTSTANDING_READS: Final = _declare_channel("READ_OP_OUTSTANDING", MetricKind.LEVEL, "reads without an outcome yet")
CONNECT: Final = _declare_channel(
    "CLIENT_CONNECT_TIMER", MetricKind.OPERATION, "connecting, the look-up of the address included"
)
ACTIVE_CHANNELS: Final = _declare_channel(
    "ACTIVE_NON_TLS_CHANNEL_COUNTER", MetricKind.LEVEL, "connections that stand, without TLS"
)
ACTIVE_TLS_CHANNELS: Final = _declare_channel(
    "ACTIVE_TLS_CHANNEL_COUNTER", MetricKind.LEVEL, "connections that stand, with TLS"
)
FAILED_TLS_HANDSHAKES: Final = _declare_channel(
    "FAILED_TLS_HANDSHAKE_COUNTER", MetricKind.EVENT, "attempts to connect that failed because TLS did"
)
FAILED_CONNECTIONS: Final = _declare_channel(
    "FAILED_CONNECTION_COUNTER", MetricKind.EVENT, "attempts to connect that failed"
)


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


@runtime_checkable
class BookieStats(Protocol):
    """Receives what happens between a client and each of its bookies. Must neither raise nor wait."""

    def now(self) -> float:
        """A clock in seconds, for latencies."""
        ...

    def request(self, bookie_id: str, name: str, seconds: float, code: int) -> None:
        """A request ended, or an attempt to connect, with a :class:`~bkclient.errors.Code` after ``seconds``."""
        ...

    def bookie_event(self, bookie_id: str, name: str, amount: int = 1) -> None:
        """Something happened ``amount`` times."""
        ...

    def bookie_level(self, bookie_id: str, name: str, change: int) -> None:
        """Something of which there are several at a time became more or fewer by ``change``."""
        ...

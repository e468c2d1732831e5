"""The online checker: checks a run by its events alone.

It imports neither the client nor the bookies, and restates the few rules it needs. It checks clauses of the protocol's
invariants (:data:`CLAUSES`) and reports violations under the names of the invariants (:data:`INVARIANTS`). The docstring of each
family explains why it reports no violation for a correct run.

Assumptions about a history, besides that it is complete and ``seq`` is the order of events:

* a META_CAS that succeeded is recorded when the store applied it; one of unknown outcome or a META_READ may be recorded later;
* a client's ADD_SEND and reads are recorded before the bookie can get them, answers before the client acts on them;
* a bookie's BK_STORE, BK_SYNC, FENCE_SET and BK_LOSS are recorded before any answer or crash that depends on them;
* APP_ACK and APP_FAIL may be late, but are in the order in which the client completed its adds;
* READ_RESULT has the last add confirmed and the metadata version that its reader had when the read began;
* what becomes of a log's list and of cursors is recorded when the store applied it; LOG_PUB before the message is handed in;
* a client has an OPEN_RESULT for every OPEN_START that ended before it crashed. Two recoveries of one ledger by one client
  at the same time cannot be distinguished, and are not checked as recoveries.
"""

from scenarios.checker.logs import LOG_FAMILIES
from scenarios.checker.online import CLAUSES, FAMILIES, INVARIANTS, OnlineChecker

__all__ = ["CLAUSES", "FAMILIES", "INVARIANTS", "LOG_FAMILIES", "OnlineChecker"]

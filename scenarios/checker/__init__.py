"""The online checker: an independent witness that judges a run by its events alone.

It imports nothing of the code it judges, neither the client nor the bookies; it restates the few rules it needs. What it
looks for are the clauses of the protocol's list of invariants (:data:`CLAUSES`), reported under the names of the invariants
they make up (:data:`INVARIANTS`). The families that judge them say in their docstrings why they never accuse a correct run.

What it takes for granted of a history, beyond that nothing is missing and ``seq`` is the order in which things happened:

* a META_CAS that succeeded stands where the store applied it; one of unknown outcome or a META_READ may stand later;
* a client's ADD_SEND and reads stand before the bookie can get them, its answers before the client acts on them;
* a bookie's BK_STORE, BK_SYNC, FENCE_SET and BK_LOSS stand before any answer, and any crash, that they explain;
* APP_ACK and APP_FAIL may come late, but in the order in which the client completed its adds;
* READ_RESULT has the last add confirmed and the metadata version of its reader as they were when the read began;
* a client has an OPEN_RESULT for every OPEN_START that it lives to see the end of. Two recoveries of one ledger by one client
  at the same time cannot be told apart, and are not judged as recoveries.
"""

from scenarios.checker.online import CLAUSES, FAMILIES, INVARIANTS, OnlineChecker

__all__ = ["CLAUSES", "FAMILIES", "INVARIANTS", "OnlineChecker"]

"""The outcome codes of BookKeeper that the invariants use.

They are restated here and not imported: the checker shares no code with the client, so a mistake in the client's table is not
repeated in the checker.
"""

from __future__ import annotations

from typing import Final

__all__ = [
    "CLIENT_CLOSED",
    "FENCED",
    "ILLEGAL_OPERATION",
    "LEDGER_RECOVERY",
    "NEGATIVES",
    "NO_SUCH_ENTRY",
    "NO_SUCH_LEDGER",
    "NO_SUCH_LEDGER_ON_BOOKIE",
    "OK",
    "UNAUTHORIZED",
]

OK: Final = 0
NO_SUCH_LEDGER_ON_BOOKIE: Final = -7
LEDGER_RECOVERY: Final = -10
NO_SUCH_ENTRY: Final = -13
CLIENT_CLOSED: Final = -19
NO_SUCH_LEDGER: Final = -25
ILLEGAL_OPERATION: Final = -100
FENCED: Final = -101
UNAUTHORIZED: Final = -102

#: The codes by which a bookie denies an entry. Every other code proves nothing about it.
NEGATIVES: Final = frozenset({NO_SUCH_ENTRY, NO_SUCH_LEDGER_ON_BOOKIE})

"""The few outcome codes of BookKeeper that the invariants speak of.

They are restated here instead of imported: the checker shares no code with what it judges, so that a mistake in a table
there cannot hide itself here.
"""

from __future__ import annotations

from typing import Final

__all__ = ["FENCED", "NEGATIVES", "NO_SUCH_ENTRY", "NO_SUCH_LEDGER_ON_BOOKIE", "OK"]

OK: Final = 0
NO_SUCH_LEDGER_ON_BOOKIE: Final = -7
NO_SUCH_ENTRY: Final = -13
FENCED: Final = -101

#: What a bookie answers to deny an entry outright. Every other code proves nothing about it.
NEGATIVES: Final = frozenset({NO_SUCH_ENTRY, NO_SUCH_LEDGER_ON_BOOKIE})

"""ClosedFromInRecovery: a client other than the writer closes a ledger only from IN_RECOVERY.

Closing from OPEN, another client would leave the writer the chance to change the ensemble meanwhile.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from spark_analysis.invariants.base import Invariant
from spark_analysis.invariants.closing_runs import creators
from spark_analysis.invariants.expressions import LEDGER_KEY, is_applied_write, is_closed, join_small, observed, tell
from spark_analysis.invariants.facts import Facts
from spark_analysis.invariants.relations import LEDGER_COLUMNS, LEDGER_KINDS

__all__ = ["CLOSED_FROM_IN_RECOVERY"]


def _observe(facts: Facts) -> DataFrame:
    seq, expected = sf.col("seq"), sf.col("expected_version")
    closes = facts.rare_events.filter(is_applied_write() & is_closed() & (sf.col("cause") == "close")).select(
        *LEDGER_KEY, "actor", "seq", "expected_version"
    )
    placements = facts.ledgers.select(*LEDGER_KEY, "placements")
    judged = (
        join_small(closes, creators(facts), on=LEDGER_KEY, how="inner")
        .filter(sf.col("actor") != sf.col("creator"))
        .transform(join_small, placements, on=LEDGER_KEY, how="inner")
    )
    finding = tell(
        "E8",
        sf.exists("placements", lambda placement: placement["version"] == expected),
        seq,
        [seq],
        "%s closed the ledger (event %d), whose version %d was OPEN, though %s writes it",
        sf.col("actor"),
        seq,
        expected,
        sf.col("creator"),
    )
    return observed(judged, finding)


CLOSED_FROM_IN_RECOVERY: Final = Invariant(
    name="ClosedFromInRecovery",
    clauses=("E8",),
    kinds=LEDGER_KINDS,
    columns=("actor", *LEDGER_COLUMNS),
    observe=_observe,
)

"""EnsembleChangeAboveAcks: an ensemble change never hands acknowledged entries to bookies that do not have them.

A new or overwritten fragment of an ensemble change starts above everything that the writer acknowledged before the change took
effect. What is not acknowledged is sent again; what is would be looked for where it never was. (That the fragment does not
start too high, LacHonest judges.) A write that was refused proves nothing: it may have been under way for long, and acknowledged
entries may have been added since.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from spark_analysis.invariants.base import CheckClass, Invariant
from spark_analysis.invariants.expressions import LEDGER_KEY, join_small, observed, tell
from spark_analysis.invariants.facts import Facts
from spark_analysis.invariants.relations import ENTRY_COLUMNS, ENTRY_KINDS, LEDGER_COLUMNS, LEDGER_KINDS

__all__ = ["ENSEMBLE_CHANGE_ABOVE_ACKS"]


def _observe(facts: Facts) -> DataFrame:
    entry, ack = sf.col("entry"), sf.col("ack_seq")
    changes = sf.filter("placements", lambda placement: placement["cause"] == "ensemble")
    changed = facts.ledgers.withColumn("changes", changes).filter(sf.size("changes") > 0)
    recovering = sf.filter(
        "changes",
        lambda change: (
            (change["seq"] > ack) & (entry >= sf.try_element_at(change["fragments"], sf.lit(-1))["first_entry"])
        ),
    )
    judged = join_small(changed, facts.entries, on=LEDGER_KEY, how="left").withColumn("recovering", recovering)
    change_seq = sf.array_min(sf.transform("recovering", lambda change: change["seq"]))
    finding = tell(
        sf.size("recovering") > 0,
        change_seq,
        [ack, change_seq],
        "entry %d was acknowledged (event %d) before an ensemble change that covers it (event %d)",
        entry,
        ack,
        change_seq,
    )
    return observed(judged, finding)


ENSEMBLE_CHANGE_ABOVE_ACKS: Final = Invariant(
    name="EnsembleChangeAboveAcks",
    statement="An ensemble change starts above every entry acknowledged before it.",
    formula="C6",
    check_class=CheckClass.JOINED,
    kinds=(*ENTRY_KINDS, *LEDGER_KINDS),
    columns=(*ENTRY_COLUMNS, *LEDGER_COLUMNS),
    observe=_observe,
)

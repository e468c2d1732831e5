"""StartIsLacPlusOne: an ensemble change starts right after the last confirmed entry.

Not at or below an entry that was acknowledged before the change took effect: what is not acknowledged is sent again
to the new bookies, what is would be looked for where it never was. And not above an entry that was not confirmed
then: it would stay with the old bookies, of which not enough have it. A write that was refused proves nothing: it may
have been under way for long, and acknowledged entries may have been added since.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from spark_analysis.invariants.base import Invariant
from spark_analysis.invariants.expressions import LEDGER_KEY, join_small, observed, tell
from spark_analysis.invariants.facts import Facts
from spark_analysis.invariants.relations import ENTRY_COLUMNS, ENTRY_KINDS, LEDGER_COLUMNS, LEDGER_KINDS

__all__ = ["START_IS_LAC_PLUS_ONE"]


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
        "C6",
        sf.size("recovering") > 0,
        change_seq,
        [ack, change_seq],
        "entry %d was acknowledged (event %d) before an ensemble change that covers it (event %d)",
        entry,
        ack,
        change_seq,
    )
    leaping = sf.filter(
        "changes",
        lambda change: (
            (entry == sf.try_element_at(change["fragments"], sf.lit(-1))["first_entry"] - 1)
            & sf.coalesce(sf.col("confirmed_seq") > change["seq"], sf.lit(True))  # noqa: FBT003
        ),
    )
    leap_seq = sf.array_min(sf.transform("leaping", lambda change: change["seq"]))
    too_high = tell(
        "C6",
        sf.size("leaping") > 0,
        leap_seq,
        [leap_seq],
        "entry %d was left to the old ensemble, which had not confirmed it, by an ensemble change (event %d)",
        entry,
        leap_seq,
    )
    unheard = sf.filter(
        "changes",
        lambda change: (
            (sf.try_element_at(change["fragments"], sf.lit(-1))["first_entry"] > entry + 1) & sf.col("is_highest")
        ),
    )
    unheard_seq = sf.array_min(sf.transform("unheard", lambda change: change["seq"]))
    beyond = tell(
        "C6",
        sf.size("unheard") > 0,
        unheard_seq,
        [unheard_seq],
        "entry %d is the last of which anything is known, and an ensemble change starts above entry %d (event %d)",
        entry,
        entry + 1,
        unheard_seq,
    )
    told = (
        judged.withColumn("leaping", leaping)
        .withColumn("is_highest", sf.col("entry_above").isNull())
        .withColumn("unheard", unheard)
    )
    return observed(told, finding, too_high, beyond)


START_IS_LAC_PLUS_ONE: Final = Invariant(
    name="StartIsLacPlusOne",
    clauses=("C6",),
    kinds=(*ENTRY_KINDS, *LEDGER_KINDS),
    columns=(*ENTRY_COLUMNS, *LEDGER_COLUMNS),
    observe=_observe,
)

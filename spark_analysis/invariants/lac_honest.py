"""LacHonest: nobody claims a last add confirmed that is not confirmed.

A last add confirmed of ``l`` promises that every entry up to ``l`` is on an ack quorum. Whoever claims it at some moment, be it
in the header of an add, as a bookie's or a reader's knowledge, as the start of a new fragment (at ``l + 1``) or as the end of
the ledger, must be right at that moment: for every entry up to ``l``, at least Qa different bookies had stored it before.

What is counted, and why it is sound: any bookie that had stored the entry counts, whether or not it is in the entry's write set
under the stored metadata. Entries are acknowledged on stored ensembles, but a recovery confirms them on replacements that it
alone knows until it closes the ledger (REC-27), and each such answer was preceded by a store. So an honest client always has
its Qa stores; a copy too many only makes the check miss something. That copies stand where they belong is for AckHasQuorum and
ClosedAtQuorum to judge. A claim is honest forever once it is honest, so the earliest claim of each value decides.

Where bookies recorded nothing of a ledger, nothing can be said.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from scenarios.history import Kind
from spark_analysis.invariants.base import CheckClass, Invariant
from spark_analysis.invariants.expressions import ENTRY_KEY, LEDGER_KEY, is_kind, join_small, observed, tell
from spark_analysis.invariants.facts import Facts
from spark_analysis.invariants.relations import ENTRY_COLUMNS, ENTRY_KINDS, LEDGER_COLUMNS, LEDGER_KINDS

__all__ = ["LAC_HONEST"]


def _claims(facts: Facts) -> DataFrame:
    """Per ledger and value: ``seq``, when it was first claimed to be the last add confirmed."""
    is_ensemble_change = is_kind(Kind.META_CAS) & (sf.col("cause") == "ensemble")
    is_close = is_kind(Kind.META_CAS) & (sf.col("cause") == "close")
    claim = (
        sf.when(is_kind(Kind.ADD_SEND, Kind.BK_LAC, Kind.LAC_ADV), sf.col("lac"))
        .when(is_ensemble_change, sf.try_element_at(sf.col("fragments"), sf.lit(-1))["first_entry"] - 1)
        .when(is_close, sf.col("last_entry"))
    )
    return (
        facts.events.filter(is_kind(Kind.ADD_SEND, Kind.BK_LAC, Kind.LAC_ADV, Kind.META_CAS))
        .select(*LEDGER_KEY, claim.alias("entry"), "seq")
        .filter(sf.col("entry") >= 0)
        .groupBy(*ENTRY_KEY)
        .agg(sf.min("seq").alias("seq"))
    )


def _observe(facts: Facts) -> DataFrame:
    is_stored = sf.exists("copies", lambda copy: copy["bookie"].isNotNull() & copy["stored_seq"].isNotNull())
    recorded = facts.entries.groupBy(*LEDGER_KEY).agg(sf.max(is_stored).alias("is_recorded"))
    known = join_small(recorded.filter("is_recorded"), facts.ledgers, on=LEDGER_KEY, how="inner")
    confirmed_entries = facts.entries.select(*ENTRY_KEY, "confirmed_seq")
    claimed = join_small(_claims(facts), confirmed_entries, on=ENTRY_KEY, how="left")
    claims = join_small(known, claimed, on=LEDGER_KEY, how="left")
    entry, seq, confirmed = sf.col("entry"), sf.col("seq"), sf.col("confirmed_seq")
    never = tell(
        entry.isNotNull() & confirmed.isNull(),
        seq,
        [seq],
        "entry %d was called the last add confirmed (event %d), but some entry up to it never was on %d bookies",
        entry,
        seq,
        sf.col("ack_quorum_size"),
    )
    early = tell(
        confirmed > seq,
        seq,
        [seq, confirmed],
        "entry %d was called the last add confirmed (event %d) before all entries up to it were on %d bookies (event %d)",
        entry,
        seq,
        sf.col("ack_quorum_size"),
        confirmed,
    )
    return observed(claims, never, early)


LAC_HONEST: Final = Invariant(
    name="LacHonest",
    statement="A last add confirmed is claimed only when every entry up to it is on an ack quorum of bookies.",
    formula="D6, C6",
    check_class=CheckClass.JOINED,
    kinds=(*ENTRY_KINDS, Kind.BK_LAC, Kind.LAC_ADV, *LEDGER_KINDS),
    columns=(*LEDGER_COLUMNS, *ENTRY_COLUMNS, "lac"),
    observe=_observe,
)

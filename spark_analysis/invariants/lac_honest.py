"""LacHonest: no client or bookie claims a last add confirmed that is not confirmed.

A last add confirmed of ``l`` promises that every entry up to ``l`` is on an ack quorum. A client that claims it at some
moment, be it in the header of an add or as a bookie's or a reader's knowledge, must be right at that moment: for
every entry up to ``l``, a client had heard from at least Qa different bookies that they stored it, or an application
had been told that it is acknowledged. Once the ledger is closed, all its entries count as confirmed. A last add confirmed
is learned only from a client that has come to know it.

What is counted, and why it is sound: any bookie that answered counts, whether or not it is in the entry's write set
under the stored metadata. Entries are acknowledged on stored ensembles, but a recovery confirms them on replacements
that it alone knows until it closes the ledger (REC-27). A copy too many only makes the check miss something. That
copies stand where they belong is for AckHasQuorum and ClosedAtQuorum to judge. A claim is honest forever once it is
honest, so the earliest claim of each value decides.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from scenarios.history import Kind
from spark_analysis.invariants.base import Invariant
from spark_analysis.invariants.expressions import (
    ENTRY_KEY,
    LEDGER_KEY,
    is_true,
    join_small,
    observed,
    tell,
)
from spark_analysis.invariants.facts import Facts
from spark_analysis.invariants.relations import ENTRY_COLUMNS, ENTRY_KINDS, LEDGER_COLUMNS, LEDGER_KINDS

__all__ = ["LAC_HONEST"]


def _claims(facts: Facts) -> DataFrame:
    """Per ledger and value: ``seq``, when it was first claimed to be the last add confirmed."""
    return (
        facts.of(Kind.ADD_SEND, Kind.BK_LAC, Kind.LAC_ADV)
        .select(*LEDGER_KEY, sf.col("lac").alias("entry"), "seq")
        .filter(sf.col("entry") >= 0)
        .groupBy(*ENTRY_KEY)
        .agg(sf.min("seq").alias("seq"))
    )


def _gaps(facts: Facts) -> DataFrame:
    """Per ledger: ``gap``, its first entry that was never confirmed, of which nothing may be known at all."""
    entry, below = sf.col("entry"), sf.coalesce("entry_below", sf.lit(-1))
    is_open = sf.coalesce("quorum_seq", "ack_seq").isNull()
    gap = sf.when(below < entry - 1, below + 1).when(is_open, entry)
    known = facts.entries.filter(entry >= 0).groupBy(*LEDGER_KEY)
    return known.agg(sf.least(sf.min(gap), sf.max(entry) + 1).alias("gap"))


def _observe(facts: Facts) -> DataFrame:
    known = join_small(
        facts.ledgers.select(*LEDGER_KEY, "ack_quorum_size", "end"), _gaps(facts), on=LEDGER_KEY, how="left"
    )
    confirmed_entries = facts.entries.select(*ENTRY_KEY, "confirmed_seq")
    claimed = join_small(_claims(facts), confirmed_entries, on=ENTRY_KEY, how="left")
    claims = join_small(known, claimed, on=LEDGER_KEY, how="left")
    entry, seq, confirmed, end = sf.col("entry"), sf.col("seq"), sf.col("confirmed_seq"), sf.col("end")
    is_end_known = is_true((entry <= end["last_entry"]) & (end["seq"] < seq))
    never = tell(
        "D6",
        entry.isNotNull() & confirmed.isNull() & ~is_end_known,
        seq,
        [seq],
        "entry %d was called the last add confirmed (event %d), but entry %d was never confirmed by %d bookies",
        entry,
        seq,
        sf.coalesce("gap", sf.lit(0)),
        sf.col("ack_quorum_size"),
    )
    early = tell(
        "D6",
        (confirmed > seq) & ~is_end_known,
        seq,
        [seq, confirmed],
        "entry %d was called the last add confirmed (event %d) before all up to it were confirmed by %d bookies (event %d)",
        entry,
        seq,
        sf.col("ack_quorum_size"),
        confirmed,
    )
    return observed(claims, never, early)


LAC_HONEST: Final = Invariant(
    name="LacHonest",
    clauses=("D6",),
    kinds=(*ENTRY_KINDS, Kind.BK_LAC, Kind.LAC_ADV, *LEDGER_KINDS),
    columns=(*LEDGER_COLUMNS, *ENTRY_COLUMNS, "lac"),
    observe=_observe,
)

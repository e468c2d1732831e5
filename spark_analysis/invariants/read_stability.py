"""ReadStability: what was read once is read again, the same, and is part of the closed ledger.

A denial counts if the read began after the entry had been read, and if it proves anything
(:mod:`spark_analysis.invariants.denied_reads`). Timeouts and other errors are no answers.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from scenarios.history import Kind
from spark_analysis.invariants.base import Invariant
from spark_analysis.invariants.expressions import ENTRY_KEY, LEDGER_KEY, join_small, observed, tell
from spark_analysis.invariants.facts import Facts
from spark_analysis.invariants.relations import ENTRY_COLUMNS, ENTRY_KINDS, LEDGER_COLUMNS, LEDGER_KINDS

__all__ = ["READ_STABILITY"]


def _found(facts: Facts) -> DataFrame:
    """Entries that were read, as observations."""
    entry, first, last = sf.col("entry"), sf.col("read_first"), sf.col("read_last")
    ends = facts.ledgers.select(*LEDGER_KEY, "end")
    found = join_small(facts.entries.filter(first.isNotNull()), ends, on=LEDGER_KEY, how="left")
    altered = tell(
        "F3",
        sf.col("read_min") != sf.col("read_max"),
        last,
        [first, last],
        "entry %d was read with content %d and with content %d (events %d to %d)",
        entry,
        sf.col("read_min"),
        sf.col("read_max"),
        first,
        last,
    )
    end = sf.col("end")
    cut_off = tell(
        "F3",
        entry > end["last_entry"],
        sf.greatest(first, end["seq"]),
        [first, end["seq"]],
        "entry %d was read (event %d), but the ledger is closed after entry %d (event %d)",
        entry,
        first,
        end["last_entry"],
        end["seq"],
    )
    return observed(found, altered, cut_off)


def _denied(facts: Facts) -> DataFrame:
    """Entries that were denied to a reader after somebody had read them, as observations."""
    seq, first = sf.col("seq"), sf.col("read_first")
    found = facts.entries.filter(first.isNotNull()).select(*ENTRY_KEY, "read_first")
    judged = join_small(facts.denied_reads, found, on=ENTRY_KEY, how="inner").filter(sf.col("sent") > first)
    finding = tell(
        "F3",
        sf.col("is_conclusive"),
        seq,
        [first, sf.col("sent"), seq],
        "entry %d had been read (event %d) before %s began to (event %d) and was told that it does not exist (event %d)",
        sf.col("entry"),
        first,
        sf.col("actor"),
        sf.col("sent"),
        seq,
    )
    return observed(judged, finding)


def _observe(facts: Facts) -> DataFrame:
    return _found(facts).union(_denied(facts))


READ_STABILITY: Final = Invariant(
    name="ReadStability",
    clauses=("F3",),
    kinds=(*ENTRY_KINDS, Kind.READ_SEND, *LEDGER_KINDS),
    columns=(*ENTRY_COLUMNS, *LEDGER_COLUMNS),
    observe=_observe,
)

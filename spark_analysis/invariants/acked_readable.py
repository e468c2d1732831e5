"""AckedReadable: an acknowledged entry of a closed ledger is there, can be read, and is what was written.

Judged at the end of the history, for every entry acknowledged as durable up to the end of a closed ledger:

* at least one bookie of its write set, under the metadata stored then, holds it; and
* no handle that knew the ledger to be closed was told that the entry does not exist; and
* every read that delivered it, by anyone at any time, delivered the acknowledged content.

The first two are owed only while fewer than Qa bookies lost a durable copy: an ack quorum of losses is more than the
ledger was asked to survive. Deleted ledgers owe nothing. A reader with older metadata may be denied an entry that was
written after bookies were replaced, so its denials prove nothing.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from spark_analysis.invariants.base import CheckClass, Invariant
from spark_analysis.invariants.expressions import LEDGER_KEY, observed, tell
from spark_analysis.invariants.facts import Facts
from spark_analysis.invariants.left_open import OPEN_COLUMNS, OPEN_KINDS
from spark_analysis.invariants.replication import REPLICATION_COLUMNS, REPLICATION_KINDS

__all__ = ["ACKED_READABLE"]


def _observe(facts: Facts) -> DataFrame:
    owed = facts.owed_entries
    entry, ack, quorum = sf.col("entry"), sf.col("durable_seq"), sf.col("ack_quorum_size")
    is_owed = ack.isNotNull() & (entry <= sf.col("last_entry"))
    closed = sf.col("closed.seq")
    gone = tell(
        "A4",
        sf.col("is_recorded") & ack.isNotNull() & (sf.col("holders") == 0) & (sf.col("losses") < quorum),
        sf.greatest(ack, closed),
        [ack, closed],
        "no bookie of the write set of entry %d, acknowledged (event %d), holds it; bookies lost %d copies",
        entry,
        ack,
        sf.col("losses"),
    )
    denied = tell(
        "A9",
        is_owed & (sf.col("denied_version") >= sf.col("closed.version")) & (sf.col("losses_ever") < quorum),
        sf.col("denied_seq"),
        [ack, sf.col("denied_seq")],
        "entry %d was acknowledged (event %d), and a reader of the closed ledger was told that it does not exist (event %d)",
        entry,
        ack,
        sf.col("denied_seq"),
    )
    is_altered = (sf.col("read_min") != sf.col("content")) | (sf.col("read_max") != sf.col("content"))
    altered = tell(
        "A8",
        ack.isNotNull() & is_altered,
        sf.col("read_last"),
        [ack, sf.col("read_first"), sf.col("read_last")],
        "entry %d was acknowledged with content %d (event %d) and read with content %d (events %d to %d)",
        entry,
        sf.col("content"),
        ack,
        sf.when(sf.col("read_min") != sf.col("content"), sf.col("read_min")).otherwise(sf.col("read_max")),
        sf.col("read_first"),
        sf.col("read_last"),
    )
    left_open = facts.open_ends.select(*LEDGER_KEY, "finding")
    return observed(owed, gone, denied, altered).union(left_open)


ACKED_READABLE: Final = Invariant(
    name="AckedReadable",
    clauses=("A4", "A8", "A9"),
    check_class=CheckClass.JOINED,
    kinds=(*REPLICATION_KINDS, *OPEN_KINDS),
    columns=(*REPLICATION_COLUMNS, *OPEN_COLUMNS),
    observe=_observe,
)

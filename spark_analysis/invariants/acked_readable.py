"""AckedReadable: an acknowledged entry is there, can be read, and is what was written.

* At every moment from the acknowledgement as durable on, a bookie of its write set holds it, under the metadata stored then.
* No read that began after it was acknowledged, or after the ledger was closed with it, was told that it does not exist.
* Every read that delivered it, by anyone at any time, delivered the acknowledged content.

The first two are owed to what was acknowledged as durable, and only while fewer than Qa bookies ever lost it: an ack quorum of
losses is more than the ledger was asked to survive. Deleted ledgers owe nothing. A reader with older metadata may ask bookies
that never had the entry, so its denials prove nothing (:mod:`spark_analysis.invariants.denied_reads`).
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from scenarios.history import Kind
from spark_analysis.invariants.base import Invariant
from spark_analysis.invariants.expressions import ENTRY_KEY, LEDGER_KEY, join_small, observed, tell
from spark_analysis.invariants.facts import Facts
from spark_analysis.invariants.held import COPY_COLUMNS, COPY_KINDS
from spark_analysis.invariants.images import image_at
from spark_analysis.invariants.left_open import OPEN_COLUMNS, OPEN_KINDS

__all__ = ["ACKED_READABLE"]


def _gone(facts: Facts) -> DataFrame:
    """Entries acknowledged as durable at the moments that count for them, as observations."""
    ack, at = sf.col("durable_seq"), sf.col("at")
    gone = tell(
        "A4",
        (sf.col("held") == 0) & (sf.col("lost") < sf.col("ack_quorum_size")),
        at,
        [ack, sf.col("image.seq"), at],
        "no bookie of the write set of entry %d, acknowledged (event %d), holds it (event %d); bookies lost %d copies",
        sf.col("entry"),
        ack,
        at,
        sf.col("lost"),
    )
    return observed(facts.held_entries.filter(ack.isNotNull()), gone)


def _denied(facts: Facts) -> DataFrame:
    """Denials of entries that were acknowledged as durable, or in the closed ledger, when the read began, as observations."""
    entry, ack, sent, seq = sf.col("entry"), sf.col("durable_seq"), sf.col("sent"), sf.col("seq")
    acks = facts.entries.filter(ack.isNotNull()).select(*ENTRY_KEY, "durable_seq")
    end = sf.col("stored_then")
    since = sf.coalesce(
        sf.when(ack < sent, ack), sf.when((end["state"] == "CLOSED") & (entry <= end["last_entry"]), end["seq"])
    )
    judged = (
        join_small(facts.denied_reads, acks, on=ENTRY_KEY, how="left")
        .transform(join_small, facts.images, on=LEDGER_KEY, how="inner")
        .withColumn("stored_then", image_at(sent))
        .withColumn("since", since)
        .filter(sf.col("since").isNotNull())
    )
    denied = tell(
        "A9",
        sf.col("is_conclusive"),
        seq,
        [sf.col("since"), sent, seq],
        "entry %d was %s (event %d) before %s began to read it (event %d) and was told that it does not exist (event %d)",
        entry,
        sf.when(ack < sent, "acknowledged").otherwise("part of the closed ledger"),
        sf.col("since"),
        sf.col("actor"),
        sent,
        seq,
    )
    return observed(judged, denied)


def _altered(facts: Facts) -> DataFrame:
    """Acknowledged entries that were read, as observations."""
    content, ack, other = sf.col("acked_min"), sf.col("ack_seq"), sf.col("acked_max")
    first, last = sf.col("read_first"), sf.col("read_last")
    altered = tell(
        "A8",
        (content != other) | (sf.col("read_min") != content) | (sf.col("read_max") != content),
        sf.greatest(ack, first),
        [ack, first, last],
        "entry %d was acknowledged with content %d (event %d) and read with content %d (events %d to %d)",
        sf.col("entry"),
        sf.when(sf.col("read_max") == content, other).otherwise(content),
        ack,
        sf.when(sf.col("read_min") != content, sf.col("read_min")).otherwise(sf.col("read_max")),
        first,
        last,
    )
    return observed(facts.entries.filter(ack.isNotNull() & first.isNotNull()), altered)


def _observe(facts: Facts) -> DataFrame:
    left_open = facts.open_ends.select(*LEDGER_KEY, "findings")
    return _gone(facts).union(_denied(facts)).union(_altered(facts)).union(left_open)


ACKED_READABLE: Final = Invariant(
    name="AckedReadable",
    clauses=("A4", "A8", "A9"),
    kinds=(*COPY_KINDS, Kind.READ_SEND, *OPEN_KINDS),
    columns=(*COPY_COLUMNS, *OPEN_COLUMNS),
    observe=_observe,
)

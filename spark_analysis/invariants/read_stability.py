"""ReadStability: what was read once is read again, the same, and is part of the closed ledger.

A denial counts if the read began after the entry had been read, fewer than Qa bookies had lost it, and the reader asked the
ensemble that the store names for it: one with older metadata may ask bookies that never had the entry. Timeouts and other errors
are no answers.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from scenarios.history import Kind
from spark_analysis.invariants.base import CheckClass, Invariant
from spark_analysis.invariants.denials import sent_before
from spark_analysis.invariants.expressions import (
    DENIALS,
    ENTRY_KEY,
    LEDGER_KEY,
    ensemble_of,
    is_kind,
    join_small,
    observed,
    tell,
)
from spark_analysis.invariants.facts import Facts
from spark_analysis.invariants.images import image_at
from spark_analysis.invariants.relations import ENTRY_COLUMNS, ENTRY_KINDS, LEDGER_COLUMNS, LEDGER_KINDS

__all__ = ["READ_STABILITY"]

_READ: Final = (*ENTRY_KEY, "actor")


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


def _losses(facts: Facts) -> DataFrame:
    """Per entry: ``lost``, the first loss at each bookie that lost it."""
    return (
        facts.events.filter(is_kind(Kind.BK_LOSS))
        .groupBy(*ENTRY_KEY, "actor")
        .agg(sf.min("seq").alias("seq"))
        .groupBy(*ENTRY_KEY)
        .agg(sf.collect_list("seq").alias("lost"))
    )


def _denied(facts: Facts) -> DataFrame:
    """Entries that were denied to a reader after somebody had read them, as observations."""
    entry, seq, first = sf.col("entry"), sf.col("seq"), sf.col("read_first")
    is_result = is_kind(Kind.READ_RESULT)
    reads = facts.events.filter(is_kind(Kind.READ_SEND, Kind.READ_RESULT)).select(
        *_READ, "seq", "code", "version", is_result.alias("is_answer")
    )
    denied = facts.events.filter(is_result & sf.col("code").isin(*DENIALS)).select(*_READ).distinct()
    found = facts.entries.filter(first.isNotNull()).select(*ENTRY_KEY, "read_first")
    used = sf.get(
        sf.filter("images", lambda image: (image["version"] == sf.col("version")) & (image["seq"] < seq)), sf.lit(0)
    )
    losses = sf.coalesce(sf.size(sf.filter("lost", lambda loss: loss < seq)), sf.lit(0))
    judged = (
        sent_before(join_small(reads, denied, on=_READ, how="left_semi"), _READ, sf.col("is_answer"))
        .filter(sf.col("code").isin(*DENIALS))
        .transform(join_small, found, on=ENTRY_KEY, how="inner")
        .filter(sf.col("sent") > first)
        .transform(join_small, facts.images, on=LEDGER_KEY, how="inner")
        .transform(join_small, _losses(facts), on=ENTRY_KEY, how="left")
        .withColumn("stored", image_at(seq))
        .withColumn("used", used)
        .withColumn("losses", sf.greatest(losses, sf.lit(0)))
    )
    is_conclusive = (ensemble_of(sf.col("stored.fragments"), entry) == ensemble_of(sf.col("used.fragments"), entry)) & (
        sf.col("losses") < sf.col("ack_quorum_size")
    )
    finding = tell(
        "F3",
        is_conclusive,
        seq,
        [first, sf.col("sent"), seq],
        "entry %d had been read (event %d) before %s began to (event %d) and was told that it does not exist (event %d)",
        entry,
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
    check_class=CheckClass.JOINED,
    kinds=(*ENTRY_KINDS, Kind.READ_SEND, *LEDGER_KINDS),
    columns=(*ENTRY_COLUMNS, *LEDGER_COLUMNS),
    observe=_observe,
)

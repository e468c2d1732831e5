"""What the events tell of each entry and each ledger.

:func:`entries` tells what became of every entry, :func:`ledgers` what became of every ledger. Reading all events is where
the cost of a verification lies; what invariants do with what these relations leave is cheap.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sf

from scenarios.history import Kind
from spark_analysis.invariants.expressions import (
    DENIALS,
    ENTRY_KEY,
    LEDGER_KEY,
    OK,
    is_applied_write,
    is_closed,
    is_creation,
    is_deletion,
    is_kind,
    is_stored_metadata,
    is_true,
    join_small,
)

__all__ = [
    "ENTRY_COLUMNS",
    "ENTRY_KINDS",
    "LEDGER_COLUMNS",
    "LEDGER_KINDS",
    "bookie_crashes",
    "entries",
    "fences",
    "first_sends",
    "ledgers",
]

LEDGER_KINDS: Final = (Kind.META_CAS, Kind.META_READ)
LEDGER_COLUMNS: Final = (
    *("seq", "cause", "outcome", "expected_version", "version", "state", "fragments", "last_entry", "length"),
    *("ensemble_size", "write_quorum_size", "ack_quorum_size"),
)

_COPY_KINDS: Final = (Kind.BK_STORE, Kind.BK_SYNC, Kind.BK_LOSS, Kind.ADD_RESP)
ENTRY_KINDS: Final = (*_COPY_KINDS, Kind.ADD_SEND, Kind.APP_ACK, Kind.READ_RESULT)
ENTRY_COLUMNS: Final = (
    *("seq", "actor", "incarnation", "entry", "bookie", "code", "content", "length", "recovery", "durable", "version"),
)


def bookie_crashes(rare: DataFrame) -> DataFrame:
    """Per history and bookie: ``crashes``, the events."""
    return (
        rare.filter(is_kind(Kind.BK_CRASH))
        .groupBy("history", sf.col("actor").alias("bookie"))
        .agg(sf.collect_list("seq").alias("crashes"))
    )


def fences(rare: DataFrame) -> DataFrame:
    """What became of the fence of each ledger on each bookie.

    ``fences`` are events with ``seq`` and ``durable``; ``crashes`` those of the bookie; ``collected`` is the first time that it
    collected the ledger, and ``forgotten`` are the times at which it lost a fence. A bookie that collected the ledger remembers
    until it crashes that it was fenced.
    """
    seq = sf.col("seq")
    told = (
        rare.filter(is_kind(Kind.FENCE_SET, Kind.FENCE_LOST, Kind.BK_GC))
        .groupBy(*LEDGER_KEY, sf.col("actor").alias("bookie"))
        .agg(
            sf.collect_list(sf.when(is_kind(Kind.FENCE_SET), sf.struct("seq", "durable"))).alias("fences"),
            sf.collect_list(sf.when(is_kind(Kind.FENCE_LOST), seq)).alias("lost"),
            sf.collect_list(sf.when(is_kind(Kind.BK_GC), seq)).alias("collections"),
        )
        .transform(join_small, bookie_crashes(rare), on=("history", "bookie"), how="left")
        .withColumn("crashes", sf.coalesce("crashes", sf.array().cast("array<bigint>")))
    )

    def is_of_collected(crash: Column) -> Column:
        return sf.exists(
            "collections",
            lambda drop: (
                (drop < crash)
                & ~sf.exists("fences", lambda fence: ~fence["durable"] & fence["seq"].between(drop, crash))
            ),
        )

    return told.select(
        *(*LEDGER_KEY, "bookie", "fences", "crashes", sf.array_min("collections").alias("collected")),
        sf.concat("lost", sf.filter("crashes", is_of_collected)).alias("forgotten"),
    )


def first_sends(adds: DataFrame) -> DataFrame:
    """Per ledger, ``actor``, ``incarnation``, ``entry``, ``bookie`` and ``lac``: ``sent``, the first add that is no recovery's.

    All adds of an entry carry one LAC, where nothing is wrong.
    """
    return (
        adds.filter(~sf.col("recovery"))
        .groupBy(*LEDGER_KEY, "actor", "incarnation", "entry", "bookie", "lac")
        .agg(sf.min("seq").alias("sent"))
    )


def ledgers(rare: DataFrame) -> DataFrame:
    """One row per ledger of which metadata is known, in whole or in part, from the rare events.

    * ``ensemble_size``, ``write_quorum_size``, ``ack_quorum_size``, which never change.
    * ``placements``: each OPEN image that a write stored, with ``seq``, ``version``, ``cause`` and ``fragments``.
    * ``end``: the lowest ``last_entry`` it was seen closed at, and the first event (``seq``) that shows it; null while open.
    * ``closed``: the first version (``version``) seen closed, and the first event (``seq``) that shows it.
    * ``close``: the first write that closed it, ``seq`` and ``last_entry``.
    * ``final``: ``last_entry`` and ``fragments`` as stored when the history ends. Null for ledgers that are not closed then,
      that were deleted, or whose metadata may have been changed, after the last version known, by a write whose client never
      learned the outcome.
    * ``lost_write``: that write; ``lost_close``: one that would have closed the ledger. Null if there is none. ``is_deleted``.
    * ``created_anew``: the creation of another ledger of its id, after it was deleted, or may have been; null if there is none.
    """
    is_stored, is_applied = is_stored_metadata(), is_applied_write()
    is_lost_write = is_kind(Kind.META_CAS) & (sf.col("outcome") == "unknown")
    lost = sf.struct("expected_version", "seq")
    sizes = ("ensemble_size", "write_quorum_size", "ack_quorum_size")
    placement = sf.struct("seq", "version", "cause", "fragments")
    known = (
        rare.filter(is_kind(*LEDGER_KINDS))
        .groupBy(*LEDGER_KEY)
        .agg(
            *(sf.max(size).alias(size) for size in sizes),
            sf.collect_list(sf.when(is_applied & (sf.col("state") == "OPEN"), placement)).alias("placements"),
            sf.min(sf.when(is_stored & is_closed(), sf.struct("last_entry", "seq"))).alias("end"),
            sf.min(sf.when(is_stored & is_closed(), sf.struct("version", "seq"))).alias("closed"),
            sf.min(sf.when(is_applied & is_closed(), sf.struct("seq", "last_entry"))).alias("close"),
            sf.max(sf.when(is_stored, sf.struct("version", "state", "last_entry", "fragments"))).alias("latest"),
            sf.max(sf.when(is_lost_write, lost)).alias("lost_write"),
            sf.max(sf.when(is_lost_write & is_closed(), lost)).alias("lost_close"),
            sf.min(sf.when(is_deletion(), sf.col("seq"))).alias("deleted"),
            sf.max(sf.when(is_creation(), sf.col("seq"))).alias("created"),
        )
    )
    latest = sf.col("latest")

    def in_doubt(write: str) -> Column:
        version = sf.col(write)["expected_version"]
        return sf.when(sf.coalesce(version >= latest["version"], version.isNotNull()), sf.col(write)["seq"])

    is_known = ~is_true(sf.col("lost_write")["expected_version"] >= latest["version"])
    is_final = (latest["state"] == "CLOSED") & is_known & sf.col("deleted").isNull()
    image = sf.struct(latest["last_entry"].alias("last_entry"), latest["fragments"].alias("fragments"))
    return known.select(
        *LEDGER_KEY,
        *sizes,
        *("placements", "end", "closed", "close"),
        sf.when(is_final, image).alias("final"),
        *(in_doubt(write).alias(write) for write in ("lost_write", "lost_close")),
        sf.col("deleted").isNotNull().alias("is_deleted"),
        sf.when(sf.col("created") > sf.col("deleted"), sf.col("created")).alias("created_anew"),
    )


def entries(events: DataFrame, ledgers: DataFrame) -> DataFrame:
    """One row per entry of which anything is known, from the events of :data:`ENTRY_KINDS`.

    * ``acks``, ``ack_seq``, ``durable_seq``: how often it was acknowledged, when first, and when first as durable;
      ``acked_min``, ``acked_max``: the least and the greatest content that was acknowledged; ``acker_min``, ``acker_max``: the
      same of a number that stands for the writer. Where nothing is wrong, each two are equal.
    * ``entry_below``, ``entry_above``: the next entry below and above of which anything is known; ``ack_below`` and
      ``quorum_below``: when the former was first acknowledged, and had its quorum.
    * ``quorum_seq``: the event by which Qa bookies had told a client that they stored it; null if that never came.
    * ``confirmed_seq``: the event by which that was so of it and of every entry below, or an application was told so.
    * ``read_min``, ``read_max``: the least and the greatest content that reads delivered, from event ``read_first`` to
      ``read_last``.
    * ``denied_version``: the highest metadata version of a reader that was told there is no such entry, last at ``denied_seq``.
    * ``copies``, per ``bookie`` that stored, lost or acknowledged it: ``stored_seq`` and ``synced_seq``, when it was first stored
      and made durable; ``ordinary_seq``, when an ordinary add of it was last stored; ``seen_seq``, when it was last stored or
      made durable; ``lost_first`` and ``lost_seq``, when it was first and last lost; ``answer_seq`` and ``heard_seq``, when a
      client first learned that an ordinary add, and that any add of it succeeded; ``content_min`` to ``length_max`` of all
      that was stored. What clients sent is there as the copy of the bookie null, ``stored_seq`` being when it was first sent.
    * ``content_least`` to ``length_most`` of all copies whose content is known, and ``is_twofold``, whether a bookie among them
      stored two.
    """
    seq, content, code = sf.col("seq"), sf.col("content"), sf.col("code")
    is_good_read = is_kind(Kind.READ_RESULT) & (code == OK)
    is_denial = is_kind(Kind.READ_RESULT) & code.isin(*DENIALS)
    is_ack = is_kind(Kind.APP_ACK)
    is_store = is_kind(Kind.BK_STORE)
    is_written = is_kind(Kind.BK_STORE, Kind.ADD_SEND)
    is_heard = is_kind(Kind.ADD_RESP) & (code == OK)
    is_answer = is_heard & ~sf.col("recovery")
    holder = sf.when(is_kind(Kind.ADD_RESP), sf.col("bookie")).when(is_kind(*_COPY_KINDS), sf.col("actor"))
    of_the_copy = {
        "stored_seq": sf.min(sf.when(is_written, seq)),
        "ordinary_seq": sf.max(sf.when(is_store & ~sf.col("recovery"), seq)),
        "synced_seq": sf.min(sf.when(is_kind(Kind.BK_SYNC), seq)),
        "seen_seq": sf.max(sf.when(is_kind(Kind.BK_STORE, Kind.BK_SYNC), seq)),
        "lost_first": sf.min(sf.when(is_kind(Kind.BK_LOSS), seq)),
        "lost_seq": sf.max(sf.when(is_kind(Kind.BK_LOSS), seq)),
        "answer_seq": sf.min(sf.when(is_answer, seq)),
        "heard_seq": sf.min(sf.when(is_heard, seq)),
        "content_min": sf.min(sf.when(is_written, content)),
        "content_max": sf.max(sf.when(is_written, content)),
        "length_min": sf.min(sf.when(is_written, sf.col("length"))),
        "length_max": sf.max(sf.when(is_written, sf.col("length"))),
    }
    of_the_entry = {
        "acks": sf.count_if(is_ack),
        "ack_seq": sf.min(sf.when(is_ack, seq)),
        "durable_seq": sf.min(sf.when(is_ack & sf.col("durable"), seq)),
        "acked_min": sf.min(sf.when(is_ack, content)),
        "acked_max": sf.max(sf.when(is_ack, content)),
        "acker_min": sf.min(sf.when(is_ack, sf.xxhash64("actor", "incarnation"))),
        "acker_max": sf.max(sf.when(is_ack, sf.xxhash64("actor", "incarnation"))),
        "read_min": sf.min(sf.when(is_good_read, content)),
        "read_max": sf.max(sf.when(is_good_read, content)),
        "read_first": sf.min(sf.when(is_good_read, seq)),
        "read_last": sf.max(sf.when(is_good_read, seq)),
        "denied_version": sf.max(sf.when(is_denial, sf.col("version"))),
        "denied_seq": sf.max(sf.when(is_denial, seq)),
    }
    per_copy = events.groupBy(*ENTRY_KEY, holder.alias("bookie")).agg(
        *(column.alias(name) for name, column in (of_the_copy | of_the_entry).items())
    )
    is_known = sf.col("content_min").isNotNull()
    is_twofold = (sf.col("content_min") != sf.col("content_max")) | (sf.col("length_min") != sf.col("length_max"))
    of_all_copies = {
        "content_least": sf.min("content_min"),
        "content_most": sf.max("content_max"),
        "length_least": sf.min(sf.when(is_known, sf.col("length_min"))),
        "length_most": sf.max(sf.when(is_known, sf.col("length_max"))),
        "is_twofold": sf.max(is_known & sf.col("bookie").isNotNull() & is_twofold),
    }
    by_entry = per_copy.groupBy(*ENTRY_KEY).agg(
        *(sf.max(name).alias(name) for name in of_the_entry),
        *(column.alias(name) for name, column in of_all_copies.items()),
        sf.collect_list(sf.struct("bookie", *of_the_copy)).alias("copies"),
    )
    heard = sf.filter("copies", lambda copy: copy["bookie"].isNotNull() & copy["heard_seq"].isNotNull())
    answers = sf.array_sort(sf.transform(heard, lambda copy: copy["heard_seq"]))
    upwards = Window.partitionBy(*LEDGER_KEY).orderBy("entry")
    until_here = upwards.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    confirmed = sf.least("quorum_seq", "ack_seq")
    is_whole = sf.count(confirmed).over(until_here) == sf.col("entry") + 1
    return (
        join_small(by_entry, ledgers.select(*LEDGER_KEY, "ack_quorum_size"), on=LEDGER_KEY, how="left")
        .withColumn("quorum_seq", sf.get(answers, sf.col("ack_quorum_size").cast("int") - 1))
        .select(
            *ENTRY_KEY,
            *of_the_entry,
            *of_all_copies,
            sf.lag("entry").over(upwards).alias("entry_below"),
            sf.lead("entry").over(upwards).alias("entry_above"),
            sf.lag("ack_seq").over(upwards).alias("ack_below"),
            sf.lag("quorum_seq").over(upwards).alias("quorum_below"),
            "quorum_seq",
            sf.when(is_whole, sf.max(confirmed).over(until_here)).alias("confirmed_seq"),
            "copies",
        )
    )

"""RecoveryResolves: a recovery gives up for lack of bookies only when an entry can get no ack quorum any more.

An entry can get one as long as Qa bookies of its write set have not failed it: they stored it, or are still to answer. A history
has no reason of a failure, so only a recovery is judged that can have no other one: it decided about all that it read, was
refused by nobody, did not try to close, and has an entry without its quorum, so that it was not about to either. Which bookies it
counts is known only of one that put no bookie in the place of another.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from scenarios.history import Kind
from spark_analysis.invariants.base import Invariant
from spark_analysis.invariants.expressions import (
    LEDGER_KEY,
    LEDGER_RECOVERY,
    OK,
    REFUSALS,
    is_in_write_set,
    is_kind,
    join_small,
    observed,
    tell,
)
from spark_analysis.invariants.facts import Facts
from spark_analysis.invariants.relations import LEDGER_COLUMNS, LEDGER_KINDS
from spark_analysis.invariants.runs import RUN_COLUMNS, RUN_KEY, RUN_KINDS

__all__ = ["RECOVERY_RESOLVES"]


def _failed(facts: Facts) -> DataFrame:
    """The runs that may have failed for lack of bookies, with ``failed``, the event, their ``ensemble``, and the sizes."""
    code, ensemble = sf.col("code"), sf.col("ensemble")
    results = (
        facts.run_events.filter(is_kind(Kind.OPEN_RESULT) & (code == LEDGER_RECOVERY) & sf.col("run").isNotNull())
        .groupBy(*RUN_KEY)
        .agg(sf.min("seq").alias("failed"))
    )
    undecided = facts.runs.filter(
        sf.col("unknown").isNull()
        & sf.col("close_tried").isNull()
        & (sf.size(sf.array_distinct(ensemble)) == sf.size(ensemble))
    ).select(*RUN_KEY, "ensemble")
    openings = (
        facts.rare_events.filter(is_kind(Kind.OPEN_START) & sf.col("recovery"))
        .groupBy(*LEDGER_KEY, "actor")
        .agg(sf.collect_list("seq").alias("openings"))
    )
    is_alone = ~sf.exists("openings", lambda opening: (opening > sf.col("run")) & (opening < sf.col("failed")))
    sizes = facts.ledgers.select(*LEDGER_KEY, "write_quorum_size", "ack_quorum_size")
    return (
        join_small(undecided, results, on=RUN_KEY, how="inner")
        .transform(join_small, openings, on=(*LEDGER_KEY, "actor"), how="inner")
        .filter(is_alone)
        .drop("openings")
        .transform(join_small, sizes, on=LEDGER_KEY, how="inner")
    )


def _observe(facts: Facts) -> DataFrame:
    seq, entry, bookie, code = sf.col("seq"), sf.col("entry"), sf.col("bookie"), sf.col("code")
    quorum = sf.col("ack_quorum_size")
    is_member = is_in_write_set(bookie, sf.col("ensemble"), entry, sf.col("write_quorum_size"))
    is_stored, is_failed = code == OK, code != OK
    copies = (
        facts.of(Kind.ADD_SEND, Kind.ADD_RESP)
        .filter(sf.col("recovery"))
        .select(*LEDGER_KEY, "actor", "seq", "entry", "bookie", "code")
        .transform(join_small, _failed(facts), on=(*LEDGER_KEY, "actor"), how="inner")
        .filter((seq > sf.col("run")) & (seq < sf.col("failed")))
    )
    per_entry = copies.groupBy(*RUN_KEY, "failed", "write_quorum_size", "ack_quorum_size", "entry").agg(
        sf.collect_set(sf.when(is_stored & is_member, bookie)).alias("storing"),
        sf.collect_set(sf.when(is_failed & is_member, bookie)).alias("failing"),
        sf.max(~sf.array_contains("ensemble", bookie)).alias("has_newcomer"),
        sf.max(sf.coalesce(code.isin(*REFUSALS), sf.lit(False))).alias("is_refused"),  # noqa: FBT003
        sf.array_sort(sf.collect_list(sf.when(is_failed, seq))).alias("failures"),
    )
    able = sf.col("write_quorum_size") - sf.size(sf.array_except("failing", "storing"))
    judged = (
        per_entry.groupBy(*RUN_KEY, "failed", "ack_quorum_size")
        .agg(
            sf.min(sf.struct(able.alias("able"), "entry")).alias("least"),
            sf.min(sf.size("storing")).alias("stored"),
            sf.max("has_newcomer").alias("has_newcomer"),
            sf.max("is_refused").alias("is_refused"),
            sf.flatten(sf.collect_list("failures")).alias("failures"),
        )
        .filter(~sf.col("has_newcomer") & ~sf.col("is_refused") & (sf.col("stored") < quorum))
    )
    least, failed = sf.col("least"), sf.col("failed")
    finding = tell(
        "L10",
        least["able"] >= quorum,
        failed,
        sf.concat(sf.array("run"), sf.col("failures"), sf.array(failed)),
        "%s gave up (event %d) when %d bookies might still store each entry that it wrote back: entry %d %d of them",
        sf.col("actor"),
        failed,
        quorum,
        least["entry"],
        least["able"],
    )
    return observed(judged, finding)


RECOVERY_RESOLVES: Final = Invariant(
    name="RecoveryResolves",
    clauses=("L10",),
    kinds=(*RUN_KINDS, *LEDGER_KINDS, Kind.ADD_SEND, Kind.ADD_RESP),
    columns=(*RUN_COLUMNS, *LEDGER_COLUMNS),
    observe=_observe,
)

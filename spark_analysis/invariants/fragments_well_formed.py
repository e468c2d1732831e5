"""FragmentsWellFormed: metadata only ever changes the way the protocol changes it.

Every attempt to write metadata, refused or not, has to have the right shape: fragments from entry 0 on in ascending
order, each with E distinct bookies, E >= Qw >= Qa >= 1, and a closed ledger's last fragment starting at most one
entry above its end (an empty last fragment is legal). A client that tries otherwise is wrong even where the store
saves it.

Writes that succeeded are also held against the version they replaced: versions count by one, the state only moves on,
a change of state to IN_RECOVERY leaves the fragments alone, and no change touches any fragment but the last, whose
first entry stays. Re-replication (cause ``rereplicate``) may replace bookies anywhere, but move no boundary. In an
ensemble change bookies that stay keep their positions, since the position decides which entries a bookie has.

A write that succeeds on a version which is not the highest stored is wrong wherever it stands. Two versions are
compared where both are known; a gap left by a write of unknown outcome is passed over.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sf

from scenarios.history import Kind
from spark_analysis.invariants.base import Invariant
from spark_analysis.invariants.expressions import LEDGER_KEY, is_kind, observed, tell
from spark_analysis.invariants.facts import Facts
from spark_analysis.invariants.relations import LEDGER_COLUMNS

__all__ = ["FRAGMENTS_WELL_FORMED"]

_LEGAL_STEPS: Final = (
    "OPEN>OPEN",
    "OPEN>IN_RECOVERY",
    "OPEN>CLOSED",
    "IN_RECOVERY>IN_RECOVERY",
    "IN_RECOVERY>CLOSED",
    "CLOSED>CLOSED",
)


def _firsts(fragments: Column) -> Column:
    return sf.transform(fragments, lambda fragment: fragment["first_entry"])


def _problem(is_broken: Column, clause: str, text: str | Column) -> Column:
    """``clause`` and ``text`` as one struct where ``is_broken`` is true, else null."""
    words = sf.lit(text) if isinstance(text, str) else text
    return sf.when(is_broken, sf.struct(sf.lit(clause).alias("clause"), words.alias("text")))


def _shape_problem() -> Column:
    """What is wrong with the metadata of one attempt; null if nothing is."""
    fragments, size = sf.col("fragments"), sf.col("ensemble_size")
    firsts = _firsts(fragments)
    is_ascending = firsts == sf.array_sort(sf.array_distinct(firsts))
    is_full = sf.forall(
        fragments,
        lambda fragment: (
            (sf.size(fragment["bookies"]) == size) & (sf.size(sf.array_distinct(fragment["bookies"])) == size)
        ),
    )
    is_quorum = (
        (size >= sf.col("write_quorum_size"))
        & (sf.col("write_quorum_size") >= sf.col("ack_quorum_size"))
        & (sf.col("ack_quorum_size") >= 1)
    )
    ends_below = (sf.col("state") == "CLOSED") & (sf.array_max(firsts) > sf.col("last_entry") + 1)
    return sf.coalesce(
        _problem(sf.size(fragments) < 1, "C4", "there is no fragment"),
        _problem(sf.get(firsts, sf.lit(0)) != 0, "C4", "the first fragment does not start at entry 0"),
        _problem(~is_ascending, "C4", "first entries do not ascend"),
        _problem(~is_full, "C5", "an ensemble does not have E distinct bookies"),
        _problem(~is_quorum, "C10", "not E >= Qw >= Qa >= 1"),
        _problem(ends_below, "B9", "the last fragment starts above the end"),
    )


def _step_problem(old: Column) -> Column:
    """What is wrong with the step from ``old``, the latest lower version known, to this one; null if nothing is."""
    fragments = sf.col("fragments")
    is_next = old["version"] == sf.col("version") - 1
    step = sf.concat_ws(">", old["state"], sf.col("state"))
    kept = sf.greatest(sf.size(old["fragments"]) - 1, sf.lit(0))
    is_earlier_kept = sf.slice(fragments, 1, kept) == sf.slice(old["fragments"], 1, kept)
    is_boundary_kept = sf.slice(_firsts(fragments), 1, kept + 1) == _firsts(old["fragments"])
    old_last = sf.try_element_at(old["fragments"], sf.lit(-1))["bookies"]
    new_last = sf.try_element_at(fragments, sf.lit(-1))["bookies"]
    is_in_place = sf.forall(
        sf.array_intersect(old_last, new_last),
        lambda bookie: sf.array_position(old_last, bookie) == sf.array_position(new_last, bookie),
    )
    is_ensemble_change = (sf.col("cause") == "ensemble") & (step == "OPEN>OPEN")
    is_new_ensemble = old_last != new_last
    is_rereplication = sf.col("cause") == "rereplicate"
    is_marking = (sf.col("state") == "IN_RECOVERY") & ~is_rereplication
    step_problem = sf.coalesce(
        _problem(~step.isin(*_LEGAL_STEPS), "C3", sf.concat(sf.lit("illegal step "), step)),
        _problem(
            is_marking & (fragments != old["fragments"]), "C7", "fragments changed while the ledger is in recovery"
        ),
        _problem(~is_boundary_kept, "C5", "the boundary of an existing fragment moved"),
        _problem(~is_rereplication & ~is_earlier_kept, "C5", "a fragment other than the last one changed"),
        _problem(is_ensemble_change & is_new_ensemble & ~is_in_place, "C5", "a bookie that stays changed its position"),
    )
    is_skipping = (sf.col("cause") != "create") & (sf.col("expected_version") != sf.col("version") - 1)
    return sf.coalesce(
        _problem(is_skipping, "C1", "the new version does not follow the expected one"),
        _problem(old["version"] == sf.col("version"), "C2", "two writes made the same version"),
        sf.when(is_next, step_problem),
    )


def _observe(facts: Facts) -> DataFrame:
    is_applied = sf.col("outcome") == "ok"
    attempts = facts.rare_events.filter(is_kind(Kind.META_CAS) & (sf.col("cause") != "delete")).select(
        *LEDGER_KEY, *LEDGER_COLUMNS
    )
    earlier = Window.partitionBy(*LEDGER_KEY).orderBy("version", "seq").rowsBetween(Window.unboundedPreceding, -1)
    applied = sf.when(is_applied, sf.struct("version", "state", "fragments", "seq"))
    steps = attempts.withColumn("old", sf.last(applied, ignorenulls=True).over(earlier))
    old = sf.col("old")
    before = Window.partitionBy(*LEDGER_KEY).orderBy("seq").rowsBetween(Window.unboundedPreceding, -1)
    highest = sf.max(sf.when(is_applied, sf.col("version"))).over(before)
    steps = steps.withColumn("highest", highest)
    problems = steps.withColumn("shape", _shape_problem()).withColumn("step", sf.when(is_applied, _step_problem(old)))
    misshapen = tell(
        sf.col("shape.clause"),
        sf.col("shape").isNotNull(),
        sf.col("seq"),
        [sf.col("seq")],
        "metadata write with cause %s and outcome %s (event %d): %s",
        sf.col("cause"),
        sf.col("outcome"),
        sf.col("seq"),
        sf.col("shape.text"),
    )
    misstep = tell(
        sf.col("step.clause"),
        sf.col("step").isNotNull(),
        sf.greatest(sf.col("seq"), old["seq"]),
        [old["seq"], sf.col("seq")],
        "version %d, cause %s (event %d): %s",
        sf.col("version"),
        sf.col("cause"),
        sf.col("seq"),
        sf.col("step.text"),
    )
    overtaken = tell(
        "C2",
        is_applied & (sf.col("cause") != "create") & (sf.col("highest") > sf.col("expected_version")),
        sf.col("seq"),
        [sf.col("seq")],
        "two writes succeeded on version %d, the second one by event %d, when version %d was stored",
        sf.col("expected_version"),
        sf.col("seq"),
        sf.col("highest"),
    )
    return observed(problems, misshapen, misstep, overtaken)


FRAGMENTS_WELL_FORMED: Final = Invariant(
    name="FragmentsWellFormed",
    clauses=("C1", "C2", "C3", "C4", "C5", "C7", "C10", "B9"),
    kinds=(Kind.META_CAS,),
    columns=LEDGER_COLUMNS,
    observe=_observe,
)

"""FragmentsWellFormed: metadata only ever changes the way the protocol changes it.

Every attempt to write metadata, refused or not, has to have the right shape: fragments from entry 0 on in ascending
order, each with E distinct bookies, E >= Qw >= Qa >= 1, and a closed ledger's last fragment starting at most one
entry above its end (an empty last fragment is legal). A client that tries otherwise is wrong even where the store
saves it.

An attempt is also held against the version that it expects: one to close, or to begin a recovery, touches no fragment but the
last, whose first entry stays; in an ensemble change bookies that stay keep their positions, since the position decides which
entries a bookie has. And writes that succeeded against the version that they replaced: versions count by one, the state only
moves on, and a change of state to IN_RECOVERY leaves the fragments alone.

A write that succeeds on a version which is not the highest stored is wrong wherever it stands. Two versions are
compared where both are known; a gap left by a write of unknown outcome is passed over. A ledger that is created anew with an id
that was used before is compared with itself only. After a deletion there is no write but
another creation.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sf

from scenarios.history import Kind
from spark_analysis.invariants.base import Invariant
from spark_analysis.invariants.expressions import LEDGER_KEY, is_kind, join_small, observed, tell
from spark_analysis.invariants.facts import Facts
from spark_analysis.invariants.relations import LEDGER_COLUMNS, LEDGER_KINDS

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


def _are_quorums() -> Column:
    sizes = (sf.col("ensemble_size"), sf.col("write_quorum_size"), sf.col("ack_quorum_size"))
    return (sizes[0] >= sizes[1]) & (sizes[1] >= sizes[2]) & (sizes[2] >= 1)


def _shape_problems() -> tuple[Column, ...]:
    """What may be wrong with the metadata of one attempt, each null if it is not."""
    fragments, size = sf.col("fragments"), sf.col("ensemble_size")
    firsts = _firsts(fragments)
    is_ascending = firsts == sf.array_sort(sf.array_distinct(firsts))
    is_full = sf.forall(
        fragments,
        lambda fragment: (
            (sf.size(fragment["bookies"]) == size) & (sf.size(sf.array_distinct(fragment["bookies"])) == size)
        ),
    )
    ends_below = (sf.col("state") == "CLOSED") & (sf.array_max(firsts) > sf.col("last_entry") + 1)
    return (
        sf.coalesce(
            _problem(sf.size(fragments) < 1, "C4", "there is no fragment"),
            _problem(sf.get(firsts, sf.lit(0)) != 0, "C4", "the first fragment does not start at entry 0"),
            _problem(~is_ascending, "C4", "first entries do not ascend"),
        ),
        _problem(~is_full, "C5", "an ensemble does not have E distinct bookies"),
        _problem(~_are_quorums(), "C10", "not E >= Qw >= Qa >= 1"),
        _problem(ends_below, "B9", "the last fragment starts above the end"),
    )


def _step_problems(old: Column) -> tuple[Column, ...]:
    """What may be wrong with the step from ``old``, what was stored before, to this version, each null if it is not."""
    is_next = old["version"] == sf.col("expected_version")
    step = sf.concat_ws(">", old["state"], sf.col("state"))
    is_marking = (sf.col("state") == "IN_RECOVERY") & (sf.col("cause") != "rereplicate")
    is_remade = is_marking & (sf.col("fragments") != old["fragments"])
    is_skipping = (sf.col("cause") != "create") & (sf.col("expected_version") != sf.col("version") - 1)
    return (
        _problem(is_skipping, "C1", "the new version does not follow the expected one"),
        _problem(is_next & ~step.isin(*_LEGAL_STEPS), "C3", sf.concat(sf.lit("illegal step "), step)),
        _problem(is_next & is_remade, "C7", "fragments changed while the ledger is in recovery"),
    )


def _moves(facts: Facts) -> DataFrame:
    """Attempts to write metadata, and what they make of the fragments that they build on, as observations."""
    fragments, expected, seq = sf.col("fragments"), sf.col("expected"), sf.col("seq")
    old = expected["fragments"]
    attempts = facts.rare_events.filter(
        is_kind(Kind.META_CAS) & sf.col("cause").isin("ensemble", "close", "recover")
    ).select(*LEDGER_KEY, *LEDGER_COLUMNS)
    version = sf.col("expected_version")
    known = sf.filter("images", lambda image: (image["version"] == version) & (image["seq"] < seq))
    judged = (
        join_small(attempts, facts.images.select(*LEDGER_KEY, "images"), on=LEDGER_KEY, how="inner")
        .withColumn("expected", sf.get(known, sf.lit(0)))
        .filter((sf.size(old) > 0) & (sf.size(fragments) > 0))
    )
    last = sf.size(old) - 1
    is_earlier_kept = sf.slice(fragments, 1, last) == sf.slice(old, 1, last)
    is_boundary_kept = sf.get(fragments, last)["first_entry"].eqNullSafe(sf.get(old, last)["first_entry"])
    old_last, new_last = (sf.try_element_at(of, sf.lit(-1))["bookies"] for of in (old, fragments))
    is_in_place = sf.forall(
        sf.array_intersect(old_last, new_last),
        lambda bookie: sf.array_position(old_last, bookie) == sf.array_position(new_last, bookie),
    )
    is_change = sf.col("cause") == "ensemble"
    is_ending = ~is_change & (expected["state"] != "CLOSED")
    problem = (
        sf.when(is_ending & ~is_boundary_kept, "the boundary of an existing fragment moved")
        .when(is_ending & ~is_earlier_kept, "a fragment other than the last one changed")
        .when(is_change & ~is_in_place, "a bookie that stays changed its position")
    )
    finding = tell(
        "C5",
        problem.isNotNull(),
        seq,
        [expected["seq"], seq],
        "metadata write with cause %s (event %d) on version %d (event %d): %s",
        sf.col("cause"),
        seq,
        version,
        expected["seq"],
        problem,
    )
    return observed(judged, finding)


def _gone(facts: Facts) -> DataFrame:
    """Successful writes after a deletion, as observations."""
    seq, cause, last = sf.col("seq"), sf.col("cause"), sf.col("last")
    writes = facts.rare_events.filter(is_kind(Kind.META_CAS) & (sf.col("outcome") == "ok")).select(
        *LEDGER_KEY, "seq", "actor", "cause"
    )
    before = Window.partitionBy(*LEDGER_KEY).orderBy("seq").rowsBetween(Window.unboundedPreceding, -1)
    turn = sf.when(cause.isin("create", "delete"), sf.struct("cause", "seq"))
    judged = writes.withColumn("last", sf.last(turn, ignorenulls=True).over(before)).filter(
        (last["cause"] == "delete") & (cause != "delete")
    )
    finding = tell(
        "C11",
        cause != "create",
        seq,
        [last["seq"], seq],
        "%s wrote metadata, cause %s (event %d), of the ledger after it had been deleted (event %d)",
        sf.col("actor"),
        cause,
        seq,
        last["seq"],
    )
    return observed(judged, finding)


def _observe(facts: Facts) -> DataFrame:
    seq, is_applied, is_deletion = sf.col("seq"), sf.col("outcome") == "ok", sf.col("cause") == "delete"
    before = Window.partitionBy(*LEDGER_KEY).orderBy("seq").rowsBetween(Window.unboundedPreceding, -1)
    deleted = sf.coalesce(sf.max(sf.when(is_deletion & is_applied, seq)).over(before), sf.lit(-1))
    this_life = Window.partitionBy(*LEDGER_KEY, "deleted").orderBy("seq")
    sizes = sf.struct("ensemble_size", "write_quorum_size", "ack_quorum_size")
    usual = sf.first(sf.when(_are_quorums(), sizes), ignorenulls=True).over(
        this_life.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    )
    stored = sf.filter("images", lambda image: (image["seq"] < seq) & (image["seq"] > sf.col("deleted")))
    steps = (
        facts.rare_events.filter(is_kind(Kind.META_CAS))
        .select(*LEDGER_KEY, *LEDGER_COLUMNS)
        .withColumn("deleted", deleted)
        .filter(~is_deletion)
        .withColumn("sizes", sizes)
        .withColumn("usual_sizes", usual)
        .transform(join_small, facts.images.select(*LEDGER_KEY, "images"), on=LEDGER_KEY, how="left")
        .withColumn("old", sf.array_max(stored))
    )
    old = sf.col("old")

    def misshapen(problem: Column) -> Column:
        return tell(
            problem["clause"],
            problem.isNotNull(),
            sf.col("seq"),
            [sf.col("seq")],
            "metadata write with cause %s and outcome %s (event %d): %s",
            sf.col("cause"),
            sf.col("outcome"),
            sf.col("seq"),
            problem["text"],
        )

    def misstep(problem: Column) -> Column:
        return tell(
            problem["clause"],
            is_applied & problem.isNotNull(),
            sf.greatest(sf.col("seq"), old["seq"]),
            [old["seq"], sf.col("seq")],
            "version %d, cause %s (event %d): %s",
            sf.col("version"),
            sf.col("cause"),
            sf.col("seq"),
            problem["text"],
        )

    is_resized = _are_quorums() & (sf.col("sizes") != sf.col("usual_sizes"))
    shapes = (*_shape_problems(), _problem(is_resized, "C10", "E, Qw and Qa are not what they were"))
    overtaken = tell(
        "C2",
        is_applied & (sf.col("cause") != "create") & (old["version"] > sf.col("expected_version")),
        sf.col("seq"),
        [sf.col("seq")],
        "two writes succeeded on version %d, the second one by event %d, when version %d was stored",
        sf.col("expected_version"),
        sf.col("seq"),
        old["version"],
    )
    found = (*map(misshapen, shapes), *map(misstep, _step_problems(old)), overtaken)
    return observed(steps, *found).union(_moves(facts)).union(_gone(facts))


FRAGMENTS_WELL_FORMED: Final = Invariant(
    name="FragmentsWellFormed",
    clauses=("C1", "C2", "C3", "C4", "C5", "C7", "C10", "C11", "B9"),
    kinds=LEDGER_KINDS,
    columns=("actor", *LEDGER_COLUMNS),
    observe=_observe,
)

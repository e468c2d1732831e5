"""What an invariant is, and how its judgement of a ledger is told.

An invariant is a pure function from the facts of many histories to *observations*: rows of a ledger and what was
found wrong there, which almost always is nothing. A ledger that occurs in them has the invariant's *premise*; one
that does not is *unknown* to it, as is one of which an observation says that the history leaves it open
(:mod:`spark_analysis.invariants.left_open`). What is wrong is told from which event on, in words, and by the events that show it
(see :func:`~spark_analysis.invariants.expressions.tell`). :func:`judge` makes of the observations of several
invariants *findings*: of each invariant and ledger the earliest thing wrong by each clause, or else why it is open, or that
neither is.

Invariants are written from the history alone and share no code with what they judge. They have to be sound: where a
history leaves open whether a guarantee was broken, it is not told to be. What each needs the recorder to have promised is in
docs/reference/history-format.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from scenarios.clauses import STATEMENTS
from scenarios.history import Kind
from spark_analysis.invariants.expressions import LEDGER_KEY, join_small
from spark_analysis.invariants.facts import Facts
from spark_analysis.invariants.left_open import LeftOpen, leave_open

__all__ = ["Invariant", "is_broken", "judge"]


@dataclass(frozen=True, slots=True)
class Invariant:
    """A guarantee, and how to tell from a history whether it was kept.

    ``name`` is one of those in :mod:`scenarios.clauses`, which says what it states and of which clauses it consists; ``clauses``
    are the numbers of those that are judged here. ``kinds`` and ``columns`` are what ``observe`` looks at, beyond ``history``,
    ``kind`` and ``ledger``, so that nothing else is read. Where no event of one of the kinds in ``premise`` occurs, ``observe``
    gives no row; what has none is asked of any events.
    """

    name: str
    clauses: tuple[str, ...]
    kinds: tuple[Kind, ...]
    columns: tuple[str, ...]
    observe: Callable[[Facts], DataFrame] = field(repr=False)
    premise: tuple[Kind, ...] = ()

    @property
    def statement(self) -> str:
        """The invariant in a sentence."""
        return STATEMENTS[self.name]


def is_broken() -> Column:
    """Whether a finding says that something is wrong. One without a clause has as its witness why the history leaves it open."""
    return sf.col("clause").isNotNull()


def judge(facts: Facts, invariants: Sequence[Invariant]) -> DataFrame:
    """What ``invariants`` find, in the columns of :data:`spark_analysis.schema.FINDING_SCHEMA`.

    A ledger that has the premise of an invariant has a row for each clause that is broken, by the earliest finding of it, or else
    one row without a clause; so has one of which the id was used again, whatever was found. What was found wrong is collected
    before the earliest is taken, because almost always there is nothing: collecting nulls needs a hash table of the ledgers, the
    least of structs would need all rows sorted.
    """
    observations = [
        invariant.observe(facts).select(sf.lit(invariant.name).alias("invariant"), *LEDGER_KEY, "findings")
        for invariant in invariants
    ]
    created = sf.col("created_anew")
    open_again = sf.array(leave_open(LeftOpen.CREATED_ANEW, created.isNotNull(), [created]))
    return (
        _union(observations)
        .filter(sf.col("ledger") >= 0)
        .groupBy("invariant", *LEDGER_KEY)
        .agg(sf.flatten(sf.collect_list("findings")).alias("findings"))
        .transform(join_small, _created_anew(facts), on=LEDGER_KEY, how="left")
        .withColumn("findings", sf.when(created.isNotNull(), open_again).otherwise(sf.col("findings")))
        .select(
            "invariant", *LEDGER_KEY, sf.posexplode_outer(_first_of_each_clause("findings")).alias("nth", "finding")
        )
        .select(
            "invariant",
            *LEDGER_KEY,
            sf.coalesce("nth", sf.lit(0)).alias("nth"),
            *(f"finding.{name}" for name in ("seq", "clause", "witness", "evidence")),
        )
    )


def _created_anew(facts: Facts) -> DataFrame:
    """The ledgers of which the id was used again, which happens to ids that applications choose."""
    return facts.ledgers.select(*LEDGER_KEY, "created_anew").filter(sf.col("created_anew").isNotNull())


def _first_of_each_clause(findings: str) -> Column:
    """The earliest of the ``findings`` of each clause, in order; or one that says why all is open, if there is no other."""
    clauses = sf.array_distinct(sf.transform(findings, lambda finding: finding["clause"]))
    firsts = sf.array_sort(
        sf.transform(
            clauses,
            lambda clause: sf.array_min(sf.filter(findings, lambda finding: finding["clause"].eqNullSafe(clause))),
        )
    )
    broken = sf.filter(firsts, lambda finding: finding["clause"].isNotNull())
    return sf.when(sf.size(broken) > 0, broken).otherwise(firsts)


def _union(parts: Sequence[DataFrame]) -> DataFrame:
    """All rows of ``parts``, joined by halves: Spark looks at all that a union consists of when it is made."""
    if len(parts) == 1:
        return parts[0]
    middle = len(parts) // 2
    return _union(parts[:middle]).union(_union(parts[middle:]))

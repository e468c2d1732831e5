"""What an invariant is, and how its judgement of a ledger is told.

An invariant is a pure function from the facts of many histories to *observations*: rows of a ledger and what was
found wrong there, which almost always is nothing. A ledger that occurs in them has the invariant's *premise*; one
that does not is *unknown* to it, as is one of which an observation says that the history leaves it open
(:mod:`spark_analysis.invariants.left_open`). What is wrong is told from which event on, in words, and by the events that show it
(see :func:`~spark_analysis.invariants.expressions.tell`). :func:`judge` makes of the observations of several
invariants one *finding* per invariant and ledger: the earliest thing wrong, or else why it is open, or that neither is.

Invariants are written from the history alone and share no code with what they judge. They have to be sound: where a
history leaves open whether a guarantee was broken, it is not told to be. What each needs the recorder to have promised is in
docs/reference/history-format.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from scenarios.clauses import STATEMENTS
from scenarios.history import Kind
from spark_analysis.invariants.expressions import LEDGER_KEY
from spark_analysis.invariants.facts import Facts
from spark_analysis.schema import VIOLATION_SCHEMA

__all__ = ["CheckClass", "Invariant", "is_broken", "judge"]


class CheckClass(StrEnum):
    """How the answer is found, which is what it costs."""

    #: One pass over the events: one aggregate, or one window.
    ONE_PASS = "P1"  # noqa: S105  no password
    #: Several aggregates, joined.
    JOINED = "P2"


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
    check_class: CheckClass
    kinds: tuple[Kind, ...]
    columns: tuple[str, ...]
    observe: Callable[[Facts], DataFrame] = field(repr=False)
    premise: tuple[Kind, ...] = ()

    @property
    def statement(self) -> str:
        """The invariant in a sentence."""
        return STATEMENTS[self.name]

    def violations(self, events: DataFrame) -> DataFrame:
        """The broken ledgers in ``events``, in the columns of :data:`spark_analysis.schema.VIOLATION_SCHEMA`."""
        runs = events.groupBy("history").agg(sf.first("scenario").alias("scenario"), sf.first("seed").alias("seed"))
        broken = judge(Facts(events), [self]).filter(is_broken())
        return (
            broken.join(runs, on="history", how="left")
            .withColumnRenamed("seq", "first_seq")
            .select(*VIOLATION_SCHEMA.names)
        )


def is_broken() -> Column:
    """Whether a finding says that something is wrong. One without a clause has as its witness why the history leaves it open."""
    return sf.col("clause").isNotNull()


def judge(facts: Facts, invariants: Sequence[Invariant]) -> DataFrame:
    """One row per invariant and ledger that has its premise, in the columns of :data:`spark_analysis.schema.FINDING_SCHEMA`.

    What was found wrong is collected before the earliest is taken, because almost always there is nothing: collecting nulls
    needs a hash table of the ledgers, the least of structs would need all rows sorted.
    """
    observations = [
        invariant.observe(facts).select(sf.lit(invariant.name).alias("invariant"), *LEDGER_KEY, "finding")
        for invariant in invariants
    ]
    return (
        _union(observations)
        .filter(sf.col("ledger") >= 0)
        .groupBy("invariant", *LEDGER_KEY)
        .agg(sf.array_min(sf.collect_list("finding")).alias("finding"))
        .select("invariant", *LEDGER_KEY, "finding.seq", "finding.clause", "finding.witness", "finding.evidence")
    )


def _union(parts: Sequence[DataFrame]) -> DataFrame:
    """All rows of ``parts``, joined by halves: Spark looks at all that a union consists of when it is made."""
    if len(parts) == 1:
        return parts[0]
    middle = len(parts) // 2
    return _union(parts[:middle]).union(_union(parts[middle:]))

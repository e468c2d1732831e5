"""What an invariant is, and how its judgement of a ledger is told.

An invariant is a pure function from the events of many histories to *findings*: exactly one row for every ledger that the
invariant can say something about, its *premise* being there. A finding without a witness says that the invariant holds; one
with a witness says what is wrong, from which event on, and which events show it. Ledgers without a finding are unknown.

Invariants are written from the history alone and share no code with what they judge. They have to be sound: where a history
leaves open whether a guarantee was broken, it holds. What each needs the recorder to have promised is in docs/history-format.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from scenarios.history import Kind
from spark_analysis.schema import FINDING_SCHEMA, VIOLATION_SCHEMA

__all__ = ["LEDGER_KEY", "CheckClass", "Invariant", "first_per_ledger", "is_kind", "join_small", "tell"]

#: What identifies a ledger: ids are only unique within a history.
LEDGER_KEY: Final = ("history", "ledger")


class CheckClass(StrEnum):
    """How the answer is found, which is what it costs."""

    #: One pass over the events: one aggregate, or one window in the order of seq.
    ONE_PASS = "P1"  # noqa: S105  no password
    #: Several aggregates, joined.
    JOINED = "P2"


@dataclass(frozen=True, slots=True)
class Invariant:
    """A guarantee, and how to tell from a history whether it was kept.

    ``statement`` is one sentence; ``formula`` names the rows of the protocol's list of invariants that it covers. ``kinds`` and
    ``columns`` are what ``findings`` looks at, so that nothing else has to be read.
    """

    name: str
    statement: str
    formula: str
    check_class: CheckClass
    kinds: tuple[Kind, ...]
    columns: tuple[str, ...]
    findings: Callable[[DataFrame], DataFrame] = field(repr=False)

    def judge(self, events: DataFrame) -> DataFrame:
        """``findings`` of ``events``, in the columns of :data:`spark_analysis.schema.FINDING_SCHEMA`."""
        return self.findings(events).select(*FINDING_SCHEMA.names)

    def violations(self, events: DataFrame) -> DataFrame:
        """The broken ledgers in ``events``, in the columns of :data:`spark_analysis.schema.VIOLATION_SCHEMA`."""
        runs = events.groupBy("history").agg(sf.first("scenario").alias("scenario"), sf.first("seed").alias("seed"))
        broken = self.judge(events).filter(sf.col("witness").isNotNull())
        return (
            broken.join(runs, on="history", how="left")
            .withColumn("invariant", sf.lit(self.name))
            .withColumnRenamed("seq", "first_seq")
            .select(*VIOLATION_SCHEMA.names)
        )


def is_kind(*kinds: Kind) -> Column:
    """Whether a row is an event of one of ``kinds``."""
    return sf.col("kind").isin(*(str(kind) for kind in kinds))


def tell(is_broken: Column, seq: Column, evidence: list[Column], text: str, *values: Column) -> Column:
    """A finding's ``seq``, ``witness`` and ``evidence`` as one struct; null where ``is_broken`` is not true.

    ``text`` is a format for ``values``. Structs sort by ``seq``, so the least of several is the earliest.
    """
    witness = sf.format_string(text, *values)
    return sf.when(
        is_broken, sf.struct(seq.alias("seq"), witness.alias("witness"), sf.array(*evidence).alias("evidence"))
    )


def first_per_ledger(rows: DataFrame, *findings: Column) -> DataFrame:
    """One finding per ledger in ``rows``: the earliest of all ``findings`` (see :func:`tell`) of its rows, if there is any.

    Findings are collected before the least is taken, because almost always there are none: collecting nulls needs a hash table
    of the ledgers, the least of structs would need all rows sorted.
    """
    earliest = sf.least(*findings) if len(findings) > 1 else findings[0]
    return (
        rows.select(*LEDGER_KEY, earliest.alias("finding"))
        .groupBy(*LEDGER_KEY)
        .agg(sf.array_min(sf.collect_list("finding")).alias("finding"))
        .select(*LEDGER_KEY, "finding.seq", "finding.witness", "finding.evidence")
    )


def join_small(left: DataFrame, right: DataFrame, on: Sequence[str], how: str) -> DataFrame:
    """Join each row of ``left`` with its row in ``right``, unique by ``on``, by a hash table of ``right``.

    Everything is partitioned by history already, so neither side moves, and a hash table of one partition's ledgers, or entries,
    is small beside its events; Spark, knowing the size of neither, would sort both.
    """
    return left.join(right.hint("shuffle_hash"), on=list(on), how=how)

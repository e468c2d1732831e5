"""Both witnesses over a folder of histories, and where they disagree.

The online checker and Spark's formulas were written apart, from the same statements (:mod:`scenarios.clauses`). Whatever one
accuses a ledger of, so must the other, clause by clause, or one of them is wrong.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from spark_analysis.defaults import MAX_WITNESSES_DEFAULT
from spark_analysis.invariants import INVARIANTS, Invariant
from spark_analysis.invariants.base import is_broken
from spark_analysis.jobs.check import checked_histories
from spark_analysis.jobs.inputs import histories_of
from spark_analysis.jobs.judging import judged_histories

__all__ = ["Comparison", "Disagreement", "compare", "disagreements"]

_KEY: Final = ("history", "invariant", "ledger")


@dataclass(frozen=True, slots=True)
class Disagreement:
    """What one witness says of an invariant in a ledger, and the other does not.

    ``checker`` has the clauses that the online checker found broken, ``formulas`` those that Spark's formulas did. Where
    one of them cannot use the file, ``invariant`` is "", ``ledger`` is -1, and the one has the problem instead.
    """

    history: str
    invariant: str
    ledger: int
    checker: tuple[str, ...]
    formulas: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Comparison:
    """What a comparison came to: histories that both judged, ledgers that both accuse, and where they disagree.

    ``accusations`` counts pairs of invariant and ledger that either accuses, ``agreed`` those on which they agree.
    ``disagreements`` has at most as many as were asked for; ``disagreed`` counts all.
    """

    histories: int
    rejected_files: int
    accusations: int
    agreed: int
    disagreed: int
    disagreements: tuple[Disagreement, ...]
    seconds: float

    @property
    def is_clean(self) -> bool:
        """Whether neither witness accuses any ledger."""
        return not self.accusations

    def as_json(self) -> dict[str, Any]:
        """The shape that ``bk-verify compare --json`` prints."""
        return asdict(self) | {"seconds": round(self.seconds, 3)}


def compare(
    spark: SparkSession,
    folder: Path | str,
    *,
    invariants: Sequence[Invariant] = INVARIANTS,
    max_shown: int = MAX_WITNESSES_DEFAULT,
) -> Comparison:
    """Judge every history below ``folder``, or in the data set there, by both witnesses; compare what they say of ``invariants``.

    Raises as :func:`~spark_analysis.jobs.inputs.histories_of` does.
    """
    started = time.perf_counter()
    histories = histories_of(folder)
    checked = checked_histories(spark, histories).persist(StorageLevel.MEMORY_AND_DISK_DESER)
    try:
        with judged_histories(spark, histories, invariants) as judged:
            told = _formulas(judged.findings)
            by_file = judged.files.select("history", sf.col("problem").alias("formulas_problem"))
            accused, differing = disagreements(_checker(checked, invariants), told)
            unequal = _unequal_files(checked, by_file)
            counted = checked.agg(
                sf.count_if(sf.col("problem").isNull()).alias("histories"),
                sf.count_if(sf.col("problem").isNotNull()).alias("rejected"),
            ).first()
            assert counted is not None, "an aggregate without groups has one row"
            accusations, of_ledgers = accused.count(), differing.count()
            of_files = unequal.count()
            shown = differing.union(unequal).orderBy(*_KEY).limit(max_shown).collect() if of_ledgers + of_files else []
    finally:
        checked.unpersist()
    return Comparison(
        histories=counted["histories"],
        rejected_files=counted["rejected"] + histories.set_aside()[1],
        accusations=accusations,
        agreed=accusations - of_ledgers,
        disagreed=of_ledgers + of_files,
        disagreements=tuple(
            Disagreement(row["history"], row["invariant"], row["ledger"], tuple(row["checker"]), tuple(row["formulas"]))
            for row in shown
        ),
        seconds=time.perf_counter() - started,
    )


def _checker(checked: DataFrame, invariants: Sequence[Invariant]) -> DataFrame:
    """``history``, ``invariant``, ``ledger`` and the broken clauses, of the ``invariants``, which both judge."""
    both = [invariant.name for invariant in invariants]
    return (
        checked.select("history", sf.inline("violations"))
        .filter(sf.col("invariant").isin(both))
        .groupBy(*_KEY)
        .agg(sf.sort_array(sf.collect_set("clause")).alias("checker"))
    )


def _formulas(findings: DataFrame) -> DataFrame:
    broken = findings.filter(is_broken())
    return broken.groupBy(*_KEY).agg(sf.sort_array(sf.collect_set("clause")).alias("formulas"))


def disagreements(checker: DataFrame, formulas: DataFrame) -> tuple[DataFrame, DataFrame]:
    """What either accuses, and what they disagree on: ``history``, ``invariant``, ``ledger``, ``checker``, ``formulas``."""
    nothing = sf.array().cast("array<string>")
    accused = (
        checker.join(formulas, on=list(_KEY), how="full_outer")
        .withColumn("checker", sf.coalesce("checker", nothing))
        .withColumn("formulas", sf.coalesce("formulas", nothing))
    )
    return accused, accused.filter(sf.col("checker") != sf.col("formulas"))


def _unequal_files(checked: DataFrame, by_file: DataFrame) -> DataFrame:
    """Files that one witness can use and the other cannot, as rows like those of ledgers."""
    both = checked.select("history", "problem").join(by_file, on="history", how="full_outer")
    unequal = both.filter(sf.col("problem").isNull() != sf.col("formulas_problem").isNull())
    return unequal.select(
        "history",
        sf.lit("").alias("invariant"),
        sf.lit(-1).cast("bigint").alias("ledger"),
        sf.array_compact(sf.array("problem")).alias("checker"),
        sf.array_compact(sf.array("formulas_problem")).alias("formulas"),
    )

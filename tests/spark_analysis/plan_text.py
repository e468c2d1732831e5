"""What Spark is going to do with a table: the one place where tests ask the JVM for a plan, since PySpark only prints it."""

from __future__ import annotations

from pyspark.sql import DataFrame

from spark_analysis.jobs.keeping import Kept

__all__ = ["noting", "plan_text"]


def plan_text(relation: DataFrame) -> str:
    """The physical plan of ``relation``, as :meth:`~pyspark.sql.DataFrame.explain` prints it."""
    text: str = relation._jdf.queryExecution().executedPlan().toString()
    return text


def noting(plans: list[str]) -> type[Kept]:
    """Relations that are kept together; how those are planned that begin with events, or with findings, is added to ``plans``."""

    class Noting(Kept):
        def keep(self, relation: DataFrame, placed_by: str | None = None) -> DataFrame:
            if placed_by is not None:
                plans.append(plan_text(relation))
            return super().keep(relation, placed_by)

    return Noting

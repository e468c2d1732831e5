"""What Spark is going to do with a table: the one place where tests ask the JVM for a plan, since PySpark only prints it."""

from __future__ import annotations

from pyspark.sql import DataFrame

__all__ = ["plan_text"]


def plan_text(relation: DataFrame) -> str:
    """The physical plan of ``relation``, as :meth:`~pyspark.sql.DataFrame.explain` prints it."""
    text: str = relation._jdf.queryExecution().executedPlan().toString()
    return text

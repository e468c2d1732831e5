"""How Spark plans each question, in counts: what costs per event, and per question. ``plan_budget.toml`` is what they are.

A plan is exact, so the budget is: more is a regression, and less is written down.
``python -m tests.spark_analysis.test_plan_budget`` prints the file anew.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from spark_analysis.invariants import INVARIANTS
from spark_analysis.invariants.base import judge
from spark_analysis.invariants.facts import Facts
from spark_analysis.jobs import keeping
from spark_analysis.jobs.planning import planned_for_kept_partitions
from spark_analysis.schema import EVENT_SCHEMA
from spark_analysis.session import open_session
from tests.spark_analysis.plan_text import plan_text

pytestmark = [pytest.mark.spark, pytest.mark.deep, pytest.mark.timeout(600)]

BUDGET: Final = Path(__file__).with_name("plan_budget.toml")

#: What is counted, by how nodes of plans are called.
COUNTED: Final[Mapping[str, str]] = {
    "kept": r"Scan ExistingRDD",
    "joins": r"ShuffledHashJoin",
    "windows": r"Window",
    "sorts": r"Sort",
    "unions": r"Union",
    "objects": r"ObjectHashAggregate",
    "sorted": r"SortAggregate",
}

#: What no plan has: what moves rows, what is quadratic, and what leaves the JVM.
FORBIDDEN: Final = (
    *(
        "Exchange",
        "ReusedExchange",
        "SortMergeJoin",
        "BroadcastHashJoin",
        "CartesianProduct",
        "BroadcastNestedLoopJoin",
    ),
    *(
        "BatchEvalPython",
        "ArrowEvalPython",
        "MapInArrow",
        "MapInPandas",
        "FlatMapGroupsInArrow",
        "FlatMapGroupsInPandas",
    ),
)


def nodes(relation: DataFrame) -> Counter[str]:
    """How often each kind of node is in the plan of ``relation``."""
    found = re.findall(r"^[ :+|-]*(?:\*\(\d+\) )?([A-Z]\w*(?: ExistingRDD)?)", plan_text(relation), flags=re.MULTILINE)
    return Counter(found)


def plans(spark: SparkSession) -> dict[str, Counter[str]]:
    """The nodes of each invariant's plan, and of each relation that several start from."""
    made: dict[int, Counter[str]] = {}

    def keep(relation: DataFrame) -> DataFrame:
        kept = keeping.keep(relation)
        made[id(kept)] = nodes(relation)
        return kept

    with planned_for_kept_partitions(spark, input_bytes=1 << 40, partition_bytes=0):
        rows = spark.createDataFrame([], EVENT_SCHEMA).repartition(2, "history")
        facts = Facts(keeping.keep(rows), keep)
        asked = {invariant.name: nodes(judge(facts, [invariant])) for invariant in INVARIANTS}
        names = [name for name in dir(Facts) if name in vars(facts) and name != "events"]
        return asked | {name: made[id(getattr(facts, name))] for name in names}


def counted(found: Counter[str]) -> dict[str, int]:
    """Those of :data:`COUNTED` that occur."""
    counts = {name: found[node] for name, node in COUNTED.items()}
    return {name: count for name, count in counts.items() if count}


def test_plans_are_those_of_the_budget(spark: SparkSession) -> None:
    found = plans(spark)
    assert {name: counted(plan) for name, plan in found.items()} == tomllib.loads(BUDGET.read_text(encoding="utf-8"))
    assert not {(name, node) for name, plan in found.items() for node in FORBIDDEN if plan[node]}


def test_what_plans_must_not_have_is_seen(spark: SparkSession) -> None:
    """In questions that are asked badly: one moves rows, one is quadratic, one leaves the JVM."""
    with planned_for_kept_partitions(spark, input_bytes=1 << 40, partition_bytes=0):
        rows = spark.createDataFrame([], EVENT_SCHEMA).repartition(2, "history")
        kept = keeping.keep(rows)
        moved = kept.groupBy("actor").count()
        quadratic = kept.select("actor").crossJoin(kept.select("bookie"))
        python = kept.select(sf.udf(lambda name: name, "string", useArrow=False)("actor"))
        found = [set(nodes(question)) & set(FORBIDDEN) for question in (moved, quadratic, python, kept)]
    assert found == [{"Exchange"}, {"CartesianProduct"}, {"BatchEvalPython"}, set()]


def main() -> None:
    """Print the budget as plans are now."""
    found = plans(open_session("local[2]"))
    for name in sorted(found):
        told = ", ".join(f"{key} = {count}" for key, count in counted(found[name]).items())
        sys.stdout.write(f"{name} = {{ {told} }}\n")


if __name__ == "__main__":
    main()

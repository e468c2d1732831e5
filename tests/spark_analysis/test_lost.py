"""A job begins again when an executor was lost with what it needs; any other failure is told as it is."""

from __future__ import annotations

import pytest
from pyspark.errors import PySparkException

from spark_analysis.jobs.lost import ATTEMPTS_MAX, again_if_lost

LOST = "[CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND] Checkpoint block rdd_7_0 not found!"


class Job:
    """Fails with each of ``problems``, and then has a result."""

    def __init__(self, *problems: str) -> None:
        self.problems = list(problems)
        self.runs = 0

    def __call__(self) -> str:
        self.runs += 1
        if self.problems:
            raise PySparkException(self.problems.pop(0))
        return "result"


def test_a_job_begins_again_as_often_as_executors_may_be_lost() -> None:
    job = Job(*[LOST] * (ATTEMPTS_MAX - 1))
    assert again_if_lost(job) == "result"
    assert job.runs == ATTEMPTS_MAX


def test_a_cluster_that_loses_executors_all_the_time_is_told() -> None:
    job = Job(*[LOST] * ATTEMPTS_MAX)
    with pytest.raises(PySparkException, match="CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND"):
        again_if_lost(job)
    assert job.runs == ATTEMPTS_MAX


def test_any_other_failure_is_told_at_once() -> None:
    job = Job("no space left on device")
    with pytest.raises(PySparkException, match="no space left"):
        again_if_lost(job)
    assert job.runs == 1

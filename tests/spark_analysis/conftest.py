"""One Spark session for all tests of a process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from simbookie.java import JavaRuntime
from spark_analysis.session import open_session


@pytest.fixture(scope="session")
def spark(java: JavaRuntime) -> Iterator[SparkSession]:
    """A local session, which tests must not stop. Mark its users ``spark``."""
    session = open_session("local[2]", app_name="bk-verify-tests", java=java)
    yield session
    session.stop()

"""What executors on other machines get: the project as an archive, from which everything works as it does here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from scenarios.runner import run_scenario
from spark_analysis.executors import check_seen, project_archive

_RUNNING = """
import json, sys
import scenarios, spark_analysis.dataset.writing, spark_analysis.jobs.check, spark_analysis.jobs.replay
from scenarios.runner import run_scenario

print(json.dumps([scenarios.__file__, run_scenario("calm-writes", 3).digest]))
"""


def test_a_run_from_the_archive_is_the_same(tmp_path: Path) -> None:
    """With the packages that are installed beside the project, and without the project."""
    archive = project_archive(tmp_path)
    paths = os.pathsep.join([str(archive), *{sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}])
    ended = subprocess.run(
        [sys.executable, "-S", "-c", _RUNNING],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": paths},
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    file, digest = json.loads(ended.stdout)
    assert Path(file).is_relative_to(archive)
    assert digest == run_scenario("calm-writes", 3).digest


@pytest.mark.spark
def test_executors_of_this_process_see_what_it_sees(spark: SparkSession, tmp_path: Path) -> None:
    check_seen(spark, [tmp_path / "nowhere"])

"""The session: how its JVM is started. That it starts at all, every other test with Spark shows."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyspark
import pytest
from py4j.clientserver import JavaClient
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as sf

from simbookie.java import JavaRuntime
from spark_analysis import session
from spark_analysis.remembered import REMEMBERED_MAX
from spark_analysis.session import FIRST_JARS, QUICK_BYTES, first_jars, open_session

#: A session takes a minute to start on a machine that is busy.
pytestmark = pytest.mark.timeout(600)

VECTOR = "--add-modules=jdk.incubator.vector"
SECURITY = "--add-opens=java.base/sun.security.action=ALL-UNNAMED"


def started_with(scratch: Path, major_version: int, *arguments: str) -> list[str]:
    """The arguments that reach a runtime of this version, played by a program that prints them."""
    runtime = scratch / "real java"
    runtime.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    runtime.chmod(0o755)
    home = session._java_home(JavaRuntime(runtime, major_version, "a test"), scratch)
    return subprocess.run(
        [home / "bin" / "java", *arguments], check=True, capture_output=True, text=True
    ).stdout.splitlines()


@pytest.mark.parametrize(("major_version", "kept"), [(17, [SECURITY]), (25, [])])
def test_the_runtime_is_spared_what_it_could_stumble_over(tmp_path: Path, major_version: int, kept: list[str]) -> None:
    arguments = ["-cp", "a b:c", VECTOR, SECURITY, "--add-modules=java.sql", "x$y*"]
    expected = ["-cp", "a b:c", *kept, "--add-modules=java.sql", "x$y*"]
    assert started_with(tmp_path, major_version, *arguments) == expected


def test_the_environment_is_as_it_was_after_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "elsewhere")
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    with session._environment(JAVA_HOME="here", PYSPARK_PYTHON="python"):
        assert (os.environ["JAVA_HOME"], os.environ["PYSPARK_PYTHON"]) == ("here", "python")
    assert os.environ["JAVA_HOME"] == "elsewhere"
    assert "PYSPARK_PYTHON" not in os.environ


def test_a_local_session_is_reached_from_this_machine_alone(tmp_path: Path) -> None:
    local = session._settings("local[2]", tmp_path, ())
    assert (local["spark.driver.host"], local["spark.driver.bindAddress"]) == ("127.0.0.1", "127.0.0.1")
    assert local["spark.ui.enabled"] == "false"
    remote = session._settings("spark://host:7077", tmp_path, ())
    assert "spark.driver.host" not in remote, "executors have to reach the driver"


@pytest.mark.spark
def test_there_is_one_session_whatever_is_asked_for(spark: SparkSession) -> None:
    assert open_session("local[1]", input_bytes=QUICK_BYTES + 1) is spark
    assert spark.sparkContext.master == "local[2]"


@pytest.mark.spark
def test_long_methods_are_compiled(spark: SparkSession) -> None:
    """By whatever JVM runs tasks: on one machine that of the driver, on a cluster those of executors."""
    for name in ("spark.driver.extraJavaOptions", "spark.executor.defaultJavaOptions"):
        assert "-XX:-DontCompileHugeMethods" in (spark.conf.get(name) or "").split()
    # What a user or a cluster's own configuration adds for executors has its place beside it.
    assert "DontCompileHugeMethods" not in (spark.conf.get("spark.executor.extraJavaOptions") or "")


@pytest.mark.spark
def test_the_jars_that_most_classes_are_in_come_first(spark: SparkSession) -> None:
    first = first_jars()
    assert len(first) == len(FIRST_JARS), "each is one that there is"
    row = spark.sql("SELECT java_method('java.lang.System', 'getProperty', 'java.class.path') AS path").first()
    assert row is not None
    assert row["path"].split(os.pathsep)[: len(first)] == [str(jar) for jar in first]


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
def test_the_jvm_is_asked_once_for_a_function(monkeypatch: pytest.MonkeyPatch) -> None:
    """It looks through all of Spark's jars for each name, and the invariants call functions thousands of times."""

    def columns() -> None:
        sf.when(sf.col("a").isNotNull() & ~sf.col("b"), sf.lit(1) + sf.col("c")).alias("d")
        sf.array_min(sf.filter("e", lambda one: one["f"] > 3))

    asked: list[str] = []
    send = JavaClient.send_command

    def heard(self: Any, command: str, *rest: Any, **options: Any) -> Any:
        if command.startswith("r\n"):
            asked.append(command)
        return send(self, command, *rest, **options)

    columns()
    monkeypatch.setattr(JavaClient, "send_command", heard)
    columns()
    assert [command for command in asked if "functions" in command or "PythonUtils" in command] == []


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The methods that are called in the JVM from now on."""
    names: list[str] = []
    send = JavaClient.send_command

    def heard(self: Any, command: str, *rest: Any, **options: Any) -> Any:
        if command.startswith("c\n"):
            names.append(command.split("\n")[2])
        return send(self, command, *rest, **options)

    monkeypatch.setattr(JavaClient, "send_command", heard)
    return names


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
def test_a_name_a_literal_and_a_list_of_them_are_made_once(called: list[str]) -> None:
    def made() -> list[Column]:
        return [
            sf.col("a"),
            sf.lit(1),
            sf.lit(True),
            sf.lit("1"),
            sf.struct("a", "b"),
            sf.array(sf.lit(1), sf.col("c")),
        ]

    before = [str(column) for column in made()]
    called.clear()
    again = made()
    assert called == ["struct", "array"]
    assert [str(column) for column in again] == before
    assert before[1:4] == ["Column<'1'>", "Column<'true'>", "Column<''1''>"], "equal in Python, and three literals"


@pytest.mark.spark
def test_long_lists_and_lists_of_other_things_are_handed_over_too(spark: SparkSession) -> None:
    columns = [sf.lit(number).alias(f"c{number}") for number in range(25)]
    row = spark.range(1).select(*columns, sf.array(*columns).alias("all")).first()
    assert row is not None
    assert row["all"] == list(range(25))
    assert spark.range(3).filter(sf.col("id").isin([])).count() == 0


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
def test_what_is_remembered_is_bounded(called: list[str]) -> None:
    first = sf.lit("first of many")
    for number in range(REMEMBERED_MAX):
        sf.lit(number - 10_000)
    called.clear()
    sf.lit(REMEMBERED_MAX - 10_001)
    assert called == []
    again = sf.lit("first of many")
    assert called == ["lit"], "it was forgotten"
    assert str(first) == str(again)


@pytest.mark.deep
@pytest.mark.spark
def test_a_submitted_program_runs_where_spark_submit_was_told_to(tmp_path: Path, java: JavaRuntime) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "from spark_analysis.session import open_session\n"
        "session = open_session()\n"
        "print('runs at', session.sparkContext.master)\n"
    )
    home = Path(pyspark.__file__).parent
    done = subprocess.run(
        [home / "bin" / "spark-submit", "--master", "local[1]", program],
        env=os.environ | {"SPARK_HOME": str(home), "JAVA_HOME": str(java.home), "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "runs at local[1]" in done.stdout, done.stderr


@pytest.mark.deep
@pytest.mark.spark
def test_settings_come_before_those_that_are_chosen(java: JavaRuntime) -> None:
    """In a process of its own, because the session of this one has its settings."""
    program = (
        "from spark_analysis.session import open_session\n"
        "settings = {'spark.default.parallelism': '7', 'spark.driver.memory': '600m'}\n"
        "context = open_session('local[1]', settings=settings).sparkContext\n"
        "print(context.defaultParallelism, context._jvm.Runtime.getRuntime().maxMemory() >> 20)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {"JAVA_HOME": str(java.home)},
        capture_output=True,
        text=True,
        check=False,
    )
    parallelism, heap_mib = map(int, done.stdout.split())
    assert parallelism == 7, done.stderr
    assert 400 < heap_mib <= 600


def test_any_other_program_runs_on_all_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    assert session._default_master() == "local[*]"
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    assert session._default_master() is None

"""A Spark session for one machine, or for a cluster that is already there.

Starting a JVM takes seconds, so a process has one session: asking again returns the one that runs. Everything that differs
from Spark's defaults is set here, for these reasons: the analysis needs no Hive, no web server, and no address but loopback;
its data is known before the first shuffle, so partitions fit it; it prints its own progress and wants no log; and its relations
are all partitioned by history, which a join on more columns should not undo.
"""

from __future__ import annotations

import atexit
import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pyspark
from pyspark.sql import SparkSession

from simbookie.java import JavaRuntime, find_java
from spark_analysis.defaults import LOCAL_MASTER
from spark_analysis.executors import ship_project
from spark_analysis.remembered import remember_names

__all__ = ["FIRST_JARS", "QUICK_BYTES", "first_jars", "open_session"]

#: Up to about 5 million events.
QUICK_BYTES: Final = 150 * 1024 * 1024

#: Of all that runs tasks: Spark makes methods of a stage, and the JVM interprets those of more than 8000 bytes for ever unless it
#: is told not to. Those of the questions that look at every copy of every entry are longer.
_TASK_OPTIONS: Final = "-XX:-DontCompileHugeMethods"
_JAVA_OPTIONS: Final = ("-XX:+UseParallelGC", _TASK_OPTIONS)
_QUICK_COMPILATION: Final = ("-XX:TieredStopAtLevel=1", "-XX:ReservedCodeCacheSize=256m")

#: Spark brings some 280 jars, and each class is looked for in one after the other. Most are in these.
FIRST_JARS: Final = (
    *("spark-catalyst_", "spark-sql_", "scala-library-", "spark-core_", "spark-sql-api_", "spark-common-utils_"),
    "scala-reflect-",
)

_LOG_CONFIGURATION: Final = """\
status = error
rootLogger.level = {level}
rootLogger.appenderRef.console.ref = console
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = {level}
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{{HH:mm:ss}} %p %c{{1}}: %m%n%ex
"""

#: Spark's launcher asks for a module that speeds up linear algebra, which nothing here uses and smaller runtimes lack, and opens
#: a package that newer runtimes do not have. A JVM refuses the one, or prints a warning about either.
_JAVA_WRAPPER: Final = """\
#!/bin/sh
for argument do
  shift
  case "$argument" in
    --add-modules=jdk.incubator.vector) ;;
    --add-opens=java.base/sun.security.action=*) test {major} -ge 24 || set -- "$@" "$argument" ;;
    *) set -- "$@" "$argument" ;;
  esac
done
exec {java} "$@"
"""

_GIB: Final = 1024**3


def open_session(
    master: str | None = None,
    *,
    app_name: str = "bk-verify",
    log_level: str = "error",
    java: JavaRuntime | None = None,
    input_bytes: int = 0,
    settings: Mapping[str, str] | None = None,
) -> SparkSession:
    """The session of this process, started at ``master`` if there is none yet.

    Without a ``master``, a program that ``spark-submit`` started runs where that was told to, any other on all processors of
    this machine.
    ``input_bytes`` is about how much is going to be read: up to :data:`QUICK_BYTES` the JVM compiles quickly and not well,
    because compiling well would take longer than the whole job. ``settings`` are Spark's own, and come before those chosen here.
    ``java`` is the runtime to start it with, by default the one that :func:`simbookie.java.find_java` finds; raises
    :class:`simbookie.java.JavaNotFoundError` if there is none.
    """
    running = SparkSession.getActiveSession()
    if running is not None:
        return running
    runtime = java if java is not None else find_java()
    scratch = Path(tempfile.mkdtemp(prefix="bk-verify-"))
    atexit.register(shutil.rmtree, scratch, ignore_errors=True)
    log_configuration = scratch / "log4j2.properties"
    log_configuration.write_text(_LOG_CONFIGURATION.format(level=log_level))
    builder = SparkSession.builder.appName(app_name)
    master = master or _default_master()
    if master is not None:
        builder = builder.master(master)
    java_options = [*_JAVA_OPTIONS, f"-Dlog4j2.configurationFile={log_configuration.as_uri()}"]
    if input_bytes <= QUICK_BYTES:
        java_options += _QUICK_COMPILATION
    for name, value in (_settings(master, scratch, java_options) | dict(settings or {})).items():
        builder = builder.config(name, value)
    python = os.environ.get("PYSPARK_PYTHON", sys.executable)
    with _environment(JAVA_HOME=str(_java_home(runtime, scratch)), PYSPARK_PYTHON=python):
        session = builder.getOrCreate()
    ship_project(session)
    remember_names(session)
    return session


def _default_master() -> str | None:
    """Where to run if nobody says so; None if ``spark-submit`` started this program, and so knows."""
    return None if "PYSPARK_GATEWAY_PORT" in os.environ else LOCAL_MASTER


def _settings(master: str | None, scratch: Path, java_options: Sequence[str]) -> dict[str, str]:
    settings = {
        "spark.driver.extraJavaOptions": " ".join(java_options),
        # Those that come before what a user, or a cluster's own configuration, gives executors as further ones.
        "spark.executor.defaultJavaOptions": _TASK_OPTIONS,
        # Dozens of small hash tables and sorts at a time: each takes at least a page.
        "spark.buffer.pageSize": "1m",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.sql.session.timeZone": "UTC",
        # Everything is partitioned by history before the first question, so plans have nothing to adapt to; and the
        # union of all questions has a hundred stages, each of which would be planned anew.
        "spark.sql.adaptive.enabled": "false",
        # The questions have more stages than the hundred whose code Spark remembers, in an order in which each would be compiled
        # anew for every task: a fifth of all processor time.
        "spark.sql.codegen.cache.maxEntries": "10000",
        "spark.sql.shuffle.partitions": str(max(2, os.cpu_count() or 1)),
        # Where in Python each column was made is told to the JVM in calls of their own, for messages of errors. The questions
        # have thousands of columns, and half of the time that planning them takes would go there.
        "spark.python.sql.dataFrameDebugging.enabled": "false",
    }
    if master is not None and master.startswith("local"):
        settings |= {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.memory": f"{_driver_memory_gib()}g",
            "spark.local.dir": str(scratch / "blocks"),
            "spark.driver.extraClassPath": os.pathsep.join(map(str, first_jars())),
        }
    return settings


def first_jars() -> list[Path]:
    """The jars of PySpark whose names begin with one of :data:`FIRST_JARS`, in that order."""
    folder = Path(pyspark.__file__).parent / "jars"
    return [jar for name in FIRST_JARS for jar in sorted(folder.glob(f"{name}*.jar"))]


def _driver_memory_gib() -> int:
    """A quarter of the machine, as a JVM would take by itself, between 1 and 8."""
    try:
        physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return 1
    return min(8, max(1, physical // 4 // _GIB))


def _java_home(runtime: JavaRuntime, scratch: Path) -> Path:
    """A ``JAVA_HOME`` whose ``java`` is ``runtime`` without the arguments that it could stumble over."""
    if os.name != "posix":
        return runtime.home
    wrapper = scratch / "java" / "bin" / "java"
    wrapper.parent.mkdir(parents=True)
    wrapper.write_text(_JAVA_WRAPPER.format(java=shlex.quote(str(runtime.executable)), major=runtime.major_version))
    wrapper.chmod(0o755)
    return wrapper.parent.parent


@contextmanager
def _environment(**values: str) -> Iterator[None]:
    """The environment with ``values`` in it, as the launcher is to see it."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value

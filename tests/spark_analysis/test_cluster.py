"""``bk-verify`` on a standalone cluster: a master and two workers, as processes of this machine. Run by ``make cluster``."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import venv
from collections.abc import Iterator
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyspark
import pytest

from simbookie.java import JavaRuntime
from spark_analysis.cli import __main__ as program
from tests.spark_analysis.recorded import record_runs

pytestmark = [pytest.mark.spark, pytest.mark.sweep, pytest.mark.timeout(1200)]

HOME = Path(pyspark.__file__).parent
PATIENCE_S = 60
WORKERS = 2


class StandaloneCluster:
    """A master and its workers, each a process group of its own, with a log."""

    def __init__(self, folder: Path, java: JavaRuntime) -> None:
        self._folder = folder
        self._environment = {
            **os.environ,
            "JAVA_HOME": str(java.home),
            "SPARK_HOME": str(HOME),
            "PYSPARK_PYTHON": sys.executable,
        }
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]
        self.workers: list[subprocess.Popen[bytes]] = []

    @property
    def master(self) -> str:
        return f"spark://127.0.0.1:{self.port}"

    def start(self, stack: ExitStack) -> None:
        self._start(stack, "master", "master.Master", "--port", str(self.port))
        self._wait_for("master", "I have been elected leader", 1)
        for number in range(WORKERS):
            arguments = ("--cores", "1", "--memory", "1g", "-d", str(self._folder / f"work-{number}"), self.master)
            self.workers.append(self._start(stack, f"worker-{number}", "worker.Worker", *arguments))
        self._wait_for("master", "Registering worker", WORKERS)

    def _start(self, stack: ExitStack, name: str, program: str, *arguments: str) -> subprocess.Popen[bytes]:
        command = [str(HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{program}", "--host", "127.0.0.1"]
        log = stack.enter_context((self._folder / f"{name}.log").open("wb"))
        process = subprocess.Popen(
            [*command, "--webui-port", "0", *arguments],
            stdout=log,
            stderr=log,
            env=self._environment,
            start_new_session=True,
        )
        stack.callback(self.kill, process)
        return process

    @staticmethod
    def kill(process: subprocess.Popen[bytes]) -> None:
        """Kill a worker with its executors."""
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            return
        process.wait()

    def _wait_for(self, name: str, text: str, times: int) -> None:
        deadline = time.monotonic() + PATIENCE_S
        log = self._folder / f"{name}.log"
        while log.read_text(errors="replace").count(text) < times:
            assert time.monotonic() < deadline, log.read_text(errors="replace")
            time.sleep(0.2)


@pytest.fixture
def cluster(tmp_path: Path, java: JavaRuntime) -> Iterator[StandaloneCluster]:
    with ExitStack() as stack:
        started = StandaloneCluster(tmp_path, java)
        started.start(stack)
        yield started


def bk_verify(*arguments: object, **environment: str) -> tuple[int, Any]:
    """Exit status and the JSON that was printed."""
    ended = subprocess.run(
        [sys.executable, program.__file__, *map(str, arguments), "--json"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environment},
    )
    assert ended.stdout, ended.stderr
    return ended.returncode, json.loads(ended.stdout)


def without_time(shown: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in shown.items() if not name.endswith("seconds")}


def test_every_job_comes_to_the_same_as_on_one_machine(cluster: StandaloneCluster, tmp_path: Path) -> None:
    histories = tmp_path / "histories"
    record_runs(histories)
    for command in ("verify", "check", "compare", "replay"):
        here = bk_verify(command, histories)
        there = bk_verify(command, histories, "--master", cluster.master)
        assert here[0] == there[0] == 1, command
        assert without_time(here[1]) == without_time(there[1]), command


def test_a_sweep_survives_a_worker_that_is_lost(cluster: StandaloneCluster, tmp_path: Path) -> None:
    folder, arguments = tmp_path / "swept", ("--seeds", "400", "--scenario", "calm-writes")
    command = [sys.executable, program.__file__, "sweep", str(folder), *arguments, "--master", cluster.master, "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as sweeping:
        deadline = time.monotonic() + 3 * PATIENCE_S
        while not list(folder.glob("units/*.json")):
            assert time.monotonic() < deadline
            time.sleep(0.1)
        cluster.kill(cluster.workers[0])
        output, _ = sweeping.communicate(timeout=600)
    assert sweeping.returncode == 0
    assert json.loads(output)["runs"] == 400


def bare_interpreter(folder: Path) -> Path:
    """A Python that has what executors need, and not this project."""
    venv.create(folder, symlinks=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    for name in ("msgpack", "pyarrow", "pyspark", "py4j"):
        spec = find_spec(name)
        assert spec is not None
        (packages / name).symlink_to(*spec.submodule_search_locations or ())
    return folder / "bin" / "python"


def test_executors_need_not_have_the_project(cluster: StandaloneCluster, tmp_path: Path) -> None:
    histories, python = tmp_path / "histories", bare_interpreter(tmp_path / "bare")
    record_runs(histories)
    lacks = [str(python), "-c", "import pyarrow, pyspark, msgpack, spark_analysis"]
    ended = subprocess.run(lacks, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert "No module named 'spark_analysis'" in ended.stderr
    here = bk_verify("check", histories)
    there = bk_verify("check", histories, "--master", cluster.master, PYSPARK_PYTHON=str(python))
    assert here[0] == there[0] == 1
    assert without_time(here[1]) == without_time(there[1])


def test_a_folder_that_executors_do_not_see_is_named(cluster: StandaloneCluster, tmp_path: Path) -> None:
    """It is where the driver works, by a name that is another folder for every process."""
    record_runs(tmp_path / "histories")
    folder = Path("/proc/self/cwd/histories")
    command = [sys.executable, program.__file__, "check", str(folder), "--master", cluster.master]
    ended = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr == (
        f"bk-verify: {folder}: executors of {cluster.master} do not see it; put it where all of them and this program do, "
        "under the same path\n"
    )


_LOSING = """
import os, signal, sys, time
from spark_analysis.jobs import verify as verifying
from spark_analysis.session import open_session

folder, master, worker = sys.argv[1:]
session = open_session(master)
count_files, runs = verifying._count_files, []

def count_and_lose(files):
    runs.append(files)
    counted = count_files(files)
    if len(runs) == 1:
        os.killpg(int(worker), signal.SIGKILL)
        tracker = session.sparkContext._jsc.sc().statusTracker()
        while len(tracker.getExecutorInfos()) > 2:  # the driver counts as one
            time.sleep(0.1)
    return counted

verifying._count_files = count_and_lose
verdict = verifying.verify(session, folder)
print("judged", verdict.histories, sum(found.violated for found in verdict.invariants))
"""


def test_a_verification_survives_a_worker_that_is_lost_with_what_it_kept(
    cluster: StandaloneCluster, tmp_path: Path
) -> None:
    histories = tmp_path / "histories"
    record_runs(histories)
    here = bk_verify("verify", histories)[1]
    command = [sys.executable, "-c", _LOSING, str(histories), cluster.master, str(cluster.workers[0].pid)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    violated = sum(found["violated"] for found in here["invariants"])
    assert f"judged {here['histories']} {violated}" in ended.stdout, ended.stderr

"""Examples that need a cluster: each is run as its first lines say, and what it promises is looked at from outside."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import bkclient
from bkclient.log import Logs
from scenarios.testing import TcpCluster

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture
def cluster() -> Iterator[TcpCluster]:
    with TcpCluster(4) as running:
        yield running


def run(*args: str) -> str:
    done = subprocess.run(
        [sys.executable, *args], cwd=ROOT, check=False, capture_output=True, text=True, timeout=100, env=environment()
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}


# The key-value store -------------------------------------------------------------------------------------------------------


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


def ask(port: int, *commands: str) -> list[str]:
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection, connection.makefile("rw") as lines:
        answers = []
        for command in commands:
            lines.write(f"{command}\n")
            lines.flush()
            answers.append(lines.readline().strip())
        return answers


def start_store(cluster: TcpCluster, stack: ExitStack) -> tuple[subprocess.Popen[str], int]:
    port = free_port()
    command = [sys.executable, "examples/kv_store.py", cluster.uri, str(port)]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, env=environment())
    stack.enter_context(process)
    stack.callback(process.kill)
    return process, port


def until_it_serves(process: subprocess.Popen[str], port: int) -> None:
    assert process.stdout is not None
    assert process.stdout.readline() == f"serving on port {port}\n"


@pytest.mark.deep
def test_key_value_store_survives_kill_9_of_its_owner_and_of_a_bookie(cluster: TcpCluster) -> None:
    with ExitStack() as stack:
        first, first_port = start_store(cluster, stack)
        until_it_serves(first, first_port)
        assert ask(first_port, "set colour blue", "get colour", "set gone x", "delete gone", "get gone", "sing") == [
            *("ok", "blue", "ok", "ok", ""),
            "commands are: get KEY, set KEY VALUE, delete KEY",
        ]
        second, second_port = start_store(cluster, stack)
        cluster.kill(cluster.bookies[0])
        assert ask(first_port, *(f"set key-{number} {number}" for number in range(20))) == ["ok"] * 20
        first.kill()
        until_it_serves(second, second_port)
        assert ask(second_port, "get colour", "get key-19", "set colour red", "get colour") == [
            "blue",
            "19",
            "ok",
            "red",
        ]


def chaos_test(folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    plugins = [
        word
        for name in ("pytest_asyncio.plugin", "pytest_timeout", "scenarios.testing.plugin")
        for word in ("-p", name)
    ]
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--bk-histories",
        str(folder / "histories"),
    ]
    return subprocess.run(
        [*command, *plugins, *args],
        cwd=folder,
        check=False,
        capture_output=True,
        text=True,
        timeout=100,
        env=environment(),
    )


@pytest.mark.deep
def test_chaos_test_of_the_store_passes_and_finds_a_store_that_reads_before_it_owns_the_log(tmp_path: Path) -> None:
    passing = chaos_test(
        tmp_path, str(ROOT / "examples" / "test_kv_store.py"), "-c", str(ROOT / "pyproject.toml"), "--bk-seeds=1"
    )
    assert passing.returncode == 0, passing.stdout

    source = (ROOT / "examples" / "kv_store.py").read_text()
    owning, reading = (
        source.index("        self._log = self._logs.writer("),
        source.index("        async with self._logs.reader("),
    )
    end = source.index("        return self\n")
    careless = source[:owning] + source[reading:end] + source[owning:reading] + source[end:]
    (tmp_path / "kv_store.py").write_text(careless)
    test = (ROOT / "examples" / "test_kv_store.py").read_text().replace("from examples.kv_store", "from kv_store")
    (tmp_path / "test_careless.py").write_text(test)
    failing = chaos_test(
        tmp_path,
        "test_careless.py",
        "--bk-seeds=1",
        "-k",
        "stood_still",
        "-o",
        "asyncio_default_fixture_loop_scope=function",
    )
    assert failing.returncode == 1, failing.stdout
    assert (
        "again:    pytest 'test_careless.py::test_an_owner_that_stood_still_can_change_nothing[seed-" in failing.stdout
    )


# The others ----------------------------------------------------------------------------------------------------------------


def test_job_queue_leaves_what_failed_to_the_next_worker() -> None:
    lines = run("examples/job_queue.py").splitlines()
    assert "job 3 failed and stays: no such file" in lines
    assert lines[-2:] == ["job 3 done", "left: 0"]
    assert sorted(line for line in lines if line.endswith("done")) == [f"job {number} done" for number in range(6)]


def test_threads_write_every_line(cluster: TcpCluster, tmp_path: Path) -> None:
    files = [tmp_path / "one.txt", tmp_path / "two.txt"]
    for file in files:
        file.write_text("a line\n" * 50)
    assert run("examples/threads.py", cluster.uri, *map(str, files)).splitlines() == [
        "one.txt: 50 lines",
        "two.txt: 50 lines",
        "ledger 0: 100 entries",
    ]


async def test_log_becomes_parquet_files_and_a_file_that_was_not_remembered_is_written_again(
    cluster: TcpCluster, tmp_path: Path
) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    from examples.log_to_parquet import follow, write_file  # noqa: PLC0415  needs pyarrow

    async with bkclient.connect(cluster.uri) as bk:
        logs = Logs(bk)
        await logs.create("events")
        async with logs.writer("events") as log:
            for number in range(25):
                await log.publish(b"event %d" % number, key=f"k{number % 2}")
        async with logs.reader("events", follow=False) as reader:
            first = [message async for message in reader][:10]
        write_file(tmp_path, first)  # by a program that was killed before its cursor moved
        await follow(bk, "events", tmp_path, count=10, wait_s=0.2, files=3)
    rows = parquet.read_table(tmp_path).sort_by("id").to_pylist()
    assert sorted(row["payload"] for row in rows) == sorted(b"event %d" % number for number in range(25))
    assert {row["key"] for row in rows} == {"k0", "k1"}


async def call(app: Any, method: str, path: str, body: object = None, query: str = "") -> tuple[int, Any]:
    """One request to an ASGI application, without a server."""
    sent: list[dict[str, Any]] = []
    received = iter([{"type": "http.request", "body": b"" if body is None else json.dumps(body).encode()}])

    async def receive() -> dict[str, Any]:
        return next(received, {"type": "http.disconnect"})

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    scope = {"type": "http", "method": method, "path": path, "raw_path": path.encode(), "query_string": query.encode()}
    headers = [(b"content-type", b"application/json")]
    await app(
        {**scope, "headers": headers, "http_version": "1.1", "scheme": "http", "server": ("x", 80)}, receive, send
    )
    return sent[0]["status"], json.loads(b"".join(message.get("body", b"") for message in sent[1:]))


async def test_event_service(cluster: TcpCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("fastapi")
    monkeypatch.setenv("BK_METADATA_URI", cluster.uri)
    from examples.event_service import app, lifespan  # noqa: PLC0415  needs fastapi

    async with lifespan(app):
        posted = await asyncio.gather(
            *(call(app, "POST", "/events", {"kind": "order", "data": {"number": number}}) for number in range(5))
        )
        assert [status for status, _ in posted] == [201] * 5
        events: list[dict[str, Any]] = []
        while len(events) < 5:  # readers see a message up to 0.2 seconds after its acknowledgement
            status, events = await call(app, "GET", "/events")
            assert status == 200
        assert {event["id"] for event in events} == {body["id"] for _, body in posted}
        _, later = await call(app, "GET", "/events", query=f"after={events[2]['id']}&limit=1")
        assert later == [events[3]]
        assert (await call(app, "POST", "/events", {"data": {}}))[0] == 422

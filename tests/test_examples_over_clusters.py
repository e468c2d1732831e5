"""Examples that need a cluster: each is run as its first lines say, and what it promises is looked at from outside."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import bkclient
from bkclient.log import Logs
from scenarios.testing import TcpCluster
from tests.ports import free_port

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


def careless_chaos_test(folder: Path, name: str, change: Callable[[str], str], *args: str) -> str:
    """What the chaos test of an example prints of a program that is changed."""
    source = (ROOT / "examples" / f"{name}.py").read_text()
    changed = change(source)
    assert changed != source
    (folder / f"{name}.py").write_text(changed)
    test = (ROOT / "examples" / f"test_{name}.py").read_text()
    (folder / "test_careless.py").write_text(test.replace(f"from examples.{name}", f"from {name}"))
    option = ("-o", "asyncio_default_fixture_loop_scope=function")
    failing = chaos_test(folder, "test_careless.py", "--bk-audit=off", *args, *option)
    assert failing.returncode == 1, failing.stdout
    return failing.stdout


def read_before_it_owns(source: str) -> str:
    """The key-value store reads the log, and takes it over then."""
    owning, reading = (
        source.index("        self._log = self._logs.writer("),
        source.index("        async with self._logs.reader("),
    )
    end = source.index("        return self\n")
    return source[:owning] + source[reading:end] + source[owning:reading] + source[end:]


def acknowledge_before_it_runs(source: str) -> str:
    """A worker takes a job out of the queue, and runs it then."""
    return source.replace("        await run(job)\n", "        consumer.acknowledge(message)\n        await run(job)\n")


def name_before_it_is_remembered(source: str) -> str:
    """Readers see a file, and the cursor moves then."""
    remembering = "            cursor.acknowledge_through(messages[-1])\n            await cursor.flush()\n"
    assert remembering in source
    naming = "            path = give_name(temporary)\n"
    return source.replace(remembering, naming + remembering).replace("{give_name(temporary).name}", "{path.name}")


@pytest.mark.deep
@pytest.mark.parametrize("name", ["kv_store", "job_queue", "log_to_parquet"])
def test_chaos_tests_of_examples_pass(name: str, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow" if name == "log_to_parquet" else "pytest")
    passing = chaos_test(
        tmp_path, str(ROOT / "examples" / f"test_{name}.py"), "-c", str(ROOT / "pyproject.toml"), "--bk-seeds=2"
    )
    assert passing.returncode == 0, passing.stdout


@pytest.mark.deep
@pytest.mark.parametrize(
    ("name", "change", "args", "failing"),
    [
        ("kv_store", read_before_it_owns, ("--bk-seeds=1",), "test_an_owner_that_stood_still_can_change_nothing"),
        ("job_queue", acknowledge_before_it_runs, ("--bk-seeds=3",), "test_jobs_of_workers_that_crash_run_again"),
        ("log_to_parquet", name_before_it_is_remembered, ("--bk-seeds=12",), "test_each_message_is_in_a_file_once"),
    ],
)
def test_chaos_tests_of_examples_find_a_careless_program(
    name: str, change: Callable[[str], str], args: tuple[str, ...], failing: str, tmp_path: Path
) -> None:
    pytest.importorskip("pyarrow" if name == "log_to_parquet" else "pytest")
    printed = careless_chaos_test(tmp_path, name, change, "-k", failing, *args)
    assert f"again:    pytest 'test_careless.py::{failing}[seed-" in printed


# The others ----------------------------------------------------------------------------------------------------------------


def test_workers_of_a_job_queue_run_every_job_and_give_up_one_that_always_fails() -> None:
    lines = run("examples/job_queue.py").splitlines()
    assert lines[-1] == "everything is done"
    given_up = "job 7 is given up: no such file"
    assert sorted(lines[:-1]) == sorted([given_up, *(f"job {number} done" for number in range(10) if number != 7)])


def test_threads_write_every_line(cluster: TcpCluster, tmp_path: Path) -> None:
    files = [tmp_path / "one.txt", tmp_path / "two.txt"]
    for file in files:
        file.write_text("a line\n" * 50)
    assert run("examples/threads.py", cluster.uri, *map(str, files)).splitlines() == [
        "one.txt: 50 lines",
        "two.txt: 50 lines",
        "ledger 0: 100 entries",
    ]


async def test_log_becomes_parquet_files_and_what_a_program_left_is_tidied_up(
    cluster: TcpCluster, tmp_path: Path
) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    from examples.log_to_parquet import follow, temporary_name, write_file  # noqa: PLC0415  needs pyarrow

    async with bkclient.connect(cluster.uri) as bk:
        logs = Logs(bk)
        await logs.create("events")
        async with logs.writer("events") as log:
            for number in range(35):
                await log.publish(b"event %d" % number, key=f"k{number % 2}")
        async with logs.reader("events", follow=False) as reader:
            messages = [message async for message in reader]
        # A program that was killed before its cursor moved, and another one that was killed after it did.
        write_file(tmp_path / temporary_name(messages[:15], "dead"), messages[:15])
        write_file(tmp_path / temporary_name(messages[:10], "alive"), messages[:10])
        async with logs.cursor("events", "to-parquet") as cursor:
            for _ in range(10):
                cursor.acknowledge(await anext(cursor))
        await follow(bk, "events", tmp_path, count=10, wait_s=0.2, files=3)
    folder = tmp_path.iterdir()  # noqa: ASYNC240  a few names
    assert {path.suffix for path in folder} == {".parquet"}
    rows = parquet.read_table(tmp_path).to_pylist()
    assert sorted(row["payload"] for row in rows) == sorted(b"event %d" % number for number in range(35))
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

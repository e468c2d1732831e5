"""Bookie processes: started, killed, paused, started again, and never left behind."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from random import Random

import pytest

from bkclient.metadata.base import BookieAddress, BookieSets
from bkclient.metadata.opening import open_store
from bkclient.wire.connection import ClientConnection
from bkclient.wire.messages import ForceLedgerRequest, Status
from simbookie.processes import BookieProcess, BookieStartError, ProcessCluster
from tests.zookeepers import AnyZooKeeper

# a metadata service of each process's own: enough for everything but meeting each other
MEMORY = "mem://alone"


@pytest.fixture
def bookie(tmp_path: Path) -> Iterator[BookieProcess]:
    process = BookieProcess("bookie-0", MEMORY, tmp_path)
    yield process
    process.kill()


def status_of_force(address: BookieAddress, timeout_s: float) -> Status:
    wire: ClientConnection[None] = ClientConnection(3)
    with closing(socket.create_connection((address.host, address.port), timeout_s)) as connection:
        connection.sendall(b"".join(wire.send(ForceLedgerRequest(1), None)))
        while True:
            for _, _, status, _ in wire.receive(connection.recv(4096)):
                return status


def test_a_bookie_process_serves_stands_still_runs_on_dies_and_comes_back(bookie: BookieProcess) -> None:
    with pytest.raises(RuntimeError, match="bookie-0"):
        _ = bookie.bookie_id
    bookie.start()
    bookie.start()
    address, pid = bookie.address, bookie.pid
    assert bookie.bookie_id == f"{address.host}:{address.port}"
    assert status_of_force(address, 10) is Status.OK
    bookie.pause()
    with pytest.raises(TimeoutError):
        status_of_force(address, 0.1)
    bookie.resume()
    assert status_of_force(address, 10) is Status.OK
    bookie.pause()
    bookie.restart()
    assert bookie.address == address
    assert bookie.pid != pid
    assert status_of_force(address, 10) is Status.OK
    assert bookie.terminate() == 0
    assert not bookie.is_running
    assert bookie.terminate() is None
    with pytest.raises(RuntimeError, match="not running"):
        bookie.pause()


def test_a_paused_process_is_woken_to_shut_down_in_order(bookie: BookieProcess) -> None:
    bookie.start()
    bookie.pause()
    assert bookie.terminate() == 0


def test_how_a_process_ended_is_told(bookie: BookieProcess) -> None:
    with pytest.raises(RuntimeError, match="has not ended"):
        _ = bookie.ending
    for number, ending in ((signal.SIGTERM, "stopped"), (signal.SIGKILL, "died of SIGKILL")):
        bookie.start()
        with pytest.raises(RuntimeError, match="has not ended"):
            _ = bookie.ending
        assert bookie.pid is not None
        os.kill(bookie.pid, number)
        while bookie.is_running:
            time.sleep(0.01)
        assert bookie.ending == ending


def test_a_process_that_failed_says_so(tmp_path: Path) -> None:
    bookie = BookieProcess("bookie-0", MEMORY, tmp_path, options=["--no-such-option"])
    bookie.spawn()
    while bookie.is_running:
        time.sleep(0.01)
    assert bookie.ending == "died with exit status 2"
    bookie.kill()


def test_a_process_that_cannot_start_says_why(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        bookie = BookieProcess("bookie-0", MEMORY, tmp_path, port=taken.getsockname()[1])
        with pytest.raises(BookieStartError, match=r"(?s)status 1.*is taken by another program"):
            bookie.start()
    assert not bookie.is_running


def test_a_process_that_takes_too_long_is_killed(tmp_path: Path) -> None:
    bookie = BookieProcess("bookie-0", MEMORY, tmp_path, start_timeout_s=0.01)
    with pytest.raises(BookieStartError, match="did not serve"):
        bookie.start()
    assert not bookie.is_running


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="nobody but its parent can wait for a process here")
def test_a_bookie_ends_when_the_process_that_started_it_is_killed(tmp_path: Path) -> None:
    program = (
        "import sys, pathlib, simbookie.processes as p\n"
        f"b = p.BookieProcess('bookie-0', {MEMORY!r}, pathlib.Path(sys.argv[1]))\n"
        "b.start()\n"
        "print(b.pid, flush=True)\n"
        "sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as parent:
        assert parent.stdout is not None
        bookie = int(parent.stdout.readline())
        descriptor = os.pidfd_open(bookie)
        parent.kill()
    try:
        ended, _, _ = select.select([descriptor], [], [], 20)
        assert ended
    finally:
        os.close(descriptor)


def test_a_cluster_that_cannot_start_leaves_nothing_running() -> None:
    cluster = ProcessCluster(MEMORY, 2, options=["--no-such-option"])
    with pytest.raises(BookieStartError, match="no-such-option"):
        cluster.start()
    assert not any(bookie.is_running for bookie in cluster.bookies)


def test_a_cluster_in_racks_names_its_bookies_after_them_and_has_a_program_that_tells(tmp_path: Path) -> None:
    with ProcessCluster(MEMORY, 2, log_dir=tmp_path, racks=2) as cluster:
        assert cluster.bookie_ids == ("bookie-0.rack-1", "bookie-1.rack-2")
        assert cluster.add().bookie_id == "bookie-2.rack-1"
        told = subprocess.run(
            [cluster.location_script, *cluster.bookie_ids], capture_output=True, check=True, text=True
        )
        assert told.stdout.split() == ["/rack-1", "/rack-2", "/rack-1"]
    with ProcessCluster(MEMORY, 0, log_dir=tmp_path / "none") as plain:
        assert not plain.location_script.exists()


def test_a_cluster_cannot_have_fewer_than_no_bookies() -> None:
    with pytest.raises(ValueError, match="-1"):
        ProcessCluster(MEMORY, -1)


async def test_a_process_cluster_registers_in_zookeeper_and_a_killed_bookie_returns(
    zookeeper_server: AnyZooKeeper, zookeeper_root: str
) -> None:
    uri = zookeeper_server.metadata_uri(zookeeper_root)
    async with ProcessCluster(uri, 2, session_timeout_s=1.0) as cluster:
        store = await open_store(uri, rng=Random(1))
        try:
            assert await store.bookies() == BookieSets(writable=tuple(sorted(cluster.bookie_ids)))
            first = cluster.bookies[0]
            assert cluster.bookie(first.bookie_id) is first
            assert await store.bookie_address(first.bookie_id) == first.address
            first.restart()
            assert await store.bookies() == BookieSets(writable=tuple(sorted(cluster.bookie_ids)))
            added = cluster.add()
            assert added.bookie_id in (await store.bookies()).writable
            with pytest.raises(KeyError):
                cluster.bookie("nobody")
            cluster.terminate()
            assert await store.bookies() == BookieSets()
        finally:
            await store.aclose()
        logs = cluster.log_dir
        assert sorted(path.name for path in logs.glob("*.log")) == ["bookie-0.log", "bookie-1.log", "bookie-2.log"]
    assert not logs.exists()


def test_signals_reach_only_a_running_process(bookie: BookieProcess) -> None:
    bookie.start()
    pid = bookie.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    bookie.kill()
    assert bookie.pid is None
    for act in (bookie.pause, bookie.resume):
        with pytest.raises(RuntimeError, match="not running"):
            act()
    bookie.kill()

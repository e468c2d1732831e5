"""An honest client beside each attack on a served bookie: it is answered in time, memory stays, and everything is given back.

What the attacks are about is held by tests that count (``tests/simbookie/tcp``); this is the whole of it with real processes and
real time, and therefore outside the ordinary run. Latencies are those of a client in a process of its own, in time and in the
processor time of the bookie, which does not depend on what else the machine has to do; on a busy machine time may be as many
times longer as there are processes for each core.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bkclient.wire.messages import Status
from simbookie.processes import BookieProcess
from tests.end_to_end.hostile.attacks import ATTACKS, Attack
from tests.end_to_end.hostile.honest import Honest

SECONDS = 4.0
#: The bar on an idle machine, where what the bookie works is what its clients wait.
P99_S = 0.1


@pytest.fixture(params=["--uvloop", "--no-uvloop"])
def bookie(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BookieProcess]:
    if request.param == "--uvloop":
        pytest.importorskip("uvloop")
    process = BookieProcess("bookie-0", "mem://alone", tmp_path, options=[request.param])
    process.start()
    yield process
    process.kill()


def resident_mib(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def descriptors(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def p99_of_an_honest_client(bookie: BookieProcess, seconds: float) -> tuple[float, float]:
    """In seconds, and in seconds of the bookie's processor time."""
    command = [sys.executable, "-m", "tests.end_to_end.hostile.honest"]
    command += [bookie.address.host, str(bookie.address.port), str(bookie.pid), str(seconds)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    waited, worked = (sorted(times) for times in zip(*json.loads(done.stdout), strict=True))
    return waited[int(len(waited) * 0.99)], worked[int(len(worked) * 0.99)]


def until(condition: Callable[[], bool], seconds: float = 30) -> bool:
    ends = time.monotonic() + seconds
    while not condition() and time.monotonic() < ends:
        time.sleep(0.1)
    return condition()


@pytest.mark.sweep
@pytest.mark.timeout(300)
@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="time and memory are looked up in /proc")
@pytest.mark.parametrize("kind", ATTACKS, ids=lambda kind: kind.__name__)
def test_an_honest_client_beside(kind: type[Attack], bookie: BookieProcess) -> None:
    assert bookie.pid is not None
    pid, attack = bookie.pid, kind((bookie.address.host, bookie.address.port))
    attack.prepare()
    before, _ = p99_of_an_honest_client(bookie, SECONDS / 2)
    time.sleep(0.5)
    baseline, peak, idle = resident_mib(pid), 0.0, descriptors(pid)
    attacker = threading.Thread(target=attack.run)
    attacker.start()
    watching = threading.Event()

    def watch() -> None:
        nonlocal peak
        while not watching.wait(0.05):
            peak = max(peak, resident_mib(pid))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        time.sleep(0.5)
        during, worked = p99_of_an_honest_client(bookie, SECONDS)
    finally:
        attack.stop.set()
        attacker.join(60)
        watching.set()
        watcher.join()
        attack.end()
    figures = (
        f"{kind.__name__}: p99 {before * 1e3:.1f} -> {during * 1e3:.1f} ms, {worked * 1e3:.1f} ms of them the bookie's work, "
        f"{baseline:.0f} -> {peak:.0f} MiB"
    )
    sys.stdout.write(figures + "\n")
    processes_per_core = os.getloadavg()[0] / (os.cpu_count() or 1)
    assert worked < P99_S, figures
    assert during < P99_S * max(1.0, processes_per_core), figures
    assert peak < 2 * baseline, figures
    assert until(lambda: descriptors(pid) <= idle), "all connections are given back"
    client = Honest(bookie.address.host, bookie.address.port)
    assert (client.append(0), client.read(0), client.poll(0)) == (Status.OK, Status.OK, Status.OK)
    client.close()
    assert until(lambda: resident_mib(pid) < 1.5 * baseline), "memory is given back"

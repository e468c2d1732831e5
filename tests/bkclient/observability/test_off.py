"""What nobody watches costs nothing: a client without statistics, tracer and log makes no call into any of them.

Every Python function that is called is seen by a profile hook; so this holds for all of the code, not for the places that
somebody thought of.
"""

from __future__ import annotations

import itertools
import logging
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from types import FrameType
from typing import Any

import pytest

import bkclient
from bkclient import BookKeeper, ClientConfig
from bkclient.log import Logs, LogSettings
from bkclient.metadata.memory import MemoryMetadataService
from bkclient.observability.memory_stats import MemoryStats
from tests.bkclient.fakes import FakeStore, fake_cluster
from tests.bkclient.transport.scripted_bookie import running

PACKAGE = Path(bkclient.__file__).parent
#: Modules that are only for clients that are watched.
OPTIONAL = (
    *(f"observability/{name}.py" for name in ("latencies", "memory_stats", "prometheus", "stats", "tracer", "tracing")),
    "transport/measured.py",
    "_client/writing/observed.py",
    "log/observed.py",
)
_NAMES = itertools.count(1)


@contextmanager
def calls() -> Iterator[Counter[str]]:
    """How often functions of each module of the package, and of ``logging``, are called in the block."""
    counted: Counter[str] = Counter()

    def hook(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            path = frame.f_code.co_filename
            if path.startswith(str(PACKAGE)):
                counted[Path(path).relative_to(PACKAGE).as_posix()] += 1
            elif path == logging.__file__:
                counted["logging"] += 1

    before = sys.getprofile()
    sys.setprofile(hook)
    try:
        yield counted
    finally:
        sys.setprofile(before)


def optional(counted: Counter[str]) -> dict[str, int]:
    return {path: count for path, count in counted.items() if path.startswith(OPTIONAL)}


async def live(bk: BookKeeper) -> None:
    """Everything that a client does often, and a recovery."""
    writer = await bk.create_ledger(ensemble_size=1, write_quorum_size=1, ack_quorum_size=1)
    for _ in range(20):
        await writer.append(b"x")
    await writer.close()
    reader = await bk.open_ledger(writer.ledger_id, recover=True)
    assert len([entry async for entry in reader]) == 20
    left_open = await bk.create_ledger(ensemble_size=1, write_quorum_size=1, ack_quorum_size=1)
    await left_open.append(b"x")
    await bk.open_ledger(left_open.ledger_id, recover=True)


async def live_with_logs(bk: BookKeeper) -> None:
    """Everything that is done with logs often."""
    logs = Logs(bk)
    await logs.create("log", LogSettings(ensemble_size=1, write_quorum_size=1, ack_quorum_size=1))
    async with logs.writer("log") as log:
        for _ in range(20):
            await log.publish(b"x")
    async with logs.cursor("log", "c") as cursor:
        for _ in range(20):
            cursor.acknowledge(await anext(cursor))


async def test_a_client_that_nobody_watches_calls_nothing_that_watches() -> None:
    async with fake_cluster("a") as where:
        with calls() as counted:
            await live(where.bk)
            await live_with_logs(where.bk)
    assert counted["_client/writing/shell.py"] > 20  # the hook sees what is there
    assert optional(counted) == {}


async def test_the_same_client_with_statistics_calls_them() -> None:
    async with fake_cluster("a") as where:
        store = FakeStore(where.service)
        async with BookKeeper(store, where.transport, rng=Random(2), stats=MemoryStats()) as bk:
            with calls() as counted:
                await live(bk)
    assert set(optional(counted)) == {
        "observability/memory_stats.py",
        "observability/latencies.py",
        "_client/writing/observed.py",
    }


async def test_over_tcp_neither_connections_nor_requests_are_measured() -> None:
    name = f"off-{next(_NAMES)}"
    connect = bkclient.connect  # imports it, which would be counted
    async with running() as bookie, MemoryMetadataService.named(name).session(rng=Random(1)) as store:
        await store.register_bookie("b", bookie.address)
        with calls() as counted:
            async with connect(f"mem://{name}", rng=Random(1), config=ClientConfig()) as bk:
                writer = await bk.create_ledger(ensemble_size=1, write_quorum_size=1, ack_quorum_size=1)
                for _ in range(20):
                    await writer.append(b"x")
                await writer.close()
    MemoryMetadataService.forget(name)
    assert counted["transport/link.py"] > 20
    assert optional(counted) == {}


async def test_entries_do_not_reach_the_log_whatever_its_level(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="bkclient")
    async with fake_cluster("a") as where:
        writer = await where.bk.create_ledger(ensemble_size=1, write_quorum_size=1, ack_quorum_size=1)
        with calls() as counted:
            for _ in range(20):
                await writer.append(b"x")
            for entry_id in range(20):
                await writer.reader.read(entry_id)
    assert counted["observability/log.py"] == counted["logging"] == 0
    assert counted["_client/writing/shell.py"] > 20


@pytest.mark.parametrize("entries", [10, 200])
async def test_the_number_of_calls_for_an_append_does_not_depend_on_how_many_there_are(entries: int) -> None:
    async with fake_cluster("a") as where:
        writer = await where.bk.create_ledger(ensemble_size=1, write_quorum_size=1, ack_quorum_size=1)
        await writer.append(b"x")
        with calls() as counted:
            for _ in range(entries):
                await writer.append(b"x")
    assert sum(counted.values()) < 40 * entries

"""The same interface over loopback and in a simulated world, where its deadlines cost nothing and are exact."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

import pytest

from bkclient.metadata.memory import MemoryMetadataService
from simbookie.admin.endpoints import Administered
from simbookie.admin.http_server import HttpConfig
from simbookie.admin.server import AdminServer
from simbookie.garbage import GarbageCollector
from simbookie.measured import MeasuredBookie
from simbookie.storage.memory import MemoryStorage
from tests.simbookie.admin.http_client import ask, raw
from tests.simbookie.world.streams.parts import in_reality, in_world

GROUNDS = [pytest.param(in_reality, id="reality"), pytest.param(in_world, id="world")]
Ground = Callable[[Callable[[], Any]], Any]


def interface(
    config: HttpConfig | None = None, announced: Callable[[], Awaitable[None]] | None = None
) -> tuple[MeasuredBookie, AdminServer]:
    store = MemoryMetadataService().session(rng=Random(1))
    bookie = MeasuredBookie("b0", MemoryStorage())
    bookie.start()
    subject = Administered(bookie, store, GarbageCollector(bookie, store), lambda: 0.0, announced=announced)
    return bookie, AdminServer(subject, "127.0.0.1", 0, config)


@pytest.mark.parametrize("ground", GROUNDS)
def test_a_bookie_is_operated_on_any_loop(ground: Ground) -> None:
    async def story() -> None:
        bookie, server = interface()
        await server.start()
        status, text = await ask(server.port, "PUT", "/api/v1/bookie/state/readonly", b'{"readOnly": true}')
        assert (status, json.loads(text), bookie.read_only) == (200, {"readOnly": True}, True)
        assert await ask(server.port, "GET", "/heartbeat") == (200, "OK\n")
        assert (await ask(server.port, "GET", "/metrics"))[0] == 200
        for path, expected in {
            "last_log_mark": {"LastLogMark: Journal Id - 0(0.txn)": "Pos - 0"},
            "list_disk_file": {"journal files": "", "entrylog files": "", "index files": ""},
            "gc_details": [],
        }.items():
            assert json.loads((await ask(server.port, "GET", f"/api/v1/bookie/{path}"))[1]) == expected
        await server.aclose()

    ground(story)


def test_a_mode_that_the_metadata_store_is_not_told_is_an_error_in_half_a_minute() -> None:
    async def story() -> None:
        async def announced() -> None:
            await asyncio.get_running_loop().create_future()

        bookie, server = interface(announced=announced)
        await server.start()
        began = asyncio.get_running_loop().time()
        status, text = await ask(server.port, "PUT", "/api/v1/bookie/state/readonly", b'{"readOnly": true}')
        assert (status, bookie.read_only) == (500, True)
        assert text == "The bookie is read-only, which the metadata store was not told within 30 s"
        assert asyncio.get_running_loop().time() - began == pytest.approx(30, abs=1)
        await server.aclose()

    in_world(story)


def test_deadlines_are_kept_to_the_second_in_virtual_time() -> None:
    async def story() -> None:
        _, server = interface(HttpConfig(idle_timeout_s=60, request_timeout_s=10))
        await server.start()
        loop = asyncio.get_running_loop()
        began = loop.time()
        assert (await raw(server.port, b"GET / HTTP/1.1\r\n", ends=False)).startswith(b"HTTP/1.1 408 ")
        assert 10 <= loop.time() - began < 11
        began = loop.time()
        assert await raw(server.port, b"", ends=False) == b""
        assert 60 <= loop.time() - began < 61
        await server.aclose()

    in_world(story)

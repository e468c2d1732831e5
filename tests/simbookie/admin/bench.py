"""A bookie on a disk with its operators' interface, on whatever loop runs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pytest

import bkclient
from bkclient.metadata.memory import MemoryMetadataService
from simbookie.admin.endpoints import Administered
from simbookie.admin.server import AdminServer
from simbookie.config import BookieConfig
from simbookie.garbage import GarbageCollector
from simbookie.measured import MeasuredBookie
from simbookie.server import BookieServer
from simbookie.storage.conf import StorageConf
from simbookie.storage.data_folder import DataPlaces, data_folder
from tests.simbookie.admin.http_client import ask, ask_json


@dataclass
class Operated:
    """A served bookie, and requests to its interface."""

    server: BookieServer
    subject: Administered
    admin: AdminServer

    async def asked(self, method: str, path: str, body: bytes | None = None) -> tuple[int, str]:
        return await ask(self.admin.port, method, path, body)

    async def told(self, method: str, path: str, body: Any = None) -> Any:
        return await ask_json(self.admin.port, method, path, body)


@asynccontextmanager
async def operated(folder: Path, config: BookieConfig | None = None, **conf: str) -> AsyncIterator[Operated]:
    """A bookie in ``folder``, with an interface, in a cluster of its own."""
    uri = f"mem://{folder}"
    store = MemoryMetadataService.named(uri.removeprefix("mem://")).session(rng=Random(1))
    with data_folder(
        DataPlaces.inside(folder),
        StorageConf.from_conf(conf),
        clock_ms=lambda: 1,
        rng=Random(1),
        on_fatal=lambda error: pytest.fail(str(error)),
    ) as storage:
        bookie = MeasuredBookie("b0", storage, config)
        collector = GarbageCollector(bookie, store)
        server = BookieServer(bookie, registry=store)
        subject = Administered(
            bookie,
            store,
            collector,
            time.time,
            address=lambda: f"127.0.0.1:{server.port}",
            properties={"bookiePort": "3181"},
            connect=lambda: bkclient.connect(uri),
            announced=server.announced,
        )
        collecting = asyncio.create_task(collector.run())
        admin = AdminServer(subject, "127.0.0.1")
        try:
            async with server:
                await admin.start()
                yield Operated(server, subject, admin)
                await admin.aclose()
        finally:
            collecting.cancel()
            await asyncio.gather(collecting, return_exceptions=True)
            await store.aclose()

"""What becomes of handles of logs that were not left before their client was closed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from random import Random

import pytest

from bkclient import BookKeeper, ClientConfig, WritingSettings
from bkclient.errors import ClientClosed
from bkclient.log import Logs, LogSettings
from tests.bkclient.fakes import FakeStore, FakeTransport, fake_cluster, in_virtual_time


async def to_the_end(call: Callable[[], Awaitable[object]]) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(1):
            while True:
                await call()


@pytest.mark.parametrize("partitions", [0, 2])
def test_no_task_of_a_handle_outlives_its_client(partitions: int) -> None:
    @in_virtual_time
    async def run() -> None:
        async with fake_cluster() as where:
            before = asyncio.all_tasks()
            transport = FakeTransport("")
            transport.bookies = where.transport.bookies
            clock = asyncio.get_running_loop().time
            config = ClientConfig(
                writing=WritingSettings(explicit_lac_interval_s=0)
            )  # fake bookies mix those of ledgers up
            bk = await BookKeeper(FakeStore(where.service), transport, config=config, wall_clock=clock).__aenter__()
            logs = Logs(bk, rng=Random(1))
            await logs.create("log", LogSettings(), partitions=partitions)
            writer = await logs.writer("log").__aenter__()
            for _ in range(4):  # an entry is read when the next one tells that it is confirmed
                await writer.publish(b"0")
            reader = await logs.reader("log").__aenter__()
            consumer = await logs.consumer("log", "g").__aenter__()
            cursor = await logs.cursor("log", "c").__aenter__()
            for call in (reader.__anext__, cursor.__anext__, consumer.receive):
                await to_the_end(call)
            waiting = [asyncio.ensure_future(call) for call in (anext(reader), anext(cursor), consumer.receive())]
            await asyncio.sleep(1)
            await bk.aclose()
            await asyncio.sleep(15)
            left = asyncio.all_tasks() - before
            assert not left, left
            for future in waiting:
                with pytest.raises(ClientClosed):
                    await future
            with pytest.raises(ClientClosed):
                await writer.publish(b"1")
            with pytest.raises(ClientClosed):
                await writer.aclose()
            for handle in (consumer, cursor, reader):
                await handle.__aexit__(None, None, None)
            contents = where.service.snapshot()
            assert (contents.node_watches, contents.ledger_watches) == ({}, {})

    run()

"""Acknowledgements that come while others are being stored."""

from __future__ import annotations

import asyncio

import pytest

from bkclient.log import Logs
from simbookie.world.faults import Delay
from tests.bkclient.log.test_logs import published, run
from tests.bkclient.virtual_cluster import VirtualCluster


@pytest.mark.parametrize("flushes", [1, 2])
def test_what_is_acknowledged_while_others_are_stored_is_stored_too(flushes: int) -> None:
    async def story(cluster: VirtualCluster, logs: Logs) -> None:
        async with published(logs, 4):
            pass
        async with logs.cursor("log", "c") as cursor:
            messages = [await anext(cursor) for _ in range(3)]
            cluster.world.metadata.intercept(lambda call: call.operation == "tree_write", Delay(0.5), limit=1)
            flushing = []
            for message in messages[:flushes]:
                cursor.acknowledge(message)
                flushing.append(asyncio.create_task(cursor.flush()))
                await asyncio.sleep(0.1)
            cursor.acknowledge(messages[flushes])
            await asyncio.gather(*flushing)
        async with logs.cursor("log", "c") as cursor:
            assert (await anext(cursor)).payload == b"%d" % (flushes + 1)

    run(story)

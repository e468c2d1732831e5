"""A chaos test of one's own application: the key-value store of kv_store.py under crashes, pauses and partitions.

pip install "bkclient[test]"
pytest examples/test_kv_store.py                    # ten seeds of each test
pytest examples/test_kv_store.py --bk-seeds 1000    # a night's search
"""

from __future__ import annotations

import asyncio

import bkclient
from bkclient.errors import BookKeeperError
from examples.kv_store import KeyValueStore
from scenarios.testing import SimulatedWorld


async def write(uri: str, name: str, acknowledged: dict[str, str]) -> None:
    """One process of the application: takes the store over and writes until another one has it."""
    async with bkclient.connect(uri) as bk:
        try:
            async with KeyValueStore(bk, "store") as store:
                for number in range(1000):
                    await store.put(f"{name}-{number}", "here")
                    acknowledged[f"{name}-{number}"] = "here"
                    await asyncio.sleep(0.05)
        except BookKeeperError:
            pass  # it was deposed, and ends


async def check(uri: str, acknowledged: dict[str, str]) -> None:
    """Everything acknowledged is there."""
    async with bkclient.connect(uri) as bk, KeyValueStore(bk, "store") as store:
        assert {key: store.get(key) for key in acknowledged} == acknowledged


async def test_nothing_acknowledged_is_lost_over_owners_and_crashes(bk_world: SimulatedWorld) -> None:
    """Owners come, and some crash, while one bookie after the other is down, stands still or is cut off."""
    acknowledged: dict[str, str] = {}
    async with bk_world.disturbances():
        for number in range(4):
            name = f"owner-{number}"
            bk_world.start(name, write, bk_world.uri, name, acknowledged)
            await asyncio.sleep(2)
            if number % 2:
                bk_world.crash(name)
    assert len(acknowledged) > 10
    await check(bk_world.uri, acknowledged)


async def test_an_owner_that_stood_still_can_change_nothing(bk_world: SimulatedWorld) -> None:
    """As after a long garbage collection: it believes that it is the owner, and is not."""
    acknowledged: dict[str, str] = {}
    old = bk_world.start("old", write, bk_world.uri, "old", acknowledged)
    await bk_world.until(lambda: len(acknowledged) > 5)
    bk_world.pause("old")
    bk_world.start("new", write, bk_world.uri, "new", acknowledged)
    await bk_world.until(lambda: "new-5" in acknowledged)
    by_old = sum(key.startswith("old") for key in acknowledged)
    bk_world.resume("old")
    await old.ended()
    assert sum(key.startswith("old") for key in acknowledged) <= by_old
    await check(bk_world.uri, acknowledged)

"""A chaos test of log_to_parquet.py: each message is in a file once, although programs crash, stand still and run side by side.

pip install "bkclient[test]" pyarrow
pytest examples/test_log_to_parquet.py
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pyarrow.parquet as pq

import bkclient
from bkclient.errors import BookKeeperError
from bkclient.log import LogMessage, Logs, LogSettings, PublishSettings
from examples.log_to_parquet import follow, write_file
from scenarios.testing import SimulatedWorld

MESSAGES = [b"event %d" % number for number in range(150)]


async def publish(uri: str) -> None:
    """The application that is followed: several messages to an entry, and many ledgers."""
    async with (
        bkclient.connect(uri) as bk,
        Logs(bk).writer("events", settings=PublishSettings(batch_messages=3)) as log,
    ):
        for message in MESSAGES:
            log.publish_nowait(message)
            await asyncio.sleep(0.02)


async def write_slowly(path: Path, messages: list[LogMessage]) -> None:
    """A simulated world has no threads. Files are real, so the test gives each seed a folder."""
    await asyncio.sleep(0.1)
    write_file(path, messages)


async def following(uri: str, folder: Path) -> None:
    """One process that writes files, which begins again when it fails, and ends when another one has its cursor."""
    while True:
        try:
            async with bkclient.connect(uri) as bk:
                await follow(bk, "events", folder, count=10, wait_s=0.5, write=write_slowly)
        except BookKeeperError as error:
            if error.retriable:
                continue
            return


def in_files(folder: Path) -> list[bytes]:
    """What readers see, in the order of the names."""
    return [row["payload"] for path in sorted(folder.glob("*.parquet")) for row in pq.read_table(path).to_pylist()]


async def test_each_message_is_in_a_file_once(bk_world: SimulatedWorld, tmp_path: Path) -> None:
    """One process after the other follows: crashes, or stands still and wakes up when the next one has its place."""
    async with bkclient.connect(bk_world.uri) as bk:
        await Logs(bk).create("events", LogSettings(max_ledger_entries=12, min_ledger_s=0))
    chance = bk_world.rng("followers")
    bk_world.start("publisher", publish, bk_world.uri)
    async with bk_world.disturbances():
        for number in range(6):
            name = f"follower-{number}"
            bk_world.start(name, following, bk_world.uri, tmp_path)
            await asyncio.sleep(chance.uniform(0.3, 2))
            if number < 5 and chance.random() < 0.5:
                bk_world.crash(name)
            elif number < 5:
                bk_world.pause(name)
                asyncio.get_running_loop().call_later(chance.uniform(0.5, 2), bk_world.resume, name)
    await asyncio.sleep(30)
    assert in_files(tmp_path) == MESSAGES

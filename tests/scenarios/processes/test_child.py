"""A process of a run as its director has it: messages wait for one that stands still, and up to a limit."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from scenarios.processes import child as under_test
from scenarios.processes.child import Child

DATA = b"x" * 10_000


class Told:
    """What a child told, and whether it has ended."""

    def __init__(self) -> None:
        self.messages: asyncio.Queue[list[Any]] = asyncio.Queue()
        self.end = asyncio.Event()


@asynccontextmanager
async def counting_child(folder: Path) -> AsyncIterator[tuple[Child, Told]]:
    told = Told()
    child = Child(
        "tests.scenarios.processes.counting_child", {}, folder / "log", told.messages.put_nowait, told.end.set
    )
    try:
        yield child, told
    finally:
        child.resume()
        child.kill()


async def test_a_process_that_is_stopped_gets_its_messages_when_it_goes_on(tmp_path: Path) -> None:
    async with counting_child(tmp_path) as (child, told), asyncio.timeout(60):
        child.pause()
        for _ in range(100):  # a pipe holds 64 KiB
            child.send("data", DATA)
        child.send("how-many")
        child.resume()
        assert await told.messages.get() == ["got", 100 * len(DATA)]


async def test_a_process_that_takes_nothing_is_killed_when_too_much_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(under_test, "_UNSENT_BYTES_MAX", 50 * len(DATA))
    async with counting_child(tmp_path) as (child, told), asyncio.timeout(60):
        child.pause()
        for _ in range(100):
            child.send("data", DATA)
        await told.end.wait()
        assert not child.is_alive
        assert "took none of the last 500000 bytes" in child.last_words()


async def test_a_process_that_has_ended_gets_nothing(tmp_path: Path) -> None:
    async with counting_child(tmp_path) as (child, told):
        child.send("data", DATA)
        child.kill()
        assert told.end.is_set()
        child.send("data", DATA)
        assert not child.is_alive

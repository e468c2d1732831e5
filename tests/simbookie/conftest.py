"""What tests of bookies share: a loop in virtual time, a bookie with a client's view of it, an observer that writes down."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from bkclient.wire.messages import AddRequest, ReadRequest, Request, Response, Status
from simbookie.bookie import Bookie
from simbookie.config import BookieConfig
from simbookie.storage.group_commit import JournalConfig
from simbookie.storage.memory import MemoryStorage, MemoryStorageConfig, RecordLog
from simbookie.world.loop import VirtualTimeLoop
from tests.settling import settled
from tests.simbookie.notebook import Notebook

KEY = b"k" * 20
OTHER_KEY = b"o" * 20


class Answers(list[Response]):
    """Collects answers; ``times`` holds the loop time of each."""

    def __init__(self) -> None:
        super().__init__()
        self.times: list[float] = []

    def __call__(self, response: Response) -> None:
        self.append(response)
        self.times.append(asyncio.get_running_loop().time())

    @property
    def statuses(self) -> list[Status]:
        return [response.status for response in self]


def entry_body(ledger_id: int, entry_id: int, lac: int = -1, payload: bytes = b"payload", length: int = 0) -> bytes:
    return struct.pack(">qqqq", ledger_id, entry_id, lac, length) + payload


def add(ledger_id: int, entry_id: int, lac: int = -1, payload: bytes = b"payload", **fields: Any) -> AddRequest:
    body = entry_body(ledger_id, entry_id, lac, payload)
    master_key = fields.pop("master_key", KEY)
    return AddRequest(ledger_id, entry_id, master_key, body[:32], body[32:], **fields)


def fencing_read(ledger_id: int, entry_id: int = -1, key: bytes = KEY) -> ReadRequest:
    return ReadRequest(ledger_id, entry_id, fence_key=key, high_priority=True)


class Bench:
    """A running bookie over a disk, driven from within a running loop."""

    def __init__(
        self,
        config: BookieConfig | None = None,
        journal: JournalConfig | None = None,
        *,
        capacity_bytes: int = 1 << 20,
        observer: Any = None,
        disk: RecordLog | None = None,
        wall_clock: Callable[[], float] | None = None,
        storage: MemoryStorage | None = None,
    ) -> None:
        self.disk = disk if disk is not None else RecordLog()
        storage_config = MemoryStorageConfig(
            journal=journal or JournalConfig(), capacity_bytes=capacity_bytes, ledger_bytes=0
        )
        self.storage = storage or MemoryStorage(storage_config, self.disk)
        self.bookie = Bookie("b0", self.storage, config, observer, wall_clock=wall_clock)
        self.bookie.start()

    def submit(self, *requests: Request) -> Answers:
        answers = Answers()
        for request in requests:
            self.bookie.submit(request, answers)
        return answers

    async def ask(self, *requests: Request) -> Answers:
        answers = self.submit(*requests)
        await settled()
        return answers

    async def status(self, request: Request) -> Status:
        answers = await self.ask(request)
        assert len(answers) == 1, f"{request} was answered {len(answers)} times"
        return answers[0].status


class Kit:
    """The names above, for tests to use without importing from a conftest."""

    KEY = KEY
    OTHER_KEY = OTHER_KEY
    Answers = Answers
    Bench = Bench
    Notebook = Notebook
    add = staticmethod(add)
    entry_body = staticmethod(entry_body)
    fencing_read = staticmethod(fencing_read)
    settle = staticmethod(settled)


@pytest.fixture(scope="session")
def kit() -> type[Kit]:
    return Kit


@pytest.fixture(scope="session")
def virtually() -> Callable[[Callable[[], Coroutine[Any, Any, Any]]], None]:
    """Runs an async function on a loop in virtual time."""

    def run(story: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        loop = VirtualTimeLoop()
        try:
            loop.run_until_complete(story())
            assert not loop.unretrieved, f"failed unseen: {loop.unretrieved}"
        finally:
            loop.close()

    return run

"""The task behind a watch, over a fake session: what it does when reading fails."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator

import pytest

from bkclient.errors import MetadataSerializationError, MetadataStoreError
from bkclient.metadata.zookeeper.watches import REREAD_DELAY_S, Watched
from tests.settling import settled


class FakeSession:
    """Keeps wakers, and wakes them when told."""

    def __init__(self) -> None:
        self.wakers: dict[str, list[asyncio.Event]] = {}

    def add_waker(self, path: str, waker: asyncio.Event) -> None:
        self.wakers.setdefault(path, []).append(waker)

    def remove_waker(self, path: str, waker: asyncio.Event) -> None:
        if waker in self.wakers.get(path, []):
            self.wakers[path].remove(waker)

    def fire(self, path: str) -> None:
        for waker in self.wakers[path]:
            waker.set()


class Source:
    """Answers reads from a script; an exception in it is raised."""

    def __init__(self, *script: object) -> None:
        self.script = list(script)
        self.read_at: list[float] = []

    async def read(self) -> tuple[object, object]:
        self.read_at.append(asyncio.get_running_loop().time())
        answer = self.script.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer, answer


@pytest.fixture
async def session() -> AsyncIterator[FakeSession]:
    session = FakeSession()
    yield session
    assert not any(session.wakers.values()), "a waker was left behind"


def watched(session: FakeSession, source: Source) -> Watched[object]:
    return Watched(session, ("/a", "/b"), source.read, lambda: None)  # type: ignore[arg-type]


@pytest.mark.rule("NR-7")
async def test_a_read_that_fails_is_repeated_after_200_ms(session: FakeSession) -> None:
    source = Source(MetadataStoreError("first"), MetadataStoreError("second"), "value")
    heard: asyncio.Queue[object] = asyncio.Queue()
    subject = watched(session, source)
    subject.add(heard.put_nowait)
    assert await asyncio.wait_for(heard.get(), 5) == "value"
    assert REREAD_DELAY_S == 0.2
    first, second, third = source.read_at
    assert min(second - first, third - second) >= REREAD_DELAY_S * 0.95
    await subject.aclose()


async def test_what_cannot_be_decoded_is_logged_and_read_again_only_after_a_change(
    session: FakeSession, caplog: pytest.LogCaptureFixture
) -> None:
    source = Source("one", MetadataSerializationError("damaged", ledger_id=5), "two")
    heard: list[object] = []
    subject = watched(session, source)
    subject.add(heard.append)
    await settled()
    with caplog.at_level(logging.ERROR):
        session.fire("/a")
        await settled()
    assert "ledger 5: damaged" in caplog.text
    assert heard == ["one"]
    session.fire("/b")
    await settled()
    assert heard == ["one", "two"]
    await subject.aclose()


async def test_what_did_not_change_is_not_reported_again(session: FakeSession) -> None:
    source = Source("one", "one", "two", "one")
    heard: list[object] = []
    subject = watched(session, source)
    subject.add(heard.append)
    await settled()
    for _ in range(3):
        session.fire("/a")
        await settled()
    assert heard == ["one", "two", "one"]
    await subject.aclose()
    await subject.aclose()


async def test_a_change_during_a_read_is_read_again(session: FakeSession) -> None:
    source = Source("one", "two")
    heard: list[object] = []
    subject = watched(session, source)
    read = source.read

    async def read_while_it_changes() -> tuple[object, object]:
        result = await read()
        if len(source.read_at) == 1:
            session.fire("/a")
        return result

    subject._read = read_while_it_changes
    subject.add(heard.append)
    await settled()
    assert heard == ["one", "two"]
    await subject.aclose()


async def test_nothing_is_left_when_the_last_listener_has_gone(session: FakeSession) -> None:
    subject = watched(session, Source("one"))
    cancels = [subject.add(print), subject.add(print)]
    for cancel in cancels * 2:
        cancel()
    await settled()
    assert subject._task.cancelled()

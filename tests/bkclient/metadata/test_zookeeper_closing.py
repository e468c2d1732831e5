"""However a server misbehaves, a session opens or fails in time, ends in time, and leaves no thread and no socket.

The session timeout is long here: the limits of opening and closing are others. Nothing measures time; the limits of the tests are
far above those of the session and far below what the library would wait by itself.
"""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from random import Random
from typing import Any

import pytest

from bkclient.errors import BookKeeperError, ClientClosed, MetadataStoreError
from bkclient.metadata.opening import open_store
from bkclient.metadata.zookeeper.session import ABORT_TIMEOUT_S, CLOSE_TIMEOUT_S, ZooKeeperSession
from simbookie.java import JavaRuntime
from simbookie.zookeeper import ZooKeeperServer
from tests.bkclient.metadata.fake_zookeeper import Behaviour, after_the_handshake, in_the_handshake, serve
from tests.bkclient.metadata.zookeeper_inside import kazoo_of

SESSION_TIMEOUT_S = 60.0
PATIENCE_S = 15.0
assert CLOSE_TIMEOUT_S + ABORT_TIMEOUT_S < PATIENCE_S / 2 < SESSION_TIMEOUT_S / 4


@pytest.fixture(autouse=True)
def short_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bkclient.metadata.zookeeper.session.CLOSE_TIMEOUT_S", 0.3)


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    """No thread and no descriptor outlives a test."""
    threads = set(threading.enumerate())
    descriptors = _descriptors()
    yield
    assert set(threading.enumerate()) - threads == set()
    assert _descriptors() <= descriptors


def _descriptors() -> int:
    return len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0  # noqa: PTH112, PTH208 - counted, not used


async def opened(address: str, **options: Any) -> ZooKeeperSession:
    async with asyncio.timeout(PATIENCE_S):
        return await ZooKeeperSession.open(
            address,
            **(
                {"session_timeout_s": SESSION_TIMEOUT_S, "connect_timeout_s": 5.0, "operation_timeout_s": 30.0}
                | options
            ),
            name="zk://here/ledgers",
        )


@pytest.mark.parametrize("behaviour", in_the_handshake.values(), ids=in_the_handshake)
async def test_a_server_that_never_opens_a_session_is_left_in_time(behaviour: Behaviour) -> None:
    async with serve(behaviour) as address:
        with pytest.raises(
            MetadataStoreError, match=f"{address}: it takes connections and does not answer as ZooKeeper"
        ):
            await opened(address, connect_timeout_s=0.2)


@pytest.mark.parametrize("behaviour", after_the_handshake.values(), ids=after_the_handshake)
async def test_a_session_ends_in_time_whatever_its_server_does(behaviour: Behaviour) -> None:
    async with serve(behaviour) as address:
        session = await opened(address)
        waiting = asyncio.ensure_future(session.get("/ledgers"))
        await asyncio.sleep(0.05)
        async with asyncio.timeout(PATIENCE_S):
            await session.aclose()
            with pytest.raises(ClientClosed):
                await waiting


@pytest.mark.parametrize("behaviour", after_the_handshake.values(), ids=after_the_handshake)
async def test_a_close_that_is_cancelled_ends_the_session_in_time_all_the_same(behaviour: Behaviour) -> None:
    threads = set(threading.enumerate())
    async with serve(behaviour) as address:
        session = await opened(address)
        closing = asyncio.ensure_future(session.aclose())
        await asyncio.sleep(0)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        async with asyncio.timeout(PATIENCE_S):
            while set(threading.enumerate()) - threads:  # noqa: ASYNC110 - threads tell nobody of their end
                await asyncio.sleep(0.01)


async def test_a_session_outlives_an_answer_that_nobody_understands() -> None:
    behaviours = iter([after_the_handshake["sends nonsense"], after_the_handshake["is silent"]])

    async def behave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await next(behaviours)(reader, writer)

    async with serve(behave) as address:
        session = await opened(address)
        renewed = asyncio.Event()
        session.on_renewal(renewed.set)
        async with asyncio.timeout(PATIENCE_S):
            await renewed.wait()
        assert session.is_connected
        await session.aclose()


async def test_requests_never_wait_for_the_thread_of_the_connection() -> None:
    """Submitting wakes that thread by a byte; a thread that is busy reads none, and a pipe holds few hundred."""
    is_blocked = threading.Event()

    async with serve(after_the_handshake["sends a byte now and then"]) as address:
        session = await opened(address)
        await asyncio.sleep(0.1)  # the thread reads a frame that does not end

        def release() -> None:
            is_blocked.set()
            session._handler.abort()

        watchdog = threading.Timer(5.0, release)
        watchdog.start()
        requests = [asyncio.ensure_future(session.get("/ledgers")) for _ in range(2000)]
        await asyncio.sleep(0.01)
        watchdog.cancel()
        watchdog.join()
        await session.aclose()
        await asyncio.wait(requests)
        assert {type(request.exception()) for request in requests} == {ClientClosed}
    assert not is_blocked.is_set()


async def test_a_library_that_does_not_come_to_its_end_is_left_to_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    release = threading.Event()
    async with serve(after_the_handshake["is silent"]) as address:
        session = await opened(address)
        stop = kazoo_of(session).stop
        monkeypatch.setattr(kazoo_of(session), "stop", lambda: (release.wait(), stop()))
        async with asyncio.timeout(PATIENCE_S):
            await session.aclose()
        release.set()
        while any(t.name.startswith("bkclient-zookeeper") for t in threading.enumerate()):  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.01)


@pytest.mark.zookeeper
@pytest.mark.parametrize("is_busy", [False, True])
async def test_a_real_server_that_is_stopped_delays_nothing_beyond_the_limit(
    java: JavaRuntime, zookeeper_root: str, *, is_busy: bool
) -> None:
    with ZooKeeperServer(java=java, tick_time_ms=3000) as server:
        store = await open_store(
            server.metadata_uri(zookeeper_root),
            rng=Random(7),
            session_timeout_s=SESSION_TIMEOUT_S,
            connect_timeout_s=30.0,
            initialise=True,
        )
        server.pause()
        requests = [asyncio.ensure_future(store.read_ledger(number)) for number in range(500 if is_busy else 0)]
        await asyncio.sleep(0.05)
        async with asyncio.timeout(PATIENCE_S):
            await store.aclose()
            for request in requests:
                with pytest.raises(ClientClosed):
                    await request
        server.resume()


class TestWhyNoServerAnswers:
    """The error says what each server said, and comes early where waiting is of no use."""

    async def test_servers_that_refuse_are_given_up_early(self) -> None:
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{unused.getsockname()[1]}"
            with pytest.raises(
                MetadataStoreError, match=f"can be connected to: {address}: connection refused"
            ) as caught:
                await opened(address, connect_timeout_s=None)
        assert caught.value.retriable

    async def test_a_name_that_does_not_exist_is_given_up_at_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        resolve_to(monkeypatch, socket.gaierror(socket.EAI_NONAME, "Name or service not known"))
        with pytest.raises(
            MetadataStoreError, match=r"nowhere:2181: the name cannot be resolved \(name or service not known\)"
        ):
            await opened("nowhere:2181", connect_timeout_s=None)

    async def test_a_name_service_that_is_away_is_given_up_early(self, monkeypatch: pytest.MonkeyPatch) -> None:
        resolve_to(monkeypatch, socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution"))
        with pytest.raises(MetadataStoreError, match=r"resolved \(temporary failure in name resolution\)"):
            await opened("nowhere:2181", connect_timeout_s=None)

    async def test_one_silent_server_is_reason_enough_to_wait(self) -> None:
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            refusing = f"127.0.0.1:{unused.getsockname()[1]}"
            async with serve(in_the_handshake["is silent"]) as silent:
                with pytest.raises(MetadataStoreError, match=r"answered within 2 s") as caught:
                    await opened(f"{refusing},{silent}", connect_timeout_s=None, session_timeout_s=2)
        assert f"{refusing}: connection refused; {silent}: it takes connections" in str(caught.value)

    async def test_a_server_that_begins_to_listen_soon_is_found(self) -> None:
        with socket.socket() as reserved:
            reserved.bind(("127.0.0.1", 0))
            address = reserved.getsockname()
        opening = asyncio.ensure_future(opened(f"{address[0]}:{address[1]}", connect_timeout_s=None))
        await asyncio.sleep(0.2)
        done: list[asyncio.StreamWriter] = []

        async def behave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            done.append(writer)
            with suppress(asyncio.CancelledError):
                await after_the_handshake["is silent"](reader, writer)

        server = await asyncio.start_server(behave, *address)
        session = await opening
        await session.aclose()
        for writer in done:
            writer.transport.abort()
        server.close()

    async def test_who_says_how_long_to_try_gets_that(self) -> None:
        with pytest.raises(MetadataStoreError, match=r"answered within 0\.2 s: 127\.0\.0\.1:1: connection refused"):
            await opened("127.0.0.1:1", connect_timeout_s=0.2)


@pytest.mark.skipif(not hasattr(os, "eventfd"), reason="a pair of sockets takes the place of the event counter")
async def test_a_session_costs_one_thread_and_two_descriptors() -> None:
    async with serve(after_the_handshake["is silent"]) as address:
        threads, descriptors = threading.active_count(), _descriptors()
        sessions = [await opened(address) for _ in range(10)]
        assert threading.active_count() - threads == 10
        assert _descriptors() - descriptors == 10 * 2 + 10  # and one for the server's end of each
        await asyncio.gather(*(session.aclose() for session in sessions), return_exceptions=True)


async def test_an_error_in_opening_is_no_other_kind_of_error() -> None:
    with pytest.raises(BookKeeperError):
        await opened("127.0.0.1:1", connect_timeout_s=0.01)


def resolve_to(monkeypatch: pytest.MonkeyPatch, error: OSError) -> None:
    real = socket.getaddrinfo

    def resolve(host: str, *arguments: Any, **options: Any) -> Any:
        if host == "nowhere":
            raise error
        return real(host, *arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", resolve)

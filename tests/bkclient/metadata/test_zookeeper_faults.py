"""Lost connections, expired sessions and silent servers: a real server is stopped, paused and robbed of sessions."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionLoss
from kazoo.security import make_acl

from bkclient.errors import (
    ClientClosed,
    LedgerExists,
    MetadataOutcomeUnknown,
    MetadataStoreError,
    NoSuchLedger,
)
from bkclient.ledger import Fragment, LedgerMetadata, LedgerState, Versioned
from bkclient.metadata.base import BookieAddress, BookieSets
from bkclient.metadata.opening import open_store
from bkclient.metadata.uri import ZooKeeperUri
from bkclient.metadata.zookeeper import ZooKeeperMetadataStore, connect_zookeeper
from simbookie.zookeeper import ZooKeeperServer
from tests.bkclient.metadata.zookeeper_inside import kazoo_of, ledgers_of, session_of
from tests.zookeepers import AnyZooKeeper, EmbeddedInThread

Connect = Callable[..., Awaitable[ZooKeeperMetadataStore]]

SESSION_TIMEOUT_S = 1.2
PATIENCE_S = 20
ADDRESS = BookieAddress("127.0.0.1", 3181)
LEDGER = LedgerMetadata(5, 1, 1, 1, (Fragment(0, ("b:1",)),))


@pytest.fixture(scope="module", params=["embedded", pytest.param("java", marks=pytest.mark.zookeeper)])
def module_server(request: pytest.FixtureRequest) -> Iterator[AnyZooKeeper]:
    server: EmbeddedInThread | ZooKeeperServer = (
        EmbeddedInThread()
        if request.param == "embedded"
        else ZooKeeperServer(java=request.getfixturevalue("java"), tick_time_ms=200)
    )
    with server:
        yield server


@pytest.fixture
def server(module_server: AnyZooKeeper) -> Iterator[AnyZooKeeper]:
    """A server that the test may pause or stop."""
    yield module_server
    if module_server.is_running:
        module_server.resume()
    module_server.start()


@pytest.fixture
async def connect(server: AnyZooKeeper, zookeeper_root: str) -> AsyncIterator[Connect]:
    stores: list[ZooKeeperMetadataStore] = []

    async def open_one(**options: Any) -> ZooKeeperMetadataStore:
        options = {"session_timeout_s": SESSION_TIMEOUT_S, "operation_timeout_s": PATIENCE_S, **options}
        target = ZooKeeperUri((server.address,), zookeeper_root)
        store = await connect_zookeeper(target, rng=Random(7), connect_timeout_s=20, initialise=True, **options)
        stores.append(store)
        return store

    yield open_one
    for store in stores:
        await store.aclose()


@pytest.fixture
def zk(server: AnyZooKeeper) -> Iterator[KazooClient]:
    client = KazooClient(server.address)
    client.start(timeout=20)
    yield client
    client.stop()
    client.close()


async def expire(store: ZooKeeperMetadataStore) -> None:
    """End the store's session behind its back, as the service does with a client it has not heard of for too long."""
    session = session_of(store)
    identity, renewed = kazoo_of(session).client_id, asyncio.Event()
    session.on_renewal(renewed.set)
    ((host, port),) = kazoo_of(session).hosts
    thief = KazooClient(f"{host}:{port}", client_id=identity)
    await asyncio.to_thread(thief.start)
    await asyncio.to_thread(thief.stop)
    thief.close()
    async with asyncio.timeout(PATIENCE_S):
        await renewed.wait()


async def until_equal(expected: object, read: Callable[[], Awaitable[object]]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while await read() != expected:  # noqa: ASYNC110 - nothing in the service tells a test when it may look
            await asyncio.sleep(0.02)


def threads_of_the_driver() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread is not threading.main_thread()]


class TestOpeningAndClosing:
    """A session has a beginning and an end, and leaves nothing behind."""

    async def test_a_service_that_does_not_answer_is_given_up_and_named(self) -> None:
        before = threads_of_the_driver()
        with socket.socket() as silent:
            silent.bind(("127.0.0.1", 0))
            uri = f"zk+hierarchical://127.0.0.1:{silent.getsockname()[1]}/ledgers"
            with pytest.raises(MetadataStoreError, match=r"answered within 0\.3 s") as caught:
                await open_store(uri, rng=Random(7), connect_timeout_s=0.3)
        assert uri in str(caught.value)
        assert threads_of_the_driver() == before

    async def test_opening_can_be_cancelled(self) -> None:
        before = threads_of_the_driver()
        opening = asyncio.ensure_future(open_store("zk://127.0.0.1:1", rng=Random(7)))
        await asyncio.sleep(0.05)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        assert threads_of_the_driver() == before

    async def test_closing_ends_the_threads_and_the_session(self, connect: Connect, zk: KazooClient) -> None:
        before = threads_of_the_driver()
        store = await connect()
        await store.register_bookie("b:1", ADDRESS)
        store.watch_ledger(5, print)
        store.watch_bookies(print)
        cancel = store.watch_ledger(6, print)
        cancel()
        assert len(threads_of_the_driver()) > len(before)
        await store.aclose()
        await store.aclose()
        assert threads_of_the_driver() == before
        assert [task for task in asyncio.all_tasks() if task is not asyncio.current_task()] == []

    async def test_every_operation_of_a_closed_session_fails(self, connect: Connect) -> None:
        store = await connect()
        await store.aclose()
        for attempt in (
            store.generate_ledger_id(),
            store.create_ledger(LEDGER),
            store.read_ledger(5),
            store.write_ledger(LEDGER, 0),
            store.delete_ledger(5),
            store.bookies(),
            store.bookie_address("b:1"),
            store.register_bookie("b:1", ADDRESS),
            store.unregister_bookie("b:1"),
            anext(aiter(store.list_ledgers())),
        ):
            with pytest.raises(ClientClosed):
                await attempt
        with pytest.raises(ClientClosed):
            store.watch_ledger(5, print)
        with pytest.raises(ClientClosed):
            store.watch_bookies(print)

    async def test_operations_under_way_end_when_the_session_is_closed(
        self, connect: Connect, server: AnyZooKeeper
    ) -> None:
        store = await connect()
        server.pause()
        in_flight = asyncio.ensure_future(store.read_ledger(5))
        await asyncio.sleep(0.01)
        closing = asyncio.ensure_future(store.aclose())
        with pytest.raises(ClientClosed, match="ledger 5"):
            await in_flight
        await closing

    async def test_a_request_whose_answer_got_lost_between_the_threads_ends_too(self, connect: Connect) -> None:
        store = await connect()
        handler = kazoo_of(session_of(store)).handler
        waiting = asyncio.ensure_future(session_of(store).request(lambda _: handler.async_result(), ledger_id=5))
        await asyncio.sleep(0.01)
        await store.aclose()
        async with asyncio.timeout(1):
            with pytest.raises(ClientClosed, match="ledger 5"):
                await waiting

    async def test_what_the_threads_say_after_the_loop_was_closed_is_dropped(
        self, server: AnyZooKeeper, zookeeper_root: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        target = ZooKeeperUri((server.address,), zookeeper_root)
        kept: list[ZooKeeperMetadataStore] = []

        async def abandon() -> None:
            kept.append(
                await connect_zookeeper(
                    target, rng=Random(7), session_timeout_s=5, connect_timeout_s=20, initialise=True
                )
            )
            kept[0].watch_bookies(print)
            await kept[0].bookies()

        await asyncio.to_thread(asyncio.run, abandon())
        client = kazoo_of(session_of(kept[0]))
        await asyncio.to_thread(client.create, f"{zookeeper_root}/available/b:1", b"", ephemeral=True)
        await asyncio.to_thread(client.stop)
        client.close()
        assert [record.message for record in caplog.records if "xception" in record.message] == []


class TestLostConnections:
    """A request that was in flight may or may not have been carried out."""

    async def test_a_read_lets_its_server_catch_up_first(
        self, connect: Connect, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store = await connect()
        created = await store.create_ledger(LEDGER)
        calls = record_calls(store, monkeypatch, "sync_async", "get_async")
        assert await store.read_ledger(5) == created
        path = ledgers_of(store).path(5)
        assert calls == [("sync_async", path), ("get_async", path)]

    @pytest.mark.rule("W-49")
    async def test_a_write_that_was_in_flight_has_an_unknown_outcome(
        self, connect: Connect, server: AnyZooKeeper
    ) -> None:
        store = await connect()
        created = await store.create_ledger(LEDGER)
        server.pause()
        with pytest.raises(MetadataOutcomeUnknown, match="ledger 5") as caught:
            await store.write_ledger(created.metadata.closed(1, 1), created.version)
        assert not caught.value.retriable  # it may have been carried out
        server.resume()
        # Whatever became of it, the next reader and the next writer agree on it.
        present = await store.read_ledger(5)
        assert (present.version, present.metadata.is_closed) in {(0, False), (1, True)}
        assert (await store.write_ledger(present.metadata, present.version)).version == present.version + 1

    async def test_a_write_that_was_never_sent_is_known_not_to_have_happened(
        self, connect: Connect, server: AnyZooKeeper
    ) -> None:
        store = await connect(operation_timeout_s=0.4)
        created = await store.create_ledger(LEDGER)
        server.stop()
        await until_equal(False, is_connected(store))
        for attempt in (store.write_ledger(created.metadata.closed(1, 1), 0), store.delete_ledger(5)):
            with pytest.raises(MetadataStoreError, match=r"no connection with zk://.* for 0\.4 s") as caught:
                await attempt
            assert not isinstance(caught.value, MetadataOutcomeUnknown)
        server.start()
        await until_equal(True, is_connected(store))
        await asyncio.sleep(0.1)
        assert await store.read_ledger(5) == created

    async def test_reads_wait_for_the_connection_to_return(self, connect: Connect, server: AnyZooKeeper) -> None:
        store = await connect(session_timeout_s=10)
        created = await store.create_ledger(LEDGER)
        server.stop()
        reading = asyncio.ensure_future(store.read_ledger(5))
        await asyncio.sleep(0.05)
        assert not reading.done()
        server.start()
        assert await reading == created

    async def test_a_bookie_seen_before_is_found_while_the_service_is_away(
        self, connect: Connect, server: AnyZooKeeper
    ) -> None:
        store = await connect(session_timeout_s=10)
        await store.register_bookie("bookie-1", ADDRESS)
        assert await store.bookie_address("bookie-1") == ADDRESS
        server.stop()
        while session_of(store).is_connected:  # noqa: ASYNC110 - the library tells in its own time
            await asyncio.sleep(0.01)
        async with asyncio.timeout(1):
            assert await store.bookie_address("bookie-1") == ADDRESS

    @pytest.mark.rule("API-6")
    @pytest.mark.behaviour("T-48")
    @pytest.mark.parametrize("was_carried_out", [True, False])
    async def test_a_creation_that_was_in_flight_is_repeated_and_recognised(
        self, connect: Connect, monkeypatch: pytest.MonkeyPatch, *, was_carried_out: bool
    ) -> None:
        store = await connect()
        calls = lose_first_answer(store, "create_async", monkeypatch, was_carried_out=was_carried_out)
        await store.create_ledger(replace(LEDGER, ledger_id=6))
        calls.clear()
        created = await store.create_ledger(LEDGER)
        assert (calls, created.version) == (["lost", "answered"], 0)
        assert await store.read_ledger(5) == created

    @pytest.mark.rule("API-6")
    async def test_without_a_token_a_creation_that_was_in_flight_has_an_unknown_outcome(
        self, connect: Connect, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store = await connect()
        old = replace(LEDGER, format_version=2)
        await store.create_ledger(replace(old, ledger_id=6))
        lose_first_answer(store, "create_async", monkeypatch, was_carried_out=True)
        with pytest.raises(MetadataOutcomeUnknown, match="ledger 5"):
            await store.create_ledger(old)
        with pytest.raises(LedgerExists):
            await store.create_ledger(old)

    async def test_a_ledger_that_is_deleted_before_it_could_be_recognised_is_created_after_all(
        self, connect: Connect, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store = await connect()
        await store.create_ledger(LEDGER)
        real = ledgers_of(store)._read_or_none

        async def read_too_late(ledger_id: int) -> Versioned | None:
            await store.delete_ledger(ledger_id)
            return await real(ledger_id)

        monkeypatch.setattr(ledgers_of(store), "_read_or_none", read_too_late)
        assert (await store.create_ledger(LEDGER)).version == 0

    @pytest.mark.rule("DEL-2")
    @pytest.mark.parametrize("was_carried_out", [True, False])
    async def test_a_deletion_that_was_in_flight_is_repeated(
        self, connect: Connect, monkeypatch: pytest.MonkeyPatch, *, was_carried_out: bool
    ) -> None:
        store = await connect()
        await store.create_ledger(LEDGER)
        calls = lose_first_answer(store, "delete_async", monkeypatch, was_carried_out=was_carried_out)
        await store.delete_ledger(5)
        assert calls[:2] == ["lost", "answered"]
        with pytest.raises(NoSuchLedger):
            await store.read_ledger(5)

    async def test_a_repeated_write_that_never_gets_an_answer_has_an_unknown_outcome_in_the_end(
        self, connect: Connect, server: AnyZooKeeper
    ) -> None:
        store = await connect(operation_timeout_s=0.3)
        await store.create_ledger(LEDGER)
        server.pause()
        with pytest.raises(MetadataOutcomeUnknown, match="ledger 5"):
            await store.delete_ledger(5)
        with pytest.raises(MetadataStoreError, match="ledger 5") as caught:
            await store.read_ledger(5)
        assert not isinstance(caught.value, MetadataOutcomeUnknown)

    async def test_what_the_service_refuses_is_an_error_of_the_store(self, connect: Connect, zk: KazooClient) -> None:
        store = await connect()
        await store.create_ledger(LEDGER)
        await asyncio.to_thread(forbid, zk, ledgers_of(store).path(5))
        with pytest.raises(MetadataStoreError, match=r"ledger 5: zk://.* refused the request: NoAuthError"):
            await store.read_ledger(5)

    @pytest.mark.rule("NR-7")
    async def test_watches_outlive_a_restart_of_the_service(
        self, connect: Connect, server: AnyZooKeeper, zookeeper_root: str
    ) -> None:
        store = await connect(session_timeout_s=10)
        created = await store.create_ledger(LEDGER)
        heard: asyncio.Queue[Versioned | None] = asyncio.Queue()
        store.watch_ledger(5, heard.put_nowait)
        async with asyncio.timeout(PATIENCE_S):
            assert await heard.get() == created
            server.stop()
            await until_equal(False, is_connected(store))
            server.start()
            writer = await connect()
            changed = await writer.write_ledger(created.metadata.with_state(LedgerState.IN_RECOVERY), created.version)
            assert await heard.get() == changed
            closed = await writer.write_ledger(changed.metadata.closed(1, 1), changed.version)
            assert await heard.get() == closed


class TestExpiredSessions:
    """The service forgot this client, which opens a new session and makes good what was lost."""

    async def test_bookies_are_registered_again_in_the_new_session(self, connect: Connect) -> None:
        store, client = await connect(), await connect()
        await store.register_bookie("a:1", ADDRESS)
        await store.register_bookie("b:1", ADDRESS, read_only=True)
        await store.register_bookie("c:1", ADDRESS)
        await store.unregister_bookie("c:1")
        expected = await client.bookies()
        assert expected == BookieSets(("a:1",), ("b:1",))
        before = session_of(store).session_id
        for _ in range(2):
            await expire(store)
            await until_equal(expected, client.bookies)
        assert session_of(store).session_id != before
        await store.register_bookie("a:1", ADDRESS, read_only=True)
        await store.unregister_bookie("b:1")
        assert await client.bookies() == BookieSets((), ("a:1",))

    @pytest.mark.rule("NR-7")
    async def test_watched_ledgers_are_read_again(self, connect: Connect) -> None:
        reader, writer = await connect(), await connect()
        created = await writer.create_ledger(LEDGER)
        heard: asyncio.Queue[Versioned | None] = asyncio.Queue()
        reader.watch_ledger(5, heard.put_nowait)
        async with asyncio.timeout(PATIENCE_S):
            assert await heard.get() == created
            await expire(reader)
            changed = await writer.write_ledger(created.metadata.with_state(LedgerState.IN_RECOVERY), created.version)
            assert await heard.get() == changed
            await writer.delete_ledger(5)
            assert await heard.get() is None

    @pytest.mark.rule("PL-1")
    async def test_the_bookies_are_followed_on(self, connect: Connect) -> None:
        reader, bookies = await connect(), await connect()
        heard: asyncio.Queue[BookieSets] = asyncio.Queue()
        reader.watch_bookies(heard.put_nowait)
        async with asyncio.timeout(PATIENCE_S):
            assert await heard.get() == BookieSets()
            await expire(reader)
            await bookies.register_bookie("a:1", ADDRESS)
            assert await heard.get() == BookieSets(("a:1",), ())

    async def test_a_bookie_that_changes_kind_is_there_all_the_time(
        self, connect: Connect, monkeypatch: pytest.MonkeyPatch, zookeeper_root: str
    ) -> None:
        store = await connect()
        await store.register_bookie("a:1", ADDRESS)
        calls = record_calls(store, monkeypatch, "create_async", "delete_async")
        for read_only in (True, False):
            await store.register_bookie("a:1", ADDRESS, read_only=read_only)
        writable, read_only_path = f"{zookeeper_root}/available/a:1", f"{zookeeper_root}/available/readonly/a:1"
        assert calls == [
            ("create_async", read_only_path),
            ("delete_async", writable),
            ("create_async", writable),
            ("delete_async", read_only_path),
        ]

    async def test_an_id_whose_session_is_still_known_is_waited_for(self, connect: Connect) -> None:
        old, new = await connect(session_timeout_s=10), await connect(session_timeout_s=10)
        await old.register_bookie("a:1", ADDRESS)
        registering = asyncio.ensure_future(new.register_bookie("a:1", BookieAddress("elsewhere", 1)))
        await new.bookies()
        assert not registering.done()
        await old.aclose()
        await registering
        assert await new.bookie_address("a:1") == BookieAddress("elsewhere", 1)

    async def test_an_id_that_another_session_keeps_is_refused_in_the_end(self, connect: Connect) -> None:
        old, new = await connect(), await connect(session_timeout_s=0.4)
        await old.register_bookie("a:1", ADDRESS)
        with pytest.raises(MetadataStoreError, match=r"bookie a:1: another session .* kept it for 0\.5 s"):
            await new.register_bookie("a:1", ADDRESS)
        await new.unregister_bookie("a:1")
        assert await new.bookies() == BookieSets(("a:1",), ())
        await new.register_bookie("b:1", ADDRESS)


def is_connected(store: ZooKeeperMetadataStore) -> Callable[[], Awaitable[bool]]:
    async def ask() -> bool:
        return session_of(store)._connected.is_set()

    return ask


def forbid(zk: KazooClient, path: str) -> None:
    """Take away everybody's right to read a znode."""
    zk.set_acls(path, [make_acl("world", "anyone", admin=True)])


def record_calls(store: ZooKeeperMetadataStore, monkeypatch: pytest.MonkeyPatch, *names: str) -> list[tuple[str, str]]:
    """Note the requests of these kinds and their paths, in order."""
    client = kazoo_of(session_of(store))
    calls: list[tuple[str, str]] = []

    def recorder(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(path: str, *arguments: Any, **options: Any) -> Any:
            calls.append((name, path))
            return real(path, *arguments, **options)

        return call

    for name in names:
        monkeypatch.setattr(client, name, recorder(name, getattr(client, name)))
    return calls


def lose_first_answer(
    store: ZooKeeperMetadataStore, name: str, monkeypatch: pytest.MonkeyPatch, *, was_carried_out: bool
) -> list[str]:
    """Lose the answer, or the request itself, of every first of two requests of one kind."""
    client = kazoo_of(session_of(store))
    real = getattr(client, name)
    calls: list[str] = []

    def start(*arguments: Any, **options: Any) -> Any:
        if len(calls) % 2:
            calls.append("answered")
            return real(*arguments, **options)
        calls.append("lost")
        lost = client.handler.async_result()
        if was_carried_out:
            real(*arguments, **options).rawlink(lambda _: lost.set_exception(ConnectionLoss()))
        else:
            lost.set_exception(ConnectionLoss())
        return lost

    monkeypatch.setattr(client, name, start)
    return calls

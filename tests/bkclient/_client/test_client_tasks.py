"""A client may be entered by one task and left by another, however it is left; and nothing of it stays behind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from random import Random

import anyio
import pytest
from anyio.abc import TaskGroup

import bkclient
from bkclient import BookKeeper
from bkclient._client.hosted import Hosted
from bkclient.errors import ArgumentError, ClientClosed, MetadataStoreError, UnexpectedCondition
from bkclient.metadata.base import BookieSets
from bkclient.metadata.memory import MemoryMetadataService
from bkclient.repair.admin import core_of
from tests.bkclient.fakes import FakeCluster, FakeStore, FakeTransport, fake_cluster, writer_of
from tests.settling import settled


@pytest.fixture
async def where() -> AsyncIterator[FakeCluster]:
    """As an application would write it; pytest-asyncio tears it down in another task."""
    async with fake_cluster() as entered:
        yield entered


@pytest.fixture
async def connected() -> AsyncIterator[BookKeeper]:
    async with bkclient.connect("mem://fixture") as bk:
        yield bk
    MemoryMetadataService.forget("fixture")


@pytest.fixture
async def crowded(where: FakeCluster) -> AsyncIterator[FakeCluster]:
    """Left with work under way: an update that waits for the store, and a bookie that does not answer."""
    writer = await writer_of(where)
    where.store.gate.clear()
    where.transport.hold("abc")
    future = writer.append_nowait(b"x")
    closing = asyncio.create_task(writer.close())
    await settled()
    yield where
    where.store.gate.set()
    await asyncio.gather(future, closing, return_exceptions=True)


async def test_a_client_lives_in_a_fixture(where: FakeCluster) -> None:
    async with await writer_of(where) as writer:
        assert await writer.append(b"x") == 0


async def test_a_connection_lives_in_a_fixture(connected: BookKeeper) -> None:
    assert await connected.bookies() == BookieSets()


async def test_a_client_with_work_under_way_lives_in_a_fixture(crowded: FakeCluster) -> None:
    assert not crowded.transport.is_closed


def runs_of(loop: asyncio.AbstractEventLoop) -> None:
    """Each step in a task of its own, as fixtures and tests are run."""
    stack = AsyncExitStack()

    async def enter() -> FakeCluster:
        return await stack.enter_async_context(fake_cluster())

    async def work(where: FakeCluster) -> None:
        async with await writer_of(where) as writer:
            assert await writer.append(b"x") == 0

    where = loop.run_until_complete(enter())
    loop.run_until_complete(work(where))
    loop.run_until_complete(stack.aclose())
    assert where.transport.is_closed
    assert asyncio.all_tasks(loop) == set()


@pytest.mark.parametrize("module", ["asyncio", "uvloop"])
def test_entering_working_and_leaving_may_be_three_tasks(module: str) -> None:
    loop = pytest.importorskip(module).new_event_loop()
    try:
        runs_of(loop)
    finally:
        loop.close()


async def test_an_exit_stack_may_be_closed_within_a_cancel_scope_of_somebody_else() -> None:
    stack = AsyncExitStack()
    where = await stack.enter_async_context(fake_cluster())
    with anyio.move_on_after(5):
        await asyncio.create_task(stack.aclose())

    assert where.transport.is_closed


# Leaving while cancelled --------------------------------------------------------------------------------------------


class SlowTransport(FakeTransport):
    """Takes its time to close."""

    async def aclose(self) -> None:
        for _ in range(10):
            await asyncio.sleep(0)
        await super().aclose()


def client_of(where: FakeCluster, transport: FakeTransport, store: FakeStore | None = None) -> BookKeeper:
    return BookKeeper(store or FakeStore(where.service), transport, rng=Random(9))


async def by_scope(leave: Callable[[], Awaitable[object]]) -> bool:
    """Cancelled before it begins and for as long as it takes."""
    with anyio.CancelScope() as scope:
        scope.cancel()
        await leave()
    return scope.cancelled_caught


async def by_task(leave: Callable[[], Awaitable[object]]) -> bool:
    """Cancelled once the task waits, and again while it does."""

    async def run() -> None:
        await leave()

    task = asyncio.create_task(run())
    for _ in range(3):
        await asyncio.sleep(0)
        task.cancel()
    return isinstance((await asyncio.gather(task, return_exceptions=True))[0], asyncio.CancelledError)


async def by_timeout(leave: Callable[[], Awaitable[object]]) -> bool:
    try:
        async with asyncio.timeout(0):
            await leave()
    except TimeoutError:
        return True
    return False


WAYS = pytest.mark.parametrize("cancelled", [by_scope, by_task, by_timeout])
Cancelled = Callable[[Callable[[], Awaitable[object]]], Awaitable[bool]]


@WAYS
async def test_leaving_ends_everything_although_it_is_cancelled(where: FakeCluster, cancelled: Cancelled) -> None:
    before = asyncio.all_tasks()
    transport = SlowTransport("abc")
    bk = await client_of(where, transport).__aenter__()
    transport.hold("abc")
    future = (await bk.create_ledger(ensemble_size=3)).append_nowait(b"x")
    was_told: list[bool] = []

    async def leave() -> None:
        try:
            await bk.__aexit__(None, None, None)
        finally:
            was_told.append(transport.is_closed and not asyncio.all_tasks() - before - {asyncio.current_task()})

    is_cancelled = await cancelled(leave)

    assert was_told == [True]
    assert is_cancelled or cancelled is by_scope  # a scope cancels what waits unshielded, and nothing does here
    assert isinstance(future.exception(), ClientClosed)


class SilentStore(FakeStore):
    """Never tells which bookies there are."""

    async def bookies(self) -> BookieSets:
        await asyncio.get_running_loop().create_future()
        raise AssertionError


@WAYS
async def test_entering_that_is_cancelled_leaves_nothing_behind(where: FakeCluster, cancelled: Cancelled) -> None:
    before = asyncio.all_tasks()
    transport = SlowTransport("abc")
    bk = client_of(where, transport, SilentStore(where.service))

    assert await cancelled(bk.__aenter__)
    assert transport.is_closed
    assert asyncio.all_tasks() == before


class LostStore(FakeStore):
    """Cannot be asked which bookies there are."""

    async def bookies(self) -> BookieSets:
        raise MetadataStoreError("lost")


async def test_entering_that_fails_says_why_and_leaves_nothing_behind(where: FakeCluster) -> None:
    before = asyncio.all_tasks()
    transport = SlowTransport("abc")
    with pytest.raises(MetadataStoreError, match="lost"):
        async with client_of(where, transport, LostStore(where.service)):
            raise AssertionError

    assert transport.is_closed
    assert asyncio.all_tasks() == before


async def test_what_ends_the_block_comes_out_of_it_unchanged(where: FakeCluster) -> None:
    with pytest.raises(KeyError) as caught:
        async with client_of(where, FakeTransport("abc")):
            raise KeyError("mine")

    assert caught.value.args == ("mine",)
    assert not hasattr(caught.value, "__notes__")


# Background work that fails -----------------------------------------------------------------------------------------


async def fail() -> None:
    raise RuntimeError("a defect")


async def test_background_work_that_fails_closes_the_client_which_says_so(
    where: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    transport = FakeTransport("abc")
    with pytest.raises(UnexpectedCondition, match="background work of the client failed") as caught:  # noqa: PT012 - the block is what is tested
        async with client_of(where, transport) as bk:
            writer = await bk.create_ledger()
            core_of(bk).background.start(fail, "a defect")
            await settled()
            assert transport.is_closed
            with pytest.raises(ClientClosed) as refused:
                await bk.create_ledger()
            with pytest.raises(ClientClosed):
                await writer.append(b"x")

    assert isinstance(caught.value.__cause__, RuntimeError)
    assert refused.value.__cause__ is caught.value.__cause__
    assert "a defect" in caplog.text


async def test_an_error_of_the_block_is_not_hidden_by_one_of_the_background(where: FakeCluster) -> None:
    with pytest.raises(ClientClosed) as caught:  # noqa: PT012 - the block is what is tested
        async with client_of(where, FakeTransport("abc")) as bk:
            core_of(bk).background.start(fail, "a defect")
            await settled()
            await bk.create_ledger()

    assert "a defect" in caught.value.__notes__[0]


class BrokenTransport(FakeTransport):
    """Cannot be closed."""

    async def aclose(self) -> None:
        raise OSError("stuck")


async def test_a_transport_that_cannot_be_closed_does_not_keep_the_client_from_ending(where: FakeCluster) -> None:
    before = asyncio.all_tasks()
    with pytest.raises(UnexpectedCondition) as caught:  # noqa: PT012 - the block is what is tested
        async with client_of(where, BrokenTransport("abc")) as bk:
            core_of(bk).background.start(anyio.sleep_forever, "no end")
            await settled()

    assert isinstance(caught.value.__cause__, OSError)
    assert asyncio.all_tasks() == before


async def test_background_work_that_fails_while_the_client_is_entered_is_the_error_of_entering() -> None:
    @asynccontextmanager
    async def begin(tasks: TaskGroup) -> AsyncIterator[None]:
        tasks.start_soon(fail)
        await anyio.sleep_forever()
        yield

    hosted = Hosted(begin, "a test")
    with pytest.raises(RuntimeError, match="a defect"):
        await hosted.enter()
    assert isinstance(hosted.failure, RuntimeError)


async def test_whoever_cancels_every_task_ends_clients_too_and_leaving_them_still_works(where: FakeCluster) -> None:
    before = asyncio.all_tasks()
    transport = SlowTransport("abc")
    async with client_of(where, transport) as bk:
        for task in asyncio.all_tasks() - before:
            task.cancel()
        await settled()
        assert transport.is_closed
        with pytest.raises(ClientClosed):
            await bk.create_ledger()

    assert asyncio.all_tasks() == before


async def test_a_client_is_entered_once_and_may_be_left_again(where: FakeCluster) -> None:
    bk = client_of(where, FakeTransport("abc"))
    async with bk:
        with pytest.raises(ArgumentError, match="entered once"):
            await bk.__aenter__()
    await bk.__aexit__(None, None, None)
    with pytest.raises(ArgumentError, match="entered once"):
        await bk.__aenter__()


@pytest.mark.rule("API-17")
async def test_nothing_begins_from_the_moment_a_client_is_left(where: FakeCluster) -> None:
    bk = await client_of(where, SlowTransport("abc")).__aenter__()
    refused: list[type[BaseException]] = []

    async def create() -> None:
        try:
            await bk.create_ledger()
        except ClientClosed as error:
            refused.append(type(error))

    leaving = asyncio.create_task(bk.__aexit__(None, None, None))
    creating = asyncio.create_task(create())  # runs right after the first step of leaving
    await asyncio.gather(leaving, creating)
    assert refused == [ClientClosed]
    assert [ledger_id async for ledger_id in where.bk.list_ledgers()] == []

"""Registers and elections: in memory and in ZooKeeper, and in a simulated world that loses answers and sessions."""

from __future__ import annotations

import asyncio
from contextlib import aclosing, suppress
from typing import Any

import pytest

from bkclient import BookKeeper
from bkclient.coordination import LeaderElection, RegisterValue, VersionedRegister
from bkclient.errors import ArgumentError, ClientClosed, MetadataOutcomeUnknown, MetadataVersionConflict
from bkclient.metadata.memory import MemoryMetadataService
from simbookie.world.metadata_service import MetadataFault
from tests.bkclient.fakes import FakeStore, FakeTransport, fake_cluster, in_virtual_time
from tests.bkclient.metadata.conftest import OpenSession, open_session
from tests.bkclient.virtual_cluster import VirtualCluster, run_in_cluster
from tests.cancellation import Cancel, cancel_everywhere

__all__ = ["open_session"]  # a fixture: in memory, and in an embedded ZooKeeper


async def client_of(session: OpenSession) -> BookKeeper:
    return await BookKeeper(await session(), FakeTransport("")).__aenter__()


async def test_a_register_changes_by_compare_and_set(open_session: OpenSession) -> None:
    one, two = await client_of(open_session), await client_of(open_session)
    mine, yours = VersionedRegister(one, "position"), VersionedRegister(two, "position")
    assert await mine.read() is None
    assert await mine.create(b"1") == RegisterValue(b"1", 0)
    with pytest.raises(MetadataVersionConflict, match="exists"):
        await yours.create(b"2")
    assert await yours.write(b"2", 0) == RegisterValue(b"2", 1)
    with pytest.raises(MetadataVersionConflict, match="another version than 0"):
        await mine.write(b"3", 0)
    assert await mine.read() == RegisterValue(b"2", 1)
    with pytest.raises(MetadataVersionConflict):
        await mine.delete(0)
    await mine.delete(1)
    await mine.delete()
    assert await yours.read() is None
    await one.aclose()
    await two.aclose()


async def test_changes_of_several_programs_are_all_made(open_session: OpenSession) -> None:
    clients = [await client_of(open_session) for _ in range(3)]

    async def count(client: BookKeeper) -> None:
        for _ in range(5):
            await VersionedRegister(client, "count").change(lambda data: b"%d" % (int(data or b"0") + 1))

    await asyncio.gather(*map(count, clients))
    value = await VersionedRegister(clients[0], "count").change(lambda data: data or b"")
    assert value == RegisterValue(b"15", 14), "a change to the same writes nothing"
    for client in clients:
        await client.aclose()


async def test_a_watch_tells_the_value_and_its_changes(open_session: OpenSession) -> None:
    client = await client_of(open_session)
    register = VersionedRegister(client, "watched")
    async with aclosing(register.watch()) as watch:
        assert await anext(watch) is None
        await register.create(b"1")
        assert await anext(watch) == RegisterValue(b"1", 0)
        await register.write(b"2", 0)
        assert await anext(watch) == RegisterValue(b"2", 1)
        await register.delete()
        assert await anext(watch) is None
    await client.aclose()


@pytest.mark.parametrize("name", ["", "a/b", "-a", "a b", "x" * 201, 7, "ä"])
async def test_a_name_that_cannot_be_part_of_a_path_is_refused(name: Any) -> None:
    async with BookKeeper(FakeStore(MemoryMetadataService()), FakeTransport("")) as client:
        with pytest.raises(ArgumentError):
            VersionedRegister(client, name)


async def test_values_beyond_what_a_node_holds_are_refused_before_anything_is_sent(open_session: OpenSession) -> None:
    client = await client_of(open_session)
    register = VersionedRegister(client, "r" * 200)
    with pytest.raises(ArgumentError, match="at most 1000000 bytes, got 1000001"):
        await register.create(bytes(1_000_001))
    for data, version in (("text", 0), (b"", -1), (b"", True), (b"", "0")):
        with pytest.raises(ArgumentError):
            await register.write(data, version)  # type: ignore[arg-type]
    assert await register.read() is None
    await register.create(bytes(1_000_000))
    with pytest.raises(ArgumentError, match="1000 bytes"):
        LeaderElection(client, "e", "x" * 1001)
    await client.aclose()
    with pytest.raises(ClientClosed):
        VersionedRegister(client, "late")


async def test_candidates_are_elected_in_turn_and_terms_grow(open_session: OpenSession) -> None:
    sessions = [await open_session() for _ in range(3)]
    clients = [await BookKeeper(session, FakeTransport("")).__aenter__() for session in sessions]
    first, second, third = (LeaderElection(client, "e", f"c{n}") for n, client in enumerate(clients))
    assert await first.leader() is None
    terms = [await first.until_elected()]
    assert await first.term() == terms[0]
    waiting = asyncio.create_task(second.until_elected())
    deposed = asyncio.create_task(first.until_deposed())
    while len(await clients[0].node_tree().children("elections/e")) < 2:
        pass
    assert await second.term() is None
    assert not waiting.done()
    await first.resign()
    terms.append(await waiting)
    await deposed
    assert await third.leader() == "c1"
    await clients[1].aclose()
    await sessions[1].aclose()  # its session ends, and its candidate with it
    async with third:
        terms.append(await third.term() or -1)
        assert await first.leader() == "c2"
    assert await first.leader() is None
    assert terms == sorted(set(terms))
    await clients[0].aclose()
    await clients[2].aclose()


def test_a_lost_answer_is_an_unknown_outcome_and_a_change_is_made_all_the_same() -> None:
    async def program(cluster: VirtualCluster) -> None:
        metadata = cluster.world.metadata
        async with cluster.client() as client:
            register = VersionedRegister(client, "r")
            await register.create(b"0")
            metadata.intercept(lambda call: call.operation == "tree_write", MetadataFault.ANSWER_LOST, limit=1)
            with pytest.raises(MetadataOutcomeUnknown):
                await register.write(b"1", 0)
            assert await register.read() == RegisterValue(b"1", 1)
            for fault in (MetadataFault.ANSWER_LOST, MetadataFault.CALL_LOST):
                metadata.intercept(lambda call: call.operation == "tree_write", fault, limit=1)
                data = fault.name.encode()
                assert (await register.change(lambda _, data=data: data)).data == data  # type: ignore[misc]
            assert await register.read() == RegisterValue(b"CALL_LOST", 3), "each was made once"

    run_in_cluster(program, bookies=0)


def test_a_leader_that_loses_its_session_is_deposed_and_may_stand_again() -> None:
    async def program(cluster: VirtualCluster) -> None:
        async with cluster.client("one") as one, cluster.client("two") as two:
            first, second = LeaderElection(one, "e", "first"), LeaderElection(two, "e", "second")
            term = await first.until_elected()
            waiting = asyncio.create_task(second.until_elected())
            await asyncio.sleep(1)
            assert cluster.world.metadata.lose_sessions("one") == 1
            await first.until_deposed()
            assert await waiting > term
            again = asyncio.create_task(first.until_elected())
            await asyncio.sleep(1)
            await second.resign()
            assert await again > term
            with suppress(asyncio.CancelledError):
                again.cancel()

    run_in_cluster(program, bookies=0)


@pytest.mark.parametrize("is_contended", [False, True])
def test_a_candidate_whose_entering_is_cancelled_stands_no_more(is_contended: bool) -> None:
    async def story(cancel: Cancel) -> None:
        async with fake_cluster() as where, where.another_client() as two:
            first, second = LeaderElection(where.bk, "e", "first"), LeaderElection(two, "e", "second")
            if is_contended:
                await second.until_elected()
                asyncio.get_running_loop().call_later(
                    1, lambda: resigning.append(asyncio.ensure_future(second.resign()))
                )
            resigning: list[asyncio.Future[None]] = []
            entered = await cancel(first.__aenter__())
            await asyncio.sleep(2)
            await asyncio.gather(*resigning)
            assert await second.leader() == (None if entered is None else "first")

    assert cancel_everywhere(story, at_least=4) >= 4


def test_leaving_an_election_resigns_although_it_is_cancelled() -> None:
    async def story(cancel: Cancel) -> None:
        async with fake_cluster() as where:
            election = await LeaderElection(where.bk, "e", "me").__aenter__()
            await cancel(election.__aexit__(None, None, None))
            await asyncio.sleep(0.1)
            assert await election.leader() is None

    assert cancel_everywhere(story, at_least=2) >= 2


@in_virtual_time
async def test_who_waits_for_a_change_is_told_at_once_that_the_client_was_closed() -> None:
    async with fake_cluster() as where:
        client = await where.another_client().__aenter__()
        register, election = VersionedRegister(client, "r"), LeaderElection(client, "e", "me")
        values = register.watch()
        assert await anext(values) is None
        await election.until_elected()
        waiting = [asyncio.ensure_future(call) for call in (anext(values), election.until_deposed())]
        await asyncio.sleep(1)
        began_at = asyncio.get_running_loop().time()
        await client.aclose()  # which leaves its session open, as it is not its own
        for future in waiting:
            with pytest.raises(ClientClosed):
                await future
        assert asyncio.get_running_loop().time() - began_at < 1
        with pytest.raises(ClientClosed):
            await register.read()
        assert where.service.snapshot().node_watches == {}


@in_virtual_time
async def test_a_register_is_looked_at_now_and_then_in_case_a_watch_was_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    async with fake_cluster() as where:
        monkeypatch.setattr(where.service.tree, "watch", lambda _path, _watch: lambda: None)
        values = VersionedRegister(where.bk, "r").watch()
        assert await anext(values) is None
        waiting = asyncio.ensure_future(anext(values))
        await asyncio.sleep(1)
        await VersionedRegister(where.bk, "r").create(b"x")
        assert (await waiting) == RegisterValue(b"x", 0)
        await values.aclose()

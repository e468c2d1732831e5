"""Connecting puts a client together from its configuration, and hands on what the application has of its own."""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from random import Random
from typing import Any
from unittest.mock import Mock

import pytest

import bkclient
from bkclient import BookKeeper, ClientConfig, ConnectionSettings, MetadataSettings
from bkclient.errors import ArgumentError, BookKeeperError
from bkclient.metadata.base import BookieAddress
from bkclient.metadata.memory import MemoryMetadataService, MemoryMetadataStore
from bkclient.observability import stats
from bkclient.observability.memory_stats import MemoryStats
from bkclient.placement import RandomPlacement
from bkclient.placement.locations import FixedLocations
from bkclient.repair.admin import core_of
from tests.bkclient.transport.scripted_bookie import ScriptedBookie, running

_NAMES = itertools.count(1)


@asynccontextmanager
async def cluster_of_one(bookie_id: str = "b") -> AsyncIterator[tuple[str, ScriptedBookie, MemoryMetadataStore]]:
    """A metadata service that knows one scripted bookie."""
    name = f"connecting-{next(_NAMES)}"
    async with running() as bookie, MemoryMetadataService.named(name).session(rng=Random(1)) as store:
        await store.register_bookie(bookie_id, bookie.address)
        yield f"mem://{name}", bookie, store
    MemoryMetadataService.forget(name)


async def append_one(bk: BookKeeper) -> None:
    writer = await bk.create_ledger(ensemble_size=1, write_quorum_size=1, ack_quorum_size=1)
    await writer.append(b"x")
    await writer.close()


async def test_the_metadata_uri_may_come_from_the_configuration() -> None:
    async with cluster_of_one() as (uri, bookie, _):
        async with bkclient.connect(config=ClientConfig(metadata=MetadataSettings(uri=uri)), rng=Random(1)) as bk:
            await append_one(bk)
        assert len(bookie.received) == 1


async def test_the_uri_that_is_given_wins_over_that_of_the_configuration() -> None:
    async with cluster_of_one() as (uri, bookie, _):
        async with bkclient.connect(
            uri, config=ClientConfig(metadata=MetadataSettings(uri="mem://elsewhere")), rng=Random(1)
        ) as bk:
            await append_one(bk)
        assert len(bookie.received) == 1


async def test_without_any_uri_connecting_is_refused() -> None:
    with pytest.raises(ArgumentError, match=r"set metadata\.uri in the configuration"):
        await bkclient.connect().__aenter__()


@pytest.mark.parametrize("version", [2, 3])
async def test_the_configuration_reaches_the_connections(version: int) -> None:
    async with cluster_of_one() as (uri, bookie, _):
        config = ClientConfig(connections=ConnectionSettings(protocol_version=version, channels_per_bookie=2))
        async with bkclient.connect(uri, config=config, rng=Random(1)) as bk:
            await append_one(bk)
            await append_one(bk)
        assert {received.protocol_version for received in bookie.received} == {version}
        assert len(bookie.connections) == 2


async def test_ids_that_are_addresses_are_not_asked_about(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    async def refuse(self: Any, bookie_id: str) -> BookieAddress:
        asked.append(bookie_id)
        raise AssertionError("the registry was asked")

    name = f"connecting-{next(_NAMES)}"
    async with running() as bookie, MemoryMetadataService.named(name).session(rng=Random(1)) as store:
        await store.register_bookie(f"127.0.0.1:{bookie.address.port}", bookie.address)
        monkeypatch.setattr(MemoryMetadataStore, "bookie_address", refuse)
        config = ClientConfig(connections=ConnectionSettings(resolve_bookie_ids=False))
        async with bkclient.connect(f"mem://{name}", config=config, rng=Random(1)) as bk:
            await append_one(bk)
        assert asked == []
    MemoryMetadataService.forget(name)


async def test_what_the_application_has_of_its_own_is_used() -> None:
    async with cluster_of_one() as (uri, _, _):
        asked: list[str] = []
        ours = MemoryStats()
        policy = RandomPlacement(Random(3))

        def features(name: str) -> bool:
            asked.append(name)
            return False

        async with bkclient.connect(uri, rng=Random(1), stats=ours, placement=policy, features=features) as bk:
            await append_one(bk)
            assert core_of(bk).watcher.policy is policy
            assert core_of(bk).features("anything") is False
        assert "anything" in asked
        assert ours.operations_of(stats.CREATE).succeeded.count == 1
        assert ours.operations_of(stats.REQUESTS["ADD_ENTRY"][0], "b").succeeded.count == 1
        assert ours.operations_of(stats.CONNECT, "b").succeeded.count == 1
        assert ours.level_of(stats.ACTIVE_CHANNELS, "b") == 0  # closed with the client


async def test_locations_an_observer_and_a_tracer_are_handed_on() -> None:
    async with cluster_of_one() as (uri, _, _):
        locations = FixedLocations({"b": "/here/rack"})
        observer, tracer = Mock(), Mock()
        tracer.wants_appends = False
        tracer.operation.return_value = nullcontext(Mock())
        async with bkclient.connect(uri, rng=Random(1), locations=locations, observer=observer, tracer=tracer) as bk:
            await append_one(bk)
            guarded = core_of(bk).observer
            assert guarded is not None
            guarded.recovery_started(Mock())
            assert bk._placement._locations is locations
        assert observer.recovery_started.call_count == 1
        assert [call.args[0] for call in tracer.operation.call_args_list] == [stats.CREATE, stats.CLOSE]


class OnlyClientStats:
    """Hears of operations, and has no methods for bookies."""

    def __init__(self) -> None:
        self.operations: list[str] = []

    def now(self) -> float:
        return time.monotonic()

    def operation(self, name: str, seconds: float, code: int) -> None:
        self.operations.append(name)

    def event(self, name: str, amount: int = 1) -> None: ...

    def level(self, name: str, change: int) -> None: ...


async def test_statistics_that_are_not_about_bookies_do_not_hear_of_requests() -> None:
    async with cluster_of_one() as (uri, _, _):
        ours = OnlyClientStats()
        async with bkclient.connect(uri, rng=Random(1), stats=ours) as bk:
            await append_one(bk)
        assert stats.CREATE in ours.operations
        assert all("per_channel" not in name for name in ours.operations)


async def test_failed_attempts_to_connect_are_counted() -> None:
    async with cluster_of_one() as (uri, bookie, _):
        await bookie.stop()
        ours = MemoryStats()
        async with bkclient.connect(uri, rng=Random(1), stats=ours) as bk:
            with pytest.raises(BookKeeperError):
                await append_one(bk)
        assert ours.total_of(stats.FAILED_CONNECTIONS, "b") >= 1
        assert ours.operations_of(stats.CONNECT, "b").failed.count >= 1


async def test_coming_and_going_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="bkclient.client")
    async with cluster_of_one() as (uri, _, _):
        async with bkclient.connect(uri, rng=Random(1)):
            assert caplog.messages == [f"connected to the metadata service {uri}"]
        assert [record.event for record in caplog.records] == ["connected", "closed"]  # type: ignore[attr-defined]

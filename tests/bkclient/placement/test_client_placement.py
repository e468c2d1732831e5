"""Placement as a whole client does it: by its configuration, or by a plug-in, good or bad."""

from __future__ import annotations

import asyncio
import random
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import anyio
import pytest

from bkclient import BookKeeper, ClientConfig, PlacementSettings, TimeoutSettings, WritingSettings
from bkclient.errors import (
    ArgumentError,
    Code,
    LedgerRecoveryFailed,
    NotEnoughBookies,
    QuorumTimeout,
    UnexpectedCondition,
)
from bkclient.metadata.base import BookieAddress
from bkclient.metadata.memory import MemoryMetadataService, MemoryMetadataStore
from bkclient.observability.stats import FAULT_DOMAINS_MISSED
from bkclient.placement import (
    FixedLocations,
    LedgerShape,
    LocationListeners,
    NetworkLocations,
    RackAwarePlacement,
    RandomPlacement,
    RegionAwarePlacement,
    ZoneAwarePlacement,
)
from bkclient.placement.client_side import RESOLVE_RETRY_S, ClientPlacement
from tests.bkclient.fakes import (
    FakeCluster,
    FakeStore,
    FakeTransport,
    fake_cluster,
    in_virtual_time,
    payloads_of,
    writer_of,
)
from tests.bkclient.placement.test_watcher import Events, Scripted
from tests.settling import settled

RACKS = FixedLocations({"a": "/r1", "b": "/r1", "c": "/r1", "d": "/r2", "e": "/r2"})


@asynccontextmanager
async def cluster(
    bookies: str, locations: NetworkLocations | None = None, **options: Any
) -> AsyncIterator[tuple[BookKeeper, MemoryMetadataStore]]:
    """A client, and the session by which the bookies are registered."""
    service = MemoryMetadataService()
    async with service.session(rng=random.Random(3)) as registrar:
        for bookie_id in bookies:
            await registrar.register_bookie(bookie_id, BookieAddress("localhost", 3181))
        transport = FakeTransport("abcdefghxyz")
        async with BookKeeper(
            FakeStore(service),
            transport,
            config=ClientConfig().with_changes(**options),
            rng=random.Random(4),
            locations=locations,
        ) as bk:
            yield bk, registrar


async def ensemble_of(bk: BookKeeper, **sizes: Any) -> tuple[str, ...]:
    sizes = sizes or {"ensemble_size": 2, "write_quorum_size": 2, "ack_quorum_size": 2}
    return (await bk.create_ledger(**sizes)).metadata.last_fragment.ensemble


# The configuration ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("random", RandomPlacement),
        ("rack-aware", RackAwarePlacement),
        ("region-aware", RegionAwarePlacement),
        ("zone-aware", ZoneAwarePlacement),
    ],
)
def test_the_configuration_names_the_policy(name: str, kind: type) -> None:
    placement = ClientPlacement(ClientConfig(placement=PlacementSettings(policy=name)), random.Random(1))
    assert type(placement.watcher.policy) is kind


@pytest.mark.rule("PL-11")
async def test_ledgers_are_spread_over_the_racks_that_the_client_was_told() -> None:
    async with cluster("abcde", RACKS) as (bk, _):
        for _ in range(20):
            ensemble = await ensemble_of(bk)
            assert len({RACKS.location_of(bookie_id) for bookie_id in ensemble}) == 2


@pytest.mark.rule("PL-12")
@pytest.mark.behaviour("T-225")
async def test_enforced_racks_refuse_a_ledger_that_cannot_span_them() -> None:
    async with cluster("abc", RACKS, placement={"enforce_min_racks_per_write_quorum": True}) as (bk, registrar):
        with pytest.raises(NotEnoughBookies):
            await ensemble_of(bk)
        await registrar.register_bookie("d", BookieAddress("localhost", 3181))
        await settled()
        assert "d" in await ensemble_of(bk)


def test_locations_beside_a_policy_of_the_application_are_a_wrong_argument() -> None:
    with pytest.raises(ArgumentError, match="give them to your own policy"):
        ClientPlacement(ClientConfig(), random.Random(1), policy=Scripted(), locations=RACKS)


@pytest.mark.rule("PL-19")
@pytest.mark.rule("PL-22")
@pytest.mark.parametrize(
    ("options", "sizes"),
    [
        ({"policy": "region-aware", "regions_to_write": ("r1", "r2")}, (3, 3, 1)),
        ({"policy": "zone-aware"}, (4, 3, 2)),
    ],
)
async def test_sizes_that_a_policy_refuses_are_wrong_arguments_before_anything_is_stored(
    options: dict[str, Any], sizes: tuple[int, int, int]
) -> None:
    async with cluster("abcde", RACKS, placement=options) as (bk, _):
        with pytest.raises(ArgumentError):
            await bk.create_ledger(ensemble_size=sizes[0], write_quorum_size=sizes[1], ack_quorum_size=sizes[2])
        assert [ledger_id async for ledger_id in bk.list_ledgers()] == []


@pytest.mark.rule("PL-18")
async def test_features_of_the_client_reach_the_region_policy() -> None:
    config = ClientConfig(placement=PlacementSettings(policy="region-aware"))
    placement = ClientPlacement(
        config, random.Random(1), locations=RACKS, features=lambda name: name == "r2.disallow_bookie_placement"
    )
    async with anyio.create_task_group() as tasks:
        service = MemoryMetadataService()
        async with service.session(rng=random.Random(3)) as registrar:
            for bookie_id in "abcde":
                await registrar.register_bookie(bookie_id, BookieAddress("localhost", 3181))
            await placement.start(registrar, AsyncMock(), tasks)
        assert set(placement.watcher.new_ensemble(LedgerShape(3, 2, 2)) or ()) == set("abc")


@pytest.mark.rule("PL-14")
@in_virtual_time
async def test_a_bookie_that_left_a_moment_ago_is_chosen_for_want_of_others() -> None:
    async with cluster("ab", placement={"topology_stabilize_period_s": 10}) as (bk, registrar):
        await registrar.unregister_bookie("b")
        await settled()
        assert set(await ensemble_of(bk)) == set("ab")
        await anyio.sleep(11)
        with pytest.raises(NotEnoughBookies):
            await ensemble_of(bk)


# Locations that have to be looked up ----------------------------------------------------------------------------------


class SlowLocations(LocationListeners):
    """Every bookie is in a rack of its own, once it was looked up, which fails while it is out of order."""

    def __init__(self) -> None:
        super().__init__()
        self.known: dict[str, str] = {}
        self.works = True
        self.calls: list[float] = []

    def location_of(self, bookie_id: str) -> str | None:
        return self.known.get(bookie_id)

    async def resolve(self, bookies: Any) -> bool:
        self.calls.append(asyncio.get_running_loop().time())
        await anyio.sleep(1)
        if self.works:
            self.known.update((bookie_id, f"/rack-of-{bookie_id}") for bookie_id in bookies)
            self.changed()
        return self.works


@pytest.mark.rule("PL-10")
@in_virtual_time
async def test_the_client_waits_for_locations_when_it_starts_and_looks_up_new_bookies_as_they_come() -> None:
    where = SlowLocations()
    async with cluster("ab", where, placement={"enforce_min_racks_per_write_quorum": True}) as (bk, registrar):
        assert set(await ensemble_of(bk)) == set("ab")
        await registrar.register_bookie("c", BookieAddress("localhost", 3181))
        await anyio.sleep(2)
        assert set(await ensemble_of(bk, ensemble_size=3, write_quorum_size=2, ack_quorum_size=2)) == set("abc")
        calls = len(where.calls)
        await anyio.sleep(1000)
        assert len(where.calls) == calls


@pytest.mark.rule("PL-10")
@in_virtual_time
async def test_what_could_not_be_looked_up_is_tried_again() -> None:
    where = SlowLocations()
    where.works = False
    async with cluster("ab", where, placement={"enforce_min_racks_per_write_quorum": True}) as (bk, _):
        with pytest.raises(NotEnoughBookies):
            await ensemble_of(bk)
        where.works = True
        await anyio.sleep(RESOLVE_RETRY_S + 3)
        assert set(await ensemble_of(bk)) == set("ab")


async def test_a_script_of_the_configuration_tells_the_racks(tmp_path: Path) -> None:
    script = tmp_path / "racks"
    script.write_text('#!/bin/sh\nfor host in "$@"; do case $host in a|b) echo /r1;; *) echo /r2;; esac; done\n')
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    async with cluster("abx", placement={"location_script": str(script)}) as (bk, _):
        for _ in range(10):
            assert "x" in await ensemble_of(bk)


# Fault domains of acknowledgements ------------------------------------------------------------------------------------

ENFORCED = ClientConfig(
    writing=WritingSettings(enforce_min_fault_domains=True), timeouts=TimeoutSettings(add_quorum_s=30)
)


@pytest.mark.rule("W-19")
@pytest.mark.rule("PL-15")
@pytest.mark.behaviour("T-50")
@pytest.mark.parametrize("other_rack", ["answers", "stays silent"])
def test_an_append_waits_for_another_rack_or_fails_by_the_time_for_its_quorum(other_rack: str) -> None:
    @in_virtual_time
    async def run() -> None:
        stats = Events()
        failed: list[int] = []
        stats.now = lambda: 0.0  # type: ignore[method-assign]
        stats.level = lambda *_: None  # type: ignore[method-assign]
        stats.operation = lambda name, seconds, code: failed.append(code)  # type: ignore[method-assign]
        policy = RackAwarePlacement(random.Random(1), FixedLocations({"a": "/r1", "b": "/r1", "c": "/r2"}))
        async with fake_cluster("abc", config=ENFORCED, stats=stats, placement=policy) as where:
            writer = await writer_of(where)
            where.transport.hold("c")
            appended = writer.append_nowait(b"x")
            await anyio.sleep(10)
            assert not appended.done()
            assert stats.seen.count(FAULT_DOMAINS_MISSED) == 1
            if other_rack == "answers":
                where.transport.release("c")
                assert await appended == 0
                await writer.close()
                assert Code.QUORUM_TIMEOUT not in failed
            else:
                await anyio.sleep(40)
                with pytest.raises(QuorumTimeout):
                    await appended
                assert Code.QUORUM_TIMEOUT in failed
                where.transport.release("c")

    run()


# Plug-ins that fail ---------------------------------------------------------------------------------------------------


class Turning(Scripted):
    """Chooses well for new ledgers, and then offers what a test says."""

    def __init__(self, offer: Any) -> None:
        super().__init__(offer)
        self.shapes: list[LedgerShape] = []

    def update(self, bookies: object) -> None:
        """Nothing to learn."""

    def new_ensemble(self, shape: LedgerShape, excluded: frozenset[str]) -> tuple[str, ...]:
        self.shapes.append(shape)
        return tuple("abc")

    def replace(self, shape: LedgerShape, ensemble: tuple[str, ...], position: int, excluded: frozenset[str]) -> Any:
        self.shapes.append(shape)
        return super().replace(shape, ensemble, position, excluded)


@pytest.mark.behaviour("T-216")
async def test_custom_metadata_reaches_the_policy_for_new_ensembles_and_replacements() -> None:
    policy = Turning("d")
    async with fake_cluster("abcd", placement=policy) as where:
        writer = await where.bk.create_ledger(
            ensemble_size=3, write_quorum_size=3, ack_quorum_size=2, custom_metadata={"app": b"x"}
        )
        where.transport.bookies["a"].code = Code.WRITE_ON_READ_ONLY_BOOKIE
        await writer.append(b"x")
        await settled()
        assert writer.metadata.last_fragment.ensemble == tuple("dbc")
        await writer.close()
    assert [dict(shape.custom_metadata) for shape in policy.shapes] == [{"app": b"x"}] * len(policy.shapes)
    assert len(policy.shapes) >= 2


@pytest.mark.rule("PL-4")
@pytest.mark.behaviour("T-216")
@pytest.mark.parametrize(
    ("offer", "error"),
    [
        (RuntimeError("out of order"), NotEnoughBookies),
        ("b", UnexpectedCondition),
        ("a", UnexpectedCondition),
        ("x", UnexpectedCondition),
    ],
)
async def test_a_broken_replacement_fails_its_writer_and_nothing_else(offer: Any, error: type[Exception]) -> None:
    async with fake_cluster("abcd", placement=Turning(offer)) as where:
        writer, other = await writer_of(where), await writer_of(where)
        where.transport.bookies["a"].code = Code.WRITE_ON_READ_ONLY_BOOKIE
        where.transport.bookies["b"].code = Code.WRITE_ON_READ_ONLY_BOOKIE
        with pytest.raises(error) as caught:
            await writer.append(b"x")
        assert "placement policy Turning" in str(caught.value)
        where.transport.bookies["a"].code = where.transport.bookies["b"].code = None
        assert await other.append(b"y") == 0
        await other.close()
        assert await payloads_of(where, other.ledger_id) == [b"y"]


@pytest.mark.behaviour("T-216")
@pytest.mark.parametrize("offer", [RuntimeError("out of order"), "b", "x"])
async def test_a_broken_replacement_fails_a_recovery_that_needs_it_and_the_next_one_succeeds(offer: Any) -> None:
    async with fake_cluster("abcd", placement=Turning(offer)) as where:
        writer = await writer_of(where)
        await writer.append(b"x")
        await writer.append(b"y")
        await _recover_in_vain(where, writer.ledger_id)
        assert await payloads_of(where, writer.ledger_id) == [b"x", b"y"]


async def _recover_in_vain(where: FakeCluster, ledger_id: int) -> None:
    """Bookies that are read from and refuse what is written back."""
    bookies = where.transport.bookies
    answers = {bookie_id: bookie.answer for bookie_id, bookie in bookies.items()}

    def refusing(bookie_id: str) -> Any:
        def answer(request: Any) -> Any:
            if type(request).__name__ == "AddRequest":
                return Code.WRITE_ON_READ_ONLY_BOOKIE, None
            return answers[bookie_id](request)

        return answer

    for bookie_id in "ab":
        bookies[bookie_id].answer = refusing(bookie_id)  # type: ignore[method-assign]
    with pytest.raises(LedgerRecoveryFailed):
        await where.bk.open_ledger(ledger_id, password=b"secret", recover=True)
    for bookie_id in "ab":
        bookies[bookie_id].answer = answers[bookie_id]  # type: ignore[method-assign]

"""When the placement policy is asked again in which order to read: whenever its answer may have become another one."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from random import Random

import pytest

from bkclient import LedgerReader
from bkclient.ledger import BookieId
from bkclient.metadata.base import BookieAddress, BookieSets
from bkclient.placement.base import BookieHealth, SteadyOrderPolicy
from bkclient.placement.rack_aware import RackAwarePlacement
from bkclient.placement.random_choice import RandomPlacement
from bkclient.placement.read_order import ReadOrder
from bkclient.repair.admin import core_of
from tests.bkclient._client.reading.ledgers import reader_of
from tests.bkclient._client.reading.test_late_reads import asked, order_of
from tests.bkclient.fakes import FakeCluster, fake_cluster, in_virtual_time
from tests.bkclient.inside import reads_of
from tests.settling import settled


class Asked:
    """Counts how often replicas were put into order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        original = ReadOrder.by_health

        def by_health(order: ReadOrder, write_set: Sequence[BookieId], health: BookieHealth) -> tuple[BookieId, ...]:
            self.count += 1
            return original(order, write_set, health)

        monkeypatch.setattr(ReadOrder, "by_health", by_health)


async def read_all(where: FakeCluster, reader: LedgerReader) -> list[str]:
    """The bookies that were read to get the whole ledger."""
    where.sent.clear()
    async for _ in reader:
        pass
    return asked(where)


@pytest.mark.rule("RO-3")
@in_virtual_time
async def test_an_order_is_remembered_until_a_bookie_comes_goes_fails_or_is_slow() -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        orders = Asked(monkeypatch)
        async with fake_cluster("abc", placement=RackAwarePlacement(Random(1))) as where:
            reader = await reader_of(where, 30)
            striped = await read_all(where, reader)
            assert orders.count == 3  # one for each place in the ensemble
            assert await read_all(where, reader) == striped
            assert orders.count == 3

            first, second = order_of(reader, 0)[:2]
            reads_of(reader).health.on_failed(second, 4)
            assert await read_all(where, reader) == striped
            assert orders.count == 33  # what failed may matter, so nothing is remembered

            reads_of(reader).health.on_overtaken(first)
            assert first not in await read_all(where, reader)


@pytest.mark.rule("RO-3")
@in_virtual_time
async def test_a_bookie_that_leaves_is_asked_last_from_then_on_and_first_again_when_it_is_back() -> None:
    async with fake_cluster("abc", placement=RackAwarePlacement(Random(1))) as where:
        reader = await reader_of(where, 9)
        striped = await read_all(where, reader)
        first = order_of(reader, 0)[0]
        registrar = where.service.session(rng=Random(9))
        await registrar.register_bookie("d", BookieAddress("localhost", 1))
        await settled()
        assert await read_all(where, reader) == striped

        watcher = core_of(where.bk).watcher
        watcher.update(BookieSets(tuple(sorted({"a", "b", "c"} - {first}))))
        assert first not in await read_all(where, reader)
        watcher.update(BookieSets(("a", "b", "c")))
        assert await read_all(where, reader) == striped
        await registrar.aclose()


@pytest.mark.rule("RO-6")
@in_virtual_time
async def test_an_order_that_was_changed_by_a_slow_bookie_is_the_striped_one_again_after_a_while() -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        orders = Asked(monkeypatch)
        async with fake_cluster("abc", placement=RackAwarePlacement(Random(1))) as where:
            reader = await reader_of(where, 30)
            striped = await read_all(where, reader)
            reads_of(reader).health.on_overtaken(order_of(reader, 0)[0])
            assert await read_all(where, reader) != striped
            await asyncio.sleep(61)
            orders.count = 0
            assert await read_all(where, reader) == striped
            assert orders.count == 3


@pytest.mark.rule("RO-1")
def test_an_order_by_load_or_by_chance_or_of_somebody_else_is_not_remembered() -> None:
    class Derived(RackAwarePlacement):
        def read_order(self, write_set: Sequence[BookieId], health: BookieHealth) -> tuple[BookieId, ...]:
            return tuple(reversed(write_set))

    assert RackAwarePlacement(Random(1)).has_steady_read_order
    assert not RackAwarePlacement(Random(1), reorder_threshold=1).has_steady_read_order
    assert not RackAwarePlacement(Random(1), reorder_randomly=True).has_steady_read_order
    assert not Derived(Random(1)).has_steady_read_order
    assert not isinstance(RandomPlacement(Random(1)), SteadyOrderPolicy)

from __future__ import annotations

import asyncio

import pytest

from bkclient.errors import (
    ClientClosed,
    MetadataOutcomeUnknown,
    MetadataStoreError,
)
from bkclient.ledger import LedgerMetadata, Versioned
from bkclient.metadata.base import BookieSets, MetadataStore
from bkclient.metadata.memory import MemoryMetadataStore
from simbookie.world.metadata import SimulatedMetadataStore
from simbookie.world.metadata_service import MetadataFault
from tests.simbookie.world.metadata_bench import ADDRESS, LEDGER, MOVED, Bench, cut, outcome


@pytest.mark.parametrize("direction", ["there", "back"])
def test_without_a_connection_calls_wait_and_then_fail_for_certain(direction: str) -> None:
    async def story(bench: Bench) -> None:
        await bench.store.create_ledger(LEDGER)
        cut(bench, direction)
        waiting = asyncio.ensure_future(bench.store.read_ledger(7))
        started = bench.loop.time()
        assert await outcome(bench.store.write_ledger(MOVED, 0)) is MetadataStoreError
        assert bench.loop.time() - started == pytest.approx(10)
        assert await outcome(waiting) is MetadataStoreError  # type: ignore[arg-type]
        assert bench.truth.version == 0, "certain: it was never sent"
        later = asyncio.ensure_future(bench.store.write_ledger(MOVED, 0))
        await asyncio.sleep(5)
        bench.world.network.heal()
        assert (await later).version == 1
        assert bench.loop.time() < started + 16

    Bench().play(story)


@pytest.mark.parametrize(("direction", "version"), [("there", 0), ("back", 1)])
def test_a_link_that_is_cut_with_a_call_under_way_leaves_its_outcome_unknown(direction: str, version: int) -> None:
    async def story(bench: Bench) -> None:
        await bench.store.create_ledger(LEDGER)
        writing = asyncio.ensure_future(bench.store.write_ledger(MOVED, 0))
        await asyncio.sleep(0)
        cut(bench, direction)
        assert await outcome(writing) is MetadataOutcomeUnknown  # type: ignore[arg-type]
        assert bench.truth.version == version

    Bench().play(story)


def test_a_service_that_is_down_keeps_everybody_waiting_and_forgets_nothing() -> None:
    async def story(bench: Bench) -> None:
        await bench.store.create_ledger(LEDGER)
        await bench.other.register_bookie("b0", ADDRESS)
        bench.service.stop()
        assert await outcome(bench.store.read_ledger(7)) is MetadataStoreError
        reading = asyncio.ensure_future(bench.store.read_ledger(7))
        await asyncio.sleep(5)
        bench.service.start()
        assert (await reading).version == 0
        assert await bench.store.bookies() == BookieSets(("b0",))

    Bench().play(story)


def test_a_service_that_goes_down_with_a_call_under_way_leaves_its_outcome_unknown() -> None:
    async def story(bench: Bench) -> None:
        await bench.store.create_ledger(LEDGER)
        writing = asyncio.ensure_future(bench.store.write_ledger(MOVED, 0))
        await asyncio.sleep(0)
        bench.service.stop()
        assert await outcome(writing) is MetadataOutcomeUnknown  # type: ignore[arg-type]
        assert bench.loop.time() < 1
        assert bench.truth.version == 0

    Bench().play(story)


def test_a_service_that_goes_down_before_its_answer_has_arrived_leaves_the_outcome_unknown() -> None:
    async def story(bench: Bench) -> None:
        await bench.store.create_ledger(LEDGER)
        writing = asyncio.ensure_future(bench.store.write_ledger(MOVED, 0))
        for _ in range(100):
            await asyncio.sleep(0.0001)
            if bench.truth.version == 1:
                bench.service.stop()
                break
        assert await outcome(writing) is MetadataOutcomeUnknown  # type: ignore[arg-type]
        assert bench.loop.time() < 1

    Bench().play(story)


def test_a_held_call_of_a_lost_session_is_lost_at_once() -> None:
    asked: list[int] = []

    class Session(MemoryMetadataStore):
        async def write_ledger(self, metadata: LedgerMetadata, expected_version: int) -> Versioned:
            asked.append(expected_version)
            return await super().write_ledger(metadata, expected_version)

    async def story(bench: Bench) -> None:
        await bench.store.create_ledger(LEDGER)
        store = SimulatedMetadataStore(
            bench.world, bench.host, lambda: Session(bench.service.memory, rng=bench.world.rng("session"))
        )
        interception = bench.hit("write_ledger", MetadataFault.HOLD)
        writing = asyncio.ensure_future(store.write_ledger(MOVED, 0))
        await asyncio.sleep(1)
        bench.service.lose_sessions("a")
        assert await outcome(writing) is MetadataOutcomeUnknown  # type: ignore[arg-type]
        assert bench.loop.time() < 2
        await asyncio.sleep(5)
        interception.release()
        await asyncio.sleep(5)
        assert (bench.truth.version, asked) == (0, [])

    Bench().play(story)


def test_a_watch_that_was_on_its_way_when_the_session_was_lost_reports_once() -> None:
    async def story(bench: Bench) -> None:
        sets: list[BookieSets] = []
        bench.store.watch_bookies(sets.append)
        bench.service.lose_sessions("a", outage_s=0.0005)
        await asyncio.sleep(1)
        assert sets == [BookieSets()]
        await bench.other.register_bookie("b0", ADDRESS)
        await asyncio.sleep(1)
        assert sets == [BookieSets(), BookieSets(("b0",))]

    Bench().play(story)


def test_a_client_that_was_closed_before_its_host_crashed_ends_once() -> None:
    async def story(bench: Bench) -> None:
        await bench.world.join(bench.host.spawn(bench.store.aclose))
        bench.host.crash()
        await asyncio.sleep(100)

    Bench().direct(story)


@pytest.mark.parametrize(("crash_after_s", "version"), [(0.0, 0), (0.0005, 0), (0.002, 1)])
def test_a_call_of_a_crashed_host_is_carried_out_only_if_it_had_arrived(crash_after_s: float, version: int) -> None:
    async def story(bench: Bench) -> None:
        bench.service.memory.create(LEDGER)
        bench.host.spawn(bench.store.write_ledger, MOVED, 0)
        await asyncio.sleep(0)
        await asyncio.sleep(crash_after_s)
        bench.host.crash()
        await asyncio.sleep(5)
        assert bench.truth.version == version

    Bench().direct(story)


def test_a_paused_host_learns_the_answer_when_it_resumes() -> None:
    async def story(bench: Bench) -> None:
        bench.service.memory.create(LEDGER)
        writing = bench.host.spawn(bench.store.write_ledger, MOVED, 0)
        await asyncio.sleep(0)
        bench.host.pause()
        await asyncio.sleep(5)
        assert bench.truth.version == 1
        assert not writing.done()
        bench.host.resume()
        await bench.world.join(writing)

    Bench().direct(story)


def test_a_cancelled_call_is_carried_out_all_the_same() -> None:
    async def story(bench: Bench) -> None:
        await bench.store.create_ledger(LEDGER)
        writing = asyncio.ensure_future(bench.store.write_ledger(MOVED, 0))
        await asyncio.sleep(0)
        writing.cancel()
        await asyncio.sleep(1)
        assert bench.truth.version == 1

    Bench().play(story)


@pytest.mark.rule("NR-7")
def test_watches_report_the_present_value_then_every_change_late_and_in_order() -> None:
    async def story(bench: Bench) -> None:
        values: list[tuple[float, Versioned | None]] = []
        cancel = bench.store.watch_ledger(7, lambda value: values.append((bench.loop.time(), value)))
        assert values == []
        await asyncio.sleep(0.1)
        await bench.other.create_ledger(LEDGER)
        writes = [asyncio.ensure_future(bench.other.write_ledger(MOVED, version)) for version in range(30)]
        await asyncio.gather(*writes)
        await bench.other.delete_ledger(7)
        deleted = bench.loop.time()
        await asyncio.sleep(1)
        assert [value and value.version for _, value in values] == [None, *range(31), None]
        assert values[-1][0] <= deleted + 0.002
        cancel()
        cancel()
        await bench.other.create_ledger(LEDGER)
        await asyncio.sleep(1)
        assert len(values) == 33

    Bench().play(story)


@pytest.mark.rule("PL-1")
def test_watches_of_bookies_report_registrations() -> None:
    async def story(bench: Bench) -> None:
        sets: list[BookieSets] = []
        cancel = bench.store.watch_bookies(sets.append)
        await asyncio.sleep(0.1)
        await bench.other.register_bookie("b0", ADDRESS)
        await asyncio.sleep(0.1)
        assert sets == [BookieSets(), BookieSets(("b0",))]
        await bench.other.unregister_bookie("b0")
        cancel()
        await asyncio.sleep(0.1)
        assert len(sets) == 2, "news under way are not told after the cancellation"

    Bench().play(story)


def test_a_watch_cancelled_before_it_reached_the_service_says_nothing() -> None:
    async def story(bench: Bench) -> None:
        bench.store.watch_bookies(lambda sets: pytest.fail(str(sets)))()
        await asyncio.sleep(1)

    Bench().play(story)


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_watch_survives_a_cut_link_and_then_reports_the_last_value_once(when: str) -> None:
    async def story(bench: Bench) -> None:
        await bench.store.create_ledger(LEDGER)
        versions: list[int | None] = []
        if when == "before":
            cut(bench, "back")
        bench.store.watch_ledger(7, lambda value: versions.append(None if value is None else value.version))
        await asyncio.sleep(1)
        if when == "after":
            cut(bench, "back")
        for version in range(5):
            await bench.other.write_ledger(MOVED, version)
        await asyncio.sleep(30)
        assert versions == ([] if when == "before" else [0])
        bench.world.network.heal()
        await asyncio.sleep(1)
        assert versions == ([] if when == "before" else [0]) + [5]
        await bench.other.write_ledger(MOVED, 5)
        await asyncio.sleep(1)
        assert versions[-1] == 6

    Bench().play(story)


def test_registrations_disappear_a_session_timeout_after_a_crash_and_at_once_after_closing() -> None:
    async def story(bench: Bench) -> None:
        for store, host, name in ((bench.store, bench.host, "b0"), (bench.other, bench.other_host, "b1")):
            await bench.world.join(host.spawn(store.register_bookie, name, ADDRESS))
        bench.host.crash()
        await bench.world.join(bench.other_host.spawn(bench.other.aclose))
        assert bench.service.memory.bookies() == BookieSets(("b0",))
        await asyncio.sleep(19)
        assert bench.service.memory.bookies() == BookieSets(("b0",))
        await asyncio.sleep(2)
        assert bench.service.memory.bookies() == BookieSets()

    Bench().direct(story)


def test_a_new_life_registers_once_the_session_of_the_old_one_has_ended() -> None:
    async def story(bench: Bench) -> None:
        await bench.world.join(bench.host.spawn(bench.store.register_bookie, "b0", ADDRESS))
        bench.host.crash()
        bench.host.restart()
        store = SimulatedMetadataStore(bench.world, bench.host)
        await bench.world.join(bench.host.spawn(store.register_bookie, "b0", ADDRESS))
        assert 20 < bench.loop.time() < 21
        await asyncio.sleep(100)
        assert bench.service.memory.bookies() == BookieSets(("b0",))

    Bench().direct(story)


def test_an_id_that_somebody_else_keeps_cannot_be_registered() -> None:
    async def story(bench: Bench) -> None:
        await bench.other.register_bookie("b0", ADDRESS)
        assert await outcome(bench.store.register_bookie("b0", ADDRESS)) is MetadataStoreError
        assert bench.loop.time() > 30

    Bench().play(story)


def test_a_lost_session_takes_registrations_and_calls_along_and_is_replaced_with_its_watches() -> None:
    async def story(bench: Bench) -> None:
        store, service = bench.store, bench.service
        await store.create_ledger(LEDGER)
        await store.register_bookie("b0", ADDRESS)
        versions: list[int | None] = []
        store.watch_ledger(7, lambda value: versions.append(None if value is None else value.version))
        await asyncio.sleep(1)
        writing = asyncio.ensure_future(store.write_ledger(MOVED, 0))
        await asyncio.sleep(0)
        assert service.lose_sessions("a", outage_s=5) == 1
        assert await outcome(writing) is MetadataOutcomeUnknown  # type: ignore[arg-type]
        await asyncio.sleep(0.1)
        assert bench.truth.version == 0, "its call had not arrived"
        assert service.memory.bookies() == BookieSets()
        lost_at = bench.loop.time()
        await bench.other.write_ledger(MOVED, 0)
        assert (await store.write_ledger(LEDGER, 1)).version == 2
        assert 4.5 < bench.loop.time() - lost_at < 5.5
        await asyncio.sleep(1)
        assert versions[0] == 0
        assert versions[-1] == 2
        assert service.memory.bookies() == BookieSets(("b0",))

    Bench().play(story)


def test_losing_sessions_of_closed_or_crashed_clients_does_nothing() -> None:
    async def story(bench: Bench) -> None:
        await bench.world.join(bench.other_host.spawn(bench.other.aclose))
        await asyncio.sleep(1)
        assert bench.service.lose_sessions("b") == 0
        bench.host.crash()
        bench.service.lose_sessions("a")
        await asyncio.sleep(100)
        assert bench.service.lose_sessions("a") == 0

    Bench().direct(story)


def test_after_closing_every_call_says_so_and_calls_under_way_end() -> None:
    async def story(bench: Bench) -> None:
        store = bench.store
        watched: list[object] = []
        store.watch_bookies(watched.append)
        await asyncio.sleep(1)
        writing = asyncio.ensure_future(store.create_ledger(LEDGER))
        await asyncio.sleep(0)
        await store.aclose()
        assert await outcome(writing) is ClientClosed  # type: ignore[arg-type]
        await store.aclose()
        for call in (store.generate_ledger_id(), store.read_ledger(7), store.bookies(), store.write_ledger(MOVED, 0)):
            assert await outcome(call) is ClientClosed
        with pytest.raises(ClientClosed):
            store.watch_bookies(watched.append)
        await bench.other.register_bookie("b0", ADDRESS)
        await asyncio.sleep(1)
        assert len(watched) == 1

    Bench().play(story)


def test_a_session_that_is_closed_without_a_connection_ends_by_its_timeout() -> None:
    async def story(bench: Bench) -> None:
        await bench.store.register_bookie("b0", ADDRESS)
        cut(bench, "there")
        await bench.store.aclose()
        await asyncio.sleep(19)
        assert bench.service.memory.bookies() == BookieSets(("b0",))
        await asyncio.sleep(2)
        assert bench.service.memory.bookies() == BookieSets()

    Bench().play(story)


def test_sessions_come_from_whoever_is_handed_in() -> None:
    opened: list[MetadataStore] = []

    async def story(bench: Bench) -> None:
        def open_session() -> MetadataStore:
            opened.append(bench.service.open_session())
            return opened[-1]

        store = SimulatedMetadataStore(bench.world, bench.host, open_session)
        await store.create_ledger(LEDGER)
        bench.service.lose_sessions("a")
        await store.read_ledger(7)

    Bench().play(story)
    assert len(opened) == 2

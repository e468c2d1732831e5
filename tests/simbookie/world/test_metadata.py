from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from bkclient.errors import (
    BookieNotAvailable,
    BookKeeperError,
    ClientClosed,
    MetadataOutcomeUnknown,
    MetadataStoreError,
    MetadataVersionConflict,
    NoSuchLedger,
)
from bkclient.metadata.base import BookieAddress, BookieSets, MetadataStore
from bkclient.metadata.model import Fragment, LedgerMetadata, Versioned
from simbookie.world.faults import Delay
from simbookie.world.hosts import Host, World
from simbookie.world.metadata import SimulatedMetadataStore
from simbookie.world.metadata_service import (
    METADATA_HOST,
    MetadataAction,
    MetadataCall,
    MetadataConfig,
    MetadataFault,
)

LEDGER = LedgerMetadata(7, 1, 1, 1, (Fragment(0, ("b0",)),))
MOVED = LEDGER.with_ensemble(5, ("b1",))
ADDRESS = BookieAddress("b0", 3181)
CONFIG = MetadataConfig(latency_s=0.001, jitter_s=0.001, timeout_s=10.0, session_timeout_s=20.0)


class Bench:
    """Two hosts with a store each; the truth is in ``world.metadata.memory``."""

    def __init__(self, config: MetadataConfig = CONFIG, seed: int = 1) -> None:
        self.world = World(seed, metadata=config)
        self.service = self.world.metadata
        self.loop = self.world.loop
        self.host, self.other_host = Host(self.world, "a"), Host(self.world, "b")
        self.store = SimulatedMetadataStore(self.world, self.host)
        self.other = SimulatedMetadataStore(self.world, self.other_host)

    def play(self, story: Callable[[Bench], Coroutine[Any, Any, None]]) -> None:
        """Run ``story`` on the first host."""

        async def program() -> None:
            await story(self)

        with self.world:
            self.world.run(lambda: self.world.join(self.host.spawn(program)))

    def direct(self, story: Callable[[Bench], Coroutine[Any, Any, None]]) -> None:
        """Run ``story`` as the director."""
        with self.world:
            self.world.run(lambda: story(self))

    @property
    def truth(self) -> Versioned:
        return self.service.memory.read(7)

    def hit(self, operation: str, action: MetadataAction, limit: int | None = 1) -> Any:
        return self.service.intercept(lambda call: call.operation == operation, action, limit=limit)


async def outcome(call: Coroutine[Any, Any, Any]) -> Any:
    try:
        return await call
    except BookKeeperError as error:
        return type(error)


def test_calls_take_time_and_do_what_they_say() -> None:
    async def story(bench: Bench) -> None:
        store: MetadataStore = bench.store
        started = bench.loop.time()
        assert await store.generate_ledger_id() == 0
        assert 0.002 <= bench.loop.time() - started <= 0.004
        created = await store.create_ledger(LEDGER)
        assert (created.version, created.metadata.fragments) == (0, LEDGER.fragments)
        assert (await store.write_ledger(MOVED, 0)).version == 1
        assert (await store.read_ledger(7)).metadata.fragments == MOVED.fragments
        assert [ledger_id async for ledger_id in store.list_ledgers()] == [7]
        assert await outcome(store.write_ledger(LEDGER, 0)) is MetadataVersionConflict
        await store.delete_ledger(7)
        assert await outcome(store.read_ledger(7)) is NoSuchLedger
        await store.register_bookie("b0", ADDRESS)
        assert await store.bookies() == BookieSets(("b0",))
        assert await store.bookie_address("b0") == ADDRESS
        await store.register_bookie("b0", ADDRESS, read_only=True)
        assert await store.bookies() == BookieSets((), ("b0",))
        await store.unregister_bookie("b0")
        assert await store.bookies() == BookieSets()
        assert await outcome(store.bookie_address("b9")) is BookieNotAvailable

    Bench().play(story)


def test_calls_of_one_client_are_carried_out_in_the_order_in_which_they_were_made() -> None:
    async def story(bench: Bench) -> None:
        await bench.store.create_ledger(LEDGER)
        writes = [asyncio.ensure_future(bench.store.write_ledger(MOVED, version)) for version in range(50)]
        assert [value.version for value in await asyncio.gather(*writes)] == list(range(1, 51))

    Bench().play(story)


FAULTS: list[tuple[MetadataFault, type[BookKeeperError] | None, int]] = [
    # fault on a compare-and-set at version 0, what the client learns, version afterwards
    (MetadataFault.CONFLICT, MetadataVersionConflict, 1),
    (MetadataFault.ANSWER_LOST, MetadataOutcomeUnknown, 1),
    (MetadataFault.CALL_LOST, MetadataOutcomeUnknown, 0),
    (MetadataFault.FAIL, MetadataStoreError, 0),
    (MetadataFault.STALE, None, 1),
]


@pytest.mark.parametrize(("fault", "error", "version"), FAULTS)
def test_what_can_happen_to_a_compare_and_set(
    fault: MetadataFault, error: type[BookKeeperError] | None, version: int
) -> None:
    async def story(bench: Bench) -> None:
        await bench.store.create_ledger(LEDGER)
        interception = bench.hit("write_ledger", fault)
        result = await outcome(bench.store.write_ledger(MOVED, 0))
        assert interception.hits == 1
        assert bench.truth.version == version
        if error is None:
            assert result.version == 1
        else:
            assert result is error
            applied = fault is MetadataFault.ANSWER_LOST
            assert bench.truth.metadata.fragments == (MOVED if applied else LEDGER).fragments
            assert (await bench.store.write_ledger(MOVED, version)).version == version + 1, "the fault is over"

    Bench().play(story)


@pytest.mark.parametrize("fault", [MetadataFault.ANSWER_LOST, MetadataFault.CALL_LOST])
@pytest.mark.rule("API-6")
def test_a_creation_that_was_lost_is_repeated_and_recognises_itself(fault: MetadataFault) -> None:
    async def story(bench: Bench) -> None:
        bench.hit("create_ledger", fault)
        assert (await bench.store.create_ledger(LEDGER)).version == 0
        bench.hit("generate_ledger_id", fault)
        assert await bench.store.generate_ledger_id() == int(fault is MetadataFault.ANSWER_LOST), "an id may be skipped"

    Bench().play(story)


def test_an_injected_conflict_is_written_by_the_intruder_whom_recorders_may_wrap() -> None:
    class Wrapped:
        def __init__(self, inner: MetadataStore) -> None:
            self.inner = inner
            self.writes: list[int] = []
            self.read_ledger = inner.read_ledger

        async def write_ledger(self, metadata: LedgerMetadata, expected_version: int) -> Versioned:
            self.writes.append(expected_version)
            return await self.inner.write_ledger(metadata, expected_version)

    async def story(bench: Bench) -> None:
        await bench.store.create_ledger(LEDGER)
        wrapped = Wrapped(bench.service.intruder)
        bench.service.intruder = wrapped  # type: ignore[assignment]
        bench.hit("write_ledger", MetadataFault.CONFLICT, limit=None)
        for version in range(3):
            assert await outcome(bench.store.write_ledger(MOVED, version)) is MetadataVersionConflict
        assert wrapped.writes == [0, 1, 2]
        await bench.store.delete_ledger(7)
        assert await outcome(bench.store.write_ledger(MOVED, 3)) is NoSuchLedger

    Bench().play(story)


def test_a_stale_read_returns_the_value_before_the_present_one() -> None:
    async def story(bench: Bench) -> None:
        await bench.store.create_ledger(LEDGER)
        bench.hit("read_ledger", MetadataFault.STALE, limit=3)
        assert (await bench.store.read_ledger(7)).version == 0, "there is none before"
        await bench.store.write_ledger(MOVED, 0)
        stale = await bench.other.read_ledger(7)
        assert (stale.version, stale.metadata.fragments) == (0, LEDGER.fragments)
        await bench.store.write_ledger(LEDGER, 1)
        assert (await bench.store.read_ledger(7)).version == 1
        assert (await bench.store.read_ledger(7)).version == 2

    Bench().play(story)


def test_a_delayed_call_is_overtaken_and_carried_out_even_after_it_was_given_up() -> None:
    async def story(bench: Bench) -> None:
        await bench.store.create_ledger(LEDGER)
        bench.hit("write_ledger", Delay(30))
        started = bench.loop.time()
        assert await outcome(bench.store.write_ledger(MOVED, 0)) is MetadataOutcomeUnknown
        assert bench.loop.time() - started == pytest.approx(10)
        assert (await bench.store.read_ledger(7)).version == 0
        await asyncio.sleep(30)
        assert bench.truth.version == 1

    Bench().play(story)


def test_a_held_call_waits_for_its_release() -> None:
    async def story(bench: Bench) -> None:
        await bench.store.create_ledger(LEDGER)
        interception = bench.hit("write_ledger", MetadataFault.HOLD)
        writing = asyncio.ensure_future(bench.store.write_ledger(MOVED, 0))
        await asyncio.sleep(5)
        assert (interception.held, bench.truth.version) == (1, 0)
        interception.release()
        assert (await writing).version == 1

    Bench().play(story)


def test_predicates_see_whose_call_it_is_and_what_it_is_about() -> None:
    seen: list[MetadataCall] = []

    async def story(bench: Bench) -> None:
        def see(call: MetadataCall) -> bool:
            seen.append(call)
            return False

        bench.service.intercept(see, MetadataFault.FAIL)
        await bench.store.create_ledger(LEDGER)
        await bench.other.write_ledger(MOVED, 0)
        await bench.store.read_ledger(7)

    Bench().play(story)
    assert [(call.host, call.operation, call.ledger_id) for call in seen] == [
        ("a", "create_ledger", 7),
        ("b", "write_ledger", 7),
        ("a", "read_ledger", 7),
    ]
    assert (seen[1].metadata, seen[1].expected_version) == (MOVED, 0)


def test_chance_brings_every_fault_and_the_same_seed_the_same_ones() -> None:
    config = MetadataConfig(conflict_probability=0.2, unknown_probability=0.2, failure_probability=0.1)

    def run(seed: int) -> list[str]:
        outcomes: list[str] = []

        async def story(bench: Bench) -> None:
            while await outcome(bench.store.create_ledger(LEDGER)) is MetadataStoreError:
                pass
            for _ in range(200):
                before = bench.truth.version
                result = await outcome(bench.store.write_ledger(MOVED, before))
                name = result.__name__ if isinstance(result, type) else "ok"
                outcomes.append(f"{name} {bench.truth.version - before}")

        Bench(config, seed).play(story)
        return outcomes

    outcomes = run(1)
    assert set(outcomes) == {
        "ok 1",
        "MetadataVersionConflict 1",
        "MetadataOutcomeUnknown 0",
        "MetadataOutcomeUnknown 1",
        "MetadataStoreError 0",
    }
    assert 60 < outcomes.count("ok 1") < 140
    assert run(1) == outcomes
    assert run(2) != outcomes


@pytest.mark.parametrize(
    "wrong",
    [
        {"latency_s": -1.0},
        {"timeout_s": 0.0},
        {"conflict_probability": -0.1},
        {"unknown_probability": 0.6, "failure_probability": 0.6},
    ],
)
def test_senseless_configurations_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="metadata: "):
        MetadataConfig(**wrong)


def cut(bench: Bench, direction: str) -> None:
    there, back = ("a", METADATA_HOST), (METADATA_HOST, "a")
    bench.world.network.block(*(there if direction == "there" else back))


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
        for version in range(3):
            await bench.other.write_ledger(MOVED, version)
        await bench.other.delete_ledger(7)
        deleted = bench.loop.time()
        await asyncio.sleep(1)
        assert [value and value.version for _, value in values] == [None, 0, 1, 2, 3, None]
        assert values[-1][0] <= deleted + 0.002
        cancel()
        cancel()
        await bench.other.create_ledger(LEDGER)
        await asyncio.sleep(1)
        assert len(values) == 6

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

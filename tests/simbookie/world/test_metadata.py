from __future__ import annotations

import asyncio

import pytest

from bkclient.errors import (
    BookieNotAvailable,
    BookKeeperError,
    MetadataOutcomeUnknown,
    MetadataStoreError,
    MetadataVersionConflict,
    NoSuchLedger,
)
from bkclient.ledger import LedgerMetadata, Versioned
from bkclient.metadata.base import BookieSets, MetadataStore
from simbookie.world.faults import Delay
from simbookie.world.metadata_service import (
    MetadataCall,
    MetadataConfig,
    MetadataFault,
)
from tests.simbookie.world.metadata_bench import ADDRESS, LEDGER, MOVED, Bench, outcome


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


@pytest.mark.parametrize("held", [False, True])
def test_a_held_answer_waits_when_the_call_was_made_even_if_that_was_held_too(held: bool) -> None:
    async def story(bench: Bench) -> None:
        await bench.store.create_ledger(LEDGER)
        call = bench.hit("write_ledger", MetadataFault.HOLD) if held else None
        answer = bench.hit("write_ledger", MetadataFault.HOLD_ANSWER)
        writing = asyncio.ensure_future(bench.store.write_ledger(MOVED, 0))
        await asyncio.sleep(1)
        if call is not None:
            assert (call.held, answer.held, bench.truth.version) == (1, 0, 0)
            call.release()
            await asyncio.sleep(1)
        assert (answer.held, bench.truth.version, writing.done()) == (1, 1, False)
        assert (await bench.store.read_ledger(7)).version == 1, "other calls are answered"
        answer.release()
        assert (await writing).version == 1

    Bench().play(story)


def test_an_answer_that_is_held_for_too_long_is_a_lost_one() -> None:
    async def story(bench: Bench) -> None:
        await bench.store.create_ledger(LEDGER)
        answer = bench.hit("write_ledger", MetadataFault.HOLD_ANSWER)
        assert await outcome(bench.store.write_ledger(MOVED, 0)) is MetadataOutcomeUnknown
        assert bench.truth.version == 1
        answer.release()
        await asyncio.sleep(1)

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

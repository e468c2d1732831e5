"""The short way of ordinary adds does what the way of all requests does: answers, observations, content, in the same order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bkclient.wire.messages import AddRequest, AddResponse, Response, Status
from simbookie.bookie import Bookie, BookieState
from simbookie.config import BookieConfig
from simbookie.ledgers import status_of
from simbookie.storage.base import DurableCallback, StorageError, WriteCacheFull
from simbookie.storage.group_commit import JournalConfig
from simbookie.storage.memory import MemoryStorage

Virtually = Callable[[Callable[[], Any]], None]
Step = tuple[Any, ...]

JOURNALS = {
    "at once": JournalConfig(),
    "slow": JournalConfig(group_wait_max_s=0.001, sync_latency_s=0.010),
    "without sync": JournalConfig(sync_enabled=False),
    "no journal": JournalConfig(entries_enabled=False),
}

ADDS = st.tuples(
    st.just("add"),
    st.integers(1, 2),
    st.integers(-1, 4),
    st.integers(-1, 3),
    st.sampled_from([b"k" * 20] * 9 + [b"o" * 20]),
    st.sampled_from([b"payload"] * 8 + [bytes(200), None]),
)
OTHERS = st.one_of(
    st.tuples(st.just("fence"), st.integers(1, 2)),
    st.tuples(st.just("limbo"), st.integers(1, 2), st.booleans()),
    st.tuples(st.just("read-only"), st.booleans()),
    st.tuples(st.just("delete"), st.integers(1, 2)),
    st.tuples(st.just("wait"), st.sampled_from([0.0, 0.0005, 0.02])),
)
STEPS = st.lists(ADDS | ADDS | OTHERS, max_size=30)


def submitted(bookie: Bookie, request: AddRequest, respond: Callable[[Response], None]) -> bool:
    bookie.submit(request, respond, source="client")
    return True


def added(bookie: Bookie, request: AddRequest, respond: Callable[[Response], None]) -> bool:
    """As a connection does it; whether the short way was taken."""

    def answer(asked: AddRequest, error: StorageError | None) -> None:
        status = Status.OK if error is None else status_of(error)
        respond(AddResponse(status, asked.ledger_id, asked.entry_id))

    if bookie.add(request, answer, request, "client"):
        return True
    submitted(bookie, request, respond)
    return False


class Story:
    """What one bookie makes of steps, when each of its adds comes in by ``way``."""

    def __init__(self, kit: Any, way: Callable[..., bool], journal: JournalConfig) -> None:
        self.kit = kit
        self.way = way
        self.notebook = kit.Notebook()
        self.bench = kit.Bench(BookieConfig(pending_adds_max=3), journal, capacity_bytes=700, observer=self.notebook)
        self.answers = kit.Answers()
        self.told: list[Any] = []
        self.ways: list[bool] = []

    async def play(self, steps: list[Step]) -> None:
        bookie = self.bench.bookie
        for step in steps:
            match step:
                case ("add", ledger_id, entry_id, lac, key, payload):
                    body = self.kit.entry_body(ledger_id, entry_id, lac, payload or b"")
                    request = AddRequest(ledger_id, entry_id, key, body[:20] if payload is None else body, b"")
                    self.ways.append(self.way(bookie, request, self.answers))
                case ("fence", ledger_id):
                    bookie.submit(self.kit.fencing_read(ledger_id), self.answers)
                case ("limbo", ledger_id, in_limbo):
                    bookie.set_limbo(ledger_id, in_limbo=in_limbo, fence=False)
                case ("read-only", is_on):
                    bookie.set_read_only(is_on)
                case ("delete", ledger_id):
                    bookie.delete_ledger(ledger_id)
                case _:
                    await asyncio.sleep(step[1])
            self.told.append((bookie.pending_adds, bookie.read_only, self.bench.storage.capacity()))
        await asyncio.sleep(1)

    def outcome(self) -> tuple[Any, ...]:
        content = {
            ledger_id: (self.bench.storage.entry_ids(ledger_id), self.bench.storage.entry_runs(ledger_id))
            for ledger_id in self.bench.storage.ledger_ids()
        }
        return (
            list(self.answers),
            self.answers.times,
            self.notebook.events,
            self.told,
            content,
            self.bench.disk.replay(),
        )


@pytest.mark.parametrize("journal", JOURNALS.values(), ids=JOURNALS)
@settings(deadline=None)
@given(steps=STEPS)
@example(steps=[("add", 1, entry_id, entry_id - 1, b"k" * 20, b"payload") for entry_id in range(5)])
def test_both_ways_come_to_the_same(kit: Any, virtually: Virtually, journal: JournalConfig, steps: list[Step]) -> None:
    stories: list[Story] = []

    async def both() -> None:
        stories.extend(Story(kit, way, journal) for way in (submitted, added))
        await asyncio.gather(*(story.play(steps) for story in stories))

    virtually(both)
    assert stories[1].outcome() == stories[0].outcome()


async def test_the_short_way_is_for_ledgers_that_are_known(kit: Any) -> None:
    bench, answers = kit.Bench(), kit.Answers()
    ways = [added(bench.bookie, AddRequest(1, n, kit.KEY, kit.entry_body(1, n), b""), answers) for n in range(3)]
    await kit.settle()

    assert ways == [False, True, True]
    assert answers.statuses == [Status.OK] * 3


async def test_a_storage_that_refuses_is_told_as_ever(kit: Any) -> None:
    class Refusing(MemoryStorage):
        def add_entry(
            self, ledger_id: int, entry_id: int, body: bytes, on_durable: DurableCallback | None, *more: Any
        ) -> None:
            if entry_id:
                raise WriteCacheFull("full")
            super().add_entry(ledger_id, entry_id, body, on_durable, *more)

    bench, answers = kit.Bench(storage=Refusing()), kit.Answers()
    ways = [added(bench.bookie, AddRequest(1, n, kit.KEY, kit.entry_body(1, n), b""), answers) for n in range(2)]
    await kit.settle()

    assert ways == [False, True]
    assert sorted(answers.statuses) == [Status.OK, Status.TOO_MANY_REQUESTS]
    assert bench.bookie.pending_adds == 0


@pytest.mark.parametrize("is_orderly", [True, False])
async def test_a_bookie_that_has_stopped_takes_none(kit: Any, *, is_orderly: bool) -> None:
    bench, answers = kit.Bench(), kit.Answers()
    await bench.ask(kit.add(1, 0))
    if is_orderly:
        bench.bookie.shutdown()
        assert bench.bookie.state is BookieState.STOPPING
    else:
        bench.bookie.crash()

    assert not bench.bookie.add(AddRequest(1, 1, kit.KEY, kit.entry_body(1, 1), b""), answers, None, "")

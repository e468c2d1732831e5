"""What holds of every recorded history, whatever the client under test does: the recorders' own promises.

A checker can be no better than its events. These are looked at over the same runs that the tests of the library make.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from bkclient import BookKeeper
from bkclient.errors import BookKeeperError
from bkclient.metadata.base import MetadataStore
from bkclient.transport.base import BookieTransport
from scenarios.conditions import Conditions, draw_conditions
from scenarios.history import HistoryWriter, Kind
from scenarios.library import SCENARIOS
from scenarios.recording.recorders import BookieRecorder, Recorder, RecoveryRecorder
from scenarios.recording.store import recorded_store
from scenarios.recording.transport import RecordingTransport
from simbookie.storage.base import CrashMode
from simbookie.storage.memory import MemoryStorage, RecordLog
from simbookie.world.bookie_host import BookieHost
from simbookie.world.hosts import Host, World
from simbookie.world.metadata import SimulatedMetadataStore
from simbookie.world.transport import SimulatedTransport
from tests.scenarios.played import Played, play

SEEDS = range(8)
#: Who cancels what it has begun, on purpose.
CANCELLING = {"cancelled-callers": {"writer", "recoverer"}}
#: What the metadata service records in the name of a client: it happens there, even if the client is gone by then.
AT_THE_SERVICE = {Kind.META_CAS, Kind.META_READ}
ANSWERS = {
    Kind.ADD_RESP: (Kind.ADD_SEND, ("entry", "bookie", "recovery")),
    Kind.READ_RESP: (Kind.READ_SEND, ("entry", "bookie")),
    Kind.REC_READ_RESP: (Kind.REC_READ_SEND, ("entry", "bookie", "fence")),
    Kind.FENCE_RESP: (Kind.FENCE_SEND, ("bookie",)),
}


@pytest.fixture(params=SCENARIOS)
def runs(request: pytest.FixtureRequest) -> list[Played]:
    return [play(request.param, seed) for seed in SEEDS]


def test_nothing_is_recorded_for_a_client_that_is_dead_or_asleep(runs: list[Played]) -> None:
    for played in runs:
        silent: dict[str, None] = {}
        for event in played.events:
            if event.kind in {Kind.CLIENT_CRASH, Kind.CLIENT_PAUSE}:
                silent[event.actor] = None
            elif event.kind == Kind.CLIENT_RESUME:
                del silent[event.actor]
            elif event.kind not in AT_THE_SERVICE or event.fields["outcome"] == "unknown":
                assert event.actor not in silent, event


def test_every_answer_follows_its_request_and_whoever_lived_to_its_end_got_all_of_them(runs: list[Played]) -> None:
    for played in runs:
        open_requests: Counter[tuple[Any, ...]] = Counter()
        crashed = {event.actor for event in played.of(Kind.CLIENT_CRASH)}
        for event in played.events:
            for answer, (request, names) in ANSWERS.items():
                if event.kind in {answer, request}:
                    key = (event.actor, event.ledger, request, *(event.fields[name] for name in names))
                    open_requests[key] += 1 if event.kind == request else -1
                    assert open_requests[key] >= 0, event
        left = [key for key, count in open_requests.items() if count and key[0] not in crashed]
        assert not left


def test_metadata_changes_are_in_the_order_in_which_they_took_effect(runs: list[Played]) -> None:
    for played in runs:
        stored = played.of(Kind.META_CAS, outcome="ok")
        assert [event.fields["version"] for event in stored] == list(range(len(stored)))
        assert all(event.fields["expected_version"] == event.fields["version"] - 1 for event in stored)
        assert all(event.fields["version"] == -1 for event in played.of(Kind.META_CAS) if event not in stored)
        now = -1
        for event in played.events:
            if event.kind == Kind.META_CAS and event.fields["outcome"] == "ok":
                now = event.fields["version"]
            elif event.kind == Kind.META_READ:
                assert event.fields["version"] == now
            elif event.kind == Kind.META_CAS and event.fields["outcome"] == "conflict":
                assert event.fields["expected_version"] != now


def test_a_bookie_stores_what_was_sent_to_it_and_answers_after_that(runs: list[Played]) -> None:
    for played in runs:
        sent: set[tuple[Any, ...]] = set()
        stored: set[tuple[Any, ...]] = set()
        synced: set[tuple[Any, ...]] = set()
        for event in played.events:
            fields = event.fields
            match event.kind:
                case Kind.ADD_SEND:
                    sent.add((fields["bookie"], event.actor, *body(fields)))
                case Kind.BK_STORE:
                    assert (event.actor, fields["source"], *body(fields)) in sent
                    stored.add((event.actor, fields["entry"]))
                case Kind.BK_SYNC:
                    assert (event.actor, fields["entry"]) in stored
                    synced.add((event.actor, fields["entry"]))
                case Kind.ADD_RESP if fields["code"] == 0:
                    assert (fields["bookie"], fields["entry"]) in synced


def body(fields: Any) -> Iterator[Any]:
    return (fields[name] for name in ("entry", "content", "lac", "length", "recovery"))


def test_an_application_is_told_of_its_own_appends_once_each(runs: list[Played]) -> None:
    for played in runs:
        added = {event.fields["entry"]: event.fields["content"] for event in played.of(Kind.APP_ADD)}
        if not any(event.fields["given"] for event in played.of(Kind.APP_ADD)):
            assert list(added) == sorted(added)
        assert sorted(added) == list(range(len(added)))
        assert len(played.of(Kind.APP_ADD)) == len(added)
        acknowledged = [event.fields["entry"] for event in played.of(Kind.APP_ACK)]
        failed = [event.fields["entry"] for event in played.of(Kind.APP_FAIL)]
        cancelled = [event.fields["entry"] for event in played.of(Kind.APP_CANCEL)]
        assert not Counter([*acknowledged, *failed, *cancelled]) - Counter(added.keys())
        assert all(added[event.fields["entry"]] == event.fields["content"] for event in played.of(Kind.APP_ACK))
        if not played.of(Kind.CLIENT_CRASH, actor="writer"):
            assert sorted([*acknowledged, *failed, *cancelled]) == sorted(added)


def test_opens_and_closes_that_return_have_begun(runs: list[Played]) -> None:
    for played in runs:
        begun: Counter[tuple[str, str]] = Counter()
        for event in played.events:
            match event.kind:
                case Kind.OPEN_START | Kind.CLOSE_START:
                    begun[event.actor, event.kind.split("_")[0]] += 1
                case Kind.OPEN_RESULT | Kind.CLOSE_RESULT:
                    begun[event.actor, event.kind.split("_")[0]] -= 1
                    assert begun[event.actor, event.kind.split("_")[0]] >= 0
        crashed = {event.actor for event in played.of(Kind.CLIENT_CRASH)}
        left = {actor for (actor, _), count in begun.items() if count and actor not in crashed}
        assert not left - CANCELLING.get(played.result.scenario, set())


# Recorders change nothing -------------------------------------------------------------------------------------------


def make_bookie(world: World, index: int, conditions: Conditions, recorder: Recorder | None) -> BookieHost:
    name = f"bookie-{index}"
    storage = MemoryStorage(conditions.storage, RecordLog())
    return BookieHost(world, name, storage=storage, observer=BookieRecorder(recorder, name) if recorder else None)


def make_client(world: World, name: str, conditions: Conditions, recorder: Recorder | None) -> BookKeeper:
    host = world.hosts[name]
    transport: BookieTransport = SimulatedTransport(world, host, conditions.transport)
    if recorder is None:
        store: MetadataStore = SimulatedMetadataStore(world, host)
        return BookKeeper(store, transport, config=conditions.client, rng=world.rng(name))
    store = recorded_store(world, host, recorder)
    transport = RecordingTransport(transport, recorder, name, 1)
    observer = RecoveryRecorder(recorder, name)
    return BookKeeper(store, transport, config=conditions.client, rng=world.rng(name), observer=observer)


def live(seed: int, *, is_recorded: bool) -> list[Any]:
    """A writer in rough weather, and a takeover: what the applications experienced, and when."""
    conditions = draw_conditions(seed)
    network = replace(conditions.network, loss_probability=0.01, duplicate_probability=0.05, slow_probability=0.05)
    diary: list[Any] = []
    with World(seed, network=network, metadata=conditions.metadata) as world:

        def note(*what: Any) -> None:
            diary.append((*what, world.loop.time()))

        recorder = Recorder(HistoryWriter({}, world.clock_us)) if is_recorded else None
        bookies = [make_bookie(world, i, conditions, recorder) for i in range(5)]

        async def write(created: asyncio.Future[int]) -> None:
            async with make_client(world, "writer", conditions, recorder) as bare:
                writer = await bare.create_ledger(ensemble_size=3, write_quorum_size=3, ack_quorum_size=2)
                created.set_result(writer.ledger_id)
                try:
                    for i in range(300):
                        note("appended", await writer.append(b"%d" % i))
                except BookKeeperError as error:
                    note("refused", str(error))

        async def take_over(created: asyncio.Future[int]) -> None:
            async with make_client(world, "recoverer", conditions, recorder) as bare:
                reader = await bare.open_ledger(await created, recover=True)
                note("closed", reader.metadata.last_entry_id, reader.length)
                async for entry in reader:
                    note("read", entry)

        async def main() -> None:
            for bookie in bookies:
                await bookie.registered()
            created: asyncio.Future[int] = asyncio.get_running_loop().create_future()
            writing = Host(world, "writer").spawn(write, created)
            recoverer = Host(world, "recoverer")
            await asyncio.sleep(0.05)
            bookies[0].crash(CrashMode.POWER_LOSS)
            await asyncio.sleep(0.3)
            await world.join(recoverer.spawn(take_over, created), writing)

        world.run(main)
        note("end", world.loop.steps, str(world.network.counters))
        if recorder:
            assert recorder.history.events > 100
    return diary


@pytest.mark.parametrize("seed", range(6))
def test_with_and_without_recorders_everything_happens_at_the_same_times(seed: int) -> None:
    recorded, bare = live(seed, is_recorded=True), live(seed, is_recorded=False)
    assert recorded == bare
    assert {what for what, *_ in bare} >= {"appended", "closed", "end"}

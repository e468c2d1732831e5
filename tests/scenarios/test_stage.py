"""What the stage promises to scenarios: processes that die and sleep for real, faults that hit their targets."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace

import pytest

from bkclient.errors import BookKeeperError, LedgerClosed, RequestTimeout
from bkclient.wire.messages import AddRequest, ReadRequest
from scenarios import reading_back
from scenarios.conditions import Conditions, draw_conditions
from scenarios.history import Event, Kind
from scenarios.liveness import StuckError
from scenarios.recording.client import RecordedClient, each_entry
from scenarios.stage import LedgerSlot, Stage
from simbookie.storage.base import CrashMode
from simbookie.world.links import NetworkConfig
from simbookie.world.metadata_service import MetadataConfig
from tests.scenarios.played import perform, where


def fair(seed: int = 0, *, timeout_s: float = 1.0) -> Conditions:
    """Three bookies to a ledger, one spare, no weather at all."""
    drawn = draw_conditions(seed)
    return replace(
        drawn,
        bookies=4,
        ensemble_size=3,
        write_quorum_size=3,
        ack_quorum_size=3,
        network=NetworkConfig(),
        metadata=MetadataConfig(),
        transport=replace(drawn.transport, add_timeout_s=timeout_s, read_timeout_s=timeout_s),
    )


def writing(stage: Stage, ledger: LedgerSlot, entries: int, *, finishes: bool = True) -> Callable[..., Awaitable[None]]:
    async def write(client: RecordedClient) -> None:
        writer = await ledger.create(client)
        await stage.append_entries(writer, entries)
        if finishes:
            await stage.finish(writer)

    return write


def kinds(events: list[Event], actor: str) -> list[str]:
    return [str(event.kind) for event in events if event.actor == actor]


# Client processes -------------------------------------------------------------------------------------------------


def test_a_client_process_lives_from_its_start_to_the_end_of_its_program() -> None:
    async def story(stage: Stage) -> None:
        ledger = stage.ledger()
        await stage.client("writer", writing(stage, ledger, 3)).ended()
        assert ledger.is_created
        assert await ledger.id() == ledger.created_id

    events = perform(story, conditions=fair())
    assert kinds(events, "writer")[0] == "CLIENT_START"
    (start,) = where(events, Kind.CLIENT_START)
    assert start.fields["incarnation"] == 1
    assert "write" in start.fields["detail"]
    assert len(list(where(events, Kind.APP_ACK))) == 3


def test_a_crashed_client_does_nothing_any_more_not_even_in_a_finally_block() -> None:
    done: list[str] = []

    async def story(stage: Stage) -> None:
        ledger = stage.ledger()

        async def write(client: RecordedClient) -> None:
            try:
                await stage.append_entries(await ledger.create(client), 1000)
            finally:
                done.append("finally")

        writer = stage.client("writer", write)
        await stage.until_acknowledged(ledger, 5)
        writer.crash()
        writer.crash()
        await stage.sleep(1.0, 1.0)
        await writer.ended()
        assert done == []

    events = perform(story, conditions=fair())
    (crash,) = where(events, Kind.CLIENT_CRASH)
    assert crash.fields == {"incarnation": 1}
    assert not [e for e in events if e.actor == "writer" and e.seq > crash.seq and e.kind != Kind.META_CAS]


def test_a_client_that_has_ended_cannot_crash_or_be_paused() -> None:
    async def story(stage: Stage) -> None:
        writer = stage.client("writer", writing(stage, stage.ledger(), 1))
        await writer.ended()
        writer.crash()
        writer.pause()
        writer.resume()

    events = perform(story, conditions=fair())
    assert not {Kind.CLIENT_CRASH, Kind.CLIENT_PAUSE, Kind.CLIENT_RESUME} & {event.kind for event in events}


def test_a_paused_client_stands_still_and_goes_on_where_it_was() -> None:
    async def story(stage: Stage) -> None:
        ledger = stage.ledger()
        writer = stage.client("writer", writing(stage, ledger, 30))
        await stage.until_acknowledged(ledger, 5)
        writer.pause()
        writer.pause()
        await stage.sleep(3.0, 3.0)
        writer.resume()
        writer.resume()
        await writer.ended()

    events = perform(story, conditions=fair(timeout_s=60.0))
    (pause,), (resume,) = where(events, Kind.CLIENT_PAUSE), where(events, Kind.CLIENT_RESUME)
    assert resume.time_us - pause.time_us == 3_000_000
    assert not [e for e in events if e.actor == "writer" and pause.seq < e.seq < resume.seq and e.kind != Kind.META_CAS]
    assert [e.fields["entry"] for e in where(events, Kind.APP_ACK)] == list(range(30))


def test_waiting_for_a_client_raises_what_its_program_raised() -> None:
    async def story(stage: Stage) -> None:
        async def fail(client: RecordedClient) -> None:
            raise LookupError("mine")

        await stage.client("client", fail).ended()

    with pytest.raises(LookupError, match="mine"):
        perform(story, conditions=fair())


def test_appending_stops_at_the_first_refusal_and_finishing_survives_it() -> None:
    async def story(stage: Stage) -> None:
        ledger = stage.ledger()

        async def write(client: RecordedClient) -> None:
            writer = await ledger.create(client)
            await stage.append_entries(writer, 5)
            await writer.close()
            await stage.append_entries(writer, 5)
            await stage.finish(writer)
            with pytest.raises(LedgerClosed):
                writer.append_nowait(b"late")

        await stage.client("writer", write).ended()

    events = perform(story, conditions=fair())
    assert len(list(where(events, Kind.APP_ADD))) == 5
    assert len(list(where(events, Kind.CLOSE_RESULT, code=0))) == 2


def test_no_more_than_the_window_is_in_flight() -> None:
    most = 0

    async def story(stage: Stage) -> None:
        ledger = stage.ledger()

        async def write(client: RecordedClient) -> None:
            nonlocal most
            writer = await ledger.create(client)

            def look(_event: Event) -> None:
                nonlocal most
                most = max(most, writer.in_flight_entries)

            stage.recorder.history.listeners.append(look)
            await stage.append_entries(writer, 100, window=4)
            await stage.finish(writer)

        await stage.client("writer", write).ended()

    perform(story, conditions=fair())
    assert most == 4


# Watching ---------------------------------------------------------------------------------------------------------


def test_an_action_follows_the_first_event_that_is_meant_once() -> None:
    acted: list[float] = []

    async def story(stage: Stage) -> None:
        ledger = stage.ledger()

        def is_third_ack(event: Event) -> bool:
            return event.kind == Kind.APP_ACK and event.fields["entry"] >= 2

        stage.on_event(is_third_ack, lambda: acted.append(stage.world.clock_us()))
        stage.on_event(lambda event: False, lambda: acted.append(-1))
        await stage.client("writer", writing(stage, ledger, 10)).ended()

    events = perform(story, conditions=fair())
    (third,) = where(events, Kind.APP_ACK, entry=2)
    assert acted == [third.time_us]


def test_two_watchers_of_the_same_event_both_act() -> None:
    acted: list[str] = []

    async def story(stage: Stage) -> None:
        for name in ("one", "two"):
            stage.on_event(lambda event: event.kind == Kind.APP_ACK, lambda name=name: acted.append(name))  # type: ignore[misc]
        await stage.client("writer", writing(stage, stage.ledger(), 3)).ended()

    perform(story, conditions=fair())
    assert acted == ["one", "two"]


def test_waiting_for_an_acknowledgement_that_never_comes_ends() -> None:
    async def story(stage: Stage) -> None:
        ledger = stage.ledger()
        await stage.client("writer", writing(stage, ledger, 3)).ended()
        began = stage.world.loop.time()
        await stage.until_acknowledged(ledger, 2)
        assert stage.world.loop.time() == began
        await stage.until_acknowledged(ledger, 3)
        assert 10 < stage.world.loop.time() - began < 60
        await stage.until_acknowledged(stage.ledger(), 0)

    perform(story, conditions=fair())


def test_the_ensemble_is_the_last_one_stored_of_that_very_ledger() -> None:
    async def story(stage: Stage) -> None:
        first, second = stage.ledger(), stage.ledger()
        assert stage.ensemble(first) == tuple(stage.bookies)[:3]
        one = stage.client("one", writing(stage, first, 200))
        await stage.until_acknowledged(first, 0)
        await stage.client("two", writing(stage, second, 1)).ended()
        before = tuple(stage.ensemble(first))
        stage.crash_bookie(before[1])
        await one.ended()
        after = tuple(stage.ensemble(first))
        assert before[1] not in after
        assert set(before) - {before[1]} < set(after)

    events = perform(story, conditions=fair())
    assert len(list(where(events, Kind.META_CAS, cause="create"))) == 2


# Faults -----------------------------------------------------------------------------------------------------------


def test_a_bookie_crashes_once_and_restarts_once() -> None:
    async def story(stage: Stage) -> None:
        stage.restart_bookie("bookie-0")
        for _ in range(2):
            stage.crash_bookie("bookie-0")
        for _ in range(2):
            stage.restart_bookie("bookie-0")
        await stage.bookies["bookie-0"].registered()

    events = perform(story, conditions=fair())
    faults = [(e.fields["cause"], e.fields["detail"].split()[0]) for e in where(events, Kind.FAULT)]
    assert faults == [("crash", "bookie-0"), ("restart", "bookie-0")]
    assert kinds(events, "bookie-0") == ["BK_CRASH", "BK_RESTART"]


def test_crashes_kill_processes_and_machines() -> None:
    modes = set()

    async def story(stage: Stage) -> None:
        for _ in range(20):
            stage.crash_bookie("bookie-0")
            stage.restart_bookie("bookie-0")

    for event in where(perform(story, conditions=fair()), Kind.FAULT, cause="crash"):
        modes.add(event.fields["detail"])
    assert modes == {"bookie-0 PROCESS", "bookie-0 POWER_LOSS"}


def test_a_cut_loses_what_travels_one_way_or_the_other_or_both() -> None:
    seen = set()
    for seed in range(12):

        async def story(stage: Stage) -> None:
            stage.cut("writer", "bookie-0")
            await stage.client("writer", writing(stage, stage.ledger(), 2, finishes=False)).ended()

        everyone = replace(fair(timeout_s=0.5), bookies=3)
        events = perform(story, seed=seed, conditions=everyone)
        (cut,) = where(events, Kind.FAULT, cause="cut")
        seen.add(cut.fields["detail"])
        assert not list(where(events, Kind.ADD_RESP, bookie="bookie-0", code=0)), "no answer came through"
    assert seen == {"writer > bookie-0", "writer < bookie-0", "writer >< bookie-0"}


def test_what_is_held_arrives_when_it_is_released_and_what_is_dropped_never() -> None:
    async def story(stage: Stage) -> None:
        ledger = stage.ledger()
        held = stage.hold("writer", ["bookie-0", "bookie-1"], lambda request: isinstance(request, AddRequest))
        dropped = stage.drop("other", ["bookie-2"], lambda request: isinstance(request, AddRequest))
        writer = stage.client("writer", writing(stage, ledger, 1))
        await stage.sleep(0.5, 0.5)
        assert held.hits == held.held > 0
        assert dropped.hits == 0
        held.remove()
        held.release()
        await writer.ended()

    events = perform(story, conditions=fair(timeout_s=30.0))
    (ack,) = where(events, Kind.APP_ACK)
    assert 500_000 < ack.time_us < 1_000_000
    faults = [(e.fields["cause"], e.fields["detail"]) for e in where(events, Kind.FAULT)]
    assert faults == [("hold", "writer > bookie-0, bookie-1"), ("drop", "other > bookie-2")]


def test_healing_ends_cuts_and_interceptions_and_lets_go_what_was_held() -> None:
    async def story(stage: Stage) -> None:
        ledger = stage.ledger()
        for bookie in stage.bookies:
            stage.cut("reader", bookie)
        stage.hold("writer", list(stage.bookies), lambda request: isinstance(request, AddRequest))
        stage.drop("reader", list(stage.bookies), lambda request: isinstance(request, ReadRequest))
        writer = stage.client("writer", writing(stage, ledger, 5))
        await stage.sleep(0.2, 0.2)
        stage.heal()
        await writer.ended()

        async def read(client: RecordedClient) -> None:
            async for _ in each_entry(await client.open_ledger(await ledger.id(), recover=True)):
                pass

        await stage.client("reader", read).ended()

    events = perform(story, conditions=fair(timeout_s=30.0))
    assert len(list(where(events, Kind.READ_RESULT, actor="reader", code=0))) == 5


# The end ----------------------------------------------------------------------------------------------------------


def test_settling_restarts_bookies_and_lets_two_clients_read_everything() -> None:
    async def story(stage: Stage) -> None:
        ledger = stage.ledger()
        writer = stage.client("writer", writing(stage, ledger, 20, finishes=False))
        await stage.until_acknowledged(ledger, 10)
        writer.crash()
        for bookie in stage.bookies:
            stage.crash_bookie(bookie)
        await stage.settle(ledger)
        assert all(bookie.is_alive for bookie in stage.bookies.values())

    events = perform(story, conditions=fair())
    for index in range(2):
        assert len(list(where(events, Kind.READ_RESULT, actor=f"final-{index}", code=0))) >= 11


def test_there_is_nothing_to_settle_where_no_ledger_came_to_be() -> None:
    async def story(stage: Stage) -> None:
        await stage.settle(stage.ledger())

    assert not list(where(perform(story, conditions=fair()), Kind.CLIENT_START))


def test_a_final_client_tries_again_before_it_gives_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may find bookies that are still starting."""
    monkeypatch.setattr(reading_back, "ATTEMPTS", 3)

    async def story(stage: Stage) -> None:
        ledger = stage.ledger()
        await stage.client("writer", writing(stage, ledger, 3, finishes=False)).ended()
        monkeypatch.setattr(stage, "heal", lambda: None)
        deafness = stage.drop("final-0", list(stage.bookies), lambda request: isinstance(request, ReadRequest))
        stage.on_event(lambda event: event.kind == Kind.OPEN_RESULT and event.fields["code"] != 0, deafness.remove)
        await stage.settle(ledger)

    events = perform(story, conditions=fair())
    assert [e.fields["code"] for e in where(events, Kind.OPEN_RESULT, actor="final-0")] == [-23, 0]


def test_a_ledger_that_cannot_be_read_in_the_end_is_stuck(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading_back, "ATTEMPTS", 2)
    ledgers: list[int] = []

    async def story(stage: Stage) -> None:
        ledger = stage.ledger()
        await stage.client("writer", writing(stage, ledger, 3)).ended()
        ledgers.append(await ledger.id())
        monkeypatch.setattr(stage, "heal", lambda: None)
        stage.drop("final-0", list(stage.bookies), lambda request: isinstance(request, ReadRequest))
        await stage.settle(ledger)

    with pytest.raises(StuckError) as stuck:
        perform(story, conditions=fair())
    assert stuck.value.ledger_id == ledgers[0]
    assert RequestTimeout.code.name in stuck.value.problem
    assert f"ledger {ledgers[0]}: " in str(stuck.value)


# Chance -----------------------------------------------------------------------------------------------------------


def test_what_a_scenario_draws_changes_neither_workloads_nor_clients() -> None:
    def told(draws: int) -> list[tuple[str, object]]:
        async def story(stage: Stage) -> None:
            for _ in range(draws):
                stage.rng.random()
            await stage.client("writer", writing(stage, stage.ledger(), 20)).ended()

        events = perform(story, seed=3)
        return [(str(event.kind), tuple(map(str, event.fields.values()))) for event in events]

    assert told(0) == told(7)


def test_a_ledger_is_created_with_the_sizes_that_were_drawn() -> None:
    for seed in range(8):

        async def story(stage: Stage) -> None:
            with suppress(BookKeeperError):
                await stage.client("writer", writing(stage, stage.ledger(), 1)).ended()

        drawn = draw_conditions(seed)
        (create,) = where(perform(story, seed=seed), Kind.META_CAS, cause="create")
        sizes = (create.fields[f"{name}_size"] for name in ("ensemble", "write_quorum", "ack_quorum"))
        assert tuple(sizes) == (drawn.ensemble_size, drawn.write_quorum_size, drawn.ack_quorum_size)


def is_add(request: object) -> bool:
    return isinstance(request, AddRequest)


def test_answers_can_be_lost_while_what_was_asked_is_done() -> None:
    async def story(stage: Stage) -> None:
        ledger = stage.ledger()
        stage.drop("writer", ["bookie-0"], is_add, answers=True)
        await stage.client("writer", writing(stage, ledger, 1)).ended()

    events = perform(story, conditions=fair())
    assert list(where(events, Kind.BK_STORE, actor="bookie-0"))
    assert {event.fields["code"] for event in where(events, Kind.ADD_RESP, bookie="bookie-0")} == {-23}


def test_altered_copies_are_lost_to_checkers_and_stay_altered_over_a_crash() -> None:
    async def story(stage: Stage) -> None:
        ledger = stage.ledger()
        await stage.client("writer", writing(stage, ledger, 4)).ended()
        stage.alter_copies(ledger, "bookie-0", 40)
        stage.crash_bookie("bookie-0", CrashMode.POWER_LOSS)
        stage.restart_bookie("bookie-0")
        await stage.settle(ledger)

    events = perform(story, conditions=fair())
    crash = next(where(events, Kind.BK_CRASH)).seq
    altered = {event.fields["entry"] for event in where(events, Kind.BK_LOSS, actor="bookie-0", detail="altered")}
    sent = {event.fields["entry"]: event.fields["content"] for event in where(events, Kind.ADD_SEND)}
    answers = [event for event in where(events, Kind.READ_RESP, bookie="bookie-0", code=0) if event.seq > crash]
    assert altered
    assert answers
    for event in answers:
        is_same = event.fields["content"] == sent[event.fields["entry"]]
        assert is_same == (event.fields["entry"] not in altered)
    for event in where(events, Kind.READ_RESULT, code=0):
        assert event.fields["content"] == sent[event.fields["entry"]], "another bookie had to be asked"


def test_a_call_to_the_metadata_service_waits_until_it_is_released() -> None:
    times: list[float] = []

    async def story(stage: Stage) -> None:
        held = stage.hold_metadata(lambda call: call.host == "writer" and call.operation == "create_ledger")
        ledger = stage.ledger()
        writer = stage.client("writer", writing(stage, ledger, 1))
        await held.made()
        assert not ledger.is_created
        await stage.sleep(2.0, 2.0)
        times.append(stage.world.loop.time())
        held.release()
        await writer.ended()

    events = perform(story, conditions=fair())
    (created,) = where(events, Kind.META_CAS, cause="create")
    assert created.time_us / 1e6 >= times[0]


def test_nothing_happens_any_more_that_waits_for_an_event_once_that_is_disarmed() -> None:
    seen: list[float] = []

    async def story(stage: Stage) -> None:
        stage.on_event(lambda event: event.kind == Kind.CLIENT_START, lambda: seen.append(stage.world.loop.time()))
        stage.disarm()
        await stage.client("writer", writing(stage, stage.ledger(), 1)).ended()

    perform(story, conditions=fair())
    assert seen == []


def test_giving_up_a_flush_says_so_and_harms_nothing() -> None:
    told: list[bool] = []

    async def story(stage: Stage) -> None:
        ledger = stage.ledger()

        async def write(client: RecordedClient) -> None:
            writer = await ledger.create(client)
            held = stage.hold("writer", list(stage.bookies), is_add)
            await stage.append_entries(writer, 2)
            told.append(await stage.flush_for(writer, 0.1))
            held.remove()
            held.release()
            told.append(await stage.flush_for(writer, 10.0))

        await stage.client("writer", write).ended()

    events = perform(story, conditions=fair(timeout_s=5.0))
    assert told == [False, True]
    assert [event.fields["entry"] for event in where(events, Kind.APP_ACK)] == [0, 1]


def test_waiting_for_an_event_ends_with_the_client_that_will_not_bring_it() -> None:
    async def story(stage: Stage) -> None:
        writer = stage.client("writer", writing(stage, stage.ledger(), 1))
        await stage.until(lambda event: event.kind == Kind.BK_GC, ended=writer)
        assert stage.world.loop.time() < 5.0
        await stage.client("other", writing(stage, stage.ledger(), 1)).ended()

    assert len(list(where(perform(story, conditions=fair()), Kind.CLIENT_START))) == 2

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from bkclient.errors import Code
from bkclient.metadata.base import BookieSets
from bkclient.wire.messages import AddRequest, ReadRequest, ReadResponse, Request, Response
from simbookie.storage.base import CrashMode
from simbookie.storage.group_commit import JournalConfig
from simbookie.storage.memory import MemoryStorage, MemoryStorageConfig, RecordLog
from simbookie.world.bookie_host import BookieHost
from simbookie.world.calls import RequestMessage
from simbookie.world.errors import WorldError
from simbookie.world.faults import Duplicate
from simbookie.world.hosts import Host, World
from simbookie.world.transport import SimulatedTransport
from tests.simbookie.notebook import Notebook


def add(entry_id: int) -> AddRequest:
    header = b"".join(value.to_bytes(8, "big", signed=True) for value in (1, entry_id, -1, 0))
    return AddRequest(1, entry_id, b"k" * 20, header, b"payload")


class Bench:
    """One bookie whose syncs take 10 ms, and a client of it."""

    def __init__(self) -> None:
        self.world = World(1)
        self.notebook = Notebook()
        journal = JournalConfig(sync_latency_s=0.01)
        storage = MemoryStorage(MemoryStorageConfig(journal=journal), RecordLog())
        self.b0 = BookieHost(self.world, "b0", storage=storage, observer=self.notebook)
        self.client = Host(self.world, "client")
        self.transport = SimulatedTransport(self.world, self.client)
        self.outcomes: list[tuple[int, Response | None]] = []

    async def ask(self, *requests: Request) -> list[int]:
        """The codes of the answers, in the order of the requests."""
        loop = self.world.loop
        answers = [loop.create_future() for _ in requests]
        for request, answer in zip(requests, answers, strict=True):

            def note(_b: str, _r: Request, code: int, response: Response | None, answer: Any = answer) -> None:
                answer.set_result((code, response))

            self.transport.submit("b0", request, note)
        self.outcomes = [await answer for answer in answers]
        return [code for code, _ in self.outcomes]

    @property
    def registered(self) -> BookieSets:
        return self.world.metadata.memory.bookies()

    def play(self, story: Callable[[Bench], Coroutine[Any, Any, None]]) -> None:
        with self.world:
            self.world.run(lambda: story(self))


def test_a_bookie_starts_with_the_world_registers_and_serves() -> None:
    async def story(bench: Bench) -> None:
        await bench.b0.registered()
        assert bench.registered == BookieSets(("b0",))
        assert await bench.ask(add(0), add(1)) == [Code.OK] * 2
        assert await bench.ask(ReadRequest(1, 1), ReadRequest(1, 9)) == [Code.OK, Code.NO_SUCH_ENTRY]
        response = bench.outcomes[0][1]
        assert isinstance(response, ReadResponse)
        assert response.body == add(1).body
        assert [event[5] for event in bench.notebook.of("entry_stored")] == ["client", "client"], (
            "the source is the host"
        )

    Bench().play(story)


def test_bookies_can_be_added_while_the_world_runs() -> None:
    async def story(bench: Bench) -> None:
        await asyncio.sleep(5)
        b1 = BookieHost(bench.world, "b1")
        await b1.registered()
        assert bench.registered == BookieSets(("b0", "b1"))

    Bench().play(story)


@pytest.mark.parametrize(("mode", "survivors"), [(CrashMode.PROCESS, 2), (CrashMode.POWER_LOSS, 1)])
def test_a_crash_loses_what_was_not_safe_in_that_kind_of_crash_and_a_restart_finds_the_rest(
    mode: CrashMode, survivors: int
) -> None:
    async def story(bench: Bench) -> None:
        await bench.b0.registered()
        await bench.ask(add(0))
        asking = asyncio.ensure_future(bench.ask(add(1)))
        await asyncio.sleep(0.005)  # arrived and written, not yet synced
        bench.b0.crash(mode)
        bench.b0.crash(mode)
        bench.b0.restart()
        await bench.b0.registered()
        assert await asking == [Code.BOOKIE_NOT_AVAILABLE if mode is CrashMode.PROCESS else Code.TIMEOUT]
        if mode is CrashMode.POWER_LOSS:  # the old connection is found dead only now
            assert await bench.ask(ReadRequest(1, 0)) == [Code.BOOKIE_NOT_AVAILABLE]
        assert await bench.ask(ReadRequest(1, 0)) == [Code.OK]
        assert len(bench.b0.storage.entry_ids(1)) == survivors
        assert [event[0] for event in bench.notebook.of("crashed", "restarted", "entry_lost")] == [
            *["entry_lost"] * (2 - survivors),
            "crashed",
            "restarted",
        ]
        assert bench.notebook.of("restarted")[0][1] == 2

    Bench().play(story)


def test_a_crashed_bookie_stays_registered_until_its_session_times_out_and_comes_back_after_that() -> None:
    async def story(bench: Bench) -> None:
        await bench.b0.registered()
        bench.b0.crash()
        crashed = bench.world.loop.time()
        await asyncio.sleep(9)
        assert bench.registered == BookieSets(("b0",))
        bench.b0.restart()
        assert await bench.ask(add(0)) == [Code.OK], "it serves at once"
        await bench.b0.registered()
        assert 10 < bench.world.loop.time() - crashed < 11
        await asyncio.sleep(60)
        assert bench.registered == BookieSets(("b0",))

    Bench().play(story)


def test_a_registration_follows_the_read_only_mode() -> None:
    async def story(bench: Bench) -> None:
        await bench.b0.registered()
        for read_only, sets in ((True, BookieSets((), ("b0",))), (False, BookieSets(("b0",)))):
            bench.b0.bookie.set_read_only(read_only)
            await asyncio.sleep(1)
            assert bench.registered == sets
        bench.b0.bookie.set_read_only(True)
        bench.b0.crash()
        bench.b0.restart()
        await bench.b0.registered()
        assert bench.registered == BookieSets((), ("b0",))

    Bench().play(story)


def test_a_bookie_registers_again_when_its_session_was_lost() -> None:
    async def story(bench: Bench) -> None:
        await bench.b0.registered()
        bench.world.metadata.lose_sessions("b0", outage_s=3)
        await asyncio.sleep(2)
        assert bench.registered == BookieSets()
        await asyncio.sleep(2)
        assert bench.registered == BookieSets(("b0",))

    Bench().play(story)


def test_a_bookie_registers_in_the_end_even_if_the_service_was_down_for_long() -> None:
    async def story(bench: Bench) -> None:
        bench.world.metadata.stop()
        await asyncio.sleep(100)
        bench.world.metadata.start()
        await bench.b0.registered()
        assert bench.registered == BookieSets(("b0",))

    Bench().play(story)


def test_an_orderly_stop_answers_everything_saves_it_and_withdraws_the_registration() -> None:
    async def story(bench: Bench) -> None:
        await bench.b0.registered()
        asking = asyncio.ensure_future(bench.ask(add(0), add(1)))
        await asyncio.sleep(0.005)
        await bench.b0.stop()
        assert await asking == [Code.OK] * 2
        assert bench.registered == BookieSets()
        assert not bench.b0.is_alive
        with pytest.raises(WorldError, match="not running"):
            await bench.b0.stop()
        assert bench.notebook.of("crashed")[0][1] is True
        bench.b0.restart()
        await bench.b0.registered()
        assert bench.b0.storage.entry_ids(1) == [0, 1]

    Bench().play(story)


def test_a_stop_during_which_the_bookie_crashes_ends() -> None:
    async def story(bench: Bench) -> None:
        await bench.b0.registered()
        asking = asyncio.ensure_future(bench.ask(add(0)))
        await asyncio.sleep(0.005)
        bench.world.loop.call_later(0.001, bench.b0.crash, CrashMode.POWER_LOSS)
        await bench.b0.stop()
        assert await asking == [Code.TIMEOUT]

    Bench().play(story)


def test_a_bookie_may_crash_before_it_has_started() -> None:
    async def story(bench: Bench) -> None:
        b1 = BookieHost(bench.world, "b1")
        b1.crash()
        await asyncio.sleep(1)
        assert bench.registered == BookieSets(("b0",))
        b1.restart()
        await b1.registered()
        assert bench.registered == BookieSets(("b0", "b1"))

    Bench().play(story)


def test_a_paused_bookie_answers_what_arrived_meanwhile_when_it_resumes() -> None:
    async def story(bench: Bench) -> None:
        await bench.b0.registered()
        await bench.ask(add(0))
        bench.b0.pause()
        asking = asyncio.ensure_future(bench.ask(add(1), add(2)))
        await asyncio.sleep(3)
        assert not bench.notebook.of("entry_synced")[1:]
        bench.b0.resume()
        assert await asking == [Code.OK] * 2

    Bench().play(story)


def test_a_bookie_sees_a_duplicated_request_twice() -> None:
    async def story(bench: Bench) -> None:
        await bench.b0.registered()
        bench.world.network.intercept(lambda _s, _d, message: isinstance(message, RequestMessage), Duplicate(2))
        assert await bench.ask(add(0)) == [Code.OK]
        await asyncio.sleep(1)
        assert len(bench.notebook.of("entry_stored")) == 3
        assert bench.b0.storage.entry_ids(1) == [0]

    Bench().play(story)


def test_a_bookie_may_crash_in_the_middle_of_answering() -> None:
    """The fault is injected at the bookie's own call: when its answer leaves."""

    async def story(bench: Bench) -> None:
        await bench.b0.registered()

        def crash_at_answer(source: str, _destination: str, _message: object) -> bool:
            if source == "b0":
                bench.b0.crash()
            return False

        bench.world.network.intercept(crash_at_answer, Duplicate(1))
        assert await bench.ask(add(0), add(1), add(2)) == [Code.BOOKIE_NOT_AVAILABLE] * 3
        assert bench.world.network.counters.delivered == 3, "the answer at which it died was not sent"

    Bench().play(story)

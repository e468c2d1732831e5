"""Assertions of links, lanes and streams: each planted defect is noticed in the turn in which it does harm."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

import pytest

from bkclient.transport.lanes import Lanes
from bkclient.transport.link import BookieLink
from bkclient.transport.linked import LinkTransport
from bkclient.transport.outgoing import CHUNK_BYTES, Outgoing
from bkclient.transport.request_stream import RequestStream
from bkclient.transport.stream_state import NEXT, StreamState
from bkclient.transport.tcp_stream import Stream
from bkclient.wire.connection import ClientConnection
from bkclient.wire.messages import ReadRequest
from tests.bkclient.transport.scripted_bookie import ScriptedBookie, answer, keep_silent, running, until
from tests.bkclient.transport.test_lanes import Bench, Lane
from tests.bkclient.transport.test_outgoing import slow_stream
from tests.bkclient.transport.test_tcp import Outcomes, add, transport_to


def checked(outcomes: Outcomes) -> None:
    """Assert what the transport asserts between events."""
    assert isinstance(outcomes.transport, LinkTransport)
    outcomes.transport.check()


def reported() -> list[BaseException]:
    """What the event loop is told from now on."""
    errors: list[BaseException] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context["exception"]))
    return errors


async def connect(bookie: ScriptedBookie, outcomes: Outcomes) -> None:
    """Make the connection, over which one request is answered."""
    count = len(outcomes.all)
    outcomes.submit(add(count))
    await until(lambda: len(outcomes.all) > count)
    checked(outcomes)


# Streams.


async def test_a_request_over_a_connection_that_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """The link goes on using what it has lost."""
    async with running() as bookie, transport_to(bookie) as outcomes:
        await connect(bookie, outcomes)
        with monkeypatch.context() as planted:
            planted.setattr(BookieLink, "_lanes_changed", lambda _: None)
            bookie.connections[0].transport.abort()
            await until(lambda: bookie.open == 0)
            await asyncio.sleep(0.01)
            with pytest.raises(AssertionError, match="for a connection that stands"):
                outcomes.transport.submit("b", add(1), lambda *_: None)
            with pytest.raises(AssertionError, match="over the first lane"):
                checked(outcomes)


async def test_an_answer_that_is_handed_out_after_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection keeps what its stream has ended, and is told of answers afterwards."""
    stream, _, _ = slow_stream(monkeypatch, pauses=True)
    monkeypatch.setattr(ClientConnection, "abandon", lambda _: [])
    request = add(0)
    stream.submit(request, lambda *_: None)
    stream.connection_lost(None)
    with pytest.raises(AssertionError, match="nothing is outstanding on a connection that has ended"):
        stream.check()


@pytest.mark.parametrize("state", StreamState)
def test_what_may_follow_what_leads_from_a_new_connection_to_one_that_has_ended(state: StreamState) -> None:
    assert (state is StreamState.ENDED) == (NEXT[state] == ())
    assert StreamState.NEW not in NEXT[state]
    assert all(list(StreamState).index(after) > list(StreamState).index(state) for after in NEXT[state])


async def test_a_connection_that_ends_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    stream, _, _ = slow_stream(monkeypatch, pauses=True)
    stream.connection_lost(None)
    assert stream.state is StreamState.ENDED
    with pytest.raises(AssertionError, match="that is ended becomes ended"):
        stream.connection_lost(None)


async def test_a_connection_that_is_made_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    stream, transport, _ = slow_stream(monkeypatch, pauses=True)
    with pytest.raises(AssertionError, match="that is established becomes established"):
        stream.connection_made(transport)  # type: ignore[arg-type]


async def test_a_look_for_late_requests_that_is_the_last_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not come again, so a request that is outstanding never times out."""
    looked = asyncio.Event()

    def looks_once(self: RequestStream) -> None:
        self._scan = None
        looked.set()

    monkeypatch.setattr(RequestStream, "_expire", looks_once)
    async with running(keep_silent) as bookie, transport_to(bookie, add_timeout_s=1.0) as outcomes:
        outcomes.submit(add(0))
        await looked.wait()
        with pytest.raises(AssertionError, match="looks whether what is outstanding is late"):
            checked(outcomes)


# What is left to be sent.


async def test_bytes_that_overtake_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """The socket takes more again, and what waited for that is forgotten."""
    stream, transport, _ = slow_stream(monkeypatch, pauses=True)
    errors = reported()

    def sends_nothing(self: Stream) -> None:
        self.is_paused = False

    monkeypatch.setattr(Stream, "resume_writing", sends_nothing)
    for number in range(20):
        stream.submit(add(number, bytes(65_536)), lambda *_: None)
    await asyncio.sleep(0)
    stream.check()
    transport.take(transport.kept)
    with pytest.raises(AssertionError, match="only what a socket does not take"):
        stream.check()
    stream.connection.abandon()
    stream.submit(add(20), lambda *_: None)
    await asyncio.sleep(0)
    assert [str(error).splitlines()[0] for error in errors] == ["what waits is sent first"]


def test_a_size_that_is_not_that_of_what_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    def counts_twice(self: Outgoing, buffers: Iterable[bytes]) -> None:
        add_to(self, buffers)
        self.size += 1

    outgoing, add_to = Outgoing(), Outgoing.add
    outgoing.add([bytes(CHUNK_BYTES), b"", b"x"])
    outgoing.check()
    assert [len(buffer) for buffer in outgoing.take()] == [CHUNK_BYTES]
    monkeypatch.setattr(Outgoing, "add", counts_twice)
    outgoing.add([b"y"])
    with pytest.raises(AssertionError, match="the size is that of the buffers"):
        outgoing.check()
    with pytest.raises(AssertionError, match="the size is that of the buffers"):
        outgoing.take()


# Lanes.


class Planted(Lanes[Lane, int]):
    """Lanes with one defect."""

    defect = ""

    def settled(self, lane: Lane, now: float) -> None:
        match self.defect:
            case "retires twice":
                self._retire(lane)
                self._retire(lane)
            case "closes early":
                self._close(lane)
            case _:
                super().settled(lane, now)

    @property
    def _may_retire(self) -> bool:
        return True if self.defect == "retires all" else super()._may_retire

    def changed(self, keys: list[bytes]) -> None:
        if self.defect != "forgets who waits":
            super().changed(keys)

    def _make_room(self, key: bytes) -> None:
        super()._make_room(key)
        if self.defect == "opens more":
            self._lanes_max += 1

    def opened(self) -> None:
        """A lane is being opened."""
        if self.defect == "opens more":
            self._lanes_max -= 1


class PlantedBench(Bench):
    """Lanes that may have a defect, once it is switched on."""

    def __init__(self, lanes_max: int = 3, given_up_max: int = 4) -> None:
        super().__init__(lanes_max, given_up_max)
        self.lanes: Planted = Planted(self, lanes_max=lanes_max, given_up_max=given_up_max, idle_s=30.0)

    def open_lane(self) -> Lane | None:
        self.lanes.opened()
        return super().open_lane()


def answered(bench: PlantedBench) -> None:
    bench.read(0)
    bench.read(1)
    bench.answer(bench.lanes.active[0], 0)


def three_wait(bench: PlantedBench) -> None:
    for _ in range(5):
        bench.read(0)
    bench.answer(bench.lanes.active[0], 0)
    bench.lanes.check()


def worn_out(bench: PlantedBench) -> None:
    for entry_id in range(3):
        for _ in range(2):
            bench.read(entry_id)
    bench.wait(4.0)
    bench.read(7)
    bench.read(7)
    bench.wait(1.0)
    for entry_id in range(3):
        bench.read(entry_id)


@pytest.mark.parametrize(
    ("defect", "says", "play"),
    [
        ("retires twice", "that is retiring becomes retiring", answered),
        ("closes early", "closed when it has no more to answer", answered),
        ("forgets who waits", "there is no waiter for a key that is free", three_wait),
        ("opens more", "lanes are bounded", three_wait),
        ("retires all", "one lane to take requests", worn_out),
    ],
)
def test_lanes_that_do_not_keep_their_rules(defect: str, says: str, play: Callable[[PlantedBench], None]) -> None:
    play(PlantedBench(2))  # without it nothing is wrong
    bench = PlantedBench(2)
    bench.lanes.defect = defect
    with pytest.raises(AssertionError, match=says):
        play(bench)


# Links.


async def test_a_request_that_stays_counted_after_it_was_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BookieLink, "release", lambda *_: None)
    async with running() as bookie, transport_to(bookie) as outcomes:
        outcomes.submit(add(0))
        await until(lambda: len(outcomes.all) == 1)
        with pytest.raises(AssertionError, match="the load is what is outstanding"):
            checked(outcomes)


async def test_a_link_is_looked_at_again_when_it_has_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulations ask after every callback, and most of them have to do with one link or none."""
    looked, check = 0, BookieLink.check

    def counted(link: BookieLink) -> None:
        nonlocal looked
        looked += 1
        check(link)

    def looks() -> int:
        before = looked
        checked(outcomes)
        checked(outcomes)
        return looked - before

    monkeypatch.setattr(BookieLink, "check", counted)
    async with running(keep_silent) as bookie, transport_to(bookie) as outcomes:
        outcomes.submit(add(0))
        assert looks() == 1, "a request waits for the connection"
        await until(lambda: len(bookie.received) == 1)
        assert looks() == 1, "it was sent"
        await asyncio.sleep(0.01)
        assert looks() == 0
        bookie.script = answer
        outcomes.submit(add(1))
        assert looks() == 1, "another one was submitted"
        await until(lambda: len(outcomes.all) == 1)
        assert looks() == 1, "it was answered"
        bookie.connections[0].transport.abort()
        await until(lambda: len(outcomes.all) == 2)
        assert looks() == 1, "the connection was lost"


async def test_lanes_that_nobody_looks_after(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(keep_silent) as bookie, transport_to(bookie, protocol_version=2) as outcomes:
        with monkeypatch.context() as planted:
            planted.setattr(BookieLink, "_sweep", lambda _: None)
            planted.setattr(asyncio.get_running_loop(), "call_later", lambda *_: None)
            outcomes.submit(ReadRequest(1, 0))
            outcomes.submit(ReadRequest(1, 0))
            with pytest.raises(AssertionError, match="looks after the lanes"):
                checked(outcomes)


async def test_nothing_is_asserted_wrongly_while_connections_come_and_go() -> None:
    async with running(answer) as bookie, transport_to(bookie, protocol_version=2) as outcomes:
        await connect(bookie, outcomes)
        bookie.script = keep_silent
        for _ in range(9):
            outcomes.submit(ReadRequest(1, 0))
            checked(outcomes)
        await until(lambda: len(bookie.connections) == 4)
        checked(outcomes)
        for connection in bookie.connections:
            connection.transport.abort()
            checked(outcomes)
        await until(lambda: len(outcomes.all) == 5)  # those that waited for a lane have one now
        checked(outcomes)

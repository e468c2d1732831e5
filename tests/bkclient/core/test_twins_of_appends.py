"""The compiled core against the definitions: whole appends, from the application's call to the bytes for three bookies and back.

Sockets are objects here: what is written to them is kept, and answers come when, in the order and with the status that the
example says.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import struct
import sys
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bkclient import AppendFuture, BookKeeper, ClientConfig, ConnectionSettings, LedgerWriter, LimitSettings
from bkclient._client.window import WriterWindow
from bkclient._client.writing.twins import ON_THE_WAY, WriterShell
from bkclient._core import CORES, using_core, ways_of
from bkclient.errors import BookKeeperError, Code, IllegalOperation
from bkclient.metadata.base import BookieAddress
from bkclient.metadata.memory import MemoryMetadataService
from bkclient.protocol.adds import PendingAdds
from bkclient.protocol.append import AppendMachine
from bkclient.transport.bulk import LedgerAdds
from bkclient.transport.open_run import OpenRun
from bkclient.transport.request_stream import RequestStream
from bkclient.transport.striped_tally import StripedTally
from bkclient.transport.tally import Tally
from bkclient.transport.tcp_config import TcpTransportConfig
from bkclient.transport.tcp_stream import Stream
from bkclient.wire import chunks
from bkclient.wire.connection import ClientConnection
from bkclient.wire.framing import FrameBuffer
from bkclient.wire.runs import Runs
from bkclient.wire.v2 import AddPacketEncoder
from tests.bkclient.core.both_cores import needs_compiled_core, same_in_both
from tests.bkclient.inside import adds_of, look_for_late_entries, machine_of, shell_of
from tests.bkclient.transport.sockets import Connector, Socket, transport_over

pytestmark = needs_compiled_core

BOOKIES = ("b0", "b1", "b2")
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.sampled_from([0, 1, 100, 100, 512, 513, 20_000])),
        st.tuples(st.just("append all"), st.lists(st.sampled_from([0, 1, 100, 100, 100, 20_000]), max_size=9)),
        st.tuples(st.just("turn")),
        st.tuples(
            st.just("answer"), st.integers(0, 2), st.integers(1, 9), st.sampled_from(["ok", "ok", "ok", "last first"])
        ),
        st.tuples(st.just("answer"), st.integers(0, 2), st.just(1), st.sampled_from(["busy", "fenced", "cut"])),
        st.tuples(st.just("cancel"), st.integers(0, 5)),
        st.tuples(st.just("give up"), st.integers(0, 2)),
    ),
    max_size=40,
)


@asynccontextmanager
async def a_writer(version: int, write_quorum: int, *spares: str) -> AsyncIterator[tuple[LedgerWriter, Connector]]:
    """A writer with a window of six entries, which is not closed, and what connects it to bookies."""
    limits = LimitSettings(max_in_flight_entries=6, max_in_flight_bytes=30_000)
    config = ClientConfig(limits=limits, connections=ConnectionSettings(protocol_version=version))
    transport, connector = transport_over(TcpTransportConfig.of_client(config))
    rng = random.Random(2)
    async with MemoryMetadataService().session(rng=rng) as store:
        for bookie_id in (*BOOKIES, *spares):
            await store.register_bookie(bookie_id, BookieAddress(bookie_id, 1))
        async with BookKeeper(store, transport, config=config, rng=rng) as client:
            quorums: dict[str, Any] = {"write_quorum_size": write_quorum, "ack_quorum_size": min(2, write_quorum)}
            yield await client.create_ledger(ensemble_size=3, **quorums), connector


async def played(version: int, write_quorum: int, steps: list[tuple[Any, ...]], *, is_exact: bool = True) -> list[Any]:
    """What a writer does and leaves behind; if not exact, but for what is not told anybody."""
    seen: list[Any] = []
    futures: list[AppendFuture] = []
    async with a_writer(version, write_quorum) as (writer, connector):
        begun = [("append", 5), ("turn",), ("turn",)]
        if write_quorum < 3:  # or there would not be connections to all
            begun = [("append", 5)] * 3 + [("turn",)] * 2 + [("answer", place, 9, "ok") for place in range(3)]
            begun += [("turn",)] * 3
        for step in [*begun, *steps, ("turn",)]:
            await _take(step, writer, connector, futures)
            seen += state_of(writer)[0 if is_exact else 1 :]
            seen += [state_of_connection(socket) for socket in connector.sockets.values()]
        for _ in range(20):
            for socket in connector.sockets.values():
                socket.answer(1000, "ok")
            await asyncio.sleep(0)
        try:
            await writer.close()
        except BookKeeperError as error:
            seen.append(str(error))
        seen += [outcome_of(future) for future in futures]
        seen += [(socket.bookie_id, b"".join(socket.written)) for socket in connector.sockets.values()]
    return seen


async def _take(step: tuple[Any, ...], writer: LedgerWriter, connector: Connector, futures: list[Any]) -> None:
    match step:
        case "append", size:
            try:
                futures.append(writer.append_nowait(bytes(size)))
            except BookKeeperError as error:
                futures.append(str(error))
        case "append all", sizes:
            try:
                futures += [
                    future_of(writer, entry_id) for entry_id in shell_of(writer).append_some([*map(bytes, sizes)])
                ]
            except BookKeeperError as error:
                futures.append(str(error))
        case ("thread",):
            thread = threading.Thread(target=lambda: futures.append(refusal_of(writer)))
            thread.start()
            thread.join()
        case ("turn",):
            await asyncio.sleep(0)
        case "answer", place, count, how:
            socket = connector.sockets.get(BOOKIES[place])
            if socket is not None:
                socket.answer(count, how)
        case "give up", place if writer.last_add_pushed >= 0 and BOOKIES[place] in connector.sockets:
            # As if an add of the next entry had timed out there, so that its answer may still come.
            ids = struct.pack(">qq", writer.ledger_id, writer.last_add_pushed + 1)
            outstanding = connector.sockets[BOOKIES[place]].stream.connection.outstanding
            if outstanding.is_free(b"\x01" + ids):
                outstanding.never_mind(b"\x01" + ids)
        case "cancel", place if place < len(futures) and isinstance(futures[place], AppendFuture):
            futures[place].cancel()


def future_of(writer: LedgerWriter, entry_id: int) -> AppendFuture:
    return AppendFuture(shell_of(writer).outcomes, entry_id)


def refusal_of(writer: LedgerWriter) -> str:
    with pytest.raises(IllegalOperation) as refused:
        writer.append_nowait(b"from another thread")
    return str(refused.value)


def state_of(writer: LedgerWriter) -> Any:
    shell = shell_of(writer)
    window, outcomes = shell.window, shell.outcomes
    counted = (window.entries, window.bytes, window.shared.entries, window.shared.bytes)
    machine = machine_of(writer)
    last = machine.last_add_acknowledged, machine.last_add_confirmed, machine.last_add_pushed, machine.length
    return (
        machine.snapshot(),
        machine.state,
        last,
        counted,
        outcomes.first,
        sorted(outcomes.failed),
        sorted(outcomes.awaited),
    )


def state_of_connection(socket: Socket) -> Any:
    connection, run = socket.stream.connection, socket.stream.run
    begun = None if run is None else cast("OpenRun", run).adds_to(socket.stream)
    requests, size, awaited = connection.load.requests, connection.load.bytes, connection.awaited()
    if begun is not None:
        requests, size = requests + len(begun), size + begun.bytes
        awaited += [frame for frame, _ in begun.adds_from(0)]
    return socket.stream.state, len(connection.frames), requests, size, awaited


def outcome_of(future: Any) -> Any:
    if isinstance(future, str):
        return future
    if not future.done() or future.cancelled():
        return future.done()
    return str(future.exception()) if future.exception() is not None else future.result()


@settings(max_examples=40, deadline=None)
@given(st.sampled_from([2, 3]), st.sampled_from([3, 2]), STEPS)
@example(
    3, 3, [("append", 100)] * 9 + [("turn",), ("answer", 0, 5, "ok"), ("answer", 2, 5, "last first"), ("append", 100)]
)
@example(3, 3, [("append", 100), ("thread",), ("append", 100)])
@example(2, 3, [("turn",), ("give up", 1), ("append", 100), ("turn",), ("turn",), ("append", 100)])
@example(2, 2, [("append", 3000), ("turn",), ("answer", 1, 1, "fenced"), ("append", 1)])
def test_appends(version: int, write_quorum: int, steps: list[tuple[Any, ...]]) -> None:
    same_in_both(lambda: asyncio.run(played(version, write_quorum, steps)))


@settings(max_examples=40, deadline=None)
@given(st.sampled_from([2, 3]), st.sampled_from([3, 2]), st.sampled_from(CORES), STEPS)
@example(
    3, 3, "cython", [("append", 100)] * 3 + [("turn",), ("answer", 0, 3, "ok"), ("answer", 1, 1, "cut"), ("turn",)]
)
@example(2, 3, "python", [("append", 100)] * 3 + [("turn",), ("answer", 2, 2, "ok"), ("answer", 0, 3, "last first")])
@example(2, 2, "cython", [("append", 100)] * 5 + [("turn",), ("answer", 2, 1, "ok"), ("answer", 0, 3, "last first")])
def test_answers_that_are_counted_where_they_arrive_come_to_the_same(
    version: int, write_quorum: int, core: str, steps: list[tuple[Any, ...]]
) -> None:
    with using_core(core):
        counted = asyncio.run(played(version, write_quorum, steps, is_exact=False))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(LedgerAdds, "count", lambda *_, **__: None)
            assert counted == asyncio.run(played(version, write_quorum, steps, is_exact=False))


async def test_a_striped_writer_has_answers_counted_in_these_stories() -> None:
    """Or the property above would be about answers that come one by one."""
    counted: list[str] = []
    with pytest.MonkeyPatch.context() as patch, using_core("python"):
        for name in ("_deal",):
            patch.setattr(StripedTally, name, noting(counted, name, getattr(StripedTally, name)))
        await played(3, 2, [*[("append", 100)] * 5, ("turn",), *[("answer", place, 9, "ok") for place in range(3)]])
    assert counted


@pytest.mark.parametrize("core", CORES)
async def test_a_striped_writer_hears_of_each_entry_once_whatever_the_order_of_bookies(core: str) -> None:
    """Also of one entry in each turn, which goes to one write set, so that later runs are stored before earlier ones."""
    one_by_one: list[str] = []
    with using_core(core):
        async with a_writer(3, 2) as (writer, connector):
            first = [writer.append_nowait(b"for which connections are made") for _ in range(3)]
            while not first[-1].done():
                await asyncio.sleep(0)
                for socket in connector.sockets.values():
                    socket.answer(1, "ok")
            with pytest.MonkeyPatch.context() as patch:
                name = "on_adds_stored"
                patch.setattr(WriterShell, name, noting(one_by_one, name, getattr(WriterShell, name)))
                for bookies in itertools.permutations(BOOKIES):
                    appended = []
                    for _ in range(6):
                        appended.append(writer.append_nowait(b"x"))
                        await asyncio.sleep(0)
                    for bookie_id in bookies:
                        connector.sockets[bookie_id].answer(9, "ok")
                    assert all(future.done() for future in appended)
            await writer.close()
    assert not one_by_one


MANY = [("append all", [100] * 5), ("turn",)]


@settings(max_examples=60, deadline=None)
@given(st.sampled_from([2, 3]), st.sampled_from([3, 2]), st.sampled_from(CORES), STEPS)
@example(3, 3, "python", [*MANY, ("answer", 0, 9, "ok"), ("answer", 1, 9, "ok"), ("append all", [20_000, 20_000, 1])])
@example(3, 3, "cython", [*MANY, ("answer", 0, 9, "ok"), ("answer", 1, 1, "fenced"), *MANY])
@example(2, 3, "python", [("give up", 1), *MANY, ("answer", 0, 9, "ok"), ("answer", 1, 2, "last first"), *MANY])
@example(3, 2, "python", [*MANY, ("answer", 2, 3, "busy"), ("append all", [1])])
def test_appending_many_at_once_comes_to_the_same_as_one_by_one(
    version: int, write_quorum: int, core: str, steps: list[tuple[Any, ...]]
) -> None:
    """To the same bytes for every bookie, the same windows, and the same state of writer and connections after every step."""
    with using_core(core):
        together = asyncio.run(played(version, write_quorum, steps))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(WriterShell, "appends_plainly", False)
            assert together == asyncio.run(played(version, write_quorum, steps))


async def with_connections(writer: LedgerWriter, connector: Connector) -> AppendFuture:
    """Connections stand, and an entry was sent over them, which no bookie has answered."""
    first = writer.append_nowait(b"for which connections are made")
    while not first.done():
        await asyncio.sleep(0)
        for socket in connector.sockets.values():
            socket.answer(1, "ok")
    late = writer.append_nowait(b"x")
    await asyncio.sleep(0)
    return late


@pytest.mark.parametrize("core", CORES)
async def test_what_was_held_back_counts_with_the_answer_of_a_bookie_that_takes_the_place_of_another(core: str) -> None:
    with using_core(core):
        async with a_writer(3, 3, "b3") as (writer, connector):
            late = await with_connections(writer, connector)
            stores, fails, _ = before = machine_of(writer).ensemble
            connector.sockets[stores].answer(1, "ok")
            connector.sockets[fails].stream.abort(Code.BOOKIE_NOT_AVAILABLE, "a test")
            while not late.done():  # though the third does not answer
                await asyncio.sleep(0)
                (new,) = {"b0", "b1", "b2", "b3"} - set(before)
                if new in connector.sockets:
                    connector.sockets[new].answer(1, "ok")
            assert late.result() == 1
            await writer.close()


@pytest.mark.parametrize("core", CORES)
async def test_who_stored_an_entry_that_waits_for_long_is_known_when_its_quorum_times_out(core: str) -> None:
    with using_core(core):
        async with a_writer(3, 3) as (writer, connector):
            late = await with_connections(writer, connector)
            connector.sockets["b1"].answer(1, "ok")
            for expected in (0, 1 << machine_of(writer).ensemble.index("b1")):
                look_for_late_entries(writer)
                assert machine_of(writer).adds.pending[1].acknowledged == expected
            connector.sockets["b2"].answer(1, "ok")
            assert await late == 1
            await writer.close()


STORED = [("append", 100), ("append", 100), ("turn",), ("answer", 0, 9, "ok"), ("answer", 1, 9, "ok")]


def test_an_ordinary_append_is_done_by_the_compiled_core_alone(monkeypatch: Any) -> None:
    """Otherwise the tests above would compare the definition with itself."""
    called: list[str] = []
    with using_core("cython"), monkeypatch.context() as patch:
        for owner, name in ((WriterShell, "_watch"), (WriterShell, "confirm_adds"), (PendingAdds, "acknowledge_each")):
            patch.setattr(owner, name, noting(called, name, getattr(owner, name)))
        asyncio.run(played(3, 3, [*STORED, ("append", 100), ("turn",)]))
    assert called.count("confirm_adds") >= 2
    assert "acknowledge_each" not in called


def noting(called: list[str], name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def noted(*arguments: Any) -> Any:
        called.append(name)
        return function(*arguments)

    return noted


#: What acknowledgements go through.
ON_THE_WAY_BACK: tuple[tuple[Any, str], ...] = (
    (FrameBuffer, "get_buffer"),
    (Stream, "buffer_updated"),
    (ClientConnection, "buffer_updated"),
    (RequestStream, "_stored"),
    (Runs, "follow"),
    (chunks, "runs_of"),
    (Tally, "on_adds_stored"),
    (Tally, "_deal"),
    (StripedTally, "on_adds_stored"),
    (StripedTally, "go_on"),
    (StripedTally, "_deal"),
    (WriterShell, "on_adds_stored_by"),
    (AppendMachine, "acknowledged_by"),
    (PendingAdds, "take_stored"),
    (WriterShell, "on_adds_stored"),
    (AppendMachine, "acknowledged"),
    (PendingAdds, "acknowledge_all"),
    (AppendMachine, "_complete"),
    (PendingAdds, "complete"),
    (WriterShell, "confirm_adds"),
    (WriterWindow, "give_back"),
)


def test_a_function_on_the_way_that_is_replaced_is_called(monkeypatch: Any) -> None:
    """Planted defects replace functions, before a run or in the middle of it; no twin may hide them."""
    with using_core("cython"):
        for owner, name in (*ON_THE_WAY, *ON_THE_WAY_BACK):
            called: list[str] = []
            with monkeypatch.context() as patch:
                patch.setattr(owner, name, noting(called, name, getattr(owner, name)))
                # The first answers wait until the metadata was read over the new connections.
                steps = [*STORED, ("turn",), ("turn",), ("turn",), ("append", 100), ("turn",), *MANY]
                if owner is chunks:  # what was registered by itself, because its key may have been in use
                    steps = [*steps, ("give up", 1), ("append", 100), ("turn",), ("answer", 0, 9, "ok")]
                write_quorum = 2 if owner is StripedTally else 3
                asyncio.run(played(2 if owner in (AddPacketEncoder, chunks) else 3, write_quorum, steps))
            assert called, f"{owner.__name__}.{name}"


def test_chunks_of_acknowledgements_are_counted_by_the_compiled_core_alone() -> None:
    """Of the definitions on the way back none is called, with one acknowledgement in a chunk or several."""
    definitions = {ways_of(owner, name)[0].__code__: f"{owner.__name__}.{name}" for owner, name in ON_THE_WAY_BACK}
    called: list[str] = []

    def on_event(frame: Any, event: str, _: object) -> None:
        if event == "call" and frame.f_code in definitions:
            called.append(definitions[frame.f_code])

    async def play(version: int, write_quorum: int = 3, *, in_a_run: bool = True, counted: bool = True) -> None:
        async with a_writer(version, write_quorum) as (writer, connector):
            first = [
                writer.append_nowait(b"for which connections are made") for _ in range(1 if write_quorum == 3 else 3)
            ]
            while not first[-1].done():
                await asyncio.sleep(0)
                for socket in connector.sockets.values():
                    socket.answer(1, "ok")
            if not counted:
                adds_of(writer).count_no_more()
            futures = [writer.append_nowait(bytes(100)) for _ in range(5)]
            await asyncio.sleep(0)
            if not in_a_run:
                for socket in connector.sockets.values():
                    socket.stream.connection.take_apart()
            sys.setprofile(on_event)
            for socket in connector.sockets.values():
                socket.answer(1, "ok")
                socket.answer(9, "ok")
            sys.setprofile(None)
            assert [future.result() for future in futures] == [len(first) + number for number in range(5)]
            await writer.close()

    with using_core("cython"):
        asyncio.run(play(3))
        asyncio.run(play(2))
        asyncio.run(play(2, 2))
        asyncio.run(play(2, counted=False))
        asyncio.run(play(2, in_a_run=False))
    assert not called
    with using_core("python"):
        asyncio.run(play(3))
        asyncio.run(play(2))
        asyncio.run(play(2, 2))
        asyncio.run(play(2, counted=False))
        asyncio.run(play(2, in_a_run=False))
    assert set(called) == set(definitions.values()), "the definitions are those that were looked for"

"""The compiled core against the definitions: what a connection receives, acknowledgements and hostile bytes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bkclient._client.window import ClientWindow, WriterWindow
from bkclient._core import CORES, using_core
from bkclient.wire import v2, v3
from bkclient.wire.connection import ClientConnection
from bkclient.wire.errors import WireError
from bkclient.wire.framing import FrameBuffer
from bkclient.wire.messages import AddTemplate
from bkclient.wire.outstanding import Load
from tests.bkclient.core.both_cores import needs_compiled_core, same_in_both

pytestmark = needs_compiled_core


def acknowledgement(version: int, entry_id: int) -> bytes:
    template = AddTemplate(ledger_id=5, master_key=bytes(20))
    encoder = v2.AddPacketEncoder(template) if version == 2 else v3.AddEncoder(template)
    return encoder.encode(100 + entry_id, entry_id, b"", b"")[1]


#: What comes next: the acknowledgement of an add, so many frames of it at a time; or bytes that are none.
PIECES = st.lists(
    st.one_of(
        st.integers(0, 40),
        st.integers(0, 40),
        st.integers(0, 40),
        st.sampled_from(
            [b"\0", b"\0\0\0\1a", b"\0\0\x20\0" + bytes(0x2000), b"\0\1\0\0" + bytes(0x10000), b"\x7f" * 9]
        ),
    ),
    max_size=30,
)


class Receiving:
    """A connection that was sent adds, and the bytes that come."""

    def __init__(self, version: int, entries: int, *, is_waited_for: bool) -> None:
        wanted = {b"a key"} if is_waited_for else ()
        self.connection: ClientConnection[Any] = ClientConnection(version, load=Load(1000, 10**6), wanted=wanted)
        for entry_id in range(entries):
            assert self.connection.send_add(
                acknowledgement(version, entry_id), (entry_id, "token", 1.0, 100 + entry_id)
            )
        self.seen: list[Any] = []
        self.is_over = False

    def receive(self, data: bytes, cuts: list[int]) -> list[Any]:
        while data and not self.is_over:
            free = self.connection.get_buffer()
            size = min(len(free), len(data), cuts.pop() if cuts else len(data))
            free[:size] = data[:size]
            data = data[size:]
            self.seen.append(self.connection.buffer_updated(size))
            try:
                self.seen += list(self.connection.answers())
            except WireError as error:
                self.seen.append(str(error))
                self.is_over = True
            frames, load = self.connection.frames, self.connection.load
            self.seen.append((len(frames), frames.capacity, load.requests, load.bytes, list(self.connection.adds)))
        return self.seen


def bytes_of(version: int, pieces: list[Any]) -> bytes:
    return b"".join(acknowledgement(version, piece) if isinstance(piece, int) else piece for piece in pieces)


@given(st.sampled_from([2, 3]), PIECES, st.lists(st.integers(1, 120), max_size=9), st.booleans())
@example(3, list(range(30)), [7, 40, 1, 1, 3], False)
@example(2, [*range(30), b"\0\0\x20\0" + bytes(0x2000), 30], [100, 100], False)
def test_what_a_connection_receives(version: int, pieces: list[Any], cuts: list[int], is_waited_for: bool) -> None:
    data = bytes_of(version, pieces)
    same_in_both(lambda: Receiving(version, 35, is_waited_for=is_waited_for).receive(data, list(cuts)))


@given(st.sampled_from([2, 3]), PIECES, PIECES, st.lists(st.integers(1, 120), max_size=9))
def test_what_one_core_received_the_other_goes_on_with(
    version: int, before: list[Any], after: list[Any], cuts: list[int]
) -> None:
    def run(first: str, second: str) -> list[Any]:
        receiving = Receiving(version, 35, is_waited_for=False)
        with using_core(first):
            receiving.receive(bytes_of(version, before), list(cuts))
        with using_core(second):
            return receiving.receive(bytes_of(version, after), list(cuts))

    assert run("python", "cython") == run("cython", "python")


def test_what_is_counted_twice_is_noticed() -> None:
    # Of a client that was installed pytest rewrites assertions, because of the plugin in it: the definition says more then.
    for core in CORES:
        receiving = Receiving(3, 2, is_waited_for=False)
        receiving.connection.load.requests = 1
        with using_core(core), pytest.raises(AssertionError, match="what is outstanding is counted once"):
            receiving.receive(bytes_of(3, [0, 1]), [])


def test_a_buffer_of_another_class_is_asked_for_its_buffer() -> None:
    class Other(FrameBuffer):
        def get_buffer(self) -> memoryview:
            return super().get_buffer()[:9]

    same_in_both(lambda: len(Other().get_buffer()))


@given(st.lists(st.integers(1, 300), min_size=1, max_size=9), st.integers(1, 9), st.booleans())
def test_places_are_given_back(sizes: list[int], entries: int, has_gap: bool) -> None:
    async def run() -> Any:
        shared = ClientWindow(8, 800)
        windows = [WriterWindow(4, 400, shared) for _ in range(2)]
        for number, size in enumerate(sizes):
            windows[number % 2].take(size)
        if has_gap:
            windows[0].enter_gap(sizes[0])
        waiters = [asyncio.ensure_future(window.wait()) for window in windows for _ in range(2)]
        await asyncio.sleep(0)
        seen = []
        for size in sizes[:entries]:
            windows[0].give_back(size)
            await asyncio.sleep(0)
            counted = [(line.entries, line.bytes, line.woken, len(line.waiters)) for line in (*windows, shared)]
            seen.append((counted, [waiter.done() for waiter in waiters]))
        windows[1].give_back(sum(sizes), len(sizes))
        for window in windows:
            window.release()
        await asyncio.gather(*waiters)
        return seen

    same_in_both(lambda: asyncio.run(run()))

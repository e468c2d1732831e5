"""Entries handed to their connections many at a time: bookies get the requests, and writers the outcomes, of one by one."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import combinations, repeat
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bkclient._core import CORES, is_built, using_core
from bkclient.ledger import DigestType
from bkclient.protocol.append_ports import Quorums
from bkclient.transport import open_run
from bkclient.transport.adds import adds_over
from bkclient.transport.bulk import LedgerAdds
from bkclient.transport.tcp_config import TcpTransportConfig
from bkclient.wire.entry import EntryCodec
from bkclient.wire.messages import AddRequest, AddTemplate, ReadRequest, WriteFlags
from bkclient.wire.server_connection import ServerConnection
from simbookie.world.loop import VirtualTimeLoop
from tests.bkclient.transport.sockets import transport_over

BOOKIES = ("b0", "b1", "b2")
#: The write sets of striped ledgers; the last one has a bookie that nobody else sends to.
TWO = (("b0", "b1"), ("b1", "b2"))
STRIPED = (("b0", "b1"), ("b1", "b2"), ("b2", "b0"))
REACHING = (("b0", "b1"), ("b1", "b2"), ("b2", "b3"), ("b3", "b0"))
APART = (("b0", "b3"), ("b1", "b2"))
CODEC = EntryCodec(1, DigestType.CRC32C, b"")
#: Where ids come to take one more byte in version 3, and where they begin.
FIRST_IDS = (0, 124, 16_380)
FRAME_MAX = 1_500

STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("send"),
            st.lists(st.sampled_from([0, 5, 100, 100, 100, 700, 1_500]), min_size=1, max_size=14),
            st.sampled_from([(BOOKIES,), (BOOKIES,), (("b0", "b1"),), TWO, STRIPED, REACHING]),
        ),
        st.tuples(st.just("again"), st.integers(1, 4)),
        st.tuples(st.just("turn")),
        st.tuples(st.just("read"), st.sampled_from(BOOKIES)),
        st.tuples(
            st.just("answer"),
            st.integers(0, 2),
            st.integers(1, 20),
            st.sampled_from(["ok", "ok", "last first", "busy"]),
        ),
        st.tuples(st.just("lose"), st.integers(0, 2)),
        st.tuples(st.just("pause"), st.integers(0, 2)),
        st.tuples(st.just("wait"), st.sampled_from([1.0, 6.0])),
    ),
    max_size=16,
)


class Told:
    """What a writer hears, in order."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def on_adds_stored(self, bookie_id: str, entry_ids: Sequence[int]) -> None:
        self.told += [(bookie_id, entry_id, "stored") for entry_id in entry_ids]

    def on_adds_stored_by(self, quorums: Quorums, entry_ids: Sequence[int]) -> None:
        self.told += [(quorums.bookies_of(place), entry_id, "stored") for place, entry_id in enumerate(entry_ids)]

    def on_add_failed(self, bookie_id: str, entry_id: int, code: int) -> None:
        self.told.append((bookie_id, entry_id, int(code)))


class Play:
    """A transport, a sender of entries, and what is sent in a step."""

    def __init__(
        self, version: int, first_id: int, *, together: bool, deferred: bool, counts: bool, most: int = 20
    ) -> None:
        config = TcpTransportConfig(
            protocol_version=version,
            add_timeout_s=5.0,
            max_frame_size_bytes=FRAME_MAX,
            max_outstanding_requests=most,
            max_outstanding_bytes=300 * most,
            write_buffer_low_water_bytes=1,
            write_buffer_high_water_bytes=2,
        )
        self.transport, self.connector = transport_over(config)
        self.replies = Told()
        flags = WriteFlags.DEFERRED_SYNC if deferred else WriteFlags(0)
        template = AddTemplate(ledger_id=1, master_key=CODEC.master_key, write_flags=flags)
        adds = adds_over(self.transport, template, self.replies)
        assert isinstance(adds, LedgerAdds)
        self.adds = adds
        if counts:
            self.adds.count(2, 3, is_striped=True)  # and not over connections that are made later
        self.first_id = self.next_id = first_id
        self.together = together

    async def take(self, step: tuple[Any, ...]) -> None:
        sockets = self.connector.sockets
        match step:
            case "send", sizes, write_sets:
                first, self.next_id = self.next_id, self.next_id + len(sizes)
                self.send(range(first, self.next_id), sizes, write_sets)
            case "again", count:  # as after a change of the ensemble
                again = range(max(self.first_id, self.next_id - count), self.next_id)
                self.send(again, [100] * len(again), (BOOKIES,))
            case ("turn",):
                await asyncio.sleep(0)
            case "read", bookie_id:
                self.transport.submit(bookie_id, ReadRequest(1, 0), lambda *_: None)
            case "answer", place, count, how if BOOKIES[place] in sockets and sockets[BOOKIES[place]].is_open:
                socket = sockets[BOOKIES[place]]
                socket.unanswered = [each for each in socket.unanswered if isinstance(each.request, AddRequest)]
                socket.answer(count, how)
            case "lose", place if BOOKIES[place] in sockets:
                sockets[BOOKIES[place]].close()
            case "break by a write", place if BOOKIES[place] in sockets:
                sockets[BOOKIES[place]].breaks_by_a_write = True
            case "pause", place if BOOKIES[place] in sockets and sockets[BOOKIES[place]].is_open:
                sockets[BOOKIES[place]].stream.pause_writing()
            case "wait", seconds:
                await asyncio.sleep(seconds)
        self.transport.check()

    def send(self, entry_ids: range, sizes: list[int], write_sets: tuple[tuple[str, ...], ...]) -> None:
        payloads = [bytes(size) for size in sizes]
        headers = list(map(CODEC.encode_header, entry_ids, repeat(-1), repeat(0), payloads))
        if self.together:
            self.adds.send_all(write_sets, tuple(entry_ids), headers, payloads)
            return
        for entry_id, header, payload in zip(entry_ids, headers, payloads, strict=True):
            self.adds.send(write_sets[entry_id % len(write_sets)], entry_id, header, payload)


async def played(
    version: int, first_id: int, steps: list[tuple[Any, ...]], *, together: bool, deferred: bool
) -> tuple[list[Any], list[int]]:
    """All that bookies got and the writer heard, and how many entries went into runs together."""
    play = Play(version, first_id, together=together, deferred=deferred, counts=len(steps) % 2 > 0)
    sizes_of_runs = []
    for step in [("send", [5], (BOOKIES,)), ("turn",), ("turn",), ("answer", 0, 1, "ok"), *steps, ("turn",)]:
        await play.take(step)
        sizes_of_runs += [len(run) for socket in play.connector.all for run in socket.stream.connection.runs or ()]
    await play.transport.aclose()
    got = [(socket.bookie_id, requests_in(b"".join(socket.written))) for socket in play.connector.all]
    return [got, play.replies.told], sizes_of_runs


def requests_in(data: bytes) -> list[Any]:
    """But for transaction ids, which an entry that goes by itself takes later than those beside it."""
    requests = [received.request for received in ServerConnection().receive(data)]
    return [
        (each.entry_id, each.body, each.write_flags) if isinstance(each, AddRequest) else type(each)
        for each in requests
    ]


def in_virtual_time(*arguments: Any, **options: Any) -> tuple[list[Any], list[int]]:
    loop = VirtualTimeLoop()
    try:
        return loop.run_until_complete(played(*arguments, **options))
    finally:
        loop.close()


@pytest.fixture(autouse=True)
def small_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_run, "MOST_ENTRIES", 6)
    monkeypatch.setattr(open_run, "MOST_BYTES", 2_000)


CONNECTED = [("answer", 1, 1, "ok"), ("answer", 2, 1, "ok"), ("turn",)]


@settings(deadline=None, max_examples=100)
@given(
    version=st.sampled_from([2, 3]),
    first_id=st.sampled_from(FIRST_IDS),
    core=st.sampled_from(CORES if is_built() else CORES[:1]),
    steps=STEPS,
    deferred=st.booleans(),
)
@example(version=3, first_id=124, core="python", steps=[*CONNECTED, ("send", [100] * 9, (BOOKIES,))], deferred=False)
@example(
    version=2, first_id=0, core="python", steps=[*CONNECTED, ("send", [5, 1_500, 700, 100], (BOOKIES,))], deferred=False
)
@example(version=3, first_id=0, core="python", steps=[*CONNECTED, ("send", [100] * 14, (BOOKIES,))] * 2, deferred=True)
@example(
    version=3,
    first_id=0,
    core="python",
    steps=[*CONNECTED, ("send", [700] * 14, (BOOKIES,)), ("turn",)],
    deferred=False,
)
@example(version=3, first_id=0, core="python", steps=[*CONNECTED, ("send", [1_400] * 8, (BOOKIES,))], deferred=False)
@example(  # the third bookie's connection is newer than those that are counted
    version=3,
    first_id=1,
    core="python",
    steps=[
        *CONNECTED,
        ("lose", 2),
        ("turn",),
        *[("send", [5], (BOOKIES,)), ("turn",), ("turn",)],
        *[
            ("send", [5] * 6, STRIPED),
            ("turn",),
            ("answer", 0, 9, "ok"),
            ("answer", 1, 9, "ok"),
            ("answer", 2, 9, "ok"),
        ],
    ],
    deferred=False,
)
@example(  # there is room for one more request
    version=2,
    first_id=0,
    core="python",
    steps=[*CONNECTED, ("send", [5] * 14, (BOOKIES,)), ("send", [5] * 5, (BOOKIES,)), ("send", [5] * 3, (BOOKIES,))],
    deferred=False,
)
@example(  # a second write set leaves the run less room than it has used
    version=3,
    first_id=0,
    core="python",
    steps=[
        *[*CONNECTED, ("send", [5] * 2, APART), ("turn",), ("turn",), ("send", [5] * 14, APART[1:])],
        *[("send", [5] * 3, APART[1:]), ("turn",), ("send", [5] * 4, APART[:1]), ("send", [5] * 4, APART)],
    ],
    deferred=False,
)
@example(  # one bookie takes nothing, because what timed out was not even sent
    version=2,
    first_id=0,
    core="python",
    steps=[*CONNECTED, ("pause", 1), ("send", [700] * 12, (BOOKIES,)), ("wait", 6.0), ("send", [100] * 14, STRIPED)],
    deferred=False,
)
@example(  # a connection breaks by what is sent, which it does with no event loop: what was encoded for it is sent anew
    version=3,
    first_id=1,
    core="python",
    steps=[*CONNECTED, ("send", [5], TWO), ("break by a write", 2), ("send", [100] * 14, TWO)],
    deferred=False,
)
def test_requests_and_outcomes_are_those_of_one_entry_after_the_other(
    version: int, first_id: int, core: str, steps: list[tuple[Any, ...]], deferred: bool
) -> None:
    """Whatever ends runs, and makes entries go by themselves: limits, sizes, keys in use, connections that break."""
    with using_core(core):
        together, _ = in_virtual_time(version, first_id, steps, together=True, deferred=deferred and version == 3)
        each, _ = in_virtual_time(version, first_id, steps, together=False, deferred=deferred and version == 3)
    assert together == each


def test_a_run_has_no_more_write_sets_than_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their numbers are bytes, and a write set that is included for a later entry is one before its entry comes."""
    monkeypatch.setattr(open_run, "MOST_ENTRIES", 256)
    monkeypatch.setattr(open_run, "MOST_BYTES", 1_000_000)
    bookies = [f"b{number}" for number in range(24)]
    sets = list(combinations(bookies, 2))[:259]

    async def main() -> list[int]:
        play = Play(2, 0, together=True, deferred=False, counts=False, most=1_000)
        for bookie_id in bookies:
            play.transport.submit(bookie_id, ReadRequest(1, 0), lambda *_: None)
        await asyncio.sleep(1)
        for entry_id, write_set in enumerate(sets[:254]):
            play.send(range(entry_id, entry_id + 1), [5], (write_set,))
        play.send(range(254, 264), [5] * 10, tuple(sets[254:]))
        await asyncio.sleep(0)
        got = [requests_in(b"".join(socket.written)) for socket in play.connector.all]
        await play.transport.aclose()
        return sorted(request[0] for requests in got for request in requests if isinstance(request, tuple))

    loop = VirtualTimeLoop()
    try:
        assert loop.run_until_complete(main()) == [entry_id for entry_id in range(264) for _ in range(2)]
    finally:
        loop.close()


def test_they_go_in_runs() -> None:
    """Or the property would be about entries by themselves."""
    steps = [*CONNECTED, ("send", [100] * 6, (BOOKIES,)), ("turn",)]
    for version in (2, 3):
        _, in_runs = in_virtual_time(version, 1, steps, together=True, deferred=False)
        assert in_runs[-3:] == [6, 6, 6]

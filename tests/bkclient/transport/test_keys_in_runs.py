"""No outcome goes to the wrong add, however runs, adds by themselves and lanes share the keys of version 2.

Several senders, two of them of one ledger, send entries in any order, again too, and requests for single adds go between. Bookies
answer in any order, late, or not at all. The payload of an add is its number, so the test knows whose answer each one is.
"""

from __future__ import annotations

import asyncio
import struct
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any, Final

import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from bkclient._core import using_core
from bkclient.errors import Code
from bkclient.transport.adds import AddSender, adds_over, sends_many
from bkclient.transport.bulk import LedgerAdds
from bkclient.transport.open_run import WriteSets
from bkclient.transport.tcp_config import TcpTransportConfig
from bkclient.wire.connection import ClientConnection
from bkclient.wire.messages import AddRequest, AddTemplate, Operation, Request, Response, Status, code_for_status
from simbookie.world.loop import VirtualTimeLoop
from tests.bkclient.transport.sockets import transport_over

BOOKIES: Final = ("b0", "b1", "b2")
WRITE_SETS: Final = (BOOKIES, BOOKIES, ("b1", "b2", "b0"), ("b0", "b1"), ("b2",))
#: The ledgers of the senders, and who of them writes as a recovery does.
LEDGERS: Final = (1, 1, 2)
KEY: Final = bytes(20)

#: Who was told of which entry, by which bookie, and how it ended.
Outcome = tuple[str, int, str, int]

STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("send"),
            st.integers(0, len(LEDGERS) - 1),
            st.lists(st.integers(0, 7), min_size=1, max_size=4),
            st.sampled_from(WRITE_SETS),
        ),
        st.tuples(st.just("send on"), st.integers(0, len(LEDGERS) - 1), st.integers(1, 4)),
        st.tuples(st.just("send many"), st.integers(0, len(LEDGERS) - 1), st.integers(1, 4)),
        st.tuples(st.just("submit"), st.sampled_from(BOOKIES), st.integers(1, 2), st.integers(0, 7)),
        st.tuples(st.just("replace"), st.integers(0, len(LEDGERS) - 1)),
        st.tuples(st.just("wait"), st.sampled_from([0.0, 0.0, 0.0, 4.0, 11.0])),
        st.tuples(
            st.just("answer"),
            st.integers(0, 5),
            st.lists(st.sampled_from([0, 0, 0, 0, 1, 5]), min_size=1, max_size=6),
            st.sampled_from([Status.OK, Status.OK, Status.OK, Status.IO_ERROR]),
            st.integers(0, 60),
        ),
    ),
    max_size=30,
)


def header(ledger_id: int, entry_id: int) -> bytes:
    """What bookies know an entry by, and no digest."""
    return struct.pack(">qqqqI", ledger_id, entry_id, -1, 0, 0)


class Told:
    """Who hears of the adds of one sender; the list is kept by the test, so that this may be gone before it."""

    def __init__(self, name: str, told: list[Outcome]) -> None:
        self.name, self.told = name, told

    def on_adds_stored(self, bookie_id: str, entry_ids: Sequence[int]) -> None:
        self.told += [(self.name, entry_id, bookie_id, Code.OK) for entry_id in entry_ids]

    def on_add_failed(self, bookie_id: str, entry_id: int, code: int) -> None:
        self.told.append((self.name, entry_id, bookie_id, code))


class Play:
    """A transport, its senders, and what is owed to them."""

    def __init__(self, version: int) -> None:
        self.told: list[Outcome] = []
        self.transport, self.connector = transport_over(
            TcpTransportConfig(protocol_version=version, add_timeout_s=10.0, lanes_max=3, lane_given_up_max=4)
        )
        self.made = 0
        #: With the name under which each is told.
        self.senders = [self._new_sender(place) for place in range(len(LEDGERS))]
        self.next_ids = [0] * len(LEDGERS)
        #: By the number of an add, and by bookie, until it is answered: the outcome that is owed or timed out, but for the code.
        self.owed: dict[tuple[int, str], tuple[str, int, str]] = {}
        #: How many of those with this outcome timed out.
        self.timed_out: Counter[tuple[str, int, str]] = Counter()
        self.number = 0

    def _new_sender(self, place: int) -> tuple[str, AddSender]:
        self.made += 1
        name = f"sender {self.made}"
        template = AddTemplate(ledger_id=LEDGERS[place], master_key=KEY, recovery=place == 1)
        return name, adds_over(self.transport, template, Told(name, self.told))

    async def take(self, step: tuple[Any, ...]) -> None:
        match step:
            case "send", place, entry_ids, bookies:
                for entry_id in entry_ids:
                    self._send(place, entry_id, bookies)
            case "send on", place, count:
                for _ in range(count):
                    self._send(place, self.next_ids[place], BOOKIES)
            case "send many", place, count:
                self._send_many(place, range(self.next_ids[place], self.next_ids[place] + count))
            case "submit", bookie_id, ledger_id, entry_id:
                request = AddRequest(
                    ledger_id, entry_id, KEY, header(ledger_id, entry_id), self._owe("alone", entry_id, (bookie_id,))
                )
                self.transport.submit(bookie_id, request, self._on_reply)
            case "replace", place:
                self.senders[place] = self._new_sender(place)
            case "wait", seconds:
                self._expect(await self._during(seconds))
            case "answer", place, picks, status, cut:
                if self.connector.all:
                    self._answer(self.connector.all[place % len(self.connector.all)], picks, status, cut)
        self.transport.check()

    def _send(self, place: int, entry_id: int, bookies: tuple[str, ...]) -> None:
        self.next_ids[place] = max(self.next_ids[place], entry_id + 1)
        name, sender = self.senders[place]
        sender.send(bookies, entry_id, header(LEDGERS[place], entry_id), self._owe(name, entry_id, bookies))

    def _send_many(self, place: int, entry_ids: range) -> None:
        self.next_ids[place] = entry_ids.stop
        name, sender = self.senders[place]
        assert sends_many(sender)
        headers = [header(LEDGERS[place], entry_id) for entry_id in entry_ids]
        sender.send_all((BOOKIES,), entry_ids, headers, [self._owe(name, entry_id, BOOKIES) for entry_id in entry_ids])

    def _owe(self, name: str, entry_id: int, bookies: tuple[str, ...]) -> bytes:
        """The payload of an add to these bookies."""
        self.number += 1
        self.owed.update({(self.number, bookie_id): (name, entry_id, bookie_id) for bookie_id in bookies})
        return self.number.to_bytes(8, "big")

    def _on_reply(self, bookie_id: str, request: Request, code: int, _: Response | None) -> None:
        assert isinstance(request, AddRequest)
        self.told.append(("alone", request.entry_id, bookie_id, int(code)))

    async def _during(self, seconds: float) -> list[Outcome]:
        self.told.clear()
        await asyncio.sleep(seconds)
        return list(self.told)

    def _expect(self, told: list[Outcome]) -> None:
        """These were told without an answer, so they timed out."""
        for name, entry_id, bookie_id, code in told:
            assert code == Code.TIMEOUT, Code(code)
            self.timed_out[name, entry_id, bookie_id] += 1
        alike = Counter(self.owed.values())
        assert all(alike[owed] >= count for owed, count in self.timed_out.items()), "only what is owed times out"

    def _answer(self, socket: Any, picks: list[int], status: Status, cut: int) -> None:
        answered: list[tuple[str, int, str]] = []
        data = b""
        for pick in picks:
            if not socket.unanswered:
                break
            received = socket.unanswered.pop(min(pick, len(socket.unanswered) - 1))
            data += socket.answer_to(received, status)
            body = received.request.header + received.request.payload
            answered.append(self.owed[int.from_bytes(body[-8:], "big"), socket.bookie_id])
            del self.owed[int.from_bytes(body[-8:], "big"), socket.bookie_id]
        self.told.clear()
        socket.feed(data[:cut])
        socket.feed(data[cut:])
        code = code_for_status(status, Operation.ADD_ENTRY) if status else Code.OK
        told = iter([*self.told, None])
        next_told = next(told)
        for owed in answered:
            if next_told == (*owed, code):
                next_told = next(told)
            else:  # it timed out; of adds that are alike nobody knows which of them did
                assert self.timed_out[owed] > 0, f"nobody was told of {owed}"
                self.timed_out[owed] -= 1
        assert next_told is None, "an answer is told once, and not after a timeout"
        alike = Counter(self.owed.values())
        assert all(alike[owed] >= count for owed, count in self.timed_out.items()), "what timed out is not told"

    async def end(self) -> None:
        """Let the rest be answered, or time out."""
        self._expect(await self._during(0.0))
        for socket in self.connector.all:
            self._answer(socket, [0] * len(socket.unanswered), Status.OK, 30)
        for _ in range(3):
            self._expect(await self._during(15.0))
            for socket in self.connector.all:
                self._answer(socket, [0] * len(socket.unanswered), Status.OK, 30)
        assert Counter(self.owed.values()) == self.timed_out, "every add has an outcome"
        self.transport.check()
        await self.transport.aclose()


async def played(version: int, steps: list[tuple[Any, ...]]) -> dict[str, int]:
    play = Play(version)
    counts: dict[str, int] = defaultdict(int)
    connected = [("answer", place, [0], Status.OK, 0) for place in range(len(BOOKIES))]
    for step in [("send on", 0, 1), ("wait", 0.0), ("wait", 0.0), *connected, *steps]:
        await play.take(step)
        for socket in play.connector.all:
            counts["in runs"] += socket.stream.connection.runs.outstanding if socket.stream.connection.runs else 0
            counts["by themselves"] += len(socket.stream.connection.adds)
    await play.end()
    return counts


def in_virtual_time(version: int, steps: list[tuple[Any, ...]]) -> dict[str, int]:
    loop = VirtualTimeLoop()
    try:
        return loop.run_until_complete(played(version, steps))
    finally:
        loop.close()


@pytest.mark.parametrize("version", [2, 3])
@settings(deadline=None, max_examples=60)
@given(steps=STEPS)
@example(steps=[("send", 0, [1, 2, 1], BOOKIES), ("answer", 0, [0, 0, 0], Status.OK, 0)])
@example(
    steps=[("send on", 0, 3), ("wait", 0.0), ("send", 1, [3, 2, 4], BOOKIES), ("answer", 0, [0] * 6, Status.OK, 30)]
)
@example(steps=[("submit", "b0", 1, 2), ("send on", 0, 3), ("wait", 0.0), ("answer", 0, [1, 0, 0], Status.OK, 9)])
@example(steps=[("submit", "b0", 1, 2), ("send many", 0, 3), ("wait", 0.0), ("answer", 0, [1, 0, 0], Status.OK, 9)])
@example(
    steps=[("send many", 0, 3), ("send", 0, [2], BOOKIES), ("wait", 0.0), ("answer", 0, [2, 0], Status.IO_ERROR, 9)]
)
@example(steps=[("send", 0, [0, 0], BOOKIES), ("send", 0, [0, 0, 0, 0], BOOKIES)])
@example(steps=[("send on", 0, 3), ("wait", 11.0), ("replace", 0), ("replace", 1), ("send", 0, [1, 2, 3], BOOKIES)])
def test_every_outcome_is_that_of_its_own_add(version: int, steps: list[tuple[Any, ...]]) -> None:
    in_virtual_time(version, steps)


def test_most_of_it_goes_in_runs() -> None:
    """Or the property would be about adds by themselves."""
    steps = [("send on", 0, 4), ("send on", 2, 4), ("wait", 0.0)]
    found = [in_virtual_time(version, steps) for version in (2, 3)]
    assert [(each["in runs"], each["by themselves"] - 9) for each in found] == [(24, 0)] * 2, "9: the first entry"
    assert in_virtual_time(2, [("send", 0, [1, 2, 2, 4, 3], BOOKIES), ("wait", 0.0)])["by themselves"] > 9


def claims_always(self: WriteSets, ledger_id: int, replies: object) -> bool:
    """The defect: two senders of a ledger put entries into runs."""
    return True


def knows_nothing(self: ClientConnection[Any], acknowledgement: bytes) -> bool:
    """The defect: nobody looks whether a key was given up, or belongs to an add that is in no run."""
    return True


class Forgetful:
    """The defect: a sender does not note what it has put into runs."""

    def __get__(self, owner: object, _: type | None = None) -> int:
        return -1

    def __set__(self, owner: object, value: int) -> None: ...


@pytest.mark.deep
@pytest.mark.parametrize(
    ("owner", "name", "defect"),
    [
        (WriteSets, "claim", claims_always),
        (ClientConnection, "is_unknown", knows_nothing),
        (LedgerAdds, "_last_in_run", Forgetful()),
    ],
    ids=["claim", "unknown", "last in run"],
)
def test_the_property_finds_a_key_that_two_adds_have(
    owner: type, name: str, defect: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, name, defect)

    @settings(deadline=None, max_examples=1000, database=None, phases=[Phase.generate])
    @given(steps=STEPS)
    def fails(steps: list[tuple[Any, ...]]) -> None:
        in_virtual_time(2, steps)

    with using_core("python"), pytest.raises(AssertionError):
        fails()

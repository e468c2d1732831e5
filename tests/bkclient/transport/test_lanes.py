"""The rules of lanes, played with real connections of version 2 and a bookie that answers what it likes, when it likes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from bkclient.transport.lanes import Lanes
from bkclient.wire import v2
from bkclient.wire.connection import ClientConnection
from bkclient.wire.envelope import ReceivedRequest
from bkclient.wire.messages import ReadRequest, ReadResponse, Request, Status
from bkclient.wire.outstanding import Outstanding
from bkclient.wire.server_connection import ServerConnection

TIMEOUT_S = 5.0
IDLE_S = 30.0


class Lane:
    """A connection and the bookie's end of it."""

    def __init__(self, bench: Bench) -> None:
        self.connection: ClientConnection[int] = ClientConnection(2, wanted=bench.lanes.waiting)
        self.wire = ServerConnection()
        self.at_bookie: dict[int, ReceivedRequest] = {}
        self.is_closed = False

    @property
    def pending_requests(self) -> int:
        return self.connection.outstanding_requests

    @property
    def given_up(self) -> int:
        return self.connection.outstanding.given_up

    def is_free(self, key: bytes) -> bool:
        return key not in self.connection.outstanding.entries

    def is_given_up(self, key: bytes) -> bool:
        return self.connection.outstanding.is_given_up(key)


class Bench:
    """A link without sockets: reads have serial numbers, outcomes are noted under them."""

    def __init__(self, lanes_max: int = 3, given_up_max: int = 4) -> None:
        self.lanes: Lanes[Lane, int] = Lanes(self, lanes_max=lanes_max, given_up_max=given_up_max, idle_s=IDLE_S)
        self.lanes_max = lanes_max
        self.now = 0.0
        self.requests: list[Request] = []
        self.sent_at: list[float] = []
        self.outcomes: dict[int, str] = {}
        self.opened: list[Lane] = []
        self.is_backing_off = False

    # LanePorts

    def open_lane(self) -> Lane | None:
        if self.is_backing_off:
            return None
        self.opened.append(Lane(self))
        return self.opened[-1]

    def close_lane(self, lane: Lane) -> None:
        assert not lane.pending_requests
        assert lane not in self.lanes.all
        lane.is_closed = True

    def send(self, lane: Lane, request: int) -> None:
        assert lane in self.lanes.active
        data = b"".join(lane.connection.send(self.requests[request], request, self.now + TIMEOUT_S))
        (lane.at_bookie[request],) = lane.wire.receive(data)

    # What happens

    def read(self, entry_id: int = 0, *, fence: bool = False) -> int:
        serial = len(self.requests)
        self.requests.append(ReadRequest(1, entry_id, bytes(20) if fence else None))
        if not self.lanes.submit(v2.match_of(self.requests[serial]), serial, self.now + TIMEOUT_S):
            self.note(serial, "no lane")
        return serial

    def answer(self, lane: Lane, serial: int) -> None:
        at_bookie = lane.at_bookie.pop(serial)
        assert isinstance(at_bookie.request, ReadRequest)
        response = ReadResponse(Status.NO_ENTRY, 1, at_bookie.request.entry_id)
        got = [token for _, token, _, _ in lane.connection.receive(lane.wire.encode_response(at_bookie, response))]
        assert got in ([], [serial]), "the answer to one request settled another"
        assert bool(got) == (serial not in self.outcomes)
        for token in got:
            self.note(token, "answered")
        self.settle(lane)

    def wait(self, seconds: float) -> None:
        self.now += seconds
        for lane in self.lanes.all:
            expired = lane.connection.expire(self.now)
            for _, serial in expired:
                self.note(serial, "timeout")
            if expired:
                self.settle(lane)
        for serial in self.lanes.sweep(self.now):
            self.note(serial, "timeout")

    def lose(self, lane: Lane) -> None:
        assert self.lanes.lost(lane)
        lane.is_closed = True
        for serial in [serial for _, serial in lane.connection.abandon()] + self.lanes.revive():
            self.note(serial, "lost")

    def settle(self, lane: Lane) -> None:
        self.lanes.settled(lane, self.now)
        changed, lane.connection.changed = lane.connection.changed, []
        self.lanes.changed(changed)

    def note(self, serial: int, outcome: str) -> None:
        assert serial not in self.outcomes, "a request has one outcome"
        self.outcomes[serial] = outcome

    @property
    def waiting(self) -> list[int]:
        return [serial for queue in self.lanes.waiting.values() for _, serial in queue]

    def check(self, *, is_looked_after: bool = False) -> None:
        """What holds always, and what does after somebody has looked: one that waits makes room once when it comes."""
        lanes = self.lanes
        assert len(lanes.all) <= self.lanes_max
        assert len(lanes.retiring) < self.lanes_max
        assert all(lane.pending_requests for lane in lanes.retiring), "a lane without requests does not linger"
        assert set(lanes.all) == {lane for lane in self.opened if not lane.is_closed}
        assert all(lanes.waiting.values())
        for key in lanes.waiting:
            assert not any(lane.is_free(key) for lane in lanes.active), "nothing waits for a key that is free"
            assert len(lanes.all) == self.lanes_max, "nothing waits while there is room"
            may_retire = is_looked_after and len(lanes.retiring) < self.lanes_max - 1
            assert not (may_retire and any(lane.is_given_up(key) for lane in lanes.active)), "nor while it can be made"
        under_way = [serial for lane in lanes.all for serial in lane.at_bookie if serial not in self.outcomes]
        assert sorted(under_way + self.waiting + list(self.outcomes)) == list(range(len(self.requests)))


def test_one_lane_serves_different_keys() -> None:
    bench = Bench()
    for entry_id in range(100):
        bench.read(entry_id)
    assert len(bench.opened) == 1
    assert not bench.lanes.need_care()


def test_a_request_whose_key_is_taken_goes_over_another_lane() -> None:
    bench = Bench()
    bench.read(0)
    bench.read(0, fence=True)
    bench.read(1)
    first, second = bench.lanes.active
    assert (list(first.at_bookie), list(second.at_bookie)) == ([0, 2], [1])
    bench.answer(first, 0)
    bench.read(0)
    assert list(first.at_bookie) == [2, 3], "the first lane is used wherever it can be"


def test_above_the_bound_requests_wait_in_order_and_go_on_as_keys_become_free() -> None:
    bench = Bench(lanes_max=2)
    for _ in range(5):
        bench.read(0)
    assert bench.waiting == [2, 3, 4]
    first, second = bench.lanes.active
    bench.answer(second, 1)
    assert (list(second.at_bookie), bench.waiting) == ([2], [3, 4])
    bench.answer(first, 0)
    assert (list(first.at_bookie), bench.waiting) == ([3], [4])
    bench.check()


def test_what_waits_for_a_lane_has_a_deadline() -> None:
    bench = Bench(lanes_max=2)
    bench.read(0)
    bench.read(0)
    bench.wait(TIMEOUT_S - 1)
    bench.read(0)
    bench.lanes.retiring.append(Lane(bench))  # there is no room
    bench.wait(1)
    assert bench.outcomes == {0: "timeout", 1: "timeout"}
    assert bench.waiting == [2]
    bench.wait(TIMEOUT_S - 1)
    assert bench.outcomes[2] == "timeout"
    assert bench.lanes.waiting == {}


def test_a_lane_with_a_given_up_key_that_is_needed_makes_room() -> None:
    bench = Bench(lanes_max=2)
    bench.read(0)
    bench.read(0)
    bench.wait(TIMEOUT_S)
    assert [lane.given_up for lane in bench.lanes.active] == [1, 1]
    third = bench.read(0)
    assert [lane.is_closed for lane in bench.opened] == [False, True, False], "rather not the first"
    assert list(bench.opened[2].at_bookie) == [third]
    bench.check()


def test_a_lane_that_is_opened_for_one_key_takes_the_others_that_are_waited_for() -> None:
    bench = Bench(lanes_max=2)
    for entry_id in (0, 1):
        bench.read(entry_id)
        bench.read(entry_id)
    bench.wait(TIMEOUT_S)
    bench.is_backing_off = True
    assert [bench.read(0), bench.waiting] == [4, [4]], "a lane was closed, and no other can be opened"
    bench.is_backing_off = False
    bench.read(1)
    assert (bench.waiting, sorted(bench.opened[2].at_bookie)) == ([], [4, 5])
    bench.check()


def test_rather_a_lane_makes_room_that_can_be_closed_at_once() -> None:
    bench = Bench(lanes_max=3)
    for _ in range(3):
        bench.read(0)
    bench.wait(TIMEOUT_S)
    bench.read(1)
    bench.read(1)
    bench.read(0)
    assert [lane.is_closed for lane in bench.opened] == [False, False, True, False]
    assert bench.waiting == []


def test_a_retired_lane_answers_what_it_has_and_takes_no_more() -> None:
    bench = Bench(lanes_max=2, given_up_max=1)
    bench.read(0)
    bench.wait(TIMEOUT_S - 1)
    bench.read(1)
    bench.wait(1)
    (retired,) = bench.lanes.retiring
    bench.read(2)
    assert (list(retired.at_bookie), list(bench.lanes.active[0].at_bookie)) == ([0, 1], [2])
    bench.answer(retired, 1)
    assert retired.is_closed
    bench.check()


def test_lanes_but_the_first_are_closed_when_idle() -> None:
    bench = Bench()
    bench.read(0)
    bench.read(0)
    first, second = bench.lanes.active
    bench.answer(second, 1)
    bench.answer(first, 0)
    bench.wait(IDLE_S - 1)
    assert bench.lanes.active == [first, second]
    bench.wait(1)
    assert (bench.lanes.active, second.is_closed, bench.lanes.need_care()) == ([first], True, False)


def test_while_the_bookie_is_backed_off_from_requests_wait_for_the_lanes_there_are() -> None:
    bench = Bench()
    bench.is_backing_off = True
    bench.read(0)
    assert bench.outcomes == {0: "no lane"}
    bench.is_backing_off = False
    bench.read(0)
    bench.is_backing_off = True
    bench.read(0)
    assert bench.waiting == [2]
    bench.is_backing_off = False
    bench.wait(1)
    assert bench.waiting == []
    bench.is_backing_off = True
    bench.read(0)
    bench.lose(bench.lanes.active[1])
    assert bench.outcomes == {0: "no lane", 2: "lost"}
    bench.lose(bench.lanes.active[0])
    assert bench.outcomes == {0: "no lane", 1: "lost", 2: "lost", 3: "lost"}


STEPS = st.one_of(
    st.tuples(st.just("read"), st.integers(-1, 2), st.booleans()),
    st.tuples(st.just("crowd"), st.lists(st.integers(0, 2), min_size=1, max_size=12)),
    st.tuples(st.just("answer"), st.integers(0, 9), st.integers(0, 9)),
    st.tuples(st.just("wait"), st.sampled_from([0.0, 0.5, 5.0, 5.0, 31.0])),
    st.tuples(st.just("lose"), st.integers(0, 9)),
    st.tuples(st.just("back off"), st.booleans()),
)


def play(steps: list[tuple[Any, ...]], lanes_max: int) -> Bench:
    bench = Bench(lanes_max)
    for name, *arguments in steps:
        lanes = bench.lanes.all
        match name:
            case "read":
                bench.read(arguments[0], fence=arguments[1])
            case "crowd":
                for entry_id in arguments[0]:
                    bench.read(entry_id)
            case "wait":
                bench.wait(arguments[0])
            case "back off":
                bench.is_backing_off = arguments[0]
                bench.wait(0)  # that one may connect again is seen when somebody looks
            case "lose" if lanes:
                bench.lose(lanes[arguments[0] % len(lanes)])
            case "answer" if lanes:
                lane = lanes[arguments[0] % len(lanes)]
                if lane.at_bookie:
                    bench.answer(lane, sorted(lane.at_bookie)[arguments[1] % len(lane.at_bookie)])
        if not bench.is_backing_off:
            bench.check(is_looked_after=name == "wait")
    if not bench.is_backing_off:
        bench.wait(0)
        bench.check(is_looked_after=True)
    return bench


@settings(deadline=None, max_examples=400)
@given(steps=st.lists(STEPS, max_size=60), lanes_max=st.integers(2, 4))
@example(steps=[("crowd", [0] * 4 + [1] * 4 + [2]), ("wait", 5.0), ("read", 2, False), ("crowd", [0, 1])], lanes_max=4)
@example(steps=[("crowd", [1] * 3), ("wait", 5.0), ("crowd", [0, 0, 0, 1])], lanes_max=3)
def test_every_request_has_one_outcome_and_it_is_its_own(steps: list[tuple[Any, ...]], lanes_max: int) -> None:
    bench = play(steps, lanes_max)
    for _ in range(4):  # what waits may be sent when its key is given up, and then has as long again
        bench.wait(TIMEOUT_S)
    assert len(bench.outcomes) == len(bench.requests)


def test_the_property_finds_a_key_that_is_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def frees_at_once(self: Outstanding[object], key: bytes) -> None:
        del self.entries[key]

    monkeypatch.setattr(Outstanding, "give_up", frees_at_once)

    @settings(deadline=None, max_examples=2000, database=None, phases=[Phase.generate])
    @given(steps=st.lists(STEPS, max_size=60))
    def fails(steps: list[tuple[Any, ...]]) -> None:
        play(steps, 2)

    with pytest.raises(AssertionError, match="settled another"):
        fails()

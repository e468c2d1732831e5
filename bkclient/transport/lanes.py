"""Several connections to one bookie where one is not enough: which request goes over which, and for how long.

In protocol version 2 a connection carries one request of a key at a time (:mod:`bkclient.wire.outstanding`). A request whose
key is taken goes over another connection to the same bookie, a *lane*:

* The first lane carries everything that it can. Others are opened for requests whose key is taken on all lanes there are, and
  closed after they have been idle for a while.
* There are never more than ``lanes_max``. Beyond that requests wait, per key in the order of submission, until the key is
  free on a lane or there is room for another lane; each has a deadline. The requests that wait count as outstanding,
  so their number has the limit that outstanding requests have.
* A key that was given up is free again once its answer has come. Since it may never come, a lane is *retired* when it holds too
  many such keys, or one that a request needs when no further lane may be opened: it takes no new requests and is closed when
  it has no more to answer. One lane at least is never retired, so requests with free keys never wait.

::

    OPEN -> RETIRING, GONE        it is worn out; it was idle, or its connection was lost
    RETIRING -> GONE              it has no more to answer, or its connection was lost

In version 3 keys are never taken, and there is one lane. :class:`Lanes` holds these rules without any connection, for the
TCP and the simulated transport. It knows lanes by :class:`Lane` and acts through :class:`LanePorts`. ``R`` is whatever a
transport keeps of a request.
"""

from __future__ import annotations

from collections import deque
from enum import Enum
from typing import Final, Generic, Protocol, TypeVar

__all__ = ["NEXT", "Lane", "LanePorts", "LaneState", "Lanes"]


class LaneState(Enum):
    """Where a lane is in its life."""

    #: It takes requests; it may be connecting still.
    OPEN = "open"
    #: It takes no more, and is closed once it has no pending requests.
    RETIRING = "retiring"
    #: It is of no more use, and forgotten.
    GONE = "gone"


# Members of an enumeration take longer to find.
_OPEN: Final = LaneState.OPEN
_RETIRING: Final = LaneState.RETIRING
_GONE: Final = LaneState.GONE

NEXT: Final = {
    _OPEN: (_RETIRING, _GONE),
    _RETIRING: (_GONE,),
    _GONE: (),
}


class Lane(Protocol):
    """A connection, or one that is being made, as the rules see it."""

    @property
    def pending_requests(self) -> int:
        """How many requests on it have no outcome yet."""
        ...

    @property
    def given_up(self) -> int:
        """How many of its requests were given up and may still be answered."""
        ...

    def is_free(self, key: bytes) -> bool:
        """Whether no answer with ``key`` may come on it."""
        ...

    def is_given_up(self, key: bytes) -> bool:
        """Whether its request with ``key`` was given up and may still be answered."""
        ...


L = TypeVar("L", bound=Lane)
R = TypeVar("R")
R_contra = TypeVar("R_contra", contravariant=True)


class LanePorts(Protocol[L, R_contra]):
    """What :class:`Lanes` asks of a transport. None of it calls back into the machine or a reply handler."""

    def open_lane(self) -> L | None:
        """Begin a connection; None while the bookie is backed off from. Requests may be sent over it at once."""
        ...

    def close_lane(self, lane: L) -> None:
        """Close a lane without pending requests, which is forgotten already."""
        ...

    def send(self, lane: L, request: R_contra) -> None:
        """Send a request over ``lane``, on which its key is free."""
        ...


class Lanes(Generic[L, R]):
    """The lanes to one bookie and the requests that wait for one. Times are numbers of one clock, in seconds."""

    def __init__(self, ports: LanePorts[L, R], *, lanes_max: int, given_up_max: int, idle_s: float) -> None:
        #: Those that take requests; the first one is used wherever it can be.
        self.active: list[L] = []
        #: Those that take none any more and are closed once they have no pending requests.
        self.retiring: list[L] = []
        #: By key, the requests that wait for a lane, each with its deadline. No key is empty.
        self.waiting: dict[bytes, deque[tuple[float, R]]] = {}
        self._idle_since: dict[L, float] = {}
        #: Counts the lanes that were opened.
        self._opened = 0
        self._ports = ports
        self._lanes_max = lanes_max
        self._given_up_max = given_up_max
        self._idle_s = idle_s

    @property
    def all(self) -> list[L]:
        """Every lane."""
        return self.active + self.retiring

    def need_care(self) -> bool:
        """Whether :meth:`settled` and :meth:`sweep` have to be called: there is more than one plain lane."""
        return len(self.active) > 1 or bool(self.retiring) or bool(self.waiting)

    def submit(self, key: bytes | None, request: R, deadline: float) -> bool:
        """Send ``request`` over a lane on which ``key`` is free, or let it wait until ``deadline``.

        A request without a key can be told apart from all others. False, and nothing is kept, if there is no lane and none
        can be opened.
        """
        if key is None or key not in self.waiting:
            opened = self._opened
            lane = self._lane_for(key)
            if lane is not None:
                self._ports.send(lane, request)
                self._serve_if_opened(opened)
                return True
            if key is None or not self.active:
                return False
        self.waiting.setdefault(key, deque()).append((deadline, request))
        return True

    def changed(self, keys: list[bytes]) -> None:
        """The requests with ``keys`` of some lane were answered or given up."""
        opened = self._opened
        for key in keys:
            self._serve(key)
        self._serve_if_opened(opened)

    def settled(self, lane: L, now: float) -> None:
        """Requests of ``lane`` were answered or given up."""
        if lane in self.retiring:
            if not lane.pending_requests:
                self._close(lane)
                self._serve_all()
        elif lane in self.active:
            if lane.given_up >= self._given_up_max and self._may_retire:
                self._retire(lane)
                self._serve_all()
            elif not lane.pending_requests:
                self._idle_since[lane] = now

    def sweep(self, now: float) -> list[R]:
        """Close lanes that have been idle too long; return the requests that have waited until their deadline."""
        for lane in self.active[1:]:
            if not lane.pending_requests and self._idle_since.get(lane, now) + self._idle_s <= now:
                self._close(lane)
        expired: list[R] = []
        for key, queue in list(self.waiting.items()):
            expired += [request for deadline, request in queue if deadline <= now]
            self._keep(key, deque(item for item in queue if item[0] > now))
        self._serve_all()  # the bookie may not be backed off from any more
        return expired

    def lost(self, lane: L) -> bool:
        """``lane`` is of no more use; False if it was closed by these rules. Call :meth:`revive` next."""
        if self._state_of(lane) is _GONE:
            return False
        self._move(lane, _GONE)
        return True

    def revive(self) -> list[R]:
        """After a loss: let other lanes take what waits; return what has to fail because there is none."""
        self._serve_all()
        return [] if self.active else self.take_waiting()

    def take_waiting(self) -> list[R]:
        """Everything that waits, which is not kept."""
        waiting = [request for queue in self.waiting.values() for _, request in queue]
        self.waiting.clear()
        return waiting

    def check(self) -> None:
        """Assert what holds between events; takes time linear in the keys that are waited for."""
        if not self.need_care():
            return
        assert not set(self.active) & set(self.retiring), "a lane is in one state"
        assert self._idle_since.keys() <= set(self.active), "only a lane that takes requests is idle"
        assert all(lane.pending_requests for lane in self.retiring), "a lane that retires has something to answer"
        for key, queue in self.waiting.items():
            assert queue, "a key without a waiter is not kept"
            assert not any(lane.is_free(key) for lane in self.active), "there is no waiter for a key that is free"

    # Choosing

    def _lane_for(self, key: bytes | None) -> L | None:
        for lane in self.active:
            if key is None or lane.is_free(key):
                return lane
        if key is not None and len(self.active) + len(self.retiring) >= self._lanes_max:
            self._make_room(key)
            if len(self.active) + len(self.retiring) >= self._lanes_max:
                return None
        lane_opened = self._ports.open_lane()
        if lane_opened is not None:
            self._opened += 1
            self.active.append(lane_opened)
            self._assert_bounds()
        return lane_opened

    def _make_room(self, key: bytes) -> None:
        """Retire a lane on which ``key`` was given up: rather not the first one, then one that is idle, or has most such keys."""
        worn = [lane for lane in self.active if lane.is_given_up(key)]
        if worn and self._may_retire:
            first = self.active[0]
            self._retire(max(worn, key=lambda lane: (lane is not first, not lane.pending_requests, lane.given_up)))

    @property
    def _may_retire(self) -> bool:
        return len(self.retiring) < self._lanes_max - 1

    def _retire(self, lane: L) -> None:
        self._move(lane, _RETIRING)
        if not lane.pending_requests:
            self._close(lane)

    def _close(self, lane: L) -> None:
        assert not lane.pending_requests, "a lane is closed when it has no more to answer"
        self._move(lane, _GONE)
        self._ports.close_lane(lane)

    def _state_of(self, lane: L) -> LaneState:
        if lane in self.active:
            return _OPEN
        return _RETIRING if lane in self.retiring else _GONE

    def _move(self, lane: L, state: LaneState) -> None:
        """The one place where lanes change their state."""
        before = self._state_of(lane)
        assert state in NEXT[before], f"a lane that is {before.value} becomes {state.value}"
        if before is _OPEN:
            self._idle_since.pop(lane, None)
            self.active.remove(lane)
        else:
            self.retiring.remove(lane)
        if state is _RETIRING:
            self.retiring.append(lane)
        self._assert_bounds()

    def _assert_bounds(self) -> None:
        assert len(self.active) + len(self.retiring) <= self._lanes_max, "lanes are bounded"
        assert len(self.retiring) < self._lanes_max, "there is always one lane to take requests, or room for it"

    def _serve_all(self) -> None:
        opened = self._opened
        for key in list(self.waiting):
            self._serve(key)
        self._serve_if_opened(opened)

    def _serve_if_opened(self, opened: int) -> None:
        """Serve all keys if lanes were opened since there were ``opened``: every key is free on those."""
        if self.waiting and self._opened != opened:
            self._serve_all()

    def _serve(self, key: bytes) -> None:
        queue = self.waiting.get(key, deque())
        while queue:
            lane = self._lane_for(key)
            if lane is None:
                return
            _, request = queue.popleft()
            self._keep(key, queue)
            self._ports.send(lane, request)

    def _keep(self, key: bytes, queue: deque[tuple[float, R]]) -> None:
        if queue:
            self.waiting[key] = queue
        else:
            self.waiting.pop(key, None)
